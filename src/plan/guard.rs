//! What stands between a plan and somebody's work: protection, and working sessions.

use super::{Action, Impact, Note, Planner, Reason, SessionsFact};
use crate::model::{Machine, MachineState, SessionFact, SessionState};

/// What the guard lets pass.
pub(super) struct Passed {
    pub(super) impact: Impact,
    pub(super) notes: Vec<Note>,
}

impl Planner<'_> {
    /// Whether an action that ends or freezes processes may be planned for a machine.
    ///
    /// A running machine whose sessions were not asked yet passes for now, with a question noted.
    pub(super) fn guard(&self, machine: &Machine, wanted: Action) -> Result<Passed, Reason> {
        let impact = self.impact(machine, wanted);
        let passed = |notes| Ok(Passed { impact, notes });
        let unread =
            |reason| if self.policy.force { passed(vec![Note::EndsUnread]) } else { Err(reason) };
        match machine.state {
            MachineState::Created | MachineState::Stopped | MachineState::Broken(_) => {
                passed(Vec::new())
            }
            MachineState::Busy(ref what) => Err(Reason::Busy { what: what.clone() }),
            MachineState::Paused => {
                let remembered = self.observed.history.machines.get(&machine.id);
                match remembered.and_then(|machine| machine.sessions) {
                    Some(busiest) if busiest != Some(SessionState::Working) => passed(Vec::new()),
                    _ => unread(Reason::PausedUnread { wanted }),
                }
            }
            MachineState::Running => match self.observed.sessions.get(&machine.id) {
                None => {
                    let question = (machine.account.clone(), machine.id.clone());
                    self.asks.borrow_mut().sessions.insert(question);
                    passed(Vec::new())
                }
                Some(SessionsFact::NoHelper) => passed(Vec::new()),
                Some(SessionsFact::Unreadable(cause)) => {
                    unread(Reason::Unreadable { cause: cause.clone(), wanted })
                }
                Some(SessionsFact::Read(sessions)) => {
                    let working = working(sessions);
                    if working.is_empty() {
                        passed(Vec::new())
                    } else if self.policy.force {
                        passed(vec![Note::EndsWork { sessions: working }])
                    } else {
                        Err(Reason::Working { sessions: working, wanted })
                    }
                }
            },
        }
    }

    fn impact(&self, machine: &Machine, wanted: Action) -> Impact {
        let account = self.config.accounts.get(&machine.account);
        let freezes = account.is_some_and(|account| account.abilities.stop_freezes);
        match wanted {
            Action::Replace | Action::Destroy => Impact::LosesDisk,
            _ if machine.state != MachineState::Running => Impact::None,
            Action::Stop if freezes => Impact::Freezes,
            _ => Impact::Ends,
        }
    }

    /// Whether the file or the mark forbids to lose a machine.
    pub(super) fn protected(&self, machine: &Machine, wanted: Action) -> Option<Reason> {
        let mut block = self.config.hosts.iter().filter(|host| {
            host.name == machine.mark.host || host.was.as_ref() == Some(&machine.mark.host)
        });
        if block.any(|host| host.protect) {
            return Some(Reason::Protected { at_birth: false, wanted });
        }
        let unprotected = self.policy.unprotect && self.policy.destroy.contains(&machine.mark.host);
        (machine.mark.protected && !unprotected)
            .then_some(Reason::Protected { at_birth: true, wanted })
    }
}

/// The names of sessions that work.
pub(super) fn working(sessions: &[SessionFact]) -> Vec<String> {
    let works = |session: &&SessionFact| session.state == SessionState::Working;
    sessions.iter().filter(works).map(|session| session.name.clone()).collect()
}
