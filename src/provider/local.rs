//! The provider `local`, to try things: a machine is a private folder on this computer and the
//! processes that carry its nonce in their environment. It isolates nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process};

use super::{ErrorKind, Kind, Progress, Provider, ProviderError};
use crate::config::Account;
use crate::files::{self, Folders};
use crate::model::{
    Abilities, AccountName, Architecture, FleetId, KeySpec, KindSpec, Limit, Listing, Machine,
    MachineId, MachineSpec, MachineState, Mark, Question, Size, Survey,
};
use crate::transport::{ChildTransport, Transport};

/// The variable that says whose a process is. It is inherited, and stop looks for it.
const OWNER: &str = "SIMSTIM_MACHINE";

/// The variable that tells its helper one start of a machine from the next.
const RUN: &str = "SIMSTIM_RUN";

/// What a machine's processes see of this computer's environment. No credential is among it.
const PASSED_ON: [&str; 9] =
    ["PATH", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ"];

/// The file that makes a folder a machine.
const MARK: &str = "mark.json";

/// A create takes milliseconds; a draft this old is nobody's.
const DRAFT_KEPT: Duration = Duration::from_secs(3600);

/// How long processes have to leave after SIGTERM before they are killed.
const GRACE: Duration = Duration::from_secs(5);

/// The kind `local`.
#[derive(Debug, Clone, Copy)]
pub struct LocalKind;

impl Kind for LocalKind {
    fn spec(&self) -> KindSpec {
        KindSpec {
            kind: "local",
            doc: "A private folder and its processes on this computer; no isolation.",
            abilities: Abilities {
                runs_here: true,
                limit: Limit { at_once: 8, reason: "each step is short work of this computer" },
                ..Abilities::PLAIN
            },
            machine_keys: &[KeySpec::MACHINE_NAME],
            account_keys: &[],
        }
    }

    fn open(&self, name: &AccountName, _: &Account, folders: &Folders) -> Arc<dyn Provider> {
        Arc::new(Local { account: name.clone(), root: folders.data.join("local") })
    }
}

#[derive(Debug)]
struct Local {
    account: AccountName,
    root: PathBuf,
}

fn io_error(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> ProviderError {
    let text = format!("cannot {doing} {}", path.display());
    move |error| {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::Denied
            }
            _ => ErrorKind::NotNow,
        };
        ProviderError::new(kind, text).detail(error.to_string())
    }
}

fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().into()
}

/// Differs after each start of a machine; begins with the boot that it is of.
fn run_id() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}.{}", boot_id(), now.as_nanos())
}

/// The id of a machine: the beginning of its nonce and its folder's name, so that a folder of the
/// same name made later is another machine.
fn id_of(name: &str, mark: &Mark) -> Option<MachineId> {
    let nonce = mark.nonce.as_str();
    MachineId::new(format!("{}.{name}", nonce.get(..12).unwrap_or(nonce))).ok()
}

impl Local {
    fn fleet_folder(&self, fleet: &FleetId) -> PathBuf {
        self.root.join(fleet.as_str())
    }

    fn folder(&self, machine: &Machine) -> PathBuf {
        self.fleet_folder(&machine.mark.fleet).join(&machine.name)
    }

    /// The machine in a folder; `None` where the folder is not one, an error where its mark is
    /// not.
    fn read(&self, folder: &Path) -> Option<Result<Machine, String>> {
        let name = folder.file_name()?.to_str()?.to_owned();
        let is_folder = fs::symlink_metadata(folder).is_ok_and(|data| data.is_dir());
        let is_empty = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
        if name.starts_with('.') || !is_folder || is_empty() {
            return None;
        }
        Some(self.read_mark(folder, &name))
    }

    fn read_mark(&self, folder: &Path, name: &str) -> Result<Machine, String> {
        let path = folder.join(MARK);
        let bytes = files::read_bounded(&path, 64 << 10).map_err(|error| error.to_string())?;
        let labels: BTreeMap<String, String> =
            serde_json::from_slice(&bytes).map_err(|error| format!("its mark: {error}"))?;
        let mark = Mark::from_labels(|key| labels.get(key).map(String::as_str))
            .map_err(|error| error.to_string())?;
        let state = match fs::read_to_string(folder.join("running")) {
            Ok(run) if run.split('.').next() == Some(&boot_id()) => MachineState::Running,
            Ok(_) => MachineState::Stopped,
            Err(_) if folder.join("started").exists() => MachineState::Stopped,
            Err(_) => MachineState::Created,
        };
        let id = id_of(name, &mark).ok_or("its name is no name of a machine")?;
        let architecture = Some(Architecture::new(std::env::consts::ARCH));
        Ok(Machine { architecture, ..Machine::new(&self.account, id, name, mark, state) })
    }

