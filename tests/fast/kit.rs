//! The executor's test kit on what exists: in memory, and on `local` machines with real helpers.

use std::sync::Arc;

use simstim::files::Folders;
use simstim::helper_client::{HelperDoor, Helpers};
use simstim::provider::{Kinds, LocalKind};
use simstim::testing::{Bench, Faults, FaultyKind, Stage, Verb, check_provider};

#[tokio::test(start_paused = true)]
async fn every_step_in_memory_may_fail_repeat_and_be_cut_off() {
    let root = tempfile::tempdir().unwrap();
    let fresh = || Bench::new(&tempfile::tempdir_in(root.path()).unwrap().keep()).stage();
    let report = check_provider(fresh).await.unwrap_or_else(|findings| panic!("{findings:#?}"));
    assert!(report.runs >= 20, "{report:?}");
}

#[tokio::test]
async fn every_step_on_local_machines_may_fail_repeat_and_be_cut_off() {
    let root = tempfile::tempdir().unwrap();
    let fresh = || {
        let folder = tempfile::tempdir_in(root.path()).unwrap().keep();
        let faults = Faults::default();
        Stage {
            kinds: Kinds::default().with(FaultyKind { kind: LocalKind, faults: faults.clone() }),
            door: Arc::new(HelperDoor { helpers: Helpers::load(None).unwrap() }),
            faults,
            folders: Folders {
                state: folder.join("state"),
                data: folder.join("data"),
                config: folder.clone(),
            },
            file: folder.join("hosts.toml"),
            fleet: "kit".parse().unwrap(),
            provider: "local".into(),
        }
    };
    let report = check_provider(fresh).await.unwrap_or_else(|findings| panic!("{findings:#?}"));
    assert!(report.runs >= 20, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn the_kit_finds_a_provider_that_loses_its_machines() {
    let root = tempfile::tempdir().unwrap();
    // A vendor that hides what it makes from the next ten lists: longer than anybody looks.
    let fresh = || {
        let stage = Bench::new(&tempfile::tempdir_in(root.path()).unwrap().keep()).stage();
        stage.faults.add(Verb::Create, simstim::testing::Fault::Late(10));
        stage
    };
    let findings = check_provider(fresh).await.unwrap_err();
    assert!(!findings.is_empty());
}
