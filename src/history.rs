//! The intent log: this computer's small journal of a fleet. Losing it loses no machine; it closes
//! the gaps that a provider's list leaves.
//!
//! One JSON object a line, appended and synced before what it announces is done. A line that does
//! not read (a torn write, a newer version's word) is skipped: it is a memory, not an authority.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{self, FileError, failed};
use crate::model::{AccountName, FleetId, HostName, MachineId, Nonce, SessionState, Timestamp};

/// Above this many bytes the log is rewritten as what it amounts to.
const COMPACT_ABOVE: u64 = 1 << 20;

/// The most that is ever read back.
const MOST: u64 = 64 << 20;

/// One thing to remember.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// A create is about to be sent.
    Intent {
        /// The nonce its mark will carry.
        nonce: Nonce,
        /// For this host.
        host: HostName,
        /// At this account.
        account: AccountName,
    },
    /// A create was refused: nothing was made.
    Refused {
        /// The nonce of its intent.
        nonce: Nonce,
    },
    /// A machine was seen or made.
    Seen {
        /// Its id.
        id: MachineId,
        /// The host it stands for.
        host: HostName,
        /// Its account.
        account: AccountName,
        /// Which engine, folder or team that account was.
        identity: String,
        /// When.
        at: Timestamp,
    },
    /// Set-up of a machine made here is complete: its intent is carried out.
    Ready {
        /// The nonce of its mark.
        nonce: Nonce,
    },
    /// This computer ran something on it.
    Used {
        /// Its id.
        id: MachineId,
    },
    /// Its disk had seen so many boots.
    Booted {
        /// Its id.
        id: MachineId,
        /// The boots, counted on the disk itself.
        epoch: u64,
    },
    /// This computer destroyed it, or a person accepted that it is lost.
    Gone {
        /// Its id.
        id: MachineId,
    },
    /// A host's block was applied from this file.
    Applied {
        /// The host.
        host: HostName,
        /// The canonical path of the file.
        file: PathBuf,
    },
    /// The sessions of a machine, as last read.
    Sessions {
        /// Its id.
        id: MachineId,
        /// The busiest state, `None` where there was no session.
        busiest: Option<SessionState>,
        /// When.
        at: Timestamp,
    },
}

/// What the log amounts to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Machines seen and not known to be gone.
    pub machines: BTreeMap<MachineId, Remembered>,
    /// Creates that were begun here and whose set-up was never completed.
    pub open_intents: BTreeMap<Nonce, (HostName, AccountName)>,
    /// Machines that this computer ran something on, the last one last.
    pub used: Vec<MachineId>,
    /// Per host, the file its block was last applied from.
    pub applied: BTreeMap<HostName, PathBuf>,
}

/// What is remembered of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// The host it stood for.
    pub host: HostName,
    /// Its account.
    pub account: AccountName,
    /// Which engine, folder or team that account was.
    pub identity: String,
    /// When it was last seen first at that place.
    pub at: Timestamp,
    /// The busiest session state last read; the outer `None`: never read.
    pub sessions: Option<Option<SessionState>>,
    /// The boots that its disk had seen when this computer last ran something on it; 0: unknown.
    pub epoch: u64,
}

impl History {
    /// Takes one event in.
    pub fn fold(&mut self, event: Event) {
        match event {
            Event::Intent { nonce, host, account } => {
                self.open_intents.insert(nonce, (host, account));
            }
            Event::Refused { nonce } | Event::Ready { nonce } => {
                self.open_intents.remove(&nonce);
            }
            Event::Seen { id, host, account, identity, at } => {
                let old = self.machines.get(&id);
                let (sessions, epoch) = old.map_or((None, 0), |old| (old.sessions, old.epoch));
                let machine = Remembered { host, account, identity, at, sessions, epoch };
                self.machines.insert(id, machine);
            }
            Event::Used { id } => {
                self.used.retain(|used| *used != id);
                self.used.push(id);
            }
            Event::Booted { id, epoch } => {
                if let Some(machine) = self.machines.get_mut(&id) {
                    machine.epoch = epoch;
                }
            }
            Event::Gone { id } => {
                self.used.retain(|used| *used != id);
                self.machines.remove(&id);
            }
            Event::Applied { host, file } => {
                self.applied.insert(host, file);
            }
            Event::Sessions { id, busiest, .. } => {
                if let Some(machine) = self.machines.get_mut(&id) {
                    machine.sessions = Some(busiest);
                }
            }
        }
    }

