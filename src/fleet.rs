//! The library's face: a fleet that is opened from its file, planned and applied. The command line
//! does nothing to hosts that this does not offer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::apply::{self, Event, Outcome};
use crate::config::{Account, Config, File, Host, Trust};
use crate::deeds::{self, Deed};
use crate::files::{FileError, Folders, Lock};
use crate::helper_client::{
    Bridge, Door, HelperDoor, HelperError, Helpers, Purpose, bootstrap, connect,
};
use crate::history::{self, IntentLog};
use crate::model::{
    AccountName, FleetId, HostName, IdleVerdict, Machine, MachineState, Mark, Span, Timestamp,
    busiest,
};
use crate::observe::{World, observe, settle};
use crate::plan::{
    AccountFact, HostPlan, Observed, Plan, Policy, SessionsFact, StepKind, graph, plan,
};
use crate::provider::{Kinds, Provider};
use crate::stop::Stop;
use crate::transport::Transport;

/// Steps at once over all accounts, unless told otherwise. More would only queue at the providers.
pub const PARALLELISM: usize = 16;

/// How long somebody else may be editing the file.
const EDIT_PATIENCE: Duration = Duration::from_secs(10);

/// This computer: what every fleet opened here shares.
pub struct Computer {
    /// simstim's folders.
    pub folders: Folders,
    /// The kinds of providers.
    pub kinds: Kinds,
    /// The helpers at hand.
    pub helpers: Helpers,
    /// User and computer, for marks.
    pub maker: String,
}

/// Why a fleet could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The file names no fleet, so nothing could be marked.
    #[error("{path} names no fleet", path = path.display())]
    NoFleet {
        /// The file.
        path: PathBuf,
        /// The line to add.
        line: String,
    },
    /// The file comes from a project folder and names commands or addresses that nobody has seen.
    #[error("{path} names what needs your word first: {}", .keys.join(", "), path = path.display())]
    NotTrusted {
        /// The file.
        path: PathBuf,
        /// The settings.
        keys: Vec<String>,
    },
    /// This computer's own files.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a host's machine could not be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no such host in the file.
    #[error("there is no host `{0}` in the file")]
    NoHost(HostName),
    /// It has no machine.
    #[error("{host}: {why}")]
    NoMachine {
        /// The host.
        host: HostName,
        /// Why, as a plan would say it.
        why: String,
    },
    /// The plan says what is in the way.
    #[error("{host}: {why}")]
    NotUsable {
        /// The host.
        host: HostName,
        /// The reason in words.
        why: String,
        /// What to type about it.
        hints: Vec<String>,
    },
    /// It does not run, and looking wakes nothing.
    #[error("{host} is {state}")]
    NotRunning {
        /// The host.
        host: HostName,
        /// What its machine is instead.
        state: String,
    },
    /// `power = "off"`.
    #[error("{0} is stopped, and its block says `power = \"off\"`")]
    Off(HostName),
    /// It could not be woken.
    #[error("{host} could not be woken: {why}")]
    NotWoken {
        /// The host.
        host: HostName,
        /// Why.
        why: String,
        /// What to type about it.
        hints: Vec<String>,
    },
    /// The helper.
    #[error("{host}: {error}")]
    Helper {
        /// The host.
        host: HostName,
        /// Why; its text is part of this one's.
        error: HelperError,
    },
}

/// How to apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Steps at once.
    pub parallelism: usize,
    /// A person agreed that work ends.
    pub force: bool,
    /// The command, as others see it in locks.
    pub holder: String,
    /// Why it is done, where the plan does not know better.
    pub why: Option<String>,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self { parallelism: PARALLELISM, force: false, holder: "simstim".into(), why: None }
    }
}

/// An opened fleet.
pub struct Fleet {
    /// Its id.
    pub id: FleetId,
    /// The canonical path of its file.
    pub path: PathBuf,
    world: World,
    helpers: Helpers,
    /// The file's accounts, and those remembered that need no settings to be reached.
    accounts: BTreeMap<AccountName, Account>,
    folder: PathBuf,
    maker: String,
    /// Taken out while an apply owns it.
    log: Mutex<IntentLog>,
}

