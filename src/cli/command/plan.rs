//! `simstim plan`.

use std::path::Path;
use std::process::ExitCode;

use crate::cli::args::{PlanArgs, Wishes};
use crate::cli::consent::check_count;
use crate::cli::error::CliError;
use crate::cli::open::{Start, open};
use crate::cli::render;
use crate::cli::render::progress::waiting;
use crate::cli::ui::Ui;
use crate::model::HostName;
use crate::plan::{Policy, SavedPlan};

pub(crate) async fn run(ui: &Ui, start: &Start, args: PlanArgs) -> Result<ExitCode, CliError> {
    let open = open(ui, start)?;
    open.check_names(&args.hosts)?;
    let fleet = open.fleet()?;
    let config = &open.file.config;
    let (plan, _) = waiting(ui, fleet.plan(config, &policy(&args.hosts, &args.wishes))).await;
    if args.json {
        let text = serde_json::to_string_pretty(&plan).expect("a plan is plain data");
        ui.print(&(text + "\n"))?;
    } else {
        ui.print(&render::plan::render(&plan, &open.file.path, ui, ui.out))?;
    }
    check_count(&plan, args.wishes.destroy)?;
    if let Some(path) = &args.out {
        SavedPlan { config_digest: config.digest(), plan: plan.clone() }.write(path)?;
        ui.say(&format!("saved: simstim apply {}\n", shell_path(path)));
    }
    Ok(match (plan.has_trouble(), args.detailed_exitcode && plan.has_changes()) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(2),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// A path to type: `apply` tells a plan from a host by a `/` or `.` in it.
fn shell_path(path: &Path) -> String {
    let text = path.display().to_string();
    let text = if text.contains(['/', '.']) { text } else { format!("./{text}") };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=,@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// What a person asked for beside the file.
pub(super) fn policy(hosts: &[HostName], wishes: &Wishes) -> Policy {
    Policy {
        only: (!hosts.is_empty()).then(|| hosts.iter().cloned().collect()),
        wake: wishes.wake,
        here: wishes.here,
        force: wishes.force,
        counted: wishes.destroy,
        ..Policy::default()
    }
}
