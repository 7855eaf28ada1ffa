//! What a provider made for a host, and what was seen of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Timestamp;
use super::{AccountName, Architecture, FleetId, HostName, MachineId, NameError, Nonce, Size};

/// The labels written once, at birth. Every value is made of `[A-Za-z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The fleet that the machine belongs to.
    pub fleet: FleetId,
    /// The host that it was made for.
    pub host: HostName,
    /// Differs for each machine ever made.
    pub nonce: Nonce,
    /// When it was made, by the maker's clock.
    pub made_at: Timestamp,
    /// The user and computer that made it.
    pub maker: String,
    /// Whether it was protected at birth.
    pub protected: bool,
    /// Digest of what only a replace can change.
    pub digest: String,
}

/// Why labels are no mark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    /// A label is missing.
    #[error("its label `{0}` is missing")]
    Missing(&'static str),
    /// A label has a value that no mark has.
    #[error("its label `{key}` is not one of ours")]
    Value {
        /// The label.
        key: &'static str,
        /// What is wrong with the value.
        #[source]
        source: NameError,
    },
    /// A number is none.
    #[error("its label `{0}` is not a number")]
    Number(&'static str),
}

impl Mark {
    /// The mark as labels: a short key and a value each.
    pub fn labels(&self) -> [(&'static str, String); 7] {
        [
            ("fleet", self.fleet.to_string()),
            ("host", self.host.to_string()),
            ("nonce", self.nonce.to_string()),
            ("made-at", self.made_at.0.to_string()),
            ("maker", self.maker.clone()),
            ("protected", self.protected.to_string()),
            ("digest", self.digest.clone()),
        ]
    }

    /// The labels as one JSON object, for providers that keep marks in files.
    pub fn to_json(&self) -> String {
        let labels: BTreeMap<&str, String> = self.labels().into_iter().collect();
        serde_json::to_string(&labels).expect("labels are texts")
    }

    /// Reads [`Self::to_json`] back; `None` where it is no mark.
    pub fn from_json(json: &str) -> Option<Self> {
        let labels: BTreeMap<String, String> = serde_json::from_str(json).ok()?;
        Self::from_labels(|key| labels.get(key).map(String::as_str)).ok()
    }

    /// Reads labels back. `get` gives the value of a key of [`Self::labels`].
    pub fn from_labels<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<Self, MarkError> {
        let text = |key: &'static str| get(key).ok_or(MarkError::Missing(key));
        let value = |key: &'static str| move |source| MarkError::Value { key, source };
        let made_at = text("made-at")?.parse().map_err(|_| MarkError::Number("made-at"))?;
        Ok(Self {
            fleet: FleetId::new(text("fleet")?).map_err(value("fleet"))?,
            host: HostName::new(text("host")?).map_err(value("host"))?,
            nonce: Nonce::new(text("nonce")?).map_err(value("nonce"))?,
            made_at: Timestamp(made_at),
            maker: super::printable(text("maker")?).chars().take(128).collect(),
            protected: text("protected")? == "true",
            digest: super::printable(text("digest")?).chars().take(128).collect(),
        })
    }
}

/// What a machine does, in words that hold for every provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "why")]
pub enum MachineState {
    /// Made, but never started.
    Created,
    /// Up.
    Running,
    /// Its memory is kept, its processes do not run.
    Paused,
    /// Down; its disk is kept.
    Stopped,
    /// On its way to another state; the text says which.
    Busy(String),
    /// Neither up nor able to start; the text says why.
    Broken(String),
}

impl MachineState {
    /// One word for people.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Busy(_) => "busy",
            Self::Broken(_) => "broken",
        }
    }
}

/// A machine of our fleet, as its provider reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The account it was seen at.
    pub account: AccountName,
    /// The provider's id.
    pub id: MachineId,
    /// The provider's name for it, for people.
    pub name: String,
    /// Its mark.
    pub mark: Mark,
    /// What it does.
    pub state: MachineState,
    /// What it has; `None` where the provider does not say or sets no bound.
    pub size: Size,
    /// Settings of `[host.machine]` that the provider reports, by key.
    pub settings: BTreeMap<String, String>,
    /// Its processor, where known.
    pub architecture: Option<Architecture>,
}

