//! The one place where errors become text, hints and an exit code.

use std::path::Path;

use crate::config::{EditError, LoadError, LocateError, Problems};
use crate::files::FileError;
use crate::fleet::{ConnectError, FleetError};
use crate::helper_client::HelperError;
use crate::keeper::KeeperError;
use crate::plan::SavedPlanError;

use super::render::diagnostics;
use super::ui::{Tone, Ui};

/// Whose fault an error is, which decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What was wanted could not be done: 1.
    Failed,
    /// What was typed, or the file, cannot be used: 2.
    Usage,
    /// Nobody reads stdout any more: not worth a word.
    Unread,
}

/// An error on its way to a person.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) kind: Kind,
    /// What went wrong, then its causes; none repeats another.
    pub(crate) lines: Vec<String>,
    /// What to type.
    pub(crate) hints: Vec<String>,
    /// The file's problems with their places, instead of a line each.
    pub(crate) problems: Option<Box<(String, String, Problems)>>,
}

impl CliError {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, lines: vec![text.into()], hints: Vec::new(), problems: None }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, ..Self::failed(text) }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    fn hints(mut self, hints: Vec<String>) -> Self {
        self.hints.extend(hints);
        self
    }

    fn chain(kind: Kind, error: &dyn std::error::Error) -> Self {
        let mut lines = vec![error.to_string()];
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if lines.last() != Some(&text) {
                lines.push(text);
            }
            source = cause.source();
        }
        Self { kind, lines, hints: Vec::new(), problems: None }
    }

    pub(crate) fn code(&self) -> u8 {
        match self.kind {
            // A reader that has seen enough, such as `head`, is how it should be.
            Kind::Unread => 0,
            Kind::Failed => 1,
            Kind::Usage => 2,
        }
    }

    /// Prints the error as a person reads it.
    pub(crate) fn show(&self, ui: &Ui) {
        if self.kind == Kind::Unread {
            return;
        }
        let mut text = String::new();
        if let Some((path, source, problems)) = self.problems.as_deref() {
            text += &diagnostics::render(path, source, problems, ui.err);
        }
        let mut lines = self.lines.iter();
        if let Some(first) = lines.next() {
            text += &format!("{} {first}\n", ui.err.paint(Tone::Bad, "error:"));
        }
        for line in lines {
            text += &format!("  because: {line}\n");
        }
        for hint in &self.hints {
            let hint = with_file(hint, ui.named_file.as_deref());
            text += &format!("  {} {hint}\n", ui.err.paint(Tone::Dim, "try:"));
        }
        ui.say(&text);
    }
}

/// A command to type, for the file that this one named.
pub(crate) fn with_file(hint: &str, file: Option<&Path>) -> String {
    match (hint.strip_prefix("simstim "), file) {
        (Some(rest), Some(file)) if !rest.contains("--file") => {
            format!("simstim --file {} {rest}", file.display())
        }
        _ => hint.into(),
    }
}

impl From<LoadError> for CliError {
    fn from(error: LoadError) -> Self {
        let mut shown = Self::chain(Kind::Usage, &error);
        if let LoadError::Bad { path, text, problems } = error {
            shown.problems = Some(Box::new((path.display().to_string(), text, problems)));
        }
        shown
    }
}

impl From<LocateError> for CliError {
    fn from(error: LocateError) -> Self {
        Self::chain(Kind::Usage, &error).hint("simstim init").hint("simstim --file FILE …")
    }
}

impl From<FileError> for CliError {
    fn from(error: FileError) -> Self {
        let hint = match &error {
            FileError::NoHome => Some("HOME=/home/you simstim …"),
            FileError::Changed(_) => Some("the same command again, for the file as it is now"),
            _ => None,
        };
        let shown = Self::chain(Kind::Failed, &error);
        hint.map(String::from).into_iter().fold(shown, Self::hint)
    }
}

impl From<EditError> for CliError {
    fn from(error: EditError) -> Self {
        Self::chain(Kind::Usage, &error)
    }
}

impl From<FleetError> for CliError {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::File(error) => error.into(),
            FleetError::NoFleet { ref line, .. } => {
                let hint = format!("add this line at the top of the file:  {line}");
                Self::chain(Kind::Usage, &error).hint(hint)
            }
            FleetError::NotTrusted { .. } => Self::chain(Kind::Usage, &error).hint("simstim trust"),
        }
    }
}

impl From<KeeperError> for CliError {
    fn from(error: KeeperError) -> Self {
        match error {
            KeeperError::File(error) => error.into(),
            KeeperError::Kept { .. } => {
                Self::chain(Kind::Failed, &error).hint("simstim apply    # works beside a keeper")
            }
            KeeperError::OtherFleet { .. } => Self::chain(Kind::Failed, &error)
                .hint("simstim apply --watch    # keeps the other fleet"),
        }
    }
}

impl From<SavedPlanError> for CliError {
    fn from(error: SavedPlanError) -> Self {
        match error {
            SavedPlanError::File(error) => error.into(),
            other => {
                Self::chain(Kind::Failed, &other).hint("simstim plan --out FILE    # a new one")
            }
        }
    }
}

impl From<ConnectError> for CliError {
    fn from(error: ConnectError) -> Self {
        let hints = match &error {
            ConnectError::NoHost(_) => vec!["simstim host list".into()],
            ConnectError::NoMachine { host, .. } => vec![format!("simstim apply {host}")],
            ConnectError::NotUsable { hints, .. } | ConnectError::NotWoken { hints, .. } => {
                hints.clone()
            }
            ConnectError::NotRunning { host, .. } => vec![format!("simstim host start {host}")],
            ConnectError::Off(_) => vec!["remove `power` from its block".into()],
            ConnectError::Helper { host, error } => match error {
                HelperError::NotReached { .. } | HelperError::Lost(_) => {
                    vec![format!("simstim host show {host}    # what its provider says of it")]
                }
                HelperError::WrongMachine { .. } => vec![format!("simstim plan {host}")],
                error => error.hints(),
            },
        };
        Self::chain(Kind::Failed, &error).hints(hints)
    }
}

impl From<HelperError> for CliError {
    fn from(error: HelperError) -> Self {
        let hint = match &error {
            HelperError::Refused(_) => Some("simstim ls"),
            HelperError::Lost(_) => Some("the same command again"),
            _ => None,
        };
        let shown = Self::chain(Kind::Failed, &error).hints(error.hints());
        hint.map(String::from).into_iter().fold(shown, Self::hint)
    }
}

impl From<std::io::Error> for CliError {
    /// Only the terminal's own streams give bare I/O errors here.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { kind: Kind::Unread, ..Self::failed("") };
        }
        Self::failed(format!("cannot write the output: {error}"))
    }
}
