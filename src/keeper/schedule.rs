//! When the next pass is due, and how many machines may still be made: pure, over time since start.

use std::collections::VecDeque;
use std::time::Duration;

/// Between two passes; what hangs on seconds has a clock of its own.
pub const QUIET: Duration = Duration::from_secs(60);
/// Between two checks of idle machines: a quarter of the shortest idle time that makes sense.
pub const IDLE: Duration = Duration::from_secs(15);
/// However often it failed, at least this often is tried.
const LONGEST: Duration = Duration::from_secs(600);
/// A file that holds new hosts must have been left alone for so long.
pub const SETTLED: Duration = Duration::from_secs(10);
/// New hosts made in an hour without a person.
const NEW_AN_HOUR: usize = 5;
const HOUR: Duration = Duration::from_secs(3600);

/// The pause after a pass. `jitter` is from 0 to 1; errors in a row make it longer.
pub fn pause(errors: u32, jitter: f64) -> Duration {
    let grown = QUIET.saturating_mul(1 << errors.min(10)).min(LONGEST);
    grown.mul_f64(0.9 + 0.2 * jitter.clamp(0.0, 1.0))
}

/// Machines made without a person, within the last hour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget(VecDeque<Duration>);

impl Budget {
    /// How many more may be made now.
    pub fn left(&self, now: Duration) -> usize {
        let recent = self.0.iter().filter(|made| now.saturating_sub(**made) < HOUR).count();
        NEW_AN_HOUR.saturating_sub(recent)
    }

    /// Notes one.
    pub fn spend(&mut self, now: Duration) {
        self.0.push_back(now);
        while self.0.len() > NEW_AN_HOUR {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_make_pauses_longer_up_to_a_limit() {
        let seconds = |errors| pause(errors, 0.5).as_secs();
        assert_eq!([0, 1, 2, 3, 4, 40].map(seconds), [60, 120, 240, 480, 600, 600]);
        assert!(pause(0, 0.0) < QUIET && pause(0, 1.0) > QUIET);
    }

    #[test]
    fn five_new_hosts_an_hour() {
        let mut budget = Budget::default();
        let minute = |n: u64| Duration::from_secs(60 * n);
        for n in 0..5 {
            assert_eq!(budget.left(minute(n)), 5 - usize::try_from(n).unwrap());
            budget.spend(minute(n));
        }
        assert_eq!(budget.left(minute(59)), 0);
        assert_eq!(budget.left(minute(60)), 1);
        assert_eq!(budget.left(minute(62)), 3);
    }
}
