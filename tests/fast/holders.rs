//! Sessions in bad luck: full disks, stopped holders, odd programs and odd bytes, connections that end
//! after every number of bytes, holders of an older version, helpers that mean harm.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use schema::message::Exited;
use simstim::config;
use simstim::helper_client::{self, AttachEnd, AttachRequest, Attachment, Purpose, connect};
use simstim::plan::Policy;
use simstim::transport::{Command, Exec, Transport, TransportError};
use tokio::io::{AsyncReadExt as _, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

use crate::attach::Host;
use crate::support::Sandbox;

/// The folder of a session on a local host.
fn folder(host: &Host, name: &str) -> PathBuf {
    let home = "home/.local/share/simstim/local/f/simstim-dev/home";
    host.0.path(home).join(".local/share/simstim/sessions").join(name)
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_disk_that_takes_nothing_leaves_a_marked_gap_and_the_program_goes_on() {
    let host = Host::new();
    host.session("full", "stty -echo; read a; echo lost; read a; echo kept; exec cat");
    std::os::unix::fs::symlink("/dev/full", folder(&host, "full").join(format!("log.{:020}", 0)))
        .unwrap();
    let mut terminal = host.terminal(&["attach", "dev/full"]);
    terminal.type_in(b"\r");
    terminal.shows("lost");
    terminal.type_in(b"\r");
    terminal.shows("kept");
    terminal.cut();
    terminal.type_in(b"typed\r");
    terminal.shows("typed");
    let log = host.0.run(&["logs", "dev/full"]).ok();
    assert!(log.stdout.starts_with("kept\r\n"), "{log}");
    assert!(log.stderr.contains("the first 6 bytes are not kept any more"), "{log}");
}

#[test]
fn a_stopped_holder_is_said_and_goes_on_later() {
    let host = Host::new();
    let mut terminal =
        host.terminal(&["new", "dev", "--name", "cat", "--", "sh", "-c", "echo up; cat"]);
    terminal.shows("up");
    let pid = std::fs::read_to_string(folder(&host, "cat").join("meta")).unwrap();
    let pid = pid.lines().find_map(|line| line.strip_prefix("pid ")).unwrap().to_owned();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let parent = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
    let holder = Pid::from_raw(parent.parse().unwrap()).unwrap();
    kill_process(holder, Signal::STOP).unwrap();
    let mut second = host.terminal(&["attach", "dev/cat"]);
    second.shows("the session does not answer");
    kill_process(holder, Signal::CONT).unwrap();
    second.wait("the screen", |terminal| {
        terminal.text().contains("up") && !terminal.text().contains("does not answer")
    });
    second.type_in(b"hello\r");
    terminal.shows("hello");
    second.shows("hello");
}

/// Bytes that are hard for terminals, in pieces that cut them.
const ODD: &str = r"stty -echo; printf 'a\000b\303'; sleep 0.05; printf '\251\346\274'; sleep 0.05
printf '\242|%79s\346\274\242\r\n' x; printf '\033[38;5;'; sleep 0.05; printf '208mcolour\033[0m\r\n'
head -c 10000000 /dev/zero | tr '\000' x; printf '\r\n\377\376\033]0;title'; sleep 0.05
printf '\007\033[6;3Hwide \360\237\246\200 end'; exec cat >/dev/null";

#[test]
fn odd_bytes_in_odd_pieces_look_the_same_to_who_comes_later() {
    let host = Host::new();
    let mut first = host.terminal(&["new", "dev", "--name", "odd", "--", "bash", "-c", ODD]);
    first.shows("end");
    let mut second = host.terminal(&["attach", "dev/odd"]);
    second.wait("the same screen", |terminal| terminal.all() == first.all());
}

#[test]
fn programs_that_fork_close_their_terminal_or_ignore_a_hang_up_end_as_they_do() {
    let host = Host::new();
    host.session("closes", "exec 0<&- 1>&- 2>&-; sleep 0.2; exit 4");
    host.session("forks", "echo up; (sleep 0.3; echo child) & exit 5");
    host.session("ignores", "trap '' HUP; echo up; while :; do sleep 1; done");
    for (name, code) in [("closes", 4), ("forks", 5)] {
        wait_until(name, || host.state(name) == "ended");
        let run = host.0.run(&["ls", "--json"]).ok();
        assert!(run.stdout.contains(&format!("\"code\": {code}")), "{name}: {run}");
    }
    let killed = host.0.run(&["kill", "dev/ignores"]).ok();
    assert!(killed.stderr.contains("signal 9 ended it"), "{killed}");
}

#[test]
fn a_socket_far_below_the_home_folder_is_reached() {
    let mut sandbox = Sandbox::new();
    let home = sandbox.path(&["home", &"deep".repeat(20), &"deeper".repeat(20)].join("/"));
    std::fs::create_dir_all(&home).unwrap();
    sandbox.set("HOME", home.into_os_string());
    let host = Host::within(sandbox);
    let mut terminal = host.terminal(&["new", "dev", "--", "sh", "-c", "echo up; cat"]);
    terminal.shows("up");
    terminal.type_in(b"\x1c\x1c");
    assert_eq!(terminal.end(), Some(0));
}

/// A way to a machine that breaks after some bytes, either way.
#[derive(Debug)]
struct Breaking {
    whole: Arc<dyn Transport>,
    after: u64,
}

/// Takes so many bytes, then nothing more.
struct Short(Box<dyn AsyncWrite + Send + Unpin>, u64);

impl AsyncWrite for Short {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let most = bytes.len().min(usize::try_from(self.1).unwrap());
        if most == 0 {
            return Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()));
        }
        let written = ready!(Pin::new(&mut self.0).poll_write(context, &bytes[..most]))?;
        self.1 -= written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[async_trait]
impl Transport for Breaking {
    async fn start(&self, command: &Command) -> Result<Exec, TransportError> {
        let exec = self.whole.start(command).await?;
        Ok(Exec {
            stdin: Box::new(Short(exec.stdin, self.after)),
            stdout: Box::new(exec.stdout.take(self.after)),
            ..exec
        })
    }
}

/// What a terminal was given.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_connection_may_break_after_every_number_of_bytes() {
    let host = Host::new();
    let script = "stty raw -echo; echo ready; head -c 900 | tr a-z A-Z; exit 3";
    host.session("s", script);
    let computer = host.computer();
    let file = config::load(&host.0.path("project/hosts.toml"), &computer.kinds.catalog()).unwrap();
    let accounts = file.config.accounts.clone();
    let providers = computer.kinds.open(&accounts, &computer.folders);
    let fleet = computer.open(&file, &file.config, false).unwrap();
    let (plan, _) = fleet.plan(&file.config, &Policy::default()).await;
    let machine = plan.hosts[0].machine.clone().unwrap();
    let whole = providers[&machine.account].transport(&machine);
    let (mut keys, input) = std::os::unix::net::UnixStream::pair().unwrap();
    let (_stays, leave) = oneshot::channel();
    let (_sizes, resizes) = mpsc::channel(1);
    let shown = Shown::default();
    let request = AttachRequest {
        name: "s".into(),
        size: (24, 80),
        read_only: false,
        scrollback: 0,
        client: [7; 16],
    };
    let (input, output) = (Box::new(input), Box::new(shown.clone()));
    let mut attachment =
        Attachment::start(request, helper_client::Terminal { input, leave, output, resizes });
    let typed: String = (0..150).map(|key| format!("k{key:03}. ")).collect();
    keys.write_all(typed.as_bytes()).unwrap();
    let mut broken = 0;
    // Below 200 bytes there is not even a hello, and a second is waited for what else there is.
    for after in (0..200).step_by(50).chain((200..1700).step_by(3)).chain([u64::MAX]) {
        let breaking = Breaking { whole: whole.clone(), after };
        let bridge = connect(&breaking, &machine.mark, &computer.helpers, Purpose::Attach);
        let Ok(bridge) = bridge.await else { continue };
        match attachment.over(bridge).await {
            Err(error) if error.is_of_connection() => broken += 1,
            ended => {
                let exited = Exited { code: Some(3), signal: None };
                assert_eq!(ended.unwrap(), AttachEnd::Ended(exited), "after {after}");
                break;
            }
        }
    }
    attachment.finish(true).await;
    assert!(broken > 100, "{broken} connections broke");
    let shown = String::from_utf8_lossy(&shown.0.lock().unwrap()).into_owned();
    assert!(shown.ends_with(&typed.to_uppercase()), "{shown}");
    assert_eq!(shown.matches("K149. ").count(), 1, "{shown}");
}

