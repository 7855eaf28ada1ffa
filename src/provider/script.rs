//! The provider `script`: any program that reads one JSON object and prints one.
//!
//! | verb | beside `format`, `verb` and `settings` it is given | it answers |
//! |---|---|---|
//! | `list` | `fleet` | `machines`: all of that fleet, each `id`, `name`, `state`, `labels`, and `settings` if it can |
//! | `create` | `host`, `name`, `machine` (settings), `labels` | `id`; the machine must carry the labels from its first moment |
//! | `start`, `stop`, `destroy` | `id`, `name` | `{}`; done already is done |
//! | `connect` | `id`, `name` | `command`: words to put before a command for the machine |
//!
//! States are `created`, `running`, `paused`, `stopped` and `broken`; anything else is busy. A code
//! other than 0 is a failure, told by the last line of stderr; 75 means "not now". Names are unique:
//! creating one that exists fails with code 73.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ErrorKind, Kind, Progress, Provider, ProviderError};
use crate::config::Account;
use crate::files::Folders;
use crate::model::{
    Abilities, AccountName, FleetId, IdleStopBy, KeySpec, KindSpec, Listing, Machine, MachineId,
    MachineSpec, MachineState, Mark, Question, Size, Survey, printable,
};
use crate::process::{Program, ProgramError};
use crate::transport::{ChildTransport, Command, Exec, Transport, TransportError};

/// `EX_TEMPFAIL` of sysexits.h: it may work later.
const NOT_NOW: i32 = 75;
/// `EX_CANTCREAT` of sysexits.h: the name is taken.
const TAKEN: i32 = 73;

const LOOK: Duration = Duration::from_secs(30);
const ACT: Duration = Duration::from_secs(240);

/// The kind `script`.
#[derive(Debug, Clone, Copy)]
pub struct ScriptKind;

impl Kind for ScriptKind {
    fn spec(&self) -> KindSpec {
        const COMMAND: KeySpec = KeySpec {
            is_command: true,
            needs_trust: true,
            ..KeySpec::text("command", "The program that makes machines, and its arguments.")
        };
        const CONFIG: KeySpec =
            KeySpec { replaces: true, ..KeySpec::text("config", "A text for the program.") };
        KindSpec {
            kind: "script",
            doc: "Machines of any program that speaks the script contract.",
            abilities: Abilities { idle_stop: IdleStopBy::Keeper, ..Abilities::PLAIN },
            machine_keys: &[KeySpec::MACHINE_NAME, CONFIG],
            account_keys: &[COMMAND],
        }
    }

    fn open(&self, name: &AccountName, account: &Account, _: &Folders) -> Arc<dyn Provider> {
        let command = account.settings.get("command");
        let words = command.and_then(|words| serde_json::from_str(words).ok()).unwrap_or_default();
        Arc::new(Script { account: name.clone(), script: Caller { words } })
    }
}

#[derive(Debug, Clone)]
struct Caller {
    words: Vec<String>,
}

#[derive(Debug)]
struct Script {
    account: AccountName,
    script: Caller,
}

/// A machine as the program describes it. Bytes of a stranger: nothing in it is trusted.
#[derive(Debug, Deserialize)]
struct Described {
    id: MachineId,
    name: String,
    state: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    machines: Vec<Described>,
}

#[derive(Debug, Deserialize)]
struct Created {
    id: MachineId,
}

#[derive(Debug, Deserialize)]
struct Connected {
    command: Vec<String>,
}

impl Described {
    fn machine(self, account: &AccountName) -> Result<Machine, (String, String)> {
        let name: String = self.name.chars().filter(|c| !c.is_control()).take(100).collect();
        let mark = Mark::from_labels(|key| self.labels.get(key).map(String::as_str))
            .map_err(|error| (name.clone(), error.to_string()))?;
        let state = match self.state.as_str() {
            "created" => MachineState::Created,
            "running" => MachineState::Running,
            "paused" => MachineState::Paused,
            "stopped" => MachineState::Stopped,
            "broken" => MachineState::Broken("its provider says so".into()),
            other => MachineState::Busy(printable(other).chars().take(40).collect()),
        };
        let machine = Machine::new(account, self.id, &name, mark, state);
        let settings = self.settings.into_iter();
        let settings = settings.map(|(key, value)| (printable(&key), printable(&value))).collect();
        Ok(Machine { settings, ..machine })
    }
}

