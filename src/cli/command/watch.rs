//! `simstim apply --watch`: runs the keeper and prints what it tells.

use std::process::ExitCode;

use tokio::sync::mpsc;

use super::apply::Signals;
use crate::cli::error::CliError;
use crate::cli::open::Open;
use crate::cli::render::notice;
use crate::cli::ui::Ui;
use crate::files::Lock;
use crate::fleet::Fleet;
use crate::keeper::{Keeper, Notice};
use crate::model::Timestamp;
use crate::stop::stop;

pub(super) async fn keep(
    ui: &Ui,
    open: Open,
    fleet: Fleet,
    lock: Lock,
    json: bool,
    mut signals: Signals,
) -> Result<ExitCode, CliError> {
    let (sender, mut notices) = mpsc::unbounded_channel();
    let (stopper, stop) = stop();
    let Open { computer, file, own } = open;
    let keeper = Keeper::new(&computer, (file, own), fleet, lock, sender);
    let keep = keeper.keep(&stop);
    tokio::pin!(keep);
    let result = loop {
        tokio::select! {
            biased;
            Some(notice) = notices.recv() => show(ui, &notice, json)?,
            result = &mut keep => break result,
            () = signals.next() => stopper.stop(),
        }
    };
    while let Ok(notice) = notices.try_recv() {
        show(ui, &notice, json)?;
    }
    result?;
    Ok(ExitCode::SUCCESS)
}

fn show(ui: &Ui, told: &Notice, json: bool) -> std::io::Result<()> {
    let now = Timestamp::now();
    if json {
        let mut value = serde_json::to_value(told).expect("a notice is plain data");
        value["at"] = now.0.into();
        return ui.print(&format!("{value}\n"));
    }
    ui.say(&notice::line(told, now, ui.err));
    Ok(())
}
