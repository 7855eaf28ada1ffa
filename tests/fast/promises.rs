//! Promises of the design over random fleets, histories and answers.

use proptest::prelude::*;
use simstim::model::{MachineState, SessionFact, SessionState};
use simstim::plan::{Action, Plan, PlannedStep, Policy, Reason, SessionsFact, graph};
use simstim::provider::ErrorKind;
use simstim::testing::{Fault, Verb};

use crate::planner::{bench, foreign};

/// One host as a text, by a few random choices.
#[derive(Debug, Clone)]
struct Wish {
    name: usize,
    size: usize,
    image: usize,
    power: usize,
    protect: bool,
}

fn wish() -> impl Strategy<Value = Wish> {
    (0..4usize, 0..3usize, 0..3usize, 0..3usize, prop::bool::weighted(0.2))
        .prop_map(|(name, size, image, power, protect)| Wish { name, size, image, power, protect })
}

fn text(wishes: &[Wish]) -> String {
    let mut seen = std::collections::BTreeSet::new();
    // The account outlives its last host, so that its machines are still seen.
    let mut text = "fleet = \"bench\"\n[provider.memory]\n".to_owned();
    for wish in wishes.iter().filter(|wish| seen.insert(wish.name)) {
        text += &format!("[[host]]\nname = \"h{}\"\nprovider = \"memory\"\n", wish.name);
        text += ["", "size = \"small\"\n", "size = \"large\"\n"][wish.size];
        text += ["", "power = \"on\"\n", "power = \"off\"\n"][wish.power];
        text += if wish.protect { "protect = true\n" } else { "" };
        text +=
            ["", "[host.machine]\nimage = \"a\"\n", "[host.machine]\nimage = \"b\"\n"][wish.image];
    }
    text
}