    /// The machine as it is now, or what to say where it is another one or none.
    fn again(&self, machine: &Machine) -> Result<Option<Machine>, ProviderError> {
        let folder = self.folder(machine);
        match self.read(&folder) {
            Some(Ok(found)) if found.mark.nonce == machine.mark.nonce => Ok(Some(found)),
            // No folder, or an empty one: nothing of the machine is left.
            None if !folder.is_symlink() => Ok(None),
            _ => Err(ProviderError::new(
                ErrorKind::Refused,
                format!("{} is not the folder of this machine any more", folder.display()),
            )),
        }
    }

    /// Ends every process of a machine, politely first.
    async fn end_processes(&self, machine: &Machine) -> Result<(), ProviderError> {
        let begun = tokio::time::Instant::now();
        loop {
            let processes = processes_of(machine.mark.nonce.as_str());
            if processes.is_empty() {
                return Ok(());
            }
            let waited = begun.elapsed();
            if waited > 2 * GRACE {
                return Err(ProviderError::new(
                    ErrorKind::NotNow,
                    format!("{} processes of the machine do not end", processes.len()),
                ));
            }
            for pid in processes {
                let signal = if waited < GRACE { Signal::TERM } else { Signal::KILL };
                let _ = kill_process(pid, signal);
                let _ = kill_process(pid, Signal::CONT);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// The processes of this user that carry a machine's nonce.
fn processes_of(nonce: &str) -> Vec<Pid> {
    let entry = format!("{OWNER}={nonce}");
    let carries = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|line| line == entry.as_bytes())
    };
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok());
    let pids = pids.filter(|pid: &i32| u32::try_from(*pid) != Ok(std::process::id()));
    pids.filter(carries).filter_map(Pid::from_raw).collect()
}

#[async_trait]
impl Provider for Local {
    fn identity(&self) -> String {
        self.root.display().to_string()
    }

    async fn check(&self) -> Result<(), ProviderError> {
        if !cfg!(target_os = "linux") {
            return Err(ProviderError::new(ErrorKind::Denied, "`local` machines need Linux")
                .hint("use another provider, such as `docker`"));
        }
        files::private_folder(&self.root).map_err(|error| {
            let detail = std::error::Error::source(&error).map(ToString::to_string);
            ProviderError::new(ErrorKind::Denied, error.to_string())
                .detail(detail.unwrap_or_default())
        })
    }

    async fn list(&self, question: &Question) -> Result<Listing, ProviderError> {
        let mut listing = Listing { identity: self.identity(), ..Listing::default() };
        if let Some(fleet) = &question.fleet {
            let folder = self.fleet_folder(fleet);
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries.collect::<Result<Vec<_>, _>>(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                Err(error) => Err(error),
            };
            for entry in entries.map_err(io_error("list", &folder))? {
                match self.read(&entry.path()) {
                    None => {}
                    Some(Ok(machine)) => listing.machines.push(machine),
                    Some(Err(why)) => {
                        let name = entry.file_name().to_string_lossy().into_owned();
                        listing.unreadable.insert(name, why);
                    }
                }
            }
            listing.machines.sort_by(|a, b| a.name.cmp(&b.name));
        }
        for name in listing.unreadable.keys().filter(|name| question.names.contains(*name)) {
            listing.taken.insert(name.clone(), None);
        }
        // A folder whose mark does not read may be the machine that is asked for.
        let spoiled = |id: &MachineId| {
            let name = id.as_str().split_once('.').map_or("", |(_, name)| name);
            listing.unreadable.contains_key(name)
        };
        let there = |id: &MachineId| {
            listing.machines.iter().any(|machine| machine.id == *id) || spoiled(id)
        };
        listing.gone = question.known.iter().filter(|id| !there(id)).cloned().collect();
        Ok(listing)
    }

