//! What observing and applying need of helpers, behind one seam: tests without processes put
//! another door there.

use std::time::Duration;

use async_trait::async_trait;
use schema::message::{Body, ListSessions};

use super::bridge::{Purpose, connect};
use super::{HelperError, Helpers, bootstrap};
use crate::model::{Machine, SessionFact, SessionState};
use crate::plan::SessionsFact;
use crate::provider::Provider;

/// For an answer of a helper that said hello.
const ANSWER: Duration = Duration::from_secs(10);

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
}

impl HelperDoor {
    async fn read_sessions(
        &self,
        provider: &dyn Provider,
        machine: &Machine,
    ) -> Result<Vec<SessionFact>, HelperError> {
        let transport = provider.transport(machine);
        let mut bridge = connect(&*transport, &machine.mark, &self.helpers, Purpose::Look).await?;
        bridge.writer.send(Body::ListSessions(ListSessions {})).await?;
        let answer = async {
            loop {
                if let Body::Sessions(sessions) = bridge.reader.next().await? {
                    return Ok::<_, HelperError>(sessions);
                }
            }
        };
        let sessions = tokio::time::timeout(ANSWER, answer)
            .await
            .unwrap_or_else(|_| Err(HelperError::Lost("no answer about its sessions".into())))?;
        bridge.goodbye().await?;
        Ok(sessions.sessions.into_iter().map(fact).collect())
    }
}

fn fact(session: schema::message::Session) -> SessionFact {
    let plain = |text: String| text.chars().filter(|c| !c.is_control()).take(200).collect();
    let state = match session.state.as_str() {
        "waiting" => SessionState::Waiting,
        "quiet" => SessionState::Quiet,
        "ended" => SessionState::Ended,
        // A word of a newer helper: the safe reading is that it works.
        _ => SessionState::Working,
    };
    SessionFact { name: plain(session.name), state, evidence: plain(session.evidence) }
}
