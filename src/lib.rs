//! simstim: machines for people who run coding agents.

pub mod files;
pub mod history;
pub mod model;
pub mod process;
