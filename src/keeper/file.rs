//! Follows a file through every way that editors save it: rename, truncate and write, write twice.
//!
//! A change counts once the file has been left alone for a moment. Looking is a `stat`, twice a
//! second: no watch can be lost by a rename, and no editor is too clever for it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the file is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// A save is over when the file was left alone for so long.
const CALM: Duration = Duration::from_secs(1);

/// What tells one version of a file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

fn version(path: &Path) -> Option<Version> {
    let data = std::fs::metadata(path).ok()?;
    Some(Version {
        inode: data.ino(),
        size: data.size(),
        modified: (data.mtime(), data.mtime_nsec()),
        changed: (data.ctime(), data.ctime_nsec()),
    })
}

/// A file and the version that was last taken.
#[derive(Debug)]
pub(super) struct FileWatch {
    path: PathBuf,
    taken: Option<Version>,
    /// The version seen last, and since when.
    seen: (Option<Version>, Duration),
}

impl FileWatch {
    /// The version that there is was not taken yet: whoever read the file did so a while ago.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.into(), taken: None, seen: (version(path), Duration::ZERO) }
    }

    /// Whether there is a version that nobody took yet and that has calmed down. Takes it.
    pub(super) fn changed(&mut self, now: Duration) -> bool {
        let current = version(&self.path);
        if current != self.seen.0 {
            self.seen = (current, now);
        }
        let calm = now.saturating_sub(self.seen.1) >= CALM;
        // A file that is gone for a moment is being replaced; the last good one counts.
        if current == self.taken || current.is_none() || !calm {
            return false;
        }
        self.taken = current;
        true
    }

    /// Since when the file is as it is.
    pub(super) fn since(&self) -> Duration {
        self.seen.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_once_and_only_when_it_calmed_down() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts.toml");
        std::fs::write(&path, "one").unwrap();
        let mut watch = FileWatch::new(&path);
        let at = Duration::from_millis;
        assert!(watch.changed(at(1000)), "what changed before it was watched is no less a change");
        assert!(!watch.changed(at(5000)));
        std::fs::write(&path, "").unwrap();
        assert!(!watch.changed(at(5500)), "truncated just now");
        std::fs::write(&path, "two!").unwrap();
        assert!(!watch.changed(at(6600)), "written just now");
        assert!(watch.changed(at(7600)));
        assert!(!watch.changed(at(9000)), "taken already");
        let other = folder.path().join("other");
        std::fs::write(&other, "two!").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(!watch.changed(at(9500)));
        assert!(watch.changed(at(10500)), "a rename of the same size");
        std::fs::remove_file(&path).unwrap();
        assert!(!watch.changed(at(20000)) && !watch.changed(at(30000)), "gone is no change");
    }
}
