//! What was done to hosts from this computer, and why: for people to read, and bounded. Nothing
//! decides by it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files::{self, FileError, failed};
use crate::model::{HostName, Timestamp};

/// Above this many bytes the older half is dropped.
const MOST: u64 = 1 << 20;

/// One thing that was done to a host, or tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// When it was over.
    pub at: Timestamp,
    /// The host.
    pub host: HostName,
    /// The action, in the plan's word.
    pub action: String,
    /// Why.
    pub why: String,
    /// The command that did it.
    pub by: String,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Adds deeds to those of a fleet's folder.
///
/// # Errors
/// The folder takes nothing; what was done is done all the same.
pub fn record(folder: &Path, deeds: &[Deed]) -> Result<(), FileError> {
    if deeds.is_empty() {
        return Ok(());
    }
    files::private_folder(folder)?;
    let path = folder.join("deeds.jsonl");
    // A line break first: it parts these lines from one that was torn.
    let mut lines = b"\n".to_vec();
    for deed in deeds {
        serde_json::to_writer(&mut lines, deed).expect("a deed is plain data");
        lines.push(b'\n');
    }
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).open(&path);
    let mut file = file.map_err(failed("write", &path))?;
    file.write_all(&lines).map_err(failed("write", &path))?;
    if file.metadata().is_ok_and(|data| data.len() > MOST) {
        halve(&path)?;
    }
    Ok(())
}

fn halve(path: &Path) -> Result<(), FileError> {
    let bytes = files::read_bounded(path, 4 * MOST)?;
    let middle = bytes.len() - usize::try_from(MOST / 2).unwrap_or(0).min(bytes.len());
    files::replace(path, &bytes[middle..], None)
}

/// All that is kept, the oldest first. What does not read (half a line, a later version's) is left
/// out.
///
/// # Errors
/// The file is there and cannot be read.
pub fn read(folder: &Path) -> Result<Vec<Deed>, FileError> {
    let path = folder.join("deeds.jsonl");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let bytes = files::read_bounded(&path, 4 * MOST)?;
    let lines = bytes.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deed(at: u64, why: &str) -> Deed {
        let host = HostName::new("dev").unwrap();
        let (action, by) = ("stop".into(), "simstim apply --watch".into());
        Deed { at: Timestamp(at), host, action, why: why.into(), by, error: None }
    }

    #[test]
    fn deeds_are_kept_in_order_and_in_bounds() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), []);
        let long = "x".repeat(4000);
        for at in 0..400 {
            record(folder.path(), &[deed(at, &long)]).unwrap();
        }
        let kept = read(folder.path()).unwrap();
        assert_eq!(kept.last().unwrap().at, Timestamp(399));
        assert!(kept.len() > 100 && kept.len() < 300, "{}", kept.len());
        assert!(kept.windows(2).all(|pair| pair[0].at < pair[1].at));
        let file = folder.path().join("deeds.jsonl");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes.extend(b"{\"at\":1,\"ho");
        std::fs::write(&file, bytes).unwrap();
        record(folder.path(), &[deed(400, "after a torn line")]).unwrap();
        assert_eq!(read(folder.path()).unwrap().last().unwrap().why, "after a torn line");
    }
}