/// What a holder of protocol 1 says to who attaches, byte for byte, as the first one said it: hello,
/// attached, a screen, painted, credit, output, and the end with code 7.
const HOLDER_1: &[u8] = include_bytes!("holder-1.bin");

#[test]
fn a_holder_of_an_older_version_is_attached_to() {
    let host = Host::new();
    let folder = folder(&host, "old");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("meta"), "pid 1\nstarted 1\ncommand old\n").unwrap();
    let lock = std::fs::File::create(folder.join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    // By way of the folder: a path may be longer than an address can hold.
    let opened = std::fs::File::open(&folder).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&opened);
    let listener = UnixListener::bind(format!("/proc/self/fd/{fd}/sock")).unwrap();
    let holder = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(HOLDER_1).unwrap();
            let mut heard = [0; 4096];
            let read = stream.read(&mut heard).unwrap();
            if heard[..read].windows(3).any(|part| part == b"old") {
                return stream;
            }
        }
        unreachable!("somebody attaches")
    });
    let mut terminal = host.terminal(&["attach", "dev/old"]);
    assert_eq!(terminal.end(), Some(7));
    assert!(String::from_utf8_lossy(&terminal.bytes).contains("words of an old holder"));
    drop(holder.join().unwrap());
}

#[test]
fn a_disk_that_went_back_in_time_is_said_once() {
    let host = Host::new();
    let run = || host.0.run(&["exec", "dev", "true"]).ok();
    let _ = run();
    let boots = folder(&host, "any").ancestors().nth(2).unwrap().join("boots");
    let now = std::fs::read_to_string(&boots).unwrap();
    let of_boot = now.split_once(' ').unwrap().1;
    std::fs::write(&boots, format!("7 {of_boot}")).unwrap();
    assert_eq!(run().stderr, "", "more boots are no news");
    std::fs::write(&boots, now.clone()).unwrap();
    insta::assert_snapshot!(run().stderr);
    assert_eq!(run().stderr, "");
}
