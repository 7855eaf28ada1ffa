//! The kill loop: the real program, killed or interrupted at every event and in between; after each
//! kill one more run converges, with one machine a host and the file whole.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::Sandbox;

/// When to send a signal: after so many events, and so long after that.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub events: usize,
    pub after: Duration,
}

/// Moments at each of the first `events` events, and `steps` more after each, `apart` from each
/// other.
pub fn moments(events: usize, steps: u32, apart: Duration) -> Vec<Moment> {
    let after = |n| (0..=steps).map(move |step| Moment { events: n, after: apart * step });
    (0..=events).flat_map(after).collect()
}

/// Runs the program and sends it a signal at a moment. Returns whether it was still running then.
pub fn interrupt(sandbox: &Sandbox, words: &[&str], moment: Moment, signal: Signal) -> bool {
    let mut child = sandbox.start(words);
    let pid = Pid::from_child(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..moment.events {
        if lines.next().is_none() {
            break;
        }
    }
    std::thread::sleep(moment.after);
    let running = child.try_wait().unwrap().is_none();
    let _ = kill_process(pid, signal);
    // Whatever it says on its way out is read, so that it is not stuck saying it.
    for _ in lines.by_ref() {}
    child.wait().unwrap();
    running
}
