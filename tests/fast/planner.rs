//! The decisions, one by one, on the in-memory provider.

use simstim::model::{
    Bytes, HostName, IdleStopBy, Machine, MachineState, Mark, Nonce, Resize, SessionFact,
    SessionState, Timestamp,
};
use simstim::plan::{
    Action, HostPlan, Impact, Note, Plan, PlannedStep, Policy, Reason, SessionsFact,
};
use simstim::provider::ErrorKind;
use simstim::testing::{Bench, Fault, NOW, Verb};

pub(crate) const ONE: &str = "fleet = \"bench\"\n[[host]]\nname = \"dev\"\nprovider = \"memory\"\n";

pub(crate) fn host(text: &str) -> HostName {
    HostName::new(text).unwrap()
}

pub(crate) struct Case {
    pub(crate) bench: Bench,
    _folder: tempfile::TempDir,
}

impl std::ops::Deref for Case {
    type Target = Bench;
    fn deref(&self) -> &Bench {
        &self.bench
    }
}

pub(crate) fn bench() -> Case {
    let folder = tempfile::tempdir().unwrap();
    Case { bench: Bench::new(folder.path()), _folder: folder }
}

impl Case {
    async fn entries(&self, text: &str, policy: &Policy) -> Plan {
        self.plan(text, policy).await.0
    }

    async fn entry(&self, text: &str) -> HostPlan {
        self.entry_with(text, &Policy::default()).await
    }

    async fn entry_with(&self, text: &str, policy: &Policy) -> HostPlan {
        let plan = self.entries(text, policy).await;
        assert_eq!(plan.hosts.len(), 1, "{plan:#?}");
        plan.hosts.into_iter().next().unwrap()
    }

    pub(crate) fn machine(&self) -> Machine {
        let machines = self.cloud.machines();
        assert_eq!(machines.len(), 1);
        machines.into_iter().next().unwrap()
    }

    fn work(&self, state: SessionState) {
        let session = SessionFact::new("main", state, "cpu");
        self.door.sessions_are(&self.machine().id, SessionsFact::Read(vec![session]));
    }
}

/// A machine of the bench's fleet that another computer made.
pub(crate) fn foreign(id: &str, name: &str, host_name: &str, made_at: u64) -> Machine {
    Machine {
        account: "memory".parse().unwrap(),
        id: id.parse().unwrap(),
        name: name.into(),
        mark: Mark {
            fleet: Bench::fleet(),
            host: host(host_name),
            nonce: Nonce::new(format!("nonce-{id}")).unwrap(),
            made_at: Timestamp(made_at),
            maker: "somebody.elsewhere".into(),
            protected: false,
            digest: "x".into(),
        },
        state: MachineState::Running,
        size: simstim::model::Preset::Medium.size(),
        settings: [("image".to_owned(), "plain".to_owned())].into(),
        architecture: None,
    }
}

#[tokio::test]
async fn a_new_host_is_created_and_then_nothing_is_left_to_do() {
    let case = bench();
    let entry = case.entry(ONE).await;
    assert_eq!((entry.action, &entry.reason), (Action::Create, &Reason::NotMade));
    assert_eq!(
        entry.steps,
        [PlannedStep::Image, PlannedStep::Create, PlannedStep::Start, PlannedStep::Bootstrap]
    );
    assert_eq!(entry.notes, [Note::FetchesImage]);
    assert!(case.apply(ONE).await.is_success());
    let entry = case.entry(ONE).await;
    assert_eq!((entry.action, entry.reason), (Action::None, Reason::Running));
    assert_eq!(case.machine().mark.made_at, NOW);
}

#[tokio::test]
async fn a_stopped_host_is_as_wanted_and_only_a_wish_wakes_it() {
    let case = bench();
    case.apply(ONE).await;
    case.cloud.meddle(&case.machine().id, |machine| machine.state = MachineState::Stopped);
    assert_eq!(case.entry(ONE).await.reason, Reason::StoppedAsWanted);
    let wake = Policy { wake: true, ..Policy::default() };
    let entry = case.entry_with(ONE, &wake).await;
    assert_eq!((entry.action, entry.reason), (Action::Wake, Reason::Asked));
    let on = format!("{ONE}power = \"on\"\n");
    assert_eq!(case.entry(&on).await.reason, Reason::PowerOn);
}

