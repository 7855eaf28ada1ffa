//! How an apply goes: bars that move on a terminal, plain lines elsewhere, JSON lines if asked for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::apply::{Event, Label, Outcome};
use crate::cli::ui::{Paper, Tone, Ui};
use crate::plan::Plan;

/// A wait as long as this needs no word.
const UNSAID: Duration = Duration::from_secs(1);

/// Waits for providers to answer; on a terminal a line says so meanwhile, and is taken away.
/// Cancel safe where the work is.
pub(crate) async fn waiting<T>(ui: &Ui, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(UNSAID, &mut work).await {
        return done;
    }
    if !ui.live {
        return work.await;
    }
    let bar = spinner(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
    bar.set_message("waiting for providers to answer; Ctrl-C leaves, nothing was changed");
    let done = work.await;
    bar.finish_and_clear();
    done
}

fn spinner(bar: ProgressBar) -> ProgressBar {
    let style = ProgressStyle::with_template("  {spinner} {msg}  {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Shows events as they come.
pub(crate) struct Progress<'a> {
    ui: &'a Ui,
    json: bool,
    bars: Option<MultiProgress>,
    running: BTreeMap<usize, ProgressBar>,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(ui: &'a Ui, json: bool) -> Self {
        let bars = (ui.live && !json)
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
        Self { ui, json, bars, running: BTreeMap::new() }
    }

    /// Shows one event. An error means that nobody reads stdout any more.
    pub(crate) fn show(&mut self, event: &Event) -> io::Result<()> {
        if self.json {
            let line = serde_json::to_string(event).expect("an event is plain data");
            return self.ui.print(&(line + "\n"));
        }
        self.move_bars(event);
        let text = lines(event, self.ui.err);
        if text.is_empty() {
            return Ok(());
        }
        match &self.bars {
            Some(bars) => bars.println(text.trim_end())?,
            None => self.ui.say(&text),
        }
        Ok(())
    }

    fn move_bars(&mut self, event: &Event) {
        let Some(bars) = &self.bars else { return };
        match event {
            Event::Started { label } => {
                let bar = spinner(bars.add(ProgressBar::new_spinner()));
                bar.set_message(name(label));
                self.running.insert(label.step, bar);
            }
            Event::Progress { label, text } => {
                if let Some(bar) = self.running.get(&label.step) {
                    bar.set_message(format!("{}: {text}", name(label)));
                }
            }
            Event::Finished { label, .. }
            | Event::Failed { label, .. }
            | Event::Skipped { label } => {
                if let Some(bar) = self.running.remove(&label.step) {
                    bar.finish_and_clear();
                    bars.remove(&bar);
                }
            }
            Event::Stopping | Event::Undoing { .. } | Event::WentBack { .. } => {}
        }
    }

    /// Takes the bars away.
    pub(crate) fn finish(&mut self) {
        for bar in std::mem::take(&mut self.running).into_values() {
            bar.finish_and_clear();
        }
    }
}

/// What stays on the screen of an event.
fn lines(event: &Event, paper: Paper) -> String {
    match event {
        Event::Started { .. } | Event::Skipped { .. } => String::new(),
        Event::Progress { label, text } => format!("  . {}: {text}\n", name(label)),
        // A check that passed in no time is not worth a line.
        Event::Finished { label, .. } if label.what == "preflight" => String::new(),
        Event::Finished { label, took } => {
            let sign = paper.paint(Tone::Good, "+");
            format!("  {sign} {}  {}\n", name(label), paper.paint(Tone::Dim, seconds(*took)))
        }
        Event::Failed { label, error, hints } => {
            let mut text = String::new();
            let words = format!("{} failed: {error}", name(label));
            for (index, line) in paper.wrap(&words, 4).iter().enumerate() {
                let sign = if index == 0 { paper.paint(Tone::Bad, "x") } else { " ".into() };
                writeln!(text, "  {sign} {line}").expect("a string takes text");
            }
            for hint in hints {
                let word = paper.paint(Tone::Dim, "try:");
                writeln!(text, "    {word} {hint}").expect("a string takes text");
            }
            text
        }
        Event::Stopping => {
            "stopping: nothing new begins, running steps finish (Ctrl-C again: leave now)\n".into()
        }
        Event::WentBack { host, seen, boots } => {
            let words = format!(
                "{host}: its disk went back in time: this is its boot {boots}, and boot {seen} was \
                 seen; what was done since is not on it"
            );
            let sign = paper.paint(Tone::Change, "!");
            format!("  {sign} {}\n", paper.wrap(&words, 4).join("\n    "))
        }
        Event::Undoing { host } => format!("  - {host}: removing its half-made machine\n"),
    }
}

fn name(label: &Label) -> String {
    match &label.host {
        Some(host) => format!("{host}: {}", label.what),
        None => format!("{}: {}", label.account, label.what),
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

/// How it ended, in a few lines.
pub(crate) fn summary(plan: &Plan, outcome: &Outcome, paper: Paper) -> String {
    let mut text = String::new();
    for left in &outcome.left {
        writeln!(text, "{} {left}", paper.paint(Tone::Bad, "left:")).expect("a string takes text");
    }
    let failed = outcome.failures.len();
    let trouble = plan.count(crate::plan::Action::is_trouble);
    if outcome.is_success() && trouble == 0 {
        // Where nothing was to be done, the plan has said so.
        if outcome.done > 0 {
            writeln!(text, "{}", paper.paint(Tone::Good, "Done.")).expect("a string takes text");
        }
        return text;
    }
    let mut parts = Vec::new();
    let mut part = |count: usize, words: &str| {
        if count > 0 {
            parts.push(format!("{count} {words}"));
        }
    };
    part(outcome.done, if outcome.done == 1 { "step done" } else { "steps done" });
    part(failed, "failed");
    part(outcome.skipped, "not begun");
    part(trouble, if trouble == 1 { "host left as it is" } else { "hosts left as they are" });
    let word = if outcome.stopped { "Stopped" } else { "Not all was done" };
    let words = format!("{word}: {}.", parts.join(", "));
    writeln!(text, "{}", paper.paint(Tone::Bad, words)).expect("a string takes text");
    if failed > 0 || outcome.stopped {
        text += "  try: simstim plan    # shows what is left\n";
    }
    text
}
