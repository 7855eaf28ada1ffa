//! The planner: a configuration and what was observed in, a plan out. No I/O, no clock, no async.
//!
//! One decision a host ([`host`]), one a machine that no block explains ([`orphan`]), both behind
//! the same guard for sessions ([`guard`]). The plan lists every step; [`graph`] only orders them.

mod change;
mod graph;
mod guard;
mod host;
mod observed;
mod orphan;
mod saved;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

pub use change::{
    Action, FORMAT, Fact, HostPlan, Impact, Note, Plan, PlannedStep, Reason, Setting, StoppedBy,
    Stray,
};
pub use graph::{Step, StepGraph, StepKind, graph};
pub use observed::{AccountFact, Asks, Observed, SessionsFact, SurveyFact, Unknown};
pub use saved::{SavedPlan, SavedPlanError};

use crate::config::{Config, Host};
use crate::history::Remembered;
use crate::model::{AccountName, FleetId, HostName, Listing, Machine, MachineId};

/// What the person who asks for the plan wants beside the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Policy {
    /// Only these hosts; `None` is all.
    pub only: Option<BTreeSet<HostName>>,
    /// Wake hosts that are stopped as wanted.
    pub wake: bool,
    /// Stop these hosts now though nothing in the file says so.
    pub stop: BTreeSet<HostName>,
    /// Only start or stop machines; whatever else the file says waits.
    pub power_only: bool,
    /// Hosts seen at another engine, folder or team are meant to be here from now on.
    pub here: bool,
    /// End work.
    pub force: bool,
    /// Destroy the machines of these hosts, whose blocks are gone from the file.
    pub destroy: BTreeSet<HostName>,
    /// `destroy` reaches machines that were protected at birth.
    pub unprotect: bool,
    /// How many disks the person agreed to lose; strays are destroyed where it counts them too.
    pub counted: Option<usize>,
}

/// Decides what to do, and says what has to be asked before the decision is complete.
///
/// While [`Asks`] is not empty the plan is provisional: ask, add the answers to `observed`, and
/// plan again.
///
/// # Panics
/// Never for a configuration with a fleet; the caller stops without one.
pub fn plan(
    config: &Config,
    fleet: &FleetId,
    observed: &Observed,
    policy: &Policy,
) -> (Plan, Asks) {
    let planner = Planner::new(config, fleet, observed, policy);
    let mut hosts = Vec::new();
    for host in config.hosts.iter().filter(|host| planner.wants(&host.name)) {
        hosts.extend(planner.host(host));
    }
    let (orphans, mut strays) = planner.orphans();
    hosts.extend(orphans);
    let destructive = hosts.iter().filter(|host| host.action.is_destructive()).count();
    if policy.counted.is_some_and(|counted| counted > destructive) {
        // The count must name every stray too; whether it does is checked at consent.
        let counted = strays.iter().filter_map(|stray| stray.machine.as_ref());
        hosts.extend(counted.map(|machine| planner.orphan(machine, Reason::Counted)));
        strays.retain(|stray| stray.machine.is_none());
    }
    let forget = planner.forgettable(&hosts);
    let file = observed.file.clone();
    let plan = Plan { format: FORMAT, fleet: fleet.clone(), file, hosts, strays, forget };
    (plan, planner.asks.into_inner())
}

/// Everything that the decisions share.
struct Planner<'a> {
    config: &'a Config,
    fleet: &'a FleetId,
    observed: &'a Observed,
    policy: &'a Policy,
    by_host: BTreeMap<&'a HostName, Vec<&'a Machine>>,
    /// Every machine that any account reports.
    seen: BTreeSet<&'a MachineId>,
    /// What this computer remembers, by host.
    remembered: BTreeMap<&'a HostName, Vec<(&'a MachineId, &'a Remembered)>>,
    /// Names that blocks of the file have, or had.
    explained: BTreeSet<&'a HostName>,
    /// Blocks that no machine belongs to.
    unmade: Vec<&'a Host>,
    asks: RefCell<Asks>,
}

impl<'a> Planner<'a> {
    fn new(
        config: &'a Config,
        fleet: &'a FleetId,
        observed: &'a Observed,
        policy: &'a Policy,
    ) -> Self {
        let mut by_host: BTreeMap<&HostName, Vec<&Machine>> = BTreeMap::new();
        let seen = observed.accounts.values().filter_map(AccountFact::seen);
        for machine in seen.flat_map(|listing| &listing.machines) {
            // A provider that reports a machine of another fleet is not believed.
            if machine.mark.fleet == *fleet {
                by_host.entry(&machine.mark.host).or_default().push(machine);
            }
        }
        let known = |name: &HostName| by_host.contains_key(name);
        let unmade = |host: &Host| !known(&host.name) && !host.was.as_ref().is_some_and(known);
        let mut remembered: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, machine) in &observed.history.machines {
            remembered.entry(&machine.host).or_default().push((id, machine));
        }
        let names =
            config.hosts.iter().flat_map(|host| std::iter::once(&host.name).chain(&host.was));
        Self {
            config,
            fleet,
            observed,
            policy,
            unmade: config.hosts.iter().filter(|host| unmade(host)).collect(),
            seen: by_host.values().flatten().map(|machine| &machine.id).collect(),
            by_host,
            remembered,
            explained: names.collect(),
            asks: RefCell::default(),
        }
    }

    fn wants(&self, host: &HostName) -> bool {
        self.policy.only.as_ref().is_none_or(|only| only.contains(host))
    }

    fn listing(&self, account: &AccountName) -> Option<&'a Listing> {
        self.observed.accounts.get(account).and_then(AccountFact::seen)
    }

    /// Machines made for a host, under its name and the one it had.
    fn machines_of(&self, host: &'a Host) -> Vec<&'a Machine> {
        let names = std::iter::once(&host.name).chain(&host.was);
        names.filter_map(|name| self.by_host.get(name)).flatten().copied().collect()
    }

    /// Remembered machines that are gone and that an apply of these entries may forget.
    fn forgettable(&self, hosts: &[HostPlan]) -> Vec<MachineId> {
        let remembered = &self.observed.history.machines;
        let gone = remembered.iter().filter(|(id, machine)| {
            self.listing(&machine.account).is_some_and(|listing| {
                listing.gone.contains(*id) && listing.identity == machine.identity
            })
        });
        gone.filter(|(_, machine)| {
            let entry = hosts.iter().find(|host| host.host == machine.host);
            self.wants(&machine.host) && entry.is_none_or(|host| !host.action.is_trouble())
        })
        .map(|(id, _)| id.clone())
        .collect()
    }
}

impl AccountFact {
    /// The answer, if there was one.
    pub fn seen(&self) -> Option<&Listing> {
        match self {
            Self::Seen(listing) => Some(listing),
            Self::Unknown(_) => None,
        }
    }
}
