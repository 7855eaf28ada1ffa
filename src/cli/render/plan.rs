//! A plan as a person reads it: changes first, one line for what stays, and who stops what.

use std::fmt::Write as _;
use std::path::Path;

use similar::{ChangeTag, TextDiff};

use crate::cli::error::with_file;
use crate::cli::ui::{Paper, Tone, Ui};
use crate::plan::{Action, HostPlan, Impact, Note, Plan, Setting, StoppedBy, Stray};

/// Where the details of an entry begin.
const INDENT: usize = 6;

/// The whole plan.
pub(crate) fn render(plan: &Plan, path: &Path, ui: &Ui, paper: Paper) -> String {
    let view = View { paper, named_file: ui.named_file.as_deref() };
    let mut text = String::new();
    let (changes, stays): (Vec<_>, Vec<_>) = plan
        .hosts
        .iter()
        .partition(|entry| entry.action != Action::None || !entry.notes.is_empty());
    let names = changes.iter().map(|entry| entry.host.as_str().len()).max().unwrap_or(0);
    for entry in changes.iter().filter(|entry| entry.action != Action::None) {
        text += &view.entry(entry, names);
    }
    for stray in &plan.strays {
        text += &view.stray(stray);
    }
    text += &view.stays(changes.into_iter().filter(|e| e.action == Action::None).chain(stays));
    if !text.is_empty() {
        text.push('\n');
    }
    text += &view.guardians(plan);
    text += &view.totals(plan);
    let head = format!("{} · fleet {}\n\n", path.display(), plan.fleet);
    paper.paint(Tone::Dim, head.trim_end()) + "\n\n" + &text
}

struct View<'u> {
    paper: Paper,
    named_file: Option<&'u Path>,
}

fn sign(action: Action) -> (&'static str, Tone) {
    match action {
        Action::None => (" ", Tone::Dim),
        Action::Create => ("+", Tone::Good),
        Action::Wake => ("^", Tone::Good),
        Action::Change => ("~", Tone::Change),
        Action::ChangeWithRestart => ("%", Tone::Change),
        Action::Replace => ("±", Tone::Bad),
        Action::Stop => ("v", Tone::Change),
        Action::Destroy => ("-", Tone::Bad),
        Action::Blocked => ("!", Tone::Bad),
        Action::Unknown => ("?", Tone::Bad),
    }
}

fn impact(impact: Impact) -> Option<&'static str> {
    match impact {
        Impact::None => None,
        Impact::Keeps => Some("sessions go on"),
        Impact::Freezes => Some("sessions freeze until it wakes"),
        Impact::Ends => Some("sessions end"),
        Impact::LosesDisk => Some("its disk is LOST"),
    }
}

