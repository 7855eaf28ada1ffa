//! Runs a program of this computer to its end: exact arguments, bounded output, a deadline.
//!
//! Used for providers' command-line tools. Programs that carry a byte stream are
//! [`crate::transport`]'s.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// The most standard output that is kept: the details of 10,000 containers.
const MOST_OUTPUT: usize = 128 << 20;

/// After the program's end, for output that its pipes still hold.
const DRAIN: Duration = Duration::from_secs(2);

/// The end of standard error that is kept for messages.
const ERROR_TAIL: usize = 16 << 10;

/// A program to run.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Its name, looked up in PATH.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables set on top of this process's environment.
    pub env: Vec<(String, OsString)>,
    /// What it reads; nothing otherwise.
    pub input: Option<Vec<u8>>,
}

/// How it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// The exit code, or `None` where a signal killed it.
    pub code: Option<i32>,
    /// Standard output, whole.
    pub output: Vec<u8>,
    /// The end of standard error.
    pub errors: String,
}

/// Why it did not end by itself.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is no such program.
    #[error("`{0}` is not installed, or not in PATH")]
    NotFound(String),
    /// The system did not start it, or its pipes broke.
    #[error("`{name}` could not be run")]
    Io {
        /// The program.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It was still running at its deadline, and was killed.
    #[error("`{command}` gave no answer for {}", humantime::format_duration(*after))]
    TimedOut {
        /// The program with its first arguments.
        command: String,
        /// The deadline.
        after: Duration,
    },
    /// It printed more than anything we ask for.
    #[error("`{0}` printed more than {MOST_OUTPUT} bytes")]
    TooMuch(String),
}

impl Program {
    /// A program with its arguments.
    pub fn new<S: Into<String>>(
        name: impl Into<String>,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { name: name.into(), arguments, ..Self::default() }
    }

    /// Name and first arguments, for messages.
    pub fn summary(&self) -> String {
        let words = self.arguments.iter().take(2).map(String::as_str);
        std::iter::once(self.name.as_str()).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Runs it to its end. Cancel safe: when dropped, the program is killed.
    ///
    /// It has its own process group, so a Ctrl-C meant for simstim does not cut it in half.
    pub async fn run(&self, deadline: Duration) -> Result<Ended, ProgramError> {
        let run = self.run_unbounded();
        tokio::time::timeout(deadline, run).await.unwrap_or_else(|_| {
            Err(ProgramError::TimedOut { command: self.summary(), after: deadline })
        })
    }

    async fn run_unbounded(&self) -> Result<Ended, ProgramError> {
        let io_error = |source| ProgramError::Io { name: self.name.clone(), source };
        let mut child = Command::new(&self.name)
            .args(&self.arguments)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => ProgramError::NotFound(self.name.clone()),
                _ => io_error(error),
            })?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let feed = async {
            if let (Some(mut stdin), Some(input)) = (stdin, &self.input) {
                // A program that stops reading says why on its own.
                let _ = stdin.write_all(input).await;
            }
        };
        let mut group = Group(child.id());
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let mut too_much = false;
        let status = {
            let read = async {
                let (output, errors) = tokio::join!(
                    read_all(stdout, MOST_OUTPUT, &mut output),
                    read_tail(stderr, &mut errors)
                );
                too_much = output?;
                errors
            };
            let mut read = std::pin::pin!(read);
            let mut feed = std::pin::pin!(feed);
            let (mut fed, mut done) = (false, false);
            let status = loop {
                tokio::select! {
                    status = child.wait() => break status,
                    result = &mut read, if !done => {
                        result.map_err(io_error)?;
                        done = true;
                    }
                    () = &mut feed, if !fed => fed = true,
                }
            };
            // A child of its own may hold its output open for ever: what it printed is there soon.
            if !done && let Ok(result) = tokio::time::timeout(DRAIN, read).await {
                result.map_err(io_error)?;
                done = true;
            }
            if done {
                // Nothing holds our pipes: what it left running meant to stay, and its number may
                // be another's by now.
                group.0 = None;
            }
            status.map_err(io_error)?
        };
        if too_much {
            return Err(ProgramError::TooMuch(self.summary()));
        }
        let errors = String::from_utf8_lossy(&errors).trim().to_owned();
        Ok(Ended { code: status.code(), output, errors })
    }
}

/// A program that is cut off, or leaves somebody on our pipes, takes along what it started: its
/// process group is killed when this is dropped. While the group has members its number is theirs.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let group = self.0.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads to the end; `true` where more than `most` bytes came.
async fn read_all(
    stream: impl AsyncRead + Unpin,
    most: usize,
    bytes: &mut Vec<u8>,
) -> io::Result<bool> {
    let mut bounded = stream.take(most as u64 + 1);
    bounded.read_to_end(bytes).await?;
    Ok(bytes.len() > most)
}

/// Reads to the end and keeps the last part.
pub(crate) async fn read_tail(
    mut stream: impl AsyncRead + Unpin,
    tail: &mut Vec<u8>,
) -> io::Result<()> {
    let mut buffer = vec![0; 8192];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        tail.extend_from_slice(&buffer[..read]);
        let surplus = tail.len().saturating_sub(ERROR_TAIL);
        tail.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn output_errors_input_and_code_come_back() {
        let mut program = Program::new("sh", ["-c", "cat; echo oh >&2; exit 3"]);
        program.input = Some(b"in\0put".to_vec());
        let ended = program.run(SOON).await.unwrap();
        let expected = Ended { code: Some(3), output: b"in\0put".to_vec(), errors: "oh".into() };
        assert_eq!(ended, expected);
    }

    #[tokio::test]
    async fn a_child_that_holds_the_output_open_is_not_waited_for() {
        let begun = std::time::Instant::now();
        let script = "sleep 60 & echo $!; echo oh >&2";
        let ended = Program::new("sh", ["-c", script]).run(SOON).await.unwrap();
        assert_eq!((ended.code, ended.errors.as_str()), (Some(0), "oh"));
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_missing_program_and_a_late_one_are_told_apart() {
        let missing = Program::new("simstim-no-such-program", ["x"]).run(SOON).await;
        assert!(matches!(missing, Err(ProgramError::NotFound(_))));
        let late = Program::new("sleep", ["60"]).run(Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(late.to_string(), "`sleep 60` gave no answer for 50ms");
    }
}
