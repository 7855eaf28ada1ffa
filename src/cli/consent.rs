//! What a person has to agree to before a plan is carried out.

use std::collections::BTreeSet;

use crate::model::HostName;
use crate::plan::{Action, HostPlan, Plan};

use super::error::CliError;
use super::ui::Ui;

/// What was agreed to on the command line.
#[derive(Debug, Clone, Default)]
pub(super) struct Given {
    /// `--yes`.
    pub(super) yes: bool,
    /// `--destroy N`.
    pub(super) destroy: Option<usize>,
    /// The command itself names what it destroys, so `--yes` covers these hosts.
    pub(super) named: BTreeSet<HostName>,
}

/// Passes where everything is agreed to; asks where somebody can be asked.
pub(super) fn consent(ui: &Ui, plan: &Plan, given: &Given) -> Result<(), CliError> {
    check_count(plan, given.destroy)?;
    let losses = plan.destructive();
    if !plan.has_changes() {
        return Ok(());
    }
    let named =
        |entry: &HostPlan| entry.action == Action::Destroy && given.named.contains(&entry.host);
    let all_named = plan.hosts.iter().filter(|entry| entry.action.is_destructive()).all(named);
    if losses > 0 && given.destroy.is_none() && !(all_named && given.yes) {
        return consent_to_losses(ui, plan, losses, all_named);
    }
    if given.yes {
        return Ok(());
    }
    if !ui.interactive {
        return Err(CliError::usage("nobody can be asked here").hint("--yes"));
    }
    match ui.ask("Do this? [y/N] ")?.to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CliError::failed("nothing was done")),
    }
}

/// Whether as many disks are lost as were counted.
pub(super) fn check_count(plan: &Plan, counted: Option<usize>) -> Result<(), CliError> {
    let losses = plan.destructive();
    match counted {
        Some(counted) if counted != losses => {
            let disks = if losses == 1 { "disk" } else { "disks" };
            let text =
                format!("--destroy {counted} was given, but the plan loses {losses} {disks}");
            let hint = if losses == 0 {
                "the same command without --destroy".into()
            } else {
                format!("--destroy {losses}    # {}", names(plan))
            };
            Err(CliError::usage(text).hint(hint))
        }
        _ => Ok(()),
    }
}

fn consent_to_losses(ui: &Ui, plan: &Plan, losses: usize, all_named: bool) -> Result<(), CliError> {
    let disks = if losses == 1 { "1 disk is".into() } else { format!("{losses} disks are") };
    if !ui.interactive && all_named {
        let error = CliError::usage(format!("{disks} lost for good, and nobody can be asked here"));
        return Err(error.hint("--yes"));
    }
    if !ui.interactive {
        let text = format!("{disks} lost by this plan, and --yes does not cover that");
        let error = CliError::usage(text);
        return Err(error.hint(format!("--destroy {losses}    # {}", names(plan))));
    }
    let question = format!("{disks} lost for good: {}. Type {losses} to agree: ", names(plan));
    if ui.ask(&question)? == losses.to_string() {
        Ok(())
    } else {
        Err(CliError::failed("nothing was done"))
    }
}

fn names(plan: &Plan) -> String {
    let lost = plan.hosts.iter().filter(|entry| entry.action.is_destructive());
    let words = lost.map(|entry| match entry.action {
        Action::Replace => format!("{} (replaced)", entry.host),
        _ => entry.host.to_string(),
    });
    words.collect::<Vec<_>>().join(", ")
}