/// The machines of an answer to `list`.
pub(super) fn machines(output: &[u8], account: &AccountName) -> Vec<Machine> {
    let listed: Option<Listed> = serde_json::from_slice(output).ok();
    let described = listed.into_iter().flat_map(|listed| listed.machines);
    described.filter_map(|described| described.machine(account).ok()).collect()
}

impl Caller {
    /// Calls one verb and reads its answer.
    async fn call<T: for<'de> Deserialize<'de>>(
        &self,
        verb: &str,
        mut request: Value,
        deadline: Duration,
    ) -> Result<T, ProviderError> {
        let Some((program, arguments)) = self.words.split_first() else {
            return Err(ProviderError::new(ErrorKind::Denied, "its account names no `command`")
                .hint("command = [\"./provider.sh\"]    # in its [provider] block"));
        };
        request["format"] = 1.into();
        request["verb"] = verb.into();
        let mut call = Program::new(program, arguments.to_vec());
        call.input = Some(format!("{request}\n").into_bytes());
        let ended = call.run(deadline).await.map_err(|error| match error {
            ProgramError::NotFound(_) => ProviderError::new(ErrorKind::Denied, error.to_string()),
            _ => ProviderError::new(ErrorKind::NotNow, error.to_string()),
        })?;
        let last = ended.errors.lines().last().unwrap_or_default().to_owned();
        let kind = match ended.code {
            Some(0) => {
                return serde_json::from_slice(&ended.output).map_err(|error| {
                    let text = format!("`{program}` did not answer `{verb}` as it should");
                    ProviderError::new(ErrorKind::Nonsense, text).detail(error.to_string())
                });
            }
            Some(NOT_NOW) | None => ErrorKind::NotNow,
            Some(TAKEN) => ErrorKind::Taken,
            Some(_) => ErrorKind::Refused,
        };
        Err(ProviderError::new(kind, format!("`{program}` could not {verb}")).detail(last))
    }

    async fn act(&self, verb: &str, machine: &Machine) -> Result<(), ProviderError> {
        let request = json!({ "id": machine.id, "name": machine.name });
        let _: Value = self.call(verb, request, ACT).await?;
        Ok(())
    }
}

impl Script {
    async fn machines(
        &self,
        fleet: &FleetId,
    ) -> Result<(Vec<Machine>, BTreeMap<MachineId, (String, String)>), ProviderError> {
        let listed: Listed = self.script.call("list", json!({ "fleet": fleet }), LOOK).await?;
        let (mut machines, mut unreadable) = (Vec::new(), BTreeMap::new());
        for described in listed.machines {
            let id = described.id.clone();
            match described.machine(&self.account) {
                // What is not ours was not asked for.
                Ok(machine) if machine.mark.fleet != *fleet => {}
                Ok(machine) => machines.push(machine),
                Err((name, why)) => {
                    unreadable.insert(id, (name, why));
                }
            }
        }
        Ok((machines, unreadable))
    }

    /// The machine as it is now, if its mark is still the one that was planned for.
    async fn again(&self, machine: &Machine) -> Result<Option<Machine>, ProviderError> {
        let Some(now) = self.get(machine).await? else { return Ok(None) };
        if now.mark == machine.mark {
            return Ok(Some(now));
        }
        let text = format!("machine {} carries another mark by now", machine.name);
        Err(ProviderError::new(ErrorKind::Refused, text))
    }
}

#[async_trait]
impl Provider for Script {
    fn identity(&self) -> String {
        self.script.words.join(" ")
    }

