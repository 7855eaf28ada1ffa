//! The systemd user manager, where there is one: what it keeps outlives logins, and has a memory cap.

use std::path::PathBuf;
use std::process::Command;

use crate::holder::wall;

/// A command that runs this program, and is to be given arguments, as a unit of its own; `None` where
/// no user manager runs. A scope runs in place of the command: its streams are ours.
///
/// Managers before systemd 253 know no `survives`, and end the whole session where its memory ran out.
pub(crate) fn scope(name: &str, survives: bool) -> Option<Command> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = || format!("/run/user/{}", rustix::process::getuid().as_raw()).into();
    let runtime = runtime.filter(|path| path.is_absolute()).unwrap_or_else(usual);
    if !runtime.join("systemd/private").exists() {
        return None;
    }
    let program = std::env::current_exe().ok()?;
    let mut command = Command::new("systemd-run");
    command.env("XDG_RUNTIME_DIR", runtime).args(["--user", "--scope", "--quiet", "--collect"]);
    command.arg(format!("--unit=simstim-{name}-{}", wall()));
    if let Some(memory) = memory() {
        // A tenth stays for the machine itself, so that it can be reached and the session ended.
        command.args(["-p", &format!("MemoryMax={}", memory / 10 * 9)]);
    }
    if survives {
        command.args(["-p", "OOMPolicy=continue"]);
    }
    command.arg("--").arg(program);
    Some(command)
}

/// The machine's memory, in bytes.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}
