//! The person's terminal while a session is shown in it: raw, and put back on every way out.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::oneshot;

/// What ends an attachment, in words.
pub(crate) const DETACH: &str = "Ctrl-\\ Ctrl-\\ or Enter ~ .";

/// Modes that a session may leave on, off again, and a line of its own for what follows.
const LEAVE: &[u8] =
    b"\x1b[0m\x1b[r\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\
                       \x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[999;1H\r\n";

/// A raw terminal; dropping it puts it back, on a panic too.
pub(crate) struct Raw {
    terminal: OwnedFd,
    before: Termios,
    /// What is printed at the end.
    leave: &'static [u8],
}

impl Raw {
    /// Makes stdin's terminal raw, and moves what it shows up out of the way, for a screen that is
    /// painted. Error where it is none.
    pub(crate) fn for_screen() -> io::Result<Self> {
        let mut raw = Self::new()?;
        raw.leave = LEAVE;
        let up = "\r\n".repeat(size().0.into());
        let _ = io::stdout().write_all(up.as_bytes()).and_then(|()| io::stdout().flush());
        Ok(raw)
    }

    /// Makes stdin's terminal raw and prints nothing. Error where it is none.
    pub(crate) fn new() -> io::Result<Self> {
        let terminal = io::stdin().as_fd().try_clone_to_owned()?;
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, before, leave: b"" })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = io::stdout().write_all(self.leave).and_then(|()| io::stdout().flush());
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

/// Lines and columns of the terminal.
pub(crate) fn size() -> (u16, u16) {
    let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
    size.map_or((24, 80), |size| (size.ws_row, size.ws_col))
}

/// What is typed, up to the keys that detach: they end it.
pub(crate) struct Typed {
    terminal: File,
    keys: Keys,
    ready: VecDeque<u8>,
    leave: Option<oneshot::Sender<()>>,
}

/// How long a key that may begin a detach waits for the next one, in milliseconds.
const BETWEEN: i64 = 500;

impl Typed {
    /// `leave` is told when the keys that detach were typed, or the terminal is gone.
    pub(crate) fn new(terminal: File, leave: oneshot::Sender<()>) -> Self {
        Self { terminal, keys: Keys::default(), ready: VecDeque::new(), leave: Some(leave) }
    }

    /// Whether another key comes in time.
    fn comes(&self) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: BETWEEN * 1_000_000 };
        let mut fds = [PollFd::new(&self.terminal, PollFlags::IN)];
        Ok(poll(&mut fds, Some(&timeout))? > 0)
    }
}

impl Read for Typed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ready.is_empty() {
            if self.keys.detached {
                if let Some(leave) = self.leave.take() {
                    let _ = leave.send(());
                }
                return Ok(0);
            }
            if self.keys.held == [QUIT] && !self.comes()? {
                self.ready.extend(self.keys.give_up());
                continue;
            }
            let mut typed = [0; 4096];
            match self.terminal.read(&mut typed)? {
                0 => self.keys.detached = true,
                read => self.ready.extend(self.keys.take(&typed[..read])),
            }
        }
        self.ready.read(buffer)
    }
}

/// Finds the keys that detach: Ctrl-\ twice, or `~.` at the beginning of a line (`~~` is one `~`).
#[derive(Debug)]
struct Keys {
    /// Keys that may begin a detach, not passed on yet.
    held: Vec<u8>,
    /// The last key ended a line.
    fresh: bool,
    detached: bool,
}

impl Default for Keys {
    fn default() -> Self {
        Self { held: Vec::new(), fresh: true, detached: false }
    }
}

const QUIT: u8 = 0x1c;

impl Keys {
    /// What to pass on of what was typed.
    fn take(&mut self, typed: &[u8]) -> Vec<u8> {
        let mut passed = Vec::new();
        for &key in typed {
            if self.detached {
                break;
            }
            self.key(key, &mut passed);
        }
        passed
    }

    fn key(&mut self, key: u8, passed: &mut Vec<u8>) {
        match (self.held.as_slice(), key) {
            ([QUIT], QUIT) | ([b'~'], b'.') => {
                self.held.clear();
                self.detached = true;
                return;
            }
            ([b'~'], b'~') => self.held.clear(),
            ([], QUIT) => return self.held.push(key),
            ([], b'~') if self.fresh => return self.held.push(key),
            _ => {
                passed.append(&mut self.held);
                self.fresh = false;
                if key == QUIT {
                    return self.held.push(key);
                }
            }
        }
        self.fresh = key == b'\r' || key == b'\n';
        passed.push(key);
    }

    /// No other key came in time: what was held is meant for the session. A `~` waits on, as there
    /// is nothing it would be late for.
    fn give_up(&mut self) -> Vec<u8> {
        self.fresh = false;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(parts: &[&[u8]]) -> (Vec<u8>, bool) {
        let mut keys = Keys::default();
        let passed = parts.iter().flat_map(|part| keys.take(part)).collect();
        (passed, keys.detached)
    }

    #[test]
    fn detach_keys_are_found_however_they_are_cut() {
        assert_eq!(pass(&[b"ls\x1c\x1cmore"]), (b"ls".to_vec(), true));
        assert_eq!(pass(&[b"ls\x1c", b"\x1c"]), (b"ls".to_vec(), true));
        assert_eq!(pass(&[b"ls\r~", b"."]), (b"ls\r".to_vec(), true));
        assert_eq!(pass(&[b"~."]), (Vec::new(), true));
    }

    #[test]
    fn all_else_passes_as_it_was_typed() {
        for typed in [&b"a~.b"[..], b"\x1ca\x1cb", b"cd ~/x\r", b"\r~x", b"\r~\x1cx"] {
            assert_eq!(pass(&[typed]), (typed.to_vec(), false), "{}", typed.escape_ascii());
        }
        assert_eq!(pass(&[b"\r~~."]), (b"\r~.".to_vec(), false), "two are one");
        let mut keys = Keys::default();
        assert_eq!((keys.take(b"\x1c"), keys.give_up()), (Vec::new(), b"\x1c".to_vec()));
    }
}
