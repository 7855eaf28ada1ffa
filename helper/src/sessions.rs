//! The sessions of this machine: a folder for each, a holder process that locks it.
//!
//! ```text
//! sessions/NAME/  lock    held by the holder for its life
//!                 sock    where the holder answers, for this user only
//!                 meta    pid, start and command
//!                 log.*   the output
//!                 mark    the last report of an agent
//!                 ended   how and when it ended, if the holder saw it
//!                 spec    what it is, where it can go on after a restart of the machine
//!                 fate    why it could not
//! ```

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use schema::frame::{Decoder, Encoder, MAX_MESSAGE};
use schema::message::{Body, Describe, Exited, NewSession, Session, SessionStarted};

use crate::manager;
use crate::place::{Place, boot_id};
use crate::state::State;

/// For a holder's answer: it does no work that takes time.
const ANSWER: Duration = Duration::from_millis(500);
/// For all holders' answers of one list: the rest is said to be unreadable.
const LIST: Duration = Duration::from_secs(5);
/// For a holder to start its program.
const START: Duration = Duration::from_secs(10);
/// For a holder to leave once its session has ended.
const LEAVES: Duration = Duration::from_secs(5);
/// What is said of a holder that said nothing.
const AT_ONCE: &str = "its holder ended at once";
/// Ended sessions that are kept to be read.
const KEPT: usize = 50;

/// Where the sessions of this user lie.
pub(crate) fn folder(place: &Place) -> PathBuf {
    place.folder().join("sessions")
}

/// Whether a text can name a session: it is a folder's name, and shown as it is.
pub(crate) fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=60).contains(&text.len()) && !text.starts_with('.') && text.chars().all(plain)
}

/// The folder of a session, if there is one.
pub(crate) fn find(place: &Place, name: &str) -> Result<PathBuf, String> {
    let path = folder(place).join(name);
    let there = is_name(name) && path.is_dir();
    there.then_some(path).ok_or_else(|| format!("there is no session `{name}`"))
}

