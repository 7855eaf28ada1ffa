//! What was seen before planning. "Unknown" is a value here, never an absence.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::model::{
    AccountName, Architecture, HostName, Listing, MachineId, SessionFact, Survey, Timestamp,
};

/// Everything that a plan relies on beside the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// The canonical path of the file.
    pub file: PathBuf,
    /// What each account answered.
    pub accounts: BTreeMap<AccountName, AccountFact>,
    /// The sessions of machines that were asked.
    pub sessions: BTreeMap<MachineId, SessionsFact>,
    /// What was found out for hosts that would be created.
    pub surveys: BTreeMap<HostName, SurveyFact>,
    /// Architectures that a helper is at hand for.
    pub helpers: BTreeSet<Architecture>,
    /// What this computer remembers.
    pub history: History,
}

/// What an account answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountFact {
    /// Everything, authoritatively.
    Seen(Listing),
    /// Nothing that could be relied upon.
    Unknown(Unknown),
}

/// Why something is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// What went wrong.
    pub cause: String,
    /// What to type about it.
    pub hints: Vec<String>,
    /// When the account last answered this computer.
    pub last_seen: Option<Timestamp>,
}

/// What a running machine said of its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionsFact {
    /// All of them.
    Read(Vec<SessionFact>),
    /// No helper was ever installed, so there is none.
    NoHelper,
    /// It runs and does not answer.
    Unreadable(String),
}

/// What was found out for a create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SurveyFact {
    /// It can be made.
    Usable(Survey),
    /// It cannot.
    NotUsable(Unknown),
}

/// What must be asked before a plan is complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asks {
    /// Running machines whose sessions matter.
    pub sessions: BTreeSet<(AccountName, MachineId)>,
    /// Hosts that would be created.
    pub surveys: BTreeSet<HostName>,
}

impl Asks {
    /// Whether nothing is open.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.surveys.is_empty()
    }
}
