//! What a file from a project folder may use only after a person saw it.
//!
//! A cloned repository must not run commands or reach addresses of its own choice. `simstim trust`
//! shows them and remembers their digest with the file's path; a change asks again. The user's own
//! file, in the configuration folder, needs no such word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::files::{self, FileError};

/// One setting that names a command or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustNeed {
    /// Its key, such as `provider.work.context`.
    pub key: String,
    /// Its value as written.
    pub value: String,
}

/// Which files were shown to a person, by path.
#[derive(Debug)]
pub struct Trust {
    path: PathBuf,
    trusted: BTreeMap<PathBuf, String>,
}

impl Trust {
    /// Reads what is trusted. A file that does not read trusts nothing.
    pub fn open(state: &Path) -> Self {
        let path = state.join("trust.json");
        let trusted = files::read_bounded(&path, 1 << 20)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        Self { path, trusted }
    }

    /// Whether a person saw exactly these settings of this file. No settings need no trust.
    pub fn covers(&self, file: &Path, needs: &[TrustNeed]) -> bool {
        needs.is_empty() || self.trusted.get(&canonical(file)) == Some(&digest(needs))
    }

    /// Remembers that a person saw them.
    pub fn add(&mut self, file: &Path, needs: &[TrustNeed]) -> Result<(), FileError> {
        self.trusted.insert(canonical(file), digest(needs));
        if let Some(folder) = self.path.parent() {
            files::private_folder(folder)?;
        }
        let bytes = serde_json::to_vec_pretty(&self.trusted).expect("paths and digests");
        files::replace(&self.path, &bytes, None)
    }
}

fn canonical(file: &Path) -> PathBuf {
    std::fs::canonicalize(file).unwrap_or_else(|_| file.into())
}

fn digest(needs: &[TrustNeed]) -> String {
    let mut hasher = Sha256::new();
    for text in needs.iter().flat_map(|need| [&need.key, &need.value]) {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text);
    }
    crate::model::hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_for_one_file_and_ends_when_a_setting_changes() {
        let folder = tempfile::tempdir().unwrap();
        let need = |value: &str| vec![TrustNeed { key: "k".into(), value: value.into() }];
        let file = folder.path().join("hosts.toml");
        let mut trust = Trust::open(folder.path());
        assert!(trust.covers(&file, &[]));
        assert!(!trust.covers(&file, &need("a")));
        trust.add(&file, &need("a")).unwrap();
        let trust = Trust::open(folder.path());
        assert!(trust.covers(&file, &need("a")));
        assert!(!trust.covers(&file, &need("b")));
        assert!(!trust.covers(&folder.path().join("other.toml"), &need("a")));
    }
}
