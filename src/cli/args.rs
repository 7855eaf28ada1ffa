//! What can be typed. Parsing does no work.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::model::{AccountName, Bytes, HostName, IdleStop};

/// Machines for people who run coding agents: declared in hosts.toml, free while idle.
#[derive(Debug, Parser)]
#[command(name = "simstim", version, disable_help_subcommand = true, max_term_width = 100)]
#[command(after_help = "Begin with `simstim init`, or with `simstim host create local dev`.")]
pub(crate) struct Cli {
    /// The hosts.toml to use, instead of looking for one here and above
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a hosts.toml with a fleet here
    Init,
    /// Show the commands and addresses that a project's file names, and allow them
    Trust(TrustArgs),
    /// Print the JSON schema of hosts.toml
    Schema,
    /// Show what an apply would do
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Make the machines what the file says
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(ApplyArgs),
    /// Make, end, start, stop and look at single hosts
    #[command(subcommand)]
    Host(HostCommand),
    /// Start a program in a terminal that outlives every connection
    #[command(after_help = NEW_EXAMPLES)]
    New(NewArgs),
    /// Show a session in this terminal; it goes on when you leave
    #[command(after_help = ATTACH_EXAMPLES)]
    Attach(AttachArgs),
    /// List sessions and what they do; wakes nothing
    Ls(LsArgs),
    /// Print what a session printed; wakes nothing
    Logs(LogsArgs),
    /// Say what keeps a host awake, or why it stopped; wakes nothing
    Why(WhyArgs),
    /// List what was done to hosts from this computer, and why
    History(HistoryArgs),
    /// End a session: hang up, and kill what is left after 5 s
    Kill(KillArgs),
    /// Run a program on a host; its exit code becomes simstim's, 125 is simstim's own failure
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(ExecArgs),
}

const PLAN_EXAMPLES: &str = "\
Examples:
  simstim plan                     everything
  simstim plan dev web             two hosts
  simstim plan --out change.plan   to be carried out later, exactly so
  simstim plan --detailed-exitcode 0: nothing to do, 1: an error, 2: changes";

const APPLY_EXAMPLES: &str = "\
Examples:
  simstim apply                    show the plan, ask, do it
  simstim apply --yes              without asking, but lose no disk
  simstim apply --yes --destroy 2  agree that exactly two disks are lost
  simstim apply ./change.plan      a saved plan, if nothing changed since
  simstim apply --watch            then stay, and follow the file";

const EXEC_EXAMPLES: &str = "\
Examples:
  simstim exec dev -- uname -a
  tar c src | simstim exec dev -- tar x
  simstim exec dev -- sh -c 'cd src && make'";

const NEW_EXAMPLES: &str = "\
Examples:
  simstim new dev                           your login shell there
  simstim new dev claude                    a program instead
  simstim new dev --detach -- make test     only start it
  simstim new dev --resume 'claude --continue' claude
  simstim new dev --detach --name build -- sh -c 'cd src && make'
Leave with Ctrl-\\ Ctrl-\\ or Enter ~ . ; the session goes on.";

const ATTACH_EXAMPLES: &str = "\
Examples:
  simstim attach                the only session of the only host
  simstim attach dev/build
  simstim attach dev -r         only look

Leave with Ctrl-\\ Ctrl-\\ or Enter ~ . ; the session goes on. It has the size of whoever attached,
resized or typed last.";

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Allow without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

/// What plan and apply share.
#[derive(Debug, Default, Args)]
pub(crate) struct Wishes {
    /// Wake hosts that are stopped as wanted
    #[arg(long)]
    pub(crate) wake: bool,
    /// Hosts last seen at another engine or folder are meant to be here from now on
    #[arg(long)]
    pub(crate) here: bool,
    /// End work that is in the way
    #[arg(long)]
    pub(crate) force: bool,
    /// Agree that exactly N disks are lost; N may count strays too
    #[arg(long, value_name = "N")]
    pub(crate) destroy: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Only these hosts
    #[arg(value_name = "HOST")]
    pub(crate) hosts: Vec<HostName>,
    #[command(flatten)]
    pub(crate) wishes: Wishes,
    /// Print the plan as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Save the plan, with all it relies on
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Exit with 2 where there are changes
    #[arg(long)]
    pub(crate) detailed_exitcode: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Only these hosts; or one saved plan (a path with `/` or `.` in it)
    #[arg(value_name = "HOST | PLAN")]
    pub(crate) what: Vec<String>,
    #[command(flatten)]
    pub(crate) wishes: Wishes,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Stay, and keep the hosts as the file says: follow it, and stop idle machines
    #[arg(long, conflicts_with = "what")]
    pub(crate) watch: bool,
    /// Steps at once
    #[arg(long, value_name = "N", default_value_t = crate::fleet::PARALLELISM)]
    pub(crate) parallelism: usize,
}

