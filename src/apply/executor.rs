//! The executor: one loop over a graph of steps, bounded in all and for each account.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Shared;
use super::event::{Event, Label};
use super::step::{self, Made, StepError};
use crate::files::Lock;
use crate::history;
use crate::model::{AccountName, HostName};
use crate::plan::{Action, Plan, Step, StepGraph, graph};
use crate::stop::Stop;

/// How long another process may hold a host before the step gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// How an apply ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Steps done.
    pub done: usize,
    /// Steps that failed, in the order of their failing.
    pub failures: Vec<Failure>,
    /// Steps not begun, because of a failure or a stop.
    pub skipped: usize,
    /// A stop was asked for before all was done.
    pub stopped: bool,
    /// What is left half-done, in sentences.
    pub left: Vec<String>,
}

/// One step that failed.
#[derive(Debug)]
pub struct Failure {
    /// Which.
    pub label: Label,
    /// Why.
    pub error: StepError,
}

impl Outcome {
    /// Whether everything was done.
    pub fn is_success(&self) -> bool {
        self.failures.is_empty() && !self.stopped && self.left.is_empty()
    }
}

/// Carries out a plan.
///
/// After the first stop nothing new begins, running steps reach a safe point, and machines that
/// this very run was still making are removed. Dropped, it leaves what the next plan will show.
pub async fn apply(plan: &Plan, context: &Shared, stop: &Stop) -> Outcome {
    let mut executor = Executor::new(graph(plan), context);
    executor.run(stop).await;
    executor.finish(plan).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Done,
    Failed,
    Skipped,
}

/// The lock of one host. Taken before its first step, let go after its last one: whoever waits for
/// a host holds no place among the running steps, so two applies cannot wait for each other.
struct HostLock {
    /// Where the step is that asked for it.
    account: AccountName,
    /// Ours as long as it lives; `None` while a task waits for it.
    lock: Option<Lock>,
}

/// What a task of the executor ends with.
enum Ended {
    /// A step.
    Step(usize, Box<Result<Option<Made>, StepError>>),
    /// The wait for the lock of a host, before this step of it.
    Lock(usize, HostName, Result<Lock, StepError>),
}

struct Executor<'a> {
    context: &'a Shared,
    graph: StepGraph,
    states: Vec<State>,
    running: BTreeMap<AccountName, usize>,
    tasks: JoinSet<Ended>,
    /// Machines made or found by this run's creates, by plan entry.
    made: BTreeMap<usize, Made>,
    locks: BTreeMap<HostName, HostLock>,
    began: Vec<Option<Instant>>,
    outcome: Outcome,
}

impl<'a> Executor<'a> {
    fn new(graph: StepGraph, context: &'a Shared) -> Self {
        Self {
            context,
            states: vec![State::Waiting; graph.len()],
            began: vec![None; graph.len()],
            graph,
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            made: BTreeMap::new(),
            locks: BTreeMap::new(),
            outcome: Outcome::default(),
        }
    }

    async fn run(&mut self, stop: &Stop) {
        loop {
            if !self.outcome.stopped {
                self.start_ready(stop);
            }
            if self.tasks.is_empty() {
                return;
            }
            tokio::select! {
                Some(joined) = self.tasks.join_next() => self.take(joined),
                () = stop.wait(), if !self.outcome.stopped => {
                    self.outcome.stopped = true;
                    self.context.tell(Event::Stopping);
                }
            }
        }
    }

    /// Starts every step whose needs are met, as far as the limits go.
    fn start_ready(&mut self, stop: &Stop) {
        for number in 0..self.graph.len() {
            if self.running.values().sum::<usize>() >= self.context.parallelism.max(1) {
                return;
            }
            let ready = self.states[number] == State::Waiting
                && self.graph.needs(number).all(|need| self.states[need] == State::Done);
            if !ready {
                continue;
            }
            let account = &self.graph.step(number).account;
            let busy = self.running.get(account).copied().unwrap_or(0);
            if busy < self.limit(account) && self.is_locked(number, stop) {
                self.start(number, stop.clone());
            }
        }
    }

