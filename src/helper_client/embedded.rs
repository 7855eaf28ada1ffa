//! The helpers that this program carries, and those of `SIMSTIM_HELPER_DIR`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::files::{self, FileError};
use crate::model::{Architecture, hex};

/// No helper is larger: it is cut to a tenth of this by its budget.
const MOST_BYTES: u64 = 16 << 20;

/// A helper inside this program, packed by the build.
struct Embedded {
    architecture: &'static str,
    digest: &'static str,
    packed: &'static [u8],
}

static EMBEDDED: &[Embedded] = include!(concat!(env!("OUT_DIR"), "/helpers.rs"));

/// A helper's program.
#[derive(Debug, Clone)]
enum Image {
    /// The number of an [`EMBEDDED`] one.
    Embedded(usize),
    Read(Vec<u8>),
}

/// Helpers by architecture.
#[derive(Debug, Clone, Default)]
pub struct Helpers(BTreeMap<Architecture, (String, Image)>);

/// Why `SIMSTIM_HELPER_DIR` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HelperDirError {
    /// The folder does not list.
    #[error("cannot list SIMSTIM_HELPER_DIR {}", .0.display())]
    Folder(PathBuf, #[source] std::io::Error),
    /// One of its files does not read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Helpers {
    /// The embedded ones, and those in a folder, which win.
    pub fn load(folder: Option<&Path>) -> Result<Self, HelperDirError> {
        let embedded = EMBEDDED.iter().enumerate().map(|(number, helper)| {
            let image = Image::Embedded(number);
            (Architecture::new(helper.architecture), (helper.digest.to_owned(), image))
        });
        let mut helpers = Self(embedded.collect());
        let Some(folder) = folder else { return Ok(helpers) };
        let fail = |error| HelperDirError::Folder(folder.into(), error);
        for entry in std::fs::read_dir(folder).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some(architecture) = name.strip_prefix("simstim-host-") {
                let bytes = files::read_bounded(&path, MOST_BYTES)?;
                let digest = hex(&Sha256::digest(&bytes));
                let image = Image::Read(bytes);
                helpers.0.insert(Architecture::new(architecture), (digest, image));
            }
        }
        Ok(helpers)
    }

    /// The architectures that there is a helper for.
    pub fn architectures(&self) -> BTreeSet<Architecture> {
        self.0.keys().cloned().collect()
    }

    /// SHA-256 of the helper for an architecture, in hex.
    pub fn digest(&self, architecture: &Architecture) -> Option<&str> {
        self.0.get(architecture).map(|(digest, _)| digest.as_str())
    }

    /// The digests of all helpers.
    pub fn digests(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(|(digest, _)| digest.as_str())
    }

    /// The helper for an architecture, ready to run.
    ///
    /// # Panics
    /// If the build packed a helper that does not unpack; a test unpacks each.
    pub fn program(&self, architecture: &Architecture) -> Option<Cow<'_, [u8]>> {
        match &self.0.get(architecture)?.1 {
            Image::Read(bytes) => Some(Cow::Borrowed(bytes)),
            Image::Embedded(number) => {
                let helper = &EMBEDDED[*number];
                let mut bytes = Vec::new();
                let mut decoder = flate2::read::DeflateDecoder::new(helper.packed);
                decoder.read_to_end(&mut bytes).expect("the build packed it");
                Some(Cow::Owned(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_embedded_helper_is_whole_and_small() {
        let helpers = Helpers::load(None).unwrap();
        let own = Architecture::new(std::env::consts::ARCH);
        assert!(helpers.architectures().contains(&own), "the build embeds this computer's helper");
        for (architecture, embedded) in helpers.architectures().iter().zip(EMBEDDED) {
            let bytes = helpers.program(architecture).unwrap();
            assert_eq!(Some(hex(&Sha256::digest(&bytes)).as_str()), helpers.digest(architecture));
            // The design's budget: under 1.5 MB, under 700 kB packed.
            assert!(bytes.len() < 1_500_000, "{} bytes", bytes.len());
            assert!(embedded.packed.len() < 700_000, "{} bytes packed", embedded.packed.len());
        }
    }

    #[test]
    fn a_folder_adds_helpers() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("simstim-host-arm64"), "program").unwrap();
        std::fs::write(folder.path().join("README"), "no helper").unwrap();
        let helpers = Helpers::load(Some(folder.path())).unwrap();
        let added = Architecture::new("aarch64");
        assert_eq!(helpers.program(&added).as_deref(), Some(b"program".as_slice()));
        assert_eq!(helpers.architectures().len(), EMBEDDED.len() + 1);
    }
}
