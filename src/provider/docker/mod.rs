//! The provider `docker`, by the engine's own command line, so that contexts, `DOCKER_HOST`, remote
//! engines and logins work as their user set them up. Podman answers to the same words.
//!
//! Facts about exit codes and texts were tried on Docker 20.10 and 28, and Podman 4.3.

mod cli;
mod inspect;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use self::cli::Cli;
use super::{ErrorKind, Kind, Progress, Provider, ProviderError};
use crate::config::Account;
use crate::files::Folders;
use crate::model::{
    Abilities, AccountName, Architecture, FleetId, IdleStop, IdleStopBy, KeySpec, KindSpec, Limit,
    Listing, Machine, MachineId, MachineSpec, MachineState, Mark, Question, Resize, Size, Survey,
};
use crate::transport::{ChildTransport, Transport};

/// Labels are named after the project, in reverse, as Docker asks.
const LABEL: &str = "io.simstim.";

/// The user that sessions run as.
const USER: &str = "user";

/// A look. The engine answers in well under a second; a remote one may need a connection.
const LOOK: Duration = Duration::from_secs(30);
/// A create, start, update: disk work of the engine.
const ACT: Duration = Duration::from_secs(120);
/// A pull of a large image over a slow line.
const PULL: Duration = Duration::from_secs(30 * 60);

/// Makes sure of the user with a home, by whatever the image has; the last resort is a line in
/// passwd. Runs as root, from stdin, and may run again.
const USER_SCRIPT: &str = r#"set -e
shell=/bin/sh
if [ -x /bin/bash ]; then shell=/bin/bash; fi
if ! grep -q "^user:" /etc/passwd 2>/dev/null; then
  if command -v useradd >/dev/null 2>&1; then useradd -m -s "$shell" user
  elif command -v adduser >/dev/null 2>&1 && adduser -D -s "$shell" user 2>/dev/null; then :
  else
    id=1000
    while grep -q ":x*:$id:" /etc/passwd 2>/dev/null; do id=$((id + 1)); done
    echo "user:x:$id:$id::/home/user:$shell" >>/etc/passwd
    echo "user:x:$id:" >>/etc/group
  fi
fi
home=$(grep "^user:" /etc/passwd | cut -d: -f6)
if [ ! -d "$home" ]; then mkdir -p "$home"; chown user "$home"; fi
"#;

/// The kind `docker`.
#[derive(Debug, Clone, Copy)]
pub struct DockerKind;

const IMAGE: KeySpec = KeySpec {
    name: "image",
    default: Some("debian:stable-slim"),
    values: &[],
    replaces: true,
    is_command: false,
    is_name: false,
    needs_trust: false,
    doc: "The image that the container is made from.",
};

const CONTEXT: KeySpec = KeySpec {
    name: "context",
    default: None,
    values: &[],
    replaces: false,
    is_command: false,
    is_name: false,
    needs_trust: true,
    doc: "The Docker context, or Podman connection, to use instead of the current one.",
};

const CLI: KeySpec = KeySpec {
    name: "cli",
    default: Some("docker"),
    values: &["docker", "podman"],
    replaces: false,
    is_command: false,
    is_name: false,
    needs_trust: false,
    doc: "The command line to talk to.",
};

impl Kind for DockerKind {
    fn spec(&self) -> KindSpec {
        KindSpec {
            kind: "docker",
            doc: "A container of a Docker or Podman engine.",
            abilities: Abilities {
                cpus: true,
                memory: true,
                disk: false,
                resize: Resize::InPlace,
                idle_stop: IdleStopBy::Keeper,
                default_idle_stop: IdleStop::Never,
                stop_freezes: false,
                needs_image: true,
                runs_here: false,
                limit: Limit {
                    at_once: 4,
                    reason: "an engine does its disk and network work mostly one at a time",
                },
            },
            machine_keys: &[IMAGE, KeySpec::MACHINE_NAME],
            account_keys: &[CLI, CONTEXT],
        }
    }