#[tokio::test]
async fn power_off_stops_a_machine_unless_it_works() {
    let case = bench();
    case.apply(ONE).await;
    let off = format!("{ONE}power = \"off\"\n");
    let entry = case.entry(&off).await;
    assert_eq!((entry.action, entry.impact), (Action::Stop, Impact::Ends));
    case.work(SessionState::Working);
    let entry = case.entry(&off).await;
    assert_eq!(entry.action, Action::Blocked);
    assert!(matches!(entry.reason, Reason::Working { ref sessions, .. } if sessions == &["main"]));
    let force = Policy { force: true, ..Policy::default() };
    let entry = case.entry_with(&off, &force).await;
    assert_eq!(entry.action, Action::Stop);
    assert_eq!(entry.notes, [Note::EndsWork { sessions: vec!["main".into()] }]);
    case.work(SessionState::Waiting);
    assert_eq!(case.entry(&off).await.action, Action::Stop);
}

#[tokio::test]
async fn a_host_that_is_off_and_not_made_stays_unmade() {
    let case = bench();
    let entry = case.entry(&format!("{ONE}power = \"off\"\n")).await;
    assert_eq!((entry.action, entry.reason), (Action::None, Reason::OffNotMade));
}

#[tokio::test]
async fn a_size_changes_in_place_where_the_provider_can() {
    let case = bench();
    case.apply(ONE).await;
    let large = format!("{ONE}size = \"large\"\n");
    let entry = case.entry(&large).await;
    assert_eq!((entry.action, entry.impact), (Action::Change, Impact::Keeps));
    let keys: Vec<&str> = entry.settings.iter().map(|setting| setting.key.as_str()).collect();
    assert_eq!(keys, ["size.cpus", "size.memory", "size.disk"]);
    assert!(case.apply(&large).await.is_success());
    assert_eq!(case.entry(&large).await.action, Action::None);
    assert_eq!(case.machine().size.memory, Some(Bytes(8 << 30)));
}

#[tokio::test]
async fn a_smaller_disk_is_a_replace_only_where_the_block_asks_for_it() {
    let case = bench();
    let large = "fleet = \"bench\"\n[defaults]\nsize = \"large\"\n";
    let block = "[[host]]\nname = \"dev\"\nprovider = \"memory\"\n";
    case.apply(&format!("{large}{block}")).await;
    let own = format!("{block}size = {{ disk = \"20GiB\" }}\n");
    assert_eq!(case.entry(&format!("{large}{own}")).await.action, Action::Replace);
    let entry = case.entry(block).await;
    assert_eq!(entry.action, Action::Change, "cpus and memory follow the default, the disk stays");
    assert!(entry.settings.iter().all(|setting| setting.key != "size.disk"));
}

#[tokio::test]
async fn a_size_that_needs_a_restart_restarts_a_running_machine_and_not_a_stopped_one() {
    let mut case = bench();
    case.bench.kind.abilities.resize = Resize::WhileStopped;
    case.apply(ONE).await;
    let small = format!("{ONE}size = \"small\"\n").replace("small\"", "large\"");
    let entry = case.entry(&small).await;
    assert_eq!((entry.action, entry.impact), (Action::ChangeWithRestart, Impact::Ends));
    case.work(SessionState::Working);
    assert_eq!(case.entry(&small).await.action, Action::Blocked);
    case.cloud.meddle(&case.machine().id, |machine| machine.state = MachineState::Stopped);
    let entry = case.entry(&small).await;
    assert_eq!((entry.action, entry.impact), (Action::Change, Impact::None));
    assert_eq!(entry.steps.len(), 1, "and it is not woken for it: {:?}", entry.steps);
}

