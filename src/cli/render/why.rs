//! Why a host is awake or not, and what was done to hosts.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::ui::{Paper, Tone};
use crate::config::Host;
use crate::deeds::Deed;
use crate::model::{IdleStop, IdleStopBy, Power, Wakefulness};
use crate::plan::HostPlan;

/// Decisions and deeds that are shown.
const SHOWN: usize = 8;

/// What its helper says of a machine.
pub(crate) enum Awake {
    /// It does not run.
    No,
    /// It runs.
    Yes(Wakefulness),
    /// It runs, and why its helper cannot be asked.
    Unknown(String),
}

/// All that is known.
pub(crate) struct Facts<'a> {
    pub(crate) host: &'a Host,
    pub(crate) entry: &'a HostPlan,
    pub(crate) stops: Option<IdleStopBy>,
    pub(crate) awake: Awake,
    pub(crate) deeds: Vec<Deed>,
    /// A keeper runs on this computer.
    pub(crate) kept: bool,
}

/// `why`.
pub(crate) fn render(facts: &Facts<'_>, paper: Paper) -> String {
    let view = View { paper };
    let state = facts.entry.machine.as_ref().map_or("no machine", |machine| machine.state.word());
    let mut text = format!(
        "{}  {state} on {}\n",
        paper.paint(Tone::Strong, &facts.host.name),
        facts.host.account
    );
    match &facts.awake {
        Awake::Yes(awake) => text += &view.awake(awake),
        Awake::Unknown(why) => text += &view.line("unknown", why),
        Awake::No => text += &view.line("because", &facts.entry.reason.to_string()),
    }
    text += &view.line("next", &next(facts));
    if let Awake::Yes(awake) = &facts.awake {
        let decisions = awake.decisions.iter().rev().take(SHOWN).rev();
        let lines = decisions.map(|decision| (decision.at.to_string(), decision.what.clone()));
        text += &view.dated("decided there", lines);
    }
    let deeds = facts.deeds.iter().rev().take(SHOWN).rev();
    text += &view.dated("done from here", deeds.map(|deed| (deed.at.to_string(), words(deed))));
    text
}

/// What happens next, and when.
fn next(facts: &Facts<'_>) -> String {
    let keeper = if facts.kept { "the keeper here" } else { "a keeper (none runs here)" };
    let by = match facts.stops {
        Some(IdleStopBy::Keeper) => keeper,
        Some(IdleStopBy::GuestTimer) => "its own timer",
        Some(IdleStopBy::Lease) => "the end of its lease",
        Some(IdleStopBy::Nobody) | None => return "nothing stops it: it costs nothing".into(),
    };
    let after = match (facts.host.power, facts.host.idle_stop) {
        (Power::On, _) => return "it stays up: its block says `power = \"on\"`".into(),
        (_, IdleStop::Never) => {
            return "it stays up: its block says `idle_stop = \"never\"`".into();
        }
        (_, IdleStop::After(span)) => span,
    };
    match &facts.awake {
        Awake::No => "a command for it wakes it; looking does not".into(),
        Awake::Unknown(_) => format!("{by} stops it once nothing is known to work for {after}"),
        Awake::Yes(awake) => match awake.idle_for {
            Some(idle) if !awake.sources.iter().any(|source| source.keeps) => {
                let left = after.0.saturating_sub(Duration::from_secs(idle));
                let left = humantime::format_duration(Duration::from_secs(left.as_secs()));
                format!("{by} stops it in {left}, unless something works until then")
            }
            _ => format!("{by} stops it once nothing has worked for {after}"),
        },
    }
}

fn words(deed: &Deed) -> String {
    let error = deed.error.as_ref().map(|error| format!("; FAILED: {error}")).unwrap_or_default();
    format!("{} by {}, because {}{error}", deed.action, deed.by, deed.why)
}

struct View {
    paper: Paper,
}

/// Where the text beside a key begins.
const INDENT: usize = 18;

impl View {
    fn awake(&self, awake: &Wakefulness) -> String {
        let mut text = String::new();
        for source in awake.sources.iter().filter(|source| source.keeps) {
            text += &self.line("kept awake by", &format!("{}, {}", source.what, source.why));
        }
        if text.is_empty() {
            text += &self.line("kept awake by", "nothing");
        }
        for source in awake.sources.iter().filter(|source| !source.keeps) {
            text += &self.line("not by", &format!("{}, {}", source.what, source.why));
        }
        if let Some(idle) = awake.idle_for {
            let idle = humantime::format_duration(Duration::from_secs(idle));
            text += &self.line("idle for", &idle.to_string());
        }
        text
    }

    fn line(&self, key: &str, words: &str) -> String {
        let mut text = String::new();
        for (index, line) in self.paper.wrap(words, INDENT).iter().enumerate() {
            let key = if index == 0 { format!("  {key}") } else { String::new() };
            let key = self.paper.paint(Tone::Dim, format!("{key:INDENT$}"));
            writeln!(text, "{key}{line}").expect("a string takes text");
        }
        text
    }

    fn dated(&self, key: &str, lines: impl Iterator<Item = (String, String)>) -> String {
        let mut text = String::new();
        for (at, words) in lines {
            if text.is_empty() {
                text += &self.paper.paint(Tone::Dim, format!("  {key}"));
                text.push('\n');
            }
            let wrapped = self.paper.wrap(&format!("{at}  {words}"), 4);
            for (index, line) in wrapped.iter().enumerate() {
                let indent = if index == 0 { 4 } else { 8 };
                writeln!(text, "{:indent$}{line}", "").expect("a string takes text");
            }
        }
        text
    }
}

/// `why --json`.
pub(crate) fn json(facts: &Facts<'_>) -> String {
    let (awake, unknown) = match &facts.awake {
        Awake::No => (None, None),
        Awake::Yes(awake) => (Some(awake), None),
        Awake::Unknown(why) => (None, Some(why)),
    };
    let machine = facts.entry.machine.as_ref();
    pretty(&json!({
        "format": 1,
        "host": facts.host.name,
        "account": facts.host.account,
        "state": machine.map(|machine| machine.state.word()),
        "reason": facts.entry.reason.to_string(),
        "awake": awake,
        "unknown": unknown,
        "next": next(facts),
        "idle_stop": facts.host.idle_stop,
        "kept": facts.kept,
        "done": facts.deeds,
    }))
}

/// `history`.
pub(crate) fn deeds(deeds: &[Deed], paper: Paper) -> String {
    if deeds.is_empty() {
        return "nothing was done from this computer yet\n".into();
    }
    let width = deeds.iter().map(|deed| deed.host.as_str().len()).max().unwrap_or(0);
    let mut text = String::new();
    for deed in deeds {
        let line = format!("{}  {:width$}  {}", deed.at, deed.host, words(deed));
        let lines = if paper.cuts { paper.wrap(&line, 0) } else { vec![line] };
        for (index, line) in lines.iter().enumerate() {
            let indent = if index == 0 { 0 } else { 4 };
            writeln!(text, "{:indent$}{line}", "").expect("a string takes text");
        }
    }
    text
}

/// `history --json`.
pub(crate) fn deeds_json(deeds: &[Deed]) -> String {
    pretty(&json!({ "format": 1, "done": deeds }))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("values print") + "\n"
}
