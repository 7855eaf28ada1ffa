//! Hosts and their machines, as tables and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::table;
use crate::cli::ui::{Paper, Tone};
use crate::config::{Config, Host};
use crate::plan::{Action, HostPlan, Plan, Reason};

/// What a host's machine does, in one word.
fn state(entry: &HostPlan) -> &'static str {
    match (&entry.machine, &entry.reason) {
        (_, Reason::NoAnswer(_) | Reason::Unsure { .. } | Reason::Elsewhere { .. }) => "unknown",
        (Some(machine), _) => machine.state.word(),
        (None, Reason::Lost { .. }) => "lost",
        (None, _) => "none",
    }
}

/// What an apply would do, where that is something.
fn remark(entry: &HostPlan) -> String {
    match entry.action {
        Action::None => String::new(),
        Action::Blocked | Action::Unknown => entry.reason.to_string(),
        action => format!("to {}", action.word()),
    }
}

fn rows<'a>(config: &'a Config, plan: &'a Plan) -> Vec<(&'a Host, &'a HostPlan)> {
    let pair = |host: &'a Host| {
        let entry = plan.hosts.iter().find(|entry| entry.host == host.name)?;
        Some((host, entry))
    };
    config.hosts.iter().filter_map(pair).collect()
}

/// The table of `host list`.
pub(crate) fn table(config: &Config, plan: &Plan, paper: Paper) -> String {
    let rows = rows(config, plan);
    if rows.is_empty() {
        return "no hosts; begin with: simstim host create local dev\n".into();
    }
    let head = ["NAME", "PROVIDER", "STATE", "IDLE STOP", "SIZE", ""].map(String::from);
    let cells: Vec<Vec<String>> = std::iter::once(head.to_vec())
        .chain(rows.iter().map(|(host, entry)| {
            let size = entry.machine.as_ref().map(|machine| machine.size).unwrap_or_default();
            let size = size.or(host.size);
            vec![
                host.name.to_string(),
                host.account.to_string(),
                state(entry).into(),
                host.idle_stop.to_string(),
                if size.is_empty() { "-".into() } else { size.to_string() },
                remark(entry),
            ]
        }))
        .collect();
    let mut text = table::render(&cells, paper);
    for stray in &plan.strays {
        writeln!(text, "stray: {} on {} ({})", stray.name, stray.account, stray.why)
            .expect("a string takes text");
    }
    text
}

/// `host list --json`.
pub(crate) fn json(config: &Config, plan: &Plan) -> String {
    let hosts: Vec<Value> =
        rows(config, plan).iter().map(|(host, entry)| facts(host, entry)).collect();
    pretty(&json!({ "format": 1, "fleet": plan.fleet, "hosts": hosts, "strays": plan.strays }))
}

/// `host show --json`.
pub(crate) fn show_json(host: &Host, entry: &HostPlan) -> String {
    let mut facts = facts(host, entry);
    facts["format"] = 1.into();
    pretty(&facts)
}

fn facts(host: &Host, entry: &HostPlan) -> Value {
    json!({
        "name": host.name,
        "account": host.account,
        "kind": host.kind,
        "state": state(entry),
        "action": entry.action,
        "reason": entry.reason.to_string(),
        "hints": entry.hints(),
        "wanted": {
            "size": host.size,
            "idle_stop": host.idle_stop,
            "power": host.power,
            "protect": host.protect,
            "machine": host.machine,
            "env": host.env,
        },
        "machine": entry.machine,
        "stopped_by": entry.stopped_by,
    })
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("values print") + "\n"
}

/// `host show`.
pub(crate) fn show(host: &Host, entry: &HostPlan, paper: Paper) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        if !value.is_empty() {
            let key = paper.paint(Tone::Dim, format!("{key:10}"));
            writeln!(text, "{key}  {value}").expect("a string takes text");
        }
    };
    line("host", paper.paint(Tone::Strong, &host.name));
    line(
        "provider",
        if host.kind == host.account.as_str() {
            host.kind.clone()
        } else {
            format!("{} ({})", host.account, host.kind)
        },
    );
    let (word, reason) = (state(entry), entry.reason.to_string());
    line("state", if word == reason { reason } else { format!("{word}: {reason}") });
    line("size", host.size.to_string());
    line("idle stop", host.idle_stop.to_string());
    line("power", host.power.to_string());
    line("protect", if host.protect { "yes".into() } else { String::new() });
    for (key, value) in &host.machine {
        line(key, value.clone());
    }
    for (name, value) in &host.env {
        line("env", format!("{name}={value}"));
    }
    if let Some(machine) = &entry.machine {
        line("machine", format!("{} ({})", machine.name, machine.id.short()));
        line("has", machine.size.to_string());
        line("made", format!("{} by {}", machine.mark.made_at, machine.mark.maker));
        line("nonce", machine.mark.nonce.to_string());
    }
    line("apply", remark(entry));
    for hint in entry.hints() {
        line("try", hint);
    }
    text
}
