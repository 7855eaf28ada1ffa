//! Terminals that programs run in.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::place::Place;

/// What a terminal is called that every machine knows.
const COMMON: &str = "xterm-256color";

/// A new terminal: our side of it, and the program's.
pub(crate) fn open(size: (u16, u16)) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    tcsetwinsize(&master, winsize(size))?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    Ok((master, slave))
}

/// A size as the kernel takes it.
pub(crate) fn winsize((ws_row, ws_col): (u16, u16)) -> Winsize {
    Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Lines and columns; a terminal that tells none is taken for the usual one.
pub(crate) fn size(rows: u32, columns: u32) -> (u16, u16) {
    let side = |side: u32, usual: u16| match u16::try_from(side) {
        Ok(0) | Err(_) => usual,
        Ok(side) => side.min(1000),
    };
    (side(rows, 24), side(columns, 80))
}

/// The command that becomes `argv` in the terminal that is its standard input.
pub(crate) fn command(argv: &[OsString]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("terminal").args(argv);
    for (variable, value) in [("TERM", COMMON), ("COLORTERM", "truecolor")] {
        command.env(variable, value);
    }
    command
}

/// The name of a terminal as programs here can use it.
pub(crate) fn known<'n>(name: &'n str, place: &Place) -> &'n str {
    let Some(first) = name.bytes().next().filter(|_| !name.contains(['/', '.'])) else {
        return COMMON;
    };
    let home = place.home().join(".terminfo");
    let usual = ["/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/lib/terminfo"];
    let folders = usual.iter().map(Path::new).chain([home.as_path()]);
    // Some file systems know no case, and have the letter's number instead.
    let letters = [format!("{}", char::from(first)), format!("{first:x}")];
    let there = |folder: &Path| letters.iter().any(|at| folder.join(at).join(name).is_file());
    if folders.into_iter().any(there) { name } else { COMMON }
}

/// Becomes a program: a new terminal session on this process's stdin, then the program.
pub(crate) fn become_program(words: &[OsString]) -> String {
    use std::os::unix::process::CommandExt as _;
    let Some((program, arguments)) = words.split_first() else { return "no program".into() };
    if let Err(error) = setsid().and_then(|_| ioctl_tiocsctty(std::io::stdin())) {
        return format!("no terminal: {error}");
    }
    let error = Command::new(program).args(arguments).exec();
    format!("cannot start `{}`: {error}", program.to_string_lossy())
}

/// Whether a program is there, in the folders of `search` where its name has none.
pub(crate) fn is_there(program: &OsStr, search: &OsStr) -> bool {
    let path = Path::new(program);
    match path.components().count() {
        1 => std::env::split_paths(search).any(|folder| folder.join(path).is_file()),
        // Relative to a folder that only the program will be in: it tells by itself.
        _ => path.is_relative() || path.is_file(),
    }
}
