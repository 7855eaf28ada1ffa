//! What a keeper tells, one line each.

use crate::cli::ui::{Paper, Tone};
use crate::keeper::Notice;
use crate::model::Timestamp;

/// The line of a notice, with the time of day (UTC).
pub(crate) fn line(notice: &Notice, now: Timestamp, paper: Paper) -> String {
    let time = now.to_string();
    let time = time.get(11..).unwrap_or_default();
    format!("{} {}\n", paper.paint(Tone::Dim, time), words(notice, paper))
}

fn words(notice: &Notice, paper: Paper) -> String {
    match notice {
        Notice::Keeping { hosts, file } => {
            let hosts = if *hosts == 1 { "1 host".into() } else { format!("{hosts} hosts") };
            format!("keeping {hosts} of {}; Ctrl-C ends it", file.display())
        }
        Notice::FileRead => "the file was saved".into(),
        Notice::FileBroken { why } => {
            let words = format!("{why}; the last good version counts");
            paper.paint(Tone::Bad, words)
        }
        Notice::Changed { host, action, why } => {
            paper.paint(Tone::Good, format!("{host}: {} done, because {why}", action.word()))
        }
        Notice::Failed { host, step, error, hints } => {
            let host = host.as_ref().map(|host| format!("{host}: ")).unwrap_or_default();
            let hint = hints.first().map(|hint| format!("; try: {hint}")).unwrap_or_default();
            paper.paint(Tone::Bad, format!("{host}{step} failed: {error}{hint}"))
        }
        Notice::Pending { host, action, why } if action.is_trouble() => {
            paper.paint(Tone::Bad, format!("{host}: {}: {why}", action.word()))
        }
        Notice::Pending { host, action, why } => {
            let words =
                format!("{host}: {} is pending, because {why}; simstim apply", action.word());
            paper.paint(Tone::Change, words)
        }
        Notice::Resolved { host } => format!("{host}: nothing is pending any more"),
        Notice::IdleStopped { host, why } => {
            paper.paint(Tone::Good, format!("{host}: stopped, because {why}"))
        }
        Notice::IdleUnknown { host, why } => {
            paper.paint(Tone::Bad, format!("{host}: no idle stop: {why}"))
        }
        Notice::Ended => "ended; the hosts stay as they are".into(),
    }
}
