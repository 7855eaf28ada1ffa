//! A complete provider in one file: a machine is a folder, reached by a child process.
//!
//! ```sh
//! cargo run --example custom_provider -- --file my-hosts.toml apply
//! ```
//!
//! The program is `simstim` with one more kind: `provider = "folder"`.
#![allow(clippy::wildcard_imports, reason = "an example needs most of the words")]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use simstim::config::Account;
use simstim::files::Folders;
use simstim::model::*;
use simstim::provider::{ErrorKind, Kind, Kinds, Progress, Provider, ProviderError};
use simstim::transport::{ChildTransport, Transport};

fn main() -> ExitCode {
    simstim::main_with(Kinds::default().with(FolderKind))
}

/// The kind: what is known before any account is asked.
struct FolderKind;

impl Kind for FolderKind {
    fn spec(&self) -> KindSpec {
        KindSpec {
            kind: "folder",
            doc: "A folder of this computer.",
            abilities: Abilities { runs_here: true, ..Abilities::PLAIN },
            machine_keys: &[],
            account_keys: &[],
        }
    }

    fn open(&self, name: &AccountName, _: &Account, folders: &Folders) -> Arc<dyn Provider> {
        Arc::new(Folder { account: name.clone(), root: folders.data.join("folder-example") })
    }
}

/// An account: where its machines lie.
#[derive(Debug)]
struct Folder {
    account: AccountName,
    root: PathBuf,
}

impl Folder {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Beside the folder: written last, removed last, so what it says is there is whole.
    fn mark(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.mark"))
    }

    /// The machine of a name, if there is a mark for it.
    fn read(&self, name: &str) -> Option<Machine> {
        let mark = Mark::from_json(&fs::read_to_string(self.mark(name)).ok()?)?;
        let up = self.path(name).join("up").exists();
        let state = if up { MachineState::Running } else { MachineState::Stopped };
        let id = MachineId::new(format!("{name}.{}", mark.nonce)).ok()?;
        Some(Machine::new(&self.account, id, name, mark, state))
    }
}

#[async_trait]
impl Provider for Folder {
    fn identity(&self) -> String {
        self.root.display().to_string()
    }

    async fn check(&self) -> Result<(), ProviderError> {
        Ok(fs::create_dir_all(&self.root)?)
    }

    async fn list(&self, question: &Question) -> Result<Listing, ProviderError> {
        let names = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let all =
            names.filter_map(|entry| self.read(entry.file_name().to_str()?.strip_suffix(".mark")?));
        let ours = |machine: &Machine| Some(&machine.mark.fleet) == question.fleet.as_ref();
        let (machines, others): (Vec<_>, Vec<_>) = all.partition(ours);
        let there = |id: &MachineId| machines.iter().any(|machine| machine.id == *id);
        let gone = question.known.iter().filter(|id| !there(id)).cloned().collect();
        let taken = others.into_iter().filter(|machine| question.names.contains(&machine.name));
        let taken = taken.map(|machine| (machine.name, Some(machine.mark.fleet))).collect();
        Ok(Listing { identity: self.identity(), machines, gone, taken, ..Listing::default() })
    }

    async fn get(&self, machine: &Machine) -> Result<Option<Machine>, ProviderError> {
        Ok(self.read(&machine.name).filter(|now| now.id == machine.id))
    }

    async fn survey(&self, _: &MachineSpec) -> Result<Survey, ProviderError> {
        Ok(Survey::this_computer())
    }

    async fn image(&self, _: &MachineSpec, _: Progress<'_>) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn create(&self, spec: &MachineSpec, mark: &Mark) -> Result<MachineId, ProviderError> {
        let draft = self.path(&format!(".new-{}", mark.nonce));
        fs::create_dir_all(self.path(&spec.name))?;
        fs::write(&draft, mark.to_json())?;
        // A link is whole, and fails where the name is taken.
        let linked = fs::hard_link(&draft, self.mark(&spec.name));
        fs::remove_file(&draft)?;
        linked?;
        MachineId::new(format!("{}.{}", spec.name, mark.nonce))
            .map_err(|error| ProviderError::new(ErrorKind::Refused, error.to_string()))
    }

    async fn start(&self, machine: &Machine) -> Result<(), ProviderError> {
        Ok(fs::write(self.path(&machine.name).join("up"), "")?)
    }

    async fn stop(&self, machine: &Machine) -> Result<(), ProviderError> {
        Ok(fs::remove_file(self.path(&machine.name).join("up"))?)
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), ProviderError> {
        match self.get(machine).await? {
            Some(_) => fs::remove_dir_all(self.path(&machine.name))?,
            None => return Ok(()),
        }
        Ok(fs::remove_file(self.mark(&machine.name))?)
    }

    async fn resize(&self, _: &Machine, _: &Size) -> Result<(), ProviderError> {
        Err(ProviderError::new(ErrorKind::Refused, "a folder has no size"))
    }

    fn transport(&self, machine: &Machine) -> Arc<dyn Transport> {
        let home = self.path(&machine.name);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let env = vec![("PATH".into(), path), ("HOME".into(), home.clone().into())];
        Arc::new(ChildTransport { prefix: Vec::new(), env: Some(env), directory: Some(home) })
    }
}
