//! The in-memory provider, with faults: for tests of simstim and of anything built on it.
//!
//! A [`Cloud`] is what a vendor would be: machines with states, names, answers that come late, get
//! lost or make no sense. [`MemoryKind`] is a kind of provider in front of it, [`MemoryDoor`] stands
//! in for the helpers of its machines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::faults::{Fault, Faults, Verb};
use super::{ErrorKind, Kind, Progress, Provider, ProviderError};
use crate::config::Account;
use crate::files::Folders;
use crate::helper_client::{Door, HelperError};
use crate::model::{
    Abilities, AccountName, Architecture, FleetId, IdleStop, IdleStopBy, IdleVerdict, KeySpec,
    KindSpec, Limit, Listing, Machine, MachineId, MachineSpec, MachineState, Mark, Question,
    Resize, Size, Span, Survey,
};
use crate::plan::SessionsFact;
use crate::transport::{ChildTransport, Transport};

#[derive(Debug, Default)]
struct Inner {
    machines: BTreeMap<MachineId, Stored>,
    foreign_names: BTreeSet<String>,
    images: BTreeSet<String>,
    made: u64,
    identity: String,
    pages: Option<(usize, Duration)>,
}

#[derive(Debug, Clone)]
struct Stored {
    machine: Machine,
    hidden_from: usize,
}

/// A vendor in memory. Clones are the same vendor.
#[derive(Debug, Clone, Default)]
pub struct Cloud {
    inner: Arc<Mutex<Inner>>,
    /// What goes wrong with its calls.
    pub faults: Faults,
}

impl Cloud {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the next call of a verb go wrong; several for one verb come in turn.
    pub fn fault(&self, verb: Verb, fault: Fault) {
        self.faults.add(verb, fault);
    }

    /// Takes back the faults that have not come yet.
    pub fn heal(&self) {
        self.faults.heal();
    }

    /// The calls so far, in order.
    pub fn calls(&self) -> Vec<Verb> {
        self.faults.calls()
    }

    /// Every machine there is, whether lists show it yet or not.
    pub fn machines(&self) -> Vec<Machine> {
        self.inner().machines.values().map(|stored| stored.machine.clone()).collect()
    }

    /// Changes a machine behind everybody's back.
    pub fn meddle(&self, id: &MachineId, change: impl FnOnce(&mut Machine)) {
        if let Some(stored) = self.inner().machines.get_mut(id) {
            change(&mut stored.machine);
        }
    }

    /// Puts a machine there, as another computer might.
    pub fn put(&self, machine: Machine) {
        self.inner().machines.insert(machine.id.clone(), Stored { machine, hidden_from: 0 });
    }

    /// Takes a machine away, as a person at the vendor's console might.
    pub fn remove(&self, id: &MachineId) {
        self.inner().machines.remove(id);
    }

    /// Lists come in pages of so many machines, each after a while.
    pub fn pages(&self, of: usize, each: Duration) {
        self.inner().pages = Some((of.max(1), each));
    }

    /// Every machine goes back to what `earlier` says: the vendor restored an older snapshot.
    pub fn restore(&self, earlier: Vec<Machine>) {
        let stored = earlier
            .into_iter()
            .map(|machine| (machine.id.clone(), Stored { machine, hidden_from: 0 }));
        self.inner().machines = stored.collect();
    }

    /// Somebody else has a machine of this name.
    pub fn take_name(&self, name: &str) {
        self.inner().foreign_names.insert(name.into());
    }

    /// The account is another one from now on, with the same machines.
    pub fn become_other(&self, identity: &str) {
        self.inner().identity = identity.into();
    }
}

/// A kind of provider in front of a [`Cloud`].
#[derive(Debug, Clone)]
pub struct MemoryKind {
    /// The vendor.
    pub cloud: Cloud,
    /// The kind's word.
    pub name: &'static str,
    /// What its machines can.
    pub abilities: Abilities,
}

impl MemoryKind {
    /// A kind called `memory` that can do everything in place and freezes at a stop.
    pub fn new(cloud: &Cloud) -> Self {
        Self {
            cloud: cloud.clone(),
            name: "memory",
            abilities: Abilities {
                cpus: true,
                memory: true,
                disk: true,
                resize: Resize::InPlace,
                idle_stop: IdleStopBy::GuestTimer,
                default_idle_stop: IdleStop::Never,
                stop_freezes: false,
                needs_image: true,
                runs_here: false,
                limit: Limit { at_once: 4, reason: "to have a bound to test" },
            },
        }
    }
}

const IMAGE: KeySpec = KeySpec {
    name: "image",
    default: Some("plain"),
    values: &[],
    replaces: true,
    is_command: false,
    is_name: false,
    needs_trust: false,
    doc: "What the machine is made from.",
};

