//! The design's budgets, as ratios against a floor measured in the same run. One command, one table:
//!
//! ```sh
//! cargo bench --bench budgets                # or only some: -- version plan hosts bytes attach
//! ```
//!
//! It needs a Docker engine with `debian:stable-slim` (`tests/run docker` makes one ready).
#![allow(missing_docs, reason = "a program of its own")]
#![allow(unreachable_pub, reason = "support is shared by several test programs")]
#![allow(clippy::print_stdout, reason = "its table is what it is for")]

mod attach;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use simstim::config;
use simstim::model::{FleetId, Listing, Machine, MachineState, Mark, Nonce, Timestamp};
use simstim::plan::{AccountFact, Observed, Policy, plan};
use simstim::provider::Kinds;
use support::Sandbox;

const FLEET: &str = "bench-budgets";

/// One line of the table.
enum Row {
    /// A time, beside a floor or not.
    Timed(Timed),
    /// What was found, what is wanted, and whether it is so.
    Plain([String; 3], bool),
}

struct Timed {
    what: &'static str,
    ours: Duration,
    floor: Option<Duration>,
    budget: Budget,
}

enum Budget {
    /// At most so many times the floor.
    Ratio(f64),
    /// So much more than the floor at most.
    Above(Duration),
    Under(Duration),
    /// Our throughput is at least this part of the floor's.
    Throughput(f64),
    /// The design names none; the throughput is shown.
    None,
}

impl Timed {
    /// What is wanted, and whether it is so.
    fn verdict(&self) -> (String, bool) {
        let floor = self.floor.unwrap_or_default();
        let ratio = self.ours.as_secs_f64() / floor.as_secs_f64();
        match self.budget {
            Budget::Ratio(most) => (format!("≤ {most} ×"), ratio <= most),
            Budget::Above(most) => (format!("≤ {most:?} above"), self.ours <= floor + most),
            Budget::Under(most) => (format!("< {most:?}"), self.ours < most),
            Budget::Throughput(least) => (format!("≥ {least} × as fast"), 1.0 / ratio >= least),
            Budget::None => ("-".into(), true),
        }
    }

    fn ratio(&self) -> String {
        let Some(floor) = self.floor else { return "-".into() };
        let ratio = self.ours.as_secs_f64() / floor.as_secs_f64();
        match self.budget {
            Budget::Throughput(_) | Budget::None => format!("{:.2} × as fast", 1.0 / ratio),
            _ => format!("{ratio:.2} ×"),
        }
    }
}

impl From<Timed> for Row {
    fn from(timed: Timed) -> Self {
        Self::Timed(timed)
    }
}

impl Row {
    fn plain(what: &str, found: String, wanted: &str, holds: bool) -> Self {
        Self::Plain([what.into(), found, wanted.into()], holds)
    }

    fn print(&self) -> bool {
        let (cells, holds) = match self {
            Self::Plain([what, found, wanted], holds) => {
                (format!("{what} | {found} | - | - | {wanted}"), *holds)
            }
            Self::Timed(timed) => {
                let (wanted, holds) = timed.verdict();
                let Timed { what, ours, floor, .. } = timed;
                let floor = floor.map_or("-".into(), |floor| format!("{floor:.1?}"));
                let ratio = timed.ratio();
                (format!("{what} | {ours:.1?} | {floor} | {ratio} | {wanted}"), holds)
            }
        };
        println!("| {cells} | {} |", if holds { "holds" } else { "MISSED" });
        holds
    }
}

/// The median of some runs.
fn median(runs: usize, mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..runs)
        .map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn quiet(program: &str, words: &[&str]) {
    let status = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{program} {words:?}");
}

