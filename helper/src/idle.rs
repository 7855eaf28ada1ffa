//! Whether a machine is idle long enough to stop: a pure decision, and the count it keeps.
//!
//! The count runs only while checks run: another boot, a clock that went back, or a gap above three
//! intervals starts it anew, so a machine that slept is not stopped for its sleep.

use std::time::Duration;

use crate::state::short;

/// So long before a stop those who are attached are told.
const NOTICE: Duration = Duration::from_secs(120);

/// What keeps a machine awake, or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Sources of wakefulness, in words.
    pub(crate) busy: Vec<String>,
    pub(crate) boot_id: String,
    /// Since boot, sleep included.
    pub(crate) now: Duration,
}

/// The count, as it lies on disk between two checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) boot_id: String,
    /// The first check that found nothing to keep the machine awake; `None` while something does.
    /// Work that ended between two checks counts to the later one: never too early.
    pub(crate) since: Option<Duration>,
    pub(crate) checked: Duration,
    /// Those who are attached were told that the end is near.
    pub(crate) warned: bool,
}

/// What is to be done, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) stop: bool,
    /// How long it is to the stop, where those who are attached are to be told now.
    pub(crate) warn: Option<Duration>,
    pub(crate) why: String,
    pub(crate) idle_for: Duration,
}

/// Decides, and gives the count to keep.
pub(crate) fn decide(
    facts: &Facts,
    before: Option<&Count>,
    idle_stop: Duration,
    interval: Duration,
) -> (Verdict, Count) {
    let now = facts.now;
    let goes_on = before.filter(|count| {
        let gap = now.checked_sub(count.checked);
        count.boot_id == facts.boot_id && gap.is_some_and(|gap| gap <= 3 * interval)
    });
    let warned = goes_on.is_some_and(|count| count.warned);
    let goes_on = goes_on.and_then(|count| count.since);
    let since = facts.busy.is_empty().then(|| goes_on.unwrap_or(now));
    let idle_for = since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
    let (stop, why) = if !facts.busy.is_empty() {
        (false, facts.busy.join("; "))
    } else if idle_for >= idle_stop {
        (true, format!("nothing worked for {}", short(idle_for)))
    } else {
        (false, format!("idle for {} of {}", short(idle_for), short(idle_stop)))
    };
    let left = idle_stop.saturating_sub(idle_for);
    let near = facts.busy.is_empty() && !stop && left <= NOTICE.min(idle_stop / 2);
    let warned = near && goes_on.is_some() && warned;
    let count =
        Count { boot_id: facts.boot_id.clone(), since, checked: now, warned: warned || near };
    (Verdict { stop, warn: (near && !warned).then_some(left), why, idle_for }, count)
}

impl Count {
    /// As one line.
    pub(crate) fn line(&self) -> String {
        let since = self.since.map_or("-".into(), |since| since.as_millis().to_string());
        let warned = if self.warned { "warned" } else { "-" };
        format!("{} {since} {} {warned}\n", self.boot_id, self.checked.as_millis())
    }

    /// From one line; anything else is no count.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [boot_id, since, checked, warned] = words.as_slice() else { return None };
        let span = |text: &str| text.parse().ok().map(Duration::from_millis);
        let since = if *since == "-" { None } else { Some(span(since)?) };
        let warned = *warned == "warned";
        Some(Self { boot_id: (*boot_id).into(), since, checked: span(checked)?, warned })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const CHECK: Duration = Duration::from_secs(15);

    fn facts(seconds: u64, busy: &[&str]) -> Facts {
        let busy = busy.iter().map(|text| (*text).into()).collect();
        Facts { busy, boot_id: "b".into(), now: Duration::from_secs(seconds) }
    }

    /// Checks at these seconds; returns when it says stop.
    fn run(checks: &[(u64, &[&str])]) -> Option<u64> {
        let mut count = None;
        for (second, busy) in checks {
            let (verdict, next) = decide(&facts(*second, busy), count.as_ref(), MINUTE, CHECK);
            if verdict.stop {
                return Some(*second);
            }
            count = Count::parse(&next.line());
            assert_eq!(count, Some(next), "the count survives the disk");
        }
        None
    }

    #[test]
    fn the_count_runs_from_the_last_work() {
        assert_eq!(run(&[(0, &[]), (15, &[]), (30, &[]), (45, &[]), (60, &[])]), Some(60));
        assert_eq!(run(&[(0, &[]), (15, &["x"]), (30, &[]), (45, &[]), (60, &[])]), None);
        let busy: [(u64, &[&str]); 6] =
            [(0, &["x"]), (15, &["x"]), (30, &[]), (45, &[]), (60, &[]), (75, &[])];
        assert_eq!(run(&busy), None, "work may have ended right before the check at 30 s");
        assert_eq!(run(&[&busy[..], &[(90, &[])]].concat()), Some(90));
    }

    #[test]
    fn those_attached_are_told_once_before_each_stop() {
        let mut count: Option<Count> = None;
        let mut told = Vec::new();
        for second in (0..700).step_by(15) {
            let busy: &[&str] = if (400..420).contains(&second) { &["a key"] } else { &[] };
            let facts = facts(second, busy);
            let (verdict, next) = decide(&facts, count.as_ref(), 5 * MINUTE, CHECK);
            told.extend(verdict.warn.map(|left| (second, left.as_secs())));
            count = Some(next).filter(|_| !verdict.stop);
        }
        assert_eq!(told, [(180, 120), (600, 120)], "a key begins anew");
    }

    #[test]
    fn a_gap_or_a_clock_that_goes_back_starts_it_anew() {
        assert_eq!(run(&[(0, &[]), (15, &[]), (61, &[])]), None, "a gap of 46 s");
        assert_eq!(run(&[(0, &[]), (45, &[]), (90, &[])]), Some(90), "a gap of 45 s");
        assert_eq!(run(&[(100, &[]), (90, &[]), (130, &[])]), None);
    }

    #[test]
    fn another_boot_starts_it_anew() {
        let (_, count) = decide(&facts(100, &[]), None, MINUTE, CHECK);
        let later = Facts { boot_id: "c".into(), ..facts(110, &[]) };
        let old = Count { since: Some(Duration::ZERO), ..count };
        assert!(!decide(&later, Some(&old), MINUTE, CHECK).0.stop);
    }
}