impl Machine {
    /// A machine of which its provider says no more than this.
    pub fn new(
        account: &AccountName,
        id: MachineId,
        name: &str,
        mark: Mark,
        state: MachineState,
    ) -> Self {
        Self {
            account: account.clone(),
            id,
            name: name.into(),
            mark,
            state,
            size: Size::default(),
            settings: BTreeMap::new(),
            architecture: None,
        }
    }
}

/// A session's state, the busiest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Must not be ended or frozen.
    Working,
    /// Waits for its person.
    Waiting,
    /// Does nothing.
    Quiet,
    /// Is over.
    Ended,
}

/// One session, as the helper reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFact {
    /// Its name on the machine.
    pub name: String,
    /// Its state.
    pub state: SessionState,
    /// Why it is in that state.
    pub evidence: String,
    /// Its program and arguments.
    #[serde(default)]
    pub command: String,
    /// Process id of its program on the machine, while it runs.
    #[serde(default)]
    pub pid: Option<u32>,
    /// When it started, by the machine's clock.
    #[serde(default)]
    pub started_at: Timestamp,
    /// When it ended, by the machine's clock.
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// The exit code of its program.
    #[serde(default)]
    pub code: Option<i32>,
    /// The signal that killed its program.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Terminals that show it now.
    #[serde(default)]
    pub attached: u32,
}

impl SessionFact {
    /// A session of which only this much is known.
    pub fn new(name: &str, state: SessionState, evidence: &str) -> Self {
        Self {
            name: name.into(),
            state,
            evidence: evidence.into(),
            command: String::new(),
            pid: None,
            started_at: Timestamp(0),
            ended_at: None,
            code: None,
            signal: None,
            attached: 0,
        }
    }
}

/// What keeps a running machine awake, as its helper sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wakefulness {
    /// Everything that does, or could.
    pub sources: Vec<WakeSource>,
    /// How long nothing has worked, in seconds; `None` where nobody counts, or something works.
    pub idle_for: Option<u64>,
    /// What was decided lately, the last one last.
    pub decisions: Vec<WakeDecision>,
}

/// Something that keeps a machine awake, or could.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeSource {
    /// Such as `session build`.
    pub what: String,
    /// It keeps the machine awake now.
    pub keeps: bool,
    /// The evidence, with its last sign of life.
    pub why: String,
}

/// Something that was decided about stopping a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeDecision {
    /// When, by the machine's clock.
    pub at: Timestamp,
    /// What, and on which evidence.
    pub what: String,
}

/// What a machine's helper says about stopping it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleVerdict {
    /// It may be stopped.
    pub stop: bool,
    /// Why, or what keeps it awake.
    pub why: String,
    /// How long nothing has worked, in seconds.
    pub idle_for: u64,
}

/// The busiest of some sessions, which is what a stopped machine is remembered by.
pub fn busiest(sessions: &[SessionFact]) -> Option<SessionState> {
    sessions.iter().map(|session| session.state).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_from_its_labels() {
        let mark = Mark {
            fleet: FleetId::new("f").unwrap(),
            host: HostName::new("dev").unwrap(),
            nonce: Nonce::from_random([3; 16]),
            made_at: Timestamp(1_796_000_000),
            maker: "me-laptop".into(),
            protected: true,
            digest: "abc".into(),
        };
        let labels = BTreeMap::from(mark.labels());
        let read = Mark::from_labels(|key| labels.get(key).map(String::as_str));
        assert_eq!(read.as_ref(), Ok(&mark));
        assert_eq!(Mark::from_json(&mark.to_json()), Some(mark));
        assert_eq!(Mark::from_json("{}"), None);
        assert_eq!(Mark::from_labels(|_| None), Err(MarkError::Missing("made-at")));
    }
}
