//! One file for each verb, or for verbs that share all their parts.

pub(super) mod apply;
pub(super) mod attach;
pub(super) mod exec;
pub(super) mod host;
pub(super) mod init;
pub(super) mod list;
pub(super) mod plan;
pub(super) mod schema;
pub(super) mod session;
pub(super) mod trust;
pub(super) mod watch;
pub(super) mod why;
