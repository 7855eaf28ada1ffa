//! What keeps this machine awake: every source with its last sign of life, the idle count, and what
//! was decided.

use std::fs::{self, File};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use schema::message::{Body, CheckIdle, Decision, Notice, Reasons, Session, Source, Verdict};

use crate::holder::{now, wall};
use crate::idle::{self, Count};
use crate::marks;
use crate::place::{Place, boot_id};
use crate::sessions;
use crate::state::{State, short};

/// Where a stop ends processes, whoever is attached keeps the machine for so long after the last key.
const PRESENT: Duration = Duration::from_secs(8 * 3600);
/// Decisions that are kept, in bytes; half of them when there are more.
const KEPT: usize = 64 << 10;
/// Decisions that are told.
const TOLD: usize = 20;
/// The longest word of evidence.
const WORD: usize = 300;

/// The lock that says a client is at work here; the kernel drops it with its holder.
fn presence_file(place: &Place) -> Option<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(place.folder().join("clients"))
        .ok()
}

/// Keeps the machine awake for as long as the file lives.
pub(crate) fn be_present(place: &Place) -> Option<File> {
    let file = presence_file(place)?;
    // A check holds the lock for a moment only.
    flock(&file, FlockOperation::LockShared).ok()?;
    restart_count(place);
    Some(file)
}