#[tokio::test]
async fn another_image_is_a_replace_that_destroys_after_the_image_is_there() {
    let case = bench();
    case.apply(ONE).await;
    let other = format!("{ONE}[host.machine]\nimage = \"other\"\n");
    let entry = case.entry(&other).await;
    assert_eq!((entry.action, entry.impact), (Action::Replace, Impact::LosesDisk));
    assert_eq!(entry.steps[..3], [PlannedStep::Image, PlannedStep::Destroy, PlannedStep::Create]);
    let before = case.machine().id;
    assert!(case.apply(&other).await.is_success());
    assert_ne!(case.machine().id, before);
    assert_eq!(case.entry(&other).await.action, Action::None);
    assert_eq!(case.entry(ONE).await.action, Action::None, "a default leads to no replace");
}

#[tokio::test]
async fn protection_stops_a_replace_and_a_destroy() {
    let case = bench();
    let protected = format!("{ONE}protect = true\n");
    case.apply(&protected).await;
    let other = format!("{protected}[host.machine]\nimage = \"other\"\n");
    let wanted = Action::Replace;
    assert_eq!(case.entry(&other).await.reason, Reason::Protected { at_birth: false, wanted });
    let entry = case.entry("fleet = \"bench\"\n").await;
    let wanted = Action::Destroy;
    assert_eq!(entry.reason, Reason::Protected { at_birth: true, wanted });
    assert_eq!(case.entry(ONE).await.notes, [Note::ProtectedAtBirth { mark: true }]);
    let unprotect = Policy { destroy: [host("dev")].into(), unprotect: true, ..Policy::default() };
    assert_eq!(case.entry_with("fleet = \"bench\"\n", &unprotect).await.action, Action::Destroy);
}

#[tokio::test]
async fn a_removed_block_destroys_what_this_computer_applied_and_nothing_else() {
    let case = bench();
    case.apply(ONE).await;
    case.cloud.put(foreign("theirs", "simstim-x", "x", 5));
    let plan = case.entries("fleet = \"bench\"\n", &Policy::default()).await;
    assert_eq!(plan.hosts.len(), 1);
    assert_eq!(
        (plan.hosts[0].action, &plan.hosts[0].reason),
        (Action::Destroy, &Reason::BlockRemoved)
    );
    assert_eq!(plan.strays.len(), 1);
    assert_eq!(plan.strays[0].name, "simstim-x");
    let counted = Policy { counted: Some(2), ..Policy::default() };
    let plan = case.entries("fleet = \"bench\"\n", &counted).await;
    assert_eq!((plan.destructive(), plan.strays.len()), (2, 0));
}

#[tokio::test]
async fn the_same_fleet_in_another_file_makes_strays_not_losses() {
    let mut case = bench();
    case.apply(ONE).await;
    case.bench.file = "/elsewhere/hosts.toml".into();
    let plan = case.entries("fleet = \"bench\"\n", &Policy::default()).await;
    assert!(plan.hosts.is_empty());
    assert_eq!(plan.strays[0].why, "its block was applied from /project/hosts.toml");
}

#[tokio::test]
async fn a_renamed_host_keeps_its_machine() {
    let case = bench();
    case.apply(ONE).await;
    let renamed = ONE.replace("\"dev\"", "\"new\"") + "was = \"dev\"\n";
    let entry = case.entry(&renamed).await;
    assert_eq!(entry.action, Action::None);
    assert_eq!(entry.notes, [Note::Renamed { was: host("dev") }]);
    assert!(case.apply(&renamed).await.is_success());
    assert_eq!(case.machine().mark.host, host("dev"));
}

#[tokio::test]
async fn a_machine_keeps_the_name_it_was_made_with_and_the_plan_says_so() {
    let case = bench();
    case.apply(ONE).await;
    let name = case.machine().name;
    let entry = case.entry(&(ONE.to_owned() + "[host.machine]\nname = \"other\"\n")).await;
    assert_eq!(entry.action, Action::None);
    assert_eq!(entry.notes, [Note::KeepsName { name }]);
}

#[tokio::test]
async fn a_lost_machine_is_said_loudly_and_made_anew() {
    let case = bench();
    case.apply(ONE).await;
    let id = case.machine().id;
    case.cloud.remove(&id);
    let entry = case.entry(ONE).await;
    assert_eq!(entry.action, Action::Create);
    assert_eq!(entry.reason, Reason::Lost { id, seen: NOW });
    assert!(case.apply(ONE).await.is_success());
    assert_eq!(case.entry(ONE).await.reason, Reason::Running);
}