impl View<'_> {
    fn entry(&self, entry: &HostPlan, names: usize) -> String {
        let (sign, tone) = sign(entry.action);
        let name = format!("{:names$}", entry.host.as_str());
        let head = format!(
            "  {} {}  {}",
            self.paper.paint(tone, sign),
            self.paper.paint(Tone::Strong, name),
            self.paper.paint(tone, entry.action.word()),
        );
        let mut reason = format!("on {}, because ", entry.account) + &entry.reason.to_string();
        if let Some(impact) = impact(entry.impact) {
            write!(reason, "; {impact}").expect("a string takes text");
        }
        let mut text = head + "\n";
        for line in self.paper.wrap(&reason, INDENT) {
            writeln!(text, "{:INDENT$}{line}", "").expect("a string takes text");
        }
        text += &self.settings(&entry.settings, "");
        text += &self.settings(&entry.pending, " (at its next wake)");
        for note in &entry.notes {
            text += &self.wrapped(&note_words(&entry.host, note));
        }
        for hint in entry.hints() {
            let hint = with_file(&hint, self.named_file);
            let try_word = self.paper.paint(Tone::Dim, "try:");
            writeln!(text, "{:INDENT$}{try_word} {hint}", "").expect("a string takes text");
        }
        text
    }

    fn wrapped(&self, words: &str) -> String {
        let lines = self.paper.wrap(words, INDENT);
        lines.iter().map(|line| format!("{:INDENT$}{line}\n", "")).collect()
    }

    /// Settings as the lines they would be in the file, old against new.
    fn settings(&self, settings: &[Setting], suffix: &str) -> String {
        let lines = |value: fn(&Setting) -> &Option<String>| -> String {
            let lines = settings.iter().filter_map(|setting| {
                value(setting).as_ref().map(|value| format!("{} = {value}\n", setting.key))
            });
            lines.collect()
        };
        let (old, new) = (lines(|setting| &setting.from), lines(|setting| &setting.to));
        let diff = TextDiff::from_lines(old.as_str(), new.as_str());
        let rows = diff.iter_all_changes().map(|change| {
            let (sign, tone) = match change.tag() {
                ChangeTag::Delete => ("-", Tone::Bad),
                ChangeTag::Insert => ("+", Tone::Good),
                ChangeTag::Equal => (" ", Tone::Dim),
            };
            let line = format!("{sign} {}{suffix}", change.value().trim_end());
            format!("{:INDENT$}{}\n", "", self.paper.paint(tone, line))
        });
        rows.collect()
    }

    fn stray(&self, stray: &Stray) -> String {
        let mark = stray.machine.as_ref().map(|machine| &machine.mark);
        let origin = mark.map(|mark| format!("; made {} by {}", mark.made_at, mark.maker));
        let words = format!(
            "on {}, no block explains it, and {}{}; left alone",
            stray.account,
            stray.why,
            origin.unwrap_or_default()
        );
        let head = format!(
            "  {} {}  {}\n",
            self.paper.paint(Tone::Change, "*"),
            self.paper.paint(Tone::Strong, &stray.name),
            self.paper.paint(Tone::Change, "stray")
        );
        head + &self.wrapped(&words)
    }

    /// One line for everything that stays, and a line for each note that matters all the same.
    fn stays<'a>(&self, entries: impl Iterator<Item = &'a HostPlan>) -> String {
        let entries: Vec<&HostPlan> = entries.collect();
        if entries.is_empty() {
            return String::new();
        }
        let words = entries.iter().map(|entry| format!("{} ({})", entry.host, entry.reason));
        let sentence = format!("as wanted: {}", words.collect::<Vec<_>>().join(", "));
        let mut text = String::new();
        for (index, line) in self.paper.wrap(&sentence, 4).iter().enumerate() {
            let sign = if index == 0 { "=" } else { " " };
            writeln!(text, "  {sign} {line}").expect("a string takes text");
        }
        for entry in entries {
            for note in &entry.notes {
                text +=
                    &self.wrapped(&format!("{}: {}", entry.host, note_words(&entry.host, note)));
            }
        }
        text
    }

    /// For every host, who stops it if this computer dies.
    fn guardians(&self, plan: &Plan) -> String {
        let kinds = [
            (StoppedBy::Nobody, ["nobody stops {}", "nobody stops {}"]),
            (StoppedBy::GuestTimer, ["its idle timer stops {}", "their idle timers stop {}"]),
            (
                StoppedBy::Lease,
                ["the end of its lease stops {}", "the end of their leases stops {}"],
            ),
            (StoppedBy::ThisComputer, ["{} ends with it", "{} end with it"]),
            (StoppedBy::NotRunning, ["{} is not running", "{} are not running"]),
        ];
        let groups: Vec<String> = kinds
            .into_iter()
            .filter_map(|(kind, [one, many])| {
                // What will be destroyed is nobody's care any more, and of the unknown nothing is.
                let told =
                    |entry: &&HostPlan| !matches!(entry.action, Action::Destroy | Action::Unknown);
                let stays = plan.hosts.iter().filter(told);
                let hosts = stays.filter(|entry| entry.stopped_by == kind);
                let names: Vec<&str> = hosts.map(|entry| entry.host.as_str()).collect();
                let words = if names.len() == 1 { one } else { many };
                (!names.is_empty()).then(|| words.replace("{}", &names.join(", ")))
            })
            .collect();
        if groups.is_empty() {
            return String::new();
        }
        let sentence = format!("If this computer dies: {}.", groups.join("; "));
        self.paper.wrap(&sentence, 0).join("\n") + "\n"
    }

    fn totals(&self, plan: &Plan) -> String {
        let order = [
            Action::Create,
            Action::Wake,
            Action::Change,
            Action::ChangeWithRestart,
            Action::Replace,
            Action::Stop,
            Action::Destroy,
            Action::Blocked,
            Action::Unknown,
        ];
        let parts = order.into_iter().filter_map(|action| {
            let count = plan.count(|other| other == action);
            (count > 0).then(|| match action {
                Action::Blocked | Action::Unknown => format!("{count} {}", action.word()),
                _ => format!("{count} to {}", action.word()),
            })
        });
        let mut parts: Vec<String> = parts.collect();
        if !plan.strays.is_empty() {
            parts.push(format!("{} stray", plan.strays.len()));
        }
        if parts.is_empty() {
            return "Nothing to do.\n".into();
        }
        let text = format!("Plan: {}.", parts.join(", "));
        self.paper.paint(Tone::Strong, text) + "\n"
    }
}

fn note_words(host: &crate::model::HostName, note: &Note) -> String {
    match note {
        Note::ProtectedAtBirth { mark: true } => {
            "protected since it was made, though its block does not say so any more".into()
        }
        Note::ProtectedAtBirth { mark: false } => {
            "protected only as long as its block is here: it was made without `protect`".into()
        }
        Note::EndsWork { sessions } => format!("--force ENDS WORK in: {}", sessions.join(", ")),
        Note::EndsUnread => "--force goes on, though its sessions cannot be read".into(),
        Note::IdleStopNeedsKeeper { after } => {
            format!("stops after {after} idle only while `simstim apply --watch` runs")
        }
        Note::FetchesImage => "its image has to be fetched first".into(),
        Note::PerhapsRenamed { block } => {
            format!(
                "if {block} is this host under a new name: was = \"{host}\" in its block keeps it"
            )
        }
        Note::KeepsName { name } => format!("its machine goes on being called {name}"),
        Note::Renamed { was } => format!("keeps the machine of its old name, {was}"),
    }
}