impl Kind for MemoryKind {
    fn spec(&self) -> KindSpec {
        KindSpec {
            kind: self.name,
            doc: "Machines in memory, for tests.",
            abilities: self.abilities.clone(),
            machine_keys: &[IMAGE, KeySpec::MACHINE_NAME],
            account_keys: &[],
        }
    }

    fn open(&self, name: &AccountName, _: &Account, _: &Folders) -> Arc<dyn Provider> {
        Arc::new(Memory { account: name.clone(), cloud: self.cloud.clone() })
    }
}

#[derive(Debug)]
struct Memory {
    account: AccountName,
    cloud: Cloud,
}

fn gone() -> ProviderError {
    ProviderError::new(ErrorKind::Gone, "there is no such machine")
}

impl Memory {
    /// Does one call with the fault that is due for it, if any.
    async fn call<T: Send>(
        &self,
        verb: Verb,
        act: impl FnOnce(&mut Inner, &AccountName, usize) -> Result<T, ProviderError> + Send,
    ) -> Result<T, ProviderError> {
        let hidden = self.cloud.faults.lateness(verb);
        let act = async { act(&mut self.cloud.inner(), &self.account, hidden) };
        self.cloud.faults.around(verb, act).await
    }

    /// Waits for every page of a list; one that fails fails the list.
    async fn turn_pages(&self) -> Result<(), ProviderError> {
        let (pages, each) = {
            let inner = self.cloud.inner();
            let Some((of, each)) = inner.pages else { return Ok(()) };
            (inner.machines.len().div_ceil(of).max(1), each)
        };
        for _ in 0..pages {
            let page = async {
                tokio::time::sleep(each).await;
                Ok(())
            };
            self.cloud.faults.around(Verb::Page, page).await?;
        }
        Ok(())
    }

