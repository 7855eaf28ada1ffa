//! Sessions on a `local` host, with real processes: they outlive everything, say what they do, and
//! keep their machine from being ended.

use std::io::Read as _;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Run, Sandbox};

fn ready() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", "fleet = \"f\"\n[[host]]\nname = \"dev\"\nprovider = \"local\"\n");
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    sandbox
}

/// A sandbox whose sessions end with it.
struct Host(Sandbox);

impl std::ops::Deref for Host {
    type Target = Sandbox;
    fn deref(&self) -> &Sandbox {
        &self.0
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.run(&["host", "destroy", "dev", "--yes", "--force"]);
    }
}

impl Host {
    fn new() -> Self {
        Self(ready())
    }

    #[track_caller]
    fn start(&self, name: &str, command: &[&str]) {
        let words = [&["new", "dev", "--detach", "--name", name, "--"], command].concat();
        let run = self.run(&words).ok();
        assert_eq!(run.stdout, format!("dev/{name}\n"));
    }

    fn sessions(&self) -> Vec<Value> {
        let run = self.run(&["ls", "--json"]).ok();
        let value: Value = serde_json::from_slice(&run.bytes).unwrap();
        value["hosts"][0]["sessions"].as_array().unwrap_or_else(|| panic!("{run}")).clone()
    }

    fn session(&self, name: &str) -> Value {
        let found = self.sessions().into_iter().find(|session| session["name"] == name);
        found.unwrap_or_else(|| panic!("no session {name}"))
    }

