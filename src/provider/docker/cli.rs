//! The engine's command line: how it is called, how its failures are told apart.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::process::{Ended, Program, ProgramError};
use crate::provider::{ErrorKind, ProviderError};

/// The command line with the words that every call begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cli {
    name: String,
    context: Option<String>,
}

/// One container of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) name: String,
    /// The label of the fleet; empty where there is none.
    pub(super) fleet: String,
}

impl Cli {
    pub(super) fn new(settings: &BTreeMap<String, String>) -> Self {
        let setting = |key: &str| settings.get(key).cloned();
        Self {
            name: setting("cli").unwrap_or_else(|| "docker".into()),
            context: setting("context"),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Which engine this is, as far as that can be said without asking it.
    pub(super) fn identity(&self) -> String {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if let Some(context) = &self.context {
            return format!("context {context}");
        }
        let (host, context) = if self.name == "podman" {
            (variable("CONTAINER_HOST"), variable("CONTAINER_CONNECTION"))
        } else {
            (variable("DOCKER_HOST"), variable("DOCKER_CONTEXT"))
        };
        match (host, context) {
            (Some(host), _) => format!("host {host}"),
            (None, Some(context)) => format!("context {context}"),
            (None, None) => format!("context {}", self.current_context()),
        }
    }

    fn current_context(&self) -> String {
        let default = || "default".to_owned();
        if self.name == "podman" {
            return default();
        }
        let folder = std::env::var_os("DOCKER_CONFIG")
            .map(std::path::PathBuf::from)
            .or_else(|| Some(std::path::PathBuf::from(std::env::var_os("HOME")?).join(".docker")));
        let path = folder.map(|folder| folder.join("config.json"));
        let bytes = path.and_then(|path| crate::files::read_bounded(&path, 1 << 20).ok());
        let config: Option<serde_json::Value> =
            bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let current =
            config.and_then(|config| Some(config.get("currentContext")?.as_str()?.into()));
        current.filter(|context: &String| !context.is_empty()).unwrap_or_else(default)
    }

    pub(super) fn program(&self, words: &[&str]) -> Program {
        let mut arguments: Vec<&str> = Vec::new();
        if let Some(context) = &self.context {
            let flag = if self.name == "podman" { "--connection" } else { "--context" };
            arguments.extend([flag, context]);
        }
        arguments.extend(words);
        Program::new(&self.name, arguments)
    }

    pub(super) async fn run(
        &self,
        words: &[&str],
        deadline: Duration,
    ) -> Result<Ended, ProviderError> {
        self.run_program(&self.program(words), deadline).await
    }

    pub(super) async fn run_program(
        &self,
        program: &Program,
        deadline: Duration,
    ) -> Result<Ended, ProviderError> {
        program.run(deadline).await.map_err(|error| {
            if let ProgramError::NotFound(_) = error {
                ProviderError::new(ErrorKind::Denied, error.to_string())
                    .hint(format!("install {} and start its engine", self.name))
            } else {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                ProviderError::new(ErrorKind::NotNow, error.to_string())
                    .detail(source.unwrap_or_default())
            }
        })
    }

    /// The engine's own id, which tells two engines behind one context apart.
    pub(super) async fn engine(&self) -> Result<Option<String>, ProviderError> {
        // Podman has no engine that could be another one: it works on this computer's storage.
        if self.name == "podman" {
            return Ok(None);
        }
        let ended = self.run(&["info", "--format", "{{.ID}}"], super::LOOK).await?;
        if ended.code != Some(0) {
            return Err(self.failure("reach the engine", &ended));
        }
        let id = crate::model::printable(String::from_utf8_lossy(&ended.output).trim());
        Ok((!id.is_empty()).then_some(id))
    }

    /// Every container of the engine, running or not.
    pub(super) async fn list(&self, label: &str) -> Result<Vec<Row>, ProviderError> {
        if self.name == "podman" {
            return self.list_podman(label).await;
        }
        // Asked for by template: JSON output joins labels by commas that may stand in their values,
        // and makes old engines compute sizes. The label alone may hold anything, so it comes as JSON.
        let format = format!("{{{{.ID}}}}\t{{{{.Names}}}}\t{{{{json (.Label \"{label}fleet\")}}}}");
        let words = ["ps", "--all", "--no-trunc", "--format", &format];
        let ended = self.run(&words, super::LOOK).await?;
        if ended.code != Some(0) {
            return Err(self.failure("list containers", &ended));
        }
        parse_rows(&ended.output).map_err(|line| self.nonsense(line))
    }

    /// Podman's templates know no labels (4.3), but its JSON keeps them apart.
    async fn list_podman(&self, label: &str) -> Result<Vec<Row>, ProviderError> {
        let words = ["ps", "--all", "--no-trunc", "--format", "json"];
        let ended = self.run(&words, super::LOOK).await?;
        if ended.code != Some(0) {
            return Err(self.failure("list containers", &ended));
        }
        parse_podman(&ended.output, &format!("{label}fleet")).map_err(|why| self.nonsense(why))
    }

    fn nonsense(&self, detail: String) -> ProviderError {
        let text = format!("`{} ps` printed something that is no container", self.name);
        ProviderError::new(ErrorKind::Nonsense, text).detail(detail)
    }

    /// What a call that ended badly means.
    pub(super) fn failure(&self, doing: &str, ended: &Ended) -> ProviderError {
        let said = ended.errors.trim();
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let lower = said.to_lowercase();
        let has = |needle: &str| lower.contains(needle);
        let name = &self.name;
        let error = |kind, text: String| ProviderError::new(kind, text).detail(last.trim());
        if has("cannot connect to the docker daemon")
            || has("is the docker daemon running")
            || has("cannot connect to podman")
            || has("connection refused")
        {
            return error(ErrorKind::NotNow, format!("the {name} engine does not answer"))
                .hint("sudo systemctl start docker")
                .hint(format!("{name} version"));
        }
        if has("permission denied while trying to connect") {
            return error(ErrorKind::Denied, format!("you may not use the {name} engine"))
                .hint("sudo usermod -aG docker $USER    # then log in again");
        }
        if has("context") && has("not found") {
            return error(ErrorKind::Denied, format!("cannot {doing}: no such context"))
                .hint(format!("{name} context ls"));
        }
        let kind = if has("no such container") {
            ErrorKind::Gone
        } else if has("is already in use by container") || has("name is already in use") {
            ErrorKind::Taken
        } else if ended.code.is_none() {
            ErrorKind::NotNow
        } else {
            ErrorKind::Refused
        };
        error(kind, format!("cannot {doing}"))
    }
}

/// Reads the rows of a list; the error is the first line that is none.
pub(super) fn parse_rows(output: &[u8]) -> Result<Vec<Row>, String> {
    let text = String::from_utf8_lossy(output);
    let rows = text.lines().filter(|line| !line.trim().is_empty()).map(|line| {
        let fields: Vec<&str> = line.splitn(3, '\t').collect();
        match fields.as_slice() {
            [id, name, fleet] if is_id(id) && serde_json::from_str::<String>(fleet).is_ok() => {
                let fleet = serde_json::from_str(fleet).unwrap_or_default();
                // A container in several networks of old has several names; the first is its own.
                let name = name.split(',').next().unwrap_or_default();
                Ok(Row { id: (*id).into(), name: name.into(), fleet })
            }
            _ => Err(line.chars().take(200).collect()),
        }
    });
    rows.collect()
}

/// One container of Podman's list.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PodmanRow {
    id: String,
    names: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
}

/// Reads Podman's list, one JSON array; the error is what is wrong with it.
pub(super) fn parse_podman(output: &[u8], fleet_label: &str) -> Result<Vec<Row>, String> {
    let rows: Vec<PodmanRow> = serde_json::from_slice(output).map_err(|error| error.to_string())?;
    let row = |row: PodmanRow| {
        let fleet = row.labels.unwrap_or_default().remove(fleet_label).unwrap_or_default();
        let name = row.names.unwrap_or_default().into_iter().next().unwrap_or_default();
        if is_id(&row.id) { Ok(Row { id: row.id, name, fleet }) } else { Err(row.id) }
    };
    rows.into_iter().map(row).collect()
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_strictly() {
        let id = "a".repeat(64);
        let rows = parse_rows(format!("{id}\tsimstim-dev\t\"f\"\n{id}\tother\t\"\"\n").as_bytes())
            .unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].fleet.as_str(), rows[1].fleet.as_str()), ("f", ""));
        let text = format!("WARNING: something\n{id}\tx\t\n");
        assert_eq!(parse_rows(text.as_bytes()), Err("WARNING: something".into()));
        let rows = parse_rows(format!("{id}\tother\t\"a\\tb\\n{id}\"\n").as_bytes()).unwrap();
        assert_eq!(
            rows[0].fleet,
            format!("a\tb\n{id}"),
            "a stranger's label is no reason to be blind"
        );
        assert_eq!(parse_rows(b""), Ok(Vec::new()));
    }

    #[test]
    fn podman_rows_are_read_from_json() {
        let id = "b".repeat(64);
        let text = format!(
            "[{{\"Id\":\"{id}\",\"Names\":[\"simstim-dev\"],\"Labels\":{{\"l\":\"f\"}},\"Pid\":7}},
              {{\"Id\":\"{id}\",\"Names\":null,\"Labels\":null}}]"
        );
        let rows = parse_podman(text.as_bytes(), "l").unwrap();
        assert_eq!((rows[0].name.as_str(), rows[0].fleet.as_str()), ("simstim-dev", "f"));
        assert_eq!((rows[1].name.as_str(), rows[1].fleet.as_str()), ("", ""));
        assert!(
            parse_podman(b"{}", "l").is_err() && parse_podman(b"[{\"Id\":\"x\"}]", "l").is_err()
        );
    }

    #[test]
    fn failures_are_told_apart() {
        let cli = Cli::new(&BTreeMap::new());
        let kind = |errors: &str| {
            let ended = Ended { code: Some(1), output: Vec::new(), errors: errors.into() };
            cli.failure("look", &ended).kind
        };
        let cases = [
            (
                "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
                ErrorKind::NotNow,
            ),
            (
                "permission denied while trying to connect to the Docker daemon socket",
                ErrorKind::Denied,
            ),
            ("context \"x\": context not found", ErrorKind::Denied),
            ("Error: No such container: x", ErrorKind::Gone),
            (
                "Conflict. The container name \"/x\" is already in use by container \"y\"",
                ErrorKind::Taken,
            ),
            ("something new", ErrorKind::Refused),
        ];
        for (text, expected) in cases {
            assert_eq!(kind(text), expected, "{text}");
        }
    }
}
