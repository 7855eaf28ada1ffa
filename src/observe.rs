//! Asks all accounts at once and folds what fails into [`Observed`]; then asks what a plan still
//! lacks, and only that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::config::{Config, Host};
use crate::helper_client::{Door, Helpers};
use crate::history::History;
use crate::model::{
    AccountName, Architecture, FleetId, HostName, Machine, MachineId, MachineSpec, Question,
};
use crate::plan::{
    AccountFact, Asks, Observed, Plan, Policy, SessionsFact, SurveyFact, Unknown, plan,
};
use crate::provider::{Provider, ProviderError};

/// For one account's whole answer.
const ANSWER: Duration = Duration::from_secs(60);

/// Rounds of questions after the first plan. One answers all; a second follows from the answers.
const ROUNDS: usize = 4;

/// Whom to ask.
#[derive(Clone)]
pub struct World {
    /// Every account, opened.
    pub providers: BTreeMap<AccountName, Arc<dyn Provider>>,
    /// The door to helpers.
    pub door: Arc<dyn Door>,
    /// Architectures that a helper is at hand for.
    pub helpers: BTreeSet<Architecture>,
}

impl World {
    /// The architectures of some helpers.
    pub fn helpers_of(helpers: &Helpers) -> BTreeSet<Architecture> {
        helpers.architectures()
    }
}

/// Asks the accounts that matter, all at the same time, one question each.
pub async fn observe(
    config: &Config,
    fleet: &FleetId,
    file: &Path,
    history: &History,
    only: Option<&BTreeSet<HostName>>,
    world: &World,
) -> Observed {
    let mut tasks = JoinSet::new();
    let mut accounts = BTreeMap::new();
    for account in relevant(config, history, only) {
        let question = question(config, fleet, history, &account);
        if let Some(provider) = world.providers.get(&account).cloned() {
            tasks.spawn(async move {
                let answer = tokio::time::timeout(ANSWER, provider.list(&question)).await;
                (account, answer)
            });
        } else {
            let cause = format!("the file does not say how to reach account `{account}` any more");
            let hints = vec![format!("add [provider.{account}] again")];
            let unknown = Unknown { cause, hints, last_seen: None };
            accounts.insert(account, AccountFact::Unknown(unknown));
        }
    }
    while let Some(joined) = tasks.join_next().await {
        let Ok((account, answer)) = joined else { continue };
        let last_seen = history.machines.values().filter(|machine| machine.account == account);
        let last_seen = last_seen.map(|machine| machine.at).max();
        let fact = match answer {
            Ok(Ok(listing)) => AccountFact::Seen(listing),
            Ok(Err(error)) => AccountFact::Unknown(Unknown { last_seen, ..unknown(&error) }),
            Err(_) => AccountFact::Unknown(Unknown {
                cause: format!("no answer for {} s", ANSWER.as_secs()),
                hints: Vec::new(),
                last_seen,
            }),
        };
        accounts.insert(account, fact);
    }
    Observed {
        file: file.into(),
        accounts,
        helpers: world.helpers.clone(),
        history: history.clone(),
        ..Observed::default()
    }
}

/// Plans, asks what the plan lacks, and plans again until it lacks nothing.
pub async fn settle(
    config: &Config,
    fleet: &FleetId,
    observed: &mut Observed,
    policy: &Policy,
    world: &World,
) -> Plan {
    let mut rounds = 0;
    loop {
        let (plan, asks) = plan(config, fleet, observed, policy);
        if asks.is_empty() {
            return plan;
        }
        if rounds < ROUNDS {
            answer(config, fleet, observed, asks, world).await;
        } else {
            give_up(observed, asks);
        }
        rounds += 1;
    }
}

/// What was asked and never answered must not pass: it is unreadable, or cannot be made.
fn give_up(observed: &mut Observed, asks: Asks) {
    let cause = || "nobody answered about it".to_owned();
    let unread = asks.sessions.into_iter().map(|(_, id)| (id, SessionsFact::Unreadable(cause())));
    observed.sessions.extend(unread);
    let unknown = || Unknown { cause: cause(), ..Unknown::default() };
    let unmade = asks.surveys.into_iter().map(|host| (host, SurveyFact::NotUsable(unknown())));
    observed.surveys.extend(unmade);
}

fn unknown(error: &ProviderError) -> Unknown {
    let cause = match &error.detail {
        Some(detail) => format!("{error}: {detail}"),
        None => error.to_string(),
    };
    Unknown { cause, hints: error.hints.clone(), last_seen: None }
}