    fn state(&self, name: &str) -> String {
        self.session(name)["state"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn becomes(&self, name: &str, state: &str) {
        wait_until(&format!("{name} is {state}: {}", self.session(name)), || {
            self.state(name) == state
        });
    }

    fn log(&self, name: &str) -> String {
        self.run(&["logs", &format!("dev/{name}")]).ok().stdout
    }

    fn machine_home(&self) -> std::path::PathBuf {
        self.path("home/.local/share/simstim/local/f/simstim-dev/home")
    }
}

/// Waits for what another process is about to do; the deadline only ends a failed test.
#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

fn parent(pid: i64) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Words of a shell that wait for a file to appear, so that a test says when they go on.
fn until(file: &str) -> String {
    format!("while [ ! -e ~/{file} ]; do sleep 0.05; done")
}

impl Host {
    fn touch(&self, file: &str) {
        std::fs::write(self.machine_home().join(file), "").unwrap();
    }
}

#[test]
fn a_session_outlives_the_death_of_every_client() {
    let host = Host::new();
    host.start("work", &["sh", "-c", &format!("echo begun; {}; echo done; exit 5", until("go"))]);
    let mut clients = [
        host.0.start(&["logs", "-f", "dev/work"]),
        host.0.start(&["exec", "dev", "--", "sleep", "600"]),
    ];
    let mut begun = [0; 5];
    clients[0].stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"begun");
    for client in &mut clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    assert_eq!(host.state("work"), "working");
    assert_eq!(host.log("work"), "begun\r\n");
    host.touch("go");
    host.becomes("work", "ended");
    let session = host.session("work");
    assert_eq!(session["code"], 5);
    assert_eq!(host.log("work"), "begun\r\ndone\r\n", "the log stays");
}

#[test]
fn a_followed_log_ends_with_its_session() {
    let host = Host::new();
    host.start("work", &["sh", "-c", &format!("echo one; {}; echo two", until("go"))]);
    let mut follow = host.0.start(&["logs", "--follow", "dev"]);
    let mut first = [0; 5];
    follow.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    host.touch("go");
    let output = follow.wait_with_output().unwrap();
    assert_eq!((&first[..], &output.stdout[..]), (&b"one\r\n"[..], &b"two\r\n"[..]));
    assert!(output.status.success());
}

#[test]
fn a_working_session_keeps_its_machine() {
    let host = Host::new();
    host.start("work", &["sleep", "900"]);
    let refused = |words: &[&str]| -> Run {
        let run = host.run(words);
        assert_eq!(run.code, Some(1), "{run}");
        assert!(run.said().contains("session work is working"), "{run}");
        run
    };
    let _ = refused(&["host", "destroy", "dev", "--yes"]);
    let _ = refused(&["host", "stop", "dev"]);
    host.write("hosts.toml", "fleet = \"f\"\n[provider.local]\n");
    let _ = refused(&["apply", "--yes"]);
    host.write(
        "hosts.toml",
        "fleet = \"f\"\n[[host]]\nname = \"dev\"\nprovider = \"local\"\npower = \"off\"\n",
    );
    let _ = refused(&["apply", "--yes"]);
    host.write("hosts.toml", "fleet = \"f\"\n[[host]]\nname = \"dev\"\nprovider = \"local\"\n");
    assert_eq!(host.state("work"), "working");
    let _ = host.run(&["kill", "dev/work"]).ok();
    assert_eq!(host.state("work"), "ended");
    let _ = host.run(&["host", "stop", "dev"]).ok();
    let ls = host.run(&["ls"]).ok();
    assert_eq!(ls.stdout, "dev: stopped\n", "looking wakes nothing");
    let logs = host.run(&["logs", "dev/work"]);
    assert_eq!(logs.code, Some(1), "{logs}");
    let _ = host.run(&["host", "destroy", "dev", "--yes"]).ok();
}

#[test]
fn force_says_what_it_ends() {
    let host = Host::new();
    host.start("work", &["sleep", "900"]);
    let run = host.run(&["host", "destroy", "dev", "--yes", "--force"]).ok();
    assert!(run.said().contains("--force ENDS WORK in: work"), "{run}");
}

#[test]
fn states_of_real_processes() {
    let host = Host::new();
    std::fs::write(
        host.machine_home().join(".bashrc"),
        "[ -n \"$BUSY\" ] && (while :; do :; done) &\n",
    )
    .unwrap();
    host.start("sleep", &["sleep", "900"]);
    host.start("busy", &["sh", "-c", "while :; do :; done"]);
    host.start("tail", &["tail", "-f", "/dev/null"]);
    host.start("shell", &["bash"]);
    host.start("server", &["sh", "-c", "while :; do echo tick; sleep 1; done"]);
    host.start("group", &["sh", "-c", "set -m; sleep 900 & wait"]);
    host.start("forked", &["sh", "-c", "setsid sleep 900 & exit 3"]);
    host.start("background", &["env", "BUSY=1", "bash"]);
    for (name, state) in [
        ("sleep", "working"),
        ("busy", "working"),
        ("tail", "working"),
        ("shell", "quiet"),
        ("server", "working"),
        ("group", "working"),
        ("forked", "ended"),
    ] {
        host.becomes(name, state);
    }
    let evidence = |name: &str| host.session(name)["evidence"].as_str().unwrap().to_owned();
    assert!(evidence("busy").contains("of CPU"), "{}", evidence("busy"));
    assert!(evidence("sleep").contains("sleep runs"), "{}", evidence("sleep"));
    assert!(evidence("shell").contains("nothing runs in its shell"), "{}", evidence("shell"));
    assert_eq!(host.session("forked")["code"], 3);
}

#[test]
fn a_background_job_of_an_idle_shell_works_by_its_cpu() {
    let host = Host::new();
    let bashrc = "(while :; do :; done) &\n";
    std::fs::write(host.machine_home().join(".bashrc"), bashrc).unwrap();
    host.start("shell", &["bash"]);
    host.becomes("shell", "working");
    let evidence = host.session("shell")["evidence"].as_str().unwrap().to_owned();
    assert!(evidence.contains("of CPU"), "{evidence}");
    let _ = host.run(&["kill", "dev/shell"]).ok();
}

#[test]
fn an_editor_that_waits_for_keys_counts_as_its_own_program() {
    let host = Host::new();
    host.start("edit", &["vi", "file"]);
    host.becomes("edit", "working");
    let evidence = host.session("edit")["evidence"].as_str().unwrap().to_owned();
    assert!(evidence.contains("vi runs") || evidence.contains("of CPU"), "{evidence}");
}

#[test]
fn an_agents_own_report_comes_first_and_ends_with_its_process() {
    let host = Host::new();
    let script = format!(
        "simstim-host mark waiting; {}; simstim-host mark working; {}; exit 0",
        until("a"),
        until("b")
    );
    host.start("agent", &["sh", "-c", &script]);
    host.becomes("agent", "waiting");
    let _ = host.run(&["exec", "dev", "--", "true"]).ok();
    host.touch("a");
    host.becomes("agent", "working");
    let evidence = host.session("agent")["evidence"].as_str().unwrap().to_owned();
    assert!(evidence.contains("its agent says working"), "{evidence}");
    host.touch("b");
    host.becomes("agent", "ended");
}

#[test]
fn a_hold_is_shown_and_guards_like_work() {
    let host = Host::new();
    let helper = "~/.local/share/simstim/bin/simstim-host";
    let hold = format!("{helper} hold 2h --why 'a long copy'");
    let _ = host.run(&["exec", "dev", "--", "sh", "-c", &hold]).ok();
    let session = host.session("(hold)");
    assert_eq!(session["state"], "working");
    assert!(session["evidence"].as_str().unwrap().contains("a long copy"), "{session}");
    assert_eq!(host.run(&["host", "stop", "dev"]).code, Some(1));
    let bad = host.run(&["exec", "dev", "--", "sh", "-c", &format!("{helper} hold 99d --why x")]);
    assert_eq!(bad.code, Some(2), "{bad}");
}

#[test]
fn a_killed_holder_ends_its_session_and_leaves_the_log() {
    let host = Host::new();
    host.start("work", &["sh", "-c", "echo kept; exec sleep 900"]);
    wait_until("it printed", || host.log("work") == "kept\r\n");
    let pid = host.session("work")["pid"].as_i64().unwrap();
    kill(parent(pid));
    host.becomes("work", "ended");
    assert_eq!(host.log("work"), "kept\r\n");
    wait_until("its program is hung up", || {
        !std::path::Path::new(&format!("/proc/{pid}/fd/0")).exists()
    });
}

#[test]
fn a_stopped_holder_reads_as_working() {
    let host = Host::new();
    host.start("work", &["bash"]);
    host.becomes("work", "quiet");
    let pid = host.session("work")["pid"].as_i64().unwrap();
    let holder = Pid::from_raw(parent(pid)).unwrap();
    kill_process(holder, Signal::STOP).unwrap();
    let session = host.session("work");
    kill_process(holder, Signal::CONT).unwrap();
    assert_eq!(session["state"], "working", "what cannot be asked may be at work");
    assert!(session["evidence"].as_str().unwrap().contains("does not answer"), "{session}");
}

#[test]
fn names_are_chosen_taken_and_set_aside() {
    let host = Host::new();
    let names: Vec<String> =
        (0..2).map(|_| host.run(&["new", "dev", "-d", "--", "sleep", "900"]).ok().stdout).collect();
    assert_eq!(names, ["dev/sleep\n", "dev/sleep-2\n"]);
    let taken = host.run(&["new", "dev", "-d", "--name", "sleep", "--", "true"]);
    assert!(taken.stderr.contains("there is a session `sleep` already"), "{taken}");
    let bad = host.run(&["new", "dev", "-d", "--name", "../x", "--", "true"]);
    assert_eq!(bad.code, Some(2), "{bad}");
    assert!(bad.stderr.contains("does not begin with `.`"), "{bad}");
    let missing = host.run(&["new", "dev", "-d", "--", "no-such-program"]);
    assert!(missing.stderr.contains("there is no such program"), "{missing}");
    host.start("once", &["sh", "-c", "echo first"]);
    host.becomes("once", "ended");
    host.start("once", &["sh", "-c", "echo second"]);
    host.becomes("once", "ended");
    assert_eq!((host.log("once-old"), host.log("once")), ("first\r\n".into(), "second\r\n".into()));
    let several = host.run(&["logs", "dev"]);
    assert_eq!(several.code, Some(2));
    assert!(several.stderr.contains("dev/sleep-2"), "{several}");
}

#[test]
fn a_long_log_keeps_its_end_and_says_so() {
    let host = Host::new();
    let script = "yes 0123456789abcdef | head -c 20000000; echo; echo the end";
    host.start("much", &["sh", "-c", script]);
    host.becomes("much", "ended");
    let run = host.run(&["logs", "dev/much"]).ok();
    assert!(run.stdout.ends_with("the end\r\n"));
    assert!(run.bytes.len() <= 16 << 20, "{} bytes", run.bytes.len());
    assert!(run.bytes.len() > 15 << 20, "{} bytes", run.bytes.len());
    assert!(run.stderr.contains("bytes are not kept any more"), "{run:?}");
}

#[test]
fn the_terminal_is_a_terminal_and_the_environment_is_right() {
    let host = Host::new();
    let script = "tty >/dev/null && echo tty; stty size; echo $TERM $SIMSTIM_SESSION; pwd; \
                  test \"$PWD\" = \"$HOME\" && test -n \"$LANG$LC_ALL$LC_CTYPE\" && echo at home";
    host.start("env", &["sh", "-c", script]);
    host.becomes("env", "ended");
    let log = host.log("env");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[..3], ["tty", "24 80", "xterm-256color env"], "{log}");
    assert!(lines[3].ends_with("/simstim-dev/home"), "{log}");
    assert_eq!(lines[4..], ["at home"], "{log}");
}

