//! simstim: machines for people who run coding agents.

pub mod apply;
mod cli;
pub mod config;
pub mod files;
pub mod fleet;
pub mod helper_client;
pub mod history;
pub mod model;
pub mod observe;
pub mod plan;
pub mod process;
pub mod provider;
pub mod stop;
pub mod transport;

pub use cli::main;
