//! A plan as data: what is to be done to each host, why, and what it means for its sessions.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::observed::Unknown;
use crate::model::{
    AccountName, Architecture, FleetId, HostName, Machine, MachineId, MachineSpec, Size, Span,
    Timestamp,
};

/// The format of a plan's JSON. It changes when a reader could misunderstand it.
pub const FORMAT: u32 = 1;

/// What an apply will do: nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`FORMAT`].
    pub format: u32,
    /// The fleet.
    pub fleet: FleetId,
    /// The file it was made from.
    pub file: PathBuf,
    /// One entry for each host, and one for each machine to destroy beside them.
    pub hosts: Vec<HostPlan>,
    /// Machines of the fleet that no block explains and that are left alone.
    pub strays: Vec<Stray>,
    /// Machines remembered here that are gone; an apply forgets them.
    pub forget: Vec<MachineId>,
}

/// What is to be done to one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPlan {
    /// The host.
    pub host: HostName,
    /// Its account.
    pub account: AccountName,
    /// What is to be done.
    pub action: Action,
    /// Why. Shown, never steering.
    pub reason: Reason,
    /// What it does to sessions.
    pub impact: Impact,
    /// Settings that change.
    pub settings: Vec<Setting>,
    /// Settings that wait for the machine's next wake.
    pub pending: Vec<Setting>,
    /// More to know.
    pub notes: Vec<Note>,
    /// The machine there is.
    pub machine: Option<Machine>,
    /// The machine that will be made.
    pub make: Option<MachineSpec>,
    /// What will be done, in this order.
    pub steps: Vec<PlannedStep>,
    /// Who stops the machine if this computer dies.
    pub stopped_by: StoppedBy,
    /// What the entry relies on, for a saved plan.
    pub facts: Vec<Fact>,
}

/// What is to be done to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Nothing.
    None,
    /// Make a machine.
    Create,
    /// Start or resume it.
    Wake,
    /// Change it while it goes on.
    Change,
    /// Stop, change, start.
    ChangeWithRestart,
    /// Destroy it and make another.
    Replace,
    /// Stop it.
    Stop,
    /// Destroy it.
    Destroy,
    /// Something stands in the way.
    Blocked,
    /// Not enough is known.
    Unknown,
}

impl Action {
    /// Whether an apply would do something.
    pub fn is_change(self) -> bool {
        !matches!(self, Self::None | Self::Blocked | Self::Unknown)
    }

    /// Whether a disk is lost, so that `--yes` does not cover it.
    pub fn is_destructive(self) -> bool {
        matches!(self, Self::Replace | Self::Destroy)
    }

    /// Whether a plan with it is no success.
    pub fn is_trouble(self) -> bool {
        matches!(self, Self::Blocked | Self::Unknown)
    }

    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Create => "create",
            Self::Wake => "wake",
            Self::Change => "change",
            Self::ChangeWithRestart => "restart",
            Self::Replace => "replace",
            Self::Stop => "stop",
            Self::Destroy => "destroy",
            Self::Blocked => "blocked",
            Self::Unknown => "unknown",
        }
    }
}

/// What an action does to the sessions on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Impact {
    /// There are none to touch.
    None,
    /// They go on.
    Keeps,
    /// They stand still until a wake.
    Freezes,
    /// They end.
    Ends,
    /// They end, and the disk is lost.
    LosesDisk,
}

/// One thing done to a host's machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum PlannedStep {
    /// Have the image or template at hand.
    Image,
    /// Make the machine.
    Create,
    /// Start or resume it.
    Start,
    /// Install the helper.
    Bootstrap,
    /// Change its size.
    Resize {
        /// The size to have.
        to: Size,
    },
    /// Stop it.
    Stop,
    /// Destroy it.
    Destroy,
}

/// A setting that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its key in `hosts.toml`.
    pub key: String,
    /// What it is.
    pub from: Option<String>,
    /// What it will be.
    pub to: Option<String>,
}

/// Who stops a running machine if this computer dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoppedBy {
    /// It does not run.
    NotRunning,
    /// It is this computer.
    ThisComputer,
    /// A timer in the machine.
    GuestTimer,
    /// The provider, when its lease runs out.
    Lease,
    /// Nobody.
    Nobody,
}

/// A machine of the fleet that is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stray {
    /// Its account.
    pub account: AccountName,
    /// What the provider calls it.
    pub name: String,
    /// The machine; `None` where its mark does not read.
    pub machine: Option<Machine>,
    /// Why it is left alone.
    pub why: String,
}

/// One thing that a saved plan relies on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is about.
    pub about: String,
    /// What was seen.
    pub value: String,
}

