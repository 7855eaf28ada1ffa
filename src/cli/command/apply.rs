//! `simstim apply`, and how every verb carries out a plan.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::plan::policy;
use crate::apply::{Event, Outcome};
use crate::cli::args::{ApplyArgs, RunArgs};
use crate::cli::consent::{Given, consent};
use crate::cli::error::CliError;
use crate::cli::open::{Start, open};
use crate::cli::render;
use crate::cli::render::progress::{Progress, waiting};
use crate::cli::ui::Ui;
use crate::fleet::{ApplyOptions, Fleet};
use crate::keeper::Keeper;
use crate::model::HostName;
use crate::plan::{Plan, SavedPlan};
use crate::stop::{Stopper, stop};

pub(crate) async fn run(ui: &Ui, start: &Start, args: ApplyArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let (hosts, saved) = what(&args.what)?;
    open.check_names(&hosts)?;
    let fleet = open.fleet()?;
    let config = &open.file.config;
    let mut policy = policy(&hosts, &args.wishes);
    if let Some(saved) = &saved {
        // The saved plan was made for these hosts; the same question must be asked again.
        let entries = saved.plan.hosts.iter();
        policy.only = Some(entries.map(|entry| entry.host.clone()).collect());
        policy.wake |= saved.plan.hosts.iter().any(|e| e.reason == crate::plan::Reason::Asked);
        policy.counted = policy.counted.or(Some(saved.plan.destructive()).filter(|n| *n > 0));
    }
    let (mut plan, _) = waiting(ui, fleet.plan(config, &policy)).await;
    if args.watch && args.wishes.destroy.is_none() && !ui.interactive {
        // Nobody can be asked: a keeper shows losses as pending, and starts all the same.
        plan.hosts.retain(|entry| !entry.action.is_destructive());
    }
    if let Some(saved) = &saved {
        saved.still_holds(&config.digest(), &plan)?;
    }
    show(ui, &plan, &open.file.path, args.run);
    let given = Given { yes: args.run.yes, destroy: args.wishes.destroy, named: BTreeSet::new() };
    consent(ui, &plan, &given)?;
    let options = ApplyOptions {
        parallelism: args.parallelism,
        force: args.wishes.force,
        holder: "simstim apply".into(),
        why: None,
    };
    if !args.watch {
        return carry_out(ui, &fleet, &plan, &options, args.run.json).await;
    }
    let lock = Keeper::lock(&fleet)?;
    // What failed is said; the keeper shows or mends it from here on.
    let mut signals = Signals::new()?;
    let (_, stopped) =
        carry_out_until(ui, &fleet, &plan, &options, args.run.json, &mut signals).await?;
    if stopped || signals.was_given().await {
        // To be told to end is how a keeper ends.
        return Ok(ExitCode::SUCCESS);
    }
    super::watch::keep(ui, open, fleet, lock, args.run.json, signals).await
}

/// Host names, or one saved plan.
fn what(words: &[String]) -> Result<(Vec<HostName>, Option<SavedPlan>), CliError> {
    if let [word] = words
        && word.contains(['/', '.'])
    {
        return Ok((Vec::new(), Some(SavedPlan::read(Path::new(word))?)));
    }
    let names = words.iter().map(|word| {
        HostName::new(word.as_str()).map_err(|error| {
            CliError::usage(format!("`{word}` is neither a host nor a plan: {error}"))
        })
    });
    Ok((names.collect::<Result<_, _>>()?, None))
}

/// Shows a plan before it is carried out. It is talk here: the data are the events.
pub(super) fn show(ui: &Ui, plan: &Plan, path: &Path, run: RunArgs) {
    if !run.json {
        ui.say(&render::plan::render(plan, path, ui, ui.err));
    }
}

/// Carries out a plan and shows how it goes.
pub(super) async fn carry_out(
    ui: &Ui,
    fleet: &Fleet,
    plan: &Plan,
    options: &ApplyOptions,
    json: bool,
) -> Result<ExitCode, CliError> {
    let mut signals = Signals::new()?;
    Ok(carry_out_until(ui, fleet, plan, options, json, &mut signals).await?.0)
}

/// As [`carry_out`]; also whether a person asked to stop meanwhile.
async fn carry_out_until(
    ui: &Ui,
    fleet: &Fleet,
    plan: &Plan,
    options: &ApplyOptions,
    json: bool,
    signals: &mut Signals,
) -> Result<(ExitCode, bool), CliError> {
    let (events, receiver) = mpsc::unbounded_channel();
    let (stopper, stop) = stop();
    let apply = fleet.apply(plan, options, events, &stop);
    let outcome = watch(ui, apply, receiver, signals, &stopper, json).await??;
    Ok((report(ui, plan, &outcome, json), stop.is_set()))
}

/// Joins an apply with what it tells, and with the person's Ctrl-C.
pub(super) async fn watch<T>(
    ui: &Ui,
    work: impl Future<Output = T>,
    mut events: mpsc::UnboundedReceiver<Event>,
    signals: &mut Signals,
    stopper: &Stopper,
    json: bool,
) -> Result<T, CliError> {
    let mut progress = Progress::new(ui, json);
    tokio::pin!(work);
    let mut asked = false;
    let result = loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => progress.show(&event)?,
            result = &mut work => break result,
            () = signals.next() => {
                if asked {
                    progress.finish();
                    ui.say("left at once; `simstim plan` shows what is half-done\n");
                    leave();
                }
                asked = true;
                stopper.stop();
            }
        }
    };
    while let Ok(event) = events.try_recv() {
        progress.show(&event)?;
    }
    progress.finish();
    Ok(result)
}

#[expect(clippy::exit, reason = "a second Ctrl-C means now: no destructor may wait")]
fn leave() -> ! {
    std::process::exit(130)
}

/// Ctrl-C, a polite kill, and a closed terminal.
pub(super) struct Signals([Signal; 3]);

impl Signals {
    pub(super) fn new() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| CliError::failed(format!("cannot listen for Ctrl-C: {error}")))
        };
        Ok(Self([
            listen(SignalKind::interrupt())?,
            listen(SignalKind::terminate())?,
            listen(SignalKind::hangup())?,
        ]))
    }

    /// Whether one was given that nobody has heard yet.
    async fn was_given(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.next() => true,
            () = std::future::ready(()) => false,
        }
    }

    pub(super) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Says how it ended.
fn report(ui: &Ui, plan: &Plan, outcome: &Outcome, json: bool) -> ExitCode {
    if json {
        let line = serde_json::json!({
            "event": "ended",
            "done": outcome.done,
            "failed": outcome.failures.len(),
            "skipped": outcome.skipped,
            "stopped": outcome.stopped,
            "left": outcome.left,
            "blocked": plan.count(crate::plan::Action::is_trouble),
        });
        // Who closed the stream does not read this either.
        let _ = ui.print(&format!("{line}\n"));
    } else {
        ui.say(&render::progress::summary(plan, outcome, ui.err));
    }
    if outcome.is_success() && !plan.has_trouble() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