fn output(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn clean() {
    let filter = format!("label=io.simstim.fleet={FLEET}");
    let ids = output("docker", &["ps", "-aq", "--filter", &filter]);
    let ids: Vec<&str> = ids.lines().collect();
    if !ids.is_empty() {
        quiet("docker", &[&["rm", "-f", "-v"], &ids[..]].concat());
    }
}

fn version() -> Timed {
    let simstim = env!("CARGO_BIN_EXE_simstim");
    Timed {
        what: "`simstim --version` against `docker --version`",
        ours: median(41, || quiet(simstim, &["--version"])),
        floor: Some(median(41, || quiet("docker", &["--version"]))),
        budget: Budget::Ratio(1.0),
    }
}

fn plan_of_100() -> Timed {
    let sandbox = Sandbox::new();
    let mut text = format!("fleet = \"{FLEET}\"\n");
    let mut labels = BTreeMap::new();
    for (key, value) in
        [("made-at", "1"), ("maker", "bench"), ("protected", "false"), ("digest", "x")]
    {
        labels.insert(key, value);
    }
    let mut creates = Vec::new();
    for number in 0..100 {
        let name = format!("bench-{number}");
        text += &format!("[[host]]\nname = \"{name}\"\nprovider = \"docker\"\npower = \"off\"\n");
        let mut words: Vec<String> = ["create", "--name"].map(String::from).to_vec();
        words.push(format!("simstim-{name}"));
        let own = [("fleet", FLEET), ("host", &name), ("nonce", &name)];
        for (key, value) in labels.iter().map(|(key, value)| (*key, *value)).chain(own) {
            words.extend(["--label".into(), format!("io.simstim.{key}={value}")]);
        }
        words.extend(["--cpus", "2", "--memory", "4294967296"].map(String::from));
        words.extend(["debian:stable-slim", "true"].map(String::from));
        creates.push(Command::new("docker").args(words).stdout(Stdio::null()).spawn().unwrap());
        if creates.len() == 4 {
            for mut child in creates.drain(..) {
                assert!(child.wait().unwrap().success());
            }
        }
    }
    sandbox.write("hosts.toml", text);
    let _ = sandbox.run(&["plan", "--detailed-exitcode"]).ok();
    let ours = median(9, || {
        let _ = sandbox.run(&["plan"]);
    });
    let filter = format!("label=io.simstim.fleet={FLEET}");
    let ids = output("docker", &["ps", "-aq", "--no-trunc", "--filter", &filter]);
    let ids: Vec<&str> = ids.lines().collect();
    let floor = median(9, || {
        quiet("docker", &["ps", "-a", "--no-trunc"]);
        quiet("docker", &[&["inspect"], &ids[..]].concat());
    });
    clean();
    Timed {
        what: "plan of 100 Docker hosts against `docker ps` and `docker inspect`",
        ours,
        floor: Some(floor),
        budget: Budget::Ratio(1.5),
    }
}

fn pure_plan(count: usize) -> Duration {
    let mut text = format!("fleet = \"{FLEET}\"\n");
    for number in 0..count {
        text += &format!("[[host]]\nname = \"h{number}\"\nprovider = \"docker\"\n");
    }
    let config = config::read(&text, &Kinds::default().catalog()).unwrap();
    let fleet = FleetId::new(FLEET).unwrap();
    let machines = config.hosts.iter().map(|host| Machine {
        account: host.account.clone(),
        id: format!("id-{}", host.name).parse().unwrap(),
        name: host.machine_name(),
        mark: Mark {
            fleet: fleet.clone(),
            host: host.name.clone(),
            nonce: Nonce::new(host.name.as_str()).unwrap(),
            made_at: Timestamp(1),
            maker: "bench".into(),
            protected: false,
            digest: host.fixed_digest(),
        },
        state: MachineState::Running,
        size: host.size,
        settings: host.machine.clone(),
        architecture: None,
    });
    let listing =
        Listing { identity: "here".into(), machines: machines.collect(), ..Listing::default() };
    let account = config.hosts[0].account.clone();
    let accounts = [(account, AccountFact::Seen(listing))].into();
    let observed = Observed { accounts, ..Observed::default() };
    median(9, || {
        let (plan, asks) = plan(&config, &fleet, &observed, &Policy::default());
        assert!(!plan.has_changes() && asks.is_empty());
    })
}

fn pure_plan_of_10_000() -> Timed {
    Timed {
        what: "pure plan of 10,000 hosts",
        ours: pure_plan(10_000),
        floor: None,
        budget: Budget::Under(Duration::from_millis(100)),
    }
}

fn pure_plan_is_linear() -> Timed {
    Timed {
        what: "pure plan of 10,000 hosts against ten of 1,000",
        ours: pure_plan(10_000),
        floor: Some(10 * pure_plan(1_000)),
        budget: Budget::Ratio(2.0),
    }
}

/// What bootstrap needs at the least: create, start, one exec that takes the upload.
fn by_hand(names: &[String], helper: &std::path::Path) {
    let one = |name: &String| {
        let script = format!(
            "docker create --init --name {name} --label io.simstim.fleet={FLEET} \
             --cpus 1 --memory 256m --entrypoint sleep debian:stable-slim infinity >/dev/null && \
             docker start {name} >/dev/null && \
             docker exec -i {name} sh -c 'cat >/root/x && chmod 700 /root/x' <{}",
            helper.display()
        );
        Command::new("sh").arg("-c").arg(script).spawn().unwrap()
    };
    for group in names.chunks(4) {
        let children: Vec<_> = group.iter().map(one).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
    }
}

fn hosts(count: usize) -> Timed {
    let sandbox = Sandbox::new();
    let helper = sandbox.path("helper");
    let helpers = simstim::helper_client::Helpers::load(None).unwrap();
    let own = helpers.architectures().into_iter().next().unwrap();
    std::fs::write(&helper, helpers.program(&own).unwrap()).unwrap();
    let mut text = format!("fleet = \"{FLEET}\"\n");
    for number in 0..count {
        text += &format!(
            "[[host]]\nname = \"bench-{number}\"\nprovider = \"docker\"\n\
             size = {{ cpus = 1, memory = \"256MiB\" }}\n"
        );
    }
    sandbox.write("hosts.toml", text);
    let names: Vec<String> = (0..count).map(|number| format!("bench-by-hand-{number}")).collect();
    // In turn, so that a busy moment of the computer falls on both.
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let begun = Instant::now();
        let _ = sandbox.run(&["apply", "--yes"]).ok();
        ours.push(begun.elapsed());
        clean();
        let begun = Instant::now();
        by_hand(&names, &helper);
        floor.push(begun.elapsed());
        clean();
    }
    ours.sort_unstable();
    floor.sort_unstable();
    let one = count == 1;
    Timed {
        what: if one {
            "create and bootstrap one Docker host against the same by hand"
        } else {
            "ten Docker hosts against the same by hand, four at a time"
        },
        ours: ours[2],
        floor: Some(floor[2]),
        budget: Budget::Ratio(if one { 1.5 } else { 1.3 }),
    }
}

