//! The whole program on `local` hosts: real processes, real files, whole outputs.

use insta::assert_snapshot;

use crate::support::{Run, Sandbox, tree};

const ONE: &str = "fleet = \"f\"\n\n[[host]]\nname = \"dev\"\nprovider = \"local\"\n";

fn with(text: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", text);
    sandbox
}

fn code(run: &Run) -> i32 {
    run.code.unwrap_or(-1)
}

#[test]
fn the_main_job_from_nothing() {
    let sandbox = Sandbox::new();
    let steps: [&[&str]; 9] = [
        &["init"],
        &["host", "create", "local", "dev", "--yes"],
        &["plan", "--detailed-exitcode"],
        &["exec", "dev", "--", "echo", "hi"],
        &["host", "list"],
        &["host", "stop", "dev"],
        &["host", "list"],
        &["host", "start", "dev"],
        &["host", "destroy", "dev", "--yes"],
    ];
    let shown = steps.map(|words| {
        let run = sandbox.run(words).ok();
        format!("$ simstim {}\n{run}", words.join(" "))
    });
    assert_snapshot!(shown.join("\n"));
    let left = tree(&sandbox.path("home/.local/share"));
    assert!(left.is_empty(), "nothing is left behind: {left:?}");
}

#[test]
fn an_apply_of_the_same_file_twice_does_nothing_the_second_time() {
    let sandbox = with(ONE);
    assert_eq!(code(&sandbox.run(&["plan", "--detailed-exitcode"])), 2);
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let before = tree(&sandbox.path("home/.local/share"));
    let run = sandbox.run(&["apply", "--yes"]).ok();
    assert!(run.stderr.contains("Nothing to do."), "{run}");
    assert_eq!(tree(&sandbox.path("home/.local/share")), before);
    assert_eq!(code(&sandbox.run(&["plan", "--detailed-exitcode"])), 0);
}

#[test]
fn without_a_terminal_consent_is_a_flag_that_the_error_names() {
    let sandbox = with(ONE);
    let unasked = sandbox.run(&["apply"]);
    assert_eq!(code(&unasked), 2);
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    sandbox.write("hosts.toml", "fleet = \"f\"\n[provider.local]\n");
    let uncounted = sandbox.run(&["apply", "--yes"]);
    assert_eq!(code(&uncounted), 2);
    let miscounted = sandbox.run(&["apply", "--yes", "--destroy", "2"]);
    assert_eq!(code(&miscounted), 2);
    assert_snapshot!(format!("{unasked}\n{uncounted}\n{miscounted}"));
    let _ = sandbox.run(&["apply", "--yes", "--destroy", "1"]).ok();
    assert!(tree(&sandbox.path("home/.local/share")).is_empty());
}

#[test]
fn a_renamed_host_keeps_its_files() {
    let sandbox = with(ONE);
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let _ = sandbox.run(&["exec", "dev", "--", "sh", "-c", "echo kept > file"]).ok();
    sandbox.write("hosts.toml", ONE.replace("\"dev\"", "\"new\"") + "was = \"dev\"\n");
    let plan = sandbox.run(&["plan", "--detailed-exitcode"]).ok();
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    assert_eq!(sandbox.run(&["exec", "new", "--", "cat", "file"]).ok().stdout, "kept\n");
    assert_snapshot!(plan);
    // Its machine is called as it was made: another rename without that word would lose it.
    sandbox.write("hosts.toml", ONE.replace("\"dev\"", "\"newest\""));
    let lost = sandbox.run(&["plan"]).ok();
    assert!(lost.said().contains("was = \"dev\" in its block keeps it"), "{lost}");
    sandbox.write("hosts.toml", ONE.replace("\"dev\"", "\"newest\"") + "was = \"dev\"\n");
    assert_eq!(sandbox.run(&["exec", "newest", "cat", "file"]).ok().stdout, "kept\n");
    let _ = sandbox.run(&["host", "destroy", "newest", "--yes"]).ok();
    assert!(tree(&sandbox.path("home/.local/share")).is_empty());
}

#[test]
fn power_and_protect_are_followed() {
    let sandbox = with(&format!("{ONE}protect = true\n"));
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    sandbox.write("hosts.toml", format!("{ONE}protect = true\npower = \"off\"\n"));
    let off = sandbox.run(&["apply", "--yes"]).ok();
    let start = sandbox.run(&["host", "start", "dev"]);
    let exec = sandbox.run(&["exec", "dev", "--", "true"]);
    assert_eq!((code(&start), code(&exec)), (1, 125));
    sandbox.write("hosts.toml", format!("{ONE}protect = true\npower = \"on\"\n"));
    let on = sandbox.run(&["apply", "--yes"]).ok();
    let stop = sandbox.run(&["host", "stop", "dev"]);
    let destroy = sandbox.run(&["host", "destroy", "dev", "--yes"]);
    assert_eq!((code(&stop), code(&destroy)), (1, 1));
    sandbox.write("hosts.toml", ONE);
    let unblocked = sandbox.run(&["host", "destroy", "dev", "--yes"]);
    assert_eq!(code(&unblocked), 1, "protection at birth outlives the block's");
    assert_eq!(sandbox.read("hosts.toml"), ONE, "a refused destroy leaves the file");
    let _ = sandbox.run(&["host", "destroy", "dev", "--unprotect", "--yes"]).ok();
    let all = [off, start, exec, on, stop, destroy, unblocked];
    assert_snapshot!(all.map(|run| run.to_string()).join("\n"));
}

