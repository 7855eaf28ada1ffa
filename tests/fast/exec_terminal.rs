//! `exec -t` on a `local` host: a terminal for one program.

use crate::attach::Host;

#[test]
fn a_program_in_a_terminal_asks_paints_and_ends_with_its_code() {
    let host = Host::new();
    let script = "stty size; test -t 0 && test -t 1 && test -t 2 && echo all; echo $TERM; \
                  read -r line; echo got $line >&2; exit 42";
    let mut command = host.0.command(&["exec", "-t", "dev", "sh", "-c", script]);
    command.env("TERM", "never-heard-of");
    let mut terminal = crate::support::terminal::Terminal::start(command, 30, 100);
    terminal.shows("all");
    // A name that the machine does not know is of no use to its programs.
    terminal.shows("xterm-256color");
    assert!(terminal.text().contains("30 100"), "{}", terminal.text());
    terminal.type_in(b"words\r");
    assert_eq!(terminal.end(), Some(42));
    assert!(terminal.text().contains("got words"), "{}", terminal.text());
}

#[test]
fn keys_and_sizes_reach_the_program_and_the_terminal_is_put_back() {
    let host = Host::new();
    let script = "trap 'echo interrupted' INT; trap 'stty size' WINCH; echo ready; \
                  while :; do read -r -t 0.2 line && exit 7; done";
    let mut terminal = host.terminal(&["exec", "-t", "dev", "--", "bash", "-c", script]);
    let before = terminal.modes();
    terminal.shows("ready");
    terminal.type_in(b"\x03");
    terminal.shows("interrupted");
    terminal.resize(33, 90);
    terminal.shows("33 90");
    terminal.type_in(b"\r");
    assert_eq!(terminal.end(), Some(7));
    let after = terminal.modes();
    assert_eq!(before.local_modes, after.local_modes);
    assert_eq!(before.input_modes, after.input_modes);
}

#[test]
fn a_terminal_is_needed_a_program_too_and_its_end_is_told_at_once() {
    let host = Host::new();
    let run = host.0.run(&["exec", "-t", "dev", "true"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("this needs a terminal"), "{}", run.stderr);
    let mut terminal = host.terminal(&["exec", "-t", "dev", "no-such-program"]);
    assert_eq!(terminal.end(), Some(127));
    let begun = std::time::Instant::now();
    // What a program leaves behind in its terminal is not waited for without end.
    let mut terminal = host.terminal(&["exec", "-t", "dev", "sh", "-c", "echo bye; exit 3"]);
    assert_eq!(terminal.end(), Some(3));
    assert!(terminal.text().contains("bye"), "{}", terminal.text());
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    // Ctrl-D is the end of what is typed; a signal that kills is told as a shell tells it.
    let mut terminal = host.terminal(&["exec", "-t", "dev", "cat"]);
    terminal.type_in(b"x\r");
    terminal.shows("x\n");
    terminal.type_in(b"\x04");
    assert_eq!(terminal.end(), Some(0));
    let mut terminal = host.terminal(&["exec", "-t", "dev", "sh", "-c", "kill -9 $$"]);
    assert_eq!(terminal.end(), Some(137));
}
