//! Processes as /proc shows them. What cannot be read is left out: it ended meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

/// Ticks of the kernel's clock in a second, as /proc counts them. Fixed at 100 for user space on
/// every Linux architecture that a helper is built for.
const TICKS: u64 = 100;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// The group in the foreground of its terminal.
    pub(crate) foreground: i32,
    /// CPU time of it and of its children that it waited for.
    pub(crate) cpu: Duration,
    /// When it started, in ticks since boot: with the pid, who it is.
    pub(crate) started: u64,
    pub(crate) name: String,
}

/// Reads one process.
pub(crate) fn read(pid: i32) -> Option<Process> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads all processes.
pub(crate) fn all() -> Vec<Process> {
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    folders.filter_map(|folder| read(folder.file_name().to_str()?.parse().ok()?)).collect()
}

/// Reads a line of /proc/PID/stat. The name may hold spaces and brackets; the last `)` ends it.
fn parse(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<i64>().ok();
    let ticks = |index: usize| number(index).and_then(|ticks| u64::try_from(ticks).ok());
    let cpu: u64 = [11, 12, 13, 14].into_iter().filter_map(ticks).sum();
    Some(Process {
        pid: pid.parse().ok()?,
        parent: i32::try_from(number(1)?).ok()?,
        group: i32::try_from(number(2)?).ok()?,
        session: i32::try_from(number(3)?).ok()?,
        foreground: i32::try_from(number(5)?).ok()?,
        cpu: Duration::from_millis(cpu * 1000 / TICKS),
        started: ticks(19)?,
        name: name.into(),
    })
}

/// The processes of a session: those of its terminal session, and what descends from them.
pub(crate) fn tree(all: &[Process], leader: i32) -> Vec<&Process> {
    let mut members: BTreeSet<i32> = BTreeSet::new();
    loop {
        let before = members.len();
        for process in all {
            let ours = process.session == leader || members.contains(&process.parent);
            if ours && process.pid > 1 {
                members.insert(process.pid);
            }
        }
        if members.len() == before {
            break;
        }
    }
    all.iter().filter(|process| members.contains(&process.pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_hostile_name_is_read() {
        let line = "42 (a) b (c) S 7 42 40 34816 42 4194304 1 2 0 0 30 20 5 5 20 0 1 0 999 1 1";
        let process = parse(line).unwrap();
        assert_eq!((process.pid, process.parent, process.group, process.session), (42, 7, 42, 40));
        assert_eq!((process.name.as_str(), process.started), ("a) b (c", 999));
        assert_eq!(process.cpu, Duration::from_millis(600));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn a_tree_holds_what_left_the_terminal_session_too() {
        let process = |pid, parent, session| Process {
            pid,
            parent,
            session,
            foreground: 0,
            group: pid,
            cpu: Duration::ZERO,
            started: 0,
            name: String::new(),
        };
        let all = [process(5, 1, 5), process(9, 5, 9), process(10, 9, 9), process(11, 1, 11)];
        let pids: Vec<i32> = tree(&all, 5).iter().map(|process| process.pid).collect();
        assert_eq!(pids, [5, 9, 10]);
    }
}
