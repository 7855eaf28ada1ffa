//! What `inspect` says of containers. Bytes of an engine, so nothing in them is trusted.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::LABEL;
use crate::model::{AccountName, Bytes, Machine, MachineId, MachineState, Mark, Size, printable};
use crate::provider::{ErrorKind, ProviderError};

/// The part of a container's description that matters here.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Container {
    id: String,
    name: String,
    state: State,
    config: Config,
    host_config: HostConfig,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    status: String,
    #[serde(default)]
    error: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    #[serde(default)]
    image: String,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    #[serde(default)]
    nano_cpus: u64,
    #[serde(default)]
    memory: u64,
}

/// Reads the answer of `inspect`.
pub(super) fn parse(output: &[u8]) -> Result<Vec<Container>, ProviderError> {
    serde_json::from_slice(output).map_err(|error| {
        ProviderError::new(ErrorKind::Nonsense, "`inspect` printed something that is no container")
            .detail(error.to_string())
    })
}

impl Container {
    /// The container's own name.
    pub(super) fn name(&self) -> &str {
        self.name.trim_start_matches('/')
    }

    /// The machine that it is, or why its mark does not read.
    pub(super) fn machine(&self, account: &AccountName) -> Result<Machine, String> {
        let labels = self.config.labels.as_ref();
        let label = |key: &str| {
            let value = labels.and_then(|labels| labels.get(&format!("{LABEL}{key}")));
            value.map(String::as_str)
        };
        let mark = Mark::from_labels(label).map_err(|error| error.to_string())?;
        let id = MachineId::new(self.id.clone()).map_err(|error| error.to_string())?;
        Ok(Machine {
            account: account.clone(),
            id,
            name: printable(self.name()),
            mark,
            state: self.state.word(),
            size: self.host_config.size(),
            settings: BTreeMap::from([("image".into(), printable(&self.config.image))]),
            architecture: None,
        })
    }
}

impl State {
    fn word(&self) -> MachineState {
        match self.status.as_str() {
            "created" | "configured" | "initialized" => MachineState::Created,
            "running" => MachineState::Running,
            "paused" => MachineState::Paused,
            "exited" | "stopped" => MachineState::Stopped,
            "restarting" => MachineState::Busy("restarting".into()),
            "removing" => MachineState::Busy("being removed".into()),
            "stopping" => MachineState::Busy("stopping".into()),
            "dead" => {
                let why =
                    if self.error.is_empty() { "its engine calls it dead" } else { &self.error };
                MachineState::Broken(printable(why))
            }
            other => {
                let other: String = printable(other).chars().take(40).collect();
                MachineState::Busy(format!("`{other}`, which is no state that simstim knows"))
            }
        }
    }
}

impl HostConfig {
    fn size(&self) -> Size {
        const NANO: u64 = 1_000_000_000;
        // A part of a cpu, set by hand, is no size of ours: it reads as a difference.
        let whole = self.nano_cpus > 0 && self.nano_cpus.is_multiple_of(NANO);
        Size {
            cpus: whole.then(|| u32::try_from(self.nano_cpus / NANO).unwrap_or(u32::MAX)),
            memory: (self.memory > 0).then_some(Bytes(self.memory)),
            disk: None,
        }
    }
}