impl Computer {
    /// Opens the fleet of a file, with accounts as `config` says (the file's own configuration, or
    /// one that an edit is about to make of it). Asks nobody.
    pub fn open(&self, file: &File, config: &Config, own: bool) -> Result<Fleet, FleetError> {
        let path = std::fs::canonicalize(&file.path).unwrap_or_else(|_| file.path.clone());
        let Some(id) = config.fleet.clone() else {
            let id = FleetId::from_random(random());
            return Err(FleetError::NoFleet { path, line: format!("fleet = \"{id}\"") });
        };
        if !own && !Trust::open(&self.folders.state).covers(&path, &config.needs_trust) {
            let keys = config.needs_trust.iter().map(|need| format!("`{}`", need.key)).collect();
            return Err(FleetError::NotTrusted { path, keys });
        }
        let log = IntentLog::open(&self.folders.state, &id)?;
        let mut accounts = self.accounts(config, &log);
        self.resolve_commands(&mut accounts, &path);
        let world = World {
            providers: self.kinds.open(&accounts, &self.folders),
            door: Arc::new(HelperDoor { helpers: self.helpers.clone() }) as Arc<dyn Door>,
            helpers: World::helpers_of(&self.helpers),
        };
        let folder = self.folders.state.join("fleets").join(id.as_str());
        let (helpers, maker) = (self.helpers.clone(), self.maker.clone());
        Ok(Fleet { id, path, world, helpers, accounts, folder, maker, log: Mutex::new(log) })
    }

    /// The accounts of the file, and those remembered that need no settings to be reached.
    fn accounts(&self, config: &Config, log: &IntentLog) -> BTreeMap<AccountName, Account> {
        let mut accounts = config.accounts.clone();
        let catalog = self.kinds.catalog();
        for machine in log.history().machines.values() {
            let spec = catalog.iter().find(|spec| spec.kind == machine.account.as_str());
            if let (Some(spec), false) = (spec, accounts.contains_key(&machine.account)) {
                let defaults = spec
                    .account_keys
                    .iter()
                    .filter_map(|key| Some((key.name.to_owned(), key.default?.to_owned())));
                accounts.insert(
                    machine.account.clone(),
                    Account {
                        kind: spec.kind.into(),
                        settings: defaults.collect(),
                        abilities: spec.abilities.clone(),
                    },
                );
            }
        }
        accounts
    }

    /// A relative path in a command is meant from the file's folder, wherever simstim runs.
    fn resolve_commands(&self, accounts: &mut BTreeMap<AccountName, Account>, file: &Path) {
        let catalog = self.kinds.catalog();
        let folder = file.parent().unwrap_or(Path::new("/"));
        for account in accounts.values_mut() {
            let spec = catalog.iter().find(|spec| spec.kind == account.kind);
            let commands =
                spec.into_iter().flat_map(|spec| spec.account_keys).filter(|k| k.is_command);
            for key in commands {
                let Some(value) = account.settings.get_mut(key.name) else { continue };
                let words = serde_json::from_str::<Vec<String>>(value);
                let Ok([program, rest @ ..]) = words.as_deref() else { continue };
                if program.contains('/') {
                    let program = folder.join(program).display().to_string();
                    let words: Vec<&String> = std::iter::once(&program).chain(rest).collect();
                    *value = serde_json::to_string(&words).expect("words print");
                }
            }
        }
    }

    /// Takes the lock for editing a file. It dies with its process.
    pub async fn lock_edit(&self, path: &Path) -> Result<Lock, FileError> {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let name = path.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let tail = &name[name.len().saturating_sub(120)..];
        let lock = self.folders.state.join("locks").join(format!("edit{tail}.lock"));
        Lock::take(&lock, "simstim, editing the file,", EDIT_PATIENCE).await
    }
}

/// What an apply did to each host of its plan.
fn deeds_of(plan: &Plan, outcome: &Outcome, options: &ApplyOptions) -> Vec<Deed> {
    let error = |host: &HostName| {
        let failed = |failure: &&apply::Failure| {
            failure.label.host.as_ref().is_none_or(|failed| failed == host)
        };
        let failure = outcome.failures.iter().find(failed);
        let cut_off = outcome.stopped.then(|| "it was cut off".to_owned());
        failure.map(|failure| failure.error.to_string()).or(cut_off)
    };
    let changes = plan.hosts.iter().filter(|entry| entry.action.is_change());
    let deed = |entry: &HostPlan| Deed {
        at: Timestamp::now(),
        host: entry.host.clone(),
        action: entry.action.word().into(),
        why: options.why.clone().unwrap_or_else(|| entry.reason.to_string()),
        by: options.holder.clone(),
        error: error(&entry.host),
    };
    changes.map(deed).collect()
}

