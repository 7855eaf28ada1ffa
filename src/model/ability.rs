//! What a provider can do, as data: asked before planning, so that nobody calls what it cannot.

use serde::{Deserialize, Serialize};

use super::IdleStop;

/// A processor architecture by the kernel's name (`uname -m`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Architecture(String);

impl Architecture {
    /// Takes the kernel's name, or a provider's other name for the same thing.
    pub fn new(name: &str) -> Self {
        let canonical = match name {
            "amd64" | "x64" => "x86_64",
            "arm64" | "armv8" => "aarch64",
            other => other,
        };
        Self(canonical.chars().filter(char::is_ascii_graphic).take(32).collect())
    }

    /// The kernel's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What to type to get a helper for it, where this program carries none.
    pub fn helper_hints(&self) -> Vec<String> {
        vec![
            format!("rustup target add {self}-unknown-linux-musl && cargo install --path ."),
            format!("SIMSTIM_HELPER_DIR=DIR simstim plan    # DIR holds simstim-host-{self}"),
        ]
    }
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// Who stops an idle machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdleStopBy {
    /// Nobody can: `idle_stop` is not supported.
    Nobody,
    /// The keeper on this computer.
    Keeper,
    /// A timer in the machine.
    GuestTimer,
    /// The provider, when a lease runs out.
    Lease,
}

/// How the size of an existing machine changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resize {
    /// While it runs or is stopped.
    InPlace,
    /// Only while it is stopped.
    WhileStopped,
    /// Not at all: a new machine.
    Replace,
}

/// How much one account takes at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Steps that may run at once.
    pub at_once: usize,
    /// Why not more.
    #[serde(skip)]
    pub reason: &'static str,
}

/// What machines of a kind can have and do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own to the provider")]
pub struct Abilities {
    /// `size.cpus` is honoured.
    pub cpus: bool,
    /// `size.memory` is honoured.
    pub memory: bool,
    /// `size.disk` is honoured.
    pub disk: bool,
    /// How a size changes.
    pub resize: Resize,
    /// Who stops an idle machine.
    pub idle_stop: IdleStopBy,
    /// `idle_stop` of a host that names none.
    #[serde(skip)]
    pub default_idle_stop: IdleStop,
    /// A stop keeps processes (a pause): sessions freeze instead of ending.
    pub stop_freezes: bool,
    /// An image or template has to be there before a create.
    pub needs_image: bool,
    /// Its machines are this computer: they end with it.
    pub runs_here: bool,
    /// How much at once.
    pub limit: Limit,
}

impl Abilities {
    /// Machines that can be made, started, stopped and destroyed, and nothing more.
    pub const PLAIN: Self = Self {
        cpus: false,
        memory: false,
        disk: false,
        resize: Resize::Replace,
        idle_stop: IdleStopBy::Nobody,
        default_idle_stop: IdleStop::Never,
        stop_freezes: false,
        needs_image: false,
        runs_here: false,
        limit: Limit { at_once: 4, reason: "nobody said how much its provider takes" },
    };
}

/// One key of `[host.machine]` or `[provider.NAME]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a property of its own")]
pub struct KeySpec {
    /// The key.
    pub name: &'static str,
    /// The value of a host that names none; `None` where there is no such value.
    pub default: Option<&'static str>,
    /// The only values allowed; empty: any text.
    pub values: &'static [&'static str],
    /// Only a new machine can take another value.
    pub replaces: bool,
    /// It is a command: one text, or a list of words; kept as a JSON list.
    pub is_command: bool,
    /// It is what the machine is called: `[A-Za-z0-9][A-Za-z0-9_.-]+`, at most 63 characters.
    pub is_name: bool,
    /// It names a command or an address: used from a project's file only after `simstim trust`.
    pub needs_trust: bool,
    /// One line for the schema.
    pub doc: &'static str,
}

impl KeySpec {
    /// A key that takes any text, has no default and changes nothing but itself.
    pub const fn text(name: &'static str, doc: &'static str) -> Self {
        Self { name, doc, is_name: false, ..Self::MACHINE_NAME }
    }

    /// `[host.machine] name`, for kinds whose machines have names.
    pub const MACHINE_NAME: Self = Self {
        name: "name",
        default: None,
        values: &[],
        replaces: false,
        is_command: false,
        is_name: true,
        needs_trust: false,
        doc: "What the machine is called, where `simstim-<host>` is taken.",
    };
}

/// Everything that is known of a kind of provider before any account is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindSpec {
    /// The word in `provider = "…"`.
    pub kind: &'static str,
    /// One line about it.
    pub doc: &'static str,
    /// What its machines can have and do.
    pub abilities: Abilities,
    /// Keys of `[host.machine]`.
    pub machine_keys: &'static [KeySpec],
    /// Keys of `[provider.NAME]` beside `kind`.
    pub account_keys: &'static [KeySpec],
}