    /// Whether `event` would change nothing worth a line.
    fn knows(&self, event: &Event) -> bool {
        match event {
            Event::Seen { id, host, account, identity, .. } => {
                self.machines.get(id).is_some_and(|machine| {
                    (&machine.host, &machine.account, &machine.identity)
                        == (host, account, identity)
                })
            }
            Event::Applied { host, file } => self.applied.get(host) == Some(file),
            Event::Sessions { id, busiest, .. } => {
                self.machines.get(id).is_some_and(|machine| machine.sessions == Some(*busiest))
            }
            Event::Used { id } => self.used.last() == Some(id),
            Event::Booted { id, epoch } => {
                self.machines.get(id).is_some_and(|machine| machine.epoch == *epoch)
            }
            Event::Gone { id } => !self.machines.contains_key(id),
            Event::Refused { nonce } | Event::Ready { nonce } => {
                !self.open_intents.contains_key(nonce)
            }
            Event::Intent { nonce, .. } => self.open_intents.contains_key(nonce),
        }
    }

    /// The fewest events that amount to this history.
    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (nonce, (host, account)) in &self.open_intents {
            let (nonce, host, account) = (nonce.clone(), host.clone(), account.clone());
            events.push(Event::Intent { nonce, host, account });
        }
        for (id, machine) in &self.machines {
            let Remembered { host, account, identity, at, sessions, epoch } = machine.clone();
            events.push(Event::Seen { id: id.clone(), host, account, identity, at });
            events.extend(sessions.map(|busiest| Event::Sessions { id: id.clone(), busiest, at }));
            events.extend((epoch > 0).then(|| Event::Booted { id: id.clone(), epoch }));
        }
        events.extend(self.used.iter().map(|id| Event::Used { id: id.clone() }));
        for (host, file) in &self.applied {
            events.push(Event::Applied { host: host.clone(), file: file.clone() });
        }
        events
    }
}

/// The log of one fleet on disk, and what it amounts to.
#[derive(Debug)]
pub struct IntentLog {
    path: PathBuf,
    history: History,
}

