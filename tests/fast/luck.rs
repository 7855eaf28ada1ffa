//! Bad luck on this computer: wrong folders, copied files, other processes at once, a state folder
//! that takes nothing, clocks that go back, ends that come early.

use std::io::{BufRead as _, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Run, Sandbox, tree};

fn hosts(count: usize) -> String {
    let block = |n| format!("[[host]]\nname = \"h{n}\"\nprovider = \"local\"\n");
    (0..count).map(block).collect()
}

/// Every machine of the fleet `f`, with what its disk holds.
fn machines(sandbox: &Sandbox) -> usize {
    let folder = sandbox.path("home/.local/share/simstim/local/f");
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A dot begins what is not made yet.
    names.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count()
}

/// A run in another folder of the same computer.
fn elsewhere(sandbox: &Sandbox, text: &str, words: &[&str]) -> Run {
    let folder = sandbox.path("project/elsewhere");
    std::fs::create_dir_all(folder.join(".git")).unwrap();
    std::fs::write(folder.join("hosts.toml"), text).unwrap();
    sandbox.run(&[words, &["--file", "elsewhere/hosts.toml"]].concat())
}

#[test]
fn an_empty_file_in_the_wrong_folder_costs_no_machine() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("fleet = \"f\"\n{}", hosts(12)));
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let without = elsewhere(&sandbox, "", &["apply", "--yes"]);
    assert_eq!(without.code, Some(2), "{without}");
    let with = elsewhere(&sandbox, "fleet = \"f\"\n", &["apply", "--yes"]).ok();
    assert_eq!(machines(&sandbox), 12);
    assert_snapshot!(format!("{without}\n{}", with.said()));
}

#[test]
fn an_emptied_file_asks_for_the_count() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("fleet = \"f\"\n{}", hosts(12)));
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    sandbox.write("hosts.toml", "fleet = \"f\"\n");
    let refused = sandbox.run(&["apply", "--yes"]);
    assert_eq!((refused.code, machines(&sandbox)), (Some(2), 12), "{refused}");
    let wrong = sandbox.run(&["apply", "--yes", "--destroy", "11"]);
    assert_eq!((wrong.code, machines(&sandbox)), (Some(2), 12), "{wrong}");
    let _ = sandbox.run(&["apply", "--yes", "--destroy", "12"]).ok();
    assert_eq!(machines(&sandbox), 0);
    assert_snapshot!(wrong.stderr);
}

#[test]
fn a_copied_file_in_another_repository_is_said() {
    let sandbox = Sandbox::new();
    let text = format!("fleet = \"f\"\n{}", hosts(2));
    sandbox.write("hosts.toml", &text);
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let copy = text.replace("h1", "h9");
    let plan = elsewhere(&sandbox, &copy, &["plan"]).ok();
    let _ = elsewhere(&sandbox, &copy, &["apply", "--yes"]).ok();
    assert_eq!(machines(&sandbox), 3, "nothing of the first file was destroyed");
    assert_snapshot!(plan.said());
}

#[test]
fn two_clones_without_a_fleet_get_one_each_only_when_asked() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", hosts(1));
    let here = sandbox.run(&["apply", "--yes"]);
    let there = elsewhere(&sandbox, &hosts(1), &["apply", "--yes"]);
    assert_eq!((here.code, there.code), (Some(2), Some(2)));
    assert!(!sandbox.path("home/.local/share/simstim").exists());
    assert_snapshot!(format!("{here}\n{there}"));
}

#[test]
fn a_folder_and_an_unreadable_file_are_said() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("project/hosts.toml")).unwrap();
    let folder = sandbox.run(&["plan"]);
    let memory = sandbox.run(&["plan", "--file", "/proc/self/mem"]);
    assert_eq!((folder.code, memory.code), (Some(2), Some(2)), "{folder}\n{memory}");
    assert_snapshot!(format!("{folder}\n{memory}"));
}

