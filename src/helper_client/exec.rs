//! Runs one program over a bridge: stdin, stdout, stderr, signals and the end, byte for byte.
//!
//! The loop never waits for the person's terminal: output goes to writer tasks, bounded by the
//! credit that is granted as they get rid of it. So pings go out however slow the reader is.

use std::io;
use std::time::Duration;

use schema::frame::MAX_DATA;
use schema::message::{
    Body, Credit, Data, Eof, Exec, Exited, Ping, STDERR, STDIN, STDOUT, Signal, Variable, WINDOW,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::HelperError;
use super::bridge::{Bridge, FrameWriter, SILENCE};

/// How often the helper hears that this side lives; it leaves after six missed ones.
const PING: Duration = Duration::from_secs(5);

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    /// The program and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// Variables on top of the machine's own.
    pub env: Vec<(String, String)>,
}

/// Where the program's streams come from and go to.
pub struct Streams {
    /// Its input.
    pub stdin: Box<dyn AsyncRead + Send + Unpin>,
    /// Its output.
    pub stdout: Box<dyn AsyncWrite + Send + Unpin>,
    /// Its errors.
    pub stderr: Box<dyn AsyncWrite + Send + Unpin>,
    /// Signals to pass on, by number.
    pub signals: mpsc::Receiver<i32>,
}

/// Why the program's end is not known.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// It was not started.
    #[error("{reason}")]
    NotStarted {
        /// Why.
        reason: String,
        /// There is no such program.
        not_found: bool,
    },
    /// The bridge broke. The program was hung up, or will be within 30 s.
    #[error(transparent)]
    Helper(#[from] HelperError),
}

/// What a writer task reports: its stream, and how much it got rid of; `None`: nobody reads it.
type Written = (u32, Option<u64>);

/// Runs a program to its end and returns how it ended.
pub async fn run(
    mut bridge: Bridge,
    request: ExecRequest,
    streams: Streams,
) -> Result<Exited, ExecError> {
    let env = request.env.into_iter().map(|(name, value)| Variable { name, value }).collect();
    bridge.writer.send(Body::Exec(Exec { argv: request.argv, env, directory: Vec::new() })).await?;
    let mut writers = JoinSet::new();
    let (report, written) = mpsc::unbounded_channel();
    let stdout = Output::start(&mut writers, STDOUT, streams.stdout, report.clone());
    let stderr = Output::start(&mut writers, STDERR, streams.stderr, report);
    let mut running = Running {
        input: Input { stdin: Some(streams.stdin), sent: 0, limit: 0 },
        outputs: [stdout, stderr],
        written,
        signals: streams.signals,
    };
    let exited = running.pump(&mut bridge).await?;
    // The program's end came in sequence, so nothing is missing, whatever becomes of the goodbye.
    let _ = bridge.goodbye().await;
    for output in &mut running.outputs {
        output.queue = None;
    }
    while writers.join_next().await.is_some() {}
    Ok(exited)
}

struct Running {
    input: Input,
    outputs: [Output; 2],
    written: mpsc::UnboundedReceiver<Written>,
    signals: mpsc::Receiver<i32>,
}

struct Input {
    stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    sent: u64,
    limit: u64,
}

struct Output {
    stream: u32,
    /// Bounded by the credit that was granted: at most one window waits in it.
    queue: Option<mpsc::UnboundedSender<Vec<u8>>>,
    received: u64,
    limit: u64,
}

