//! What each kind of step needs, does, may take, and finds when it runs a second time.
//!
//! | kind | does | a second run finds |
//! |---|---|---|
//! | preflight | asks whether the account can be used | the same |
//! | image | has the image at hand | the image |
//! | create | writes the intent, then makes the machine with its mark | the machine, by name and nonce |
//! | start | starts or resumes | it running |
//! | bootstrap | installs the helper; the machine's set-up is complete then | the helper, whole |
//! | resize | sets the size | that size |
//! | stop | asks the sessions again, then stops | it stopped |
//! | destroy | asks the sessions again, then destroys what carries the planned mark | nothing |
//!
//! Every step may be dropped at any await: what it leaves is found by the next plan.

use std::time::Duration;

use super::event::{Event, Label};
use super::{Context, Shared};
use crate::files::FileError;
use crate::helper_client::HelperError;
use crate::history;
use crate::model::{
    Machine, MachineSpec, MachineState, Mark, Nonce, Question, SessionState, Size, busiest,
};
use crate::plan::{SessionsFact, Step, StepKind};
use crate::provider::{ErrorKind, Provider, ProviderError};

/// For removing a half-made machine after a Ctrl-C.
const UNDO: Duration = Duration::from_secs(60);

/// Looks after a create whose answer was lost, with a pause between them.
const LOOKS: usize = 3;
const LOOK_PAUSE: Duration = Duration::from_secs(2);

/// What a create left.
#[derive(Debug, Clone)]
pub(super) struct Made {
    /// The machine.
    pub(super) machine: Machine,
    /// This very run made it; otherwise it was found made.
    pub(super) own: bool,
}

/// Why a step failed, and what it leaves.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The provider refused or did not answer.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// The helper could not be reached or installed.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// This computer's own files.
    #[error(transparent)]
    File(#[from] FileError),
    /// Work began since the plan was made.
    #[error("work began since the plan: {}", .0.join(", "))]
    WorkBegan(Vec<String>),
    /// It runs, and its sessions cannot be read any more.
    #[error("its sessions cannot be read: {0}")]
    Unreadable(String),
    /// It is not as the plan needs it.
    #[error("{0}")]
    NotAsPlanned(String),
    /// The answer to a create was lost, and looking does not tell.
    #[error("it is not known whether the machine was made")]
    Uncertain(#[source] ProviderError),
    /// It took too long.
    #[error("it took longer than {}", humantime::format_duration(*.0))]
    Late(Duration),
    /// A stop was asked for.
    #[error("it was stopped")]
    Stopped,
    /// A bug: the task died.
    #[error("this is a bug in simstim: the step ended without a result")]
    Bug,
}

impl StepError {
    /// What to type about it.
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::Provider(error) => error.hints.clone(),
            Self::Helper(error) => error.hints(),
            Self::WorkBegan(_) | Self::Unreadable(_) => {
                vec!["simstim plan".into(), "simstim apply --force    # ends work".into()]
            }
            Self::Uncertain(_) => vec!["simstim plan    # shows it, if it was made".into()],
            _ => Vec::new(),
        }
    }

    /// What went wrong, its causes, and what the provider itself said, in one line.
    pub fn whole(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        let mut add = |cause: &str| {
            if !text.ends_with(cause) {
                text = format!("{text}: {cause}");
            }
        };
        while let Some(cause) = source {
            add(&cause.to_string());
            source = cause.source();
        }
        add(self.detail().unwrap_or_default());
        text
    }

    /// What the provider itself said.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Provider(error) | Self::Uncertain(error) => error.detail.as_deref(),
            _ => None,
        }
    }
}

impl StepKind {
    /// How long it may take.
    pub(super) fn deadline(&self) -> Duration {
        let minutes = match self {
            Self::Preflight => 1,
            // A large image over a slow line.
            Self::Image(_) => 35,
            Self::Bootstrap(_) => 4,
            Self::Create(_)
            | Self::Start(_)
            | Self::Resize(..)
            | Self::Stop(_)
            | Self::Destroy(_) => 5,
        };
        Duration::from_secs(60 * minutes)
    }

    /// Whether it may be cut off at once when a stop is asked for: it changes nothing by halves.
    pub(super) fn is_cut_safe(&self) -> bool {
        matches!(self, Self::Preflight | Self::Image(_) | Self::Bootstrap(_))
    }
}

