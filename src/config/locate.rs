//! Which `hosts.toml` is meant.

use std::path::{Path, PathBuf};

/// The name that is looked for.
pub const FILE_NAME: &str = "hosts.toml";

/// The file to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Where it lies, or would lie.
    pub path: PathBuf,
    /// It is the user's own file, in the configuration folder: what it names needs no trust.
    pub own: bool,
}

/// Why no file is meant.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    /// None was named, and none was found.
    #[error("there is no hosts.toml here, in a folder above, or in {config}", config = .0.display())]
    None(PathBuf),
    /// The one that was named does not exist.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
}

/// Looks as the design says: the one named by `--file`, then by `$SIMSTIM_HOSTS`, then
/// `hosts.toml` in `here` and its parents up to the repository's root, then in `config`.
pub fn locate(
    named: Option<&Path>,
    variable: Option<&Path>,
    here: &Path,
    config: &Path,
) -> Result<Located, LocateError> {
    let own_path = config.join(FILE_NAME);
    if let Some(path) = named.or(variable) {
        if !path.exists() {
            return Err(LocateError::Missing(path.into()));
        }
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let own = real(path) == real(&own_path);
        return Ok(Located { path: path.into(), own });
    }
    for folder in here.ancestors() {
        let found = folder.join(FILE_NAME);
        if found.is_file() {
            // Here it is called as people call it.
            let path = if folder == here { FILE_NAME.into() } else { found };
            return Ok(Located { path, own: false });
        }
        if folder.join(".git").exists() {
            break;
        }
    }
    if own_path.is_file() {
        return Ok(Located { path: own_path, own: true });
    }
    Err(LocateError::None(config.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_at_the_repository_and_then_asks_the_user_folder() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for folder in ["repo/.git", "repo/a/b", "config"] {
            std::fs::create_dir_all(path(folder)).unwrap();
        }
        let find = || locate(None, None, &path("repo/a/b"), &path("config"));
        std::fs::write(path("hosts.toml"), "").unwrap();
        assert!(find().is_err(), "a file above the repository is not ours");
        std::fs::write(path("config/hosts.toml"), "").unwrap();
        assert_eq!(find().unwrap(), Located { path: path("config/hosts.toml"), own: true });
        std::fs::write(path("repo/hosts.toml"), "").unwrap();
        assert_eq!(find().unwrap(), Located { path: path("repo/hosts.toml"), own: false });
        let missing = path("none.toml");
        assert!(locate(Some(&missing), None, root.path(), root.path()).is_err());
    }
}