    fn open(&self, name: &AccountName, account: &Account, _: &Folders) -> Arc<dyn Provider> {
        Arc::new(Docker {
            account: name.clone(),
            cli: Cli::new(&account.settings),
            engine: OnceLock::new(),
            images: Mutex::default(),
        })
    }
}

#[derive(Debug)]
struct Docker {
    account: AccountName,
    cli: Cli,
    /// The engine's own id, once it was asked.
    engine: OnceLock<String>,
    /// Images that were there when last asked for. One that vanished since fails its create.
    images: Mutex<BTreeSet<String>>,
}

impl Docker {
    /// The containers of these ids; one that is gone by now is left out.
    async fn inspect(&self, ids: &[String]) -> Result<Vec<inspect::Container>, ProviderError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut words = vec!["inspect", "--type", "container"];
        words.extend(ids.iter().map(String::as_str));
        let ended = self.cli.run(&words, LOOK).await?;
        // Exit 1 with an empty list, or a shorter one: some are gone. Anything else is an error.
        if ended.code != Some(0) && !ended.errors.to_lowercase().contains("no such container") {
            return Err(self.cli.failure("inspect containers", &ended));
        }
        inspect::parse(&ended.output)
    }

    /// The machine of one container, which must be of a fleet of simstim's.
    async fn machine(&self, id: &str) -> Result<Option<Machine>, ProviderError> {
        let found = self.inspect(&[id.to_owned()]).await?;
        let Some(container) = found.first() else { return Ok(None) };
        let machine = container.machine(&self.account).map_err(|why| {
            ProviderError::new(ErrorKind::Refused, format!("container {id} is not ours: {why}"))
        })?;
        Ok(Some(machine))
    }

    /// Runs a verb that changes a machine, after a look that it is still the same one.
    async fn act(
        &self,
        machine: &Machine,
        verb: &str,
        words: &[&str],
        deadline: Duration,
    ) -> Result<(), ProviderError> {
        let ended = self.cli.run(words, deadline).await?;
        if ended.code == Some(0) {
            return Ok(());
        }
        Err(self.cli.failure(&format!("{verb} container {}", machine.name), &ended))
    }

    /// The machine as it is now, if its mark is still the one that was planned for.
    async fn again(&self, machine: &Machine) -> Result<Option<Machine>, ProviderError> {
        let Some(now) = self.machine(machine.id.as_str()).await? else { return Ok(None) };
        if now.mark == machine.mark {
            return Ok(Some(now));
        }
        let text = format!("container {} carries another mark by now", machine.id.short());
        Err(ProviderError::new(ErrorKind::Refused, text))
    }

    fn images(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn running(&self, machine: &Machine) -> Result<(), ProviderError> {
        let mut program =
            self.cli.program(&["exec", "-i", "-u", "root", machine.id.as_str(), "sh"]);
        program.input = Some(USER_SCRIPT.into());
        let ended = self.cli.run_program(&program, ACT).await?;
        if ended.code == Some(0) {
            return Ok(());
        }
        let now = self.machine(machine.id.as_str()).await?;
        let text = match now.map(|now| now.state) {
            None => return Err(gone(machine)),
            Some(MachineState::Running) => {
                let text = format!("cannot set up the user `{USER}` in container {}", machine.name);
                // A start that fails is told on stdout, the script's own words on stderr.
                let said = [ended.errors, String::from_utf8_lossy(&ended.output).trim().to_owned()];
                return Err(ProviderError::new(ErrorKind::Refused, text)
                    .detail(said.join(" ").trim())
                    .hint("use an image with `sh`, `grep`, `cut` and `mkdir`"));
            }
            Some(state) => format!("container {} did not stay up: {}", machine.name, state.word()),
        };
        Err(ProviderError::new(ErrorKind::Refused, text)
            .hint("use an image that has `sleep`")
            .hint(format!("{} logs {}", self.cli.name(), machine.name)))
    }
}

fn gone(machine: &Machine) -> ProviderError {
    let text = format!("container {} does not exist any more", machine.name);
    ProviderError::new(ErrorKind::Gone, text)
}

