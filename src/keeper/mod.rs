//! The loop behind `apply --watch`: observe, plan, apply only what a keeper may.
//!
//! Every pass reads everything again; a saved file or a timer only says "now". What it may do is
//! [`rules`]', when it does it is [`schedule`]'s: both pure. Errors change the next time, not the
//! loop. Nothing here prints: whoever runs it is told [`Notice`]s.

mod file;
pub mod rules;
pub mod schedule;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use self::file::{FileWatch, LOOK};
use self::rules::{Approval, Ruling, rule};
use self::schedule::{Budget, IDLE, SETTLED, pause};
use crate::apply::{Event, Outcome};
use crate::config::{self, File, LoadError};
use crate::files::{FileError, Lock};
use crate::fleet::{ApplyOptions, Computer, Fleet, FleetError, random};
use crate::helper_client::HelperError;
use crate::model::{FleetId, HostName, IdleStop, IdleStopBy, Machine, MachineState, Power, Span};
use crate::plan::{Action, Plan, Policy};
use crate::stop::Stop;

/// What a step may still take once a stop was asked for; it is cut off then, which is safe.
const STOP_PATIENCE: Duration = Duration::from_secs(4);

/// What whoever runs the keeper is told. A quiet pass tells nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "keeper")]
pub enum Notice {
    /// It runs.
    Keeping {
        /// How many hosts.
        hosts: usize,
        /// Of which file.
        file: PathBuf,
    },
    /// The file was saved and reads well.
    FileRead,
    /// The file was saved and does not read; the last good one counts.
    FileBroken {
        /// What is wrong, in one line.
        why: String,
    },
    /// A host was changed.
    Changed {
        /// The host.
        host: HostName,
        /// What was done.
        action: Action,
        /// Why.
        why: String,
    },
    /// A host could not be changed.
    Failed {
        /// The host, if the step was one host's.
        host: Option<HostName>,
        /// What was tried.
        step: String,
        /// Why not.
        error: String,
        /// What to type about it.
        hints: Vec<String>,
    },
    /// Something waits for a person. Told once, and again when it is something else.
    Pending {
        /// The host.
        host: HostName,
        /// What is to be done, or that it is blocked or unknown.
        action: Action,
        /// Why.
        why: String,
    },
    /// What was pending is no more.
    Resolved {
        /// The host.
        host: HostName,
    },
    /// An idle host was stopped.
    IdleStopped {
        /// The host.
        host: HostName,
        /// The helper's reason.
        why: String,
    },
    /// Nobody can tell whether a host is idle.
    IdleUnknown {
        /// The host.
        host: HostName,
        /// Why.
        why: String,
    },
    /// It ends.
    Ended,
}

/// Why there is no keeper.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// Another process keeps the fleet.
    #[error("{holder} keeps this fleet already")]
    Kept {
        /// Which.
        holder: String,
    },
    /// The file names another fleet by now.
    #[error("the file names fleet {now} by now, this keeper keeps {was}")]
    OtherFleet {
        /// The one that was kept.
        was: FleetId,
        /// The one in the file.
        now: FleetId,
    },
    /// This computer's own files.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A keeper that is the only one of its fleet on this computer.
pub struct Keeper<'a> {
    computer: &'a Computer,
    file: File,
    own: bool,
    fleet: Fleet,
    notices: mpsc::UnboundedSender<Notice>,
    begun: Instant,
    approved: BTreeSet<HostName>,
    budget: Budget,
    watch: FileWatch,
    /// What was told last of each host that waits for a person.
    pending: BTreeMap<HostName, (Action, String)>,
    idle_unknown: BTreeMap<HostName, String>,
    /// Running machines that only the keeper stops, and after how long.
    watched: BTreeMap<HostName, (Machine, Span)>,
    idle_due: Duration,
    /// What was told last of a file that does not read.
    broken: Option<String>,
    errors: u32,
    _lock: Lock,
}

/// What one pass leads to.
#[derive(Debug, Clone, Copy, Default)]
struct Pass {
    failed: bool,
    /// A new host waits for the file to settle.
    later: bool,
}