/// Whether a holder holds the folder.
pub(crate) fn is_held(folder: &Path) -> bool {
    File::open(folder.join("lock"))
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// Every session, the ended ones included, in the order of their starts.
pub(crate) fn list(place: &Place) -> Vec<Session> {
    let deadline = Instant::now() + LIST;
    let folders = fs::read_dir(folder(place)).into_iter().flatten().flatten();
    let mut sessions: Vec<Session> = folders
        .filter(|entry| entry.file_name().to_str().is_some_and(is_name))
        .map(|entry| describe(&entry.path(), deadline))
        .collect();
    sessions.sort_by(|a, b| (a.started_at, &a.name).cmp(&(b.started_at, &b.name)));
    sessions
}

fn describe(folder: &Path, deadline: Instant) -> Session {
    let mut session = meta(folder);
    if !is_held(folder) {
        ended(folder, &mut session);
        return session;
    }
    let answer = match Instant::now() < deadline {
        true => ask(folder, Body::Describe(Describe {})),
        false => Err("too many holders do not answer".into()),
    };
    match answer {
        Ok(Body::Sessions(sessions)) if !sessions.sessions.is_empty() => {
            sessions.sessions.into_iter().next().unwrap_or_default()
        }
        Ok(_) | Err(_) if !is_held(folder) => {
            ended(folder, &mut session);
            session
        }
        // The safe reading: what cannot be asked may be at work.
        other => {
            let why = other.err().unwrap_or_else(|| "it answers nonsense".into());
            session.state = State::Working.word().into();
            session.evidence = format!("its holder does not answer: {why}");
            session
        }
    }
}

/// What was written down at the start.
fn meta(folder: &Path) -> Session {
    let text = fs::read_to_string(folder.join("meta")).unwrap_or_default();
    let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    Session {
        name: folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().into(),
        pid: line("pid").and_then(|pid| pid.parse().ok()).unwrap_or(0),
        started_at: line("started").and_then(|at| at.parse().ok()).unwrap_or(0),
        command: line("command").unwrap_or_default().into(),
        ..Session::default()
    }
}

fn ended(folder: &Path, session: &mut Session) {
    session.state = State::Ended.word().into();
    session.pid = 0;
    session.ended_at =
        ended_line(folder).split_ascii_whitespace().nth(2).and_then(|at| at.parse().ok());
    let restarted = run(folder).is_none_or(|run| run != boot_id());
    session.evidence = match fs::read_to_string(folder.join("fate")) {
        Ok(fate) => fate.chars().take(400).collect(),
        Err(_) if restarted => "its machine was stopped or restarted".into(),
        Err(_) => "its holder was killed, or its memory ran out".into(),
    };
    if let Some(end) = end(folder) {
        (session.code, session.signal) = (end.code, end.signal);
        session.evidence = end_words(end.code, end.signal);
    }
}

/// The start of the machine that a session began in.
fn run(folder: &Path) -> Option<String> {
    let meta = fs::read_to_string(folder.join("meta")).ok()?;
    meta.lines().find_map(|line| line.strip_prefix("run ")).map(String::from)
}

fn ended_line(folder: &Path) -> String {
    fs::read_to_string(folder.join("ended")).unwrap_or_default()
}

/// How a session's program ended, if its holder saw it.
pub(crate) fn end(folder: &Path) -> Option<Exited> {
    let line = ended_line(folder);
    match line.split_ascii_whitespace().collect::<Vec<_>>().as_slice() {
        ["code", code, _] => Some(Exited { code: code.parse().ok(), signal: None }),
        ["signal", signal, _] => Some(Exited { code: None, signal: signal.parse().ok() }),
        _ => None,
    }
}

/// How a program ended, for people.
pub(crate) fn end_words(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("it ended with code {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended".into(),
    }
}

/// Opens a stream to a session's holder.
pub(crate) fn connect(folder: &Path) -> std::io::Result<UnixStream> {
    // By way of the folder's descriptor: a path may be longer than an address can hold.
    let opened = File::open(folder)?;
    UnixStream::connect(format!("/proc/self/fd/{}/sock", opened.as_raw_fd()))
}

/// Asks a holder one thing.
pub(crate) fn ask(folder: &Path, question: Body) -> Result<Body, String> {
    let broken = |error: std::io::Error| error.to_string();
    let mut stream = connect(folder).map_err(broken)?;
    stream.set_read_timeout(Some(ANSWER)).map_err(broken)?;
    stream.set_write_timeout(Some(ANSWER)).map_err(broken)?;
    let mut bytes = Vec::new();
    Encoder::default().encode(question, &mut bytes).map_err(|error| error.to_string())?;
    stream.write_all(&bytes).map_err(broken)?;
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 8192];
    let deadline = Instant::now() + ANSWER;
    loop {
        while let Some(body) = decoder.next_message().map_err(|error| error.to_string())? {
            if !matches!(body, Body::Hello(_)) {
                return Ok(body);
            }
        }
        if Instant::now() >= deadline {
            return Err("no answer".into());
        }
        match stream.read(&mut buffer).map_err(broken)? {
            0 => return Err("it hung up".into()),
            read => decoder.push(&buffer[..read]),
        }
    }
}

/// Starts a session; says its name, and what an ended one of that name is called now.
pub(crate) fn start(place: &Place, mut spec: NewSession) -> Result<SessionStarted, String> {
    let SessionStarted { name, aside, .. } = choose_name(place, &spec)?;
    spec.name = name;
    let folder = folder(place).join(&spec.name);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    let mut bytes = Vec::new();
    let name = spec.name.clone();
    Encoder::default()
        .encode(Body::NewSession(spec), &mut bytes)
        .map_err(|_| format!("the command is longer than {MAX_MESSAGE} bytes"))?;
    let result = hold(&name, &bytes);
    if result.is_err() && !is_held(&folder) {
        let _ = fs::remove_dir_all(&folder);
    }
    result.map(|capped| SessionStarted { name, aside, capped })
}

/// Starts again, by their own commands, the sessions that a restart of the machine ended.
pub(crate) fn restore(place: &Place) {
    let entries = fs::read_dir(folder(place)).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_name)) {
        let (folder, name) = (entry.path(), entry.file_name());
        let over = ["ended", "fate"].into_iter().any(|file| folder.join(file).exists());
        let of_before = run(&folder).is_some_and(|run| run != boot_id());
        if over || !of_before || is_held(&folder) {
            continue;
        }
        if let (Some(name), Some(spec)) = (name.to_str(), spec_of(&folder)) {
            // Another bridge may be faster: the lock decides.
            if let Err(why) = hold(name, &spec)
                && !is_held(&folder)
            {
                let why = format!("its machine was restarted, and it could not go on: {why}");
                let _ = fs::write(folder.join("fate"), why);
            }
        }
    }
}

