//! `simstim host create|destroy|start|stop|idle`: an edit of the file and an apply of that host, or
//! one step without an edit.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use super::apply::{carry_out, show};
use crate::cli::args::{CreateArgs, DestroyArgs, IdleArgs, PowerArgs, RunArgs};
use crate::cli::consent::{Given, consent};
use crate::cli::error::CliError;
use crate::cli::open::{self, Open, Start, open};
use crate::cli::render::progress::waiting;
use crate::cli::ui::Ui;
use crate::config::{self, Config, Edit, FILE_NAME, File, NewHost};
use crate::fleet::{ApplyOptions, Fleet, random};
use crate::model::{FleetId, HostName, Power, Size};
use crate::plan::{Action, Plan, Policy};

pub(crate) async fn create(ui: &Ui, start: &Start, args: CreateArgs) -> Result<ExitCode, CliError> {
    let open = open_or_new(ui, start)?;
    let mut edit = edit_of(&open);
    if open.file.config.fleet.is_none() {
        edit.set_fleet(&FleetId::from_random(random()))?;
    }
    edit.add_host(&NewHost {
        name: args.name.clone(),
        provider: args.provider,
        size: Size { cpus: args.cpus, memory: args.memory, disk: args.disk },
        machine: [("image", args.image), ("name", args.machine_name)]
            .into_iter()
            .filter_map(|(key, value)| Some((key.into(), value?)))
            .collect(),
    })?;
    let name = args.name;
    let did = format!("{name} was added");
    let policy = Policy { only: Some(BTreeSet::from([name.clone()])), ..Policy::default() };
    let code = edit_and_apply(ui, &open, &edit, policy, &did, args.run).await?;
    if code != ExitCode::SUCCESS {
        ui.say(&format!(
            "{name} stays in {}\n  try: simstim apply {name}    # after a change of its block\n  \
             try: simstim host destroy {name} --yes    # to take it back\n",
            open.file.path.display()
        ));
    }
    Ok(code)
}

pub(crate) async fn destroy(
    ui: &Ui,
    start: &Start,
    args: DestroyArgs,
) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let mut edit = edit_of(&open);
    let block = open.file.config.host(&args.name);
    let mut names = BTreeSet::from([args.name.clone()]);
    if let Some(block) = block {
        // A machine that was kept through a rename carries the old name.
        names.extend(block.was.clone());
        if block.protect {
            let text = format!("{} is protected: its block says `protect = true`", args.name);
            let error = CliError::failed(text).hint("remove `protect` from its block");
            return Err(error.hint(format!("simstim host destroy {} --unprotect", args.name)));
        }
        edit.remove_host(&args.name)?;
    }
    let policy = Policy {
        only: Some(names.clone()),
        force: args.force,
        destroy: names.clone(),
        unprotect: args.unprotect,
        ..Policy::default()
    };
    let config = open.edited(&edit)?;
    let fleet = open.computer.open(&open.file, &config, open.own)?;
    let (plan, _) = waiting(ui, fleet.plan(&config, &policy)).await;
    if block.is_none() && plan.hosts.is_empty() {
        return Err(open.no_host(&args.name));
    }
    let did = format!("{} was removed", args.name);
    if plan.hosts.is_empty() && !args.run.yes {
        ui.say(&format!("{} has no machine; only its block will be removed\n", args.name));
        if !ui.interactive {
            return Err(CliError::usage("nobody can be asked here").hint("--yes"));
        }
        if !matches!(ui.ask("Do this? [y/N] ")?.to_lowercase().as_str(), "y" | "yes") {
            return Err(CliError::failed("nothing was done"));
        }
    }
    finish(ui, &open, (&edit, &did), &fleet, &plan, (args.force, names), args.run).await
}

pub(crate) async fn idle(ui: &Ui, start: &Start, args: IdleArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    open.check_names([&args.name])?;
    let mut edit = edit_of(&open);
    edit.set_key(&args.name, "idle_stop", &args.when.to_string())?;
    let did = format!("idle_stop of {} is {}", args.name, args.when);
    let policy = Policy { only: Some(BTreeSet::from([args.name])), ..Policy::default() };
    edit_and_apply(ui, &open, &edit, policy, &did, args.run).await
}

pub(crate) async fn start(ui: &Ui, start: &Start, args: PowerArgs) -> Result<ExitCode, CliError> {
    let policy = Policy { wake: true, power_only: true, ..Policy::default() };
    power(ui, start, args, Power::Off, policy).await
}