const BYTES: &str = "536870912";

fn bytes() -> Vec<Row> {
    let sandbox = Sandbox::new();
    sandbox.write(
        "hosts.toml",
        format!("fleet = \"{FLEET}\"\n[[host]]\nname = \"bench\"\nprovider = \"docker\"\n"),
    );
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let run = |mut command: Command| {
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(status.success());
    };
    let shell = |line: &str| {
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).current_dir(sandbox.path("project"));
        command.env("HOME", sandbox.path("home"));
        command
    };
    let simstim = env!("CARGO_BIN_EXE_simstim");
    let raw = "docker exec -i -u user simstim-bench";
    let compare = |ours: &str, floor: &str| {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            a.push(median(1, || run(shell(ours))));
            b.push(median(1, || run(shell(floor))));
        }
        a.sort_unstable();
        b.sort_unstable();
        (a[2], b[2])
    };
    let out = compare(
        &format!("{simstim} exec bench -- head -c {BYTES} /dev/zero </dev/null"),
        &format!("{raw} head -c {BYTES} /dev/zero </dev/null"),
    );
    let into = compare(
        &format!("head -c {BYTES} /dev/zero | {simstim} exec bench -- sh -c 'cat >/dev/null'"),
        &format!("head -c {BYTES} /dev/zero | {raw} sh -c 'cat >/dev/null'"),
    );
    clean();
    let row = |what, (ours, floor)| Timed {
        what,
        ours,
        floor: Some(floor),
        budget: Budget::Throughput(0.8),
    };
    vec![
        row("512 MiB out of a host against raw `docker exec -i`", out).into(),
        row("512 MiB into a host against raw `docker exec -i`", into).into(),
    ]
}

/// Measures one group of budgets.
type Rows = fn() -> Vec<Row>;

fn main() {
    // `cargo test` builds and lists benches too; they run only when asked for.
    if std::env::args().any(|word| word == "--test" || word == "--list") {
        return;
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |group: &str| wanted.is_empty() || wanted.iter().any(|word| word == group);
    clean();
    println!("| what | ours | floor | ratio | budget | |\n|---|---|---|---|---|---|");
    let mut all = true;
    let groups: [(&str, Rows); 5] = [
        ("version", || vec![version().into()]),
        ("plan", || {
            vec![plan_of_100().into(), pure_plan_of_10_000().into(), pure_plan_is_linear().into()]
        }),
        ("hosts", || vec![hosts(1).into(), hosts(10).into()]),
        ("bytes", bytes),
        ("attach", attach::rows),
    ];
    for (_, rows) in groups.into_iter().filter(|(group, _)| wants(group)) {
        for row in rows() {
            all &= row.print();
        }
    }
    assert!(all, "a budget was missed");
}
