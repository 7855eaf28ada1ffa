//! For tests of simstim, and of providers built on it: the whole path from a text to an applied plan
//! without a terminal.
//!
//! A [`Stage`] does it with any kind of provider, a [`Bench`] with the in-memory one, without
//! processes, network or clocks. [`check_provider`] fails, repeats and cuts off every step of a
//! provider and says what was left wrong.

mod kit;
pub mod outside;
mod stage;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::apply::{Event, Outcome};
use crate::files::Folders;
use crate::history::IntentLog;
use crate::model::FleetId;
use crate::plan::{Observed, Plan, Policy};
use crate::provider::Kinds;
use crate::stop::Stop;

pub use self::kit::{KitReport, check_provider};
pub use self::stage::{NOW, Stage};
pub use crate::provider::faults::{Fault, Faults, FaultyKind, Verb};
pub use crate::provider::memory::{Cloud, MemoryDoor, MemoryKind};

/// A fleet on the in-memory provider, its vendor and this computer's memory of it.
pub struct Bench {
    /// The vendor.
    pub cloud: Cloud,
    /// The helpers.
    pub door: MemoryDoor,
    /// The kind in front of the vendor; its abilities may be changed.
    pub kind: MemoryKind,
    /// Where this computer keeps its memory.
    pub state: PathBuf,
    /// The file's path, as plans and the memory name it.
    pub file: PathBuf,
    /// The events of the last apply.
    pub events: Mutex<Vec<Event>>,
}

impl Bench {
    /// A new vendor, and a computer that keeps its memory below `state`.
    pub fn new(state: &Path) -> Self {
        let cloud = Cloud::default();
        cloud.become_other("team one");
        Self {
            kind: MemoryKind::new(&cloud),
            cloud,
            door: MemoryDoor::default(),
            state: state.into(),
            file: "/project/hosts.toml".into(),
            events: Mutex::default(),
        }
    }

    /// The fleet that every text of a bench is of.
    ///
    /// # Panics
    /// Never.
    pub fn fleet() -> FleetId {
        FleetId::new("bench").expect("a valid id")
    }

    /// The stage as it is now.
    pub fn stage(&self) -> Stage {
        Stage {
            kinds: Kinds::default().with(self.kind.clone()),
            door: Arc::new(self.door.clone()),
            faults: self.cloud.faults.clone(),
            folders: Folders {
                state: self.state.clone(),
                data: self.state.clone(),
                config: self.state.clone(),
            },
            file: self.file.clone(),
            fleet: Self::fleet(),
            provider: "memory".into(),
        }
    }

    /// This computer's memory.
    pub fn log(&self) -> IntentLog {
        self.stage().log()
    }

    /// Observes, plans and asks until the plan is complete.
    pub async fn plan(&self, text: &str, policy: &Policy) -> (Plan, Observed) {
        self.stage().plan(text, policy).await
    }

    /// Carries out a plan of a text.
    pub async fn apply_plan(&self, text: &str, plan: &Plan, stop: &Stop) -> Outcome {
        let (outcome, events) = self.stage().apply_plan(text, plan, stop).await;
        *self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = events;
        outcome
    }

    /// Plans and applies a text.
    pub async fn apply(&self, text: &str) -> Outcome {
        let (plan, _) = self.plan(text, &Policy::default()).await;
        self.apply_plan(text, &plan, &Stop::never()).await
    }
}
