//! What a session does: a pure rule over what was seen of it. The first source that speaks decides.

use std::time::Duration;

/// How long an agent's own report holds unless it is renewed.
pub(crate) const MARK_HOLDS: Duration = Duration::from_secs(600);

/// Less CPU than this is noise: a shell that starts, an editor that blinks.
const CPU_LEAST: Duration = Duration::from_millis(100);
/// And less than this part of the time is idling, in percent.
const CPU_PERCENT: u32 = 1;

/// What a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Working,
    Waiting,
    Quiet,
    Ended,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Waiting => "waiting",
            Self::Quiet => "quiet",
            Self::Ended => "ended",
        }
    }
}

/// An agent's own report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) working: bool,
    pub(crate) age: Duration,
    /// The process that reported still lives.
    pub(crate) alive: bool,
}

/// What was seen of a session that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) report: Option<Report>,
    /// CPU time of its process tree, and over how long.
    pub(crate) cpu: (Duration, Duration),
    /// Its own program, unless that is a shell that waits for commands.
    pub(crate) program: Option<String>,
    /// What runs in the foreground of its terminal, unless that is its own program.
    pub(crate) foreground: Option<String>,
    /// Since its last CPU, output or key.
    pub(crate) silent: Duration,
    pub(crate) busy_lease: Duration,
}

/// The state, and why.
pub(crate) fn decide(facts: &Facts) -> (State, String) {
    if let Some(report) = facts.report.filter(|report| report.alive && report.age < MARK_HOLDS) {
        let (state, word) = match report.working {
            true => (State::Working, "working"),
            false => (State::Waiting, "waiting"),
        };
        return (state, format!("its agent says {word}, {} ago", short(report.age)));
    }
    let (used, over) = facts.cpu;
    if used >= CPU_LEAST && used * 100 >= over * CPU_PERCENT {
        return (State::Working, format!("used {} of CPU in {}", precise(used), short(over)));
    }
    let running = facts.foreground.as_ref().or(facts.program.as_ref());
    let Some(name) = running else {
        return (
            State::Quiet,
            format!("nothing runs in its shell; silent for {}", short(facts.silent)),
        );
    };
    if facts.silent < facts.busy_lease {
        let words = format!("{name} runs; last sign of life {} ago", short(facts.silent));
        return (State::Working, words);
    }
    let words = format!("{name} runs, but was silent for {}", short(facts.silent));
    (State::Quiet, words)
}

/// Whether a program is a shell that waits for commands: a shell's name, and nothing to run.
pub(crate) fn is_waiting_shell(argv: &[String]) -> bool {
    const SHELLS: [&str; 11] =
        ["sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "tcsh", "csh", "nu", "ash"];
    let Some((program, arguments)) = argv.split_first() else { return false };
    let name = program.rsplit('/').next().unwrap_or_default().trim_start_matches('-');
    let runs = |word: &String| !word.starts_with('-') || word == "-c";
    SHELLS.contains(&name) && !arguments.iter().any(runs)
}

/// A duration as people say it, in its largest unit.
pub(crate) fn short(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn precise(span: Duration) -> String {
    // Without fractions as floats, whose printing is a hundredth of the helper.
    let tenths = (span.as_millis() + 50) / 100;
    format!("{}.{} s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    fn facts() -> Facts {
        Facts {
            report: None,
            cpu: (Duration::ZERO, 10 * SECOND),
            program: None,
            foreground: None,
            silent: 5 * SECOND,
            busy_lease: HOUR,
        }
    }

    #[test]
    fn the_first_source_that_speaks_decides() {
        let report = |working, age, alive| Some(Report { working, age, alive });
        let named = || Some("sleep".to_owned());
        let cases = [
            ("an idle shell", facts(), State::Quiet),
            ("a program of its own", Facts { program: named(), ..facts() }, State::Working),
            ("a foreground child", Facts { foreground: named(), ..facts() }, State::Working),
            (
                "a program silent for the busy lease",
                Facts { program: named(), silent: HOUR, ..facts() },
                State::Quiet,
            ),
            (
                "a child silent for the busy lease",
                Facts { foreground: named(), silent: HOUR, ..facts() },
                State::Quiet,
            ),
            (
                "a background job that computes",
                Facts { cpu: (SECOND, 10 * SECOND), ..facts() },
                State::Working,
            ),
            (
                "noise of a starting shell",
                Facts { cpu: (SECOND / 20, SECOND), ..facts() },
                State::Quiet,
            ),
            (
                "a trickle over a long time",
                Facts { cpu: (SECOND / 5, 60 * SECOND), ..facts() },
                State::Quiet,
            ),
            (
                "an agent that waits, whatever it burns",
                Facts {
                    report: report(false, SECOND, true),
                    cpu: (SECOND, SECOND),
                    program: named(),
                    ..facts()
                },
                State::Waiting,
            ),
            (
                "an agent that works silently",
                Facts { report: report(true, SECOND, true), silent: 2 * HOUR, ..facts() },
                State::Working,
            ),
            (
                "a report that was not renewed",
                Facts { report: report(true, MARK_HOLDS, true), ..facts() },
                State::Quiet,
            ),
            (
                "a report of a process that ended",
                Facts { report: report(true, SECOND, false), ..facts() },
                State::Quiet,
            ),
        ];
        for (what, facts, expected) in cases {
            assert_eq!(decide(&facts).0, expected, "{what}: {}", decide(&facts).1);
        }
    }

    #[test]
    fn a_shell_with_something_to_run_is_a_program() {
        let shell =
            |line: &str| is_waiting_shell(&line.split(' ').map(String::from).collect::<Vec<_>>());
        assert!(shell("bash") && shell("/bin/bash -l") && shell("-zsh") && shell("fish -i"));
        assert!(
            !shell("bash -c make") && !shell("sh build.sh") && !shell("vim") && !shell("bashful")
        );
    }
}