/// Random bytes of the system.
///
/// # Panics
/// If the system has none, on which nothing of ours could be built.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    bytes
}

impl Fleet {
    /// Asks all accounts that matter and plans. Wakes and changes nothing.
    pub async fn plan(&self, config: &Config, policy: &Policy) -> (Plan, Observed) {
        let mut observed = self.observe(config, policy).await;
        let config = &self.with_accounts(config);
        let plan = settle(config, &self.id, &mut observed, policy, &self.world).await;
        self.remember_sessions(&observed);
        (plan, observed)
    }

    /// The plan without asking anybody more: good for showing, provisional for doing.
    pub fn glance(&self, config: &Config, observed: &Observed, policy: &Policy) -> Plan {
        plan(&self.with_accounts(config), &self.id, observed, policy).0
    }

    /// A configuration that also knows the accounts of machines whose last block is gone.
    fn with_accounts(&self, config: &Config) -> Config {
        let mut config = config.clone();
        for (name, account) in &self.accounts {
            config.accounts.entry(name.clone()).or_insert_with(|| account.clone());
        }
        config
    }

    /// Keeps the busiest state of each machine whose sessions were read: it is what speaks for the
    /// machine once it is stopped or paused.
    fn remember_sessions(&self, observed: &Observed) {
        let mut log = self.log();
        for (id, fact) in &observed.sessions {
            if let SessionsFact::Read(sessions) = fact {
                let (id, busiest, at) = (id.clone(), busiest(sessions), Timestamp::now());
                let _ = log.record(history::Event::Sessions { id, busiest, at });
            }
        }
    }

    /// Asks all accounts that matter, in a fixed number of calls each, and remembers what was seen.
    pub async fn observe(&self, config: &Config, policy: &Policy) -> Observed {
        let history = self.log().history().clone();
        let only = policy.only.as_ref();
        let observed = observe(config, &self.id, &self.path, &history, only, &self.world).await;
        self.remember(config, &observed);
        observed
    }

    /// Writes down every id seen and where. A plan is as good without; the next one tries again.
    fn remember(&self, config: &Config, observed: &Observed) {
        let mut log = self.log();
        let seen = observed.accounts.values().filter_map(AccountFact::seen);
        for (identity, machine) in
            seen.flat_map(|listing| listing.machines.iter().map(|m| (&listing.identity, m)))
        {
            let renamed = config.hosts.iter().find(|host| {
                host.name != machine.mark.host && host.was.as_ref() == Some(&machine.mark.host)
            });
            let _ = log.record(history::Event::Seen {
                id: machine.id.clone(),
                host: renamed.map_or(&machine.mark.host, |host| &host.name).clone(),
                account: machine.account.clone(),
                identity: identity.clone(),
                at: Timestamp::now(),
            });
        }
    }

    /// Carries out a plan.
    pub async fn apply(
        &self,
        plan: &Plan,
        options: &ApplyOptions,
        events: mpsc::UnboundedSender<Event>,
        stop: &Stop,
    ) -> Result<Outcome, FileError> {
        let log = IntentLog::open(&self.state(), &self.id)?;
        let context = Arc::new(apply::Context {
            world: self.world.clone(),
            log: Mutex::new(log),
            locks: self.folder.join("locks"),
            holder: options.holder.clone(),
            maker: self.maker.clone(),
            parallelism: options.parallelism,
            limits: self
                .accounts
                .iter()
                .map(|(name, account)| (name.clone(), account.abilities.limit.at_once))
                .collect(),
            force: options.force,
            clock: Timestamp::now,
            random,
            events,
        });
        let outcome = apply::apply(plan, &context, stop).await;
        *self.log() = IntentLog::open(&self.state(), &self.id)?;
        // For people only: what was done is done, whether it can be written down or not.
        let _ = deeds::record(&self.folder, &deeds_of(plan, &outcome, options));
        Ok(outcome)
    }

