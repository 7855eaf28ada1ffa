//! `apply --watch` as a real process on `local` hosts: it follows the file, does what a keeper may,
//! and ends when told.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::Sandbox;

const HEAD: &str = "fleet = \"f\"\n[provider.local]\n";
const ONE: &str = "[[host]]\nname = \"one\"\nprovider = \"local\"\n";
const TWO: &str = "[[host]]\nname = \"two\"\nprovider = \"local\"\n";

struct Keeper {
    child: Child,
    lines: Receiver<Value>,
}

impl Keeper {
    fn start(sandbox: &Sandbox) -> Self {
        let mut child = sandbox.start(&["apply", "--watch", "--yes", "--json"]);
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Ok(value) = serde_json::from_str::<Value>(&line)
                    && value.get("keeper").is_some()
                {
                    let _ = sender.send(value);
                }
            }
        });
        let keeper = Self { child, lines };
        keeper.told("keeping", "");
        keeper
    }

    /// The next notice, which must be of this kind and host.
    #[track_caller]
    fn told(&self, kind: &str, host: &str) -> Value {
        let notice = self.lines.recv_timeout(Duration::from_secs(40));
        let notice = notice.unwrap_or_else(|_| panic!("no notice; {kind} of {host} was due"));
        assert_eq!(notice["keeper"], kind, "{notice}");
        assert_eq!(notice["host"].as_str().unwrap_or_default(), host, "{notice}");
        notice
    }

    fn silent_for(&self, span: Duration) {
        if let Ok(notice) = self.lines.recv_timeout(span) {
            panic!("a quiet pass tells nothing, this one: {notice}");
        }
    }

    fn end(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        let begun = Instant::now();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert!(begun.elapsed() < Duration::from_secs(5), "a stop takes at most 5 s");
        self.told("ended", "");
    }
}

#[test]
fn it_follows_the_file_and_leaves_the_rest_to_a_person() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("{HEAD}{ONE}"));
    let keeper = Keeper::start(&sandbox);
    // A second keeper of the fleet is refused, an apply beside it is not.
    let second = sandbox.run(&["apply", "--watch", "--yes"]);
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains("keeps this fleet already"), "{second}");
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    // A new block is made once the file was left alone for ten seconds.
    let begun = Instant::now();
    sandbox.write("hosts.toml", format!("{HEAD}{ONE}{TWO}"));
    keeper.told("file-read", "");
    keeper.told("changed", "two");
    assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
    // Truncated, then written; a broken file is said once and the last good one counts.
    sandbox.write("hosts.toml", "");
    sandbox.write("hosts.toml", format!("{HEAD}{ONE}{TWO}power = on\n"));
    keeper.told("file-broken", "");
    // A removed block is pending, never destroyed. Written by a rename, as many editors do.
    sandbox.write("new.toml", format!("{HEAD}{ONE}"));
    std::fs::rename(sandbox.path("project/new.toml"), sandbox.path("project/hosts.toml")).unwrap();
    keeper.told("file-read", "");
    let pending = keeper.told("pending", "two");
    assert_eq!(pending["action"], "destroy");
    keeper.silent_for(Duration::from_secs(3));
    // Back again: nothing is pending any more.
    sandbox.write("hosts.toml", format!("{HEAD}{ONE}{TWO}"));
    keeper.told("file-read", "");
    keeper.told("resolved", "two");
    // `power = "on"` wakes.
    let _ = sandbox.run(&["host", "stop", "one"]).ok();
    sandbox.write("hosts.toml", format!("{HEAD}{ONE}power = \"on\"\n{TWO}"));
    keeper.told("file-read", "");
    let woken = keeper.told("changed", "one");
    assert_eq!(woken["action"], "wake");
    keeper.end();
    let list = sandbox.run(&["host", "list"]).ok();
    assert_eq!(list.stdout.matches("running").count(), 2, "{list}");
}

#[test]
fn an_interrupt_of_its_first_apply_ends_it() {
    let sandbox = Sandbox::new();
    let hosts: String =
        (0..8).map(|n| format!("[[host]]\nname = \"h{n}\"\nprovider = \"local\"\n")).collect();
    sandbox.write("hosts.toml", format!("fleet = \"f\"\n{hosts}"));
    let mut keeper = sandbox.start(&["apply", "--watch", "--yes", "--parallelism", "1"]);
    let mut lines = BufReader::new(keeper.stderr.take().unwrap()).lines();
    let _ = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("h0: create")));
    kill_process(Pid::from_child(&keeper), Signal::INT).unwrap();
    let reader = std::thread::spawn(move || lines.count());
    let deadline = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = keeper.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            keeper.kill().unwrap();
            panic!("it stayed");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "to be told to end is how it ends");
    let _ = reader.join();
}

#[test]
fn it_makes_no_lost_machine_anew() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("{HEAD}{ONE}"));
    let keeper = Keeper::start(&sandbox);
    std::fs::remove_dir_all(sandbox.path("home/.local/share/simstim/local/f/simstim-one")).unwrap();
    sandbox.write("hosts.toml", format!("# touched\n{HEAD}{ONE}protect = false\n{TWO}"));
    keeper.told("file-read", "");
    let pending = keeper.told("pending", "one");
    assert!(pending["why"].as_str().unwrap().contains("LOST"), "{pending}");
    keeper.told("changed", "two");
    keeper.end();
}

#[test]
fn it_ends_when_the_file_names_another_fleet() {
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", format!("{HEAD}{ONE}"));
    let mut keeper = Keeper::start(&sandbox);
    sandbox.write("hosts.toml", format!("{HEAD}{ONE}").replace("\"f\"", "\"g\""));
    assert_eq!(keeper.child.wait().unwrap().code(), Some(1));
    keeper.told("ended", "");
}
