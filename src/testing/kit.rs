//! The executor's test kit: every call of a provider failed, every answer lost, every step repeated,
//! an apply cut off at each await; after each, one more apply must converge with one machine a host.

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::Poll;

use super::{Fault, Stage, Verb};
use crate::model::Machine;
use crate::plan::Policy;
use crate::provider::ErrorKind;
use crate::stop::Stop;

/// How many ways were tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KitReport {
    /// Runs with a fault, a repetition or a cut.
    pub runs: usize,
}

/// The awaits of an apply that are cut at: beyond, every one is waiting for something outside.
const MOST_CUTS: usize = 400;

/// What the kit's hosts are called.
const HOSTS: [&str; 2] = ["kit-a", "kit-b"];

/// Runs the kit on stages that `fresh` makes, each with an empty vendor and an empty memory, and a
/// kind wrapped in [`super::FaultyKind`] over the stage's faults.
///
/// # Errors
/// What was left wrong, one line each.
pub async fn check_provider(fresh: impl Fn() -> Stage) -> Result<KitReport, Vec<String>> {
    let mut kit = Kit { report: KitReport::default(), findings: Vec::new() };
    let stage = fresh();
    let text = text(&stage);
    kit.converge(&stage, &text, "without any fault").await;
    let making: BTreeSet<Verb> = stage.faults.calls().into_iter().collect();
    kit.empty(&stage, "without any fault").await;
    let verbs: BTreeSet<Verb> = stage.faults.calls().into_iter().collect();
    let faults = [
        Fault::Refuse(ErrorKind::NotNow),
        Fault::Refuse(ErrorKind::Denied),
        Fault::Refuse(ErrorKind::Nonsense),
        Fault::LoseAnswer,
    ];
    for fault in &faults {
        for verb in &making {
            let stage = fresh();
            stage.faults.add(*verb, fault.clone());
            kit.apply(&stage, &text).await;
            kit.recover(&stage, &text, &format!("{verb:?} with {fault:?} while making")).await;
        }
        for verb in &verbs {
            let stage = fresh();
            kit.apply(&stage, &text).await;
            stage.faults.add(*verb, fault.clone());
            kit.apply(&stage, &none(&stage)).await;
            let what = format!("{verb:?} with {fault:?} while destroying");
            stage.faults.heal();
            kit.empty(&stage, &what).await;
        }
    }
    kit.repeat(&fresh(), &text).await;
    for awaits in 0..MOST_CUTS {
        let stage = fresh();
        if kit.cut(&stage, &text, awaits).await {
            break;
        }
    }
    if kit.findings.is_empty() { Ok(kit.report) } else { Err(kit.findings) }
}

fn text(stage: &Stage) -> String {
    let hosts = HOSTS
        .map(|name| format!("[[host]]\nname = \"{name}\"\nprovider = \"{}\"\n", stage.provider));
    none(stage) + &hosts.concat()
}

fn none(stage: &Stage) -> String {
    format!("fleet = \"{}\"\n", stage.fleet)
}

struct Kit {
    report: KitReport,
    findings: Vec<String>,
}

impl Kit {
    async fn apply(&self, stage: &Stage, text: &str) -> bool {
        let (plan, _) = stage.plan(text, &Policy::default()).await;
        stage.apply_plan(text, &plan, &Stop::never()).await.0.is_success()
    }

    fn find(&mut self, what: &str, wrong: impl std::fmt::Display) {
        self.findings.push(format!("{what}: {wrong}"));
    }

    /// After a fault, one more apply must do.
    async fn recover(&mut self, stage: &Stage, text: &str, what: &str) {
        self.report.runs += 1;
        stage.faults.heal();
        self.converge(stage, text, what).await;
        self.empty(stage, what).await;
    }

    /// An apply succeeds, leaves one machine a host, and nothing to do.
    async fn converge(&mut self, stage: &Stage, text: &str, what: &str) {
        let (plan, _) = stage.plan(text, &Policy::default()).await;
        let (outcome, _) = stage.apply_plan(text, &plan, &Stop::never()).await;
        for failure in &outcome.failures {
            self.find(what, format!("{} fails after it: {}", failure.label.what, failure.error));
        }
        let (plan, _) = stage.plan(text, &Policy::default()).await;
        if plan.has_changes() || plan.has_trouble() {
            let left = plan.hosts.iter().map(|e| format!("{} {}", e.action.word(), e.host));
            self.find(what, format!("still to do: {}", left.collect::<Vec<_>>().join(", ")));
        }
        for name in HOSTS {
            let machines = self.machines(stage, what).await;
            let count = machines.iter().filter(|m| m.mark.host.as_str() == name).count();
            if count != 1 {
                self.find(what, format!("{count} machines for {name}"));
            }
        }
    }

    /// A file without hosts leaves nothing.
    async fn empty(&mut self, stage: &Stage, what: &str) {
        self.apply(stage, &none(stage)).await;
        let left = self.machines(stage, what).await.len();
        if left > 0 {
            self.find(what, format!("{left} machines are left of an empty file"));
        }
    }

    async fn machines(&mut self, stage: &Stage, what: &str) -> Vec<Machine> {
        match stage.listing().await {
            Ok(listing) => listing.machines,
            Err(error) => {
                self.find(what, format!("it does not list any more: {error}"));
                Vec::new()
            }
        }
    }

    /// The same plan carried out twice: each step finds its work done.
    async fn repeat(&mut self, stage: &Stage, text: &str) {
        self.report.runs += 1;
        let (plan, _) = stage.plan(text, &Policy::default()).await;
        for _ in 0..2 {
            stage.apply_plan(text, &plan, &Stop::never()).await;
        }
        self.converge(stage, text, "every step run twice").await;
        let (plan, _) = stage.plan(&none(stage), &Policy::default()).await;
        for _ in 0..2 {
            let (outcome, _) = stage.apply_plan(text, &plan, &Stop::never()).await;
            if let Some(failure) = outcome.failures.first() {
                self.find("every destroy run twice", &failure.error);
            }
        }
    }

    /// An apply dropped after so many awaits; `true` where it came to its end before.
    async fn cut(&mut self, stage: &Stage, text: &str, awaits: usize) -> bool {
        let (plan, _) = stage.plan(text, &Policy::default()).await;
        let whole = {
            let never = Stop::never();
            let mut apply = pin!(stage.apply_plan(text, &plan, &never));
            let mut left = awaits;
            std::future::poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(false);
                }
                left -= 1;
                apply.as_mut().poll(context).map(|_| true)
            })
            .await
        };
        self.recover(stage, text, &format!("cut off after {awaits} awaits")).await;
        whole
    }
}
