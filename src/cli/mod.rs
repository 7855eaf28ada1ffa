//! The command line: what was typed in, text out. Everything it does to hosts is a call to
//! [`crate::fleet`].

mod args;
mod command;
mod consent;
mod error;
mod open;
mod render;
mod terminal;
mod ui;

use std::process::ExitCode;

use clap::Parser as _;

use self::args::{Cli, Command, HostCommand};
use self::error::{CliError, Kind};
use self::open::Start;
use self::ui::Ui;
use crate::provider::Kinds;

/// Runs the program with this process's arguments, environment and terminal.
pub fn main() -> ExitCode {
    main_with(Kinds::default())
}

/// Runs the program with other kinds of providers than the built-in ones.
pub fn main_with(kinds: Kinds) -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, everything else is a slip: clap knows which is which.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let ui = Ui { named_file: cli.file.clone(), ..Ui::from_env() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            CliError::failed(format!("the system gives no event queue: {error}")).show(&ui);
            return ExitCode::FAILURE;
        }
    };
    let Cli { file, command } = cli;
    let result = runtime.block_on(run(command, &ui, &Start { file, kinds }));
    // A read of the terminal may still wait for a key that nobody needs any more.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) => {
            error.show(&ui);
            ExitCode::from(error.code())
        }
    }
}

async fn run(command: Command, ui: &Ui, start: &Start) -> Result<ExitCode, CliError> {
    match command {
        Command::Init => command::init::run(ui, start),
        Command::Trust(args) => command::trust::run(ui, start, &args),
        Command::Schema => command::schema::run(ui, start),
        Command::Plan(args) => command::plan::run(ui, start, args).await,
        Command::Apply(args) => command::apply::run(ui, start, args).await,
        Command::Attach(args) => command::attach::run(ui, start, args).await,
        Command::New(args) => command::session::new(ui, start, args).await,
        Command::Ls(args) => command::session::ls(ui, start, args).await,
        Command::Logs(args) => command::session::logs(ui, start, args).await,
        Command::Why(args) => command::why::why(ui, start, args).await,
        Command::History(args) => command::why::history(ui, start, &args),
        Command::Kill(args) => command::session::kill(ui, start, args).await,
        Command::Exec(args) => match command::exec::run(ui, start, args).await {
            Err(error) if error.kind == Kind::Failed => {
                error.show(ui);
                Ok(ExitCode::from(command::exec::OWN_FAILURE))
            }
            result => result,
        },
        Command::Host(command) => match command {
            HostCommand::Create(args) => command::host::create(ui, start, args).await,
            HostCommand::Destroy(args) => command::host::destroy(ui, start, args).await,
            HostCommand::Start(args) => command::host::start(ui, start, args).await,
            HostCommand::Stop(args) => command::host::stop(ui, start, args).await,
            HostCommand::Idle(args) => command::host::idle(ui, start, args).await,
            HostCommand::List(args) => command::list::list(ui, start, &args).await,
            HostCommand::Show(args) => command::list::show(ui, start, &args).await,
        },
    }
}
