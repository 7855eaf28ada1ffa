//! The words of simstim as types. Each checks its text once, when it is made; nothing here does
//! I/O, and every other floor may use it.

mod ability;
mod machine;
mod name;
mod size;
mod span;

pub use ability::{Abilities, Architecture, IdleStopBy, KeySpec, KindSpec, Limit, Resize};
pub use machine::{Machine, MachineState, Mark, MarkError, SessionFact, SessionState};
pub use name::{AccountName, FleetId, HostName, MachineId, NameError, Nonce};
pub use size::{Bytes, Preset, Size, SizeError};
pub use span::{IdleStop, Power, Span, SpanError, Timestamp};