    async fn get(&self, machine: &Machine) -> Result<Option<Machine>, ProviderError> {
        match self.read(&self.folder(machine)) {
            None => Ok(None),
            Some(Ok(found)) => Ok(Some(found).filter(|found| found.id == machine.id)),
            Some(Err(why)) => {
                let text = format!("the mark of machine {} does not read: {why}", machine.name);
                Err(ProviderError::new(ErrorKind::Nonsense, text))
            }
        }
    }

    async fn survey(&self, _: &MachineSpec) -> Result<Survey, ProviderError> {
        self.check().await?;
        Ok(Survey::this_computer())
    }

    async fn image(&self, _: &MachineSpec, _: Progress<'_>) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn create(&self, spec: &MachineSpec, mark: &Mark) -> Result<MachineId, ProviderError> {
        let fleet = self.fleet_folder(&spec.fleet);
        files::private_folder(&fleet)
            .map_err(|error| ProviderError::new(ErrorKind::Denied, error.to_string()))?;
        sweep(&fleet);
        // Complete under a name that no list shows, then renamed: it is never seen without a mark.
        let draft = fleet.join(format!(".new-{}", mark.nonce));
        let target = fleet.join(&spec.name);
        let make = || {
            fs::DirBuilder::new().mode(0o700).create(&draft)?;
            fs::DirBuilder::new().mode(0o700).create(draft.join("home"))?;
            fs::write(draft.join(MARK), mark.to_json())?;
            fs::rename(&draft, &target)
        };
        make().map_err(|error| {
            let _ = fs::remove_dir_all(&draft);
            if target.exists() {
                let text = format!("{} exists already", target.display());
                return ProviderError::new(ErrorKind::Taken, text);
            }
            io_error("create", &target)(error)
        })?;
        id_of(&spec.name, mark)
            .ok_or_else(|| ProviderError::new(ErrorKind::Refused, "the name is no machine's"))
    }

    async fn start(&self, machine: &Machine) -> Result<(), ProviderError> {
        if self.again(machine)?.is_none() {
            return Err(gone());
        }
        let folder = self.folder(machine);
        fs::write(folder.join("started"), "")
            .and_then(|()| fs::write(folder.join("running"), run_id()))
            .map_err(io_error("write in", &folder))
    }

    async fn stop(&self, machine: &Machine) -> Result<(), ProviderError> {
        if self.again(machine)?.is_none() {
            return Err(gone());
        }
        let path = self.folder(machine).join("running");
        // Not running first: a client that comes now starts it again instead of being killed.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("remove", &path)(error));
            }
            _ => {}
        }
        self.end_processes(machine).await
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), ProviderError> {
        let Some(found) = self.again(machine)? else { return Ok(()) };
        self.end_processes(&found).await?;
        let folder = self.folder(&found);
        remove_machine(&folder).map_err(io_error("remove", &folder))
    }

    async fn resize(&self, _: &Machine, _: &Size) -> Result<(), ProviderError> {
        Err(ProviderError::new(ErrorKind::Refused, "`local` machines have no size"))
    }

    fn transport(&self, machine: &Machine) -> Arc<dyn Transport> {
        let home = self.folder(machine).join("home");
        let passed =
            PASSED_ON.iter().filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)));
        let mut env: Vec<(String, OsString)> = passed.collect();
        env.push(("HOME".into(), home.clone().into()));
        env.push((OWNER.into(), machine.mark.nonce.as_str().into()));
        if let Ok(run) = fs::read_to_string(self.folder(machine).join("running")) {
            env.push((RUN.into(), run.into()));
        }
        Arc::new(ChildTransport { prefix: Vec::new(), env: Some(env), directory: Some(home) })
    }
}

/// Removes a machine's folder, its mark last: cut off anywhere, the next list still shows it.
/// Follows no link: what a link points to stays.
fn remove_machine(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == MARK {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(folder.join(MARK))?;
    // An empty folder is no machine any more, and a create may take its place.
    fs::remove_dir(folder)?;
    // The fleet's folder goes with its last machine; others in it keep it.
    let _ = folder.parent().map(fs::remove_dir);
    Ok(())
}

/// Removes what creates that were cut off left long ago.
fn sweep(fleet: &Path) {
    let old = |path: &Path| {
        let modified = fs::symlink_metadata(path).and_then(|data| data.modified()).ok();
        modified.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > DRAFT_KEPT)
    };
    for entry in fs::read_dir(fleet).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(".new-") && old(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn gone() -> ProviderError {
    ProviderError::new(ErrorKind::Gone, "the machine does not exist any more")
}