#[tokio::test]
async fn no_answer_is_unknown_and_never_absent() {
    let case = bench();
    case.apply(ONE).await;
    for kind in [ErrorKind::NotNow, ErrorKind::Denied, ErrorKind::Nonsense, ErrorKind::Gone] {
        case.cloud.fault(Verb::List, Fault::Refuse(kind));
        let entry = case.entry(ONE).await;
        assert_eq!(entry.action, Action::Unknown, "{kind:?}");
        assert!(entry.steps.is_empty());
    }
}

#[tokio::test]
async fn another_team_under_the_same_account_blocks_until_here() {
    let case = bench();
    case.apply(ONE).await;
    case.cloud.remove(&case.machine().id);
    case.cloud.become_other("team two");
    let entry = case.entry(ONE).await;
    let (was, now) = ("team one".to_owned(), "team two".to_owned());
    assert_eq!((entry.action, entry.reason), (Action::Blocked, Reason::OtherIdentity { was, now }));
    let here = Policy { here: true, ..Policy::default() };
    assert_eq!(case.entry_with(ONE, &here).await.action, Action::Create);
}

#[tokio::test]
async fn a_taken_name_blocks_and_another_name_helps() {
    let case = bench();
    case.cloud.take_name("simstim-dev");
    let entry = case.entry(ONE).await;
    assert!(matches!(entry.reason, Reason::NameTaken { by: None, .. }), "{:?}", entry.reason);
    let named = format!("{ONE}[host.machine]\nname = \"simstim-mine\"\n");
    assert_eq!(case.entry(&named).await.action, Action::Create);
}

#[tokio::test]
async fn of_two_machines_the_earlier_is_used_and_the_other_offered() {
    let case = bench();
    case.cloud.put(foreign("late", "simstim-b", "dev", 20));
    case.cloud.put(foreign("early", "simstim-a", "dev", 10));
    let plan = case.entries(ONE, &Policy::default()).await;
    let actions: Vec<_> =
        plan.hosts.iter().map(|e| (e.machine.as_ref().unwrap().id.as_str(), e.action)).collect();
    assert_eq!(actions, [("early", Action::None), ("late", Action::Destroy)]);
    let late = "late".parse().unwrap();
    case.door.sessions_are(&late, SessionsFact::Unreadable("no word".into()));
    let plan = case.entries(ONE, &Policy::default()).await;
    assert_eq!(plan.hosts[1].action, Action::Blocked, "its sessions were not read");
}

#[tokio::test]
async fn two_machines_of_the_same_second_are_ambiguous() {
    let case = bench();
    case.cloud.put(foreign("one", "simstim-a", "dev", 10));
    case.cloud.put(foreign("two", "simstim-b", "dev", 10));
    let entry = case.entry(ONE).await;
    assert!(matches!(entry.reason, Reason::Ambiguous { ref ids } if ids.len() == 2));
}

#[tokio::test]
async fn a_paused_machine_blocks_what_would_end_unseen_work() {
    let case = bench();
    case.apply(ONE).await;
    case.cloud.meddle(&case.machine().id, |machine| machine.state = MachineState::Paused);
    let entry = case.entry("fleet = \"bench\"\n").await;
    assert!(matches!(entry.reason, Reason::PausedUnread { .. }), "{:?}", entry.reason);
    let event = simstim::history::Event::Sessions {
        id: case.machine().id,
        busiest: Some(SessionState::Quiet),
        at: NOW,
    };
    case.log().record(event).unwrap();
    assert_eq!(case.entry("fleet = \"bench\"\n").await.action, Action::Destroy);
}

#[tokio::test]
async fn busy_and_broken_machines_are_left_alone() {
    let case = bench();
    case.apply(ONE).await;
    let id = case.machine().id;
    case.cloud.meddle(&id, |machine| machine.state = MachineState::Busy("restarting".into()));
    assert_eq!(case.entry(ONE).await.action, Action::Unknown);
    case.cloud.meddle(&id, |machine| machine.state = MachineState::Broken("no disk".into()));
    assert_eq!(case.entry(ONE).await.action, Action::Blocked);
    assert_eq!(case.entry("fleet = \"bench\"\n").await.action, Action::Destroy);
}

