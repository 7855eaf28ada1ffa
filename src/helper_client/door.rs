//! What observing and applying need of helpers, behind one seam: tests without processes put
//! another door there.

use async_trait::async_trait;

use super::bridge::{Bridge, Purpose, connect};
use super::sessions::{list_sessions, verdict};
use super::{HelperError, Helpers, bootstrap};
use crate::model::{IdleVerdict, Machine, SessionFact, Span};
use crate::plan::SessionsFact;
use crate::provider::Provider;

/// Asks and installs helpers.
#[async_trait]
pub trait Door: Send + Sync {
    /// Installs the helper of this version on a running machine. `fresh`: it was just made.
    async fn bootstrap(
        &self,
        provider: &dyn Provider,
        machine: &Machine,
        fresh: bool,
    ) -> Result<(), HelperError>;

    /// The sessions of a running machine. Looks only; never fails, because unreadable is an answer.
    async fn sessions(&self, provider: &dyn Provider, machine: &Machine) -> SessionsFact;

    /// Whether a running machine is idle long enough to stop, asked every `interval`; a stop
    /// `ends_processes` or freezes them. Looks only.
    async fn verdict(
        &self,
        provider: &dyn Provider,
        machine: &Machine,
        idle_stop: Span,
        interval: Span,
        ends_processes: bool,
    ) -> Result<IdleVerdict, HelperError>;
}

/// The door to real helpers, over each machine's transport.
#[derive(Debug, Clone)]
pub struct HelperDoor {
    /// What can be installed.
    pub helpers: Helpers,
}

#[async_trait]
impl Door for HelperDoor {
    async fn bootstrap(
        &self,
        provider: &dyn Provider,
        machine: &Machine,
        fresh: bool,
    ) -> Result<(), HelperError> {
        let transport = provider.transport(machine);
        bootstrap(&*transport, &machine.mark, &self.helpers, fresh).await?;
        Ok(())
    }

    async fn sessions(&self, provider: &dyn Provider, machine: &Machine) -> SessionsFact {
        match self.read_sessions(provider, machine).await {
            Ok(sessions) => SessionsFact::Read(sessions),
            Err(HelperError::NotInstalled) => SessionsFact::NoHelper,
            Err(error) => SessionsFact::Unreadable(error.to_string()),
        }
    }

    async fn verdict(
        &self,
        provider: &dyn Provider,
        machine: &Machine,
        idle_stop: Span,
        interval: Span,
        ends_processes: bool,
    ) -> Result<IdleVerdict, HelperError> {
        let mut bridge = self.look(provider, machine).await?;
        let answer = verdict(&mut bridge, idle_stop, interval, ends_processes).await?;
        bridge.goodbye().await?;
        Ok(answer)
    }
}

impl HelperDoor {
    async fn look(
        &self,
        provider: &dyn Provider,
        machine: &Machine,
    ) -> Result<Bridge, HelperError> {
        let transport = provider.transport(machine);
        connect(&*transport, &machine.mark, &self.helpers, Purpose::Look).await
    }

    async fn read_sessions(
        &self,
        provider: &dyn Provider,
        machine: &Machine,
    ) -> Result<Vec<SessionFact>, HelperError> {
        let mut bridge = self.look(provider, machine).await?;
        let sessions = list_sessions(&mut bridge).await?;
        bridge.goodbye().await?;
        Ok(sessions)
    }
}