pub(crate) async fn stop(ui: &Ui, start: &Start, args: PowerArgs) -> Result<ExitCode, CliError> {
    let policy = Policy {
        stop: BTreeSet::from([args.name.clone()]),
        power_only: true,
        force: args.force,
        ..Policy::default()
    };
    power(ui, start, args, Power::On, policy).await
}

/// One step without an edit. Refused where the file wants the opposite for good.
async fn power(
    ui: &Ui,
    start: &Start,
    args: PowerArgs,
    opposite: Power,
    mut policy: Policy,
) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let host = open.file.config.host(&args.name).ok_or_else(|| open.no_host(&args.name))?;
    if host.power == opposite {
        let text = format!("the block of {} says `power = \"{opposite}\"`", args.name);
        return Err(CliError::failed(text).hint("change `power` in its block, then: simstim apply"));
    }
    policy.only = Some(BTreeSet::from([args.name.clone()]));
    let fleet = open.fleet()?;
    let (mut plan, _) = waiting(ui, fleet.plan(&open.file.config, &policy)).await;
    plan.only_power_of(&args.name);
    match plan.hosts.first() {
        Some(entry) if entry.machine.is_none() && entry.action == Action::Create => {
            let text = format!("{}: {}", args.name, entry.reason);
            return Err(CliError::failed(text).hint(format!("simstim apply {}", args.name)));
        }
        Some(entry) if entry.action.is_trouble() => {
            let error = CliError::failed(format!("{}: {}", args.name, entry.reason));
            return Err(entry.hints().into_iter().fold(error, CliError::hint));
        }
        Some(entry) if !plan.has_changes() && !args.json => {
            ui.say(&format!("{}: {}\n", args.name, entry.reason));
        }
        _ => {}
    }
    let options = options(args.force);
    carry_out(ui, &fleet, &plan, &options, args.json).await
}

fn options(force: bool) -> ApplyOptions {
    ApplyOptions { force, holder: "simstim host".into(), ..ApplyOptions::default() }
}

/// The file that is meant, or a new one here where there is none.
fn open_or_new(ui: &Ui, start: &Start) -> Result<Open, CliError> {
    let computer = open::computer(start)?;
    let path = match open::locate(&computer, start) {
        Ok(_) => return open(ui, start),
        Err(_) => start.file.clone().unwrap_or_else(|| PathBuf::from(FILE_NAME)),
    };
    let config = config::read("", &computer.kinds.catalog())
        .unwrap_or_else(|_| unreachable!("an empty file has nothing wrong"));
    Ok(Open { computer, file: File { path, text: String::new(), config }, own: false })
}

/// An edit of the file as it was read; a file that does not exist yet is expected not to.
fn edit_of(open: &Open) -> Edit {
    Edit::new(open.file.path.exists().then_some(open.file.text.as_str()))
}

async fn edit_and_apply(
    ui: &Ui,
    open: &Open,
    edit: &Edit,
    policy: Policy,
    did: &str,
    run: RunArgs,
) -> Result<ExitCode, CliError> {
    let config: Config = open.edited(edit)?;
    let fleet = open.computer.open(&open.file, &config, open.own)?;
    let (plan, _) = waiting(ui, fleet.plan(&config, &policy)).await;
    finish(ui, open, (edit, did), &fleet, &plan, (policy.force, BTreeSet::new()), run).await
}

/// Shows, asks, writes the edit, then takes the first step.
async fn finish(
    ui: &Ui,
    open: &Open,
    (edit, did): (&Edit, &str),
    fleet: &Fleet,
    plan: &Plan,
    (force, named): (bool, BTreeSet<HostName>),
    run: RunArgs,
) -> Result<ExitCode, CliError> {
    if plan.has_changes() || plan.has_trouble() {
        show(ui, plan, &open.file.path, run);
    }
    if let Some(entry) = plan.hosts.iter().find(|entry| entry.action.is_trouble()) {
        let error = CliError::failed(format!("{}: {}; nothing was done", entry.host, entry.reason));
        return Err(entry.hints().into_iter().fold(error, CliError::hint));
    }
    if let Some(bytes) = fleet.installs(plan) {
        let size = crate::model::Bytes(bytes as u64).0 / 1000;
        ui.say(&format!(
            "Installs the helper simstim-host {} ({size} kB) in ~/.local/share/simstim\n",
            env!("CARGO_PKG_VERSION")
        ));
    }
    consent(ui, plan, &Given { yes: run.yes, destroy: None, named })?;
    let lock = open.computer.lock_edit(&open.file.path).await?;
    edit.write(&open.file.path)?;
    if edit.text() != open.file.text {
        ui.say(&format!("{}: {did}\n", open.file.path.display()));
    }
    drop(lock);
    carry_out(ui, fleet, plan, &options(force), run.json).await
}