    async fn change(
        &self,
        verb: Verb,
        machine: &Machine,
        change: impl FnOnce(&mut Machine) + Send,
    ) -> Result<(), ProviderError> {
        let sticks = self.cloud.faults.sticks(verb);
        self.call(verb, |inner, _, _| {
            let stored = inner.machines.get_mut(&machine.id).ok_or_else(gone)?;
            if sticks {
                stored.machine.state = MachineState::Busy("stuck".into());
            } else {
                change(&mut stored.machine);
            }
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl Provider for Memory {
    fn identity(&self) -> String {
        self.cloud.inner().identity.clone()
    }

    async fn check(&self) -> Result<(), ProviderError> {
        self.call(Verb::Check, |_, _, _| Ok(())).await
    }

    async fn list(&self, question: &Question) -> Result<Listing, ProviderError> {
        self.turn_pages().await?;
        self.call(Verb::List, |inner, account, _| {
            let mut listing = Listing { identity: inner.identity.clone(), ..Listing::default() };
            for stored in inner.machines.values_mut() {
                let machine = &stored.machine;
                if stored.hidden_from > 0 {
                    stored.hidden_from -= 1;
                } else if Some(&machine.mark.fleet) == question.fleet.as_ref() {
                    if machine.account == *account {
                        listing.machines.push(machine.clone());
                    }
                } else if question.names.contains(&machine.name) {
                    let fleet: FleetId = machine.mark.fleet.clone();
                    listing.taken.insert(machine.name.clone(), Some(fleet));
                }
            }
            let foreign = question.names.intersection(&inner.foreign_names);
            listing.taken.extend(foreign.map(|name| (name.clone(), None)));
            let there = |id: &&MachineId| inner.machines.contains_key(*id);
            listing.gone = question.known.iter().filter(|id| !there(id)).cloned().collect();
            Ok(listing)
        })
        .await
    }

    async fn get(&self, machine: &Machine) -> Result<Option<Machine>, ProviderError> {
        self.call(Verb::Get, |inner, _, _| {
            Ok(inner.machines.get(&machine.id).map(|stored| stored.machine.clone()))
        })
        .await
    }

    async fn survey(&self, spec: &MachineSpec) -> Result<Survey, ProviderError> {
        let image = spec.settings.get("image").cloned().unwrap_or_default();
        self.call(Verb::Survey, |inner, _, _| {
            let architecture = Some(Architecture::new(std::env::consts::ARCH));
            Ok(Survey { architecture, image_present: inner.images.contains(&image) })
        })
        .await
    }

    async fn image(&self, spec: &MachineSpec, progress: Progress<'_>) -> Result<(), ProviderError> {
        let image = spec.settings.get("image").cloned().unwrap_or_default();
        progress(format!("fetching {image}"));
        self.call(Verb::Image, |inner, _, _| {
            inner.images.insert(image);
            Ok(())
        })
        .await
    }

    async fn create(&self, spec: &MachineSpec, mark: &Mark) -> Result<MachineId, ProviderError> {
        self.call(Verb::Create, |inner, account, hidden_from| {
            let mut names = inner.machines.values().map(|stored| &stored.machine.name);
            if names.any(|name| *name == spec.name) || inner.foreign_names.contains(&spec.name) {
                return Err(ProviderError::new(ErrorKind::Taken, "the name is taken"));
            }
            inner.made += 1;
            let id = MachineId::new(format!("m-{}", inner.made)).map_err(|_| gone())?;
            let machine = Machine {
                account: account.clone(),
                id: id.clone(),
                name: spec.name.clone(),
                mark: mark.clone(),
                state: MachineState::Created,
                size: spec.size,
                settings: spec.settings.clone(),
                architecture: None,
            };
            inner.machines.insert(id.clone(), Stored { machine, hidden_from });
            Ok(id)
        })
        .await
    }

    async fn start(&self, machine: &Machine) -> Result<(), ProviderError> {
        self.change(Verb::Start, machine, |machine| machine.state = MachineState::Running).await
    }

    async fn stop(&self, machine: &Machine) -> Result<(), ProviderError> {
        self.change(Verb::Stop, machine, |machine| machine.state = MachineState::Stopped).await
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), ProviderError> {
        if self.cloud.faults.sticks(Verb::Destroy) {
            return self.change(Verb::Destroy, machine, |_| {}).await;
        }
        self.call(Verb::Destroy, |inner, _, _| {
            inner.machines.remove(&machine.id);
            Ok(())
        })
        .await
    }

    async fn resize(&self, machine: &Machine, size: &Size) -> Result<(), ProviderError> {
        let size = *size;
        self.change(Verb::Resize, machine, move |machine| machine.size = size.or(machine.size))
            .await
    }

    /// Leads nowhere: [`MemoryDoor`] answers for these machines.
    fn transport(&self, _: &Machine) -> Arc<dyn Transport> {
        Arc::new(ChildTransport { prefix: vec!["false".into()], ..ChildTransport::default() })
    }
}

/// The helpers of machines in memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryDoor(Arc<Mutex<DoorInner>>);

#[derive(Debug, Default)]
struct DoorInner {
    sessions: BTreeMap<MachineId, SessionsFact>,
    installed: BTreeSet<MachineId>,
    failures: usize,
    asked: usize,
    verdicts: BTreeMap<MachineId, IdleVerdict>,
}

impl MemoryDoor {
    fn inner(&self) -> MutexGuard<'_, DoorInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what a machine's helper answers about its sessions from now on.
    pub fn sessions_are(&self, id: &MachineId, fact: SessionsFact) {
        self.inner().sessions.insert(id.clone(), fact);
    }

    /// Says what a machine's helper answers about stopping it from now on.
    pub fn verdict_is(&self, id: &MachineId, verdict: IdleVerdict) {
        self.inner().verdicts.insert(id.clone(), verdict);
    }

    /// Lets the next bootstraps fail.
    pub fn fail_bootstraps(&self, count: usize) {
        self.inner().failures = count;
    }

    /// Machines that a helper was installed on.
    pub fn installed(&self) -> BTreeSet<MachineId> {
        self.inner().installed.clone()
    }

    /// How often sessions were asked for.
    pub fn asked(&self) -> usize {
        self.inner().asked
    }
}

#[async_trait]
impl Door for MemoryDoor {
    async fn bootstrap(
        &self,
        _: &dyn Provider,
        machine: &Machine,
        _: bool,
    ) -> Result<(), HelperError> {
        let mut inner = self.inner();
        if inner.failures > 0 {
            inner.failures -= 1;
            return Err(HelperError::Install("the test wants it so".into()));
        }
        inner.installed.insert(machine.id.clone());
        Ok(())
    }

    async fn sessions(&self, _: &dyn Provider, machine: &Machine) -> SessionsFact {
        let mut inner = self.inner();
        inner.asked += 1;
        let fact = inner.sessions.get(&machine.id).cloned();
        fact.unwrap_or(if inner.installed.contains(&machine.id) {
            SessionsFact::Read(Vec::new())
        } else {
            SessionsFact::NoHelper
        })
    }

    async fn verdict(
        &self,
        _: &dyn Provider,
        machine: &Machine,
        _: Span,
        _: Span,
        _: bool,
    ) -> Result<IdleVerdict, HelperError> {
        let verdict = self.inner().verdicts.get(&machine.id).cloned();
        verdict.ok_or(HelperError::NotInstalled)
    }
}
