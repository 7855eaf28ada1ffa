//! `simstim init`: a file with a fleet.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cli::error::CliError;
use crate::cli::open::Start;
use crate::cli::ui::Ui;
use crate::config::{Edit, EditError, FILE_NAME};
use crate::files;
use crate::fleet::random;
use crate::model::FleetId;

pub(crate) fn run(ui: &Ui, start: &Start) -> Result<ExitCode, CliError> {
    let path = start.file.clone().unwrap_or_else(|| PathBuf::from(FILE_NAME));
    let text = if path.exists() { Some(read(&path)?) } else { None };
    let fleet = FleetId::from_random(random());
    let mut edit = Edit::new(text.as_deref());
    match edit.set_fleet(&fleet) {
        Ok(()) => {}
        Err(EditError::HasFleet) => {
            ui.say(&format!("{} has a fleet already; nothing to do\n", path.display()));
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error.into()),
    }
    edit.write(&path)?;
    let verb = if text.is_some() { "changed" } else { "wrote" };
    ui.say(&format!("{verb} {}: fleet {fleet}\n", path.display()));
    ui.say("next: simstim host create local dev\n");
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<String, CliError> {
    let bytes = files::read_bounded(path, crate::config::MOST_BYTES)?;
    String::from_utf8(bytes)
        .map_err(|_| CliError::usage(format!("{} is not UTF-8 text", path.display())))
}