/// Something to know beside the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "note")]
pub enum Note {
    /// The mark and the file differ about protection.
    ProtectedAtBirth {
        /// What the mark says.
        mark: bool,
    },
    /// `--force` ends work.
    EndsWork {
        /// The working sessions.
        sessions: Vec<String>,
    },
    /// `--force` goes on although the sessions cannot be read.
    EndsUnread,
    /// It stops when idle only while the keeper runs.
    IdleStopNeedsKeeper {
        /// After how long.
        after: Span,
    },
    /// The image has to be fetched first.
    FetchesImage,
    /// A block without a machine is beside it in the file: it may be this host's, renamed.
    PerhapsRenamed {
        /// That block.
        block: HostName,
    },
    /// Its block wants another name of the machine than it was made with.
    KeepsName {
        /// The name that the provider has.
        name: String,
    },
    /// It keeps the machine of its old name.
    Renamed {
        /// That name.
        was: HostName,
    },
}

/// Why an action was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "because")]
pub enum Reason {
    /// It runs, as wanted.
    Running,
    /// It is stopped, as wanted.
    StoppedAsWanted,
    /// It is paused, which is as good as stopped.
    PausedAsWanted,
    /// `power = "off"`, and there is no machine.
    OffNotMade,
    /// No machine exists yet.
    NotMade,
    /// This computer saw its machine, and now it is gone though nobody here destroyed it.
    Lost {
        /// The machine.
        id: MachineId,
        /// When it was last seen somewhere new.
        seen: Timestamp,
    },
    /// The block says something else than the machine.
    Differs,
    /// Its set-up was never completed.
    SetUpUnfinished,
    /// `power = "on"`.
    PowerOn,
    /// `power = "off"`.
    PowerOff,
    /// A person asked for it.
    Asked,
    /// Its block was removed from the file.
    BlockRemoved,
    /// `--destroy` counts it.
    Counted,
    /// Another machine of the host is the one in use.
    Duplicate {
        /// That one.
        used: MachineId,
    },
    /// It carries the mark of another machine: somebody copied that one.
    Copy {
        /// The original.
        of: MachineId,
    },
    /// The file or the mark protects it.
    Protected {
        /// The mark does, so removing the block is not enough.
        at_birth: bool,
        /// What was to be done.
        wanted: Action,
    },
    /// Sessions work on it.
    Working {
        /// Their names.
        sessions: Vec<String>,
        /// What was to be done.
        wanted: Action,
    },
    /// It runs, and its sessions cannot be read.
    Unreadable {
        /// Why not.
        cause: String,
        /// What was to be done.
        wanted: Action,
    },
    /// It is paused, and a session worked when it was last seen, or none ever was read.
    PausedUnread {
        /// What was to be done.
        wanted: Action,
    },
    /// Its name belongs to somebody else's machine.
    NameTaken {
        /// The name.
        name: String,
        /// Whose it is.
        by: Option<FleetId>,
    },
    /// It was last seen at another engine, folder or team under the same account.
    OtherIdentity {
        /// Where it was seen.
        was: String,
        /// What the account is now.
        now: String,
    },
    /// Several machines, and nothing says which is in use.
    Ambiguous {
        /// The machines.
        ids: Vec<MachineId>,
    },
    /// No helper is at hand for its processor.
    NoHelper {
        /// The processor.
        architecture: Architecture,
        /// Those that there is a helper for.
        have: Vec<Architecture>,
    },
    /// It cannot be made there.
    NotUsable(Unknown),
    /// It is on its way to another state.
    Busy {
        /// Which.
        what: String,
    },
    /// It neither runs nor can be started.
    Broken {
        /// Why.
        why: String,
    },
    /// The account did not answer.
    NoAnswer(Unknown),
    /// The account answered, but not about a machine seen before.
    Unsure {
        /// The machine.
        id: MachineId,
    },
    /// It was last seen at an account that did not answer.
    Elsewhere {
        /// That account.
        account: AccountName,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::StoppedAsWanted => f.write_str("stopped, as wanted"),
            Self::PausedAsWanted => f.write_str("paused, as good as stopped"),
            Self::OffNotMade => f.write_str("power is \"off\": nothing is made"),
            Self::NotMade => f.write_str("no machine exists yet"),
            Self::Lost { id, .. } => {
                write!(f, "its machine {} is LOST: gone, and not destroyed from here", id.short())
            }
            Self::Differs => f.write_str("the file says so"),
            Self::SetUpUnfinished => f.write_str("its set-up was never completed"),
            Self::PowerOn => f.write_str("power is \"on\""),
            Self::PowerOff => f.write_str("power is \"off\""),
            Self::Asked => f.write_str("you asked for it"),
            Self::BlockRemoved => f.write_str("its block was removed from the file"),
            Self::Counted => f.write_str("no block explains it, and --destroy counts it"),
            Self::Duplicate { used } => {
                write!(f, "a second machine of this host; {} is the one in use", used.short())
            }
            Self::Copy { of } => {
                write!(f, "somebody's copy of machine {}; it is left to them", of.short())
            }
            Self::Protected { at_birth: false, wanted } => {
                write!(f, "cannot {}: `protect = true`", wanted.word())
            }
            Self::Protected { at_birth: true, wanted } => {
                write!(f, "cannot {}: it was made with `protect = true`", wanted.word())
            }
            Self::Working { sessions, wanted } => {
                write!(f, "cannot {}: {} working", wanted.word(), sessions_words(sessions))
            }
            Self::Unreadable { cause, wanted } => {
                write!(f, "cannot {}: its sessions cannot be read ({cause})", wanted.word())
            }
            Self::PausedUnread { wanted } => {
                write!(f, "cannot {}: it is paused, and work may be frozen in it", wanted.word())
            }
            Self::NameTaken { name, by: Some(fleet) } => {
                write!(f, "the name {name} belongs to a machine of fleet {fleet}")
            }
            Self::NameTaken { name, by: None } => {
                write!(f, "the name {name} belongs to a machine that simstim did not make")
            }
            Self::OtherIdentity { was, now } => write!(f, "last seen at {was}, not at {now}"),
            Self::Ambiguous { ids } => {
                let ids: Vec<&str> = ids.iter().map(MachineId::short).collect();
                write!(f, "its machines {}: nothing says which is in use", ids.join(" and "))
            }
            Self::NoHelper { architecture, .. } => {
                write!(f, "this simstim has no helper for {architecture} machines")
            }
            Self::NotUsable(unknown) | Self::NoAnswer(unknown) => f.write_str(&unknown.cause),
            Self::Busy { what } => write!(f, "it is {what}"),
            Self::Broken { why } => write!(f, "it is broken: {why}"),
            Self::Unsure { id } => {
                write!(f, "its provider does not say what became of machine {}", id.short())
            }
            Self::Elsewhere { account } => {
                write!(f, "last seen at account {account}, which did not answer")
            }
        }
    }
}