#[tokio::test]
async fn a_machine_that_was_never_started_is_finished() {
    let case = bench();
    case.door.fail_bootstraps(1);
    assert!(!case.apply(ONE).await.is_success());
    let entry = case.entry(ONE).await;
    assert_eq!((entry.action, entry.reason), (Action::Change, Reason::SetUpUnfinished));
    assert_eq!(entry.steps, [PlannedStep::Start, PlannedStep::Bootstrap]);
    assert!(case.apply(ONE).await.is_success());
    assert_eq!(case.entry(ONE).await.action, Action::None);
}

#[tokio::test]
async fn a_moved_host_is_replaced_at_its_new_account() {
    let case = bench();
    case.apply(ONE).await;
    let moved = ONE.replace("provider = \"memory\"", "provider = \"other\"")
        + "[provider.other]\nkind = \"memory\"\n[provider.memory]\n";
    let entry = case.entry(&moved).await;
    assert_eq!(entry.action, Action::Replace, "{:?}", entry.reason);
    assert_eq!(entry.settings[0].key, "provider");
    let (plan, _) = case.plan(&moved, &Policy::default()).await;
    let graph = simstim::plan::graph(&plan);
    let destroy = (0..graph.len()).map(|n| graph.step(n)).find(|s| s.kind.word() == "destroy");
    assert_eq!(destroy.unwrap().account.as_str(), "memory");
}

#[tokio::test]
async fn looking_asks_a_helper_only_where_something_would_end() {
    let case = bench();
    case.apply(ONE).await;
    case.entry(ONE).await;
    case.entry(&format!("{ONE}size = \"large\"\n")).await;
    assert_eq!(case.door.asked(), 0);
    case.entry("fleet = \"bench\"\n").await;
    assert_eq!(case.door.asked(), 1);
}

#[tokio::test]
async fn only_asked_hosts_are_planned() {
    let case = bench();
    let two = format!("{ONE}[[host]]\nname = \"web\"\nprovider = \"memory\"\n");
    let only = Policy { only: Some([host("web")].into()), ..Policy::default() };
    assert_eq!(case.entry_with(&two, &only).await.host, host("web"));
}

#[tokio::test]
async fn an_idle_stop_by_the_keeper_is_said() {
    let mut case = bench();
    case.bench.kind.abilities.idle_stop = IdleStopBy::Keeper;
    let idle = format!("{ONE}idle_stop = \"2h\"\n");
    let notes = case.entry(&idle).await.notes;
    let after = "2h".parse().unwrap();
    assert!(notes.contains(&Note::IdleStopNeedsKeeper { after }), "{notes:?}");
}

#[tokio::test]
async fn a_host_to_destroy_at_an_account_that_does_not_answer_is_unknown_not_gone() {
    let case = bench();
    case.apply(ONE).await;
    case.cloud.fault(Verb::List, Fault::Refuse(ErrorKind::NotNow));
    let destroy = Policy {
        only: Some([host("dev")].into()),
        destroy: [host("dev")].into(),
        ..Policy::default()
    };
    let entry = case.entry_with("fleet = \"bench\"\n", &destroy).await;
    assert_eq!(entry.action, Action::Unknown);
}

#[tokio::test]
async fn starting_or_stopping_touches_no_duplicate_and_no_stray() {
    let case = bench();
    case.apply(ONE).await;
    case.cloud.put(foreign("late", "simstim-late", "dev", u64::MAX));
    let plan = case.entries(ONE, &Policy::default()).await;
    assert_eq!(plan.destructive(), 1, "an apply offers it");
    let stop = Policy {
        stop: [host("dev")].into(),
        only: Some([host("dev")].into()),
        power_only: true,
        ..Policy::default()
    };
    let entry = case.entry_with(ONE, &stop).await;
    assert_eq!(entry.action, Action::Stop);
}

#[tokio::test]
async fn a_copy_of_a_machine_is_left_to_whoever_made_it() {
    let case = bench();
    case.apply(ONE).await;
    let mut copy = case.machine();
    copy.id = "copy".parse().unwrap();
    copy.name = "mine".into();
    case.cloud.put(copy);
    let plan = case.entries(ONE, &Policy::default()).await;
    let reasons: Vec<_> = plan.hosts.iter().map(|entry| &entry.reason).collect();
    assert!(matches!(reasons[..], [Reason::Running, Reason::Copy { .. }]), "{reasons:?}");
}