#[test]
fn a_holder_at_rest_is_small() {
    let host = Host::new();
    host.start("rest", &["bash"]);
    host.becomes("rest", "quiet");
    let holder = parent(host.session("rest")["pid"].as_i64().unwrap());
    let status = std::fs::read_to_string(format!("/proc/{holder}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes <= 3 * 1024, "the design's budget is 3 MB a session, this is {kilobytes} kB");
}

#[test]
fn a_signal_reaches_what_runs() {
    let host = Host::new();
    let script = "trap 'echo caught' USR1; echo ready; while :; do sleep 0.05; done";
    host.start("trap", &["sh", "-c", script]);
    wait_until("it is ready", || host.log("trap").contains("ready"));
    let _ = host.run(&["kill", "dev/trap", "--signal", "usr1"]).ok();
    wait_until("it caught the signal", || host.log("trap").contains("caught"));
    let bad = host.run(&["kill", "dev/trap", "--signal", "NOPE"]);
    assert_eq!(bad.code, Some(2), "{bad}");
    host.start("deaf", &["sh", "-c", "trap '' HUP; echo ready; while :; do sleep 0.05; done"]);
    wait_until("it is ready", || host.log("deaf").contains("ready"));
    let run = host.run(&["kill", "dev/deaf", "--json"]).ok();
    let value: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(value["state"], "ended", "what ignores the hang-up is killed");
}

#[test]
fn many_sessions_are_all_listed() {
    let host = Host::new();
    let script = "for n in $(seq 70); do echo $n; done";
    host.start("first", &["sh", "-c", script]);
    let mut starts = Vec::new();
    for number in 0..70 {
        let name = format!("s{number}");
        let child = host.0.start(&["new", "dev", "-d", "--name", &name, "--", "sleep", "900"]);
        starts.push(child);
        if starts.len() == 10 {
            for child in starts.drain(..) {
                assert!(child.wait_with_output().unwrap().status.success());
            }
        }
    }
    let working = host.sessions().iter().filter(|session| session["state"] == "working").count();
    assert_eq!(working, 70);
}

#[test]
fn a_killed_session_leaves_nothing_behind() {
    let host = Host::new();
    let script = "trap '' HUP; (trap '' HUP; exec sleep 777) & echo $!; exec sleep 888";
    host.start("nohup", &["sh", "-c", script]);
    wait_until("it printed", || !host.log("nohup").is_empty());
    let pid = host.log("nohup").trim().to_owned();
    let _ = host.run(&["kill", "dev/nohup"]).ok();
    wait_until("what ignores a hang-up is killed", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
}

#[test]
fn output_right_after_the_end_is_kept() {
    let host = Host::new();
    host.start("late", &["sh", "-c", "trap '' HUP; (sleep 0.02; echo LATE) & echo EARLY"]);
    host.becomes("late", "ended");
    assert_eq!(host.log("late"), "EARLY\r\nLATE\r\n");
}

#[test]
fn a_slow_reader_gets_the_whole_log() {
    let host = Host::new();
    host.start("much", &["sh", "-c", "yes 0123456789abcdef | head -c 4000000"]);
    host.becomes("much", "ended");
    let mut child = host.0.start(&["logs", "dev/much"]);
    let mut stdout = child.stdout.take().unwrap();
    let (mut total, mut buffer) = (0, vec![0; 400_000]);
    loop {
        let read = stdout.read(&mut buffer).unwrap();
        if read == 0 {
            break;
        }
        total += read;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().unwrap().success());
    // A line feed of the program is two bytes in its terminal.
    assert_eq!(total, 4_000_000 + 4_000_000 / 17);
}

#[test]
fn a_running_command_guards_its_machine_like_work() {
    let host = Host::new();
    let mut exec = host.0.start(&["exec", "dev", "--", "sh", "-c", "echo up; exec sleep 600"]);
    let mut up = [0; 2];
    exec.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    let refused = host.run(&["host", "stop", "dev"]);
    assert!(refused.said().contains("session (exec) is working"), "{refused}");
    exec.kill().unwrap();
    exec.wait().unwrap();
    wait_until("it may be stopped then", || host.run(&["host", "stop", "dev"]).code == Some(0));
}

#[test]
fn a_hold_can_be_released() {
    let host = Host::new();
    let _ = host.run(&["exec", "dev", "--", "simstim-host", "hold", "2h", "--why", "x"]).ok();
    assert_eq!(host.session("(hold)")["state"], "working");
    let _ = host.run(&["exec", "dev", "--", "simstim-host", "release"]).ok();
    assert!(host.sessions().is_empty());
}

#[test]
fn after_a_restart_sessions_go_on_that_know_how() {
    let host = Host::new();
    let words = ["new", "dev", "-d", "--name", "agent", "--resume", "echo again; exec cat", "--"];
    let _ = host.run(&[&words[..], &["sh", "-c", "echo begun; exec cat"]].concat()).ok();
    host.start("plain", &["cat"]);
    let killed = host.run(&["new", "dev", "-d", "--name", "killed", "--resume", "cat", "cat"]).ok();
    assert!(killed.stderr.contains("no memory cap of its own"), "{killed}");
    let pid = host.session("killed")["pid"].as_i64().unwrap();
    kill_process(Pid::from_raw(parent(pid)).unwrap(), Signal::KILL).unwrap();
    host.becomes("killed", "ended");
    assert_eq!(host.session("killed")["evidence"], "its holder was killed, or its memory ran out");
    for turn in 1..3 {
        let _ = host.run(&["host", "stop", "dev", "--force"]).ok();
        let _ = host.run(&["host", "start", "dev"]).ok();
        host.becomes("agent", "working");
        let restart =
            "\r\n[its machine was restarted; this is: sh -c echo again; exec cat]\r\nagain\r\n";
        let mut log = host.log("agent");
        for _ in 0..50 {
            if log.ends_with("again\r\n") && log.matches("again\r\n").count() == 2 * turn {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            log = host.log("agent");
        }
        assert_eq!(log, "begun\r\n".to_owned() + &restart.repeat(turn));
    }
    let plain = host.session("plain");
    assert_eq!(plain["state"], "ended");
    assert_eq!(plain["evidence"], "its machine was stopped or restarted");
    assert_eq!(host.session("killed")["state"], "working", "it is restored with its machine");
    assert_eq!(host.run(&["kill", "dev/agent"]).ok().code, Some(0));
    let _ = host.run(&["host", "stop", "dev", "--force"]).ok();
    let _ = host.run(&["host", "start", "dev"]).ok();
    assert_eq!(host.session("agent")["state"], "ended", "what was ended stays ended");
}
