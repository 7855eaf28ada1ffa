//! simstim's side of the helper: which one fits a machine, how it gets there, and what is asked of
//! it over a bridge.

mod attach;
mod bootstrap;
mod bridge;
mod door;
mod embedded;
mod exec;
mod sessions;
mod streams;
mod typing;

pub use attach::{AttachEnd, AttachRequest, Attachment, Terminal};
pub use bootstrap::{Installed, bootstrap};
pub use bridge::{Bridge, Purpose, connect};
pub use door::{Door, HelperDoor};
pub use embedded::{HelperDirError, Helpers};
pub use exec::{ExecError, ExecRequest, Streams, run as exec};
pub use sessions::{
    LogError, NewSession, StartedSession, list_sessions, new_session, read_log, signal_session,
    verdict, wakefulness,
};

use crate::model::Architecture;
use crate::transport::TransportError;

/// Why the helper of a machine could not be reached, installed or used.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The transport did not start.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The transport ended, or kept silent, before anything of ours spoke.
    #[error("the machine was not reached: {said}")]
    NotReached {
        /// What was printed instead.
        said: String,
    },
    /// No helper of this version is on the machine.
    #[error("no helper is installed on the machine")]
    NotInstalled,
    /// Another machine answered.
    #[error("the machine behind this door is {found}, not {wanted}")]
    WrongMachine {
        /// The mark that was expected: fleet, host, nonce.
        wanted: String,
        /// The one that answered.
        found: String,
    },
    /// Its helper speaks only other versions of the protocol.
    #[error("the helper (version {0}) speaks another protocol; install this version's again")]
    Protocol(String),
    /// There is no helper for its processor.
    #[error("this simstim has no helper for {0} machines")]
    NoHelper(Architecture),
    /// The machine is not Linux.
    #[error("the machine runs {0}; a helper runs on Linux only")]
    NotLinux(String),
    /// The upload did not arrive whole, or does not run there.
    #[error("the helper could not be installed: {0}")]
    Install(String),
    /// The machine said no.
    #[error("{0}")]
    Refused(String),
    /// What is asked does not fit one message.
    #[error(
        "{0} bytes of command and environment are more than one message holds ({max}); pass long \
         texts on stdin or in a file",
        max = schema::frame::MAX_MESSAGE
    )]
    TooLong(usize),
    /// The stream broke or made no sense.
    #[error("the connection to the machine was lost: {0}")]
    Lost(String),
}

impl HelperError {
    /// Whether only the connection is to blame, so that another may do.
    pub fn is_of_connection(&self) -> bool {
        matches!(self, Self::Transport(_) | Self::NotReached { .. } | Self::Lost(_))
    }

    /// What to type about it.
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::NoHelper(architecture) => architecture.helper_hints(),
            _ => Vec::new(),
        }
    }
}
