//! `simstim new|ls|logs|kill`.

use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;

use super::apply::{Signals, watch};
use super::attach::{Seat, Way, check_terminal, show};
use crate::cli::args::{KillArgs, LogsArgs, LsArgs, NewArgs, SessionName};
use crate::cli::error::CliError;
use crate::cli::open::{Open, Start, open};
use crate::cli::render::progress::waiting;
use crate::cli::render::sessions::{self, HostSessions, Sessions};
use crate::cli::terminal::size;
use crate::cli::ui::Ui;
use crate::fleet::{ConnectError, Fleet};
use crate::helper_client::{
    Bridge, HelperError, LogError, NewSession, Purpose, list_sessions, new_session, read_log,
    signal_session,
};
use crate::model::{HostName, SessionFact, SessionState, Timestamp};
use crate::plan::{HostPlan, Policy};
use crate::stop::stop;

/// A killed session is gone at the latest after the helper's own 5 s and a little.
const ENDS: Duration = Duration::from_secs(10);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) async fn new(ui: &Ui, start: &Start, args: NewArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let host = open.file.config.host(&args.host).ok_or_else(|| open.no_host(&args.host))?;
    let attaches = !args.detach && !args.json;
    if attaches {
        check_terminal(&[format!("simstim new {} --detach -- CMD", args.host)])?;
    }
    let fleet = open.fleet()?;
    let purpose = if attaches { Purpose::Attach } else { Purpose::Exec };
    let mut bridge = wake(ui, &open, &fleet, &args.host, purpose).await?;
    let session = NewSession {
        name: args.name,
        argv: args.command.into_iter().map(OsStringExt::into_vec).collect(),
        env: host.env.clone().into_iter().collect(),
        size: attaches.then(size),
        busy_lease: Some(host.busy_lease),
        resume: args.resume.map(by_shell).unwrap_or_default(),
    };
    let started = new_session(&mut bridge, session).await?;
    let name = started.name;
    if let Some(aside) = started.aside {
        ui.say(&format!("the ended {0}/{name} is called {0}/{aside} now\n", args.host));
    }
    if attaches {
        let way = Way { open: &open, fleet: &fleet, host: &args.host };
        let seat = Seat { name, read_only: false, scrollback: 0 };
        return show(ui, way, bridge, seat).await;
    }
    let _ = bridge.goodbye().await;
    if args.json {
        ui.print(&format!("{}\n", json!({ "host": args.host, "session": name })))?;
    } else {
        ui.print(&format!("{}/{name}\n", args.host))?;
        let cap = if started.capped { "" } else { ", with no memory cap of its own" };
        ui.say(&format!(
            "it runs on by itself{cap}; see it with: simstim logs -f {}/{name}\n",
            args.host
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// A command as a shell reads it.
fn by_shell(command: String) -> Vec<Vec<u8>> {
    vec![b"sh".to_vec(), b"-c".to_vec(), command.into_bytes()]
}

/// A bridge for a person's command, which wakes the host.
pub(super) async fn wake(
    ui: &Ui,
    open: &Open,
    fleet: &Fleet,
    host: &HostName,
    purpose: Purpose,
) -> Result<Bridge, CliError> {
    let (events, receiver) = mpsc::unbounded_channel();
    let (stopper, stop) = stop();
    let mut signals = Signals::new()?;
    let connect = fleet.connect(&open.file.config, host, purpose, events, &stop);
    Ok(watch(ui, connect, receiver, &mut signals, &stopper, false).await??)
}

pub(crate) async fn ls(ui: &Ui, start: &Start, args: LsArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    open.check_names(&args.hosts)?;
    let fleet = open.fleet()?;
    let config = &open.file.config;
    let only = (!args.hosts.is_empty()).then(|| args.hosts.iter().cloned().collect());
    let policy = Policy { only, power_only: true, ..Policy::default() };
    let observed = waiting(ui, fleet.observe(config, &policy)).await;
    let plan = fleet.glance(config, &observed, &policy);
    let entries = plan.hosts.iter().filter(|entry| config.host(&entry.host).is_some());
    let hosts = join_all(entries.map(|entry| look(&fleet, entry))).await;
    let text = if args.json {
        sessions::json(&hosts)
    } else {
        sessions::table(&hosts, Timestamp::now(), ui.out)
    };
    ui.print(&text)?;
    Ok(ExitCode::SUCCESS)
}

async fn look(fleet: &Fleet, entry: &HostPlan) -> HostSessions {
    let sessions = match fleet.look_at(entry).await {
        Ok(mut bridge) => {
            let listed = list_sessions(&mut bridge).await;
            let _ = bridge.goodbye().await;
            listed.map_or_else(|error| Sessions::Unknown(error.to_string()), Sessions::Known)
        }
        Err(ConnectError::Helper { error: HelperError::NotInstalled, .. }) => {
            Sessions::Known(Vec::new())
        }
        Err(ConnectError::Helper { error, .. }) => Sessions::Unknown(error.to_string()),
        Err(ConnectError::NotRunning { state, .. }) => Sessions::NotRunning(state),
        Err(ConnectError::NoMachine { why, .. }) => Sessions::Unknown(why),
        Err(error) => Sessions::Unknown(error.to_string()),
    };
    HostSessions { host: entry.host.clone(), sessions }
}

pub(crate) async fn logs(ui: &Ui, start: &Start, args: LogsArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    open.check_names([&args.session.host])?;
    let fleet = open.fleet()?;
    let mut bridge = fleet.look(&open.file.config, &args.session.host).await?;
    let name = choose(ui, &mut bridge, &args.session).await?;
    let copied = if args.json {
        let (mut writer, reader) = tokio::io::duplex(64 * 1024);
        let copy = async {
            let result = read_log(&mut bridge, &name, args.follow, &mut writer).await;
            drop(writer);
            result
        };
        let print = async {
            let mut lines = BufReader::new(reader).split(b'\n');
            while let Some(line) = lines.next_segment().await? {
                let text = String::from_utf8_lossy(&line);
                ui.print(&format!("{}\n", json!({ "line": text.trim_end_matches('\r') })))?;
            }
            Ok::<(), std::io::Error>(())
        };
        let (copied, printed) = tokio::join!(copy, print);
        printed?;
        copied
    } else {
        let mut stdout = tokio::io::stdout();
        read_log(&mut bridge, &name, args.follow, &mut stdout).await
    };
    match copied {
        Ok(0) => {}
        Ok(start) => ui.say(&format!("(the first {start} bytes are not kept any more)\n")),
        Err(LogError::Target(error)) => return Err(error.into()),
        Err(LogError::Helper(error)) => return Err(error.into()),
    }
    let _ = bridge.goodbye().await;
    Ok(ExitCode::SUCCESS)
}

/// The session that is meant: the one named, or the only one there is.
pub(super) async fn choose(
    ui: &Ui,
    bridge: &mut Bridge,
    wanted: &SessionName,
) -> Result<String, CliError> {
    if let Some(name) = &wanted.session {
        return Ok(name.clone());
    }
    let host = &wanted.host;
    let listed = list_sessions(bridge).await?;
    let live = || listed.iter().filter(|session| session.state != SessionState::Ended);
    let names: Vec<&SessionFact> =
        if live().count() > 0 { live().collect() } else { listed.iter().collect() };
    match names.as_slice() {
        [one] => Ok(one.name.clone()),
        [] => {
            Err(CliError::failed(format!("{host} has no sessions"))
                .hint(format!("simstim new {host}")))
        }
        many if ui.interactive => {
            let words = |session: &&SessionFact| {
                format!("{}  {}  {}", session.name, sessions::word(session.state), session.command)
            };
            let choices: Vec<String> = many.iter().map(words).collect();
            let chosen = ui.choose("Which session?", &choices)?;
            let chosen = chosen.map(|index| many[index].name.clone());
            chosen.ok_or_else(|| CliError::failed("nothing was chosen"))
        }
        many => {
            let error = CliError::usage(format!("{host} has {} sessions; say which", many.len()));
            Err(many.iter().fold(error, |error, session| {
                error.hint(format!("{host}/{}    # {}", session.name, session.command))
            }))
        }
    }
}

pub(crate) async fn kill(ui: &Ui, start: &Start, args: KillArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    open.check_names([&args.session.host])?;
    let signal = args.signal.as_deref().map(signal_number).transpose()?;
    let fleet = open.fleet()?;
    let host = &args.session.host;
    // Nothing to end on a machine that does not run: it is not woken for that.
    let mut look = fleet.look(&open.file.config, host).await?;
    let name = choose(ui, &mut look, &args.session).await?;
    let _ = look.goodbye().await;
    let mut bridge = wake(ui, &open, &fleet, host, Purpose::Exec).await?;
    signal_session(&mut bridge, &name, signal).await?;
    let ended = if signal.is_none() { Some(wait_for_end(&mut bridge, &name).await?) } else { None };
    let _ = bridge.goodbye().await;
    if args.json {
        let state = ended.as_ref().map(|session| sessions::word(session.state));
        let mut value = json!({ "host": host, "session": name });
        if let Some(signal) = signal {
            value["signal"] = signal.into();
        } else {
            value["state"] = state.into();
        }
        ui.print(&format!("{value}\n"))?;
    } else {
        match ended {
            Some(session) => ui.say(&format!("{host}/{name}: {}\n", session.evidence)),
            None => ui.say(&format!("{host}/{name}: signalled\n")),
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn wait_for_end(bridge: &mut Bridge, name: &str) -> Result<SessionFact, CliError> {
    let wait = async {
        loop {
            let sessions = list_sessions(bridge).await?;
            let found = sessions.into_iter().find(|session| session.name == name);
            match found {
                Some(session) if session.state != SessionState::Ended => {}
                Some(session) => return Ok::<_, HelperError>(session),
                None => return Ok(SessionFact::new(name, SessionState::Ended, "it is gone")),
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(ENDS, wait).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(CliError::failed(format!("session {name} did not end within {ENDS:?}"))
            .hint(format!("simstim kill --signal KILL …/{name}"))),
    }
}

/// A signal by its number, or by its name with or without SIG.
fn signal_number(text: &str) -> Result<i32, CliError> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let by_name = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("KILL", Signal::KILL),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("TERM", Signal::TERM),
        ("CONT", Signal::CONT),
        ("STOP", Signal::STOP),
    ];
    let named = by_name.into_iter().find(|(word, _)| *word == name).map(|(_, s)| s.as_raw());
    let number = named.or_else(|| text.parse().ok().filter(|number| (1..=64).contains(number)));
    number.ok_or_else(|| {
        CliError::usage(format!("`{text}` is no signal")).hint("--signal INT, TERM, KILL, HUP, …")
    })
}
