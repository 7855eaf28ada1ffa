//! Everything that needs no engine, no machine and no network: seconds, not minutes.
#![allow(missing_docs, reason = "tests are named as sentences")]
#![allow(unreachable_pub, reason = "support is shared by several test programs")]

#[path = "../support/mod.rs"]
mod support;

mod attach;
mod binary;
mod doors;
mod examples;
mod exec_terminal;
mod executor;
mod files;
mod floors;
mod holders;
mod hostile;
mod keeper;
mod kills;
mod kit;
mod luck;
mod network;
mod others;
mod outside;
mod planner;
mod programs;
mod promises;
mod sessions;
mod stream;
