//! What a keeper may do without a person: a pure decision over the entries of a plan.

use std::collections::BTreeSet;

use crate::model::HostName;
use crate::plan::{Action, HostPlan, Impact, Plan, Reason};

/// What the person approved by starting the keeper, and what came since.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approval {
    /// Hosts that were in the file then, or that the keeper made since.
    pub hosts: BTreeSet<HostName>,
    /// The file was valid and left alone long enough for hosts that are new in it.
    pub settled: bool,
    /// How many new hosts may be made now.
    pub new_hosts: usize,
}

/// What a keeper makes of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The part that it may carry out.
    pub plan: Plan,
    /// Hosts in it that are new.
    pub new: Vec<HostName>,
    /// What waits for a person.
    pub pending: Vec<HostPlan>,
    /// New hosts that wait for the file to settle, or for the hour to pass.
    pub later: bool,
}

/// Divides a plan. The keeper never destroys, replaces, restarts, stops for the file's sake, or
/// makes a lost machine anew.
pub fn rule(plan: Plan, approval: &Approval) -> Ruling {
    let mut ruling = Ruling {
        plan: Plan { hosts: Vec::new(), strays: Vec::new(), forget: Vec::new(), ..plan.clone() },
        new: Vec::new(),
        pending: Vec::new(),
        later: false,
    };
    for entry in plan.hosts {
        let known = approval.hosts.contains(&entry.host);
        let gentle = matches!(entry.impact, Impact::None | Impact::Keeps);
        match (&entry.action, &entry.reason) {
            (Action::None, _) => {}
            (Action::Create, Reason::NotMade) => {
                let room = ruling.new.len() < approval.new_hosts;
                if room && (known || approval.settled) {
                    ruling.new.push(entry.host.clone());
                    ruling.plan.hosts.push(entry);
                } else {
                    ruling.later = true;
                }
            }
            (Action::Wake, Reason::PowerOn) if known => ruling.plan.hosts.push(entry),
            (Action::Change, _) if known && gentle => ruling.plan.hosts.push(entry),
            _ => ruling.pending.push(entry),
        }
    }
    ruling
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::StoppedBy;

    fn entry(name: &str, action: Action, reason: Reason, impact: Impact) -> HostPlan {
        HostPlan {
            host: HostName::new(name).unwrap(),
            account: "memory".parse().unwrap(),
            action,
            reason,
            impact,
            settings: Vec::new(),
            pending: Vec::new(),
            notes: Vec::new(),
            machine: None,
            make: None,
            steps: Vec::new(),
            stopped_by: StoppedBy::Nobody,
            facts: Vec::new(),
        }
    }

    fn ruled(action: Action, reason: Reason, impact: Impact, known: bool) -> &'static str {
        let hosts = vec![entry("dev", action, reason, impact)];
        let plan = Plan {
            format: 1,
            fleet: "f".parse().unwrap(),
            file: "/f".into(),
            hosts,
            strays: Vec::new(),
            forget: vec!["gone".parse().unwrap()],
        };
        let hosts = if known { ["dev".parse().unwrap()].into() } else { BTreeSet::new() };
        let ruling = rule(plan, &Approval { hosts, settled: false, new_hosts: 5 });
        assert!(ruling.plan.forget.is_empty(), "only a person forgets a lost machine");
        match (ruling.plan.hosts.len(), ruling.pending.len(), ruling.later) {
            (1, 0, false) => "does",
            (0, 1, false) => "shows",
            (0, 0, true) => "waits",
            (0, 0, false) => "nothing",
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_keeper_does_what_ends_nothing_and_shows_the_rest() {
        use Action::{
            Change, ChangeWithRestart, Create, Destroy, None as Nothing, Replace, Stop, Wake,
        };
        let lost = || Reason::Lost { id: "m".parse().unwrap(), seen: crate::model::Timestamp(0) };
        let cases = [
            (Nothing, Reason::Running, Impact::None, true, "nothing"),
            (Create, Reason::NotMade, Impact::None, true, "does"),
            (Create, Reason::NotMade, Impact::None, false, "waits"),
            (Create, lost(), Impact::None, true, "shows"),
            (Wake, Reason::PowerOn, Impact::None, true, "does"),
            (Wake, Reason::PowerOn, Impact::None, false, "shows"),
            (Wake, Reason::Asked, Impact::None, true, "shows"),
            (Change, Reason::Differs, Impact::Keeps, true, "does"),
            (Change, Reason::SetUpUnfinished, Impact::None, true, "does"),
            (Change, Reason::Differs, Impact::Keeps, false, "shows"),
            (ChangeWithRestart, Reason::Differs, Impact::Ends, true, "shows"),
            (Replace, Reason::Differs, Impact::LosesDisk, true, "shows"),
            (Stop, Reason::PowerOff, Impact::Ends, true, "shows"),
            (Destroy, Reason::BlockRemoved, Impact::LosesDisk, true, "shows"),
            (Action::Blocked, Reason::PowerOff, Impact::None, true, "shows"),
            (Action::Unknown, Reason::PowerOff, Impact::None, true, "shows"),
        ];
        for (action, reason, impact, known, expected) in cases {
            let what = format!("{action:?} because {reason:?}, {impact:?}, known: {known}");
            assert_eq!(ruled(action, reason, impact, known), expected, "{what}");
        }
    }
}
