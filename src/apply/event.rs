//! What happens during an apply, for whoever draws, logs or counts it.

use std::time::Duration;

use serde::Serialize;

use crate::model::{AccountName, HostName};

/// Which step an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Label {
    /// Its number in the graph.
    pub step: usize,
    /// How many steps there are.
    pub of: usize,
    /// Its host; none for a step that hosts share.
    pub host: Option<HostName>,
    /// Its account.
    pub account: AccountName,
    /// What it does, in one word.
    pub what: &'static str,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// A step began.
    Started {
        /// Which.
        #[serde(flatten)]
        label: Label,
    },
    /// A slow step says what it is at.
    Progress {
        /// Which.
        #[serde(flatten)]
        label: Label,
        /// In a few words.
        text: String,
    },
    /// A step is done.
    Finished {
        /// Which.
        #[serde(flatten)]
        label: Label,
        /// How long it took.
        #[serde(serialize_with = "milliseconds", rename = "took_ms")]
        took: Duration,
    },
    /// A step failed.
    Failed {
        /// Which.
        #[serde(flatten)]
        label: Label,
        /// Why.
        error: String,
        /// What to type about it.
        hints: Vec<String>,
    },
    /// A step was not begun, because one that it needs failed or a stop was asked for.
    Skipped {
        /// Which.
        #[serde(flatten)]
        label: Label,
    },
    /// A stop was asked for: nothing new begins.
    Stopping,
    /// A machine's disk is older than it was: a snapshot was put in its place.
    WentBack {
        /// Its host.
        host: HostName,
        /// The boots that the disk had seen when this computer last used it.
        seen: u64,
        /// The boots that it has seen now.
        boots: u64,
    },
    /// A machine that this apply was still making is removed again.
    Undoing {
        /// Its host.
        host: HostName,
    },
}

fn milliseconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
}
