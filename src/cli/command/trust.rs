//! `simstim trust`: shows what a project's file names, and remembers that a person saw it.

use std::process::ExitCode;

use crate::cli::args::TrustArgs;
use crate::cli::error::CliError;
use crate::cli::open::{Start, open};
use crate::cli::ui::Ui;
use crate::config::Trust;

pub(crate) fn run(ui: &Ui, start: &Start, args: &TrustArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let needs = &open.file.config.needs_trust;
    let path = open.file.path.display();
    let mut trust = Trust::open(&open.computer.folders.state);
    if open.own || trust.covers(&open.file.path, needs) {
        ui.say(&format!("{path} names nothing that needs your word\n"));
        return Ok(ExitCode::SUCCESS);
    }
    ui.say(&format!("{path} names commands or addresses of its own choice:\n"));
    for need in needs {
        // Quoted as in a source text, so that nothing in it can play with the terminal.
        ui.say(&format!("  {} = {:?}\n", need.key, need.value));
    }
    if !args.yes {
        if !ui.interactive {
            return Err(CliError::usage("nobody can be asked here").hint("simstim trust --yes"));
        }
        if !matches!(ui.ask("Allow this? [y/N] ")?.to_lowercase().as_str(), "y" | "yes") {
            return Err(CliError::failed("nothing was allowed"));
        }
    }
    trust.add(&open.file.path, needs)?;
    ui.say("allowed, until one of them changes\n");
    Ok(ExitCode::SUCCESS)
}