impl Running {
    async fn pump(&mut self, bridge: &mut Bridge) -> Result<Exited, ExecError> {
        for output in &mut self.outputs {
            output.limit = WINDOW;
            let credit = Credit { stream: output.stream, limit: WINDOW };
            bridge.writer.send(Body::Credit(credit)).await?;
        }
        let mut ping = interval(PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut chunk = vec![0; MAX_DATA];
        loop {
            tokio::select! {
                message = bridge.reader.next() => {
                    heard = Instant::now();
                    if let Some(exited) = self.take(message?, &mut bridge.writer).await? {
                        return Ok(exited);
                    }
                }
                read = self.input.read(&mut chunk) => {
                    self.input.send(&chunk, read, &mut bridge.writer).await?;
                }
                Some((stream, amount)) = self.written.recv() => {
                    self.credit(stream, amount, &mut bridge.writer).await?;
                }
                Some(number) = self.signals.recv() => {
                    bridge.writer.send(Body::Signal(Signal { number })).await?;
                }
                _ = ping.tick() => bridge.writer.send(Body::Ping(Ping {})).await?,
                () = sleep_until(heard + SILENCE) => {
                    let text = format!("no word for {} s", SILENCE.as_secs());
                    return Err(HelperError::Lost(text).into());
                }
            }
        }
    }

    async fn take(
        &mut self,
        body: Body,
        writer: &mut FrameWriter,
    ) -> Result<Option<Exited>, ExecError> {
        match body {
            Body::Exited(exited) => return Ok(Some(exited)),
            Body::Failed(failed) => {
                let reason = failed.reason.chars().filter(|c| !c.is_control()).take(500).collect();
                return Err(ExecError::NotStarted { reason, not_found: failed.not_found });
            }
            Body::Data(data) => self.output(data.stream)?.take(data)?,
            Body::Credit(credit) if credit.stream == STDIN => {
                self.input.limit = self.input.limit.max(credit.limit);
            }
            // The program reads no more.
            Body::Eof(Eof { stream: STDIN }) => self.input.stdin = None,
            Body::Eof(eof) => self.output(eof.stream)?.queue = None,
            Body::Started(_) | Body::Pong(_) => {}
            Body::Ping(_) => writer.send(Body::Pong(schema::message::Pong {})).await?,
            _ => return Err(HelperError::Lost("a message that has no place here".into()).into()),
        }
        Ok(None)
    }

    fn output(&mut self, stream: u32) -> Result<&mut Output, HelperError> {
        let found = self.outputs.iter_mut().find(|output| output.stream == stream);
        found.ok_or_else(|| HelperError::Lost("data for a stream that does not exist".into()))
    }

    /// Grants what a writer got rid of, half a window at a time.
    async fn credit(
        &mut self,
        stream: u32,
        amount: Option<u64>,
        writer: &mut FrameWriter,
    ) -> Result<(), HelperError> {
        let output = self.output(stream)?;
        let Some(written) = amount else {
            output.queue = None;
            return writer.send(Body::Eof(Eof { stream })).await;
        };
        if written + WINDOW < output.limit + WINDOW / 2 {
            return Ok(());
        }
        output.limit = written + WINDOW;
        writer.send(Body::Credit(Credit { stream, limit: output.limit })).await
    }
}

impl Input {
    /// Reads what may be sent. Cancel safe; pending for ever where nothing may.
    async fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.limit - self.sent).unwrap_or(usize::MAX).min(chunk.len());
        match &mut self.stdin {
            Some(stdin) if room > 0 => stdin.read(&mut chunk[..room]).await,
            _ => std::future::pending().await,
        }
    }

    async fn send(
        &mut self,
        chunk: &[u8],
        read: io::Result<usize>,
        writer: &mut FrameWriter,
    ) -> Result<(), HelperError> {
        // An input that breaks ends, as a closed terminal does.
        let read = read.unwrap_or(0);
        if read == 0 {
            self.stdin = None;
            return writer.send(Body::Eof(Eof { stream: STDIN })).await;
        }
        let data = Data { stream: STDIN, offset: self.sent, bytes: chunk[..read].to_vec() };
        self.sent += read as u64;
        writer.send(Body::Data(data)).await
    }
}

impl Output {
    fn start(
        writers: &mut JoinSet<()>,
        stream: u32,
        mut target: Box<dyn AsyncWrite + Send + Unpin>,
        report: mpsc::UnboundedSender<Written>,
    ) -> Self {
        let (queue, mut chunks) = mpsc::unbounded_channel::<Vec<u8>>();
        writers.spawn(async move {
            let mut written = 0;
            while let Some(chunk) = chunks.recv().await {
                let write = async {
                    target.write_all(&chunk).await?;
                    target.flush().await
                };
                let amount = write.await.ok().map(|()| {
                    written += chunk.len() as u64;
                    written
                });
                let _ = report.send((stream, amount));
                if amount.is_none() {
                    break;
                }
            }
        });
        Self { stream, queue: Some(queue), received: 0, limit: 0 }
    }

    /// Passes data on; the helper may not send beyond its credit, nor leave a gap.
    fn take(&mut self, data: Data) -> Result<(), HelperError> {
        let end = data.offset.saturating_add(data.bytes.len() as u64);
        if data.offset != self.received || end > self.limit {
            return Err(HelperError::Lost("data out of order or beyond its credit".into()));
        }
        self.received = end;
        if let Some(queue) = &self.queue {
            // A writer that is gone has said so itself.
            let _ = queue.send(data.bytes);
        }
        Ok(())
    }
}
