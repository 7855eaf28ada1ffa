//! `simstim schema`.

use std::process::ExitCode;

use crate::cli::error::CliError;
use crate::cli::open::Start;
use crate::cli::ui::Ui;
use crate::config::json_schema;

pub(crate) fn run(ui: &Ui, start: &Start) -> Result<ExitCode, CliError> {
    let schema = json_schema(&start.kinds.catalog());
    let text = serde_json::to_string_pretty(&schema).expect("a schema is plain data");
    ui.print(&(text + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