    /// How many steps of an account may run at once.
    fn limit(&self, account: &AccountName) -> usize {
        let own = self.context.limits.get(account).copied().unwrap_or(usize::MAX);
        own.min(self.context.parallelism).max(1)
    }

    /// Whether the host of a step is ours to work on; where it is not yet, a task waits for it.
    fn is_locked(&mut self, number: usize, stop: &Stop) -> bool {
        let step = self.graph.step(number);
        let (Some(host), account) = (step.host.clone(), step.account.clone()) else { return true };
        if let Some(asked) = self.locks.get(&host) {
            return asked.lock.is_some();
        }
        // Each lock is an open file, so there are few; but no account takes another's.
        let taken = self.locks.values().filter(|lock| lock.account == account).count();
        if taken >= 2 * self.limit(&account) {
            return false;
        }
        self.locks.insert(host.clone(), HostLock { account, lock: None });
        self.begin(number);
        let (context, stop) = (Arc::clone(self.context), stop.clone());
        self.tasks.spawn(async move {
            let path = context.locks.join(format!("{host}.lock"));
            let lock = tokio::select! {
                lock = Lock::take(&path, &context.holder, PATIENCE) => lock.map_err(StepError::from),
                () = stop.wait() => Err(StepError::Stopped),
            };
            Ended::Lock(number, host, lock)
        });
        false
    }

    /// Tells that a step begins, once.
    fn begin(&mut self, number: usize) {
        if self.began[number].is_none() {
            self.began[number] = Some(Instant::now());
            self.context.tell(Event::Started { label: self.label(number) });
        }
    }

    fn start(&mut self, number: usize, stop: Stop) {
        let step = self.graph.step(number).clone();
        let label = self.label(number);
        let made = self.graph.entry(number).and_then(|entry| self.made.get(&entry)).cloned();
        let context = Arc::clone(self.context);
        *self.running.entry(step.account.clone()).or_default() += 1;
        self.states[number] = State::Running;
        self.begin(number);
        self.tasks.spawn(async move {
            Ended::Step(number, Box::new(guarded(&context, &label, &step, made, &stop).await))
        });
    }

    fn take(&mut self, joined: Result<Ended, tokio::task::JoinError>) {
        match joined {
            Ok(Ended::Lock(_, host, Ok(lock))) => {
                self.locks.entry(host).and_modify(|asked| asked.lock = Some(lock));
            }
            Ok(Ended::Lock(number, host, Err(error))) => {
                self.locks.remove(&host);
                self.settle(number, Err(error));
            }
            Ok(Ended::Step(number, result)) => self.take_step(number, *result),
            Err(_) => {
                let died = self.states.iter().position(|state| *state == State::Running);
                if let Some(number) = died {
                    self.take_step(number, Err(StepError::Bug));
                }
            }
        }
    }

    fn take_step(&mut self, number: usize, result: Result<Option<Made>, StepError>) {
        let account = self.graph.step(number).account.clone();
        if let Some(running) = self.running.get_mut(&account) {
            *running = running.saturating_sub(1);
        }
        let stopped = matches!(result, Err(StepError::Stopped));
        self.settle(number, result);
        // A host with nothing left to do is free for others. Where a stop came in between, something
        // is left: what this run made of it is removed under its lock.
        if stopped {
            return;
        }
        let step = self.graph.step(number);
        let of_host =
            (0..self.graph.len()).filter(|other| self.graph.step(*other).host == step.host);
        let over = |state| !matches!(state, State::Waiting | State::Running);
        if let (true, Some(host)) = (of_host.map(|other| self.states[other]).all(over), &step.host)
        {
            self.locks.remove(host);
        }
    }

    /// Writes down how a step ended.
    fn settle(&mut self, number: usize, result: Result<Option<Made>, StepError>) {
        let label = self.label(number);
        match result {
            Ok(made) => {
                self.states[number] = State::Done;
                self.outcome.done += 1;
                if let (Some(made), Some(entry)) = (made, self.graph.entry(number)) {
                    self.made.insert(entry, made);
                }
                let took = self.began[number].map(|began| began.elapsed()).unwrap_or_default();
                self.context.tell(Event::Finished { label, took });
            }
            Err(StepError::Stopped) => self.skip(number),
            Err(error) => {
                self.states[number] = State::Failed;
                let text = error.whole();
                let hints = error.hints();
                self.context.tell(Event::Failed { label: label.clone(), error: text, hints });
                self.outcome.failures.push(Failure { label, error });
                let dependents: Vec<usize> = self.graph.unlocks(number).collect();
                for dependent in dependents {
                    self.skip(dependent);
                }
            }
        }
    }

