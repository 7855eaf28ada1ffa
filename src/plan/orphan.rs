//! Machines of the fleet that no block of the file explains, or that a host has too many.

use super::host::stopped_by;
use super::{
    AccountFact, Action, HostPlan, Impact, Note, PlannedStep, Planner, Reason, StoppedBy, Stray,
};
use crate::model::{HostName, IdleStop, Machine, MachineState};

impl<'a> Planner<'a> {
    /// Entries for machines to destroy, and the machines that are left alone.
    pub(super) fn orphans(&self) -> (Vec<HostPlan>, Vec<Stray>) {
        let mut entries = Vec::new();
        let mut strays = Vec::new();
        if self.policy.power_only {
            return (entries, strays);
        }
        let unexplained = self.by_host.iter().filter(|(name, _)| !self.explained(name));
        for machine in unexplained.flat_map(|(_, machines)| machines) {
            let host = &machine.mark.host;
            if self.policy.destroy.contains(host) {
                entries.push(self.orphan(machine, Reason::Asked));
            } else if !self.wants(host) {
                // Somebody asked about other hosts only.
            } else {
                match self.observed.history.applied.get(host) {
                    Some(file) if *file == self.observed.file => {
                        entries.push(self.orphan(machine, Reason::BlockRemoved));
                    }
                    Some(file) => strays.push(stray(
                        machine,
                        format!("its block was applied from {}", file.display()),
                    )),
                    None => strays.push(stray(machine, "it was not applied from here".into())),
                }
            }
        }
        entries.extend(self.policy.destroy.iter().filter_map(|host| self.unseen(host)));
        if self.policy.only.is_none() {
            strays.extend(self.unreadable());
        }
        (entries, strays)
    }

    /// A host to destroy whose machine may be at an account that did not answer.
    fn unseen(&self, host: &HostName) -> Option<HostPlan> {
        if self.by_host.contains_key(host) || self.explained(host) {
            return None;
        }
        let mut unknown = self.observed.accounts.iter().filter_map(|(account, fact)| match fact {
            AccountFact::Unknown(unknown) => Some((account, unknown)),
            AccountFact::Seen(_) => None,
        });
        let (account, unknown) = unknown.next()?;
        Some(HostPlan {
            host: host.clone(),
            account: account.clone(),
            action: Action::Unknown,
            reason: Reason::NoAnswer(unknown.clone()),
            impact: Impact::None,
            settings: Vec::new(),
            pending: Vec::new(),
            notes: Vec::new(),
            machine: None,
            make: None,
            steps: Vec::new(),
            stopped_by: StoppedBy::NotRunning,
            facts: self.facts(account, None),
        })
    }

    /// Whether a machine beside the one in use carries that one's own mark.
    fn is_copy(&self, machine: &Machine, reason: &Reason) -> bool {
        let Reason::Duplicate { used } = reason else { return false };
        let mut all = self.by_host.values().flatten();
        all.any(|other| other.id == *used && other.mark.nonce == machine.mark.nonce)
    }

    fn explained(&self, name: &HostName) -> bool {
        self.explained.contains(name)
    }

    fn unreadable(&self) -> impl Iterator<Item = Stray> {
        self.observed.accounts.iter().flat_map(|(account, fact)| {
            let listing = fact.seen().into_iter();
            listing.flat_map(|listing| &listing.unreadable).map(|(name, why)| Stray {
                account: account.clone(),
                name: name.clone(),
                machine: None,
                why: why.clone(),
            })
        })
    }

    /// The block that a machine without one may belong to by now.
    fn renamed(&self, machine: &Machine) -> Option<Note> {
        let block = self.unmade.iter().find(|host| host.account == machine.account)?;
        Some(Note::PerhapsRenamed { block: block.name.clone() })
    }

    /// The entry that destroys a machine, or says what stands in the way.
    pub(super) fn orphan(&self, machine: &'a Machine, reason: Reason) -> HostPlan {
        let wanted = Action::Destroy;
        let passed = match self.protected(machine, wanted) {
            // Its helper would answer in the original's name: nothing about it can be known.
            _ if self.is_copy(machine, &reason) => {
                let of = match &reason {
                    Reason::Duplicate { used } => used.clone(),
                    _ => machine.id.clone(),
                };
                Err(Reason::Copy { of })
            }
            // A duplicate shares its block's protection only as far as its own mark goes.
            Some(Reason::Protected { at_birth: false, .. })
                if matches!(reason, Reason::Duplicate { .. }) && !machine.mark.protected =>
            {
                self.guard(machine, wanted)
            }
            Some(reason) => Err(reason),
            None => self.guard(machine, wanted),
        };
        let (action, reason, impact, mut notes, steps) = match passed {
            Ok(passed) => (wanted, reason, passed.impact, passed.notes, vec![PlannedStep::Destroy]),
            Err(reason) => (Action::Blocked, reason, Impact::None, Vec::new(), Vec::new()),
        };
        if reason == Reason::BlockRemoved {
            notes.extend(self.renamed(machine));
        }
        let runs = machine.state == MachineState::Running && steps.is_empty();
        let account = self.config.accounts.get(&machine.account);
        HostPlan {
            host: machine.mark.host.clone(),
            account: machine.account.clone(),
            action,
            reason,
            impact,
            settings: Vec::new(),
            pending: Vec::new(),
            notes,
            machine: Some(machine.clone()),
            make: None,
            steps,
            stopped_by: account.map_or(StoppedBy::NotRunning, |account| {
                stopped_by(&account.abilities, IdleStop::Never, runs)
            }),
            facts: self.facts(&machine.account, Some(machine)),
        }
    }
}

fn stray(machine: &Machine, why: String) -> Stray {
    Stray {
        account: machine.account.clone(),
        name: machine.name.clone(),
        machine: Some(machine.clone()),
        why,
    }
}
