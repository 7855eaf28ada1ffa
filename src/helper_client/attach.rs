//! Attaches a person's terminal to a session, over one bridge after another: the screen, then what is
//! printed, byte for byte; and what is typed, in order and never twice.

use std::io::{Read, Write};

use schema::bytes::Bytes;
use schema::message::{
    Attach, Attached, Body, Credit, Data, Exited, LOG, Ping, Repaint, Resize, SCREEN, STDIN, VIEW,
};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Duration, Instant, MissedTickBehavior, interval, sleep_until};

use super::HelperError;
use super::bridge::{Bridge, PING};
use super::streams::{Output, Written};
use super::typing::Typing;

/// The largest paint that is put up with, in bytes; also what may wait for a terminal at most.
const MOST_PAINT: u64 = 64 << 20;

/// Where so many bytes wait for the terminal, notices are left out.
const MOST_NOTICES: u64 = 1 << 20;

/// A connection that says nothing for so long is taken for broken: two pings were lost.
const SILENCE: Duration = Duration::from_secs(12);

/// Whom to attach to, and as what.
#[derive(Debug, Clone)]
pub struct AttachRequest {
    /// The session.
    pub name: String,
    /// Lines and columns of the terminal.
    pub size: (u16, u16),
    /// Only look: neither type nor set the size.
    pub read_only: bool,
    /// Lines of earlier output to print before the first screen, at most what the helper keeps.
    pub scrollback: u32,
    /// Random bytes that name this attachment over all its connections.
    pub client: [u8; 16],
}

/// So long the session's holder may take to answer before a word is said.
const ANSWER: Duration = Duration::from_secs(5);

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

/// How an attachment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachEnd {
    /// The person left; the session goes on.
    Detached,
    /// The session's program ended, and all it printed was shown.
    Ended(Exited),
}

/// One terminal attached to one session, whatever becomes of its connections.
pub struct Attachment {
    request: AttachRequest,
    leave: oneshot::Receiver<()>,
    resizes: mpsc::Receiver<(u16, u16)>,
    typing: Typing,
    output: Output,
    report: mpsc::UnboundedReceiver<Written>,
    shown: oneshot::Receiver<()>,
    /// Bytes handed to the writer, of paints, notices and output, and those it got rid of.
    queued: u64,
    written: u64,
    /// What the terminal shows of the session's output.
    view: View,
    /// A notice stands on the terminal.
    noticed: bool,
    /// The session's holder answered over this connection.
    answered: bool,
}

/// How the terminal stands to the session's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    /// It has nothing, or half a paint: so many bytes of it.
    Painting(u64),
    /// It has all up to the offset that [`Output`] received.
    Whole,
}

impl Attachment {
    /// Begins to read the terminal. Must be called within a runtime.
    pub fn start(request: AttachRequest, terminal: Terminal) -> Self {
        let (report, written) = mpsc::unbounded_channel();
        let (output, shown) = Output::start(LOG, terminal.output, report);
        Self {
            typing: Typing::start(terminal.input, request.read_only),
            request,
            leave: terminal.leave,
            resizes: terminal.resizes,
            output,
            report: written,
            shown,
            queued: 0,
            written: 0,
            view: View::Painting(0),
            noticed: false,
            answered: false,
        }
    }

    /// Grows with every byte that came or is known to have come: a connection that breaks without
    /// any was of no use.
    pub fn progress(&self) -> u64 {
        self.output.received + self.typing.confirmed()
    }

    /// Attaches over a bridge until the person leaves or the session ends.
    ///
    /// # Errors
    /// [`HelperError::Refused`] where there is no such session; [`HelperError::Lost`] where the
    /// connection broke: the session goes on then, and so does this attachment over another bridge.
    pub async fn over(&mut self, mut bridge: Bridge) -> Result<AttachEnd, HelperError> {
        self.typing.hold();
        self.answered = false;
        let (rows, columns) = self.request.size;
        let received = (self.view == View::Whole).then_some(self.output.received);
        let message = Attach {
            name: self.request.name.clone(),
            rows: rows.into(),
            columns: columns.into(),
            read_only: self.request.read_only,
            client: self.request.client.into(),
            received,
            repaint: self.noticed,
            scrollback: self.request.scrollback,
        };
        bridge.writer.send(Body::Attach(message)).await?;
        let end = self.pump(&mut bridge).await?;
        let _ = bridge.goodbye().await;
        Ok(end)
    }