    /// Marks a step and all that depends on it.
    fn skip(&mut self, number: usize) {
        if matches!(self.states[number], State::Skipped | State::Done | State::Failed) {
            return;
        }
        self.states[number] = State::Skipped;
        self.outcome.skipped += 1;
        self.context.tell(Event::Skipped { label: self.label(number) });
        let dependents: Vec<usize> = self.graph.unlocks(number).collect();
        for dependent in dependents {
            self.skip(dependent);
        }
    }

    fn label(&self, number: usize) -> Label {
        let step = self.graph.step(number);
        Label {
            step: number,
            of: self.graph.len(),
            host: step.host.clone(),
            account: step.account.clone(),
            what: step.kind.word(),
        }
    }

    async fn finish(mut self, plan: &Plan) -> Outcome {
        let waiting: Vec<usize> =
            (0..self.graph.len()).filter(|n| self.states[*n] == State::Waiting).collect();
        for number in waiting {
            self.skip(number);
        }
        // A stop that came after the last step stopped nothing.
        self.outcome.stopped &= self.outcome.skipped > 0;
        let unfinished: BTreeSet<usize> = (0..self.graph.len())
            .filter(|number| self.states[*number] != State::Done)
            .filter_map(|number| self.graph.entry(number))
            .collect();
        if self.outcome.stopped {
            self.undo(plan, &unfinished).await;
        }
        self.remember(plan, &unfinished);
        self.outcome
    }

    /// Removes the machines that this very run made and was kept by the stop from finishing. One that
    /// a create found made already is somebody's; one whose step failed was let go, and may be
    /// somebody's by now: both stay.
    async fn undo(&mut self, plan: &Plan, unfinished: &BTreeSet<usize>) {
        for entry in unfinished {
            let Some(Made { machine, own: true }) = self.made.get(entry) else { continue };
            let host = plan.hosts[*entry].host.clone();
            if !self.locks.contains_key(&host) {
                continue;
            }
            self.context.tell(Event::Undoing { host: host.clone() });
            if let Err(error) = step::undo(self.context, machine).await {
                let text = format!("{host}: machine {} is left half-made: {error}", machine.name);
                self.outcome.left.push(text);
            }
        }
    }

    /// Writes down which blocks were applied, and forgets machines that are gone.
    fn remember(&mut self, plan: &Plan, unfinished: &BTreeSet<usize>) {
        let failed =
            |index: usize| unfinished.contains(&index) || plan.hosts[index].action.is_trouble();
        let applied = plan
            .hosts
            .iter()
            .enumerate()
            .filter(|(index, entry)| !failed(*index) && entry.action != Action::Destroy);
        let mut events: Vec<history::Event> = applied
            .map(|(_, entry)| history::Event::Applied {
                host: entry.host.clone(),
                file: plan.file.clone(),
            })
            .collect();
        if unfinished.is_empty() {
            events.extend(plan.forget.iter().map(|id| history::Event::Gone { id: id.clone() }));
        }
        for event in events {
            if let Err(error) = self.context.record(event) {
                self.outcome.left.push(format!("what was done could not be written down: {error}"));
                return;
            }
        }
    }
}

/// Runs a step, and cuts it off at a stop where that is harmless.
async fn guarded(
    context: &Shared,
    label: &Label,
    step: &Step,
    made: Option<Made>,
    stop: &Stop,
) -> Result<Option<Made>, StepError> {
    let run = step::run(context, label, step, made);
    if !step.kind.is_cut_safe() {
        return run.await;
    }
    tokio::select! {
        result = run => result,
        () = stop.wait() => Err(StepError::Stopped),
    }
}
