//! The executor: each step failed, doubled, cut off; what is left is found again.

use std::time::Duration;

use simstim::apply::{Event, StepError};
use simstim::model::{HostName, MachineState, SessionFact, SessionState};
use simstim::plan::{Action, Policy, SessionsFact};
use simstim::provider::ErrorKind;
use simstim::stop::{Stop, stop};
use simstim::testing::{Fault, Verb};

use crate::planner::{ONE, bench, host};

const VERBS: [Verb; 4] = [Verb::Check, Verb::Image, Verb::Create, Verb::Start];

fn many(count: usize) -> String {
    let hosts = (0..count).map(|n| format!("[[host]]\nname = \"h{n}\"\nprovider = \"memory\"\n"));
    "fleet = \"bench\"\n".to_owned() + &hosts.collect::<String>()
}

#[tokio::test(start_paused = true)]
async fn each_failed_step_leaves_what_the_next_apply_finishes() {
    for verb in VERBS {
        for fault in [Fault::Refuse(ErrorKind::Denied), Fault::Refuse(ErrorKind::NotNow)] {
            let case = bench();
            case.cloud.fault(verb, fault.clone());
            let outcome = case.apply(ONE).await;
            assert_eq!(outcome.failures.len(), 1, "{verb:?} {fault:?}");
            case.cloud.heal();
            assert!(case.apply(ONE).await.is_success(), "{verb:?} {fault:?}");
            assert_eq!(case.cloud.machines().len(), 1, "{verb:?} {fault:?}");
            assert!(!case.plan(ONE, &Policy::default()).await.0.has_changes());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_create_is_resolved_by_looking() {
    for fault in [Fault::LoseAnswer, Fault::Late(1), Fault::Late(2)] {
        let case = bench();
        case.cloud.fault(Verb::Create, fault.clone());
        let outcome = case.apply(ONE).await;
        assert!(outcome.is_success(), "{fault:?}: {:?}", outcome.failures);
        assert_eq!(case.cloud.machines().len(), 1, "{fault:?}");
        let creates = case.cloud.calls().iter().filter(|verb| **verb == Verb::Create).count();
        assert_eq!(creates, 1, "never created again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_appears_too_late_is_found_by_the_next_plan() {
    let case = bench();
    case.cloud.fault(Verb::Create, Fault::Late(4));
    let outcome = case.apply(ONE).await;
    assert!(matches!(outcome.failures[0].error, StepError::Uncertain(_)));
    for _ in 0..3 {
        let _ = case.plan(ONE, &Policy::default()).await;
    }
    let (plan, _) = case.plan(ONE, &Policy::default()).await;
    assert_eq!(plan.hosts[0].action, Action::Change, "finished, not made again");
    assert!(case.apply(ONE).await.is_success());
    assert_eq!(case.cloud.machines().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_hangs_ends_at_its_deadline() {
    for verb in VERBS {
        let case = bench();
        case.cloud.fault(verb, Fault::Hang);
        let outcome = case.apply(ONE).await;
        assert!(matches!(outcome.failures[0].error, StepError::Late(_)), "{verb:?}");
    }
}

#[tokio::test]
async fn a_failed_host_does_not_stop_the_others_and_echoes_are_skipped() {
    let case = bench();
    let text = many(5);
    case.cloud.fault(Verb::Create, Fault::Refuse(ErrorKind::Denied));
    let outcome = case.apply(&text).await;
    assert_eq!((outcome.failures.len(), outcome.skipped), (1, 2));
    assert_eq!(case.cloud.machines().len(), 4);
    let failed: Vec<_> = case
        .events
        .lock()
        .unwrap()
        .iter()
        .filter(|event| matches!(event, Event::Failed { .. }))
        .cloned()
        .collect();
    assert_eq!(failed.len(), 1, "causes, not echoes");
}

#[tokio::test]
async fn shared_steps_run_once() {
    let case = bench();
    case.apply(&many(6)).await;
    let calls = case.cloud.calls();
    let count = |verb| calls.iter().filter(|call| **call == verb).count();
    assert_eq!((count(Verb::Check), count(Verb::Image), count(Verb::Create)), (1, 1, 6));
}

#[tokio::test(start_paused = true)]
async fn no_account_sees_more_at_once_than_its_limit() {
    let mut case = bench();
    case.bench.kind.abilities.limit.at_once = 2;
    for _ in 0..6 {
        case.cloud.fault(Verb::Start, Fault::Slow(Duration::from_secs(10)));
    }
    let text = many(6);
    let (plan, _) = case.plan(&text, &Policy::default()).await;
    let begun = tokio::time::Instant::now();
    assert!(case.apply_plan(&text, &plan, &Stop::never()).await.is_success());
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(30), "six starts of 10 s, two at a time: {took:?}");
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_begins_nothing_new_and_removes_what_was_half_made() {
    let case = bench();
    let text = many(3);
    let (plan, _) = case.plan(&text, &Policy::default()).await;
    for _ in 0..3 {
        case.cloud.fault(Verb::Start, Fault::Slow(Duration::from_secs(5)));
    }
    let (stopper, stop) = stop();
    let (outcome, ()) = tokio::join!(case.apply_plan(&text, &plan, &stop), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stopper.stop();
    });
    assert!(outcome.stopped);
    assert!(outcome.left.is_empty(), "{:?}", outcome.left);
    assert!(case.cloud.machines().is_empty(), "every half-made machine is removed");
    assert!(case.apply(&text).await.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_half_made_machine_that_cannot_be_removed_is_said() {
    let case = bench();
    let (plan, _) = case.plan(ONE, &Policy::default()).await;
    case.cloud.fault(Verb::Start, Fault::Slow(Duration::from_secs(5)));
    case.cloud.fault(Verb::Destroy, Fault::Refuse(ErrorKind::NotNow));
    let (stopper, stop) = stop();
    let (outcome, ()) = tokio::join!(case.apply_plan(ONE, &plan, &stop), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stopper.stop();
    });
    assert_eq!(outcome.left.len(), 1);
    let (plan, _) = case.plan(ONE, &Policy::default()).await;
    assert_eq!(plan.hosts[0].action, Action::Change, "the next plan shows it");
}

#[tokio::test(start_paused = true)]
async fn an_apply_cut_off_at_any_moment_converges_with_one_machine() {
    for cut in 0..40 {
        let case = bench();
        for verb in [Verb::Check, Verb::Image, Verb::Create, Verb::Start] {
            case.cloud.fault(verb, Fault::Slow(Duration::from_millis(10)));
        }
        let (plan, _) = case.plan(ONE, &Policy::default()).await;
        let never = Stop::never();
        let apply = case.apply_plan(ONE, &plan, &never);
        let _ = tokio::time::timeout(Duration::from_millis(cut), apply).await;
        case.cloud.heal();
        let outcome = case.apply(ONE).await;
        assert!(outcome.is_success(), "cut at {cut} ms: {:?}", outcome.failures);
        assert_eq!(case.cloud.machines().len(), 1, "cut at {cut} ms");
        assert!(!case.plan(ONE, &Policy::default()).await.0.has_changes(), "cut at {cut} ms");
    }
}

#[tokio::test]
async fn work_begun_since_the_plan_blocks_the_step() {
    let case = bench();
    case.apply(ONE).await;
    let none = "fleet = \"bench\"\n";
    let (plan, _) = case.plan(none, &Policy::default()).await;
    assert_eq!(plan.hosts[0].action, Action::Destroy);
    let session = SessionFact::new("main", SessionState::Working, "cpu");
    case.door.sessions_are(&case.machine().id, SessionsFact::Read(vec![session]));
    let outcome = case.apply_plan(none, &plan, &Stop::never()).await;
    assert!(matches!(outcome.failures[0].error, StepError::WorkBegan(_)));
    assert_eq!(case.cloud.machines().len(), 1);
}

#[tokio::test]
async fn a_machine_with_another_mark_by_now_is_not_touched() {
    let case = bench();
    case.apply(ONE).await;
    let none = "fleet = \"bench\"\n";
    let (plan, _) = case.plan(none, &Policy::default()).await;
    let other = simstim::model::Nonce::new("other").unwrap();
    case.cloud.meddle(&case.machine().id, |machine| machine.mark.nonce = other);
    let outcome = case.apply_plan(none, &plan, &Stop::never()).await;
    assert!(matches!(outcome.failures[0].error, StepError::NotAsPlanned(_)));
    assert_eq!(case.cloud.machines().len(), 1);
}

#[tokio::test]
async fn what_is_gone_already_was_destroyed_well() {
    let case = bench();
    case.apply(ONE).await;
    let none = "fleet = \"bench\"\n";
    let (plan, _) = case.plan(none, &Policy::default()).await;
    case.cloud.remove(&case.machine().id);
    assert!(case.apply_plan(none, &plan, &Stop::never()).await.is_success());
    assert!(case.log().history().machines.is_empty());
}

#[tokio::test]
async fn a_machine_started_by_somebody_else_counts_as_started() {
    let case = bench();
    case.apply(ONE).await;
    let id = case.machine().id;
    case.cloud.meddle(&id, |machine| machine.state = MachineState::Stopped);
    let wake = Policy { wake: true, ..Policy::default() };
    let (plan, _) = case.plan(ONE, &wake).await;
    case.cloud.meddle(&id, |machine| machine.state = MachineState::Running);
    assert!(case.apply_plan(ONE, &plan, &Stop::never()).await.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_another_process_works_on_is_left_to_it() {
    let case = bench();
    let path = case.state.join("locks/dev.lock");
    let _theirs = simstim::files::Lock::try_take(&path, "simstim apply").unwrap();
    let outcome = case.apply(ONE).await;
    let text = outcome.failures[0].error.to_string();
    assert!(text.starts_with("simstim apply (pid "), "{text}");
    assert!(case.cloud.machines().is_empty());
    let _ = host("dev");
}

#[tokio::test(start_paused = true)]
async fn a_stop_removes_no_machine_that_another_computer_made() {
    let case = bench();
    let (plan, _) = case.plan(ONE, &Policy::default()).await;
    assert_eq!(plan.hosts[0].action, Action::Create);
    // Between the plan and its apply somebody else makes the very host.
    case.cloud.put(crate::planner::foreign("theirs", "simstim-dev", "dev", 7));
    case.cloud.fault(Verb::Start, Fault::Slow(Duration::from_secs(5)));
    let (stopper, stop) = stop();
    let (outcome, ()) = tokio::join!(case.apply_plan(ONE, &plan, &stop), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stopper.stop();
    });
    assert!(outcome.stopped);
    assert_eq!(case.cloud.machines()[0].id.as_str(), "theirs", "found made, so not ours to remove");
}

#[tokio::test(start_paused = true)]
async fn a_stop_after_a_failure_leaves_what_others_may_have_taken_over() {
    let case = bench();
    let text = many(2);
    let (plan, _) = case.plan(&text, &Policy::default()).await;
    case.cloud.fault(Verb::Start, Fault::Refuse(ErrorKind::Denied));
    case.cloud.fault(Verb::Start, Fault::Slow(Duration::from_secs(5)));
    let (stopper, stop) = stop();
    let (outcome, ()) = tokio::join!(case.apply_plan(&text, &plan, &stop), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stopper.stop();
    });
    assert_eq!((outcome.stopped, outcome.failures.len()), (true, 1));
    assert_eq!(case.cloud.machines().len(), 1, "the failed host was free for others since");
    assert!(case.apply(&text).await.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_crowd_at_a_slow_account_does_not_hold_up_another_account() {
    let case = bench();
    let block = |n| format!("[[host]]\nname = \"a{n}\"\nprovider = \"memory\"\n");
    let crowd: String = (0..40).map(block).collect();
    let text = format!(
        "fleet = \"bench\"\n{crowd}[provider.other]\nkind = \"memory\"\n\
         [[host]]\nname = \"z\"\nprovider = \"other\"\n"
    );
    for _ in 0..41 {
        case.cloud.fault(Verb::Create, Fault::Slow(std::time::Duration::from_secs(60)));
    }
    assert!(case.apply(&text).await.is_success());
    let events = case.events.lock().unwrap();
    let finished = events.iter().filter_map(|event| match event {
        simstim::apply::Event::Finished { label, .. } => label.host.as_ref(),
        _ => None,
    });
    let first: Vec<&str> = finished.take(12).map(HostName::as_str).collect();
    assert!(first.contains(&"z"), "it is among the first to be made: {first:?}");
}
