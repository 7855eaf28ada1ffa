//! `simstim why` and `simstim history`: what keeps a host awake, and what was done to hosts.

use std::collections::BTreeSet;
use std::process::ExitCode;

use crate::cli::args::{HistoryArgs, WhyArgs};
use crate::cli::error::CliError;
use crate::cli::open::{Start, open};
use crate::cli::render::progress::waiting;
use crate::cli::render::why::{self, Awake, Facts};
use crate::cli::ui::Ui;
use crate::fleet::{ConnectError, Fleet};
use crate::helper_client::wakefulness;
use crate::model::MachineState;
use crate::plan::{HostPlan, Policy};

pub(crate) async fn why(ui: &Ui, start: &Start, args: WhyArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let config = &open.file.config;
    let host = config.host(&args.host).ok_or_else(|| open.no_host(&args.host))?;
    let fleet = open.fleet()?;
    let only = Some(BTreeSet::from([args.host.clone()]));
    let policy = Policy { only, power_only: true, ..Policy::default() };
    let observed = waiting(ui, fleet.observe(config, &policy)).await;
    let plan = fleet.glance(config, &observed, &policy);
    let entry = plan.hosts.iter().find(|entry| entry.host == args.host);
    let entry = entry.ok_or_else(|| open.no_host(&args.host))?;
    let awake = waiting(ui, awake(&fleet, entry)).await;
    let deeds = fleet.deeds()?.into_iter().filter(|deed| deed.host == args.host).collect();
    let stops = config.accounts.get(&host.account).map(|account| account.abilities.idle_stop);
    let facts = Facts { host, entry, stops, awake, deeds, kept: fleet.is_kept() };
    let text = if args.json { why::json(&facts) } else { why::render(&facts, ui.out) };
    ui.print(&text)?;
    Ok(ExitCode::SUCCESS)
}

async fn awake(fleet: &Fleet, entry: &HostPlan) -> Awake {
    if entry.machine.as_ref().is_none_or(|machine| machine.state != MachineState::Running) {
        return Awake::No;
    }
    let asked = async {
        let mut bridge = fleet.look_at(entry).await?;
        let answer = wakefulness(&mut bridge).await;
        let _ = bridge.goodbye().await;
        answer.map_err(|error| ConnectError::Helper { host: entry.host.clone(), error })
    };
    asked.await.map_or_else(|error| Awake::Unknown(error.to_string()), Awake::Yes)
}

pub(crate) fn history(ui: &Ui, start: &Start, args: &HistoryArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    let mut deeds = open.fleet()?.deeds()?;
    if !args.hosts.is_empty() {
        deeds.retain(|deed| args.hosts.contains(&deed.host));
    }
    let text = if args.json { why::deeds_json(&deeds) } else { why::deeds(&deeds, ui.out) };
    ui.print(&text)?;
    Ok(ExitCode::SUCCESS)
}