/// Runs one step. `made` is the machine that the same plan entry made before. Returns the machine
/// that a create made.
pub(super) async fn run(
    context: &Shared,
    label: &Label,
    step: &Step,
    made: Option<Made>,
) -> Result<Option<Made>, StepError> {
    let provider = context.world.providers.get(&step.account).cloned().ok_or_else(|| {
        StepError::NotAsPlanned(format!("account `{}` was not opened", step.account))
    })?;
    let run = run_kind(context, &*provider, label, &step.kind, made);
    let deadline = step.kind.deadline();
    tokio::time::timeout(deadline, run).await.unwrap_or(Err(StepError::Late(deadline)))
}

async fn run_kind(
    context: &Shared,
    provider: &dyn Provider,
    label: &Label,
    kind: &StepKind,
    made: Option<Made>,
) -> Result<Option<Made>, StepError> {
    let fresh = made.as_ref().is_some_and(|made| made.own);
    let target = |planned: &Option<Machine>| {
        let machine = planned.clone().or(made.map(|made| made.machine));
        machine.ok_or_else(|| StepError::NotAsPlanned("there is no machine".into()))
    };
    match kind {
        StepKind::Preflight => provider.check().await?,
        StepKind::Image(spec) => {
            let progress = |text| context.tell(Event::Progress { label: label.clone(), text });
            provider.image(spec, &progress).await?;
        }
        StepKind::Create(spec) => return create(context, provider, spec).await.map(Some),
        StepKind::Start(planned) => start(provider, target(planned)?, fresh).await?,
        StepKind::Bootstrap(planned) => {
            let machine = target(planned)?;
            context.world.door.bootstrap(provider, &machine, fresh).await?;
            context.record(history::Event::Ready { nonce: machine.mark.nonce })?;
        }
        StepKind::Resize(machine, size) => resize(provider, machine, size).await?,
        StepKind::Stop(machine) => {
            if let Some(now) = guard(context, provider, machine).await? {
                provider.stop(&now).await?;
            }
        }
        StepKind::Destroy(machine) => {
            if let Some(now) = guard(context, provider, machine).await? {
                provider.destroy(&now).await?;
            }
            forget(context, machine)?;
        }
    }
    Ok(None)
}

/// Removes a machine that this run made and did not finish, unless work began on it.
pub(super) async fn undo(context: &Context, machine: &Machine) -> Result<(), StepError> {
    let provider = context.world.providers.get(&machine.account).cloned().ok_or_else(|| {
        StepError::NotAsPlanned(format!("account `{}` was not opened", machine.account))
    })?;
    let remove = async {
        if let Some(now) = guard(context, &*provider, machine).await? {
            provider.destroy(&now).await?;
        }
        Ok(forget(context, machine)?)
    };
    tokio::time::timeout(UNDO, remove).await.unwrap_or(Err(StepError::Late(UNDO)))
}

/// Writes down that a machine and its intent are no more.
fn forget(context: &Context, machine: &Machine) -> Result<(), FileError> {
    context.record(history::Event::Gone { id: machine.id.clone() })?;
    context.record(history::Event::Refused { nonce: machine.mark.nonce.clone() })
}

async fn create(
    context: &Context,
    provider: &dyn Provider,
    spec: &MachineSpec,
) -> Result<Made, StepError> {
    let mark = Mark {
        fleet: spec.fleet.clone(),
        host: spec.host.clone(),
        nonce: Nonce::from_random((context.random)()),
        made_at: (context.clock)(),
        maker: context.maker.clone(),
        protected: spec.protected,
        digest: spec.digest.clone(),
    };
    let (nonce, host, account) = (mark.nonce.clone(), spec.host.clone(), spec.account.clone());
    context.record(history::Event::Intent { nonce: nonce.clone(), host, account })?;
    let made = match provider.create(spec, &mark).await {
        Ok(id) => Ok(Machine {
            account: spec.account.clone(),
            id,
            name: spec.name.clone(),
            mark,
            state: MachineState::Created,
            size: spec.size,
            settings: spec.settings.clone(),
            architecture: None,
        }),
        Err(error) => look(provider, spec, &nonce, error).await,
    };
    match made {
        Ok(machine) => {
            // The nonce of another run's machine, where looking found that one.
            let own = machine.mark.nonce == nonce;
            if !own {
                context.record(history::Event::Refused { nonce })?;
            }
            context.record(history::Event::Seen {
                id: machine.id.clone(),
                host: spec.host.clone(),
                account: spec.account.clone(),
                identity: provider.identity(),
                at: (context.clock)(),
            })?;
            // Made for use: of two machines of a host it is the one to go on with.
            context.record(history::Event::Used { id: machine.id.clone() })?;
            Ok(Made { machine, own })
        }
        Err(StepError::Uncertain(error)) => Err(StepError::Uncertain(error)),
        Err(error) => {
            context.record(history::Event::Refused { nonce })?;
            Err(error)
        }
    }
}

