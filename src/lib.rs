//! simstim: machines for people who run coding agents.
//!
//! The way of one change:
//!
//! ```text
//! hosts.toml ─ config ─► Config ─┐
//!                                ├─ plan ─► Plan ─ graph ─► StepGraph ─ apply ─► machines
//! providers ─ observe ─► Observed┘   (shown, agreed to)
//! ```
//!
//! Floors, bottom up; a file uses only floors below its own, and a test reads the imports:
//!
//! | floor | modules | knows |
//! |---|---|---|
//! | 0 | [`model`], [`files`], [`network`], [`process`], [`stop`] | words; this computer |
//! | 1 | [`config`], [`history`], [`deeds`] | `hosts.toml`; the intent log; what was done |
//! | 2 | [`plan`] | decisions: values in, values out |
//! | 3 | [`transport`] | bytes to a command on a machine |
//! | 4 | [`provider`] | who makes machines |
//! | 5 | [`helper_client`] | the helper on a machine |
//! | 6 | [`provider::memory`] | a vendor in memory, for tests |
//! | 7 | [`observe`] | asks everybody |
//! | 8 | [`apply`] | carries out a plan |
//! | 9 | [`fleet`], [`testing`] | all of it, as a library |
//! | 10 | [`keeper`] | the loop behind `apply --watch` |
//! | 11 | `cli` | text in, text out |

#![forbid(unsafe_code)]

pub mod apply;
mod cli;
pub mod config;
pub mod deeds;
pub mod files;
pub mod fleet;
pub mod helper_client;
pub mod history;
pub mod keeper;
pub mod model;
pub mod network;
pub mod observe;
pub mod plan;
pub mod process;
pub mod provider;
pub mod stop;
pub mod testing;
pub mod transport;

pub use cli::{main, main_with};