/// What every command that changes machines takes.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct RunArgs {
    /// Do not ask; `apply` needs --destroy N as well to lose a disk
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Print what happens as JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Add a host to the file and make its machine
    Create(CreateArgs),
    /// Remove a host from the file and destroy its machine
    Destroy(DestroyArgs),
    /// Start a host's machine
    Start(PowerArgs),
    /// Stop a host's machine
    Stop(PowerArgs),
    /// Set when a host stops by itself
    Idle(IdleArgs),
    /// List the hosts and their machines
    List(ListArgs),
    /// Show all that is known of a host
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The provider or account that makes it, such as local or docker
    pub(crate) provider: AccountName,
    /// What to call it
    pub(crate) name: HostName,
    /// Processors
    #[arg(long)]
    pub(crate) cpus: Option<u32>,
    /// Memory, such as 4GiB
    #[arg(long)]
    pub(crate) memory: Option<Bytes>,
    /// Disk, such as 40GiB
    #[arg(long)]
    pub(crate) disk: Option<Bytes>,
    /// The image that it is made from
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// What the provider is to call the machine, where simstim-NAME is taken
    #[arg(long, value_name = "NAME")]
    pub(crate) machine_name: Option<String>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DestroyArgs {
    /// The host
    pub(crate) name: HostName,
    /// End work that is in the way
    #[arg(long)]
    pub(crate) force: bool,
    /// Destroy it although it was made with `protect = true`; its block must not say so any more
    #[arg(long)]
    pub(crate) unprotect: bool,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PowerArgs {
    /// The host
    pub(crate) name: HostName,
    /// End work that is in the way
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what happens as JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    /// The host
    pub(crate) name: HostName,
    /// A duration such as 30m or 2h, or never
    pub(crate) when: IdleStop,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The host
    pub(crate) name: HostName,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Run it in a terminal, which is yours: for programs that ask or paint
    #[arg(long, short)]
    pub(crate) tty: bool,
    /// The host
    pub(crate) host: HostName,
    /// The program and its arguments, taken as they are; `--` before them is optional
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// A session as people write it: `HOST/SESSION`, or `HOST` where it has only one.
#[derive(Debug, Clone)]
pub(crate) struct SessionName {
    pub(crate) host: HostName,
    pub(crate) session: Option<String>,
}

impl std::str::FromStr for SessionName {
    type Err = crate::model::NameError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, session) = match text.split_once('/') {
            Some((host, session)) => (host, Some(session.to_owned())),
            None => (text, None),
        };
        let session = session.filter(|name| !name.is_empty());
        if let Some(session) = &session {
            session_name(session)?;
        }
        Ok(Self { host: host.parse()?, session })
    }
}

/// A session's name is a folder's name on its host.
fn session_name(text: &str) -> Result<String, crate::model::NameError> {
    crate::model::check_session(text)?;
    Ok(text.into())
}

#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// The host; it is woken
    pub(crate) host: HostName,
    /// Only start it, instead of showing it in this terminal
    #[arg(long, short)]
    pub(crate) detach: bool,
    /// What to call the session; by default it is called after its program
    #[arg(long, value_parser = session_name)]
    pub(crate) name: Option<String>,
    /// What to run in its place, by `sh -c`, after a restart of its machine; else it ends with that
    #[arg(long, value_name = "COMMAND")]
    pub(crate) resume: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments; your login shell there, if left out
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The session; the only one, if left out
    #[arg(value_name = "HOST[/SESSION]")]
    pub(crate) session: Option<SessionName>,
    /// Only look: type nothing, and leave its size as it is
    #[arg(long, short)]
    pub(crate) read_only: bool,
    /// Print so many lines of what scrolled away first, 5000 at most
    #[arg(long, value_name = "LINES", default_value_t = 0, hide_default_value = true)]
    pub(crate) scrollback: u32,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only these hosts
    #[arg(value_name = "HOST")]
    pub(crate) hosts: Vec<HostName>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The session
    #[arg(value_name = "HOST[/SESSION]")]
    pub(crate) session: SessionName,
    /// Go on until the session ends
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print as JSON, one object a line of output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The host
    pub(crate) host: HostName,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Only of these hosts, those that are gone included
    #[arg(value_name = "HOST")]
    pub(crate) hosts: Vec<HostName>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// The session
    #[arg(value_name = "HOST[/SESSION]")]
    pub(crate) session: SessionName,
    /// Send only this signal, by number or name such as INT
    #[arg(long)]
    pub(crate) signal: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
