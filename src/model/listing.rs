//! What one account answered, and what a new machine is to be.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{AccountName, Architecture, FleetId, HostName, Machine, MachineId, Size};

/// What is asked of an account in one go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// The fleet; `None` lists nothing but what `known` and `names` ask for.
    pub fleet: Option<FleetId>,
    /// Machines seen before, each of which must come back as a machine or as gone.
    pub known: BTreeSet<MachineId>,
    /// Names that hosts want, where names are unique.
    pub names: BTreeSet<String>,
}

/// One account's whole and authoritative answer. A provider that cannot give one gives an error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Which engine, folder or team this account is right now.
    pub identity: String,
    /// Every machine of the fleet.
    pub machines: Vec<Machine>,
    /// Those of [`Question::known`] that are surely not there.
    pub gone: BTreeSet<MachineId>,
    /// Those of [`Question::names`] that a machine of somebody else has, and whose fleet it is of.
    pub taken: BTreeMap<String, Option<FleetId>>,
    /// Machines with our fleet's label whose mark does not read: name and reason.
    pub unreadable: BTreeMap<String, String>,
}

/// What a machine is to be: everything but nonce, time and maker of its mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSpec {
    /// The fleet of its mark.
    pub fleet: FleetId,
    /// The host of its mark.
    pub host: HostName,
    /// The account that makes it.
    pub account: AccountName,
    /// Its name where machines have names.
    pub name: String,
    /// Its size.
    pub size: Size,
    /// Settings of `[host.machine]`, defaults worked in.
    pub settings: BTreeMap<String, String>,
    /// Protected at birth.
    pub protected: bool,
    /// Digest of what only a replace can change.
    pub digest: String,
}

/// What was found out before a create, without making anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// The processor that the machine will have, where known.
    pub architecture: Option<Architecture>,
    /// Its image or template is there already.
    pub image_present: bool,
}

impl Survey {
    /// A machine that is this computer: nothing has to be fetched.
    pub fn this_computer() -> Self {
        let architecture = Some(Architecture::new(std::env::consts::ARCH));
        Self { architecture, image_present: true }
    }
}
