//! A person's terminal: a pseudo-terminal, and an emulator that shows what was printed on it.

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// A program in a terminal.
pub struct Terminal {
    pub child: Child,
    pub screen: vt100::Parser,
    /// All that was printed, byte for byte.
    pub bytes: Vec<u8>,
    master: OwnedFd,
    slave: OwnedFd,
}

fn winsize(ws_row: u16, ws_col: u16) -> Winsize {
    Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    pub fn start(mut command: Command, rows: u16, columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, winsize(rows, columns)).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        let stream = || Stdio::from(slave.try_clone().unwrap());
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        let sides = [rows, columns].map(|side| side.try_into().unwrap());
        let screen = vt100::Parser::new(sides[0], sides[1], 1000);
        Self { child, screen, bytes: Vec::new(), master, slave }
    }

    pub fn type_in(&self, keys: &[u8]) {
        std::fs::File::from(self.master.try_clone().unwrap()).write_all(keys).unwrap();
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        tcsetwinsize(&self.master, winsize(rows, columns)).unwrap();
        self.screen.set_size(rows.try_into().unwrap(), columns.try_into().unwrap());
        kill_process(Pid::from_child(&self.child), Signal::WINCH).unwrap();
    }

    pub fn modes(&self) -> Termios {
        tcgetattr(&self.slave).unwrap()
    }

    /// Whether something is printed within `span`.
    fn ready(&self, span: Duration) -> bool {
        let timeout = Timespec::try_from(span).ok();
        let mut fds = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => false,
            ready => ready.unwrap() > 0,
        }
    }

    /// Reads what is printed within `span`; `false` where nothing was.
    fn read(&mut self, span: Duration) -> bool {
        if !self.ready(span) {
            return false;
        }
        let mut buffer = [0; 8192];
        let read = rustix::io::read(&self.master, &mut buffer).unwrap_or(0);
        self.screen.process(&buffer[..read]);
        self.bytes.extend_from_slice(&buffer[..read]);
        read > 0
    }

    pub fn text(&self) -> String {
        self.screen.screen().contents()
    }

    /// All that it shows: cells with their colours, cursor, modes.
    pub fn all(&self) -> (String, (u16, u16), bool, String) {
        let screen = self.screen.screen();
        let modes = screen.input_mode_formatted();
        (screen.contents_formatted(), screen.cursor_position(), screen.alternate_screen(), modes)
    }

    /// Reads until the screen is as wished.
    #[track_caller]
    pub fn wait(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !done(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "never: {what}; the screen shows\n{}", self.text());
            // What is waited for may be something else than bytes.
            self.read(left.min(Duration::from_millis(10)));
        }
    }

    /// Reads until nothing more is painted for now.
    pub fn settle(&mut self) {
        while self.read(Duration::from_millis(300)) {}
    }

    /// Reads so many bytes, and looks at none of them.
    #[track_caller]
    pub fn swallow(&mut self, most: usize) {
        let mut buffer = vec![0; 1 << 16];
        let mut seen = 0;
        while seen < most {
            assert!(self.ready(Duration::from_secs(30)), "only {seen} bytes of {most} came");
            seen += rustix::io::read(&self.master, &mut buffer).unwrap();
        }
    }

    #[track_caller]
    pub fn shows(&mut self, text: &str) {
        self.wait(text, |terminal| terminal.text().contains(text));
    }

    /// Reads to the program's end; its exit code.
    #[track_caller]
    pub fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            assert!(Instant::now() < deadline, "no end; the screen shows\n{}", self.text());
            let status = self.child.try_wait().unwrap();
            while self.read(Duration::from_millis(20)) {}
            if let Some(status) = status {
                return status.code();
            }
        }
    }

    fn children(&self) -> Vec<Pid> {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let pids = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
        pids.filter_map(Pid::from_raw).collect()
    }

    /// Cuts the connection that the program has, or has again.
    #[track_caller]
    pub fn cut(&mut self) {
        self.wait("a connection to cut", |terminal| terminal.cut_now() > 0);
    }

    fn cut_now(&self) -> usize {
        let bridges = self.children().into_iter().filter(|pid| {
            let path = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
            let words = std::fs::read(path).unwrap_or_default();
            words.windows(14).any(|part| part == b"bridge\0attach\0")
        });
        bridges.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
    }

    /// Kills the program and what it runs.
    pub fn kill_with_children(&mut self) {
        let children = self.children();
        self.kill();
        for child in children {
            let _ = kill_process(child, Signal::KILL);
        }
    }

    /// Kills the program as nothing else does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