    /// What was done to hosts from this computer, the oldest first.
    pub fn deeds(&self) -> Result<Vec<Deed>, FileError> {
        deeds::read(&self.folder)
    }

    /// Whether a keeper of the fleet runs on this computer.
    pub fn is_kept(&self) -> bool {
        // Where nothing was ever written, nobody keeps.
        self.folder.exists() && matches!(self.lock_keeper(), Err(FileError::Locked { .. }))
    }

    /// Opens a bridge to a host's machine for a person's command: wakes it, and brings the helper
    /// up to date.
    pub async fn connect(
        &self,
        config: &Config,
        name: &HostName,
        purpose: Purpose,
        events: mpsc::UnboundedSender<Event>,
        stop: &Stop,
    ) -> Result<Bridge, ConnectError> {
        let host = config.host(name).ok_or_else(|| ConnectError::NoHost(name.clone()))?;
        let machine = self.awake(config, host, events.clone(), stop).await?;
        let provider = self.provider(&machine)?;
        let transport = provider.transport(&machine);
        let bridge = self.bridge(&*transport, &machine.mark, purpose).await;
        let bridge = bridge.map_err(|error| ConnectError::Helper { host: name.clone(), error })?;
        self.note_use(machine, bridge.hello.epoch, &events);
        Ok(bridge)
    }

    /// Remembers that a machine was used, and tells where its disk is older than it was then.
    fn note_use(&self, machine: Machine, epoch: u64, events: &mpsc::UnboundedSender<Event>) {
        let mut log = self.log();
        let seen = log.history().machines.get(&machine.id).map_or(0, |known| known.epoch);
        if epoch < seen {
            let host = machine.mark.host;
            let _ = events.send(Event::WentBack { host, seen, boots: epoch });
        }
        let _ = log.record(history::Event::Booted { id: machine.id.clone(), epoch });
        let _ = log.record(history::Event::Used { id: machine.id });
    }

    /// A bridge for a person's command; the helper is installed first where it is missing.
    async fn bridge(
        &self,
        transport: &dyn Transport,
        mark: &Mark,
        purpose: Purpose,
    ) -> Result<Bridge, HelperError> {
        match connect(transport, mark, &self.helpers, purpose).await {
            Err(HelperError::NotInstalled) => {
                bootstrap(transport, mark, &self.helpers, false).await?;
                connect(transport, mark, &self.helpers, purpose).await
            }
            other => other,
        }
    }

    /// Opens a bridge that only looks: it wakes nothing and holds nothing awake.
    ///
    /// # Errors
    /// [`ConnectError::NotRunning`] where there is nothing to look at.
    pub async fn look(&self, config: &Config, name: &HostName) -> Result<Bridge, ConnectError> {
        self.reach(&self.glance_at(config, name).await?, Purpose::Look).await
    }

    /// Opens a bridge for an attachment whose connection broke: it wakes nothing, as it may be the
    /// end of a machine that broke it.
    ///
    /// # Errors
    /// [`ConnectError::NotRunning`] where somebody has to ask for the machine first.
    pub async fn again(&self, config: &Config, name: &HostName) -> Result<Bridge, ConnectError> {
        self.reach(&self.glance_at(config, name).await?, Purpose::Attach).await
    }

    /// Opens a looking bridge to the machine of a plan's entry.
    pub async fn look_at(&self, entry: &HostPlan) -> Result<Bridge, ConnectError> {
        self.reach(entry, Purpose::Look).await
    }

    async fn glance_at(&self, config: &Config, name: &HostName) -> Result<HostPlan, ConnectError> {
        let only = Some(BTreeSet::from([name.clone()]));
        let policy = Policy { only, power_only: true, ..Policy::default() };
        let observed = self.observe(config, &policy).await;
        let plan = self.glance(config, &observed, &policy);
        let entry = plan.hosts.into_iter().find(|entry| entry.host == *name);
        entry.ok_or_else(|| ConnectError::NoHost(name.clone()))
    }

