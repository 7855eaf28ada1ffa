//! What can go wrong with a provider's calls, for tests: on a queue, one fault a call.
//!
//! [`FaultyKind`] puts the queue before any kind of provider, so that people can run simstim's own
//! tests of failure on theirs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{ErrorKind, Kind, Progress, Provider, ProviderError};
use crate::config::Account;
use crate::files::Folders;
use crate::model::{
    AccountName, KindSpec, Listing, Machine, MachineId, MachineSpec, Mark, Question, Size, Survey,
};
use crate::transport::Transport;

/// A verb of [`Provider`], for faults and for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the method of its name")]
pub enum Verb {
    Check,
    List,
    /// One page of a list, where the vendor has pages.
    Page,
    Get,
    Survey,
    Image,
    Create,
    Start,
    Stop,
    Destroy,
    Resize,
}

/// What goes wrong with one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this meaning, and nothing is done.
    Refuse(ErrorKind),
    /// It is done, and its answer is lost.
    LoseAnswer,
    /// It is done after a while.
    Slow(Duration),
    /// It is never answered, and nothing is done.
    Hang,
    /// It is done, but the machine is missing from so many lists yet. Only for creates.
    Late(usize),
    /// It is answered well, but the machine is stuck on the way: busy for good. Only for what changes
    /// a machine of the in-memory vendor.
    Stuck,
}

/// Faults to come, and the calls that were made. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    due: VecDeque<(Verb, Fault)>,
    calls: Vec<Verb>,
}

impl Faults {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the next call of a verb go wrong; several for one verb come in turn.
    pub fn add(&self, verb: Verb, fault: Fault) {
        self.queue().due.push_back((verb, fault));
    }

    /// Takes back the faults that have not come yet.
    pub fn heal(&self) {
        self.queue().due.clear();
    }

    /// The calls so far, in order.
    pub fn calls(&self) -> Vec<Verb> {
        self.queue().calls.clone()
    }

    /// From how many lists the next call of a verb hides what it makes.
    pub(super) fn lateness(&self, verb: Verb) -> usize {
        let queue = self.queue();
        match queue.due.iter().find(|(due, _)| *due == verb) {
            Some((_, Fault::Late(lists))) => *lists,
            _ => 0,
        }
    }

    /// Whether the next call of a verb leaves its machine stuck.
    pub(super) fn sticks(&self, verb: Verb) -> bool {
        let queue = self.queue();
        let due = queue.due.iter().find(|(due, _)| *due == verb);
        matches!(due, Some((_, Fault::Stuck)))
    }

    /// Does a call with the fault that is due for it, if any.
    pub(super) async fn around<T>(
        &self,
        verb: Verb,
        act: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        let refuse = |kind| ProviderError::new(kind, format!("the test says {kind:?}"));
        let fault = {
            let mut queue = self.queue();
            queue.calls.push(verb);
            let due = queue.due.iter().position(|(due, _)| *due == verb);
            due.and_then(|at| queue.due.remove(at)).map(|(_, fault)| fault)
        };
        match fault {
            None | Some(Fault::Stuck) => act.await,
            Some(Fault::Refuse(kind)) => Err(refuse(kind)),
            Some(Fault::LoseAnswer | Fault::Late(_)) => {
                act.await?;
                Err(refuse(ErrorKind::NotNow))
            }
            Some(Fault::Slow(pause)) => {
                tokio::time::sleep(pause).await;
                act.await
            }
            Some(Fault::Hang) => std::future::pending().await,
        }
    }
}

/// A kind of provider with faults before each of its calls.
#[derive(Debug, Clone)]
pub struct FaultyKind<K> {
    /// The kind under test.
    pub kind: K,
    /// What goes wrong.
    pub faults: Faults,
}

impl<K: Kind> Kind for FaultyKind<K> {
    fn spec(&self) -> KindSpec {
        self.kind.spec()
    }

    fn open(&self, name: &AccountName, account: &Account, folders: &Folders) -> Arc<dyn Provider> {
        let provider = self.kind.open(name, account, folders);
        Arc::new(Faulty { provider, faults: self.faults.clone() })
    }
}

#[derive(Debug)]
struct Faulty {
    provider: Arc<dyn Provider>,
    faults: Faults,
}

#[async_trait]
impl Provider for Faulty {
    fn identity(&self) -> String {
        self.provider.identity()
    }

    async fn check(&self) -> Result<(), ProviderError> {
        self.faults.around(Verb::Check, self.provider.check()).await
    }

    async fn list(&self, question: &Question) -> Result<Listing, ProviderError> {
        self.faults.around(Verb::List, self.provider.list(question)).await
    }

    async fn get(&self, machine: &Machine) -> Result<Option<Machine>, ProviderError> {
        self.faults.around(Verb::Get, self.provider.get(machine)).await
    }

    async fn survey(&self, spec: &MachineSpec) -> Result<Survey, ProviderError> {
        self.faults.around(Verb::Survey, self.provider.survey(spec)).await
    }

    async fn image(&self, spec: &MachineSpec, progress: Progress<'_>) -> Result<(), ProviderError> {
        self.faults.around(Verb::Image, self.provider.image(spec, progress)).await
    }

    async fn create(&self, spec: &MachineSpec, mark: &Mark) -> Result<MachineId, ProviderError> {
        self.faults.around(Verb::Create, self.provider.create(spec, mark)).await
    }

    async fn start(&self, machine: &Machine) -> Result<(), ProviderError> {
        self.faults.around(Verb::Start, self.provider.start(machine)).await
    }

    async fn stop(&self, machine: &Machine) -> Result<(), ProviderError> {
        self.faults.around(Verb::Stop, self.provider.stop(machine)).await
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), ProviderError> {
        self.faults.around(Verb::Destroy, self.provider.destroy(machine)).await
    }

    async fn resize(&self, machine: &Machine, size: &Size) -> Result<(), ProviderError> {
        self.faults.around(Verb::Resize, self.provider.resize(machine, size)).await
    }

    fn transport(&self, machine: &Machine) -> Arc<dyn Transport> {
        self.provider.transport(machine)
    }
}
