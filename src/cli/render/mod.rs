//! Values in, text out; pure, so that snapshots can hold it.

pub(crate) mod diagnostics;
pub(crate) mod list;
pub(crate) mod notice;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod sessions;
pub(crate) mod table;
pub(crate) mod why;
