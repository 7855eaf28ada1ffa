//! simstim: machines for people who run coding agents.

pub mod config;
pub mod files;
pub mod history;
pub mod model;
pub mod plan;
pub mod process;
