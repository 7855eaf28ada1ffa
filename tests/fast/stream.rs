//! `exec` on a `local` host: every byte, every exit code, and no process left behind.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::support::Sandbox;

fn ready() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", "fleet = \"f\"\n[[host]]\nname = \"dev\"\nprovider = \"local\"\nenv = { COLOUR = \"blue\" }\n");
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    sandbox
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Waits for something that another process is about to do; the deadline only ends a failed test.
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie waits for whoever is init here; it runs no more.
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn all_bytes_pass_both_ways() {
    let sandbox = ready();
    let mut bytes = Vec::new();
    let mut state = 1_u32;
    for _ in 0..5_000_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.push((state >> 24) as u8);
    }
    let run = sandbox.run_with(&["exec", "dev", "--", "cat"], &bytes).ok();
    assert!(run.bytes == bytes, "{} of {} bytes", run.bytes.len(), bytes.len());
}

#[test]
fn streams_codes_and_signals_are_kept_apart() {
    let sandbox = ready();
    let script = "cat; echo out; echo err >&2; exit 7";
    let run = sandbox.run_with(&["exec", "dev", "--", "sh", "-c", script], b"in\n");
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (Some(7), "in\nout\n", "err\n")
    );
    let killed = sandbox.run(&["exec", "dev", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.code, Some(137));
    let long = sandbox.run(&["exec", "dev", "echo", &"a".repeat(100_000)]);
    assert_eq!(long.code, Some(126), "{long}");
    assert!(long.stderr.contains("pass long texts on stdin"), "{long}");
    let missing = sandbox.run(&["exec", "dev", "--", "no-such-program"]);
    assert_eq!(missing.code, Some(127), "{missing}");
    let args = ["exec", "dev", "--", "printf", "%s|", "a b", "", "ä", "*", "$HOME", "new\nline"];
    assert_eq!(sandbox.run(&args).ok().stdout, "a b||ä|*|$HOME|new\nline|");
    let bare = ["exec", "dev", "printf", "%s|", "--", "--json", "-h"];
    assert_eq!(sandbox.run(&bare).ok().stdout, "--|--json|-h|", "from the program on, all is its");
    assert_eq!(
        sandbox.run(&["exec", "dev", "--", "sh", "-c", "echo $COLOUR"]).ok().stdout,
        "blue\n"
    );
}

#[test]
fn a_program_that_reads_nothing_or_ends_early_does_not_hang() {
    let sandbox = ready();
    let large = vec![b'x'; 3_000_000];
    let run = sandbox.run_with(&["exec", "dev", "--", "head", "-c", "3"], &large).ok();
    assert_eq!(run.stdout, "xxx");
    let _ = sandbox.run_with(&["exec", "dev", "--", "true"], &large).ok();
}

#[test]
fn a_reader_that_leaves_ends_the_program() {
    let sandbox = ready();
    let mut child = sandbox.start(&["exec", "dev", "--", "sh", "-c", "echo $$; exec yes"]);
    let pid = first_line(&mut child);
    drop(child.stdout.take());
    wait_until("`yes` gets SIGPIPE", || !alive(&pid));
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[test]
fn output_left_open_by_a_child_ends_with_the_program_soon() {
    let sandbox = ready();
    let begun = Instant::now();
    let script = "sleep 60 & echo done";
    let run = sandbox.run(&["exec", "dev", "--", "sh", "-c", script]).ok();
    assert_eq!(run.stdout, "done\n");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_killed_client_leaves_no_program_and_no_bridge() {
    let sandbox = ready();
    let mut child =
        sandbox.start(&["exec", "dev", "--", "sh", "-c", "echo $PPID; echo $$; exec sleep 600"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (bridge, program) = (lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap());
    assert!(alive(&bridge) && alive(&program));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the bridge leaves", || !alive(&bridge));
    wait_until("the program is hung up", || !alive(&program));
}

#[test]
fn signals_reach_the_program() {
    let sandbox = ready();
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let mut child = sandbox.start(&["exec", "dev", "--", "sh", "-c", script]);
    assert_eq!(first_line(&mut child), "ready");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    child.stdout.as_mut().unwrap().read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("caught\n", Some(9)));
}

#[test]
fn input_comes_through_while_the_program_runs() {
    let sandbox = ready();
    let mut child =
        sandbox.start(&["exec", "dev", "--", "sh", "-c", "while read x; do echo \"<$x>\"; done"]);
    for word in ["one", "two"] {
        writeln!(child.stdin.as_mut().unwrap(), "{word}").unwrap();
        assert_eq!(first_line(&mut child), format!("<{word}>"));
    }
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn stop_ends_the_processes_of_a_host() {
    let sandbox = ready();
    let mut child = sandbox.start(&["exec", "dev", "--", "sh", "-c", "echo $$; exec sleep 600"]);
    let pid = first_line(&mut child);
    assert_eq!(sandbox.run(&["host", "stop", "dev"]).code, Some(1), "it is somebody's work");
    let _ = sandbox.run(&["host", "stop", "dev", "--force"]).ok();
    wait_until("the program is gone", || !alive(&pid));
    let _ = child.wait();
}