fn size_words(size: &Size) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(cpus) = size.cpus {
        words.extend(["--cpus".into(), cpus.to_string()]);
    }
    if let Some(memory) = size.memory {
        words.extend(["--memory".into(), memory.0.to_string()]);
        // As much swap as memory, which is the engine's own default; said aloud because an update
        // of the memory alone is refused above the old bound.
        words.extend(["--memory-swap".into(), (memory.0 * 2).to_string()]);
    }
    words
}

#[async_trait]
impl Provider for Docker {
    fn identity(&self) -> String {
        match self.engine.get() {
            Some(engine) => format!("engine {engine}"),
            None => self.cli.identity(),
        }
    }

    async fn check(&self) -> Result<(), ProviderError> {
        if self.engine.get().is_some() {
            // It answered in this very run; every step tells by itself if it is gone since.
            return Ok(());
        }
        let ended = self.cli.run(&["version", "--format", "{{.Server.Version}}"], LOOK).await?;
        if ended.code == Some(0) {
            Ok(())
        } else {
            Err(self.cli.failure("reach the engine", &ended))
        }
    }

    async fn list(&self, question: &Question) -> Result<Listing, ProviderError> {
        let (rows, engine) = tokio::join!(self.cli.list(LABEL), self.cli.engine());
        let rows = rows?;
        if let Some(engine) = engine? {
            let _ = self.engine.set(engine);
        }
        let fleet = question.fleet.as_ref().map_or("", FleetId::as_str);
        let (ours, others): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| !fleet.is_empty() && row.fleet == fleet);
        let ids: Vec<String> = ours.iter().map(|row| row.id.clone()).collect();
        let mut listing = Listing { identity: self.identity(), ..Listing::default() };
        for container in self.inspect(&ids).await? {
            match container.machine(&self.account) {
                Ok(machine) => listing.machines.push(machine),
                Err(why) => {
                    listing.unreadable.insert(container.name().into(), why);
                }
            }
        }
        listing.machines.sort_by(|a, b| a.name.cmp(&b.name));
        let there: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let gone = question.known.iter().filter(|id| !there.contains(id.as_str()));
        listing.gone = gone.cloned().collect();
        let wanted = others.iter().filter(|row| question.names.contains(&row.name));
        let mut taken: BTreeMap<String, Option<FleetId>> =
            wanted.map(|row| (row.name.clone(), FleetId::new(row.fleet.clone()).ok())).collect();
        let spoiled = listing.unreadable.keys().filter(|name| question.names.contains(*name));
        taken.extend(spoiled.map(|name| (name.clone(), None)));
        listing.taken = taken;
        Ok(listing)
    }

    async fn get(&self, machine: &Machine) -> Result<Option<Machine>, ProviderError> {
        self.machine(machine.id.as_str()).await
    }

    async fn survey(&self, spec: &MachineSpec) -> Result<Survey, ProviderError> {
        let image = spec.settings.get("image").map_or("", String::as_str);
        let words = ["image", "inspect", "--format", "{{.Os}}/{{.Architecture}}", image];
        let ended = self.cli.run(&words, LOOK).await?;
        if ended.code == Some(0) {
            self.images().insert(image.into());
            return Ok(Survey { architecture: platform(&ended.output)?, image_present: true });
        }
        let words = ["version", "--format", "{{.Server.Os}}/{{.Server.Arch}}"];
        let ended = self.cli.run(&words, LOOK).await?;
        if ended.code != Some(0) {
            return Err(self.cli.failure("reach the engine", &ended));
        }
        Ok(Survey { architecture: platform(&ended.output)?, image_present: false })
    }

    async fn image(&self, spec: &MachineSpec, progress: Progress<'_>) -> Result<(), ProviderError> {
        let image = spec.settings.get("image").map_or("", String::as_str);
        if self.images().contains(image) {
            return Ok(());
        }
        let there = ["image", "inspect", "--format", "{{.Id}}", image];
        if self.cli.run(&there, LOOK).await?.code == Some(0) {
            return Ok(());
        }
        progress(format!("pulling {image}"));
        let ended = self.cli.run(&["pull", "--quiet", image], PULL).await?;
        if ended.code == Some(0) {
            return Ok(());
        }
        Err(self
            .cli
            .failure(&format!("pull image {image}"), &ended)
            .hint(format!("{} pull {image}", self.cli.name())))
    }

    async fn create(&self, spec: &MachineSpec, mark: &Mark) -> Result<MachineId, ProviderError> {
        let mut words: Vec<String> =
            ["create", "--pull", "never", "--init", "--entrypoint", "sleep", "--name"]
                .map(String::from)
                .to_vec();
        words.extend([spec.name.clone(), "--hostname".into(), spec.host.to_string()]);
        for (key, value) in mark.labels() {
            words.extend(["--label".into(), format!("{LABEL}{key}={value}")]);
        }
        words.extend(size_words(&spec.size));
        words.push(spec.settings.get("image").cloned().unwrap_or_default());
        words.push("infinity".into());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ended = self.cli.run(&words, ACT).await?;
        if ended.code != Some(0) {
            return Err(self.cli.failure(&format!("create container {}", spec.name), &ended));
        }
        let id = String::from_utf8_lossy(&ended.output).trim().to_owned();
        let nonsense = |_| {
            let text = format!("`{} create` answered no id", self.cli.name());
            ProviderError::new(ErrorKind::Nonsense, text)
        };
        MachineId::new(id).map_err(nonsense)
    }

    async fn start(&self, machine: &Machine) -> Result<(), ProviderError> {
        let verb = if machine.state == MachineState::Paused { "unpause" } else { "start" };
        self.act(machine, verb, &[verb, machine.id.as_str()], ACT).await?;
        self.running(machine).await
    }

    async fn stop(&self, machine: &Machine) -> Result<(), ProviderError> {
        let Some(now) = self.again(machine).await? else { return Err(gone(machine)) };
        if matches!(now.state, MachineState::Stopped | MachineState::Created) {
            return Ok(());
        }
        self.act(machine, "stop", &["stop", machine.id.as_str()], ACT).await
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), ProviderError> {
        if self.again(machine).await?.is_none() {
            return Ok(());
        }
        self.act(machine, "remove", &["rm", "-f", "-v", machine.id.as_str()], ACT).await
    }

    async fn resize(&self, machine: &Machine, size: &Size) -> Result<(), ProviderError> {
        if self.again(machine).await?.is_none() {
            return Err(gone(machine));
        }
        let mut words = vec!["update".to_owned()];
        words.extend(size_words(size));
        words.push(machine.id.to_string());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.act(machine, "update", &words, ACT).await
    }

    fn transport(&self, machine: &Machine) -> Arc<dyn Transport> {
        let words = ["exec", "-i", "-u", USER, machine.id.as_str()];
        let program = self.cli.program(&words);
        let prefix = std::iter::once(program.name).chain(program.arguments).collect();
        Arc::new(ChildTransport { prefix, ..ChildTransport::default() })
    }
}

/// The ids of a list, by both engines' readers.
pub(super) fn ids(output: &[u8]) -> Vec<String> {
    let lists = [cli::parse_rows(output), cli::parse_podman(output, LABEL)];
    lists.into_iter().flatten().flatten().map(|row| row.id).collect()
}

/// The machines that an `inspect` tells of.
pub(super) fn machines(output: &[u8], account: &AccountName) -> Vec<Machine> {
    let containers = inspect::parse(output).unwrap_or_default();
    containers.iter().filter_map(|container| container.machine(account).ok()).collect()
}

/// The architecture of a Linux platform such as `linux/amd64`.
fn platform(output: &[u8]) -> Result<Option<Architecture>, ProviderError> {
    let text = String::from_utf8_lossy(output);
    match text.trim().split_once('/') {
        Some(("linux", architecture)) if !architecture.is_empty() => {
            Ok(Some(Architecture::new(architecture)))
        }
        Some((system, _)) if !system.is_empty() && system != "linux" => Err(ProviderError::new(
            ErrorKind::Denied,
            format!("the engine runs {system} containers; simstim needs Linux ones"),
        )),
        _ => Ok(None),
    }
}
