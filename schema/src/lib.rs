//! simstim's contracts: what two programs, or a program and a person's editor, agree upon.
//!
//! [`frame`] is the sans-I/O codec between simstim and its helper, [`message`] the messages it
//! carries. The JSON schema of `hosts.toml` lies beside them as `hosts.schema.json`. Nothing here
//! reads, writes, waits or knows what a host is.

#![forbid(unsafe_code)]

pub mod frame;
pub mod message;

/// Shared, cheaply cut bytes: what [`message::Data`] carries.
pub use prost::bytes;

/// Versions of the protocol that this crate speaks, oldest and newest.
///
/// Raise the newest with every change that an older side could misread; drop the oldest only when
/// no released helper speaks it any more, because holders outlive the client that made them.
pub const PROTOCOL: std::ops::RangeInclusive<u32> = 1..=1;

/// The version that both sides speak, or `None` where the ranges do not meet.
#[must_use]
pub fn agree(theirs_min: u32, theirs_max: u32) -> Option<u32> {
    let newest = theirs_max.min(*PROTOCOL.end());
    (newest >= theirs_min && newest >= *PROTOCOL.start()).then_some(newest)
}
