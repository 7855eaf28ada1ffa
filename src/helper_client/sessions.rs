//! Sessions over a bridge: new, list, logs, signals; and the idle verdict.

use std::time::Duration;

use schema::bytes::Bytes;
use schema::message::{
    Body, CheckIdle, Credit, LOG, ListSessions, NewSession as NewSessionMessage, Ping, ReadLog,
    SignalSession, Variable, WINDOW, Why,
};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::HelperError;
use super::bridge::{Bridge, PING, SILENCE};
use crate::model::{
    IdleVerdict, SessionFact, SessionState, Span, Timestamp, WakeDecision, WakeSource, Wakefulness,
    printable as plain,
};

/// For an answer of a helper that said hello. A holder that must start takes the longest.
const ANSWER: Duration = Duration::from_secs(15);
/// Two windows: more than any credit of ours allows.
const MOST_WAITING: u64 = 2 * WINDOW;
/// No machine has more; a longer list is not waited for.
const MOST_SESSIONS: usize = 5000;

/// A session to start.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// Its name; `None` lets the helper choose one after the program.
    pub name: Option<String>,
    /// The program and its arguments; empty is the user's login shell.
    pub argv: Vec<Vec<u8>>,
    /// Variables on top of the machine's own.
    pub env: Vec<(String, String)>,
    /// Lines and columns of its terminal; `None` is 24 by 80.
    pub size: Option<(u16, u16)>,
    /// How long its program counts as working after its last sign of life.
    pub busy_lease: Option<Span>,
    /// What to run in its place after a restart of the machine; empty: it ends with the machine.
    pub resume: Vec<Vec<u8>>,
}

/// A session that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedSession {
    /// What it is called.
    pub name: String,
    /// What an ended session of that name is called from now on.
    pub aside: Option<String>,
    /// It cannot take all of the machine's memory.
    pub capped: bool,
}

/// Starts a session.
///
/// # Errors
/// [`HelperError::Refused`] with the machine's word, such as a name that is taken.
pub async fn new_session(
    bridge: &mut Bridge,
    session: NewSession,
) -> Result<StartedSession, HelperError> {
    let (rows, columns) = session.size.unwrap_or((24, 80));
    let env = session.env.into_iter().map(|(name, value)| Variable { name, value }).collect();
    let message = NewSessionMessage {
        name: session.name.unwrap_or_default(),
        argv: session.argv,
        env,
        directory: Vec::new(),
        rows: rows.into(),
        columns: columns.into(),
        busy_lease: session.busy_lease.map_or(0, |span| span.0.as_secs()),
        resume: session.resume,
        restored: false,
    };
    match ask(bridge, Body::NewSession(message)).await? {
        Body::SessionStarted(started) => {
            let aside = Some(plain(&started.aside)).filter(|name| !name.is_empty());
            Ok(StartedSession { name: plain(&started.name), aside, capped: started.capped })
        }
        other => Err(unexpected(&other)),
    }
}

/// Every session of the machine, ended ones included, in the order of their starts.
pub async fn list_sessions(bridge: &mut Bridge) -> Result<Vec<SessionFact>, HelperError> {
    bridge.writer.send(Body::ListSessions(ListSessions {})).await?;
    let all = async {
        let mut sessions = Vec::new();
        loop {
            let Body::Sessions(part) = answer(bridge).await? else {
                return Err(HelperError::Lost("no list of sessions came".into()));
            };
            sessions.extend(part.sessions.iter().map(fact));
            if !part.more {
                return Ok(sessions);
            }
            if sessions.len() > MOST_SESSIONS {
                return Err(HelperError::Lost(format!("more than {MOST_SESSIONS} sessions")));
            }
        }
    };
    tokio::time::timeout(ANSWER, all)
        .await
        .unwrap_or_else(|_| Err(HelperError::Lost("its list of sessions does not end".into())))
}

