//! A person's streams as threads read and write them: bounded by credit, and never waited for by the
//! loop between them.

use std::io::{self, Read, Write};

use schema::bytes::Bytes;
use schema::frame::MAX_DATA;
use schema::message::{Body, Data, Eof, STDIN};
use tokio::sync::{mpsc, oneshot};

use super::HelperError;
use super::bridge::FrameWriter;

/// Chunks of input that wait to be sent.
const READ_AHEAD: usize = 16;

/// What a writer reports: its stream, and how much it got rid of; `None`: nobody reads it.
pub(super) type Written = (u32, Option<u64>);

/// What is read and sent.
pub(super) struct Input {
    /// Chunks as they were read; `None` once nothing more is wanted or there.
    pub(super) chunks: Option<mpsc::Receiver<Bytes>>,
    /// Read, and not sent yet for want of credit.
    pub(super) pending: Bytes,
    sent: u64,
    pub(super) limit: u64,
}

/// What is received and written.
pub(super) struct Output {
    pub(super) stream: u32,
    /// Bounded by the credit that was granted: at most one window waits in it.
    pub(super) queue: Option<std::sync::mpsc::Sender<Bytes>>,
    pub(super) received: u64,
    pub(super) limit: u64,
}

/// Reads a stream on a thread of its own; the channel ends with it.
pub(super) fn read_ahead(mut stream: Box<dyn Read + Send>) -> mpsc::Receiver<Bytes> {
    let (sender, chunks) = mpsc::channel(READ_AHEAD);
    std::thread::spawn(move || {
        let mut buffer = vec![0; MAX_DATA];
        loop {
            // A stream that breaks ends, as a closed terminal does.
            let read = match stream.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result.unwrap_or(0),
            };
            let chunk = Bytes::copy_from_slice(&buffer[..read]);
            if read == 0 || sender.blocking_send(chunk).is_err() {
                break;
            }
        }
    });
    chunks
}

impl Input {
    pub(super) fn start(stdin: Box<dyn Read + Send>) -> Self {
        Self { chunks: Some(read_ahead(stdin)), pending: Bytes::new(), sent: 0, limit: 0 }
    }

    fn room(&self) -> usize {
        usize::try_from(self.limit - self.sent).unwrap_or(usize::MAX).min(MAX_DATA)
    }

    /// The next bytes that may be sent; empty at the end. Cancel safe; pending for ever where
    /// nothing may.
    pub(super) async fn next(&mut self) -> Bytes {
        let room = self.room();
        match &mut self.chunks {
            Some(chunks) if room > 0 => {
                if self.pending.is_empty() {
                    self.pending = chunks.recv().await.unwrap_or_default();
                }
                self.pending.split_to(self.pending.len().min(room))
            }
            _ => std::future::pending().await,
        }
    }

    pub(super) async fn send(
        &mut self,
        bytes: Bytes,
        writer: &mut FrameWriter,
    ) -> Result<(), HelperError> {
        if bytes.is_empty() {
            self.chunks = None;
            return writer.send(Body::Eof(Eof { stream: STDIN })).await;
        }
        let offset = self.sent;
        self.sent += bytes.len() as u64;
        writer.send(Body::Data(Data { stream: STDIN, offset, bytes })).await
    }
}

impl Output {
    /// Starts the writer's thread; what is returned beside it resolves when all is written.
    pub(super) fn start(
        stream: u32,
        mut target: Box<dyn Write + Send>,
        report: mpsc::UnboundedSender<Written>,
    ) -> (Self, oneshot::Receiver<()>) {
        let (queue, chunks) = std::sync::mpsc::channel::<Bytes>();
        let (done, finished) = oneshot::channel();
        std::thread::spawn(move || {
            let mut written = 0;
            for chunk in chunks {
                let result = target.write_all(&chunk).and_then(|()| target.flush());
                let amount = result.ok().map(|()| {
                    written += chunk.len() as u64;
                    written
                });
                let _ = report.send((stream, amount));
                if amount.is_none() {
                    break;
                }
            }
            let _ = done.send(());
        });
        (Self { stream, queue: Some(queue), received: 0, limit: 0 }, finished)
    }

    /// Passes data on; the helper may not send beyond its credit, nor leave a gap.
    pub(super) fn take(&mut self, data: Data) -> Result<(), HelperError> {
        let end = data.offset.checked_add(data.bytes.len() as u64);
        let fits = |end: &u64| data.offset == self.received && *end <= self.limit;
        let Some(end) = end.filter(fits) else {
            return Err(HelperError::Lost("data out of order or beyond its credit".into()));
        };
        self.received = end;
        self.pass(data.bytes);
        Ok(())
    }

    /// Passes bytes on that are not of the stream.
    pub(super) fn pass(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        if let Some(queue) = &self.queue {
            // A writer that is gone has said so itself.
            let _ = queue.send(bytes);
        }
    }
}
