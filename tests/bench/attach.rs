//! What an attached terminal costs, beside `docker exec -it` with a terminal of its own.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use schema::frame::Encoder;
use schema::message::{Body, CheckIdle, Welcome};

use crate::support::Sandbox;
use crate::support::terminal::Terminal;
use crate::{Budget, FLEET, Row, Timed, clean, median, output};

const NAME: &str = "simstim-bench";
/// Says what it is given, byte by byte.
const ECHO: &str = "stty raw -echo; printf ready; exec cat";
const KEYS: usize = 300;
const BYTES: usize = 256 << 20;

pub fn rows() -> Vec<Row> {
    let sandbox = Sandbox::new();
    let text = format!("fleet = \"{FLEET}\"\n[[host]]\nname = \"bench\"\nprovider = \"docker\"\n");
    sandbox.write("hosts.toml", text);
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let rows = vec![
        first_paint(&sandbox).into(),
        echo(&sandbox).into(),
        at_rest(),
        bytes(&sandbox).into(),
        idle_check(),
    ];
    clean();
    rows
}

fn attach(sandbox: &Sandbox, words: &[&str]) -> Terminal {
    Terminal::start(sandbox.command(words), 24, 80)
}

fn by_hand(script: &str) -> Terminal {
    let mut command = Command::new("docker");
    command.args(["exec", "-it", "-u", "user", NAME, "sh", "-c", script]);
    Terminal::start(command, 24, 80)
}

fn session(sandbox: &Sandbox, name: &str, script: &str) {
    let _ = sandbox.run(&["new", "bench", "-d", "--name", name, "sh", "-c", script]).ok();
}

fn first_paint(sandbox: &Sandbox) -> Timed {
    session(sandbox, "echo", ECHO);
    let ours = median(21, || {
        let mut terminal = attach(sandbox, &["attach", "bench/echo"]);
        terminal.shows("ready");
        terminal.kill();
    });
    let floor = median(21, || drop(sandbox.run(&["exec", "bench", "--", "true"]).ok()));
    Timed {
        what: "attach to the first paint, against an `exec` of nothing",
        ours,
        floor: Some(floor),
        budget: Budget::Ratio(1.3),
    }
}

/// From a key to its echo: the median of many.
fn keys(mut terminal: Terminal) -> Duration {
    terminal.shows("ready");
    terminal.settle();
    let mut times: Vec<Duration> = (0..KEYS)
        .map(|_| {
            let (begun, seen) = (Instant::now(), terminal.bytes.len());
            terminal.type_in(b"k");
            terminal.wait("its echo", |terminal| terminal.bytes.len() > seen);
            begun.elapsed()
        })
        .collect();
    terminal.kill();
    times.sort_unstable();
    times[KEYS / 2]
}

fn echo(sandbox: &Sandbox) -> Timed {
    Timed {
        what: "echo of one key, against `docker exec -it`",
        ours: keys(attach(sandbox, &["attach", "bench/echo"])),
        floor: Some(keys(by_hand(ECHO))),
        budget: Budget::Above(Duration::from_millis(1)),
    }
}

/// The holder of a session that has printed a screen full.
fn at_rest() -> Row {
    let pids = output("pgrep", &["-f", "simstim-host.* holder|/proc/self/exe holder"]);
    let resident = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let kilobytes = pids.lines().filter_map(resident).max().expect("a session is held");
    Row::plain("helper at rest", format!("{kilobytes} kB"), "≤ 3 MB", kilobytes <= 3000)
}

/// From the first to the last byte of much output.
fn much(mut terminal: Terminal) -> Duration {
    terminal.shows("ready");
    let begun = Instant::now();
    terminal.type_in(b"\n");
    terminal.swallow(BYTES);
    let took = begun.elapsed();
    terminal.kill();
    took
}

fn bytes(sandbox: &Sandbox) -> Timed {
    let script = format!(
        "stty raw -echo; printf ready; read -r a; head -c {BYTES} /dev/zero | tr '\\0' x; exec cat"
    );
    session(sandbox, "much", &script);
    Timed {
        what: "256 MiB to an attached terminal, against `docker exec -it`",
        ours: much(attach(sandbox, &["attach", "bench/much"])),
        floor: Some(much(by_hand(&script))),
        budget: Budget::None,
    }
}

/// The CPU time of one bridge that is asked whether its machine is idle, on this computer.
fn idle_check() -> Row {
    const TIMES: u32 = 20;
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", "fleet = \"f\"\n[[host]]\nname = \"dev\"\nprovider = \"local\"\n");
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let _ = sandbox.run(&["new", "dev", "-d", "--", "sleep", "1000"]).ok();
    let home = sandbox.path("home/.local/share/simstim/local/f/simstim-dev/home");
    let mut encoder = Encoder::default();
    let mut frames = Vec::new();
    let version = String::new();
    for body in [
        Body::Welcome(Welcome { protocol: *schema::PROTOCOL.end(), version }),
        Body::CheckIdle(CheckIdle { idle_stop: 3600, ..CheckIdle::default() }),
    ] {
        encoder.encode(body, &mut frames).unwrap();
    }
    let said = sandbox.path("frames");
    std::fs::write(&said, frames).unwrap();
    let script = format!(
        "TIMEFORMAT='%3U %3S'; h=$(ls .local/share/simstim/bin/simstim-host-* | head -1); \
         time for n in $(seq {TIMES}); do $h bridge look m <\"$1\" >\"$2\"; done"
    );
    let answers = sandbox.path("answers");
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).arg("bash").arg(said).arg(&answers).current_dir(&home);
    let output = command.env("HOME", &home).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let answered = std::fs::read(&answers).unwrap().len() > 100;
    assert!(output.status.success() && answered, "{text}");
    let seconds: f64 = text.split_whitespace().map(|word| word.parse::<f64>().unwrap()).sum();
    let each = Duration::from_secs_f64(seconds) / TIMES;
    let _ = sandbox.run(&["host", "destroy", "dev", "--yes", "--force"]);
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let there = pids.filter_map(Pid::from_raw).count();
    let shown = format!("{each:.1?} with {there} processes");
    Row::plain("idle check, CPU", shown, "≤ 20 ms", each <= Duration::from_millis(20))
}
