//! Attached terminals on a `local` host: what they show, what is typed, and every way out of them.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::Sandbox;
use crate::support::terminal::Terminal;

struct Host(Sandbox);

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.run(&["host", "destroy", "dev", "--yes", "--force"]);
    }
}

impl Host {
    fn new() -> Self {
        let host = Self(Sandbox::new());
        host.0
            .write("hosts.toml", "fleet = \"f\"\n[[host]]\nname = \"dev\"\nprovider = \"local\"\n");
        let _ = host.0.run(&["apply", "--yes"]).ok();
        host
    }

    fn terminal(&self, words: &[&str]) -> Terminal {
        Terminal::start(self.0.command(words), 24, 80)
    }

    fn session(&self, name: &str, script: &str) {
        let words = ["new", "dev", "-d", "--name", name, "sh", "-c", script];
        let _ = self.0.run(&words).ok();
    }

    fn state(&self, name: &str) -> String {
        let run = self.0.run(&["ls", "--json"]).ok();
        let value: Value = serde_json::from_slice(&run.bytes).unwrap();
        let sessions = value["hosts"][0]["sessions"].as_array().unwrap().clone();
        let found = sessions.into_iter().find(|session| session["name"] == name).unwrap();
        found["state"].as_str().unwrap().to_owned()
    }
}

/// All that a terminal shows: cells with their colours, cursor, modes.
fn all(terminal: &Terminal) -> (String, (u16, u16), bool, String) {
    let screen = terminal.screen.screen();
    let modes = screen.input_mode_formatted();
    (screen.contents_formatted(), screen.cursor_position(), screen.alternate_screen(), modes)
}

const PAINTING: &str = r"printf '\033[?1049h\033[2J\033[3;7H\033[1;38;5;208mcolour\033[0m\033[?2004h'
printf '\033[?1002h\033[?1006h\033[10;1H\033[44mw\303\257de \346\274\242\345\255\227\033[K\033[0m'
printf '\033[24;80H#\033[5;60Hready'; exec cat >/dev/null";

#[test]
fn a_screen_is_right_after_every_process_of_simstim_was_killed() {
    let host = Host::new();
    let mut first = host.terminal(&["new", "dev", "--name", "paint", "--", "sh", "-c", PAINTING]);
    first.shows("ready");
    let before = all(&first);
    assert!(before.2, "it is the alternate screen");
    first.kill();
    let mut second = host.terminal(&["attach", "dev/paint"]);
    second.wait("the same screen", |terminal| all(terminal) == before);
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
