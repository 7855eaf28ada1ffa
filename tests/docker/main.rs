//! Against a real Docker engine. `tests/run docker` has one ready, with `debian:stable-slim`.
//! Everything made carries the mark of a test's own fleet, and is removed by it afterwards.
#![allow(missing_docs, reason = "tests are named as sentences")]
#![allow(unreachable_pub, reason = "support is shared by several test programs")]

#[path = "../support/mod.rs"]
mod support;

use std::process::Command;

use support::{Sandbox, programs};

/// A sandbox with a fleet of its own, whose machines go with it.
struct World {
    sandbox: Sandbox,
    fleet: String,
}

impl std::ops::Deref for World {
    type Target = Sandbox;
    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

impl std::ops::DerefMut for World {
    fn deref_mut(&mut self) -> &mut Sandbox {
        &mut self.sandbox
    }
}

fn docker(words: &[&str]) -> String {
    let output = Command::new("docker").args(words).output().unwrap();
    assert!(
        output.status.success(),
        "docker {words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A name that no other test and no other run uses.
fn unique(word: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{word}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

impl World {
    fn new() -> Self {
        Self { sandbox: Sandbox::new(), fleet: unique("test") }
    }

    /// Writes a file of this fleet.
    fn file(&self, hosts: &str) {
        self.write("hosts.toml", format!("fleet = \"{}\"\n\n{hosts}", self.fleet));
    }

    fn filter(&self) -> String {
        format!("label=io.simstim.fleet={}", self.fleet)
    }

    fn containers(&self) -> Vec<String> {
        let filter = self.filter();
        let ids = docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
        ids.lines().map(String::from).collect()
    }

    fn only(&self) -> String {
        let containers = self.containers();
        assert_eq!(containers.len(), 1, "one machine");
        containers.into_iter().next().unwrap()
    }

    /// The plan has nothing to do.
    #[track_caller]
    fn converged(&self) {
        let run = self.run(&["plan", "--detailed-exitcode"]);
        assert_eq!(run.code, Some(0), "{run}");
    }

    #[track_caller]
    fn apply(&self, words: &[&str]) {
        let all: Vec<&str> = ["apply", "--yes"].iter().chain(words).copied().collect();
        let _ = self.run(&all).ok();
        self.converged();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for id in self.containers() {
            let _ = Command::new("docker").args(["rm", "-f", "-v", &id]).output();
        }
    }
}

fn host(name: &str, rest: &str) -> String {
    format!(
        "[[host]]\nname = \"{name}\"\nprovider = \"docker\"\nsize = {{ cpus = 1, memory = \"256MiB\" }}\n{rest}\n"
    )
}

#[test]
fn the_main_job_on_a_real_engine() {
    let world = World::new();
    let name = unique("job");
    world.file(&host(&name, "env = { COLOUR = \"blue\" }"));
    assert_eq!(world.run(&["plan", "--detailed-exitcode"]).code, Some(2));
    world.apply(&[]);
    let labels = docker(&["inspect", "--format", "{{json .Config.Labels}}", &world.only()]);
    for key in ["fleet", "host", "nonce", "made-at", "maker", "protected", "digest"] {
        assert!(labels.contains(&format!("\"io.simstim.{key}\":")), "{key} in {labels}");
    }
    let script = "id -un; pwd; echo $COLOUR; cat; echo bad >&2; exit 3";
    let run = world.run_with(&["exec", &name, "--", "sh", "-c", script], b"in\0put\n");
    assert_eq!(run.code, Some(3));
    assert_eq!(run.bytes, b"user\n/home/user\nblue\nin\0put\n");
    assert_eq!(run.stderr, "bad\n");
    let _ = world.run(&["host", "stop", &name]).ok();
    world.converged();
    let list = world.run(&["host", "list"]).ok();
    assert!(list.said().contains("stopped"), "{list}");
    let woken = world.run(&["exec", &name, "--", "cat", "/etc/hostname"]).ok();
    assert_eq!(woken.stdout.trim(), name, "a person's command wakes");
    let _ = world.run(&["host", "stop", &name]).ok();
    let _ = world.run(&["host", "start", &name]).ok();
    let show = world.run(&["host", "show", &name]).ok();
    assert!(show.said().contains("1 cpu, 256MiB memory"), "{show}");
    let _ = world.run(&["host", "destroy", &name, "--yes"]).ok();
    assert!(world.containers().is_empty());
}

#[test]
fn an_edited_file_is_carried_out_as_planned() {
    let world = World::new();
    let (a, b, c) = (unique("a"), unique("b"), unique("c"));
    world.file(&(host(&a, "") + &host(&b, "")));
    world.apply(&[]);
    let old = world.containers();
    // One added, one removed.
    world.file(&(host(&a, "") + &host(&c, "") + "[provider.docker]\n"));
    let plan = world.run(&["plan"]).ok();
    assert!(plan.said().contains("Plan: 1 to create, 1 to destroy."), "{plan}");
    let refused = world.run(&["apply", "--yes"]);
    assert_eq!(refused.code, Some(2), "{refused}");
    world.apply(&["--destroy", "1"]);
    let kept: Vec<String> = world.containers().into_iter().filter(|id| old.contains(id)).collect();
    assert_eq!(kept.len(), 1);
    // A size in place: the same container.
    world.file(&(host(&a, "").replace("256", "300") + &host(&c, "")));
    let plan = world.run(&["plan"]).ok();
    assert!(plan.said().contains("+ size.memory = 300MiB"), "{plan}");
    world.apply(&[]);
    let memory = docker(&["inspect", "--format", "{{.HostConfig.Memory}}", &kept[0]]);
    assert_eq!(memory, (300 << 20).to_string());
    // Renamed: the same container still.
    world.file(
        &(host(&a, "").replace(&a, "renamed-1").replace("256", "300")
            + &format!("was = \"{a}\"\n")
            + &host(&c, "")),
    );
    world.apply(&[]);
    let _ = world.run(&["exec", "renamed-1", "--", "true"]).ok();
    assert!(world.containers().contains(&kept[0]));
    // Another image: a replace, which needs the count.
    docker(&["tag", "debian:stable-slim", "simstim-test:other"]);
    world.file(&host(&c, "[host.machine]\nimage = \"simstim-test:other\""));
    let plan = world.run(&["plan"]).ok();
    assert!(plan.said().contains("1 to replace, 1 to destroy"), "{plan}");
    world.apply(&["--destroy", "2"]);
    let image = docker(&["inspect", "--format", "{{.Config.Image}}", &world.only()]);
    assert_eq!(image, "simstim-test:other");
    // Power and protection.
    let block =
        host(&c, "protect = true\npower = \"off\"\n[host.machine]\nimage = \"simstim-test:other\"");
    world.file(&block);
    world.apply(&[]);
    let state = docker(&["inspect", "--format", "{{.State.Status}}", &world.only()]);
    assert_eq!(state, "exited");
    let refused = world.run(&["host", "destroy", &c, "--yes"]);
    assert_eq!(refused.code, Some(1), "{refused}");
    world.file(&block.replace("power = \"off\"", "power = \"on\""));
    world.apply(&[]);
    let state = docker(&["inspect", "--format", "{{.State.Status}}", &world.only()]);
    assert_eq!(state, "running");
}

#[test]
fn a_machine_removed_by_hand_is_lost_and_made_anew() {
    let world = World::new();
    let name = unique("lost");
    world.file(&host(&name, ""));
    world.apply(&[]);
    docker(&["rm", "-f", &world.only()]);
    let plan = world.run(&["plan"]).ok();
    assert!(plan.said().contains("is LOST: gone"), "{plan}");
    world.apply(&[]);
    world.only();
}

#[test]
fn a_paused_container_is_left_paused_and_woken_by_a_command() {
    let world = World::new();
    let name = unique("paused");
    world.file(&host(&name, ""));
    world.apply(&[]);
    docker(&["pause", &world.only()]);
    world.converged();
    let list = world.run(&["host", "list"]).ok();
    assert!(list.said().contains("paused"), "{list}");
    let destroy = world.run(&["host", "destroy", &name, "--yes"]);
    assert_eq!(destroy.code, Some(1), "nobody knows whether work is frozen in it: {destroy}");
    assert_eq!(world.run(&["exec", &name, "--", "echo", "up"]).ok().stdout, "up\n");
}

#[test]
fn a_name_of_somebody_else_blocks_and_is_not_touched() {
    let world = World::new();
    let name = unique("taken");
    let theirs =
        docker(&["create", "--name", &format!("simstim-{name}"), "debian:stable-slim", "true"]);
    world.file(&host(&name, ""));
    let run = world.run(&["apply", "--yes"]);
    assert_eq!(run.code, Some(1));
    assert!(run.said().contains("that simstim did not make"), "{run}");
    let other = World::new();
    other.file(&host(&name, &format!("[host.machine]\nname = \"{name}-mine\"")));
    other.apply(&[]);
    world.file(&host(&name, &format!("[host.machine]\nname = \"{name}-mine\"")));
    let run = world.run(&["plan"]);
    assert!(
        run.said().contains(&format!("belongs to a machine of fleet {}", other.fleet)),
        "{run}"
    );
    docker(&["inspect", &theirs]);
    docker(&["rm", &theirs]);
}

#[test]
fn an_engine_that_stops_is_unknown_and_heals_when_it_is_back() {
    let mut world = World::new();
    let socket = world.path("docker.sock");
    let real = docker(&["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]);
    let real = real.strip_prefix("unix://").unwrap_or("/var/run/docker.sock").to_owned();
    std::os::unix::fs::symlink(&real, &socket).unwrap();
    world.set("DOCKER_HOST", format!("unix://{}", socket.display()));
    let name = unique("heals");
    world.file(&host(&name, ""));
    world.apply(&[]);
    std::fs::remove_file(&socket).unwrap();
    let plan = world.run(&["plan", "--detailed-exitcode"]);
    assert_eq!(plan.code, Some(1), "{plan}");
    assert!(plan.said().contains("the docker engine does not answer"), "{plan}");
    let apply = world.run(&["apply", "--yes"]);
    assert_eq!(apply.code, Some(1), "{apply}");
    let before = world.read("hosts.toml");
    let destroy = world.run(&["host", "destroy", &name, "--yes"]);
    assert_eq!(destroy.code, Some(1), "{destroy}");
    assert_eq!(world.read("hosts.toml"), before, "unknown is not absent: the block stays");
    let exec = world.run(&["exec", &name, "--", "true"]);
    assert_eq!(exec.code, Some(125), "{exec}");
    assert!(exec.said().contains("systemctl start docker"), "{exec}");
    std::os::unix::fs::symlink(&real, &socket).unwrap();
    world.converged();
    world.only();
}

fn real_docker() -> String {
    let real = Command::new("sh").args(["-c", "command -v docker"]).output().unwrap();
    String::from_utf8_lossy(&real.stdout).trim().to_owned()
}

/// A `docker` in PATH that is the real one, but for what `script` does first.
fn fake_docker(world: &mut World, script: &str) {
    let real = real_docker();
    let bin = world.path("bin");
    let _ = std::fs::create_dir(&bin);
    let text = format!("#!/bin/sh\n{script}\nexec {real} \"$@\"\n");
    std::fs::write(bin.join("docker"), text).unwrap();
    Command::new("chmod").arg("755").arg(bin.join("docker")).status().unwrap();
    world.set("PATH", format!("{}:/usr/bin:/bin", bin.display()));
}

#[test]
fn another_engine_behind_the_same_context_blocks_until_here() {
    let mut world = World::new();
    let name = unique("moved");
    world.file(&host(&name, ""));
    world.apply(&[]);
    docker(&["rm", "-f", &world.only()]);
    // By another way to the same engine it is lost, by the same way at another engine it is not.
    world.set("DOCKER_HOST", "unix:///var/run/docker.sock");
    let plan = world.run(&["plan"]).ok();
    assert!(plan.said().contains("is LOST: gone"), "{plan}");
    fake_docker(&mut world, "[ \"$1\" = info ] && { echo OTHER:ENGINE; exit 0; }");
    let plan = world.run(&["plan"]).in_trouble();
    assert!(plan.said().contains("not at engine OTHER:ENGINE"), "{plan}");
    let plan = world.run(&["plan", "--here"]).ok();
    assert!(plan.said().contains("1 to create"), "{plan}");
}

#[test]
fn a_copied_container_is_left_alone_by_every_verb() {
    let world = World::new();
    let (name, copy) = (unique("original"), unique("copy"));
    world.file(&host(&name, ""));
    world.apply(&[]);
    let id = world.only();
    docker(&["commit", &id, "simstim-test:copy"]);
    let image = "simstim-test:copy";
    let copied = docker(&["run", "-d", "--name", &copy, "--entrypoint", "sleep", image, "1000"]);
    for words in [
        &["host", "stop", &name][..],
        &["exec", &name, "--", "true"],
        &["new", &name, "-d", "--", "true"],
        &["apply", "--yes"],
    ] {
        let _ = world.run(words);
        let state = docker(&["inspect", "--format", "{{.State.Status}}", &copied]);
        assert_eq!(state, "running", "{words:?}");
    }
    let plan = world.run(&["plan"]).in_trouble();
    assert!(plan.said().contains("somebody's copy of machine"), "{plan}");
}

#[test]
fn an_idle_time_is_set_without_losing_a_disk() {
    let world = World::new();
    let name = unique("idle");
    world.file(&host(&name, ""));
    world.apply(&[]);
    docker(&["tag", "debian:stable-slim", "simstim-test:idle"]);
    world.file(&host(&name, "[host.machine]\nimage = \"simstim-test:idle\""));
    let before = world.read("hosts.toml");
    let run = world.run(&["host", "idle", &name, "2h", "--yes"]);
    assert_eq!(run.code, Some(2), "a replace needs its count: {run}");
    assert_eq!(world.read("hosts.toml"), before);
    world.only();
}

#[test]
fn no_engine_no_program_and_nonsense_are_told_apart_and_make_nothing() {
    let mut world = World::new();
    world.file(&host("dev", ""));
    world.set("DOCKER_HOST", "unix:///nowhere/docker.sock");
    let absent = world.run(&["plan"]).in_trouble();
    assert!(absent.said().contains("the docker engine does not answer"), "{absent}");
    for (script, expected) in [
        ("echo 'WARNING: something'", "printed something that is no container"),
        ("echo 'oh no' >&2; exit 1", "cannot list containers: oh no"),
        (
            "echo 'permission denied while trying to connect to the Docker daemon socket' >&2; exit 1",
            "you may not use the docker engine",
        ),
    ] {
        let bin = world.path("bin");
        let _ = std::fs::create_dir(&bin);
        std::fs::write(bin.join("docker"), format!("#!/bin/sh\n{script}\n")).unwrap();
        Command::new("chmod").arg("755").arg(bin.join("docker")).status().unwrap();
        world.set("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        let run = world.run(&["plan"]).in_trouble();
        assert!(run.said().contains(expected), "{run}");
        assert!(run.said().contains("1 unknown"), "{run}");
    }
    world.set("PATH", "/nowhere");
    let run = world.run(&["plan"]).in_trouble();
    assert!(run.said().contains("`docker` is not installed, or not in PATH"), "{run}");
}

#[test]
fn a_context_that_does_not_exist_is_said() {
    let world = World::new();
    world.file(&(host("dev", "") + "[provider.docker]\ncontext = \"nowhere\"\n"));
    let _ = world.run(&["trust", "--yes"]).ok();
    let run = world.run(&["plan"]).in_trouble();
    assert!(run.said().contains("docker context ls"), "{run}");
}

/// An image of one layer from a folder, of any architecture.
fn image(name: &str, architecture: &str, fill: impl FnOnce(&std::path::Path)) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    fill(&root);
    let shell = |script: &str| {
        let output = Command::new("sh").arg("-ec").arg(script).current_dir(folder.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let sum = shell("tar -C root -cf layer.tar . && sha256sum layer.tar | cut -d' ' -f1");
    let config = format!(
        "{{\"architecture\":\"{architecture}\",\"os\":\"linux\",\"config\":{{}},\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{sum}\"]}}}}"
    );
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let manifest = format!(
        "[{{\"Config\":\"config.json\",\"RepoTags\":[\"{name}\"],\"Layers\":[\"layer.tar\"]}}]"
    );
    std::fs::write(folder.path().join("manifest.json"), manifest).unwrap();
    shell("tar -cf image.tar manifest.json config.json layer.tar && docker load -q -i image.tar");
}

/// The architecture of this engine, as images name it.
fn engine_architecture() -> String {
    docker(&["version", "--format", "{{.Server.Arch}}"])
}

#[test]
fn another_architecture_is_one_clear_error_before_anything_is_made() {
    let world = World::new();
    image("simstim-test:riscv", "riscv64", |root| {
        std::fs::write(root.join("file"), "x").unwrap();
    });
    world.file(&host("dev", "[host.machine]\nimage = \"simstim-test:riscv\""));
    let run = world.run(&["apply", "--yes"]);
    assert_eq!(run.code, Some(1), "{run}");
    assert!(run.said().contains("this simstim has no helper for riscv64 machines"), "{run}");
    assert!(run.said().contains("SIMSTIM_HELPER_DIR=DIR"), "{run}");
    assert!(world.containers().is_empty());
}

#[test]
fn an_image_with_busybox_alone_works() {
    let world = World::new();
    image("simstim-test:busybox", &engine_architecture(), |root| {
        std::fs::create_dir(root.join("bin")).unwrap();
        let busybox = ["/bin/busybox", "/usr/bin/busybox"]
            .into_iter()
            .find(|path| std::path::Path::new(path).exists())
            .expect("tests/run installs busybox-static");
        std::fs::copy(busybox, root.join("bin/busybox")).unwrap();
        let names = [
            "sh", "sleep", "grep", "cut", "mkdir", "cat", "chmod", "mv", "rm", "uname", "ln",
            "chown", "test", "id", "true",
        ];
        for name in names {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        std::fs::create_dir(root.join("etc")).unwrap();
        std::fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\n").unwrap();
    });
    let name = unique("busybox");
    world.file(&host(&name, "[host.machine]\nimage = \"simstim-test:busybox\""));
    world.apply(&[]);
    let run = world.run(&["exec", &name, "--", "sh", "-c", "echo $HOME; id -u"]).ok();
    assert_eq!(run.stdout, "/home/user\n1000\n");
}

#[test]
fn an_image_without_a_shell_or_sleep_says_what_is_missing() {
    let world = World::new();
    image("simstim-test:empty", &engine_architecture(), |root| {
        std::fs::write(root.join("file"), "x").unwrap();
    });
    let name = unique("empty");
    world.file(&host(&name, "[host.machine]\nimage = \"simstim-test:empty\""));
    let run = world.run(&["apply", "--yes"]);
    assert_eq!(run.code, Some(1), "{run}");
    assert!(run.said().contains("use an image that has `sleep`"), "{run}");
    let plan = world.run(&["plan"]).ok();
    assert!(plan.said().contains("its set-up was never completed"), "{plan}");
    let _ = world.run(&["host", "destroy", &name, "--yes"]).ok();
    assert!(world.containers().is_empty());
}

#[test]
fn an_image_that_cannot_be_had_fails_alone() {
    let world = World::new();
    let (good, bad) = (unique("good"), unique("bad"));
    world.file(&(host(&good, "") + &host(&bad, "[host.machine]\nimage = \"nowhere.invalid/x:1\"")));
    let run = world.run(&["apply", "--yes"]);
    assert_eq!(run.code, Some(1), "{run}");
    assert!(run.said().contains("cannot pull image nowhere.invalid/x:1"), "{run}");
    world.only();
}

#[test]
fn two_applies_at_once_make_one_machine() {
    let world = World::new();
    let name = unique("race");
    world.file(&host(&name, ""));
    let (first, second) = (world.start(&["apply", "--yes"]), world.start(&["apply", "--yes"]));
    let outputs = [first.wait_with_output().unwrap(), second.wait_with_output().unwrap()];
    for output in &outputs {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    world.only();
    world.converged();
}

#[test]
fn two_first_commands_at_once_both_find_a_helper() {
    let world = World::new();
    let name = unique("both");
    world.file(&host(&name, ""));
    world.apply(&[]);
    let _ = world.run(&["exec", &name, "--", "sh", "-c", "rm -r ~/.local/share/simstim/bin"]);
    let children: Vec<_> =
        (0..4).map(|_| world.start(&["exec", &name, "--", "echo", "here"])).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "here\n", "{output:?}");
    }
}

#[test]
fn ten_megabytes_pass_both_ways() {
    let world = World::new();
    let name = unique("bytes");
    world.file(&host(&name, ""));
    world.apply(&[]);
    let bytes: Vec<u8> =
        (0..10_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let run = world.run_with(&["exec", &name, "--", "cat"], &bytes).ok();
    assert!(run.bytes == bytes, "{} bytes came back", run.bytes.len());
}

/// A machine of `name` whose home is a file system in memory with these options, not set up yet.
fn with_home(world: &World, name: &str, options: &str) {
    let labels = [
        ("fleet", world.fleet.as_str()),
        ("host", name),
        ("nonce", "n1"),
        ("made-at", "1"),
        ("maker", "test"),
        ("protected", "false"),
        ("digest", "x"),
    ];
    let labels = labels.map(|(key, value)| format!("--label=io.simstim.{key}={value}"));
    let (container, home) = (format!("{name}-x"), format!("/home/user:mode=0777,{options}"));
    let mut words = vec!["create", "--name", &container, "--init", "--tmpfs", &home];
    words.extend(labels.iter().map(String::as_str));
    words.extend(["--cpus", "1", "--memory", "268435456", "debian:stable-slim"]);
    words.extend(["sleep", "infinity"]);
    docker(&words);
}

#[test]
fn a_full_disk_at_the_upload_is_said_and_leaves_no_half_helper() {
    let world = World::new();
    let name = unique("full");
    world.file(&host(&name, ""));
    with_home(&world, &name, "size=64k,exec");
    let run = world.run(&["apply", "--yes"]);
    assert_eq!(run.code, Some(1), "{run}");
    assert!(run.said().contains("a full disk?"), "{run}");
    let left = docker(&["exec", &world.only(), "ls", "-A", "/home/user/.local/share/simstim/bin"]);
    assert_eq!(left, "", "the half upload is removed");
}

#[test]
fn a_home_that_runs_no_programs_is_said() {
    let world = World::new();
    let name = unique("noexec");
    world.file(&host(&name, ""));
    with_home(&world, &name, "size=64m,noexec");
    let run = world.run(&["apply", "--yes"]);
    assert_eq!(run.code, Some(1), "{run}");
    assert!(run.said().contains("a home mounted noexec?"), "{run}");
}

#[test]
fn a_session_outlives_clients_and_guards_its_container() {
    let world = World::new();
    let name = unique("session");
    world.file(&host(&name, ""));
    world.apply(&[]);
    let script = "echo begun; while [ ! -e ~/go ]; do sleep 0.1; done; echo done; exit 4";
    let _ = world.run(&["new", &name, "--detach", "--name", "work", "--", "sh", "-c", script]).ok();
    let mut clients = [
        world.start(&["logs", "-f", &format!("{name}/work")]),
        world.start(&["exec", &name, "--", "sleep", "600"]),
    ];
    let mut begun = [0; 5];
    std::io::Read::read_exact(clients[0].stdout.as_mut().unwrap(), &mut begun).unwrap();
    for client in &mut clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    let ls = world.run(&["ls"]).ok();
    assert!(ls.stdout.contains("working"), "{ls}");
    for words in [&["host", "stop", &name][..], &["host", "destroy", &name, "--yes"]] {
        let refused = world.run(words);
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(refused.said().contains("session work is working"), "{refused}");
    }
    docker(&["tag", "debian:stable-slim", "simstim-test:next"]);
    world.file(&host(&name, "[host.machine]\nimage = \"simstim-test:next\""));
    let refused = world.run(&["apply", "--yes"]);
    assert!(refused.said().contains("cannot replace: session work is working"), "{refused}");
    world.file(&host(&name, ""));
    let _ = world.run(&["exec", &name, "--", "touch", "go"]).ok();
    let follow = world.run(&["logs", "-f", &format!("{name}/work")]).ok();
    assert_eq!(follow.stdout, "begun\r\ndone\r\n");
    let ls = world.run(&["ls"]).ok();
    assert!(ls.stdout.contains("it ended with code 4"), "{ls}");
    let _ = world.run(&["host", "stop", &name]).ok();
    let _ = world.run(&["host", "destroy", &name, "--yes"]).ok();
    assert!(world.containers().is_empty());
}

#[test]
fn an_idle_container_is_stopped_by_the_keeper_in_time_and_not_before() {
    use std::time::{Duration, Instant};
    let world = World::new();
    let name = unique("idle");
    world.file(&host(&name, "idle_stop = \"1m\""));
    let mut keeper = world.start(&["apply", "--watch", "--yes", "--json"]);
    let id = loop {
        if let [id] = world.containers().as_slice() {
            break id.clone();
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let second = unique("made-by-keeper");
    let two = [&name, &second].map(|name| host(name, "idle_stop = \"1m\""));
    world.file(&two.concat());
    let state = || docker(&["inspect", "--format", "{{.State.Status}}", &id]);
    let work = world.run(&["new", &name, "-d", "--name", "work", "--", "sleep", "20"]);
    let work = if work.code == Some(0) {
        work
    } else {
        // The keeper was still setting it up.
        std::thread::sleep(Duration::from_secs(5));
        world.run(&["new", &name, "-d", "--name", "work", "--", "sleep", "20"])
    };
    let _ = work.ok();
    let started = Instant::now();
    let deadline = started + Duration::from_secs(180);
    while state() == "running" {
        assert!(Instant::now() < deadline, "it was never stopped");
        std::thread::sleep(Duration::from_millis(500));
    }
    // The session ended 20 s after its start; one to two minutes later the machine stops.
    let idle = started.elapsed().saturating_sub(Duration::from_secs(20));
    assert!(idle >= Duration::from_secs(60), "stopped {idle:?} after its work ended");
    assert!(idle <= Duration::from_secs(120), "stopped {idle:?} after its work ended");
    // What the keeper made itself is watched from then on.
    let format = "{{.State.Status}} {{.State.StartedAt}} {{.State.FinishedAt}}";
    let ran = loop {
        assert!(Instant::now() < deadline, "the second was never stopped");
        let text = docker(&["inspect", "--format", format, &format!("simstim-{second}")]);
        let words: Vec<&str> = text.split(' ').collect();
        if let ["exited", began, ended] = words.as_slice() {
            let [began, ended] = [began, ended].map(|at| humantime::parse_rfc3339(at).unwrap());
            break ended.duration_since(began).unwrap();
        }
        std::thread::sleep(Duration::from_millis(500));
    };
    assert!(ran >= Duration::from_secs(60) && ran <= Duration::from_secs(100), "it ran {ran:?}");
    let woken = world.run(&["new", &name, "-d", "--", "sleep", "900"]).ok();
    assert!(woken.stdout.starts_with(&name), "`new` wakes it: {woken}");
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&keeper),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    let begun = Instant::now();
    assert_eq!(keeper.wait().unwrap().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// How many kills there are is bounded here; `SIMSTIM_KILLS` asks for more.
fn kill_steps() -> u32 {
    std::env::var("SIMSTIM_KILLS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(0)
}

#[test]
fn killed_at_any_moment_one_more_run_converges() {
    use rustix::process::Signal;
    use support::kills::{interrupt, moments};
    let apart = std::time::Duration::from_millis(60);
    for signal in [Signal::KILL, Signal::INT] {
        // Preflight, image, create, start, bootstrap: begun and done each.
        for moment in moments(10, kill_steps(), apart) {
            let world = World::new();
            let name = unique("kill");
            world.file(&host(&name, ""));
            interrupt(&world, &["apply", "--yes", "--json"], moment, signal);
            world.apply(&[]);
            world.only();
            assert_eq!(world.run(&["exec", &name, "--", "echo", "up"]).ok().stdout, "up\n");
            // Preflight and destroy, with the edit of the file before them.
            let events = moment.events.min(4);
            let destroy = ["host", "destroy", &name, "--yes", "--json"];
            let moment = support::kills::Moment { events, ..moment };
            interrupt(&world, &destroy, moment, signal);
            let text = world.read("hosts.toml");
            assert!(text.contains(&name) || !text.contains("[[host]]"), "whole: {text}");
            if text.contains(&name) || !world.containers().is_empty() {
                // The engine goes on removing what it was told to remove, and says so meanwhile.
                let again = || world.run(&["host", "destroy", &name, "--yes"]);
                let mut runs = (0..50).map(|_| again());
                let run = runs.find(|run| !run.said().contains("being removed")).unwrap();
                let gone = run.said().contains("there is no host") && !text.contains(&name);
                assert!(run.code == Some(0) || gone, "{signal:?} at {moment:?}: {run}");
            }
            assert!(world.containers().is_empty(), "{signal:?} at {moment:?}");
        }
    }
}

#[test]
fn two_thousand_foreign_containers_are_no_burden() {
    let mut world = World::new();
    world.file(&host(&unique("crowd"), ""));
    world.apply(&[]);
    let rows = "seq -f '%064.0f' 1 2000 | sed 's/$/\\tother\\t\"x\"/'";
    fake_docker(&mut world, &format!("case \" $* \" in *' ps '*) {rows};; esac"));
    let begun = std::time::Instant::now();
    world.converged();
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

#[test]
fn a_dead_container_is_said_and_left_alone() {
    let mut world = World::new();
    let name = unique("dead");
    world.file(&host(&name, ""));
    world.apply(&[]);
    let id = world.only();
    let real = real_docker();
    let dead = "sed 's/\"Status\": \"running\"/\"Status\": \"dead\"/'";
    fake_docker(
        &mut world,
        &format!(
            "case \" $* \" in *' inspect --type container '*) {real} \"$@\" | {dead}; exit;; esac"
        ),
    );
    let plan = world.run(&["plan", &name]).in_trouble();
    assert!(plan.said().contains("its engine calls it dead"), "{plan}");
    let _ = world.run(&["apply", "--yes"]);
    let exec = world.run(&["exec", &name, "--", "true"]);
    assert_eq!(exec.code, Some(125), "{exec}");
    assert_eq!(world.only(), id, "it is neither removed nor made again");
}

#[test]
fn an_engine_that_stops_in_the_middle_of_an_apply_leaves_what_the_next_one_finishes() {
    for verb in ["create", "start", "exec"] {
        let mut world = World::new();
        world.file(&host(&unique("mid"), ""));
        let gone = world.path("gone");
        let gone = gone.display();
        fake_docker(
            &mut world,
            &format!(
                "case \" $* \" in *' {verb} '*) touch {gone};; esac\n\
                 [ ! -e {gone} ] || {{ echo 'Cannot connect to the Docker daemon at x. \
                 Is the docker daemon running?' >&2; exit 1; }}"
            ),
        );
        let run = world.run(&["apply", "--yes"]);
        assert_eq!(run.code, Some(1), "{verb}: {run}");
        assert!(run.said().contains("does not answer") || verb == "exec", "{verb}: {run}");
        let path = std::env::var_os("PATH").unwrap();
        world.set("PATH", path);
        world.apply(&[]);
        world.converged();
        world.only();
    }
}

/// `tests/run` has this image ready: `debian:stable-slim` with an editor, a process viewer and tmux.
const TOOLS: &str = "[host.machine]\nimage = \"simstim-tests:tools\"";

#[test]
fn whole_screens_are_found_as_they_were_left() {
    let world = World::new();
    let name = unique("screens");
    world.file(&host(&name, TOOLS));
    world.apply(&[]);
    programs::an_editor_is_found_as_it_was_left(&world, &name);
    programs::a_process_viewer_is_found_as_it_was_left(&world, &name);
    programs::a_multiplexer_works_inside(&world, &name);
    programs::a_click_and_a_paste_arrive_as_they_were(&world, &name);
}