impl IntentLog {
    /// Reads the log of a fleet. No log is an empty one; reading makes no file.
    pub fn open(state: &Path, fleet: &FleetId) -> Result<Self, FileError> {
        let path = state.join("fleets").join(fleet.as_str()).join("intent.jsonl");
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(file) => {
                file.take(MOST).read_to_end(&mut bytes).map_err(failed("read", &path))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("read", &path)(error)),
        }
        let mut history = History::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            if let Ok(event) = serde_json::from_slice(line) {
                history.fold(event);
            }
        }
        let log = Self { path, history };
        if bytes.len() as u64 > COMPACT_ABOVE {
            log.compact(bytes.len());
        }
        Ok(log)
    }

    /// What it amounts to.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Writes an event down, durably, unless it says nothing new.
    pub fn record(&mut self, event: Event) -> Result<(), FileError> {
        if self.history.knows(&event) {
            return Ok(());
        }
        if let Some(folder) = self.path.parent() {
            files::private_folder(folder)?;
        }
        // A line break first: it parts this line from one that was torn.
        let mut line = b"\n".to_vec();
        serde_json::to_writer(&mut line, &event).expect("an event is plain data");
        line.push(b'\n');
        let write = || {
            let mut file = self.open_locked()?;
            file.write_all(&line)?;
            file.sync_data()
        };
        write().map_err(failed("write", &self.path))?;
        self.history.fold(event);
        Ok(())
    }

    /// The file to append to. A compaction replaces it: it waits for us, and we for it.
    fn open_locked(&self) -> std::io::Result<File> {
        loop {
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
            file.lock_shared()?;
            // While we waited the name may have gone to another file.
            let current = std::fs::metadata(&self.path).map(|data| data.ino());
            if current.ok() == Some(file.metadata()?.ino()) {
                return Ok(file);
            }
        }
    }

    /// Rewrites the log as the fewest events, unless somebody else wrote since it was read or
    /// writes at this moment. A log that stays long is slow, not wrong.
    fn compact(&self, read: usize) {
        let Ok(file) = File::open(&self.path) else { return };
        let unchanged = || file.metadata().is_ok_and(|data| data.len() == read as u64);
        if file.try_lock().is_err() || !unchanged() {
            return;
        }
        let mut bytes = Vec::new();
        for event in self.history.events() {
            serde_json::to_writer(&mut bytes, &event).expect("an event is plain data");
            bytes.push(b'\n');
        }
        let _ = files::replace(&self.path, &bytes, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(id: &str, host: &str) -> Event {
        Event::Seen {
            id: MachineId::new(id).unwrap(),
            host: HostName::new(host).unwrap(),
            account: AccountName::new("docker").unwrap(),
            identity: "context:default".into(),
            at: Timestamp(1),
        }
    }

    fn intent(seed: u8) -> Event {
        Event::Intent {
            nonce: Nonce::from_random([seed; 16]),
            host: HostName::new("dev").unwrap(),
            account: AccountName::new("docker").unwrap(),
        }
    }

    fn id(text: &str) -> MachineId {
        MachineId::new(text).unwrap()
    }

    #[test]
    fn a_log_reads_back_around_torn_lines() {
        let folder = tempfile::tempdir().unwrap();
        let fleet = FleetId::new("f").unwrap();
        let mut log = IntentLog::open(folder.path(), &fleet).unwrap();
        log.record(seen("a", "dev")).unwrap();
        log.record(seen("b", "web")).unwrap();
        let torn = &mut OpenOptions::new().append(true).open(&log.path).unwrap();
        torn.write_all(b"{\"event\":\"gone\",\"id\":\"a").unwrap();
        log.record(seen("c", "box")).unwrap();
        log.record(Event::Gone { id: id("a") }).unwrap();
        let read = IntentLog::open(folder.path(), &fleet).unwrap();
        assert_eq!(read.history(), log.history());
        assert_eq!(read.history().machines.keys().collect::<Vec<_>>(), [&id("b"), &id("c")]);
    }

    #[test]
    fn what_is_known_is_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = IntentLog::open(folder.path(), &FleetId::new("f").unwrap()).unwrap();
        log.record(seen("a", "dev")).unwrap();
        let length = std::fs::metadata(&log.path).unwrap().len();
        log.record(seen("a", "dev")).unwrap();
        assert_eq!(std::fs::metadata(&log.path).unwrap().len(), length);
    }

    #[test]
    fn a_compacted_log_amounts_to_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let fleet = FleetId::new("f").unwrap();
        let mut log = IntentLog::open(folder.path(), &fleet).unwrap();
        log.record(seen("a", "dev")).unwrap();
        log.record(intent(1)).unwrap();
        log.record(intent(2)).unwrap();
        log.record(Event::Ready { nonce: Nonce::from_random([1; 16]) }).unwrap();
        let busiest = Some(SessionState::Working);
        log.record(Event::Sessions { id: id("a"), busiest, at: Timestamp(2) }).unwrap();
        log.record(Event::Booted { id: id("a"), epoch: 3 }).unwrap();
        log.record(Event::Applied { host: HostName::new("dev").unwrap(), file: "/f".into() })
            .unwrap();
        let before = log.history().clone();
        log.compact(usize::try_from(std::fs::metadata(&log.path).unwrap().len()).unwrap());
        assert!(!std::fs::read(&log.path).unwrap().starts_with(b"\n"), "it was rewritten");
        let read = IntentLog::open(folder.path(), &fleet).unwrap();
        assert_eq!(read.history().machines[&id("a")].sessions, Some(busiest));
        assert_eq!(read.history().machines[&id("a")].epoch, 3);
        assert_eq!(read.history().applied, before.applied);
        assert_eq!(read.history().open_intents, before.open_intents);
        assert_eq!(before.open_intents.len(), 1);
    }
}
