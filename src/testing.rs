//! A fleet on the in-memory provider: the whole path from a text to an applied plan, without
//! processes, network or clocks. For tests of simstim, and of providers built on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use crate::apply::{self, Event, Outcome};
use crate::config::{self, Config};
use crate::files::Folders;
use crate::helper_client::Door;
use crate::history::IntentLog;
use crate::model::{Architecture, FleetId, KindSpec, Timestamp};
use crate::observe::{World, observe, settle};
use crate::plan::{Observed, Plan, Policy};
use crate::provider::{Kind, Kinds};
use crate::stop::Stop;

pub use crate::provider::memory::{Cloud, Fault, MemoryDoor, MemoryKind, Verb};

/// A fleet, its vendor and this computer's memory of it.
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

/// The clock of a bench stands still.
pub const NOW: Timestamp = Timestamp(1_800_000_000);

/// Bytes that differ at each call and are the same in each run of one process's first calls.
fn counted() -> [u8; 16] {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&CALLS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    bytes
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

    /// The kinds that a text may name: `memory` alone.
    pub fn catalog(&self) -> Vec<KindSpec> {
        vec![self.kind.spec()]
    }

    /// Reads a text.
    ///
    /// # Panics
    /// If the text has problems.
    pub fn config(&self, text: &str) -> Config {
        config::read(text, &self.catalog())
            .unwrap_or_else(|problems| panic!("the text has problems: {problems:?}"))
    }

    fn world(&self, config: &Config) -> World {
        let folders = Folders {
            state: self.state.clone(),
            data: self.state.clone(),
            config: self.state.clone(),
        };
        let mut accounts = config.accounts.clone();
        // A vendor whose last host left the file is still asked.
        let everything = self.config("[[host]]\nname = \"x\"\nprovider = \"memory\"\n").accounts;
        accounts.extend(everything);
        World {
            providers: Kinds::default().with(self.kind.clone()).open(&accounts, &folders),
            door: Arc::new(self.door.clone()) as Arc<dyn Door>,
            helpers: [Architecture::new(std::env::consts::ARCH)].into(),
        }
    }

    /// This computer's memory.
    ///
    /// # Panics
    /// If the state folder does not read.
    pub fn log(&self) -> IntentLog {
        IntentLog::open(&self.state, &Self::fleet()).expect("the state folder reads")
    }

    /// Observes, plans and asks until the plan is complete.
    pub async fn plan(&self, text: &str, policy: &Policy) -> (Plan, Observed) {
        let config = self.config(text);
        let world = self.world(&config);
        let mut log = self.log();
        let history = log.history().clone();
        let only = policy.only.as_ref();
        let fleet = Self::fleet();
        let mut observed = observe(&config, &fleet, &self.file, &history, only, &world).await;
        let plan = settle(&config, &fleet, &mut observed, policy, &world).await;
        for listing in observed.accounts.values().filter_map(|fact| fact.seen()) {
            for machine in &listing.machines {
                let event = crate::history::Event::Seen {
                    id: machine.id.clone(),
                    host: machine.mark.host.clone(),
                    account: machine.account.clone(),
                    identity: listing.identity.clone(),
                    at: NOW,
                };
                log.record(event).expect("the state folder takes bytes");
            }
        }
        (plan, observed)
    }

    /// Carries out a plan of a text.
    pub async fn apply_plan(&self, text: &str, plan: &Plan, stop: &Stop) -> Outcome {
        let config = self.config(text);
        let (events, mut receiver) = mpsc::unbounded_channel();
        let limits = config.accounts.iter();
        let limits: BTreeMap<_, _> =
            limits.map(|(name, account)| (name.clone(), account.abilities.limit.at_once)).collect();
        let context = Arc::new(apply::Context {
            world: self.world(&config),
            log: Mutex::new(self.log()),
            locks: self.state.join("locks"),
            holder: "bench".into(),
            maker: "bench".into(),
            parallelism: 8,
            limits,
            force: false,
            clock: || NOW,
            random: counted,
            events,
        });
        let outcome = apply::apply(plan, &context, stop).await;
        drop(context);
        let mut told = Vec::new();
        while let Ok(event) = receiver.try_recv() {
            told.push(event);
        }
        *self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = told;
        outcome
    }

    /// Plans and applies a text.
    pub async fn apply(&self, text: &str) -> Outcome {
        let (plan, _) = self.plan(text, &Policy::default()).await;
        self.apply_plan(text, &plan, &Stop::never()).await
    }
}
