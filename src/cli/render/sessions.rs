//! Sessions, as a table and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::table;
use crate::cli::ui::Paper;
use crate::model::{HostName, SessionFact, SessionState, Timestamp};

/// The longest command shown whole on a terminal.
const COMMAND: usize = 24;

/// What was learnt of one host's sessions.
pub(crate) struct HostSessions {
    pub(crate) host: HostName,
    pub(crate) sessions: Sessions,
}

/// Sessions, as far as a look without a wake shows them.
pub(crate) enum Sessions {
    /// All of them.
    Known(Vec<SessionFact>),
    /// The machine does not run; the word for what it does instead.
    NotRunning(String),
    /// In a few words why they are not known.
    Unknown(String),
}

/// The word for a state.
pub(crate) fn word(state: SessionState) -> &'static str {
    match state {
        SessionState::Working => "working",
        SessionState::Waiting => "waiting",
        SessionState::Quiet => "quiet",
        SessionState::Ended => "ended",
    }
}

/// A length of time in its largest unit.
fn ago(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn row(host: &HostName, session: &SessionFact, now: Timestamp) -> Vec<String> {
    let age = match session.started_at.0 {
        0 => "-".into(),
        _ => ago(session.started_at.until(now)),
    };
    vec![
        format!("{host}/{}", session.name),
        word(session.state).into(),
        age,
        session.command.clone(),
        match session.attached {
            0 => session.evidence.clone(),
            1 => format!("{}; attached", session.evidence),
            many => format!("{}; attached {many} times", session.evidence),
        },
    ]
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// The table of `ls`.
pub(crate) fn table(hosts: &[HostSessions], now: Timestamp, paper: Paper) -> String {
    let mut rows = vec![["SESSION", "STATE", "AGE", "COMMAND", "WHY"].map(String::from).to_vec()];
    let mut notes = String::new();
    for HostSessions { host, sessions } in hosts {
        match sessions {
            Sessions::Known(sessions) => {
                rows.extend(sessions.iter().map(|session| row(host, session, now)));
            }
            Sessions::NotRunning(why) | Sessions::Unknown(why) => {
                notes += &format!("{host}: {why}\n");
            }
        }
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let used: usize = (0..3).map(|column| width(column).unwrap_or(0) + 2).sum::<usize>()
        + width(3).unwrap_or(0).min(COMMAND)
        + 2;
    for row in rows.iter_mut().filter(|_| paper.cuts) {
        row[3] = cut(&row[3], COMMAND);
        row[4] = cut(&row[4], paper.width.saturating_sub(used).max(24));
    }
    if rows.len() == 1 {
        return if notes.is_empty() { "no sessions\n".into() } else { notes };
    }
    table::render(&rows, paper) + &notes
}

/// `ls --json`.
pub(crate) fn json(hosts: &[HostSessions]) -> String {
    let hosts: Vec<Value> = hosts
        .iter()
        .map(|host| match &host.sessions {
            Sessions::Known(sessions) => {
                json!({ "host": host.host, "state": "running", "sessions": sessions })
            }
            Sessions::NotRunning(state) => json!({ "host": host.host, "state": state }),
            Sessions::Unknown(why) => json!({ "host": host.host, "unknown": why }),
        })
        .collect();
    let value = json!({ "format": 1, "hosts": hosts });
    serde_json::to_string_pretty(&value).expect("values print") + "\n"
}