/// What to tell a holder so that it starts a session again.
fn spec_of(folder: &Path) -> Option<Vec<u8>> {
    let mut decoder = Decoder::default();
    decoder.push(&fs::read(folder.join("spec")).ok()?);
    let Ok(Some(Body::NewSession(spec))) = decoder.next_message() else { return None };
    let spec = NewSession { argv: spec.resume, resume: Vec::new(), restored: true, ..spec };
    let mut bytes = Vec::new();
    Encoder::default().encode(Body::NewSession(spec), &mut bytes).ok()?;
    Some(bytes)
}

/// Starts the holder and waits until its program runs; whether a manager of this user's keeps it.
fn hold(name: &str, spec: &[u8]) -> Result<bool, String> {
    for command in [true, false].into_iter().filter_map(|survives| manager::scope(name, survives)) {
        match hold_by(command, name, spec) {
            // A manager that takes nothing is as good as none.
            Err(why) if why == AT_ONCE => {}
            held => return held.map(|()| true),
        }
    }
    hold_by(Command::new("/proc/self/exe"), name, spec).map(|()| false)
}

fn hold_by(mut command: Command, name: &str, spec: &[u8]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot start a holder: {error}");
    let mut child = command
        .args(["holder", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that ended at once is said below.
        let _ = stdin.write_all(spec);
    }
    let Some(mut stdout) = child.stdout.take() else { return Err("it has no output".into()) };
    let mut said = Vec::new();
    let deadline = Instant::now() + START;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let mut fds = [PollFd::new(&stdout, PollFlags::IN)];
        let ready = poll(&mut fds, timeout.as_ref()).map_err(|error| failed(error.into()))?;
        if ready == 0 {
            return Err("its holder does not say that it runs".into());
        }
        let mut buffer = [0; 1024];
        match stdout.read(&mut buffer).map_err(failed)? {
            0 => break,
            read => said.extend_from_slice(&buffer[..read]),
        }
    }
    let said = String::from_utf8_lossy(&said);
    match said.trim() {
        "ok" => Ok(()),
        "" => Err(AT_ONCE.into()),
        other => Err(other.into()),
    }
}

/// The name asked for, or one after the program. An ended session of that name steps aside.
fn choose_name(place: &Place, spec: &NewSession) -> Result<SessionStarted, String> {
    prune(place);
    let sessions = folder(place);
    if spec.name.is_empty() {
        let program = spec.argv.first().map(|word| String::from_utf8_lossy(word).into_owned());
        let base = program.as_deref().unwrap_or("shell").rsplit('/').next().unwrap_or_default();
        let base: String = base.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
        let base = if base.is_empty() { "session".to_owned() } else { base };
        let name = free_name(&sessions, &base, base.clone());
        return Ok(SessionStarted { name, ..SessionStarted::default() });
    }
    if !is_name(&spec.name) {
        return Err("a session's name is made of letters, digits, `-`, `_` and `.`".into());
    }
    let path = sessions.join(&spec.name);
    if is_held(&path) && !lets_go(&path) {
        return Err(format!("there is a session `{}` already", spec.name));
    }
    let mut aside = String::new();
    if path.exists() {
        let old = format!("{}-old", spec.name);
        aside = free_name(&sessions, &old, old.clone());
        fs::rename(&path, sessions.join(&aside))
            .map_err(|error| format!("cannot set the ended `{}` aside: {error}", spec.name))?;
    }
    Ok(SessionStarted { name: spec.name.clone(), aside, capped: false })
}

/// Whether the holder of a session that has ended leaves: it still says so to who is attached.
fn lets_go(folder: &Path) -> bool {
    let deadline = Instant::now() + LEAVES;
    let over = |session: &Session| session.state == State::Ended.word();
    while is_held(folder) {
        if !over(&describe(folder, deadline)) || Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

fn free_name(sessions: &Path, base: &str, first: String) -> String {
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let mut names = std::iter::once(first).chain(numbered);
    names.find(|name| !sessions.join(name).exists()).unwrap_or_default()
}

/// Forgets the oldest ended sessions beyond what is kept.
fn prune(place: &Place) {
    let mut ended: Vec<(u64, PathBuf)> = fs::read_dir(folder(place))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| !is_held(path))
        .map(|path| (meta(&path).started_at, path))
        .collect();
    ended.sort();
    let surplus = ended.len().saturating_sub(KEPT);
    for (_, path) in &ended[..surplus] {
        let _ = fs::remove_dir_all(path);
    }
}
