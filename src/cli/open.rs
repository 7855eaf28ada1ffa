//! From what was typed to an opened file and fleet.

use std::path::PathBuf;

use crate::config::{self, Config, Edit, File, LoadError, Located};
use crate::files::Folders;
use crate::fleet::{Computer, Fleet};
use crate::helper_client::Helpers;
use crate::model::HostName;
use crate::provider::Kinds;

use super::error::CliError;
use super::render::diagnostics;
use super::ui::Ui;

/// What a run begins with: the file that was named, and the kinds that this program knows.
pub(crate) struct Start {
    pub(crate) file: Option<PathBuf>,
    pub(crate) kinds: Kinds,
}

/// This computer and the file that is meant.
pub(crate) struct Open {
    pub(crate) computer: Computer,
    pub(crate) file: File,
    pub(crate) own: bool,
}

/// This computer, as the environment describes it.
pub(crate) fn computer(start: &Start) -> Result<Computer, CliError> {
    let folders = Folders::from_env(|name| std::env::var_os(name))?;
    let helper_dir = std::env::var_os("SIMSTIM_HELPER_DIR").map(PathBuf::from);
    let helpers = Helpers::load(helper_dir.as_deref())
        .map_err(|error| CliError::failed(error.to_string()))?;
    Ok(Computer { folders, kinds: start.kinds.clone(), helpers, maker: maker() })
}

/// User and computer, in characters that a mark can hold.
fn maker() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let system = rustix::system::uname();
    let text = format!(
        "{}.{}",
        user.unwrap_or_else(|_| "someone".into()),
        system.nodename().to_string_lossy()
    );
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' };
    text.chars().map(plain).take(64).collect()
}

/// Finds the file that is meant.
pub(crate) fn locate(computer: &Computer, start: &Start) -> Result<Located, CliError> {
    let variable = std::env::var_os("SIMSTIM_HOSTS").filter(|path| !path.is_empty());
    let variable = variable.map(PathBuf::from);
    let here = std::env::current_dir().map_err(|error| {
        CliError::failed(format!("this folder does not exist any more: {error}"))
    })?;
    Ok(config::locate(start.file.as_deref(), variable.as_deref(), &here, &computer.folders.config)?)
}

/// Opens the file that is meant, and says its warnings.
pub(crate) fn open(ui: &Ui, start: &Start) -> Result<Open, CliError> {
    let computer = computer(start)?;
    let Located { path, own } = locate(&computer, start)?;
    let file = config::load(&path, &computer.kinds.catalog())?;
    warn(ui, &file);
    Ok(Open { computer, file, own })
}

fn warn(ui: &Ui, file: &File) {
    let warnings = config::Problems(file.config.warnings.clone());
    ui.say(&diagnostics::render(&file.path.display().to_string(), &file.text, &warnings, ui.err));
}

impl Open {
    /// The fleet of the file.
    pub(crate) fn fleet(&self) -> Result<Fleet, CliError> {
        Ok(self.computer.open(&self.file, &self.file.config, self.own)?)
    }

    /// What the file would say after an edit. Nothing is written.
    pub(crate) fn edited(&self, edit: &Edit) -> Result<Config, CliError> {
        config::read(edit.text(), &self.computer.kinds.catalog()).map_err(|problems| {
            let (path, text) = (self.file.path.clone(), edit.text().to_owned());
            let mut error = CliError::from(LoadError::Bad { path, text, problems });
            error.lines.push("that is how the file would read; nothing was written".into());
            error
        })
    }

    /// Every name must be a host of the file, or a name that `also` knows.
    pub(crate) fn check_names<'a>(
        &self,
        names: impl IntoIterator<Item = &'a HostName>,
    ) -> Result<(), CliError> {
        for name in names {
            if self.file.config.host(name).is_none() {
                return Err(self.no_host(name));
            }
        }
        Ok(())
    }

    pub(crate) fn no_host(&self, name: &HostName) -> CliError {
        let path = self.file.path.display();
        let hosts = || self.file.config.hosts.iter().map(|host| host.name.as_str());
        let near = config::nearest(name.as_str(), hosts());
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let error = CliError::usage(format!("there is no host `{name}` in {path}{near}"));
        error.hint(match hosts().next() {
            Some(_) => "simstim host list".into(),
            None => format!("simstim host create local {name}"),
        })
    }
}
