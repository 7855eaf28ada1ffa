//! Doors to the parsers of what providers' programs print, for [`crate::testing`].

use super::{docker, script};
use crate::model::{AccountName, Machine};

fn account() -> AccountName {
    AccountName::new("outside").expect("a valid name")
}

/// The ids in a list of containers, read as Docker's and as Podman's.
pub(crate) fn docker_list(bytes: &[u8]) -> Vec<String> {
    docker::ids(bytes)
}

/// The machines in descriptions of containers.
pub(crate) fn docker_inspect(bytes: &[u8]) -> Vec<Machine> {
    docker::machines(bytes, &account())
}

/// The machines in a script's list.
pub(crate) fn script(bytes: &[u8]) -> Vec<Machine> {
    script::machines(bytes, &account())
}
