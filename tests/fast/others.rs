//! Providers by other people: one in Rust in one file, one in shell by the script contract.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Sandbox, tree};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The example program, built.
fn custom_provider() -> PathBuf {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--example", "custom_provider"])
        .current_dir(root())
        .status()
        .unwrap();
    assert!(status.success());
    let program = Path::new(env!("CARGO_BIN_EXE_simstim"));
    program.with_file_name("examples").join("custom_provider")
}

#[test]
fn a_provider_in_one_rust_file_does_the_main_job() {
    let source = std::fs::read_to_string(root().join("examples/custom_provider.rs")).unwrap();
    assert!(source.lines().count() < 150, "{} lines", source.lines().count());
    let sandbox = Sandbox::new();
    sandbox.write("hosts.toml", "fleet = \"f\"\n[[host]]\nname = \"dev\"\nprovider = \"folder\"\n");
    let program = custom_provider();
    let run = |words: &[&str]| {
        let command = sandbox.command(words);
        let mut own = Command::new(&program);
        own.args(words).current_dir(sandbox.path("project")).env_clear();
        own.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = own.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(&["apply", "--yes"]);
    run(&["plan", "--detailed-exitcode"]);
    assert_eq!(run(&["exec", "dev", "--", "echo", "hi"]), "hi\n");
    assert_eq!(run(&["new", "dev", "--detach", "--", "true"]), "dev/true\n");
    assert_eq!(run(&["logs", "--follow", "dev/true"]), "", "followed to its end");
    run(&["host", "stop", "dev"]);
    run(&["host", "start", "dev"]);
    run(&["host", "destroy", "dev", "--yes"]);
    assert!(tree(&sandbox.path("home/.local/share")).is_empty());
}

fn script() -> Sandbox {
    let sandbox = Sandbox::new();
    let example = std::fs::read_to_string(root().join("examples/script.toml")).unwrap();
    sandbox.write("hosts.toml", example);
    std::fs::copy(root().join("examples/provider.sh"), sandbox.path("project/provider.sh"))
        .unwrap();
    sandbox
}

#[test]
fn a_provider_in_shell_does_the_main_job_after_trust() {
    let sandbox = script();
    let refused = sandbox.run(&["apply", "--yes"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    assert!(tree(&sandbox.path("home/.local/share")).is_empty(), "it was not even run");
    let _ = sandbox.run(&["trust", "--yes"]).ok();
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let _ = sandbox.run(&["plan", "--detailed-exitcode"]).ok();
    let run = sandbox.run(&["exec", "mine", "--", "sh", "-c", "cd && pwd; exit 3"]);
    assert_eq!(run.code, Some(3), "{run}");
    assert!(run.stdout.ends_with("simstim-mine/home\n"), "{run}");
    let _ = sandbox.run(&["new", "mine", "-d", "--name", "work", "--", "sleep", "900"]).ok();
    assert_eq!(sandbox.run(&["host", "stop", "mine"]).code, Some(1), "it works");
    let _ = sandbox.run(&["kill", "mine/work"]).ok();
    let _ = sandbox.run(&["host", "stop", "mine"]).ok();
    let _ = sandbox.run(&["host", "start", "mine"]).ok();
    let _ = sandbox.run(&["host", "destroy", "mine", "--yes"]).ok();
    let left: Vec<_> = tree(&sandbox.path("home/.local/share"));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_script_that_fails_or_talks_nonsense_leads_to_nothing() {
    let sandbox = script();
    let _ = sandbox.run(&["trust", "--yes"]).ok();
    for (script, expected) in [
        ("echo 'not now, please' >&2; exit 75", "could not list: not now, please"),
        ("echo nonsense", "did not answer `list` as it should"),
        (
            "echo '{\"machines\":[{\"id\":\"\\u0007\",\"name\":\"x\",\"state\":\"running\"}]}'",
            "did not answer",
        ),
        ("kill -9 $$", "could not list"),
        ("printf '\\033[31mred\\007\\n' >&2; exit 1", "[31mred"),
    ] {
        sandbox.write("provider.sh", format!("#!/bin/sh\n{script}\n"));
        let run = sandbox.run(&["plan"]).in_trouble();
        assert!(run.said().contains(expected), "{script}: {run}");
        assert!(run.said().contains("1 unknown"), "{run}");
        assert!(!run.said().contains(['\x1b', '\x07']), "nothing plays with the terminal: {run}");
    }
}

#[test]
fn a_machine_whose_mark_does_not_read_is_not_taken_for_gone() {
    let sandbox = script();
    let _ = sandbox.run(&["trust", "--yes"]).ok();
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let labels = sandbox.path("home/.local/share/simstim-shell-example/simstim-mine.labels");
    let whole = std::fs::read_to_string(&labels).unwrap();
    std::fs::write(&labels, whole.replace("\"nonce\"", "\"nonsense\"")).unwrap();
    let plan = sandbox.run(&["plan"]).in_trouble();
    assert!(!plan.stdout.contains("LOST") && !plan.stdout.contains("to create"), "{plan}");
    std::fs::write(&labels, whole).unwrap();
    let _ = sandbox.run(&["plan", "--detailed-exitcode"]).ok();
    let _ = sandbox.run(&["host", "destroy", "mine", "--yes"]).ok();
}

#[test]
fn a_script_that_gives_no_way_in_leads_nowhere_on_this_computer() {
    let sandbox = script();
    let _ = sandbox.run(&["trust", "--yes"]).ok();
    let provider = sandbox.read("provider.sh");
    let empty = "connect) echo '{\"command\":[]}'; exit 0 ;;\n  connect)";
    sandbox.write("provider.sh", provider.replacen("connect)", empty, 1));
    let run = sandbox.run(&["apply", "--yes"]);
    assert_eq!(run.code, Some(1), "{run}");
    assert!(run.said().contains("gave no command to connect with"), "{run}");
    assert!(!sandbox.path("home/.local/share/simstim").exists(), "nothing was installed here");
}

#[test]
fn an_interrupt_leaves_a_slow_provider_within_a_second() {
    use rustix::process::{Pid, Signal, kill_process};
    let sandbox = script();
    let _ = sandbox.run(&["trust", "--yes"]).ok();
    sandbox.write("provider.sh", "#!/bin/sh\necho >asked\nexec sleep 30\n");
    let mut plan = sandbox.start(&["plan"]);
    let begun = std::time::Instant::now();
    while !sandbox.path("project/asked").exists() {
        assert!(begun.elapsed().as_secs() < 20, "it was never asked");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&plan), Signal::INT).unwrap();
    let sent = std::time::Instant::now();
    plan.wait().unwrap();
    assert!(sent.elapsed().as_secs_f32() < 1.0, "{:?}", sent.elapsed());
}

/// The shell provider with a gate before the verb: it says that it is there, and waits to be let on.
struct Gate {
    there: PathBuf,
    on: PathBuf,
}

impl Gate {
    fn before(verb: &str, sandbox: &Sandbox) -> Self {
        let [there, on] = ["there", "on"].map(|name| sandbox.path(&format!("project/{name}")));
        let [a, b] = [&there, &on].map(|path| path.display().to_string());
        let made = Command::new("mkfifo").args([&a, &b]).status();
        assert!(made.unwrap().success());
        let gate = format!("  {verb})\n    echo >'{a}'; cat '{b}' >/dev/null\n");
        let script = sandbox.read("provider.sh");
        let gated = script.replacen(&format!("  {verb})"), &gate, 1);
        assert_ne!(script, gated);
        sandbox.write("provider.sh", gated);
        Self { there, on }
    }

    fn pass(self, meanwhile: impl FnOnce()) {
        let _ = std::fs::read(&self.there).unwrap();
        meanwhile();
        std::fs::write(&self.on, "").unwrap();
    }
}

#[test]
fn a_file_changed_during_an_apply_is_the_next_plans_matter() {
    let sandbox = script();
    let _ = sandbox.run(&["trust", "--yes"]).ok();
    let gate = Gate::before("create", &sandbox);
    let apply = sandbox.start(&["apply", "--yes"]);
    let two =
        format!("{}\n[[host]]\nname = \"two\"\nprovider = \"local\"\n", sandbox.read("hosts.toml"));
    gate.pass(|| sandbox.write("hosts.toml", &two));
    let output = apply.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(sandbox.read("hosts.toml"), two, "what somebody writes meanwhile stays");
    let plan = sandbox.run(&["plan", "--detailed-exitcode"]);
    assert_eq!(plan.code, Some(2), "{plan}");
    assert!(plan.stdout.contains("two") && plan.stdout.contains("1 to create"), "{plan}");
}

#[test]
fn a_file_changed_during_a_destroy_keeps_the_change() {
    let sandbox = script();
    let _ = sandbox.run(&["trust", "--yes"]).ok();
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let gate = Gate::before("destroy", &sandbox);
    let destroy = sandbox.start(&["host", "destroy", "mine", "--yes"]);
    gate.pass(|| {
        let before = sandbox.read("hosts.toml");
        sandbox.write("hosts.toml", format!("{before}\n# a word\n"));
    });
    let output = destroy.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let after = sandbox.read("hosts.toml");
    assert!(after.contains("# a word") && !after.contains("[[host]]"), "{after}");
}

#[test]
fn a_create_that_fails_says_what_stays_and_what_to_do() {
    let sandbox = script();
    let _ = sandbox.run(&["trust", "--yes"]).ok();
    let script = sandbox.read("provider.sh");
    let fails =
        script.replacen("  create)", "  create)\n    echo 'no room' >&2; exit 73 ;;\n  never)", 1);
    sandbox.write("provider.sh", fails);
    let run = sandbox.run(&["host", "create", "shell", "extra", "--yes"]);
    assert_eq!(run.code, Some(1), "{run}");
    assert!(run.stderr.contains("no room"), "{run}");
    assert!(run.stderr.contains("extra stays in hosts.toml"), "{run}");
    sandbox.write("provider.sh", script);
    let _ = sandbox.run(&["apply", "extra", "--yes"]).ok();
}
