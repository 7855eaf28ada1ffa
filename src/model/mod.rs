//! The words of simstim as types. Each checks its text once, when it is made; nothing here does
//! I/O, and every other floor may use it.

mod ability;
mod listing;
mod machine;
mod name;
mod size;
mod span;

pub use ability::{Abilities, Architecture, IdleStopBy, KeySpec, KindSpec, Limit, Resize};
pub use listing::{Listing, MachineSpec, Question, Survey};
pub use machine::{
    IdleVerdict, Machine, MachineState, Mark, MarkError, SessionFact, SessionState, WakeDecision,
    WakeSource, Wakefulness, busiest,
};
pub use name::{AccountName, FleetId, HostName, MachineId, NameError, Nonce};
pub(crate) use name::{check_session, hex};
pub use size::{Bytes, Preset, Size, SizeError};
pub use span::{IdleStop, Power, Span, SpanError, Timestamp};

/// Text of strangers, fit for a terminal: on one line, bounded, and without control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(2000).collect()
}

/// A text, or a bare number that lacks its unit: read as a text it says so better than serde could.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected a text, such as \"4GiB\" or \"30m\"")]
pub(crate) enum TextOrNumber {
    Text(String),
    Number(i64),
}

impl From<TextOrNumber> for String {
    fn from(value: TextOrNumber) -> String {
        match value {
            TextOrNumber::Text(text) => text,
            TextOrNumber::Number(number) => number.to_string(),
        }
    }
}
