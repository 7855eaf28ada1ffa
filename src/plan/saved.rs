//! A plan on disk, with everything it relies on.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{FORMAT, HostPlan, Plan};
use crate::files::{self, FileError};

/// The most bytes of a saved plan: 10,000 hosts and more.
const MOST_BYTES: u64 = 64 << 20;

/// A plan as `plan --out` writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPlan {
    /// Digest of what the file said.
    pub config_digest: String,
    /// The plan.
    pub plan: Plan,
}

/// Why a saved plan cannot be applied. Nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum SavedPlanError {
    /// It could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is no plan.
    #[error("{path} is not a plan that simstim saved")]
    NotAPlan {
        /// Which file.
        path: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
    /// It is from a version that means something else by it.
    #[error("the plan has format {0}, this simstim reads {FORMAT}")]
    Format(u32),
    /// `hosts.toml` says something else by now.
    #[error("{0} was changed since the plan was made")]
    Config(String),
    /// Something that the plan relies on is different by now.
    #[error("{host}: {about} was `{was}` when the plan was made, and is `{now}` now")]
    Fact {
        /// The host.
        host: String,
        /// What it is about.
        about: String,
        /// What it was.
        was: String,
        /// What it is.
        now: String,
    },
    /// The same facts lead to something else: the plan is from another version.
    #[error("{0}: the plan would be different now")]
    Other(String),
}

impl SavedPlan {
    /// Reads a plan.
    pub fn read(path: &Path) -> Result<Self, SavedPlanError> {
        Self::parse(&files::read_bounded(path, MOST_BYTES)?, path)
    }

    /// Reads a plan from bytes; `path` is for messages.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, SavedPlanError> {
        let saved: Self = serde_json::from_slice(bytes).map_err(|source| {
            SavedPlanError::NotAPlan { path: path.display().to_string(), source }
        })?;
        if saved.plan.format != FORMAT {
            return Err(SavedPlanError::Format(saved.plan.format));
        }
        Ok(saved)
    }

    /// Writes the plan.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("a plan is plain data");
        bytes.push(b'\n');
        files::replace(path, &bytes, None)
    }

    /// Whether everything is as it was: the same file, the same facts, the same decisions.
    pub fn still_holds(&self, config_digest: &str, now: &Plan) -> Result<(), SavedPlanError> {
        if self.config_digest != config_digest || self.plan.fleet != now.fleet {
            return Err(SavedPlanError::Config(self.plan.file.display().to_string()));
        }
        for old in &self.plan.hosts {
            let same = now
                .hosts
                .iter()
                .find(|new| new.host == old.host && id(new) == id(old) && new.action == old.action);
            let same = same.or_else(|| now.hosts.iter().find(|new| new.host == old.host));
            let Some(new) = same else {
                return Err(SavedPlanError::Other(old.host.to_string()));
            };
            facts_hold(old, new)?;
            if (&new.steps, &new.make, new.action) != (&old.steps, &old.make, old.action) {
                return Err(SavedPlanError::Other(old.host.to_string()));
            }
        }
        let extra = now.hosts.iter().find(|new| {
            new.action.is_change() && !self.plan.hosts.iter().any(|old| old.host == new.host)
        });
        extra.map_or(Ok(()), |new| Err(SavedPlanError::Other(new.host.to_string())))
    }
}

fn id(entry: &HostPlan) -> Option<&str> {
    entry.machine.as_ref().map(|machine| machine.id.as_str())
}

fn facts_hold(old: &HostPlan, new: &HostPlan) -> Result<(), SavedPlanError> {
    for fact in &old.facts {
        let now = new.facts.iter().find(|now| now.about == fact.about);
        let now = now.map_or("unknown", |now| now.value.as_str());
        if now != fact.value {
            return Err(SavedPlanError::Fact {
                host: old.host.to_string(),
                about: fact.about.clone(),
                was: fact.value.clone(),
                now: now.into(),
            });
        }
    }
    Ok(())
}
