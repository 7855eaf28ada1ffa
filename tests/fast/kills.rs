//! The kill loop on `local` hosts.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::kills::{interrupt, moments};
use crate::support::{Sandbox, tree};

const TWO: &str = "fleet = \"f\"\n[provider.local]\n[[host]]\nname = \"one\"\nprovider = \"local\"\n[[host]]\nname = \"two\"\nprovider = \"local\"\n";

fn steps() -> u32 {
    std::env::var("SIMSTIM_KILLS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(2)
}

fn machines(sandbox: &Sandbox) -> usize {
    let folder = sandbox.path("home/.local/share/simstim/local/f");
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let shown = names.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    // An empty folder is no machine: the mark goes last, then the folder, and a create takes it over.
    let holds = |entry: &std::fs::DirEntry| {
        std::fs::read_dir(entry.path()).is_ok_and(|mut inside| inside.next().is_some())
    };
    shown.filter(holds).count()
}

#[test]
fn killed_at_any_moment_one_more_apply_converges() {
    let mut interrupted = 0;
    for signal in [Signal::KILL, Signal::INT] {
        for moment in moments(13, steps(), Duration::from_millis(3)) {
            let sandbox = Sandbox::new();
            sandbox.write("hosts.toml", TWO);
            let words = ["apply", "--yes", "--json"];
            interrupted += usize::from(interrupt(&sandbox, &words, moment, signal));
            let _ = sandbox.run(&["apply", "--yes"]).ok();
            let again = sandbox.run(&["plan", "--detailed-exitcode"]);
            assert_eq!(again.code, Some(0), "{signal:?} at {moment:?}: {again}");
            assert_eq!(machines(&sandbox), 2, "{signal:?} at {moment:?}");
            let run = sandbox.run(&["exec", "two", "--", "echo", "up"]).ok();
            assert_eq!(run.stdout, "up\n");
        }
    }
    assert!(interrupted > 10, "only {interrupted} runs were interrupted at all");
}

#[test]
fn killed_while_creating_or_destroying_a_host_the_file_is_whole() {
    for signal in [Signal::KILL, Signal::INT] {
        for moment in moments(5, steps() + 4, Duration::from_millis(3)) {
            let sandbox = Sandbox::new();
            let base = "# ours\nfleet = \"f\"\n\n[provider.local]\n";
            sandbox.write("hosts.toml", base);
            let create = ["host", "create", "local", "dev", "--yes", "--json"];
            interrupt(&sandbox, &create, moment, signal);
            let whole = format!("{base}\n[[host]]\nname = \"dev\"\nprovider = \"local\"\n");
            let text = sandbox.read("hosts.toml");
            assert!(text == base || text == whole, "{text}");
            if text == base {
                assert_eq!(machines(&sandbox), 0, "the edit comes before the first step");
                let _ = sandbox.run(&create).ok();
            }
            let _ = sandbox.run(&["apply", "--yes"]).ok();
            assert_eq!(machines(&sandbox), 1);
            let destroy = ["host", "destroy", "dev", "--yes", "--json"];
            interrupt(&sandbox, &destroy, moment, signal);
            let text = sandbox.read("hosts.toml");
            assert!(text == base || text == whole, "{text}");
            let plan = sandbox.run(&["plan"]).ok();
            if machines(&sandbox) > 0 {
                assert!(plan.stdout.contains("dev"), "the next plan shows it: {plan}");
                let _ = sandbox.run(&destroy).ok();
            } else if text == whole {
                let _ = sandbox.run(&destroy).ok();
            }
            assert_eq!((machines(&sandbox), sandbox.read("hosts.toml").as_str()), (0, base));
            let _ = sandbox.run(&create).ok();
            let _ = sandbox.run(&destroy).ok();
            let left = tree(&sandbox.path("home/.local/share/simstim/local"));
            // A create cut off before its last rename leaves a draft, which a later one sweeps.
            let draft = |path: &std::path::Path| path.to_string_lossy().contains("/.new-");
            let left: Vec<_> = left.iter().map(|(path, _)| path).filter(|p| !draft(p)).collect();
            assert!(left.is_empty(), "{signal:?} at {moment:?}: {left:?}");
        }
    }
}
