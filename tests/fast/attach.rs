//! Attached terminals on a `local` host: what they show, what is typed, and every way out of them.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use simstim::config;
use simstim::files::Folders;
use simstim::fleet::Computer;
use simstim::helper_client::{Helpers, verdict};
use simstim::model::Span;
use simstim::provider::Kinds;

use crate::support::Sandbox;
use crate::support::terminal::Terminal;

/// A sandbox with a local host, whose sessions end with it.
pub(crate) struct Host(pub(crate) Sandbox);

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.run(&["host", "destroy", "dev", "--yes", "--force"]);
    }
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::within(Sandbox::new())
    }

    pub(crate) fn within(sandbox: Sandbox) -> Self {
        let host = Self(sandbox);
        host.0
            .write("hosts.toml", "fleet = \"f\"\n[[host]]\nname = \"dev\"\nprovider = \"local\"\n");
        let _ = host.0.run(&["apply", "--yes"]).ok();
        host
    }

    pub(crate) fn terminal(&self, words: &[&str]) -> Terminal {
        Terminal::start(self.0.command(words), 24, 80)
    }

    /// What the program in the sandbox sees of its computer.
    pub(crate) fn computer(&self) -> Computer {
        let path = |name: &str| self.0.path("home").join(name);
        Computer {
            folders: Folders {
                state: path(".local/state/simstim"),
                data: path(".local/share/simstim"),
                config: path(".config/simstim"),
            },
            kinds: Kinds::default(),
            helpers: Helpers::load(None).unwrap(),
            maker: "test".into(),
        }
    }

    pub(crate) fn session(&self, name: &str, script: &str) {
        let words = ["new", "dev", "-d", "--name", name, "sh", "-c", script];
        let _ = self.0.run(&words).ok();
    }

    pub(crate) fn state(&self, name: &str) -> String {
        let run = self.0.run(&["ls", "--json"]).ok();
        let value: Value = serde_json::from_slice(&run.bytes).unwrap();
        let sessions = value["hosts"][0]["sessions"].as_array().unwrap().clone();
        let found = sessions.into_iter().find(|session| session["name"] == name).unwrap();
        found["state"].as_str().unwrap().to_owned()
    }
}

const PAINTING: &str = r"printf '\033[?1049h\033[2J\033[3;7H\033[1;38;5;208mcolour\033[0m\033[?2004h'
printf '\033[?1002h\033[?1006h\033[10;1H\033[44mw\303\257de \346\274\242\345\255\227\033[K\033[0m'
printf '\033[24;80H#\033[5;60Hready'; exec cat >/dev/null";

#[test]
fn a_screen_is_right_after_every_process_of_simstim_was_killed() {
    let host = Host::new();
    let mut first = host.terminal(&["new", "dev", "--name", "paint", "--", "sh", "-c", PAINTING]);
    first.shows("ready");
    let before = first.all();
    assert!(before.2, "it is the alternate screen");
    first.kill();
    let mut second = host.terminal(&["attach", "dev/paint"]);
    second.wait("the same screen", |terminal| terminal.all() == before);
    second.type_in(b"\x1c\x1c");
    assert_eq!(second.end(), Some(0));
    assert!(!second.screen.screen().alternate_screen(), "the terminal is left as it was");
}

#[test]
fn leaving_puts_the_terminal_back_and_the_session_goes_on() {
    let host = Host::new();
    host.session("work", "echo begun; exec cat");
    for keys in [&b"\x1c\x1c"[..], b"\r~."] {
        let mut terminal = host.terminal(&["attach"]);
        let before = terminal.modes();
        terminal.shows("begun");
        terminal.type_in(keys);
        assert_eq!(terminal.end(), Some(0));
        assert!(terminal.text().contains("left dev/work, which goes on"), "{}", terminal.text());
        let after = terminal.modes();
        assert_eq!(
            (after.local_modes, after.input_modes),
            (before.local_modes, before.input_modes)
        );
        assert_eq!(host.state("work"), "working");
    }
    let mut terminal = host.terminal(&["attach", "dev/work"]);
    let before = terminal.modes();
    terminal.shows("begun");
    kill_process(Pid::from_child(&terminal.child), Signal::TERM).unwrap();
    assert_eq!(terminal.end(), Some(0));
    assert_eq!(terminal.modes().local_modes, before.local_modes, "on a signal too");
}

#[test]
fn what_scrolled_away_is_printed_first_where_it_is_asked_for() {
    let host = Host::new();
    host.session("count", "seq 1 200; printf ready; exec cat");
    let mut terminal = host.terminal(&["attach", "dev/count", "--scrollback", "50"]);
    terminal.shows("ready");
    assert!(terminal.text().starts_with("178\n"), "{}", terminal.text());
    let screen = terminal.screen.screen_mut();
    screen.set_scrollback(50);
    assert!(screen.contents().starts_with("128\n129\n"), "{}", screen.contents());
    screen.set_scrollback(51);
    assert!(screen.contents().starts_with("\n128\n"), "no more than was asked for");
}