    /// Waits for something while there is no connection: what is typed is kept, up to a bound, and
    /// `notices` are shown; who waits for a person hears of a key by `hurry`. `None` where the person
    /// leaves.
    pub async fn meanwhile<T>(
        &mut self,
        work: impl Future<Output = T>,
        notices: &mut mpsc::UnboundedReceiver<String>,
        hurry: &Notify,
    ) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                Some(text) = notices.recv() => self.notice(&text),
                typed = self.typing.read() => {
                    if !typed {
                        return None;
                    }
                    hurry.notify_one();
                }
                _ = &mut self.leave => return None,
                Some(size) = self.resizes.recv() => self.request.size = size,
                Some((_, amount)) = self.report.recv() => self.written = amount?,
            }
        }
    }

    /// Waits for a key while there is no connection; `false` where the person leaves.
    pub async fn key(&mut self) -> bool {
        if self.typing.waits() {
            return true;
        }
        tokio::select! {
            typed = self.typing.read() => typed,
            _ = &mut self.leave => false,
        }
    }

    /// Bytes that the terminal has not taken yet.
    fn waiting(&self) -> u64 {
        self.queued.saturating_sub(self.written)
    }

    /// Shows a line at the bottom of the terminal; the next paint takes it away.
    pub fn notice(&mut self, text: &str) {
        // A terminal that takes nothing shows no notices either.
        if self.waiting() > MOST_NOTICES {
            return;
        }
        let (rows, columns) = self.request.size;
        let text: String = text.chars().take(usize::from(columns).saturating_sub(1)).collect();
        let line = format!("\x1b7\x1b[{rows};1H\x1b[0;7m{text}\x1b[K\x1b[0m\x1b8");
        self.queued += line.len() as u64;
        self.output.pass(line.into());
        self.noticed = true;
    }

    /// Lets the terminal go, once all was shown where the session ended.
    pub async fn finish(mut self, all: bool) {
        self.output.queue = None;
        // The writer ends when it has written all. One that nobody reads is not waited for.
        if all {
            let _ = self.shown.await;
        }
    }

    async fn pump(&mut self, bridge: &mut Bridge) -> Result<AttachEnd, HelperError> {
        let mut ping = interval(PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begun = Instant::now();
        let (mut heard, mut said) = (begun, false);
        loop {
            tokio::select! {
                message = bridge.reader.next() => {
                    heard = Instant::now();
                    if let Some(end) = self.take(message?)? {
                        return Ok(end);
                    }
                }
                typed = self.typing.read() => {
                    if !typed {
                        return Ok(AttachEnd::Detached);
                    }
                    if std::mem::take(&mut self.noticed) {
                        bridge.writer.send(Body::Repaint(Repaint {})).await?;
                    }
                }
                _ = &mut self.leave => return Ok(AttachEnd::Detached),
                Some((_, amount)) = self.report.recv() => {
                    let Some(amount) = amount else { return Ok(AttachEnd::Detached) };
                    self.written = amount;
                    self.grant(bridge).await?;
                }
                Some(size) = self.resizes.recv() => {
                    self.request.size = size;
                    let (rows, columns) = (size.0.into(), size.1.into());
                    bridge.writer.send(Body::Resize(Resize { rows, columns })).await?;
                }
                _ = ping.tick() => bridge.writer.send(Body::Ping(Ping {})).await?,
                () = sleep_until(heard + SILENCE) => {
                    return Err(HelperError::Lost(format!("no word for {} s", SILENCE.as_secs())));
                }
                () = sleep_until(begun + ANSWER), if !self.answered && !said => {
                    said = true;
                    self.notice("the machine is there, and the session does not answer");
                }
            }
            while let Some((offset, bytes)) = self.typing.next() {
                bridge.writer.send(Body::Data(Data { stream: STDIN, offset, bytes })).await?;
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
            Body::Attached(attached) => self.attached(attached)?,
            Body::Data(Data { stream: SCREEN, offset, bytes }) => self.paint(offset, bytes)?,
            Body::Painted(painted) => {
                (self.view, self.noticed) = (View::Whole, false);
                self.request.scrollback = 0;
                self.output.received = painted.offset;
                self.output.limit = painted.offset.saturating_add(VIEW);
            }
            Body::Data(data) if data.stream == LOG && self.view == View::Whole => {
                self.queued += data.bytes.len() as u64;
                self.output.take(data)?;
            }
            Body::Credit(credit) if credit.stream == STDIN => self.typing.may_go_to(credit.limit),
            Body::Notice(notice) => {
                let text: String = notice.text.chars().filter(|c| !c.is_control()).collect();
                self.notice(&text);
            }
            Body::Pong(_) => {}
            _ => return Err(HelperError::Lost("a message that has no place here".into())),
        }
        Ok(None)
    }

    /// How much of what was typed has come, and whether the output goes on where it was.
    fn attached(&mut self, attached: Attached) -> Result<(), HelperError> {
        self.answered = true;
        let known = attached.known.then_some(attached.typed);
        if !self.typing.came(known) {
            return Err(HelperError::Lost("more was typed there than here".into()));
        }
        if !attached.resumed {
            self.view = View::Painting(0);
        } else if self.view == View::Whole {
            self.output.limit = self.output.received.saturating_add(VIEW);
        } else {
            return Err(HelperError::Lost("it goes on where nothing was".into()));
        }
        Ok(())
    }

    fn paint(&mut self, offset: u64, bytes: Bytes) -> Result<(), HelperError> {
        let at = match self.view {
            View::Painting(at) if offset > 0 => at,
            _ => 0,
        };
        let end = at + bytes.len() as u64;
        if offset != at || end.max(self.waiting()) > MOST_PAINT {
            return Err(HelperError::Lost("a screen out of order".into()));
        }
        self.view = View::Painting(end);
        self.queued += bytes.len() as u64;
        self.output.pass(bytes);
        Ok(())
    }

    /// Lets the session go on as far as the terminal got rid of what it was sent.
    async fn grant(&mut self, bridge: &mut Bridge) -> Result<(), HelperError> {
        let limit = self.output.received.saturating_add(VIEW).saturating_sub(self.waiting());
        if self.view != View::Whole || limit < self.output.limit.saturating_add(VIEW / 2) {
            return Ok(());
        }
        self.output.limit = limit;
        bridge.writer.send(Body::Credit(Credit { stream: LOG, limit })).await
    }
}
