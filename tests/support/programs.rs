//! Programs that paint whole screens, left and found again: the same on every kind of machine.

use super::Sandbox;
use super::terminal::Terminal;

struct Session<'a> {
    sandbox: &'a Sandbox,
    host: &'a str,
    name: &'a str,
}

impl Session<'_> {
    fn start(&self, words: &[&str]) -> Terminal {
        let new = ["new", self.host, "--name", self.name, "--"];
        let words: Vec<&str> = new.iter().chain(words).copied().collect();
        Terminal::start(self.sandbox.command(&words), 24, 80)
    }

    /// Kills every process that shows the session, and looks at it from another terminal.
    fn lose(&self, mut shown: Terminal) -> Terminal {
        shown.settle();
        let before = shown.all();
        shown.kill_with_children();
        let path = format!("{}/{}", self.host, self.name);
        let mut again = Terminal::start(self.sandbox.command(&["attach", &path]), 24, 80);
        again.wait("the same cells, cursor and modes", |again| again.all() == before);
        again
    }
}

/// An editor: the alternate screen, its colours, and keys that arrive after a loss.
pub fn an_editor_is_found_as_it_was_left(sandbox: &Sandbox, host: &str) {
    let session = Session { sandbox, host, name: "editor" };
    let settings = "set noswapfile t_Co=256 background=dark | highlight NonText ctermfg=208";
    let mut vim = session.start(&["vim.tiny", "-u", "NONE", "-N", "-c", settings, "notes.txt"]);
    vim.shows("\n~");
    vim.type_in(b"ione line \xe6\xbc\xa2\xe5\xad\x97\rand another\x1b");
    vim.wait("the text, and no insert mode", |vim| {
        vim.text().contains("and another") && !vim.text().contains("INSERT")
    });
    assert!(vim.screen.screen().alternate_screen());
    assert!(vim.screen.screen().contents_formatted().contains("38;5;208"), "256 colours");
    let mut vim = session.lose(vim);
    vim.type_in(b"oafter it all\x1b:wq\r");
    assert_eq!(vim.end(), Some(0));
    let text = sandbox.run(&["exec", host, "--", "cat", "notes.txt"]).ok().stdout;
    assert_eq!(text, "one line \u{6f22}\u{5b57}\nand another\nafter it all\n");
}

/// A program that paints by itself, and hears the mouse.
pub fn a_process_viewer_is_found_as_it_was_left(sandbox: &Sandbox, host: &str) {
    let session = Session { sandbox, host, name: "viewer" };
    // It paints anew every ten seconds: in between nothing may change.
    let mut htop = session.start(&["htop", "--delay=100"]);
    htop.shows("Quit");
    htop.type_in(b"/");
    htop.shows("Search:");
    let mut htop = session.lose(htop);
    htop.type_in(b"\x1b");
    htop.wait("no search", |htop| !htop.text().contains("Search:"));
    htop.type_in(b"q");
    assert_eq!(htop.end(), Some(0));
}

/// A multiplexer within the session, with two panes.
pub fn a_multiplexer_works_inside(sandbox: &Sandbox, host: &str) {
    let session = Session { sandbox, host, name: "panes" };
    let mut tmux = session.start(&[
        "tmux",
        "-u",
        "-f",
        "/dev/null",
        "new",
        "-s",
        "in",
        "env PS1='$ ' sh",
        ";",
        "set",
        "status-right",
        "",
        ";",
        // Keys in quick succession are keys, not a paste.
        "set",
        "assume-paste-time",
        "0",
    ]);
    tmux.shows("[in]");
    tmux.type_in(b"echo left $((40 + 2))\r");
    tmux.shows("left 42");
    tmux.type_in(b"\x02%");
    tmux.shows("\u{2502}");
    tmux.type_in(b"PS1='> '; clear; echo right $((50 + 5))\r");
    tmux.shows("right 55\n");
    tmux.wait("both panes", |tmux| tmux.text().contains("left 42") && tmux.text().contains("> "));
    let mut tmux = session.lose(tmux);
    tmux.type_in(b"\x02d");
    assert_eq!(tmux.end(), Some(0));
}

const RAW: &str = r"stty raw -echo; printf '\033[?1049h\033[?1000h\033[?1006h\033[?2004hready'
head -c 27 | od -An -c -w27 | tr -d ' \n'; printf ' end'; read never";

/// What a terminal sends of a click and a paste reaches the program whole.
pub fn a_click_and_a_paste_arrive_as_they_were(sandbox: &Sandbox, host: &str) {
    let session = Session { sandbox, host, name: "raw" };
    let mut raw = session.start(&["sh", "-c", RAW]);
    raw.shows("ready");
    let mut raw = session.lose(raw);
    let modes = raw.screen.screen();
    assert!(modes.bracketed_paste() && modes.alternate_screen());
    assert_eq!(modes.mouse_protocol_mode(), vt100::MouseProtocolMode::PressRelease);
    assert_eq!(modes.mouse_protocol_encoding(), vt100::MouseProtocolEncoding::Sgr);
    raw.type_in(b"\x1b[<0;12;5M");
    raw.type_in(b"\x1b[200~paste\x1b[201~");
    raw.shows(r"033[<0;12;5M033[200~paste033[201~ end");
}
