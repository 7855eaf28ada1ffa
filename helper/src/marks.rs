//! What programs on the machine say of themselves: an agent's report on its session, and a person's
//! bounded claim on the machine.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::holder::now;
use crate::place::{Place, boot_id};
use crate::processes;
use crate::sessions;
use crate::state::short;

/// The longest claim: longer wishes are what `idle_stop = "never"` is for.
const LONGEST_HOLD: Duration = Duration::from_secs(30 * 86_400);

/// A report as it lies on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) working: bool,
    pub(crate) at: Duration,
    /// The process whose end ends the report, and when it started.
    pub(crate) pid: i32,
    pub(crate) started: u64,
}

/// The last report on a session.
pub(crate) fn read_mark(folder: &Path) -> Option<Mark> {
    parse_mark(&fs::read_to_string(folder.join("mark")).ok()?)
}

fn parse_mark(text: &str) -> Option<Mark> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [state, at, pid, started] = words.as_slice() else { return None };
    Some(Mark {
        working: match *state {
            "working" => true,
            "waiting" => false,
            _ => return None,
        },
        at: Duration::from_millis(at.parse().ok()?),
        pid: pid.parse().ok()?,
        started: started.parse().ok()?,
    })
}

/// `simstim-host mark working|waiting`, from within a session.
pub(crate) fn mark(place: &Place, state: &str) -> Result<(), String> {
    if !["working", "waiting"].contains(&state) {
        return Err("a mark is `working` or `waiting`".into());
    }
    let name = std::env::var("SIMSTIM_SESSION")
        .map_err(|_| "this is no session of simstim's: SIMSTIM_SESSION is not set")?;
    let folder = sessions::find(place, &name)?;
    let agent = agent().ok_or("the process that reports cannot be found")?;
    let line = format!("{state} {} {} {}\n", now().as_millis(), agent.pid, agent.started);
    replace(&folder, "mark", &line)
}

/// The process that a report is about: the leader of the terminal's foreground, if it is above us,
/// else whoever called. A hook's own shell would be gone in a moment.
fn agent() -> Option<processes::Process> {
    let own = processes::read(i32::try_from(std::process::id()).ok()?)?;
    let mut above = Vec::new();
    let mut next = own.parent;
    while next > 1 && above.len() < 64 {
        let Some(process) = processes::read(next) else { break };
        next = process.parent;
        above.push(process);
    }
    let leader = above.iter().find(|process| process.pid == process.foreground);
    leader.or_else(|| above.first()).cloned()
}

/// `simstim-host hold DURATION --why TEXT`.
pub(crate) fn hold(place: &Place, span: &str, why: &str) -> Result<(), String> {
    let span = parse_span(span).ok_or("a hold lasts such as `30m`, `2h` or `1d`")?;
    if span > LONGEST_HOLD {
        return Err(format!("a hold lasts at most {}", short(LONGEST_HOLD)));
    }
    let folder = place.folder().join("holds");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let why: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    let until = now() + span;
    let line = format!("{} {} {why}\n", boot_id(), until.as_millis());
    replace(&folder, &format!("{}", until.as_nanos()), &line)
}

/// `simstim-host release`: ends every claim.
pub(crate) fn release(place: &Place) -> Result<(), String> {
    match fs::remove_dir_all(place.folder().join("holds")) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// The claims that hold now, in words.
pub(crate) fn holds(place: &Place) -> Vec<String> {
    let folder = place.folder().join("holds");
    let mut words = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        match hold_words(&text) {
            Some(held) => words.push(held),
            None => {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    words.sort();
    words
}

fn hold_words(text: &str) -> Option<String> {
    let mut parts = text.trim().splitn(3, ' ');
    let (boot, until, why) = (parts.next()?, parts.next()?, parts.next().unwrap_or_default());
    let until = Duration::from_millis(until.parse().ok()?);
    let left = until.checked_sub(now()).filter(|_| boot == boot_id())?;
    Some(format!("held for {} more: {why}", short(left)))
}

/// Units of a second upwards; the client's own format has more, a hold needs no more.
fn parse_span(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    Some(Duration::from_secs(number.checked_mul(seconds)?)).filter(|span| !span.is_zero())
}

fn replace(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    fs::write(&temporary, text)
        .and_then(|()| fs::rename(&temporary, folder.join(name)))
        .map_err(|error| format!("cannot write in {}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_holds_are_bounded_words() {
        assert_eq!(parse_span("2h"), Some(Duration::from_secs(7200)));
        for bad in ["", "2", "h", "0s", "2 h", "-1h", "99999999999999999999h", "2y"] {
            assert_eq!(parse_span(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_mark_that_does_not_read_is_none() {
        assert!(parse_mark("working 5 7 9\n").is_some());
        for bad in ["", "working", "busy 5 7 9", "working 5 7", "working a b c"] {
            assert_eq!(parse_mark(bad), None, "{bad}");
        }
    }
}
