//! `simstim host list|show`: looks, and wakes nothing.

use std::collections::BTreeSet;
use std::process::ExitCode;

use crate::cli::args::{ListArgs, ShowArgs};
use crate::cli::error::CliError;
use crate::cli::open::{Start, open};
use crate::cli::render;
use crate::cli::render::progress::waiting;
use crate::cli::ui::Ui;
use crate::plan::Policy;

pub(crate) async fn list(ui: &Ui, start: &Start, args: &ListArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let fleet = open.fleet()?;
    let config = &open.file.config;
    let policy = Policy::default();
    let observed = waiting(ui, fleet.observe(config, &policy)).await;
    // The provisional plan says all that a list shows; nobody is asked more for it.
    let plan = fleet.glance(config, &observed, &policy);
    let text = if args.json {
        render::list::json(config, &plan)
    } else {
        render::list::table(config, &plan, ui.out)
    };
    ui.print(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn show(ui: &Ui, start: &Start, args: &ShowArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let config = &open.file.config;
    let host = config.host(&args.name).ok_or_else(|| open.no_host(&args.name))?;
    let fleet = open.fleet()?;
    let only = Some(BTreeSet::from([args.name.clone()]));
    let (plan, _) = waiting(ui, fleet.plan(config, &Policy { only, ..Policy::default() })).await;
    let entry = plan.hosts.iter().find(|entry| entry.host == args.name);
    let entry = entry.ok_or_else(|| open.no_host(&args.name))?;
    let text = if args.json {
        render::list::show_json(host, entry)
    } else {
        render::list::show(host, entry, ui.out)
    };
    ui.print(&text)?;
    Ok(ExitCode::SUCCESS)
}
