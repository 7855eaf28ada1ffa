//! `hosts.toml`: found, read, checked, edited.
//!
//! Reading gives a [`Config`], where presets and defaults are worked in and every wish is one that
//! its provider has, or every problem of the file at once, each at its place. Edits go through
//! [`Edit`], which keeps the rest of the file byte for byte.

mod check;
mod edit;
mod locate;
mod model;
mod problem;
mod reader;
mod schema;
mod trust;

pub use check::read;
pub use edit::{Edit, EditError, NewHost};
pub use locate::{FILE_NAME, LocateError, Located, locate};
pub use model::{Account, Config, DEFAULT_BUSY_LEASE, Host};
pub(crate) use problem::nearest;
pub use problem::{Problem, Problems};
pub use schema::json_schema;
pub use trust::{Trust, TrustNeed};

use std::path::{Path, PathBuf};

use crate::files::{self, FileError};
use crate::model::KindSpec;

/// No hand-written list of hosts is longer; what is longer is refused unread.
pub const MOST_BYTES: u64 = 1 << 20;

/// A file as it was read: the text is kept, so that an edit can tell whether it is still the same.
#[derive(Debug, Clone)]
pub struct File {
    /// Where it lies.
    pub path: PathBuf,
    /// Its whole text.
    pub text: String,
    /// What it says.
    pub config: Config,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not text.
    #[error("{path} is not UTF-8 text (byte {at})", path = path.display())]
    NotText {
        /// Which file.
        path: PathBuf,
        /// Offset of the first byte that is none.
        at: usize,
    },
    /// It says what it cannot say.
    #[error("{path} has {count}", path = path.display(), count = .problems.count_words())]
    Bad {
        /// Which file.
        path: PathBuf,
        /// Its text, for excerpts.
        text: String,
        /// Everything that is wrong.
        problems: Problems,
    },
}

/// Reads and checks a file against what the kinds of `catalog` can do.
pub fn load(path: &Path, catalog: &[KindSpec]) -> Result<File, LoadError> {
    let bytes = files::read_bounded(path, MOST_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|error| LoadError::NotText {
        path: path.into(),
        at: error.utf8_error().valid_up_to(),
    })?;
    match read(&text, catalog) {
        Ok(config) => Ok(File { path: path.into(), text, config }),
        Err(problems) => Err(LoadError::Bad { path: path.into(), text, problems }),
    }
}