#[tokio::test]
async fn a_persons_command_uses_what_runs_whatever_power_says() {
    let case = bench();
    case.apply(ONE).await;
    let off = format!("{ONE}power = \"off\"\n");
    let command = Policy {
        only: Some([host("dev")].into()),
        wake: true,
        power_only: true,
        ..Policy::default()
    };
    assert_eq!(case.entry_with(&off, &command).await.reason, Reason::Running);
    assert_eq!(case.entry(&off).await.action, Action::Stop, "an apply stops it");
}

#[tokio::test]
async fn a_moved_host_whose_old_account_is_another_team_is_not_made_twice() {
    let case = bench();
    case.apply(ONE).await;
    case.cloud.remove(&case.machine().id);
    case.cloud.become_other("team two");
    let moved = ONE.replace("provider = \"memory\"", "provider = \"other\"")
        + "[provider.other]\nkind = \"memory\"\n[provider.memory]\n";
    let entry = case.entry(&moved).await;
    assert!(matches!(entry.reason, Reason::OtherIdentity { .. }), "{:?}", entry.reason);
}

/// A door behind which everything goes wrong.
struct BrokenDoor;

#[async_trait::async_trait]
impl simstim::helper_client::Door for BrokenDoor {
    async fn bootstrap(
        &self,
        _: &dyn simstim::provider::Provider,
        _: &Machine,
        _: bool,
    ) -> Result<(), simstim::helper_client::HelperError> {
        panic!("the test wants it so")
    }

    async fn sessions(&self, _: &dyn simstim::provider::Provider, _: &Machine) -> SessionsFact {
        panic!("the test wants it so")
    }

    async fn verdict(
        &self,
        _: &dyn simstim::provider::Provider,
        _: &Machine,
        _: simstim::model::Span,
        _: simstim::model::Span,
        _: bool,
    ) -> Result<simstim::model::IdleVerdict, simstim::helper_client::HelperError> {
        panic!("the test wants it so")
    }
}

#[tokio::test]
async fn a_question_that_is_never_answered_blocks() {
    let case = bench();
    case.apply(ONE).await;
    let stage = simstim::testing::Stage { door: std::sync::Arc::new(BrokenDoor), ..case.stage() };
    let (plan, _) = stage.plan("fleet = \"bench\"\n", &Policy::default()).await;
    assert!(
        matches!(plan.hosts[0].reason, Reason::Unreadable { .. }),
        "{:?}",
        plan.hosts[0].reason
    );
    assert!(plan.hosts[0].steps.is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_hundred_hosts_on_slow_pages_are_planned_in_seconds() {
    let case = bench();
    let block = |n| format!("[[host]]\nname = \"h{n}\"\nprovider = \"memory\"\n");
    let text = format!("fleet = \"bench\"\n{}", (0..200).map(block).collect::<String>());
    assert!(case.apply(&text).await.is_success());
    case.cloud.pages(100, std::time::Duration::from_secs(2));
    let begun = tokio::time::Instant::now();
    let (plan, _) = case.plan(&text, &Policy::default()).await;
    assert!(!plan.has_changes());
    assert!(begun.elapsed().as_secs() < 6, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_missing_makes_the_whole_list_unknown() {
    let case = bench();
    let block = |n| format!("[[host]]\nname = \"h{n}\"\nprovider = \"memory\"\n");
    let text = format!("fleet = \"bench\"\n{}", (0..3).map(block).collect::<String>());
    assert!(case.apply(&text).await.is_success());
    case.cloud.pages(2, std::time::Duration::ZERO);
    case.cloud.fault(Verb::Page, Fault::Slow(std::time::Duration::ZERO));
    case.cloud.fault(Verb::Page, Fault::Refuse(ErrorKind::NotNow));
    let (plan, _) = case.plan(&text, &Policy::default()).await;
    assert!(plan.hosts.iter().all(|entry| entry.action == Action::Unknown), "{plan:#?}");
}
