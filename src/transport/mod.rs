//! A way to start a command on a machine and carry its bytes: one method, one file for each way.
//!
//! A transport knows nothing of frames, helpers or providers. Its exit codes and ends of stream
//! prove nothing to its users: the protocol above has a goodbye of its own.

mod child;

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

pub use child::ChildTransport;

/// A command for the machine: plain words, the first of which is a program.
///
/// Words are handed over without a shell where the transport can; one that cannot (ssh) only takes
/// what means the same in every shell. The text of an `sh -c` should hold no quote, backslash, `!`
/// or line break, and everything longer goes over stdin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The words.
    pub words: Vec<String>,
}

impl Command {
    /// A command of these words.
    pub fn new<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect() }
    }
}

/// How a command ended: its exit code, or `None` where a signal killed the transport.
pub type End = Pin<Box<dyn Future<Output = io::Result<Option<i32>>> + Send>>;

/// A command that runs. Dropping it ends the transport, and with it the command's stdin.
pub struct Exec {
    /// What it reads. Dropping it is the end of its input.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// What it prints.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// What it, or the transport, says of errors.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// Its end.
    pub end: End,
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exec")
    }
}

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The program that carries the bytes is not there.
    #[error("`{0}` is not installed, or not in PATH")]
    Missing(String),
    /// The provider gave no way to the machine.
    #[error("{0}")]
    Refused(String),
    /// The system did not start it.
    #[error("`{program}` could not be started")]
    Io {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A way to start commands on one machine.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Starts a command. That it started does not say that the machine was reached: only what it
    /// prints does. Cancel safe: nothing is left running when dropped.
    async fn start(&self, command: &Command) -> Result<Exec, TransportError>;
}
