//! The child-process transport: `docker exec -i …`, or the command itself on this computer.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;

use async_trait::async_trait;

use super::{Command, Exec, Transport, TransportError};

/// Starts commands as children of this process, behind a prefix of words.
#[derive(Debug, Clone, Default)]
pub struct ChildTransport {
    /// Words before the command's own, such as `docker exec -i ID`.
    pub prefix: Vec<String>,
    /// The whole environment of the child; `None` leaves it this process's.
    pub env: Option<Vec<(String, OsString)>>,
    /// Where it runs; `None` is here.
    pub directory: Option<PathBuf>,
}

#[async_trait]
impl Transport for ChildTransport {
    async fn start(&self, command: &Command) -> Result<Exec, TransportError> {
        let mut words = self.prefix.iter().chain(&command.words);
        let program = words.next().cloned().unwrap_or_default();
        let mut child = tokio::process::Command::new(&program);
        child.args(words);
        if let Some(env) = &self.env {
            child.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        }
        if let Some(directory) = &self.directory {
            child.current_dir(directory);
        }
        let mut child = child
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C is for simstim, which passes it on as a message where that is meant.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => TransportError::Missing(program.clone()),
                _ => TransportError::Io { program: program.clone(), source },
            })?;
        Ok(Exec {
            stdin: Box::new(child.stdin.take().expect("stdin is piped")),
            stdout: Box::new(child.stdout.take().expect("stdout is piped")),
            stderr: Box::new(child.stderr.take().expect("stderr is piped")),
            end: Box::pin(async move { child.wait().await.map(|status| status.code()) }),
        })
    }
}
