//! From a wish for a session to a program in a terminal.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Stdio};

use schema::frame::Decoder;
use schema::message::{Body, NewSession};

use crate::place::Place;
use crate::terminal;

pub(super) fn read_spec() -> Result<NewSession, String> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(1 << 20).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    let mut decoder = Decoder::default();
    decoder.push(&bytes);
    match decoder.next_message() {
        Ok(Some(Body::NewSession(spec))) => Ok(spec),
        _ => Err("the holder was not told what to hold".into()),
    }
}

/// The words to run: the command, or the user's login shell.
pub(super) fn command(spec: &NewSession) -> Vec<OsString> {
    if spec.argv.is_empty() {
        return vec![Place::shell().into(), "-l".into()];
    }
    spec.argv.iter().map(|word| OsString::from_vec(word.clone())).collect()
}

/// Says before anything is made that a program is not there.
pub(super) fn runnable(argv: &[OsString], spec: &NewSession) -> Result<(), String> {
    let Some(program) = argv.first().filter(|word| !word.is_empty()) else {
        return Err("no program was named".into());
    };
    let variable = spec.env.iter().find(|variable| variable.name == "PATH");
    let search = variable.map(|variable| variable.value.clone().into());
    let search = search.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    match terminal::is_there(program, &search) {
        true => Ok(()),
        false => {
            Err(format!("cannot start `{}`: there is no such program", program.to_string_lossy()))
        }
    }
}

pub(super) fn spawn(
    place: &Place,
    name: &str,
    spec: &NewSession,
    argv: &[OsString],
    slave: &OwnedFd,
) -> std::io::Result<Child> {
    let stream = || slave.try_clone().map(Stdio::from);
    let mut command = terminal::command(argv);
    place.prepare(&mut command, &spec.directory);
    command
        .env("SIMSTIM_SESSION", name)
        .envs(spec.env.iter().map(|variable| (&variable.name, &variable.value)))
        .stdin(stream()?)
        .stdout(stream()?)
        .stderr(stream()?)
        .spawn()
}

pub(super) fn listen(folder: &Path) -> std::io::Result<UnixListener> {
    let opened = File::open(folder)?;
    let _ = fs::remove_file(folder.join("sock"));
    // By way of the folder's descriptor: a path may be longer than an address can hold. The umask
    // makes the socket this user's alone.
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/sock", opened.as_raw_fd()))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
