//! Sessions, as a table and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::table;
use crate::cli::ui::Paper;
use crate::model::{HostName, SessionFact, SessionState, Timestamp};

/// What was learnt of one host's sessions.
pub(crate) struct HostSessions {
    pub(crate) host: HostName,
    /// The sessions, or in a few words why they are not known.
    pub(crate) sessions: Result<Vec<SessionFact>, String>,
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
        cut(&session.command, 24),
        session.evidence.clone(),
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
            Ok(sessions) => rows.extend(sessions.iter().map(|session| row(host, session, now))),
            Err(why) => notes += &format!("{host}: {why}\n"),
        }
    }
    let used: usize = (0..4)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0) + 2)
        .sum();
    for row in &mut rows {
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
            Ok(sessions) => json!({ "host": host.host, "sessions": sessions }),
            Err(why) => json!({ "host": host.host, "unknown": why }),
        })
        .collect();
    let value = json!({ "format": 1, "hosts": hosts });
    serde_json::to_string_pretty(&value).expect("values print") + "\n"
}