/// Something that happens between two plans.
#[derive(Debug, Clone)]
enum Happening {
    Apply(Vec<Wish>),
    Vanish(usize),
    Become(usize, MachineState),
    Work(usize, SessionState),
    Unreadable(usize),
    Appear(usize, u64),
    Fault(Verb, Fault),
    /// The vendor goes back to what it was before so many happenings.
    GoBack(usize),
    Other(bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    let state = prop::sample::select(vec![
        MachineState::Running,
        MachineState::Stopped,
        MachineState::Paused,
        MachineState::Created,
        MachineState::Busy("restarting".into()),
        MachineState::Broken("no disk".into()),
    ]);
    let session = prop::sample::select(vec![
        SessionState::Working,
        SessionState::Waiting,
        SessionState::Quiet,
        SessionState::Ended,
    ]);
    let verb = prop::sample::select(vec![
        Verb::Check,
        Verb::List,
        Verb::Page,
        Verb::Get,
        Verb::Survey,
        Verb::Image,
        Verb::Create,
        Verb::Start,
        Verb::Stop,
        Verb::Destroy,
        Verb::Resize,
    ]);
    let fault = prop::sample::select(vec![
        Fault::Refuse(ErrorKind::NotNow),
        Fault::Refuse(ErrorKind::Denied),
        Fault::Refuse(ErrorKind::Nonsense),
        // Too much for now, and too much for good.
        Fault::Refuse(ErrorKind::Refused),
        Fault::Refuse(ErrorKind::Gone),
        Fault::Refuse(ErrorKind::Taken),
        Fault::Slow(std::time::Duration::from_secs(30)),
        Fault::Hang,
        Fault::Stuck,
        Fault::LoseAnswer,
        Fault::Late(1),
    ]);
    prop_oneof![
        4 => prop::collection::vec(wish(), 0..4).prop_map(Happening::Apply),
        1 => (0..4usize).prop_map(Happening::Vanish),
        2 => (0..4usize, state).prop_map(|(n, state)| Happening::Become(n, state)),
        2 => (0..4usize, session).prop_map(|(n, state)| Happening::Work(n, state)),
        1 => (0..4usize).prop_map(Happening::Unreadable),
        1 => (0..4usize, 0..50u64).prop_map(|(n, at)| Happening::Appear(n, at)),
        1 => (1..5usize).prop_map(Happening::GoBack),
        1 => prop::bool::ANY.prop_map(Happening::Other),
        3 => (verb, fault).prop_map(|(verb, fault)| Happening::Fault(verb, fault)),
    ]
}

/// What must hold of every plan, whatever happened before.
fn check(plan: &Plan, working: &dyn Fn(&str) -> bool, listed: bool) -> Result<(), TestCaseError> {
    for entry in &plan.hosts {
        if entry.action.is_trouble() || entry.action == Action::None {
            prop_assert!(entry.steps.is_empty(), "promise 1: {entry:?}");
        }
        if !listed {
            prop_assert!(!entry.action.is_change(), "promise 5: {entry:?}");
        }
        let Some(machine) = &entry.machine else { continue };
        prop_assert_eq!(&machine.mark.fleet, &plan.fleet, "promise 8");
        let ends =
            entry.steps.iter().any(|step| matches!(step, PlannedStep::Stop | PlannedStep::Destroy));
        if ends && machine.state == MachineState::Running {
            prop_assert!(!working(machine.id.as_str()), "promise 6: {entry:?}");
        }
    }
    let graph = graph(plan);
    let order = graph.order();
    for (at, number) in order.iter().enumerate() {
        for need in graph.needs(*number) {
            prop_assert!(order[..at].contains(&need), "a step comes after what it needs");
        }
    }
    let shown: usize = plan.hosts.iter().map(|entry| entry.steps.len()).sum();
    let own = (0..graph.len()).filter(|number| graph.entry(*number).is_some()).count();
    prop_assert!(own <= shown, "promise 1: no step that the plan does not show");
    Ok(())
}

async fn history(happenings: Vec<Happening>) -> Result<(), TestCaseError> {
    let case = bench();
    case.cloud.pages(2, std::time::Duration::from_secs(1));
    let mut last = Vec::new();
    let mut snapshots = Vec::new();
    for (index, happening) in happenings.into_iter().enumerate() {
        let machines = case.cloud.machines();
        snapshots.push(machines.clone());
        let nth =
            |n: usize| machines.get(n % machines.len().max(1)).map(|machine| machine.id.clone());
        match happening {
            Happening::Apply(wishes) => last = wishes,
            Happening::Vanish(n) => {
                if let Some(id) = &nth(n) {
                    case.cloud.remove(id);
                }
            }
            Happening::Become(n, state) => {
                if let Some(id) = &nth(n) {
                    case.cloud.meddle(id, |m| m.state = state.clone());
                }
            }
            Happening::Work(n, state) => {
                let session = SessionFact::new("s", state, "");
                let fact = SessionsFact::Read(vec![session]);
                if let Some(id) = &nth(n) {
                    case.door.sessions_are(id, fact.clone());
                }
            }
            Happening::Unreadable(n) => {
                let fact = SessionsFact::Unreadable("no word".into());
                if let Some(id) = &nth(n) {
                    case.door.sessions_are(id, fact.clone());
                }
            }
            Happening::Appear(n, at) => {
                let name = format!("h{n}");
                case.cloud.put(foreign(
                    &format!("f-{index}"),
                    &format!("other-{index}"),
                    &name,
                    at,
                ));
            }
            Happening::GoBack(by) => {
                case.cloud.restore(snapshots[snapshots.len().saturating_sub(by)].clone());
            }
            Happening::Other(other) => {
                case.cloud.become_other(if other { "team two" } else { "team one" });
            }
            Happening::Fault(verb, fault) => case.cloud.fault(verb, fault),
        }
        let text = text(&last);
        let (plan, observed) = case.plan(&text, &Policy::default()).await;
        let listed = observed.accounts.values().all(|fact| fact.seen().is_some());
        let working = |id: &str| match observed.sessions.iter().find(|(key, _)| key.as_str() == id)
        {
            Some((_, SessionsFact::Read(sessions))) => {
                sessions.iter().any(|session| session.state == SessionState::Working)
            }
            Some((_, SessionsFact::Unreadable(_))) | None => true,
            Some((_, SessionsFact::NoHelper)) => false,
        };
        check(&plan, &working, listed)?;
        let before = case.cloud.machines();
        let outcome = case.apply_plan(&text, &plan, &simstim::stop::Stop::never()).await;
        // Promise 1: what the plan does not name is as it was.
        for machine in &before {
            let named = plan.hosts.iter().any(|entry| {
                entry.action.is_change()
                    && entry.machine.as_ref().map(|m| &m.id) == Some(&machine.id)
            });
            let now = case.cloud.machines();
            prop_assert!(named || now.contains(machine), "promise 1: {machine:?} changed");
        }
        if outcome.is_success() {
            case.cloud.heal();
            let (again, _) = case.plan(&text, &Policy::default()).await;
            prop_assert!(!again.has_changes(), "promise 2: {again:#?}");
        }
    }
    // Promises 3 and 4: without faults everything converges, one machine a host.
    case.cloud.heal();
    case.cloud.become_other("team one");
    let text = text(&last);
    for machine in case.cloud.machines() {
        case.door.sessions_are(&machine.id, SessionsFact::Read(Vec::new()));
    }
    let (plan, _) = case.plan(&text, &Policy::default()).await;
    let _ = case.apply_plan(&text, &plan, &simstim::stop::Stop::never()).await;
    let (plan, _) = case.plan(&text, &Policy::default()).await;
    let shown = plan.hosts.iter().map(|entry| match &entry.reason {
        Reason::Ambiguous { ids } => ids.len(),
        _ => usize::from(entry.machine.is_some()),
    });
    let explained: usize = shown.sum();
    prop_assert_eq!(explained + plan.strays.len(), case.cloud.machines().len(), "promise 3");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("SIMSTIM_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(300),
        failure_persistence: Some(Box::new(
            proptest::test_runner::FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn promises_1_to_6_and_8_hold_over_random_histories(
        happenings in prop::collection::vec(happening(), 1..10)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all().start_paused(true).build().unwrap();
        runtime.block_on(history(happenings))?;
    }
}