#[test]
fn what_is_typed_arrives_and_the_end_has_a_code() {
    let host = Host::new();
    let script = "stty -echo; echo ready; read a; echo got $a; read b; exit 7";
    let mut terminal = host.terminal(&["new", "dev", "--name", "ask", "--", "sh", "-c", script]);
    terminal.shows("ready");
    terminal.type_in(b"one ~. two\r");
    terminal.shows("got one ~. two");
    terminal.type_in(b"\r");
    assert_eq!(terminal.end(), Some(7));
    assert!(terminal.text().contains("dev/ask ended with code 7"), "{}", terminal.text());
    let mut late = host.terminal(&["attach", "dev/ask"]);
    assert_eq!(late.end(), Some(1));
    assert!(late.text().contains("session `ask` has ended"), "{}", late.text());
    let piped = host.0.run(&["attach", "dev/ask"]);
    assert_eq!(piped.code, Some(2), "{piped}");
}

#[test]
fn several_attach_at_once_and_the_last_to_act_gives_the_size() {
    let host = Host::new();
    let script =
        "trap 'stty size' WINCH; echo ready; while read a; do echo said $a; stty size; done";
    let mut first = host.terminal(&["new", "dev", "--name", "both", "--", "bash", "-c", script]);
    first.shows("ready");
    let mut second = Terminal::start(host.0.command(&["attach", "dev"]), 20, 60);
    second.shows("ready");
    second.type_in(b"hello\r");
    second.shows("20 60");
    first.shows("said hello");
    first.resize(30, 100);
    first.type_in(b"again\r");
    first.shows("30 100");
    second.shows("said again");
    let mut looking = Terminal::start(host.0.command(&["attach", "dev", "--read-only"]), 10, 40);
    looking.wait("the screen", |terminal| {
        terminal.bytes.windows(10).any(|part| part == b"said again")
    });
    looking.type_in(b"never\r\x1c\x1c");
    assert_eq!(looking.end(), Some(0));
    first.type_in(b"last\r");
    first.shows("said last");
    assert!(!first.text().contains("never"));
}

#[test]
fn one_who_stops_reading_holds_nobody_up_and_is_shown_the_end() {
    let host = Host::new();
    host.session("much", "read a; seq 1 300000; echo the end; exec cat");
    let mut stopped = host.terminal(&["attach", "dev"]);
    stopped.type_in(b"\r");
    stopped.shows("1");
    kill_process(Pid::from_child(&stopped.child), Signal::STOP).unwrap();
    let mut other = host.terminal(&["attach", "dev"]);
    other.shows("the end");
    kill_process(Pid::from_child(&stopped.child), Signal::CONT).unwrap();
    stopped.shows("the end");
    stopped.type_in(b"\x1c\x1c");
    assert_eq!(stopped.end(), Some(0));
}

#[test]
fn all_that_is_printed_is_shown_in_order() {
    let host = Host::new();
    let script = "read a; seq 1 500000";
    let mut terminal = host.terminal(&["new", "dev", "--name", "flood", "--", "sh", "-c", script]);
    terminal.type_in(b"\r");
    assert_eq!(terminal.end(), Some(0));
    let text = String::from_utf8_lossy(&terminal.bytes);
    let numbers = text.lines().filter_map(|line| line.trim().parse::<u32>().ok());
    assert!(numbers.eq(1..=500_000));
}

#[test]
fn a_cut_connection_comes_back_by_itself_with_all_that_was_typed_meanwhile() {
    let host = Host::new();
    let script = "stty -echo; echo ready; while read a; do echo got $a; done";
    let mut terminal = host.terminal(&["new", "dev", "--name", "cut", "--", "sh", "-c", script]);
    terminal.shows("ready");
    for turn in 0..5 {
        terminal.type_in(format!("before {turn}\r").as_bytes());
        terminal.cut();
        terminal.type_in(format!("after {turn}\r").as_bytes());
        terminal.shows(&format!("got after {turn}"));
    }
    let got: Vec<String> = terminal.text().lines().map(String::from).collect();
    let expected =
        (0..5).flat_map(|turn| [format!("got before {turn}"), format!("got after {turn}")]);
    let got: Vec<&String> = got.iter().filter(|line| line.starts_with("got ")).collect();
    assert!(got.iter().map(|line| (*line).clone()).eq(expected), "{got:?}");
    terminal.type_in(b"\x1c\x1c");
    assert_eq!(terminal.end(), Some(0));
}