    async fn check(&self) -> Result<(), ProviderError> {
        // A list of nothing: it shows that the program runs and speaks.
        let _: Listed = self.script.call("list", json!({ "fleet": "" }), LOOK).await?;
        Ok(())
    }

    async fn list(&self, question: &Question) -> Result<Listing, ProviderError> {
        let mut listing = Listing { identity: self.identity(), ..Listing::default() };
        if let Some(fleet) = &question.fleet {
            let (machines, unreadable) = self.machines(fleet).await?;
            let there: BTreeSet<&MachineId> =
                machines.iter().map(|machine| &machine.id).chain(unreadable.keys()).collect();
            let gone = question.known.iter().filter(|id| !there.contains(id));
            listing.gone = gone.cloned().collect();
            listing.machines = machines;
            listing.unreadable = unreadable.into_values().collect();
        }
        let names = listing.unreadable.keys().filter(|name| question.names.contains(*name));
        listing.taken = names.map(|name| (name.clone(), None)).collect();
        Ok(listing)
    }

    async fn get(&self, machine: &Machine) -> Result<Option<Machine>, ProviderError> {
        let (machines, unreadable) = self.machines(&machine.mark.fleet).await?;
        if let Some((_, why)) = unreadable.get(&machine.id) {
            let text = format!("the mark of machine {} does not read: {why}", machine.name);
            return Err(ProviderError::new(ErrorKind::Nonsense, text));
        }
        Ok(machines.into_iter().find(|now| now.id == machine.id))
    }

    async fn survey(&self, _: &MachineSpec) -> Result<Survey, ProviderError> {
        Ok(Survey { architecture: None, image_present: true })
    }

    async fn image(&self, _: &MachineSpec, _: Progress<'_>) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn create(&self, spec: &MachineSpec, mark: &Mark) -> Result<MachineId, ProviderError> {
        let labels: BTreeMap<&str, String> = mark.labels().into_iter().collect();
        let request = json!({
            "host": spec.host,
            "name": spec.name,
            "machine": spec.settings,
            "labels": labels,
        });
        let created: Created = self.script.call("create", request, ACT).await?;
        Ok(created.id)
    }

    async fn start(&self, machine: &Machine) -> Result<(), ProviderError> {
        self.script.act("start", machine).await
    }

    async fn stop(&self, machine: &Machine) -> Result<(), ProviderError> {
        match self.again(machine).await? {
            Some(_) => self.script.act("stop", machine).await,
            None => Err(ProviderError::new(ErrorKind::Gone, "the machine does not exist any more")),
        }
    }

    async fn destroy(&self, machine: &Machine) -> Result<(), ProviderError> {
        match self.again(machine).await? {
            Some(_) => self.script.act("destroy", machine).await,
            None => Ok(()),
        }
    }

    async fn resize(&self, _: &Machine, _: &Size) -> Result<(), ProviderError> {
        Err(ProviderError::new(ErrorKind::Refused, "`script` machines have no size"))
    }

    fn transport(&self, machine: &Machine) -> Arc<dyn Transport> {
        Arc::new(ScriptTransport { script: self.script.clone(), machine: machine.clone() })
    }
}

/// Asks the program for the way to a machine each time: it may have another address by now.
#[derive(Debug)]
struct ScriptTransport {
    script: Caller,
    machine: Machine,
}

#[async_trait]
impl Transport for ScriptTransport {
    async fn start(&self, command: &Command) -> Result<Exec, TransportError> {
        let request = json!({ "id": self.machine.id, "name": self.machine.name });
        let connected: Result<Connected, _> = self.script.call("connect", request, LOOK).await;
        let connected = connected.map_err(|error| {
            let said = [Some(error.text), error.detail].into_iter().flatten();
            TransportError::Refused(said.collect::<Vec<_>>().join(": "))
        })?;
        if connected.command.first().is_none_or(String::is_empty) {
            let text = "its provider gave no command to connect with";
            return Err(TransportError::Refused(text.into()));
        }
        let transport = ChildTransport { prefix: connected.command, ..ChildTransport::default() };
        transport.start(command).await
    }
}
