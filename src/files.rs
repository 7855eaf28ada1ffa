//! simstim's folders on this computer, atomic writes, and locks that die with their process.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Neither an XDG variable nor `HOME` says where to write.
    #[error("HOME is not set, so there is no place for simstim's state")]
    NoHome,
    /// The system refused.
    #[error("cannot {doing} {path}", path = path.display())]
    Io {
        /// What was tried: a verb.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Somebody else wrote the file since it was read.
    #[error("{path} was changed by somebody else meanwhile; nothing was written", path = .0.display())]
    Changed(PathBuf),
    /// The file is longer than anything simstim writes or reads.
    #[error("{path} is larger than {most} bytes", path = path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// The bound, in bytes.
        most: u64,
    },
    /// Another process holds the lock.
    #[error("{holder} is at work on it ({path} is locked)", path = path.display())]
    Locked {
        /// The lock's file.
        path: PathBuf,
        /// Who holds it, as it wrote itself down.
        holder: String,
    },
}

/// Turns an I/O error into one that says what was tried with which file.
pub(crate) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |source| FileError::Io { doing, path: path.into(), source }
}

/// Where simstim keeps things on this computer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// What it remembers: intent logs, trust, locks.
    pub state: PathBuf,
    /// Machines of the provider `local`.
    pub data: PathBuf,
    /// Where the user's own `hosts.toml` may lie.
    pub config: PathBuf,
}

impl Folders {
    /// By the XDG variables, else below `HOME`. `variable` reads the environment.
    pub fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, FileError> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let folder = |name: &str, below_home: &str| {
            absolute(name)
                .or_else(|| absolute("HOME").map(|home| home.join(below_home)))
                .map(|folder| folder.join("simstim"))
                .ok_or(FileError::NoHome)
        };
        Ok(Self {
            state: folder("XDG_STATE_HOME", ".local/state")?,
            data: folder("XDG_DATA_HOME", ".local/share")?,
            config: folder("XDG_CONFIG_HOME", ".config")?,
        })
    }
}

/// Makes a folder and its parents; what it makes is for this user only.
pub fn private_folder(path: &Path) -> Result<(), FileError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create", path))
}

/// Reads a whole file of at most `most` bytes.
pub fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    // Not blocking: a pipe that nobody writes to would be waited for at its opening.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(failed("read", path))?;
    if !file.metadata().map_err(failed("read", path))?.is_file() {
        let kind = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
        return Err(failed("read", path)(kind));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed("read", path))?;
    if bytes.len() as u64 > most {
        return Err(FileError::TooLarge { path: path.into(), most });
    }
    Ok(bytes)
}

/// Replaces a file by a rename, keeping its permissions; it is never seen half-written. A link is
/// followed. With `expected`, a file that holds anything else by now is left alone
/// ([`FileError::Changed`]); `Some(None)` expects that there is no file.
pub fn replace(
    path: &Path,
    bytes: &[u8],
    expected: Option<Option<&[u8]>>,
) -> Result<(), FileError> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = folder.join(format!(".simstim-{}.tmp", std::process::id()));
    let result = write_new(&temporary, &target, bytes).and_then(|()| {
        if let Some(expected) = expected
            && fs::read(&target).ok().as_deref() != expected
        {
            return Err(FileError::Changed(path.into()));
        }
        fs::rename(&temporary, &target).map_err(failed("replace", path))
    });
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result?;
    // The rename is durable once its folder is. Some file systems cannot sync a folder.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn write_new(temporary: &Path, target: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mode = fs::metadata(target).map_or(0o644, |data| data.permissions().mode() & 0o7777);
    let _ = fs::remove_file(temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)
        .map_err(failed("write beside", target))?;
    file.write_all(bytes)
        .and_then(|()| file.set_permissions(fs::Permissions::from_mode(mode)))
        .and_then(|()| file.sync_all())
        .map_err(failed("write beside", target))
}

/// A lock on a file, gone when this value or its process is.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock and writes down who holds it, waiting at most `patience`.
    ///
    /// # Errors
    /// [`FileError::Locked`] names the holder.
    pub async fn take(path: &Path, who: &str, patience: Duration) -> Result<Self, FileError> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            match Self::try_take(path, who) {
                Err(FileError::Locked { .. }) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                result => return result,
            }
        }
    }

    /// Takes the lock, or says at once who holds it.
    pub fn try_take(path: &Path, who: &str) -> Result<Self, FileError> {
        if let Some(folder) = path.parent() {
            private_folder(folder)?;
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed("open", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(FileError::Locked { path: path.into(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", path)(source)),
        }
        // The text only helps people: a full disk does not stop us from holding the lock.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{who} (pid {})", std::process::id()));
        Ok(Self { _file: file })
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.take(256).read_to_string(&mut text);
    let text = text.trim();
    if text.is_empty() { "another process".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replace_keeps_mode_and_links_and_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("real.toml");
        let link = folder.path().join("hosts.toml");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real.toml", &link).unwrap();
        replace(&link, b"new", Some(Some(b"old"))).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_somebody_else_wrote_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts.toml");
        fs::write(&file, "theirs").unwrap();
        let error = replace(&file, b"ours", Some(Some(b"old"))).unwrap_err();
        assert!(matches!(error, FileError::Changed(_)), "{error}");
        assert!(replace(&file, b"ours", Some(None)).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_lock_names_its_holder_and_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks/dev");
        let first = Lock::try_take(&path, "simstim apply").unwrap();
        let error = Lock::try_take(&path, "simstim plan").unwrap_err();
        assert!(error.to_string().starts_with("simstim apply (pid "), "{error}");
        drop(first);
        Lock::try_take(&path, "simstim plan").unwrap();
    }

    #[test]
    fn folders_follow_xdg_then_home() {
        let env = |name: &str| match name {
            "HOME" => Some("/h".into()),
            "XDG_STATE_HOME" => Some("/s".into()),
            "XDG_DATA_HOME" => Some("relative".into()),
            _ => None,
        };
        let folders = Folders::from_env(env).unwrap();
        assert_eq!(folders.state, Path::new("/s/simstim"));
        assert_eq!(folders.data, Path::new("/h/.local/share/simstim"));
        assert!(matches!(Folders::from_env(|_| None), Err(FileError::NoHome)));
    }
}
