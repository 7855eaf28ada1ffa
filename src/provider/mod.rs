//! Providers: who makes machines. A provider says in its [`KindSpec`] what it can do, so nobody
//! calls what it cannot; everything else is a handful of verbs that each look before they act.

mod docker;
pub mod faults;
mod local;
pub mod memory;
pub(crate) mod outside;
mod script;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

pub use docker::DockerKind;
pub use local::LocalKind;
pub use script::ScriptKind;

use crate::config::Account;
use crate::files::Folders;
use crate::model::{
    AccountName, KindSpec, Listing, Machine, MachineId, MachineSpec, Mark, Question, Size, Survey,
};
use crate::transport::Transport;

/// What a provider's refusal means for who called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// It may work later: nobody answered, it is busy, it took too long.
    NotNow,
    /// It will not work before a person changes something here.
    Denied,
    /// What it was asked about does not exist.
    Gone,
    /// The name belongs to another machine.
    Taken,
    /// The answer makes no sense; nothing may be concluded from it.
    Nonsense,
    /// The machine or the request is not as it should be.
    Refused,
}

/// Why a provider could not do something.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub struct ProviderError {
    /// What it means.
    pub kind: ErrorKind,
    /// What happened, in one line.
    pub text: String,
    /// What the provider itself said, where that helps.
    pub detail: Option<String>,
    /// What to type about it.
    pub hints: Vec<String>,
}

impl ProviderError {
    /// An error without detail and hints.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = crate::model::printable(&text.into());
        Self { kind, text, detail: None, hints: Vec::new() }
    }

    /// Adds what the provider said.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        let detail = crate::model::printable(&detail.into());
        self.detail = Some(detail).filter(|detail| !detail.is_empty());
        self
    }

    /// Adds something to type.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Whether the request may have been carried out all the same, so that only a look can tell.
    pub fn is_uncertain(&self) -> bool {
        matches!(self.kind, ErrorKind::NotNow | ErrorKind::Nonsense)
    }
}

impl From<std::io::Error> for ProviderError {
    /// A file or pipe of this computer failed; it may work later.
    fn from(error: std::io::Error) -> Self {
        Self::new(ErrorKind::NotNow, error.to_string())
    }
}

/// Told about the progress of something slow, in a few words.
pub type Progress<'a> = &'a (dyn Fn(String) + Send + Sync);

/// An account of a provider.
///
/// Every verb may be called again after it was cut off at any point, and then finishes or finds the
/// work done. None is called for what [`KindSpec::abilities`] denies.
#[async_trait]
pub trait Provider: Send + Sync + fmt::Debug {
    /// Which engine, folder or team the account is right now, as its listings say too.
    fn identity(&self) -> String;

    /// Whether the account can be used from here, now.
    async fn check(&self) -> Result<(), ProviderError>;

    /// The whole, authoritative answer to a question, in a fixed number of calls. Wakes nothing.
    async fn list(&self, question: &Question) -> Result<Listing, ProviderError>;

    /// A machine as it is now, by its id; `None` only where it is certain that there is none.
    async fn get(&self, machine: &Machine) -> Result<Option<Machine>, ProviderError>;

    /// What a machine would be, without making anything.
    async fn survey(&self, spec: &MachineSpec) -> Result<Survey, ProviderError>;

    /// Has the image or template of a spec at hand. Not called unless `needs_image`.
    async fn image(&self, spec: &MachineSpec, progress: Progress<'_>) -> Result<(), ProviderError>;

    /// Makes a machine that carries the mark from its first moment, and does not start it.
    async fn create(&self, spec: &MachineSpec, mark: &Mark) -> Result<MachineId, ProviderError>;

    /// Starts or resumes a machine, and has its user and home ready. Running is success.
    async fn start(&self, machine: &Machine) -> Result<(), ProviderError>;

    /// Stops or pauses a machine. Stopped is success.
    async fn stop(&self, machine: &Machine) -> Result<(), ProviderError>;

    /// Destroys a machine and its disk. Gone is success.
    async fn destroy(&self, machine: &Machine) -> Result<(), ProviderError>;

    /// Gives a machine another size.
    async fn resize(&self, machine: &Machine, size: &Size) -> Result<(), ProviderError>;

    /// The way to commands on a running machine, as its user.
    fn transport(&self, machine: &Machine) -> Arc<dyn Transport>;
}

/// A kind of provider: what is known before any account is asked, and how to open one.
pub trait Kind: Send + Sync {
    /// What its machines can have and do, and its keys.
    fn spec(&self) -> KindSpec;

    /// An account of this kind. Asks nobody.
    fn open(&self, name: &AccountName, account: &Account, folders: &Folders) -> Arc<dyn Provider>;
}

/// The kinds that this program knows.
#[derive(Clone)]
pub struct Kinds(Vec<Arc<dyn Kind>>);

impl Default for Kinds {
    /// The built-in ones.
    fn default() -> Self {
        Self(vec![Arc::new(LocalKind), Arc::new(DockerKind), Arc::new(ScriptKind)])
    }
}

impl Kinds {
    /// Adds one; a kind of the same name is replaced.
    #[must_use]
    pub fn with(mut self, kind: impl Kind + 'static) -> Self {
        self.0.retain(|known| known.spec().kind != kind.spec().kind);
        self.0.push(Arc::new(kind));
        self
    }

    /// What all of them can do.
    pub fn catalog(&self) -> Vec<KindSpec> {
        self.0.iter().map(|kind| kind.spec()).collect()
    }

    /// Opens accounts. One whose kind is not known is left out.
    pub fn open(
        &self,
        accounts: &BTreeMap<AccountName, Account>,
        folders: &Folders,
    ) -> BTreeMap<AccountName, Arc<dyn Provider>> {
        let opened = accounts.iter().filter_map(|(name, account)| {
            let kind = self.0.iter().find(|kind| kind.spec().kind == account.kind)?;
            Some((name.clone(), kind.open(name, account, folders)))
        });
        opened.collect()
    }
}
