//! What a session does, seen by its holder; and signals to all of it.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::termios::tcgetpgrp;
use schema::message::Session;

use super::{Holder, end_words, now, one_line, wall};
use crate::marks;
use crate::processes::{self, Process};
use crate::state::{self, Facts, Report, State};

impl Holder {
    /// Signals every process group of the session, and those it had when it was hung up.
    pub(super) fn signal_all(&self, signal: Signal) {
        let mut groups = self.live_groups();
        groups.extend(&self.groups);
        groups.sort_unstable();
        groups.dedup();
        for group in groups.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process_group(group, signal);
        }
    }

    pub(super) fn live_groups(&self) -> Vec<i32> {
        self.tree(&processes::all()).iter().map(|process| process.group).collect()
    }

    /// Whether nothing of the session runs any more, what left its terminal included.
    pub(super) fn is_deserted(&self) -> bool {
        let all = processes::all();
        let ours = |process: &Process| {
            let zombie = process.pid == self.pid();
            !zombie && (process.session == self.pid() || self.groups.contains(&process.group))
        };
        !all.iter().any(ours)
    }

    /// Takes a sample of CPU, and notes when there was some.
    pub(super) fn sample(&mut self) {
        let cpu = self.cpu(&processes::all());
        let before = self.samples[1].0;
        if cpu.saturating_sub(before) >= Duration::from_millis(100) {
            self.last_life = now();
        }
        self.samples = [self.samples[1], (cpu, now())];
    }

    pub(super) fn cpu(&self, all: &[Process]) -> Duration {
        self.tree(all).iter().map(|process| process.cpu).sum()
    }

    pub(super) fn describe(&self) -> Session {
        // After a hang-up it has ended when nothing of it is left.
        let ended = self.status.filter(|_| self.kill_at.is_none());
        let (state, evidence) = match ended.map(end_words) {
            Some(words) => (State::Ended, words),
            None => state::decide(&self.facts()),
        };
        Session {
            name: self.name.clone(),
            state: state.word().into(),
            evidence,
            pid: self.child.id(),
            started_at: self.started_at,
            command: one_line(&self.argv.join(" ")),
            code: ended.and_then(|status| status.code()),
            signal: ended.and_then(|status| status.signal()),
            ended_at: ended.map(|_| wall()),
            attached: u32::try_from(self.attached()).unwrap_or(u32::MAX),
            key_age: self.last_sign.map(|at| now().saturating_sub(at).as_secs()),
        }
    }

    fn attached(&self) -> usize {
        self.clients.iter().filter(|client| client.viewer.is_some()).count()
    }

    fn facts(&self) -> Facts {
        let all = processes::all();
        let (before, at) = self.samples[0];
        let program = self.argv.first().filter(|_| !state::is_waiting_shell(&self.argv));
        let base = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
        Facts {
            report: self.report(),
            cpu: (self.cpu(&all).saturating_sub(before), now().saturating_sub(at)),
            program: program.map(base),
            foreground: self.foreground(&all),
            silent: now().saturating_sub(self.last_life),
            busy_lease: self.busy_lease,
        }
    }

    /// What runs in the foreground, unless that is the program itself.
    fn foreground(&self, all: &[Process]) -> Option<String> {
        let group = tcgetpgrp(&self.terminal).ok()?.as_raw_nonzero().get();
        let named = all.iter().find(|process| process.pid == group);
        let named = named.or_else(|| all.iter().find(|process| process.group == group));
        named.filter(|_| group != self.pid()).map(|process| process.name.clone())
    }

    fn report(&self) -> Option<Report> {
        let mark = marks::read_mark(&self.folder)?;
        let process = processes::read(mark.pid);
        Some(Report {
            working: mark.working,
            age: now().checked_sub(mark.at)?,
            alive: process.is_some_and(|process| process.started == mark.started),
        })
    }
}
