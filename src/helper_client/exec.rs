//! Runs one program over a bridge: stdin, stdout, stderr, signals and the end, byte for byte.
//!
//! The loop never waits for the person's terminal: threads read and write it, bounded by the credit
//! that is granted as they get rid of bytes. So pings go out however slow the reader is, and a chunk
//! costs no more than its system call.

use std::io::{Read, Write};

use schema::message::{
    Body, Credit, Eof, Exec, Exited, Ping, Resize, STDERR, STDIN, STDOUT, Signal, Variable, WINDOW,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::HelperError;
use super::bridge::{Bridge, FrameWriter, PING, SILENCE};
use super::streams::{Input, Output, Written};

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    /// The program and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// Variables on top of the machine's own.
    pub env: Vec<(String, String)>,
    /// Lines and columns of the terminal to run it in, instead of pipes. Its errors are then part of
    /// its output.
    pub terminal: Option<(u16, u16)>,
}

/// Where the program's streams come from and go to.
pub struct Streams {
    /// Its input. A read that waits when the program ends is left to wait.
    pub stdin: Box<dyn Read + Send>,
    /// Its output.
    pub stdout: Box<dyn Write + Send>,
    /// Its errors.
    pub stderr: Box<dyn Write + Send>,
    /// Signals to pass on, by number.
    pub signals: mpsc::Receiver<i32>,
    /// New sizes of its terminal: lines and columns.
    pub resizes: mpsc::Receiver<(u16, u16)>,
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

/// Runs a program to its end and returns how it ended.
pub async fn run(
    mut bridge: Bridge,
    request: ExecRequest,
    streams: Streams,
) -> Result<Exited, ExecError> {
    let env = request.env.into_iter().map(|(name, value)| Variable { name, value }).collect();
    let terminal = request.terminal.map(resize);
    let asked = Body::Exec(Exec { argv: request.argv, env, directory: Vec::new(), terminal });
    bridge.writer.send(asked).await.map_err(|error| match error {
        HelperError::TooLong(_) => {
            ExecError::NotStarted { reason: error.to_string(), not_found: false }
        }
        error => error.into(),
    })?;
    let (report, written) = mpsc::unbounded_channel();
    let (stdout, stdout_done) = Output::start(STDOUT, streams.stdout, report.clone());
    let (stderr, stderr_done) = Output::start(STDERR, streams.stderr, report);
    let mut running = Running {
        input: Input::start(streams.stdin),
        outputs: [stdout, stderr],
        written,
        signals: streams.signals,
        resizes: streams.resizes,
    };
    let exited = running.pump(&mut bridge).await?;
    // The program's end came in sequence, so nothing is missing, whatever becomes of the goodbye.
    let _ = bridge.goodbye().await;
    for output in &mut running.outputs {
        output.queue = None;
    }
    // The threads end when they have written all; a channel that closes says so.
    let _ = tokio::join!(stdout_done, stderr_done);
    Ok(exited)
}

struct Running {
    input: Input,
    outputs: [Output; 2],
    written: mpsc::UnboundedReceiver<Written>,
    signals: mpsc::Receiver<i32>,
    resizes: mpsc::Receiver<(u16, u16)>,
}

fn resize((rows, columns): (u16, u16)) -> Resize {
    Resize { rows: rows.into(), columns: columns.into() }
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
        loop {
            tokio::select! {
                message = bridge.reader.next() => {
                    heard = Instant::now();
                    if let Some(exited) = self.take(message?, &mut bridge.writer).await? {
                        return Ok(exited);
                    }
                }
                chunk = self.input.next() => {
                    self.input.send(chunk, &mut bridge.writer).await?;
                }
                Some((stream, amount)) = self.written.recv() => {
                    self.credit(stream, amount, &mut bridge.writer).await?;
                }
                Some(number) = self.signals.recv() => {
                    bridge.writer.send(Body::Signal(Signal { number })).await?;
                }
                Some(size) = self.resizes.recv() => {
                    bridge.writer.send(Body::Resize(resize(size))).await?;
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
            Body::Eof(Eof { stream: STDIN }) => {
                self.input.chunks = None;
                self.input.pending.clear();
            }
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