fn sessions_words(names: &[String]) -> String {
    match names {
        [one] => format!("session {one} is"),
        many => format!("sessions {} are", many.join(", ")),
    }
}

impl Plan {
    /// Keeps only what starts, stops or finishes one host's machine, or says why that cannot be.
    pub fn only_power_of(&mut self, host: &HostName) {
        let power = |entry: &HostPlan| match entry.action {
            Action::ChangeWithRestart | Action::Replace | Action::Destroy => false,
            Action::Change => entry.reason == Reason::SetUpUnfinished,
            _ => true,
        };
        self.hosts.retain(|entry| entry.host == *host && power(entry));
        self.strays.clear();
        self.forget.clear();
    }

    /// Entries with an action of `kind`.
    pub fn count(&self, kind: impl Fn(Action) -> bool) -> usize {
        self.hosts.iter().filter(|host| kind(host.action)).count()
    }

    /// Whether an apply would do something.
    pub fn has_changes(&self) -> bool {
        self.count(Action::is_change) > 0
    }

    /// Whether something is blocked or unknown.
    pub fn has_trouble(&self) -> bool {
        self.count(Action::is_trouble) > 0
    }

    /// How many disks an apply would lose.
    pub fn destructive(&self) -> usize {
        self.count(Action::is_destructive)
    }
}

impl HostPlan {
    /// What to type about what stands in the way of this entry.
    pub fn hints(&self) -> Vec<String> {
        let host = &self.host;
        match &self.reason {
            Reason::NoAnswer(unknown) | Reason::NotUsable(unknown) => unknown.hints.clone(),
            Reason::NoHelper { architecture, .. } => architecture.helper_hints(),
            Reason::NameTaken { .. } => {
                let name = "another-name";
                vec![
                    format!("[host.machine]  name = \"{name}\"    # in the block of {host}"),
                    format!("simstim host create {} {host} --machine-name {name}", self.account),
                ]
            }
            Reason::OtherIdentity { .. } => {
                vec![format!(
                    "simstim plan {host} --here    # if it is meant to be here from now on"
                )]
            }
            Reason::Working { .. } | Reason::Unreadable { .. } | Reason::PausedUnread { .. } => {
                vec!["the same with --force    # ends work".into()]
            }
            Reason::Ambiguous { .. } => vec!["remove all but one of them at their provider".into()],
            Reason::Protected { at_birth: true, .. } => {
                vec![format!("simstim host destroy {host} --unprotect")]
            }
            Reason::Protected { at_birth: false, .. } => {
                vec![format!("remove `protect` from the block of {host}")]
            }
            Reason::Broken { .. } => vec![format!("simstim host destroy {host} && simstim apply")],
            Reason::Busy { .. } | Reason::Unsure { .. } => {
                vec!["simstim plan    # again, in a moment".into()]
            }
            _ => Vec::new(),
        }
    }
}
