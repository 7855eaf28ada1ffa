//! The whole binary in a world of its own: a cleared environment, an empty home, a project folder.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod kills;
pub mod programs;
pub mod terminal;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where one test runs the program.
pub struct Sandbox {
    root: tempfile::TempDir,
    env: Vec<(String, OsString)>,
}

/// How a run ended, with what differs from run to run replaced by words.
#[derive(Debug)]
#[must_use]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// Standard output as it was, byte for byte.
    pub bytes: Vec<u8>,
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let code = self.code.map_or("signal".into(), |code| code.to_string());
        write!(f, "exit {code}\n--- stdout\n{}--- stderr\n{}", self.stdout, self.stderr)
    }
}

impl Run {
    /// What was said on both streams, with wrapped lines joined.
    pub fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr).replace("\n      ", " ").replace("\n    ", " ")
    }

    /// The run, which must have succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }

    /// The run, which must have failed as what cannot be done fails.
    #[track_caller]
    pub fn in_trouble(self) -> Self {
        assert_eq!(self.code, Some(1), "{self}");
        self
    }
}

impl Sandbox {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for folder in ["home", "project"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        Self { root, env: Vec::new() }
    }

    /// Sets a variable for every run from now on.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.env.push((name.into(), value.into()));
    }

    /// A path below the sandbox.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path("project").join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("project").join(name)).unwrap()
    }

    /// The program with these arguments, ready to start in the project folder.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_simstim"));
        command
            .args(words)
            .current_dir(self.path("project"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path("home"))
            .env("USER", "tester")
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the program without a terminal and with nothing to read.
    pub fn run(&self, words: &[&str]) -> Run {
        self.run_with(words, b"")
    }

    /// Runs the program with something to read.
    pub fn run_with(&self, words: &[&str], input: &[u8]) -> Run {
        let mut child = self.start(words);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Run {
            code: output.status.code(),
            stdout: self.plain(&String::from_utf8_lossy(&output.stdout)),
            stderr: self.plain(&String::from_utf8_lossy(&output.stderr)),
            bytes: output.stdout,
        }
    }

    /// Starts the program with pipes.
    pub fn start(&self, words: &[&str]) -> Child {
        self.command(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Replaces what differs from run to run.
    pub fn plain(&self, text: &str) -> String {
        // Nobody reads so much: it is compared as bytes.
        if text.len() > 1 << 20 {
            return text.into();
        }
        let root = std::fs::canonicalize(self.root.path()).unwrap();
        let mut text = text.replace(root.to_str().unwrap(), "$DIR");
        text = text.replace(self.root.path().to_str().unwrap(), "$DIR");
        let patterns = [
            (r"\b\d+\.\d s\b", "N s"),
            (r"\(\d+ kB\)", "(N kB)"),
            (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
            (r"\btester\.[^\s;,]+", "tester.HOST"),
            (r"\b[0-9a-f]{32}\b", "NONCE"),
            (r"\b[0-9a-f]{12}\.simstim-", "ID.simstim-"),
            (r"\b[a-z]+-[a-z]+-[0-9a-f]{4}\b", "FLEET"),
        ];
        for (pattern, word) in patterns {
            text = regex::Regex::new(pattern).unwrap().replace_all(&text, word).into_owned();
        }
        text
    }
}

/// Every file below a folder, with its bytes, for "nothing changed".
pub fn tree(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() && !path.is_symlink() {
                true => folders.push(path),
                false => files.push((path.clone(), std::fs::read(&path).unwrap_or_default())),
            }
        }
    }
    files.sort();
    files
}
