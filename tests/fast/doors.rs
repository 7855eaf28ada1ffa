//! Machines that answer badly: noise, frames of any length, streams cut anywhere, the wrong host
//! behind the door, homes that take nothing. Each is one clear error, or none at all.

use std::path::Path;
use std::time::{Duration, Instant};

use insta::assert_snapshot;

use crate::support::Sandbox;

/// A machine of the shell example whose door runs `door.sh` with the words of each command.
fn door() -> Sandbox {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let sandbox = Sandbox::new();
    let file = std::fs::read_to_string(examples.join("script.toml")).unwrap();
    sandbox.write("hosts.toml", file);
    let door = sandbox.path("project/door.sh");
    let provider = std::fs::read_to_string(examples.join("provider.sh")).unwrap();
    let way = format!("\"command\":[\"sh\",\"{}\",\"env\",", door.display());
    let changed = provider.replace("\"command\":[\"env\",", &way);
    assert_ne!(changed, provider);
    sandbox.write("provider.sh", changed);
    std::process::Command::new("chmod")
        .arg("755")
        .arg(sandbox.path("project/provider.sh"))
        .status()
        .unwrap();
    sandbox.write("door.sh", "exec \"$@\"\n");
    let _ = sandbox.run(&["trust", "--yes"]).ok();
    sandbox
}

/// What only a bridge meets; `$m` is the marker that it was told to begin with.
fn bridge(script: &str) -> String {
    format!(
        "case \"$*\" in *bridge*) m=$(printf '%s' \"$*\" | grep -o 'simstim-[0-9a-f]\\{{24\\}}')\n\
         {script};;\nesac\nexec \"$@\"\n"
    )
}

#[test]
fn noise_before_the_first_word_is_put_up_with() {
    let sandbox = door();
    sandbox.write("door.sh", "printf 'Welcome!\\n\\033[1mNews: \\000\\377\\n'\nexec \"$@\"\n");
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    assert_eq!(sandbox.run(&["exec", "mine", "--", "echo", "hi"]).ok().stdout, "hi\n");
}

#[test]
fn a_stream_that_makes_no_sense_is_one_clear_error() {
    let sandbox = door();
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let zeros = "\\000\\000\\000\\000\\000\\000\\000\\000";
    let cases = [
        ("a door that says no", "echo 'door: no such machine' >&2; exit 1".to_owned()),
        ("only noise", bridge("yes noise | head -c 200000; exit 0")),
        ("a frame of 4 GiB", bridge(&format!("printf '%s\\377\\377\\377\\377{zeros}' $m; exit 0"))),
        (
            "a frame that is none",
            bridge(&format!("printf '%s\\000\\000\\000\\001{zeros}x' $m; exit 0")),
        ),
        (
            "a lost frame",
            bridge(&format!("printf '%s\\000\\000\\000\\000\\001{zeros}' $m; exit 0")),
        ),
        ("cut in the hello", bridge("sleep 1 | \"$@\" | head -c 60; exit 0")),
    ];
    let shown = cases.map(|(what, script)| {
        sandbox.write("door.sh", script);
        let begun = Instant::now();
        let run = sandbox.run(&["exec", "mine", "--", "sh", "-c", "head -c 9999 /dev/zero; cat"]);
        assert!(begun.elapsed() < Duration::from_secs(20), "{what} took {:?}", begun.elapsed());
        assert_eq!(run.code, Some(125), "{what}: {run}");
        format!("=== {what}\n{}", run.stderr)
    });
    assert_snapshot!(shown.join("\n"));
    // What is met first, the end of what it says or of what it hears, is up to the system.
    sandbox.write("door.sh", bridge("sleep 1 | \"$@\" | head -c 260; exit 0"));
    let run = sandbox.run(&["exec", "mine", "--", "sh", "-c", "head -c 9999 /dev/zero; cat"]);
    assert_eq!(run.code, Some(125), "{run}");
    assert!(run.said().contains("mine: the connection to the machine was lost"), "{run}");
    sandbox.write("door.sh", "exec \"$@\"\n");
    assert_eq!(sandbox.run(&["exec", "mine", "--", "echo", "hi"]).ok().stdout, "hi\n");
    let _ = sandbox.run(&["plan", "--detailed-exitcode"]).ok();
}

#[test]
fn another_machine_behind_the_door_is_refused() {
    let sandbox = door();
    let file = sandbox.read("hosts.toml");
    let two = format!("{file}\n[[host]]\nname = \"other\"\nprovider = \"shell\"\n");
    sandbox.write("hosts.toml", two);
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let swap = "for w; do shift; set -- \"$@\" \"$(printf '%s' \"$w\" | sed s/simstim-mine/simstim-other/)\"; done\nexec \"$@\"\n";
    sandbox.write("door.sh", swap);
    let exec = sandbox.run(&["exec", "mine", "--", "echo", "hi"]);
    assert_eq!((exec.code, exec.stdout.as_str()), (Some(125), ""));
    let stop = sandbox.run(&["host", "stop", "mine"]);
    assert_eq!(stop.code, Some(1), "{stop}");
    assert_snapshot!(format!("{exec}\n{stop}"));
}

#[test]
fn homes_that_take_no_helper_are_said() {
    let cases = [
        ("read-only", "shift 4; exec env -C / HOME=/proc/sys \"$@\"\n"),
        ("no home at all", "shift 4; exec env -C / -u HOME \"$@\"\n"),
        ("no shell", "shift 4; exec env PATH=/nowhere \"$@\"\n"),
    ];
    let shown = cases.map(|(what, script)| {
        let sandbox = door();
        sandbox.write("door.sh", script);
        let run = sandbox.run(&["apply", "--yes"]);
        assert_eq!(run.code, Some(1), "{what}: {run}");
        sandbox.write("door.sh", "exec \"$@\"\n");
        let _ = sandbox.run(&["apply", "--yes"]).ok();
        let _ = sandbox.run(&["plan", "--detailed-exitcode"]).ok();
        format!("=== {what}\n{}", run.stderr)
    });
    assert_snapshot!(shown.join("\n"));
}

#[test]
fn older_and_newer_helpers_beside_ours_are_not_disturbed() {
    let sandbox = door();
    let _ = sandbox.run(&["apply", "--yes"]).ok();
    let bin = sandbox
        .path("home/.local/share/simstim-shell-example/simstim-mine/home/.local/share/simstim/bin");
    let ours: Vec<_> = std::fs::read_dir(&bin).unwrap().flatten().collect();
    assert_eq!(ours.len(), 2, "a program and the link to it: {ours:?}");
    let (older, newer) = (bin.join("simstim-host-0000"), bin.join("simstim-host-ffff"));
    std::fs::write(&older, "old").unwrap();
    std::fs::write(&newer, "new").unwrap();
    std::fs::remove_file(bin.join("simstim-host")).unwrap();
    std::os::unix::fs::symlink("simstim-host-ffff", bin.join("simstim-host")).unwrap();
    assert_eq!(sandbox.run(&["exec", "mine", "--", "echo", "hi"]).ok().stdout, "hi\n");
    let _ = sandbox.run(&["ls"]).ok();
    assert_eq!(std::fs::read(&older).unwrap(), b"old");
    assert_eq!(std::fs::read(&newer).unwrap(), b"new");
    let _ = sandbox.run(&["host", "destroy", "mine", "--yes"]).ok();
}
