//! One computer, one fleet, any provider.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use super::Faults;
use crate::apply::{self, Event, Outcome};
use crate::config::{self, Config};
use crate::files::Folders;
use crate::helper_client::Door;
use crate::history::{self, IntentLog};
use crate::model::{Architecture, FleetId, Listing, Question, Timestamp};
use crate::observe::{World, observe, settle};
use crate::plan::{AccountFact, Observed, Plan, Policy};
use crate::provider::{Kinds, ProviderError};
use crate::stop::Stop;

/// The clock of a stage stands still.
pub const NOW: Timestamp = Timestamp(1_800_000_000);

/// Bytes that differ at each call.
fn counted() -> [u8; 16] {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&CALLS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    bytes
}

/// Everything that an apply needs, without a terminal.
#[derive(Clone)]
pub struct Stage {
    /// The kinds that a text may name.
    pub kinds: Kinds,
    /// The door to helpers.
    pub door: Arc<dyn Door>,
    /// What goes wrong with the provider's calls, where its kind was wrapped so.
    pub faults: Faults,
    /// This computer's folders.
    pub folders: Folders,
    /// The file's path, as plans and the memory name it.
    pub file: PathBuf,
    /// The fleet of every text.
    pub fleet: FleetId,
    /// The account that hosts of the kit are at, by the name of its kind.
    pub provider: String,
}

impl Stage {
    /// Reads a text.
    ///
    /// # Panics
    /// If the text has problems.
    pub fn config(&self, text: &str) -> Config {
        config::read(text, &self.kinds.catalog())
            .unwrap_or_else(|problems| panic!("the text has problems: {problems:?}"))
    }

    /// The text's configuration, in which the account of [`Self::provider`] outlives its hosts.
    fn full_config(&self, text: &str) -> Config {
        let mut config = self.config(text);
        let probe = format!("[[host]]\nname = \"x\"\nprovider = \"{}\"\n", self.provider);
        for (name, account) in self.config(&probe).accounts {
            config.accounts.entry(name).or_insert(account);
        }
        config
    }

    fn world(&self, config: &Config) -> World {
        World {
            providers: self.kinds.open(&config.accounts, &self.folders),
            door: Arc::clone(&self.door),
            helpers: [Architecture::new(std::env::consts::ARCH)].into(),
        }
    }

    /// This computer's memory.
    ///
    /// # Panics
    /// If the state folder does not read.
    pub fn log(&self) -> IntentLog {
        IntentLog::open(&self.folders.state, &self.fleet).expect("the state folder reads")
    }

    /// Observes, plans and asks until the plan is complete.
    ///
    /// # Panics
    /// If the state folder takes no bytes.
    pub async fn plan(&self, text: &str, policy: &Policy) -> (Plan, Observed) {
        let world = self.world(&self.full_config(text));
        let config = self.config(text);
        let mut log = self.log();
        let history = log.history().clone();
        let only = policy.only.as_ref();
        let mut observed = observe(&config, &self.fleet, &self.file, &history, only, &world).await;
        let plan = settle(&config, &self.fleet, &mut observed, policy, &world).await;
        for listing in observed.accounts.values().filter_map(AccountFact::seen) {
            for machine in &listing.machines {
                let event = history::Event::Seen {
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

    /// Carries out a plan of a text; gives what it told, too.
    pub async fn apply_plan(&self, text: &str, plan: &Plan, stop: &Stop) -> (Outcome, Vec<Event>) {
        let config = self.full_config(text);
        let (events, mut receiver) = mpsc::unbounded_channel();
        let limits = config.accounts.iter();
        let limits: BTreeMap<_, _> =
            limits.map(|(name, account)| (name.clone(), account.abilities.limit.at_once)).collect();
        let context = Arc::new(apply::Context {
            world: self.world(&config),
            log: Mutex::new(self.log()),
            locks: self.folders.state.join("locks"),
            holder: "stage".into(),
            maker: "stage".into(),
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
        (outcome, told)
    }

    /// Everything that the account of [`Self::provider`] has of the fleet.
    ///
    /// # Panics
    /// If that account is not one of a kind of this stage.
    pub async fn listing(&self) -> Result<Listing, ProviderError> {
        let world = self.world(&self.full_config(""));
        let provider = world.providers.values().next().expect("the account of the stage");
        let question = Question { fleet: Some(self.fleet.clone()), ..Question::default() };
        provider.list(&question).await
    }
}
