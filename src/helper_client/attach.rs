//! Attaches a person's terminal to a session over a bridge: the screen, then what is printed; and
//! what is typed, in order.

use std::io::{Read, Write};

use schema::bytes::Bytes;
use schema::message::{Attach, Body, Credit, Data, Exited, LOG, Ping, Resize, SCREEN, STDIN, VIEW};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::HelperError;
use super::bridge::{Bridge, PING, SILENCE};
use super::streams::{Input, Output, Written};

/// The largest paint that is put up with, in bytes.
const MOST_PAINT: u64 = 64 << 20;

/// Whom to attach to, and as what.
#[derive(Debug, Clone)]
pub struct AttachRequest {
    /// The session.
    pub name: String,
    /// Lines and columns of the terminal.
    pub size: (u16, u16),
    /// Only look: neither type nor set the size.
    pub read_only: bool,
}

/// The person's terminal.
pub struct Terminal {
    /// What is typed.
    pub input: Box<dyn Read + Send>,
    /// Resolves when the person leaves, however much of what was typed still waits.
    pub leave: oneshot::Receiver<()>,
    /// What is shown.
    pub output: Box<dyn Write + Send>,
    /// New sizes, as lines and columns.
    pub resizes: mpsc::Receiver<(u16, u16)>,
}

/// What a person wants besides typing.
struct Wishes {
    leave: oneshot::Receiver<()>,
    resizes: mpsc::Receiver<(u16, u16)>,
}

/// How an attachment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachEnd {
    /// The person left; the session goes on.
    Detached,
    /// The session's program ended, and all it printed was shown.
    Ended(Exited),
}

struct Attached {
    read_only: bool,
    input: Input,
    output: Output,
    /// Bytes handed to the writer, of paints and output, and those it got rid of.
    queued: u64,
    written: u64,
    /// Where the next byte of a paint belongs; `None` outside of one.
    painting: Option<u64>,
}

/// Attaches until the person leaves or the session ends.
///
/// # Errors
/// [`HelperError::Refused`] where there is no such session; [`HelperError::Lost`] where the
/// connection broke: the session goes on then.
pub async fn attach(
    mut bridge: Bridge,
    request: AttachRequest,
    terminal: Terminal,
) -> Result<AttachEnd, HelperError> {
    let (rows, columns) = request.size;
    let message = Attach {
        name: request.name,
        rows: rows.into(),
        columns: columns.into(),
        read_only: request.read_only,
    };
    bridge.writer.send(Body::Attach(message)).await?;
    let mut wishes = Wishes { leave: terminal.leave, resizes: terminal.resizes };
    let (report, mut written) = mpsc::unbounded_channel();
    let (output, shown) = Output::start(LOG, terminal.output, report);
    let mut attached = Attached {
        read_only: request.read_only,
        input: Input::start(terminal.input),
        output,
        queued: 0,
        written: 0,
        painting: Some(0),
    };
    if request.read_only {
        // Nothing is sent, but all is read: the keys that leave are among it.
        attached.input.limit = u64::MAX;
    }
    let end = attached.pump(&mut bridge, &mut written, &mut wishes).await?;
    let _ = bridge.goodbye().await;
    attached.output.queue = None;
    // The writer ends when it has written all. One that nobody reads is not waited for.
    if let AttachEnd::Ended(_) = end {
        let _ = shown.await;
    }
    Ok(end)
}

impl Attached {
    async fn pump(
        &mut self,
        bridge: &mut Bridge,
        written: &mut mpsc::UnboundedReceiver<Written>,
        wishes: &mut Wishes,
    ) -> Result<AttachEnd, HelperError> {
        let mut ping = interval(PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                message = bridge.reader.next() => {
                    heard = Instant::now();
                    if let Some(end) = self.take(message?)? {
                        return Ok(end);
                    }
                }
                typed = self.input.next() => {
                    if typed.is_empty() {
                        return Ok(AttachEnd::Detached);
                    }
                    if !self.read_only {
                        self.input.send(typed, &mut bridge.writer).await?;
                    }
                }
                _ = &mut wishes.leave => return Ok(AttachEnd::Detached),
                Some((_, amount)) = written.recv() => {
                    let Some(amount) = amount else { return Ok(AttachEnd::Detached) };
                    self.written = amount;
                    self.grant(bridge).await?;
                }
                Some((rows, columns)) = wishes.resizes.recv() => {
                    let resize = Resize { rows: rows.into(), columns: columns.into() };
                    bridge.writer.send(Body::Resize(resize)).await?;
                }
                _ = ping.tick() => bridge.writer.send(Body::Ping(Ping {})).await?,
                () = sleep_until(heard + SILENCE) => {
                    return Err(HelperError::Lost(format!("no word for {} s", SILENCE.as_secs())));
                }
            }
        }
    }

    fn take(&mut self, body: Body) -> Result<Option<AttachEnd>, HelperError> {
        match body {
            Body::Exited(exited) => return Ok(Some(AttachEnd::Ended(exited))),
            Body::Failed(failed) => {
                let reason = failed.reason.chars().filter(|c| !c.is_control()).take(500).collect();
                return Err(HelperError::Refused(reason));
            }
            Body::Data(Data { stream: SCREEN, offset, bytes }) => self.paint(offset, bytes)?,
            Body::Painted(painted) => {
                self.painting = None;
                self.output.received = painted.offset;
                self.output.limit = painted.offset.saturating_add(VIEW);
            }
            Body::Data(data) if data.stream == LOG && self.painting.is_none() => {
                self.queued += data.bytes.len() as u64;
                self.output.take(data)?;
            }
            Body::Credit(credit) if credit.stream == STDIN => {
                self.input.limit = self.input.limit.max(credit.limit);
            }
            Body::Pong(_) => {}
            _ => return Err(HelperError::Lost("a message that has no place here".into())),
        }
        Ok(None)
    }

    fn paint(&mut self, offset: u64, bytes: Bytes) -> Result<(), HelperError> {
        let at = if offset == 0 { 0 } else { self.painting.unwrap_or(0) };
        let end = at + bytes.len() as u64;
        if offset != at || end > MOST_PAINT {
            return Err(HelperError::Lost("a screen out of order".into()));
        }
        self.painting = Some(end);
        self.queued += bytes.len() as u64;
        self.output.pass(bytes);
        Ok(())
    }

    /// Lets the session go on as far as the terminal got rid of what it was sent.
    async fn grant(&mut self, bridge: &mut Bridge) -> Result<(), HelperError> {
        let waiting = self.queued.saturating_sub(self.written);
        let limit = self.output.received.saturating_add(VIEW).saturating_sub(waiting);
        if self.painting.is_some() || limit < self.output.limit.saturating_add(VIEW / 2) {
            return Ok(());
        }
        self.output.limit = limit;
        bridge.writer.send(Body::Credit(Credit { stream: LOG, limit })).await
    }
}