impl<'a> Keeper<'a> {
    /// Takes the lock that makes a process the only keeper of a fleet on this computer.
    pub fn lock(fleet: &Fleet) -> Result<Lock, KeeperError> {
        fleet.lock_keeper().map_err(|error| match error {
            FileError::Locked { holder, .. } => KeeperError::Kept { holder },
            other => KeeperError::File(other),
        })
    }

    /// The keeper of an opened fleet, by [`Self::lock`]. It approves, until it ends, what [`rules`]
    /// lets a keeper do for the hosts that are in the file now.
    pub fn new(
        computer: &'a Computer,
        (file, own): (File, bool),
        fleet: Fleet,
        lock: Lock,
        notices: mpsc::UnboundedSender<Notice>,
    ) -> Self {
        Self {
            computer,
            approved: file.config.hosts.iter().map(|host| host.name.clone()).collect(),
            watch: FileWatch::new(&file.path),
            file,
            own,
            fleet,
            notices,
            begun: Instant::now(),
            budget: Budget::default(),
            pending: BTreeMap::new(),
            idle_unknown: BTreeMap::new(),
            watched: BTreeMap::new(),
            idle_due: Duration::ZERO,
            broken: None,
            errors: 0,
            _lock: lock,
        }
    }

    /// Keeps until told to stop, which takes at most 5 s.
    pub async fn keep(mut self, stop: &Stop) -> Result<(), KeeperError> {
        let hosts = self.file.config.hosts.len();
        self.tell(Notice::Keeping { hosts, file: self.file.path.clone() });
        let result = loop {
            let pass = tokio::select! {
                pass = self.pass(stop) => pass,
                () = expired(stop) => break Ok(()),
            };
            if stop.is_set() {
                break Ok(());
            }
            self.errors = if pass.failed { self.errors.saturating_add(1) } else { 0 };
            let jitter = f64::from(u32::from(random::<1>()[0])) / 255.0;
            let mut due = self.now() + pause(self.errors, jitter);
            if pass.later {
                due = due.min(self.now().max(self.watch.since() + SETTLED));
            }
            match self.wait(due, stop).await {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.tell(Notice::Ended);
        result
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn tell(&self, notice: Notice) {
        let _ = self.notices.send(notice);
    }

    /// Waits until the next pass is due or the file was saved; `false` at a stop.
    async fn wait(&mut self, due: Duration, stop: &Stop) -> Result<bool, KeeperError> {
        while self.now() < due {
            let nap = LOOK.min(due.saturating_sub(self.now()));
            tokio::select! {
                () = sleep(nap) => {}
                () = stop.wait() => return Ok(false),
            }
            if self.watch.changed(self.now()) && self.reload()? {
                return Ok(true);
            }
            // On its own clock: an account in trouble must not keep the others' machines awake.
            if !self.watched.is_empty() && self.now() >= self.idle_due {
                self.idle_due = self.now() + IDLE;
                tokio::select! {
                    () = self.stop_idle(stop) => {}
                    () = expired(stop) => return Ok(false),
                }
            }
        }
        Ok(!stop.is_set())
    }

    /// Reads the saved file; `false` where the last good one still counts.
    fn reload(&mut self) -> Result<bool, KeeperError> {
        let read = config::load(&self.file.path, &self.computer.kinds.catalog());
        let file = match read {
            Ok(file) => file,
            Err(error) => {
                self.tell_broken(broken(&error));
                return Ok(false);
            }
        };
        if file.config == self.file.config {
            self.file = file;
            if self.broken.take().is_some() {
                self.tell(Notice::FileRead);
            }
            return Ok(false);
        }
        match self.computer.open(&file, &file.config, self.own) {
            Ok(fleet) if fleet.id == self.fleet.id => self.fleet = fleet,
            Ok(fleet) => {
                let (was, now) = (self.fleet.id.clone(), fleet.id);
                return Err(KeeperError::OtherFleet { was, now });
            }
            Err(FleetError::File(error)) => return Err(error.into()),
            Err(error) => {
                self.tell_broken(error.to_string());
                return Ok(false);
            }
        }
        self.file = file;
        self.broken = None;
        self.tell(Notice::FileRead);
        Ok(true)
    }

    /// Says once what is wrong with the file.
    fn tell_broken(&mut self, why: String) {
        if self.broken.as_ref() != Some(&why) {
            self.tell(Notice::FileBroken { why: why.clone() });
            self.broken = Some(why);
        }
    }

    /// One pass over everything.
    async fn pass(&mut self, stop: &Stop) -> Pass {
        let (plan, _) = self.fleet.plan(&self.file.config, &Policy::default()).await;
        let unknown = plan.hosts.iter().any(|entry| entry.action == Action::Unknown);
        let approval = Approval {
            hosts: self.approved.clone(),
            settled: self.now().saturating_sub(self.watch.since()) >= SETTLED,
            new_hosts: self.budget.left(self.now()),
        };
        let ruling = rule(plan.clone(), &approval);
        self.tell_pending(&ruling);
        let mut pass = Pass { failed: unknown, later: ruling.later };
        if ruling.plan.has_changes() {
            for host in &ruling.new {
                self.budget.spend(self.now());
                self.approved.insert(host.clone());
            }
            pass.failed |= !self.carry_out(&ruling.plan, stop).await;
            // What was just made or started is to be watched from now on, not from the next pass.
            let (plan, _) = self.fleet.plan(&self.file.config, &Policy::default()).await;
            self.watch_idle(&plan);
        } else {
            self.watch_idle(&plan);
        }
        pass
    }

    fn tell_pending(&mut self, ruling: &Ruling) {
        let mut now = BTreeMap::new();
        for entry in &ruling.pending {
            now.insert(entry.host.clone(), (entry.action, entry.reason.to_string()));
        }
        for (host, (action, why)) in &now {
            if self.pending.get(host) != Some(&(*action, why.clone())) {
                let (host, action, why) = (host.clone(), *action, why.clone());
                self.tell(Notice::Pending { host, action, why });
            }
        }
        let resolved = self.pending.keys().filter(|host| !now.contains_key(*host));
        for host in resolved.cloned().collect::<Vec<_>>() {
            self.tell(Notice::Resolved { host });
        }
        self.pending = now;
    }

    /// Carries out a plan and tells one line a host; whether all went well.
    async fn carry_out(&self, plan: &Plan, stop: &Stop) -> bool {
        let Some(outcome) = self.apply(plan, None, stop).await else { return false };
        let failed: BTreeSet<&Option<HostName>> =
            outcome.failures.iter().map(|failure| &failure.label.host).collect();
        let shared_failed = failed.contains(&None);
        for entry in plan.hosts.iter().filter(|entry| entry.action.is_change()) {
            if !shared_failed && !failed.contains(&Some(entry.host.clone())) && !outcome.stopped {
                let (host, action, why) =
                    (entry.host.clone(), entry.action, entry.reason.to_string());
                self.tell(Notice::Changed { host, action, why });
            }
        }
        outcome.is_success()
    }

    /// Applies and tells what failed.
    async fn apply(&self, plan: &Plan, why: Option<&str>, stop: &Stop) -> Option<Outcome> {
        let (holder, why) = ("simstim apply --watch".into(), why.map(String::from));
        let options = ApplyOptions { holder, why, ..ApplyOptions::default() };
        // Events are for people who watch one apply; a keeper tells outcomes.
        let (events, _receiver) = mpsc::unbounded_channel::<Event>();
        match self.fleet.apply(plan, &options, events, stop).await {
            Ok(outcome) => {
                for failure in &outcome.failures {
                    self.tell(Notice::Failed {
                        host: failure.label.host.clone(),
                        step: failure.label.what.into(),
                        error: failure.error.to_string(),
                        hints: failure.error.hints(),
                    });
                }
                Some(outcome)
            }
            Err(error) => {
                let (host, step, hints) = (None, "apply".into(), Vec::new());
                self.tell(Notice::Failed { host, step, error: error.to_string(), hints });
                None
            }
        }
    }

    /// Notes which running machines only the keeper stops. What an account did not answer about
    /// stays as it was known.
    fn watch_idle(&mut self, plan: &Plan) {
        let config = &self.file.config;
        self.watched.retain(|host, _| config.host(host).is_some());
        for entry in plan.hosts.iter().filter(|entry| entry.action != Action::Unknown) {
            let Some(host) = config.host(&entry.host) else { continue };
            let account = config.accounts.get(&host.account);
            let by_keeper =
                account.is_some_and(|account| account.abilities.idle_stop == IdleStopBy::Keeper);
            let up = entry.machine.as_ref().filter(|m| m.state == MachineState::Running);
            match (host.idle_stop, up) {
                (IdleStop::After(span), Some(machine))
                    if by_keeper && host.power == Power::OnDemand =>
                {
                    self.watched.insert(entry.host.clone(), (machine.clone(), span));
                }
                _ => {
                    self.watched.remove(&entry.host);
                }
            }
        }
    }

    /// Asks all watched machines at the same time, and stops those that are idle long enough.
    async fn stop_idle(&mut self, stop: &Stop) {
        let asks = self.watched.iter().map(|(host, (machine, span))| async {
            let ask = self.fleet.verdict(machine, *span, Span(IDLE));
            // One that hangs must not take the others' checks with it.
            let verdict = tokio::time::timeout(IDLE / 2, ask).await.unwrap_or_else(|_| {
                Err(HelperError::Lost(format!("no answer for {} s", (IDLE / 2).as_secs())))
            });
            (host.clone(), verdict)
        });
        for (host, verdict) in join_all(asks).await {
            match verdict {
                Ok(verdict) => {
                    self.idle_unknown.remove(&host);
                    if verdict.stop && self.stop_one(&host, &verdict.why, stop).await {
                        self.watched.remove(&host);
                    }
                }
                Err(error) if self.runs(&host).await => self.tell_idle_unknown(&host, &error),
                // It is gone or stopped, which is for the next pass to say.
                Err(_) => {
                    self.watched.remove(&host);
                }
            }
        }
    }

    /// Whether a host's machine still runs, as far as its provider says.
    async fn runs(&self, host: &HostName) -> bool {
        let only = Some(BTreeSet::from([host.clone()]));
        let policy = Policy { only, power_only: true, ..Policy::default() };
        let (plan, _) = self.fleet.plan(&self.file.config, &policy).await;
        plan.hosts.iter().filter(|entry| entry.host == *host).any(|entry| {
            let up = entry.machine.as_ref().is_some_and(|m| m.state == MachineState::Running);
            up || entry.action == Action::Unknown
        })
    }

    async fn stop_one(&self, host: &HostName, why: &str, stop: &Stop) -> bool {
        let one = BTreeSet::from([host.clone()]);
        let policy =
            Policy { only: Some(one.clone()), stop: one, power_only: true, ..Policy::default() };
        let (mut plan, _) = self.fleet.plan(&self.file.config, &policy).await;
        plan.only_power_of(host);
        // Work that began this very second blocks it, here or in the step.
        plan.hosts.retain(|entry| entry.action == Action::Stop);
        if !plan.has_changes() {
            return false;
        }
        let Some(outcome) = self.apply(&plan, Some(why), stop).await else { return false };
        if outcome.is_success() {
            self.tell(Notice::IdleStopped { host: host.clone(), why: why.into() });
        }
        outcome.is_success()
    }

    fn tell_idle_unknown(&mut self, host: &HostName, error: &HelperError) {
        let why = error.to_string();
        if self.idle_unknown.get(host) != Some(&why) {
            self.tell(Notice::IdleUnknown { host: host.clone(), why: why.clone() });
            self.idle_unknown.insert(host.clone(), why);
        }
    }
}

/// A stop was asked for, and the patience with running steps is over.
async fn expired(stop: &Stop) {
    stop.wait().await;
    sleep(STOP_PATIENCE).await;
}

/// What is wrong with a file, in one line.
fn broken(error: &LoadError) -> String {
    let LoadError::Bad { problems, text, .. } = error else { return error.to_string() };
    let first = problems.0.iter().find(|problem| !problem.warning);
    first.map_or_else(
        || error.to_string(),
        |problem| {
            let line = text[..problem.span.start.min(text.len())].matches('\n').count() + 1;
            format!("{error}: line {line}: {}", problem.message)
        },
    )
}
