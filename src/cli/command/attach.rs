//! `simstim attach`, and the attaching half of `new`.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use super::exec::{code_of, raw};
use super::session::{choose, wake};
use crate::cli::args::{AttachArgs, SessionName};
use crate::cli::error::CliError;
use crate::cli::open::{Open, Start, open};
use crate::cli::terminal::{DETACH, Raw, Typed, size};
use crate::cli::ui::Ui;
use crate::helper_client::{
    AttachEnd, AttachRequest, Bridge, HelperError, Purpose, Terminal, attach,
};
use crate::model::HostName;

pub(crate) async fn run(ui: &Ui, start: &Start, args: AttachArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let wanted = match args.session {
        Some(session) => session,
        None => SessionName { host: only_host(&open)?, session: None },
    };
    open.check_names([&wanted.host])?;
    let host = &wanted.host;
    check_terminal(&[format!("simstim logs -f {host}"), format!("simstim exec {host} -- CMD")])?;
    let fleet = open.fleet()?;
    let mut bridge = wake(ui, &open, &fleet, &wanted.host, Purpose::Attach).await?;
    let name = choose(&mut bridge, &wanted).await?;
    show(ui, bridge, &wanted.host, name, args.read_only).await
}

fn only_host(open: &Open) -> Result<HostName, CliError> {
    let hosts = &open.file.config.hosts;
    match hosts.as_slice() {
        [one] => Ok(one.name.clone()),
        many => {
            let error = CliError::usage(format!("there are {} hosts; say which", many.len()));
            let hint = |error: CliError, name| error.hint(format!("simstim attach {name}"));
            Err(many.iter().take(5).map(|host| &host.name).fold(error, hint))
        }
    }
}

/// Both streams must be a person's terminal; where they are not, `instead` is what to type.
pub(super) fn check_terminal(instead: &[String]) -> Result<(), CliError> {
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        return Ok(());
    }
    let error = CliError::usage("attaching needs a terminal, and this is none");
    Err(instead.iter().fold(error, CliError::hint))
}

/// Shows a session in this terminal until the person leaves or it ends.
pub(super) async fn show(
    ui: &Ui,
    bridge: Bridge,
    host: &HostName,
    name: String,
    read_only: bool,
) -> Result<ExitCode, CliError> {
    let (resized, resizes) = mpsc::channel(4);
    let mut changes = listen(SignalKind::window_change())?;
    tokio::spawn(async move {
        while changes.recv().await.is_some() && resized.send(size()).await.is_ok() {}
    });
    let (mut terminate, mut hang_up) =
        (listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    ui.say(&format!("attached to {host}/{name}; leave it with {DETACH}\n"));
    let (left, leave) = oneshot::channel();
    let terminal = Terminal {
        input: Box::new(Typed::new(raw(std::io::stdin())?, left)),
        leave,
        output: Box::new(raw(std::io::stdout())?),
        resizes,
    };
    let request = AttachRequest { name: name.clone(), size: size(), read_only };
    let ended = {
        let _raw = Raw::new()?;
        tokio::select! {
            ended = attach(bridge, request, terminal) => ended,
            _ = terminate.recv() => Ok(AttachEnd::Detached),
            _ = hang_up.recv() => Ok(AttachEnd::Detached),
        }
    };
    let again = format!("simstim attach {host}/{name}");
    match ended {
        Ok(AttachEnd::Detached) => {
            ui.say(&format!("left {host}/{name}, which goes on; back to it: {again}\n"));
            Ok(ExitCode::SUCCESS)
        }
        Ok(AttachEnd::Ended(exited)) => {
            let code = code_of(exited);
            ui.say(&format!("{host}/{name} ended with code {code}\n"));
            Ok(ExitCode::from(code))
        }
        Err(error @ HelperError::Refused(_)) => {
            let error = CliError::failed(format!("{host}: {error}"));
            Err(error.hint(format!("simstim ls {host}")))
        }
        Err(error) => {
            Err(CliError::failed(format!("{host}: {error}; the session goes on")).hint(again))
        }
    }
}

fn listen(kind: SignalKind) -> Result<tokio::signal::unix::Signal, CliError> {
    signal(kind).map_err(|error| CliError::failed(format!("cannot listen for signals: {error}")))
}
