//! Carries out a plan, and nothing but the plan.
//!
//! [`executor`] is one loop over the graph of steps; [`step`] says of each kind what it does, its
//! deadline and what a second run finds; [`event`] is what anyone may watch. Nothing here prints.

mod event;
mod executor;
mod step;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc;

pub use event::{Event, Label};
pub use executor::{Failure, Outcome, apply};
pub use step::StepError;

use crate::files::FileError;
use crate::history::{self, IntentLog};
use crate::model::AccountName;
use crate::model::Timestamp;
use crate::observe::World;

/// Everything that steps share.
pub struct Context {
    /// Providers and the door to helpers.
    pub world: World,
    /// This computer's memory of the fleet.
    pub log: Mutex<IntentLog>,
    /// Where the locks of hosts lie.
    pub locks: PathBuf,
    /// What holds the locks, for others to read.
    pub holder: String,
    /// The maker in new marks.
    pub maker: String,
    /// Steps at once, over all accounts.
    pub parallelism: usize,
    /// Steps at once for each account.
    pub limits: BTreeMap<AccountName, usize>,
    /// A person agreed that work ends.
    pub force: bool,
    /// Tells the time.
    pub clock: fn() -> Timestamp,
    /// Gives random bytes.
    pub random: fn() -> [u8; 16],
    /// Who watches. Nobody need.
    pub events: mpsc::UnboundedSender<Event>,
}

impl Context {
    fn record(&self, event: history::Event) -> Result<(), FileError> {
        self.log().record(event)
    }

    /// The log. No lock is held across an await.
    pub fn log(&self) -> MutexGuard<'_, IntentLog> {
        // A panic elsewhere leaves the log as it was: every record is whole.
        self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

/// A shared [`Context`].
pub type Shared = Arc<Context>;
