//! `simstim exec`: one program, its streams and its exit code.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::apply::{Signals, watch};
use super::attach::{check_terminal, resizes};
use crate::cli::args::ExecArgs;
use crate::cli::error::CliError;
use crate::cli::open::{Start, open};
use crate::cli::terminal::{Raw, size};
use crate::cli::ui::Ui;
use crate::helper_client::{ExecError, ExecRequest, Purpose, Streams, exec};
use crate::stop::stop;
use schema::message::Exited;

/// The exit code of a failure that is simstim's own, as `docker run`, `env` and `timeout` have it.
pub(crate) const OWN_FAILURE: u8 = 125;
/// A program that does not exist, and one that cannot be started, as in a shell.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;

pub(crate) async fn run(ui: &Ui, start: &Start, args: ExecArgs) -> Result<ExitCode, CliError> {
    if args.tty {
        check_terminal(&[format!("simstim exec {} -- CMD    # without a terminal", args.host)])?;
    }
    let open = open(ui, start)?;
    let config = &open.file.config;
    let host = config.host(&args.host).ok_or_else(|| open.no_host(&args.host))?;
    let fleet = open.fleet()?;
    let bridge = {
        let (events, receiver) = mpsc::unbounded_channel();
        let (stopper, stop) = stop();
        let mut signals = Signals::new()?;
        let connect = fleet.connect(config, &args.host, Purpose::Exec, events, &stop);
        watch(ui, connect, receiver, &mut signals, &stopper, false).await??
    };
    let (sender, signals) = mpsc::channel(8);
    pass_on(SignalKind::interrupt(), sender.clone())?;
    pass_on(SignalKind::terminate(), sender.clone())?;
    pass_on(SignalKind::hangup(), sender)?;
    let own = if args.tty { terminal_env() } else { Vec::new() };
    let request = ExecRequest {
        argv: args.command.into_iter().map(OsStringExt::into_vec).collect(),
        env: own.into_iter().chain(host.env.clone()).collect(),
        terminal: args.tty.then(size),
    };
    let streams = Streams {
        stdin: Box::new(raw(std::io::stdin())?),
        stdout: Box::new(raw(std::io::stdout())?),
        stderr: Box::new(raw(std::io::stderr())?),
        signals,
        resizes: if args.tty { resizes()? } else { mpsc::channel(1).1 },
    };
    let ended = {
        let _raw = args.tty.then(Raw::new).transpose()?;
        exec(bridge, request, streams).await
    };
    match ended {
        Ok(exited) => Ok(ExitCode::from(code_of(exited))),
        Err(ExecError::NotStarted { reason, not_found }) => {
            CliError::failed(format!("{}: {reason}", args.host)).show(ui);
            Ok(ExitCode::from(if not_found { NOT_FOUND } else { NOT_STARTED }))
        }
        Err(ExecError::Helper(error)) => {
            let text = format!("{}: {error}; the program ends within half a minute", args.host);
            Err(CliError::failed(text).hint(format!("simstim ls {}", args.host)))
        }
    }
}

/// What programs there are to know of this terminal.
fn terminal_env() -> Vec<(String, String)> {
    let variable = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    ["TERM", "COLORTERM"].into_iter().filter_map(variable).collect()
}

/// The exit code that says how a program ended, as a shell has it.
pub(super) fn code_of(exited: Exited) -> u8 {
    let signal = exited.signal.map(|signal| 128 + signal);
    let code = exited.code.or(signal).unwrap_or(1);
    u8::try_from(code & 0xff).unwrap_or(1)
}

/// A stream of ours without the buffer that the standard library puts before it.
pub(super) fn raw(stream: impl AsFd) -> Result<File, CliError> {
    let own = stream.as_fd().try_clone_to_owned();
    Ok(own.map(File::from)?)
}

/// Sends a signal that reaches simstim on to the program.
fn pass_on(kind: SignalKind, sender: mpsc::Sender<i32>) -> Result<(), CliError> {
    let mut signals = signal(kind)
        .map_err(|error| CliError::failed(format!("cannot listen for signals: {error}")))?;
    // Ends with the runtime, right after the program.
    tokio::spawn(async move {
        while signals.recv().await.is_some() && sender.send(kind.as_raw_value()).await.is_ok() {}
    });
    Ok(())
}
