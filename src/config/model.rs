//! What a file says, after presets and defaults are worked in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{Problem, TrustNeed};
use crate::model::{
    Abilities, AccountName, FleetId, HostName, IdleStop, MachineSpec, Power, Size, Span,
};

/// The lease while a session works, where nobody says otherwise.
pub const DEFAULT_BUSY_LEASE: Span = Span(Duration::from_secs(3600));

/// Everything that one `hosts.toml` declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Config {
    /// Marks every machine; `None` until `simstim init` or the first `host create` writes it.
    pub fleet: Option<FleetId>,
    /// Accounts that hosts use, and those that are declared.
    pub accounts: BTreeMap<AccountName, Account>,
    /// Hosts in the order of the file.
    pub hosts: Vec<Host>,
    /// What the file may use only after `simstim trust`.
    #[serde(skip)]
    pub needs_trust: Vec<TrustNeed>,
    /// Worth a word, no error.
    #[serde(skip)]
    pub warnings: Vec<Problem>,
}

/// An account of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Account {
    /// The kind of provider.
    pub kind: String,
    /// Its settings, defaults worked in.
    pub settings: BTreeMap<String, String>,
    /// What its machines can have and do.
    #[serde(skip)]
    pub abilities: Abilities,
}

/// A host, with only those wishes that its provider has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Its name.
    pub name: HostName,
    /// The account that makes its machine.
    pub account: AccountName,
    /// The kind of that account.
    pub kind: String,
    /// The size to have; `None` where the provider has no say.
    pub size: Size,
    /// The size is written in the host's own block, so a replace may follow from it.
    pub size_is_own: bool,
    /// When it stops if idle.
    pub idle_stop: IdleStop,
    /// The lease while a session works.
    pub busy_lease: Span,
    /// What it does with power.
    pub power: Power,
    /// Nothing destroys or replaces it.
    pub protect: bool,
    /// Agents to have on it.
    pub agents: Vec<String>,
    /// Plain variables for its sessions.
    pub env: BTreeMap<String, String>,
    /// The name it had, whose machine it keeps.
    pub was: Option<HostName>,
    /// Settings of `[host.machine]`, defaults worked in.
    pub machine: BTreeMap<String, String>,
    /// Which of them are written in the host's own block.
    pub machine_own: BTreeSet<String>,
    /// Which of them only a replace can change.
    pub machine_fixed: BTreeSet<String>,
}

impl Config {
    /// The host of a name.
    pub fn host(&self, name: &HostName) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == *name)
    }

    /// Digest of everything the file says, whatever its layout: 64 hex digits.
    pub fn digest(&self) -> String {
        let bytes = serde_json::to_vec(self).expect("a configuration is plain data");
        crate::model::hex(&Sha256::digest(&bytes))
    }
}

impl Host {
    /// What its machine is called where machines have names.
    pub fn machine_name(&self) -> String {
        self.machine.get("name").cloned().unwrap_or_else(|| format!("simstim-{}", self.name))
    }

    /// The machine that it is to have.
    pub fn spec(&self, fleet: &FleetId) -> MachineSpec {
        MachineSpec {
            fleet: fleet.clone(),
            host: self.name.clone(),
            account: self.account.clone(),
            name: self.machine_name(),
            size: self.size,
            settings: self.machine.clone(),
            protected: self.protect,
            digest: self.fixed_digest(),
        }
    }

    /// Digest of what only a replace can change: 16 hex digits.
    pub fn fixed_digest(&self) -> String {
        let mut hasher = Sha256::new();
        let fixed = self.machine.iter().filter(|(key, _)| self.machine_fixed.contains(*key));
        for text in fixed.flat_map(|(key, value)| [key, value]) {
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text);
        }
        crate::model::hex(&hasher.finalize()[..8])
    }
}