/// Whether a client holds the presence lock.
fn is_client_at_work(place: &Place) -> bool {
    presence_file(place)
        .is_none_or(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// Somebody came or went: the idle count begins anew.
pub(crate) fn restart_count(place: &Place) {
    let _ = fs::remove_file(place.folder().join("idle"));
}

/// What keeps the machine like a session, shown among them so that nobody overlooks it. Its name
/// is none that a session can have.
pub(crate) fn claims(place: &Place, clients: bool) -> Vec<Session> {
    let claim = |name: &str, evidence: String| Session {
        name: name.into(),
        state: State::Working.word().into(),
        evidence,
        ..Session::default()
    };
    let mut claims = Vec::new();
    if clients && is_client_at_work(place) {
        claims.push(claim("(exec)", "somebody's command runs over a connection".into()));
    }
    claims.extend(marks::holds(place).into_iter().map(|evidence| claim("(hold)", evidence)));
    claims
}

/// Everything that keeps the machine awake, or could.
fn sources(place: &Place, interval: Duration, ends_processes: bool) -> Vec<Source> {
    let live = |session: &Session| session.state != State::Ended.word();
    let sessions = sessions::list(place).into_iter().filter(live);
    let mut sources: Vec<Source> =
        sessions.map(|session| of_session(&session, interval, ends_processes)).collect();
    sources.extend(claims(place, true).into_iter().map(|claim| Source {
        what: claim.name.trim_matches(['(', ')']).into(),
        keeps: true,
        why: claim.evidence,
    }));
    sources
}

fn of_session(session: &Session, interval: Duration, ends_processes: bool) -> Source {
    let key = session.key_age.map(Duration::from_secs);
    let works = session.state == State::Working.word();
    // A key between two checks counts as one at the later one.
    let typed = key.is_some_and(|age| age <= interval);
    let present = ends_processes && session.attached > 0 && key.is_some_and(|age| age < PRESENT);
    let mut why = format!("{}: {}", session.state, session.evidence);
    if session.attached > 0 {
        why += &format!("; {} attached", session.attached);
    }
    if let Some(age) = key {
        why += &format!("; last key {} ago", short(age));
    }
    let keeps = works || typed || present;
    Source { what: format!("session {}", session.name), keeps, why: cut(&why) }
}

fn cut(text: &str) -> String {
    text.chars().take(WORD).collect()
}

/// Looks at everything that keeps the machine awake, and keeps the count.
pub(crate) fn check(place: &Place, check: &CheckIdle) -> Verdict {
    let (idle_stop, interval) =
        (Duration::from_secs(check.idle_stop), Duration::from_secs(check.interval));
    let sources = sources(place, interval, check.ends_processes);
    let keeps = sources.iter().filter(|source| source.keeps);
    let busy = keeps.map(|source| format!("{}: {}", source.what, source.why)).collect();
    let facts = idle::Facts { busy, boot_id: boot_id(), now: now() };
    let before = count(place);
    let (verdict, count) = idle::decide(&facts, before.as_ref(), idle_stop, interval);
    let was_idle = before.is_some_and(|count| count.since.is_some());
    match (was_idle, count.since.is_some()) {
        (_, true) if verdict.stop => note(place, &format!("may be stopped: {}", verdict.why)),
        (false, true) => note(place, "idle: nothing keeps it awake"),
        (true, false) => note(place, &format!("awake: {}", verdict.why)),
        _ => {}
    }
    if let Some(left) = verdict.warn {
        warn(place, left);
    }
    let why = match keep(place, &count) {
        Ok(()) => verdict.why,
        // A count that cannot be kept never ends: the machine would be awake for ever.
        Err(error) => format!("{} (the count cannot be kept: {error})", verdict.why),
    };
    let idle_for = verdict.idle_for.as_secs();
    Verdict { stop: verdict.stop, why: why.chars().take(2000).collect(), idle_for }
}

fn count(place: &Place) -> Option<Count> {
    fs::read_to_string(place.folder().join("idle")).ok().and_then(|line| Count::parse(&line))
}

fn keep(place: &Place, count: &Count) -> std::io::Result<()> {
    let path = place.folder().join("idle");
    let temporary = path.with_extension(std::process::id().to_string());
    fs::write(&temporary, count.line()).and_then(|()| fs::rename(&temporary, &path))
}

/// Tells everyone who is attached that the machine is about to stop.
fn warn(place: &Place, left: Duration) {
    let name = place.hello("").map_or_else(|_| "this machine".into(), |hello| hello.host);
    let text = format!("{name} stops in {}: nothing works here; any key keeps it", short(left));
    note(place, &format!("warned: stops in {}", short(left)));
    for session in sessions::list(place).iter().filter(|session| session.attached > 0) {
        if let Ok(folder) = sessions::find(place, &session.name) {
            let _ = sessions::ask(&folder, Body::Notice(Notice { text: text.clone() }));
        }
    }
}

/// Writes a decision down. Where the disk takes nothing there is none: it is told, not relied on.
fn note(place: &Place, what: &str) {
    let path = place.folder().join("decisions");
    let mut text = fs::read_to_string(&path).unwrap_or_default();
    if text.len() > KEPT {
        let half =
            text[text.len() - KEPT / 2..].find('\n').map(|at| text.len() - KEPT / 2 + at + 1);
        text = text.split_off(half.unwrap_or(text.len()));
    }
    let words: String = cut(what).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text += &format!("{} {words}\n", wall());
    let temporary = path.with_extension(std::process::id().to_string());
    let _ = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
}

/// Everything that keeps the machine awake or could, the count, and what was decided lately.
pub(crate) fn reasons(place: &Place) -> Reasons {
    let text = fs::read_to_string(place.folder().join("decisions")).unwrap_or_default();
    let decision = |line: &str| {
        let (at, what) = line.split_once(' ')?;
        Some(Decision { at: at.parse().ok()?, what: what.into() })
    };
    let mut decisions: Vec<Decision> = text.lines().rev().take(TOLD).filter_map(decision).collect();
    decisions.reverse();
    let fresh = |count: &Count| count.boot_id == boot_id();
    let since = count(place).filter(fresh).and_then(|count| count.since);
    // What a keeper or a timer with other settings would say differs in presence only.
    let mut sources = sources(place, Duration::from_secs(15), true);
    sources.truncate(100);
    Reasons {
        sources,
        idle_for: since.map(|since| now().saturating_sub(since).as_secs()),
        decisions,
    }
}