#[test]
fn a_keeper_a_plan_and_two_applies_at_once_make_one_machine_a_host() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("fleet = \"f\"\n{}", hosts(4)));
    let mut keeper = sandbox.start(&["apply", "--watch", "--yes"]);
    let both = [0, 1].map(|_| sandbox.start(&["apply", "--yes"]));
    let plan = sandbox.run(&["plan"]).ok();
    for apply in both {
        let output = apply.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    let _ = sandbox.run(&["plan", "--detailed-exitcode"]).ok();
    assert_eq!(machines(&sandbox), 4, "{plan}");
    kill_process(Pid::from_child(&keeper), Signal::INT).unwrap();
    assert!(keeper.wait().unwrap().success());
}

#[test]
fn the_lock_of_a_dead_process_holds_nobody_up() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("fleet = \"f\"\n{}", hosts(1)));
    let mut apply = sandbox.start(&["apply", "--yes"]);
    let mut lines = BufReader::new(apply.stdout.take().unwrap()).lines();
    let _ = lines.next();
    let _ = apply.kill();
    apply.wait().unwrap();
    let begun = Instant::now();
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn a_state_folder_that_takes_nothing_stops_before_anything_is_made() {
    let mut sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("fleet = \"f\"\n{}", hosts(1)));
    sandbox.set("XDG_STATE_HOME", "/proc/sys");
    let read_only = sandbox.run(&["apply", "--yes"]);
    assert_eq!((read_only.code, machines(&sandbox)), (Some(1), 0), "{read_only}");
    assert_snapshot!(read_only.said());
}

#[test]
fn a_full_disk_here_makes_no_machine_that_nobody_knows() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("fleet = \"f\"\n{}", hosts(1)));
    let program = sandbox.command(&[]).get_program().to_owned();
    let own = sandbox.command(&[]);
    let mut full = Command::new("sh");
    // No byte may be written to any file: what a full disk says, in another errno.
    full.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" apply --yes"]).arg(program);
    full.current_dir(sandbox.path("project")).env_clear();
    full.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = full.output().unwrap();
    let said = sandbox.plain(&String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), machines(&sandbox)), (Some(1), 0), "{said}");
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let _ = sandbox.run(&["plan", "--detailed-exitcode"]).ok();
    assert_snapshot!(said.replace("\n    ", " "));
}

#[test]
fn a_clock_that_goes_back_changes_no_plan() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("fleet = \"f\"\n{}", hosts(2)));
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    // What was written down lies an hour in the future from now on.
    let later = regex::Regex::new(r#""at":(\d+)"#).unwrap();
    let mut changed = 0;
    for (path, bytes) in tree(&sandbox.path("home/.local/state")) {
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let new = later.replace_all(&text, |found: &regex::Captures<'_>| {
            changed += 1;
            format!("\"at\":{}", found[1].parse::<u64>().unwrap() + 3600)
        });
        std::fs::write(path, new.as_bytes()).unwrap();
    }
    assert!(changed > 0);
    let _ = sandbox.run(&["plan", "--detailed-exitcode"]).ok();
    let list = sandbox.run(&["host", "list"]).ok();
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    assert_eq!(machines(&sandbox), 2, "{list}");
}

#[test]
fn a_terminal_that_closes_ends_it_like_a_stop() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("fleet = \"f\"\n{}", hosts(6)));
    let mut apply = sandbox.start(&["apply", "--yes", "--parallelism", "1"]);
    let mut lines = BufReader::new(apply.stderr.take().unwrap()).lines();
    let _ = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("create")));
    kill_process(Pid::from_child(&apply), Signal::HUP).unwrap();
    // Nobody reads any more, as after a terminal is gone.
    drop(lines);
    apply.wait().unwrap();
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let _ = sandbox.run(&["plan", "--detailed-exitcode"]).ok();
    assert_eq!(machines(&sandbox), 6);
}