/// Signals a session's processes; `None` hangs up first and kills 5 s later.
pub async fn signal_session(
    bridge: &mut Bridge,
    name: &str,
    signal: Option<i32>,
) -> Result<(), HelperError> {
    let message = SignalSession { name: name.into(), number: signal.unwrap_or(0) };
    match ask(bridge, Body::SignalSession(message)).await? {
        Body::Done(_) => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Asks what keeps the machine awake.
pub async fn wakefulness(bridge: &mut Bridge) -> Result<Wakefulness, HelperError> {
    match ask(bridge, Body::Why(Why {})).await? {
        Body::Reasons(reasons) => Ok(Wakefulness {
            sources: reasons
                .sources
                .iter()
                .map(|source| WakeSource {
                    what: plain(&source.what),
                    keeps: source.keeps,
                    why: plain(&source.why),
                })
                .collect(),
            idle_for: reasons.idle_for,
            decisions: reasons
                .decisions
                .iter()
                .map(|decision| WakeDecision {
                    at: Timestamp(decision.at),
                    what: plain(&decision.what),
                })
                .collect(),
        }),
        other => Err(unexpected(&other)),
    }
}

/// Asks whether the machine is idle long enough to stop. `ends_processes`: a stop would, so that
/// whoever is attached counts for longer.
pub async fn verdict(
    bridge: &mut Bridge,
    idle_stop: Span,
    interval: Span,
    ends_processes: bool,
) -> Result<IdleVerdict, HelperError> {
    let (idle_stop, interval) = (idle_stop.0.as_secs(), interval.0.as_secs());
    let check = CheckIdle { idle_stop, interval, ends_processes };
    match ask(bridge, Body::CheckIdle(check)).await? {
        Body::Verdict(verdict) => Ok(IdleVerdict {
            stop: verdict.stop,
            why: plain(&verdict.why),
            idle_for: verdict.idle_for,
        }),
        other => Err(unexpected(&other)),
    }
}

/// Copies what is kept of a session's output to `target`, with `follow` until the session ends.
/// Returns the offset of the first byte that was kept.
pub async fn read_log(
    bridge: &mut Bridge,
    name: &str,
    follow: bool,
    target: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<u64, LogError> {
    let request = ReadLog { name: name.into(), follow };
    let start = match ask(bridge, Body::ReadLog(request)).await? {
        Body::LogStart(start) => start.offset,
        other => return Err(unexpected(&other).into()),
    };
    let (queue, mut chunks) = mpsc::unbounded_channel::<(u64, Bytes)>();
    let (report, written) = mpsc::unbounded_channel();
    // The person's terminal may stand still for as long as it likes: pings go out all the same.
    let write = async {
        while let Some((end, chunk)) = chunks.recv().await {
            target.write_all(&chunk).await?;
            target.flush().await?;
            let _ = report.send((end, chunk.len()));
        }
        Ok(())
    };
    let receive = async {
        let received = receive_log(bridge, start, &queue, written).await;
        drop(queue);
        received
    };
    tokio::pin!(write);
    tokio::pin!(receive);
    tokio::select! {
        received = &mut receive => {
            received?;
            write.await.map_err(LogError::Target)?;
        }
        written = &mut write => written.map_err(LogError::Target)?,
    }
    Ok(start)
}

/// Takes a log's frames, as far as `written` says that they were got rid of.
async fn receive_log(
    bridge: &mut Bridge,
    start: u64,
    queue: &mpsc::UnboundedSender<(u64, Bytes)>,
    mut written: mpsc::UnboundedReceiver<(u64, usize)>,
) -> Result<(), HelperError> {
    let mut limit = start.saturating_add(WINDOW);
    bridge.writer.send(Body::Credit(Credit { stream: LOG, limit })).await?;
    let mut ping = interval(PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let mut waiting: u64 = 0;
    let mut next = start;
    loop {
        let body = tokio::select! {
            body = bridge.reader.next() => body?,
            _ = ping.tick() => {
                bridge.writer.send(Body::Ping(Ping {})).await?;
                continue;
            }
            Some((end, length)) = written.recv() => {
                waiting = waiting.saturating_sub(length as u64);
                if end.saturating_add(WINDOW / 2) > limit {
                    limit = end.saturating_add(WINDOW);
                    bridge.writer.send(Body::Credit(Credit { stream: LOG, limit })).await?;
                }
                continue;
            }
            () = sleep_until(heard + SILENCE) => {
                return Err(HelperError::Lost(format!("no word for {} s", SILENCE.as_secs())));
            }
        };
        heard = Instant::now();
        match body {
            // Offsets jump over what is not kept; what waits here is bounded all the same.
            Body::Data(data) if data.stream == LOG && data.offset >= next => {
                let mark = gap(next, data.offset);
                next = data.offset.saturating_add(data.bytes.len() as u64);
                waiting += (mark.len() + data.bytes.len()) as u64;
                if waiting > MOST_WAITING {
                    return Err(HelperError::Lost("data beyond its credit".into()));
                }
                let parts = [(data.offset, mark), (next, data.bytes)];
                if parts.into_iter().any(|part| queue.send(part).is_err()) {
                    return Ok(());
                }
            }
            Body::Eof(eof) if eof.stream == LOG => return Ok(()),
            Body::Pong(_) => {}
            other => return Err(unexpected(&other)),
        }
    }
}

/// What stands for bytes that a log has not.
fn gap(from: u64, to: u64) -> Bytes {
    match to - from {
        0 => Bytes::new(),
        missing => format!("\r\n[{missing} bytes are not kept]\r\n").into(),
    }
}

/// Why a log could not be copied to its end.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The machine.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// Who reads it.
    #[error("cannot write the log")]
    Target(#[source] std::io::Error),
}

async fn ask(bridge: &mut Bridge, question: Body) -> Result<Body, HelperError> {
    bridge.writer.send(question).await?;
    answer(bridge).await
}

/// The next answer; a refusal is an error.
async fn answer(bridge: &mut Bridge) -> Result<Body, HelperError> {
    let next = async {
        loop {
            match bridge.reader.next().await? {
                Body::Pong(_) => {}
                Body::Failed(failed) => return Err(HelperError::Refused(plain(&failed.reason))),
                body => return Ok(body),
            }
        }
    };
    tokio::time::timeout(ANSWER, next)
        .await
        .unwrap_or_else(|_| Err(HelperError::Lost(format!("no answer for {} s", ANSWER.as_secs()))))
}

fn unexpected(body: &Body) -> HelperError {
    let name = format!("{body:?}");
    let name = name.split('(').next().unwrap_or_default();
    HelperError::Lost(format!("the helper answered with `{name}`, which was not asked for"))
}

fn fact(session: &schema::message::Session) -> SessionFact {
    let state = match session.state.as_str() {
        "waiting" => SessionState::Waiting,
        "quiet" => SessionState::Quiet,
        "ended" => SessionState::Ended,
        // A word of a newer helper: the safe reading is that it works.
        _ => SessionState::Working,
    };
    SessionFact {
        name: plain(&session.name),
        state,
        evidence: plain(&session.evidence),
        command: plain(&session.command),
        pid: Some(session.pid).filter(|pid| *pid > 0),
        started_at: Timestamp(session.started_at),
        ended_at: session.ended_at.map(Timestamp),
        code: session.code,
        signal: session.signal,
        attached: session.attached,
    }
}