#[test]
fn a_saved_plan_is_carried_out_exactly_or_not_at_all() {
    let sandbox = with(ONE);
    let _ = sandbox.run(&["plan", "--out", "a.plan"]).ok();
    let _ = sandbox.run(&["apply", "./a.plan", "--yes"]).ok();
    let stale = sandbox.run(&["apply", "./a.plan", "--yes"]);
    let _ = sandbox.run(&["plan", "--out", "b.plan"]).ok();
    let _ = sandbox.run(&["host", "stop", "dev"]).ok();
    let state = sandbox.run(&["apply", "./b.plan", "--yes"]);
    sandbox.write("hosts.toml", format!("{ONE}protect = true\n"));
    let edited = sandbox.run(&["apply", "./b.plan", "--yes"]);
    sandbox.write("c.plan", "{}");
    let none = sandbox.run(&["apply", "./c.plan", "--yes"]);
    let all = [stale, state, edited, none];
    assert!(all.iter().all(|run| code(run) == 1), "{all:?}");
    assert_snapshot!(all.map(|run| run.stderr).join("\n"));
}

#[test]
fn json_is_the_same_value() {
    let sandbox = with(ONE);
    let plan = sandbox.run(&["plan", "--json"]).ok();
    let value: serde_json::Value = serde_json::from_slice(&plan.bytes).unwrap();
    assert_eq!((&value["format"], &value["hosts"][0]["action"]), (&1.into(), &"create".into()));
    let apply = sandbox.run(&["apply", "--yes", "--json"]).ok();
    let lines: Vec<serde_json::Value> =
        apply.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["event"], "ended");
    assert!(lines.iter().any(|line| line["event"] == "finished" && line["what"] == "bootstrap"));
    let list = sandbox.run(&["host", "list", "--json"]).ok();
    let value: serde_json::Value = serde_json::from_slice(&list.bytes).unwrap();
    assert_eq!(value["hosts"][0]["state"], "running");
    let show = sandbox.run(&["host", "show", "dev", "--json"]).ok();
    let value: serde_json::Value = serde_json::from_slice(&show.bytes).unwrap();
    assert_eq!(value["machine"]["mark"]["host"], "dev");
}

#[test]
fn slips_are_met_with_the_nearest_word() {
    let sandbox = with(ONE);
    let runs = [
        sandbox.run(&["exec", "dve", "--", "true"]),
        sandbox.run(&["plan", "nothing-like-it"]),
        sandbox.run(&["host", "idle", "dev", "2h"]),
        sandbox.run(&["host", "create", "local", "dev", "--yes"]),
        sandbox.run(&["host", "start", "dev"]),
        sandbox.run(&["apply", "Not-A-Host"]),
    ];
    assert!(runs.iter().all(|run| code(run) > 0));
    assert_eq!(sandbox.read("hosts.toml"), ONE);
    assert_snapshot!(runs.map(|run| run.stderr).join("\n"));
}

#[test]
fn a_file_without_a_fleet_stops_plan_with_the_line_to_add() {
    let sandbox = with("[[host]]\nname = \"dev\"\nprovider = \"local\"\n");
    let run = sandbox.run(&["plan"]);
    assert_eq!(code(&run), 2);
    assert_snapshot!(run);
}

#[test]
fn destroy_follows_no_link_out_of_its_folder() {
    let sandbox = with(ONE);
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let precious = sandbox.path("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("file"), "keep").unwrap();
    let target = precious.to_str().unwrap();
    let _ = sandbox.run(&["exec", "dev", "--", "ln", "-s", target, "link"]).ok();
    let _ = sandbox.run(&["host", "destroy", "dev", "--yes"]).ok();
    assert_eq!(std::fs::read_to_string(precious.join("file")).unwrap(), "keep");
}

#[test]
fn a_folder_that_is_not_ours_is_not_touched() {
    let sandbox = with(ONE);
    let folder = sandbox.path("home/.local/share/simstim/local/f/simstim-dev");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("file"), "keep").unwrap();
    let run = sandbox.run(&["apply", "--yes"]);
    assert_eq!(code(&run), 1);
    assert_snapshot!(run);
    assert_eq!(std::fs::read_to_string(folder.join("file")).unwrap(), "keep");
}

#[test]
fn nothing_is_written_where_there_is_no_home() {
    let sandbox = with(ONE);
    let mut command = sandbox.command(&["plan"]);
    let output = command.env_remove("HOME").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_snapshot!(sandbox.plain(&String::from_utf8_lossy(&output.stderr)));
}

#[test]
fn a_reader_that_leaves_early_is_no_error_of_ours() {
    let sandbox = with(ONE);
    let mut child = sandbox.start(&["plan", "--json"]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn what_to_type_next_names_the_same_file() {
    let mut sandbox = with(ONE);
    std::fs::rename(sandbox.path("project/hosts.toml"), sandbox.path("project/other.toml"))
        .unwrap();
    let run = sandbox.run(&["exec", "dev", "true", "--file", "x"]);
    assert_eq!(code(&run), 2, "what follows the program is the program's: {run}");
    let run = sandbox.run(&["exec", "--file", "other.toml", "dev", "true"]);
    assert!(run.stderr.contains("try: simstim --file other.toml apply dev"), "{run}");
    sandbox.set("SIMSTIM_HOSTS", "");
    let empty = sandbox.run(&["plan"]);
    assert!(empty.stderr.contains("there is no hosts.toml"), "as if it was not set: {empty}");
}