/// The accounts to ask: all of the file and all remembered ones, or those of some hosts.
fn relevant(
    config: &Config,
    history: &History,
    only: Option<&BTreeSet<HostName>>,
) -> BTreeSet<AccountName> {
    let remembered = |host: &HostName| {
        let machines = history.machines.values().filter(move |machine| machine.host == *host);
        machines.map(|machine| machine.account.clone()).collect::<BTreeSet<_>>()
    };
    let mut some = BTreeSet::new();
    for host in only.into_iter().flatten() {
        let block = config.host(host);
        let names = std::iter::once(host).chain(block.and_then(|block| block.was.as_ref()));
        let before = some.len();
        some.extend(block.map(|block| block.account.clone()));
        some.extend(names.flat_map(remembered));
        if some.len() == before && block.is_none() {
            return relevant(config, history, None);
        }
    }
    if only.is_some() {
        return some;
    }
    let all = config.accounts.keys().cloned();
    all.chain(history.machines.values().map(|machine| machine.account.clone())).collect()
}

fn question(
    config: &Config,
    fleet: &FleetId,
    history: &History,
    account: &AccountName,
) -> Question {
    let machines = history.machines.iter().filter(|(_, machine)| machine.account == *account);
    let hosts = config.hosts.iter().filter(|host| host.account == *account);
    Question {
        fleet: Some(fleet.clone()),
        known: machines.map(|(id, _)| id.clone()).collect(),
        names: hosts.map(Host::machine_name).collect(),
    }
}

/// What one question was answered.
enum Answer {
    Sessions(MachineId, SessionsFact),
    Survey(Vec<HostName>, SurveyFact),
}

async fn answer(
    config: &Config,
    fleet: &FleetId,
    observed: &mut Observed,
    asks: Asks,
    world: &World,
) {
    let mut tasks: JoinSet<Answer> = JoinSet::new();
    for (account, id) in asks.sessions {
        let provider = world.providers.get(&account).cloned();
        let machine = machine(observed, &account, &id).cloned();
        let door = Arc::clone(&world.door);
        tasks.spawn(async move {
            let fact = match (provider, machine) {
                (Some(provider), Some(machine)) => door.sessions(&*provider, &machine).await,
                _ => SessionsFact::Unreadable("its account was not opened".into()),
            };
            Answer::Sessions(id, fact)
        });
    }
    for (spec, hosts) in surveys(config, fleet, &asks.surveys) {
        let provider = world.providers.get(&spec.account).cloned();
        tasks.spawn(async move { Answer::Survey(hosts, survey(provider, &spec).await) });
    }
    while let Some(joined) = tasks.join_next().await {
        match joined {
            Ok(Answer::Sessions(id, fact)) => {
                observed.sessions.insert(id, fact);
            }
            Ok(Answer::Survey(hosts, fact)) => {
                observed.surveys.extend(hosts.into_iter().map(|host| (host, fact.clone())));
            }
            Err(_) => {}
        }
    }
}

fn machine<'o>(
    observed: &'o Observed,
    account: &AccountName,
    id: &MachineId,
) -> Option<&'o Machine> {
    let listing = observed.accounts.get(account)?.seen()?;
    listing.machines.iter().find(|machine| machine.id == *id)
}

/// One survey for all hosts that would be made alike.
fn surveys(
    config: &Config,
    fleet: &FleetId,
    hosts: &BTreeSet<HostName>,
) -> Vec<(MachineSpec, Vec<HostName>)> {
    let mut groups = BTreeMap::<_, (MachineSpec, Vec<HostName>)>::new();
    for host in hosts.iter().filter_map(|name| config.host(name)) {
        let mut settings = host.machine.clone();
        settings.remove("name");
        let group = groups.entry((host.account.clone(), settings));
        let group = group.or_insert_with(|| (host.spec(fleet), Vec::new()));
        group.1.push(host.name.clone());
    }
    groups.into_values().collect()
}

async fn survey(provider: Option<Arc<dyn Provider>>, spec: &MachineSpec) -> SurveyFact {
    let Some(provider) = provider else {
        let cause = "its account was not opened".into();
        return SurveyFact::NotUsable(Unknown { cause, ..Unknown::default() });
    };
    match tokio::time::timeout(ANSWER, provider.survey(spec)).await {
        Ok(Ok(survey)) => SurveyFact::Usable(survey),
        Ok(Err(error)) => SurveyFact::NotUsable(unknown(&error)),
        Err(_) => SurveyFact::NotUsable(Unknown {
            cause: format!("no answer for {} s", ANSWER.as_secs()),
            ..Unknown::default()
        }),
    }
}