    /// A bridge to a machine that runs.
    async fn reach(&self, entry: &HostPlan, purpose: Purpose) -> Result<Bridge, ConnectError> {
        let name = entry.host.clone();
        let Some(machine) = &entry.machine else {
            if entry.action.is_trouble() {
                let (why, hints) = (entry.reason.to_string(), entry.hints());
                return Err(ConnectError::NotUsable { host: name, why, hints });
            }
            return Err(ConnectError::NoMachine { host: name, why: entry.reason.to_string() });
        };
        if machine.state != MachineState::Running {
            let state = machine.state.word().into();
            return Err(ConnectError::NotRunning { host: name, state });
        }
        let transport = self.provider(machine)?.transport(machine);
        let bridge = match purpose {
            Purpose::Look => connect(&*transport, &machine.mark, &self.helpers, purpose).await,
            _ => self.bridge(&*transport, &machine.mark, purpose).await,
        };
        bridge.map_err(|error| ConnectError::Helper { host: name, error })
    }

    /// The machine of a host, running.
    async fn awake(
        &self,
        config: &Config,
        host: &Host,
        events: mpsc::UnboundedSender<Event>,
        stop: &Stop,
    ) -> Result<Machine, ConnectError> {
        let only = Some(BTreeSet::from([host.name.clone()]));
        let policy = Policy { only, wake: true, power_only: true, ..Policy::default() };
        let (mut plan, _) = self.plan(config, &policy).await;
        plan.only_power_of(&host.name);
        let entry = plan.hosts.first();
        let Some(entry) = entry else { return Err(ConnectError::NoHost(host.name.clone())) };
        let name = host.name.clone();
        if entry.action.is_trouble() {
            let (why, hints) = (entry.reason.to_string(), entry.hints());
            return Err(ConnectError::NotUsable { host: name, why, hints });
        }
        let Some(machine) = &entry.machine else {
            return Err(ConnectError::NoMachine { host: name, why: entry.reason.to_string() });
        };
        if entry.action.is_change() {
            let not_woken =
                |why: String, hints| ConnectError::NotWoken { host: name.clone(), why, hints };
            let options = ApplyOptions::default();
            let outcome = self.apply(&plan, &options, events, stop).await;
            let outcome = outcome.map_err(|error| not_woken(error.to_string(), Vec::new()))?;
            if let Some(failure) = outcome.failures.first() {
                return Err(not_woken(failure.error.to_string(), failure.error.hints()));
            }
        } else if machine.state != MachineState::Running {
            return Err(ConnectError::Off(name));
        }
        Ok(machine.clone())
    }

    fn provider(&self, machine: &Machine) -> Result<&Arc<dyn Provider>, ConnectError> {
        self.world.providers.get(&machine.account).ok_or_else(|| {
            let why = "its account was not opened".into();
            ConnectError::NotUsable { host: machine.mark.host.clone(), why, hints: Vec::new() }
        })
    }

    /// Asks the helper of a running machine whether it is idle long enough to stop.
    pub async fn verdict(
        &self,
        machine: &Machine,
        idle_stop: Span,
        interval: Span,
    ) -> Result<IdleVerdict, HelperError> {
        let provider = self.world.providers.get(&machine.account);
        let provider =
            provider.ok_or_else(|| HelperError::Lost("its account was not opened".into()))?;
        let account = self.accounts.get(&machine.account);
        let ends = !account.is_some_and(|account| account.abilities.stop_freezes);
        self.world.door.verdict(&**provider, machine, idle_stop, interval, ends).await
    }

    /// Becomes the fleet's only keeper on this computer, or says who is.
    pub fn lock_keeper(&self) -> Result<Lock, FileError> {
        Lock::try_take(&self.folder.join("keeper.lock"), "simstim apply --watch")
    }

    /// What an apply of this plan installs on machines: helper version and bytes at most.
    pub fn installs(&self, plan: &Plan) -> Option<usize> {
        let graph = graph(plan);
        let bootstraps = (0..graph.len())
            .any(|number| matches!(graph.step(number).kind, StepKind::Bootstrap(_)));
        let sizes = self.helpers.architectures().into_iter().filter_map(|architecture| {
            self.helpers.program(&architecture).map(|program| program.len())
        });
        if bootstraps { sizes.max() } else { None }
    }

    fn state(&self) -> PathBuf {
        let state = self.folder.ancestors().nth(2);
        state.expect("the folder lies in the state folder").to_owned()
    }

    fn log(&self) -> std::sync::MutexGuard<'_, IntentLog> {
        self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
