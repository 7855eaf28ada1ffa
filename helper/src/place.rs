//! Where the helper lives on this machine, and what the machine says of itself.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use schema::message::Hello;
use sha2::{Digest as _, Sha256};

use crate::processes;

/// Longest of our own small files that is read; what is longer is not ours.
const SMALL_FILE: u64 = 4096;

/// The home folder, and our folder in it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    home: PathBuf,
}

impl Place {
    /// `$HOME`, else the entry of this user in `/etc/passwd`.
    pub(crate) fn find() -> Result<Self, String> {
        let home = std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(home_from_passwd)
            .ok_or("this user has no home folder: neither $HOME nor /etc/passwd names one")?;
        Ok(Self { home })
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The user's login shell: of /etc/passwd, else of `$SHELL`, else `sh`.
    pub(crate) fn shell() -> String {
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        field_in_passwd(&passwd, rustix::process::getuid().as_raw(), 6)
            .or_else(|| std::env::var("SHELL").ok())
            .filter(|shell| Path::new(shell).is_file())
            .unwrap_or_else(|| "/bin/sh".into())
    }

    /// PATH with our folder at its end, so that programs find `simstim-host`.
    pub(crate) fn path(&self) -> OsString {
        let usual = || "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into();
        let path = std::env::var_os("PATH").filter(|path| !path.is_empty()).unwrap_or_else(usual);
        let folders = std::env::split_paths(&path).chain([self.folder().join("bin")]);
        std::env::join_paths(folders).unwrap_or(path)
    }

    /// Puts a program into `directory` (in the home folder, unless absolute) with the environment
    /// that a login there has at least.
    pub(crate) fn prepare(&self, command: &mut Command, directory: &[u8]) {
        let directory = match directory {
            b"" => self.home().to_owned(),
            directory => self.home().join(OsStr::from_bytes(directory)),
        };
        // So that hooks of agents find `simstim-host mark`.
        command.env("PATH", self.path()).env("PWD", &directory).current_dir(directory);
        if ["LANG", "LC_ALL", "LC_CTYPE"].into_iter().all(|name| std::env::var_os(name).is_none()) {
            command.env("LANG", "C.UTF-8");
        }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.home.join(".local/share/simstim")
    }

    /// What the machine says of itself, from the identity that bootstrap wrote.
    pub(crate) fn hello(&self, purpose: &str) -> Result<Hello, String> {
        let path = self.folder().join("identity");
        let text = read_small(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [fleet, host, nonce] = words.as_slice() else {
            return Err(format!("{} is not an identity of simstim's", path.display()));
        };
        let boot_id = boot_id();
        Ok(Hello {
            fleet: (*fleet).into(),
            host: (*host).into(),
            nonce: (*nonce).into(),
            protocol_min: *schema::PROTOCOL.start(),
            protocol_max: *schema::PROTOCOL.end(),
            version: env!("CARGO_PKG_VERSION").into(),
            epoch: self.epoch(&boot_id),
            boot_id,
            purpose: purpose.into(),
        })
    }

    /// Counts the boots this disk has seen. Best effort: a read-only disk keeps its last count.
    fn epoch(&self, boot_id: &str) -> u64 {
        let path = self.folder().join("boots");
        let text = read_small(&path).unwrap_or_default();
        let (count, last) = text.trim().split_once(' ').unwrap_or(("0", ""));
        let count: u64 = count.parse().unwrap_or(0);
        if last == boot_id && count > 0 {
            return count;
        }
        let next = count.saturating_add(1);
        let temporary = self.folder().join(format!(".boots.{}", std::process::id()));
        let written = std::fs::write(&temporary, format!("{next} {boot_id}\n"))
            .and_then(|()| std::fs::rename(&temporary, &path));
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        next
    }
}

fn read_small(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(SMALL_FILE).read_to_string(&mut text)?;
    Ok(text)
}

fn home_from_passwd() -> Option<PathBuf> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    field_in_passwd(&passwd, rustix::process::getuid().as_raw(), 5).map(PathBuf::from)
}

/// An absolute path in a user's line.
fn field_in_passwd(passwd: &str, uid: u32, field: usize) -> Option<String> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let ours = fields.get(2)?.parse() == Ok(uid);
        let value = fields.get(field)?;
        (ours && value.starts_with('/')).then(|| (*value).to_owned())
    })
}

/// Differs after each start of the machine: the kernel's boot id, and when its first process began,
/// which differs after a restart of a container. Machines that are folders say it themselves. One word.
pub(crate) fn boot_id() -> String {
    let plain = |text: &str| -> String {
        text.chars().filter(|c| c.is_ascii_alphanumeric() || "-.".contains(*c)).take(80).collect()
    };
    if let Some(run) = std::env::var("SIMSTIM_RUN").ok().filter(|run| !run.is_empty()) {
        return plain(&run);
    }
    let boot = read_small(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
    let first = processes::read(1).map(|process| process.started).unwrap_or_default();
    plain(&format!("{}.{first}", boot.trim()))
}

/// The SHA-256 of the running program, in hex.
pub(crate) fn own_digest() -> std::io::Result<String> {
    let mut file = std::fs::File::open("/proc/self/exe")?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
    }
    let mut hex = String::new();
    for byte in hasher.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_comes_from_the_line_of_the_user() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbad line\nu:x:7:7::/home/u:/bin/sh\nv:x:8:8::relative:/bin/sh\n";
        assert_eq!(field_in_passwd(passwd, 7, 5), Some("/home/u".into()));
        assert_eq!(field_in_passwd(passwd, 8, 5), None);
        assert_eq!(field_in_passwd(passwd, 9, 5), None);
    }
}