/// Resolves a create that did not answer well by looking, never by creating again.
async fn look(
    provider: &dyn Provider,
    spec: &MachineSpec,
    nonce: &Nonce,
    error: ProviderError,
) -> Result<Machine, StepError> {
    if !error.is_uncertain() && error.kind != ErrorKind::Taken {
        return Err(error.into());
    }
    let question = Question { fleet: Some(spec.fleet.clone()), ..Question::default() };
    for attempt in 0..LOOKS {
        if attempt > 0 {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        let Ok(listing) = provider.list(&question).await else { continue };
        // One of the same name and host, made by a run that was cut off, is as good as ours.
        let found = listing.machines.into_iter().find(|machine| {
            machine.mark.nonce == *nonce
                || (machine.mark.host == spec.host && machine.name == spec.name)
        });
        match found {
            Some(machine) => return Ok(machine),
            None if error.kind == ErrorKind::Taken => return Err(error.into()),
            None => {}
        }
    }
    Err(StepError::Uncertain(error))
}

async fn start(provider: &dyn Provider, machine: Machine, fresh: bool) -> Result<(), StepError> {
    let machine = if fresh { machine } else { again(provider, &machine).await? };
    match &machine.state {
        MachineState::Busy(what) => Err(StepError::NotAsPlanned(format!("it is {what}"))),
        MachineState::Broken(why) => Err(StepError::NotAsPlanned(format!("it is broken: {why}"))),
        _ => Ok(provider.start(&machine).await?),
    }
}

async fn resize(provider: &dyn Provider, machine: &Machine, size: &Size) -> Result<(), StepError> {
    again(provider, machine).await?;
    Ok(provider.resize(machine, size).await?)
}

/// The machine as it is now; it must carry the mark that was planned for.
async fn again(provider: &dyn Provider, machine: &Machine) -> Result<Machine, StepError> {
    let now = provider.get(machine).await?;
    let now = now.ok_or_else(|| {
        StepError::NotAsPlanned(format!("machine {} does not exist any more", machine.name))
    })?;
    if now.mark == machine.mark {
        return Ok(now);
    }
    let text = format!("machine {} carries another mark than when it was planned", machine.name);
    Err(StepError::NotAsPlanned(text))
}

/// Looks again right before something ends or freezes: the machine, its mark, its sessions.
/// `None`: it is gone already.
async fn guard(
    context: &Context,
    provider: &dyn Provider,
    machine: &Machine,
) -> Result<Option<Machine>, StepError> {
    let Some(now) = provider.get(machine).await? else { return Ok(None) };
    if now.mark != machine.mark {
        let text = format!("machine {} carries another mark than when it was planned", now.name);
        return Err(StepError::NotAsPlanned(text));
    }
    if now.state != MachineState::Running || context.force {
        return Ok(Some(now));
    }
    match context.world.door.sessions(provider, &now).await {
        SessionsFact::NoHelper => Ok(Some(now)),
        SessionsFact::Unreadable(cause) => Err(StepError::Unreadable(cause)),
        SessionsFact::Read(sessions) => {
            let busiest = busiest(&sessions);
            let (id, at) = (now.id.clone(), (context.clock)());
            context.record(history::Event::Sessions { id, busiest, at })?;
            let working = sessions.into_iter().filter(|s| s.state == SessionState::Working);
            let working: Vec<String> = working.map(|session| session.name).collect();
            if working.is_empty() { Ok(Some(now)) } else { Err(StepError::WorkBegan(working)) }
        }
    }
}