/// Cuts here, and what they happen in; `SIMSTIM_CUTS` asks for more.
fn cuts() -> usize {
    std::env::var("SIMSTIM_CUTS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(25)
}

#[test]
fn output_is_the_same_byte_for_byte_however_often_it_is_cut() {
    let host = Host::new();
    let cuts = cuts();
    // Mebibytes: enough to be cut in the middle of.
    let size = (cuts / 4).clamp(4, 256);
    let script = format!(
        "stty raw -echo; echo ready; read a; seq -f %015.0f 1 {}; read b; exit 5",
        size << 16
    );
    let mut terminal = host.terminal(&["new", "dev", "--name", "cut", "--", "bash", "-c", &script]);
    terminal.shows("ready");
    terminal.type_in(b"x\n");
    let total = size << 20;
    let output = |terminal: &Terminal| {
        let begin = terminal.bytes.windows(16).position(|part| part == b"000000000000001\n");
        terminal.bytes.len() - begin.unwrap_or(terminal.bytes.len())
    };
    let mut begin = None;
    let mut done = 0;
    while done < cuts {
        let goal = total / (cuts + 1) * (done + 1);
        terminal.wait("more output", |terminal| {
            if begin.is_none() {
                begin =
                    Some(terminal.bytes.len() - output(terminal)).filter(|_| output(terminal) > 0);
            }
            begin.is_some_and(|begin| terminal.bytes.len() - begin >= goal)
        });
        terminal.cut();
        done += 1;
    }
    terminal.wait("all output", |terminal| terminal.bytes.len() - begin.unwrap() >= total);
    let expected = (1..=size << 16).map(|number| format!("{number:015}\n"));
    let shown = &terminal.bytes[begin.unwrap()..][..total];
    for (line, expected) in shown.chunks(16).zip(expected) {
        assert_eq!(String::from_utf8_lossy(line), expected);
    }
    terminal.type_in(b"x\n");
    assert_eq!(terminal.end(), Some(5));
}

#[test]
fn what_is_typed_arrives_once_and_in_order_however_often_it_is_cut() {
    let host = Host::new();
    let script = "stty raw -echo; echo ready; exec cat";
    let mut terminal = host.terminal(&["new", "dev", "--name", "cat", "--", "sh", "-c", script]);
    terminal.shows("ready");
    let begin = terminal.bytes.len();
    let mut typed = String::new();
    for turn in 0..cuts() {
        let keys: String = (0..40).map(|key| format!("{turn:04}.{key:02} ")).collect();
        terminal.type_in(keys.as_bytes());
        typed += &keys;
        terminal.cut();
    }
    terminal.type_in(b"the end");
    terminal.wait("the end", |terminal| terminal.bytes.ends_with(b"the end"));
    let shown = String::from_utf8_lossy(&terminal.bytes[begin..]).into_owned();
    let shown = &shown[shown.find("0000.00").unwrap()..];
    assert_eq!(shown, typed + "the end");
}

#[test]
fn those_attached_are_told_before_a_stop_and_any_key_keeps_the_host() {
    let host = Host::new();
    let mut terminal = host.terminal(&["new", "dev", "--name", "sh", "--", "bash", "--norc"]);
    terminal.shows("bash-");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let computer = host.computer();
    let file = config::load(&host.0.path("project/hosts.toml"), &computer.kinds.catalog()).unwrap();
    let fleet = computer.open(&file, &file.config, false).unwrap();
    // As a keeper asks, of a machine whose stop would freeze and not end what runs on it.
    let check = || {
        let (idle_stop, interval) = (Span(Duration::from_secs(4)), Span(Duration::from_secs(1)));
        runtime.block_on(async {
            let mut bridge = fleet.look(&file.config, &"dev".parse().unwrap()).await.unwrap();
            let answer = verdict(&mut bridge, idle_stop, interval, false).await.unwrap();
            bridge.goodbye().await.unwrap();
            answer
        })
    };
    terminal.wait("the warning", |terminal| {
        assert!(!check().stop, "not before it was told");
        terminal.text().contains("any key keeps it")
    });
    assert!(terminal.text().contains("dev stops in "), "{}", terminal.text());
    terminal.type_in(b"echo kept\r");
    terminal.wait("the screen again", |terminal| {
        let text = terminal.text();
        text.contains("\nkept") && !text.contains("any key keeps it")
    });
    let answer = check();
    assert!(!answer.stop && answer.why.contains("last key"), "{answer:?}");
    let why = host.0.run(&["why", "dev"]).ok();
    for words in ["session sh, quiet", "1 attached", "warned: stops in", "create by simstim apply"]
    {
        assert!(why.stdout.contains(words), "{words}: {why}");
    }
    let history = host.0.run(&["history", "dev", "--json"]).ok();
    assert!(history.stdout.contains("\"action\": \"create\""), "{history}");
    terminal.type_in(b"\x1c\x1c");
    assert_eq!(terminal.end(), Some(0));
}
