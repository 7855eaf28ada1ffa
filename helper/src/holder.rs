//! The holder: keeps one session's terminal, its log and its facts, for as long as its program runs.
//!
//! It has no controlling terminal, no open stream to whoever started it, and a socket in the
//! session's folder for this user alone. It sleeps unless the program prints or somebody asks.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::{
    Pid, PidfdFlags, Signal, ioctl_tiocsctty, kill_process_group, pidfd_open, setsid,
};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{tcgetpgrp, tcsetwinsize};
use rustix::time::{ClockId, clock_gettime};
use schema::bytes::{Buf as _, Bytes, BytesMut};
use schema::frame::{Decoder, MAX_DATA};
use schema::message::{
    Attach, Body, Credit, Done, Exited, Failed, LOG, NewSession, STDIN, Session, Sessions,
    SignalSession,
};

use crate::bridge::set_nonblocking;
use crate::log::LogWriter;
use crate::outgoing::Outgoing;
use crate::place::Place;
use crate::processes::{self, Process};
use crate::screen::Screen;
use crate::state::{self, Facts, Report, State};
use crate::viewer::{Viewer, size, winsize};
use crate::{marks, sessions};

/// How often CPU is sampled, so that "lately" means the last one or two of these.
const SAMPLE: Duration = Duration::from_secs(10);
/// From a hang-up to a kill.
const GRACE: Duration = Duration::from_secs(5);
/// After the program's end: output is complete when none came for so long.
const SILENCE: Duration = Duration::from_millis(50);
/// And at the latest after so long, whatever its children still print.
const DRAIN: Duration = Duration::from_secs(1);
/// Clients at once; one more is turned away.
const CLIENTS: usize = 16;
/// The most that may wait for a client, in bytes: a paint of the largest screen, and what follows.
const MOST_WAITING: usize = 64 << 20;
/// For those who are attached to take the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Since boot, sleep included.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Runs a holder. What it prints before its program runs is for who started it: `ok`, or why not.
pub(crate) fn run(place: &Place, name: &str) -> Result<(), String> {
    let mut stdout = std::io::stdout();
    match Holder::start(place, name) {
        Ok(holder) => {
            let _ = writeln!(stdout, "ok").and_then(|()| stdout.flush());
            let_go();
            holder.hold();
            Ok(())
        }
        Err(why) => {
            let _ = writeln!(stdout, "{why}");
            Err(why)
        }
    }
}

/// Gives up the streams of who started us: a transport waits for them.
fn let_go() {
    if let Ok(null) = open("/dev/null", OFlags::RDWR, Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Becomes a session's program: a new terminal session on this process's stdin, then the program.
pub(crate) fn become_program(words: &[OsString]) -> String {
    use std::os::unix::process::CommandExt as _;
    let Some((program, arguments)) = words.split_first() else { return "no program".into() };
    if let Err(error) = setsid().and_then(|_| ioctl_tiocsctty(std::io::stdin())) {
        return format!("no terminal: {error}");
    }
    let error = Command::new(program).args(arguments).exec();
    format!("cannot start `{}`: {error}", program.to_string_lossy())
}

struct Holder {
    name: String,
    folder: PathBuf,
    _lock: File,
    child: Child,
    exit: Option<OwnedFd>,
    terminal: OwnedFd,
    /// The program's side, kept open: a program may close and open its terminal as it likes.
    _slave: OwnedFd,
    listener: UnixListener,
    clients: Vec<Client>,
    accepted: u64,
    log: LogWriter,
    screen: Screen,
    /// Read into again once what was read is sent.
    buffer: BytesMut,
    /// What was typed and the program has not taken, and by whom.
    typed: VecDeque<(u64, Bytes)>,
    argv: Vec<String>,
    started_at: u64,
    busy_lease: Duration,
    /// CPU time and when it was taken: the last but one sample, and the last.
    samples: [(Duration, Duration); 2],
    last_life: Duration,
    kill_at: Option<Duration>,
    /// How the program ended.
    status: Option<ExitStatus>,
    /// The process groups there were when the session was hung up.
    groups: Vec<i32>,
}

struct Client {
    /// Counts up from one.
    id: u64,
    stream: UnixStream,
    decoder: Decoder,
    out: Outgoing,
    viewer: Option<Viewer>,
}

/// What became of the program's output in one turn.
enum Turn {
    /// There was none.
    Quiet,
    /// There was some.
    Printed,
    /// Nothing was read: somebody who is attached takes none.
    HeldUp,
}

impl Holder {
    fn start(place: &Place, name: &str) -> Result<Self, String> {
        let spec = read_spec()?;
        let _ = setsid();
        rustix::process::umask(Mode::from_raw_mode(0o077));
        let folder = sessions::find(place, name)?;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: std::io::Error| format!("cannot {what}: {error}")
        };
        let lock = File::create(folder.join("lock")).map_err(failed("write in its folder"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| format!("there is a session `{name}` already"))?;
        let argv = command(&spec);
        runnable(&argv, &spec)?;
        let (rows, columns) = size(spec.rows, spec.columns);
        let (terminal, slave) = terminal((rows, columns))
            .map_err(|error| format!("cannot open a terminal: {error}"))?;
        let child = spawn(place, name, &spec, &argv, &slave)
            .map_err(failed("start a program in a terminal"))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let listener = listen(&folder).map_err(failed("open its socket"))?;
        set_nonblocking(terminal.as_fd()).map_err(failed("use its terminal"))?;
        let shown: Vec<String> =
            argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let holder = Self {
            name: name.into(),
            log: LogWriter::new(&folder),
            folder,
            _lock: lock,
            exit: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            child,
            terminal,
            _slave: slave,
            listener,
            clients: Vec::new(),
            accepted: 0,
            screen: Screen::new(rows, columns),
            buffer: BytesMut::new(),
            typed: VecDeque::new(),
            argv: shown,
            started_at: wall(),
            busy_lease: Duration::from_secs(if spec.busy_lease == 0 {
                3600
            } else {
                spec.busy_lease
            }),
            samples: [(Duration::ZERO, now()); 2],
            last_life: now(),
            kill_at: None,
            status: None,
            groups: Vec::new(),
        };
        let meta = format!(
            "pid {}\nstarted {}\ncommand {}\n",
            holder.child.id(),
            holder.started_at,
            one_line(&holder.argv.join(" "))
        );
        fs::write(holder.folder.join("meta"), meta).map_err(failed("write in its folder"))?;
        Ok(holder)
    }

    fn hold(mut self) {
        // Since when the program is over, and since when nothing was printed after that.
        let mut over: Option<(Duration, Duration)> = None;
        loop {
            let time = now();
            if self.kill_at.is_some_and(|at| time >= at) {
                self.kill_at = None;
                self.signal_all(Signal::KILL);
            }
            if time >= self.samples[1].1 + SAMPLE {
                self.sample();
            }
            if over.is_none() && self.look_for_end() {
                over = Some((time, time));
            }
            let turn = self.turn(self.deadline(over.is_some()), over.is_some());
            let Some((since, silent)) = &mut over else { continue };
            match turn {
                Turn::Quiet => {}
                Turn::Printed => *silent = now(),
                Turn::HeldUp => (*since, *silent) = (now(), now()),
            }
            let drained = now() >= *silent + SILENCE || now() >= *since + DRAIN;
            // After a hang-up it stays until nothing of the session is left, or was killed.
            if drained && (self.kill_at.is_none() || self.is_deserted()) {
                break;
            }
        }
        self.write_end();
        self.bid_farewell();
    }

    /// Whether the program has ended; keeps how.
    fn look_for_end(&mut self) -> bool {
        match self.child.try_wait() {
            Ok(None) => false,
            Ok(status) => {
                self.status = status;
                true
            }
            Err(_) => true,
        }
    }

    fn deadline(&self, over: bool) -> Duration {
        if over {
            return now() + SILENCE;
        }
        let mut deadline = self.samples[1].1 + SAMPLE;
        if let Some(kill_at) = self.kill_at {
            deadline = deadline.min(kill_at);
        }
        let viewers = self.clients.iter().filter_map(|client| client.viewer.as_ref());
        if let Some(stalled) = viewers.filter_map(Viewer::deadline).min() {
            deadline = deadline.min(stalled);
        }
        // Without a pidfd (before Linux 5.3) the end is looked for.
        if self.exit.is_none() {
            deadline.min(now() + Duration::from_millis(200))
        } else {
            deadline
        }
    }

    /// Waits for something to do and does it.
    fn turn(&mut self, deadline: Duration, over: bool) -> Turn {
        let room = self.room();
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, room > 0);
        wanted.set(PollFlags::OUT, !self.typed.is_empty());
        let timeout = Timespec::try_from(deadline.saturating_sub(now())).ok();
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.terminal.as_fd(), wanted),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        fds.extend(self.clients.iter().map(|client| {
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, client.out.len() > 0);
            PollFd::new(&client.stream, wanted)
        }));
        let clients = self.clients.len();
        // Once the program is over its end stays readable, and is no news.
        if let (Some(exit), false) = (&self.exit, over) {
            fds.push(PollFd::new(exit, PollFlags::IN));
        }
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Turn::Quiet;
        }
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        for index in (0..clients).rev() {
            let client = &mut self.clients[index];
            let readable = ready[2 + index].intersects(!PollFlags::OUT);
            let lives =
                client.out.write(&client.stream).is_ok() && (!readable || self.serve(index));
            if !lives {
                self.clients.remove(index);
            }
        }
        if !ready[1].is_empty() {
            self.accept();
        }
        self.feed_terminal();
        let printed = room > 0 && ready[0].intersects(!PollFlags::OUT) && self.read_terminal(room);
        self.paint_again();
        match (room, printed) {
            (0, _) => Turn::HeldUp,
            (_, true) => Turn::Printed,
            (_, false) => Turn::Quiet,
        }
    }

    /// How much may be read of what the program prints: as much as whoever is attached can take.
    fn room(&mut self) -> usize {
        let time = now();
        let viewers = self.clients.iter_mut().filter_map(|client| client.viewer.as_mut());
        let least = viewers.filter_map(|viewer| viewer.room(time)).min();
        least.and_then(|room| usize::try_from(room).ok()).unwrap_or(MAX_DATA).min(MAX_DATA)
    }

    /// Logs and shows what the program printed, if it did.
    fn read_terminal(&mut self, room: usize) -> bool {
        self.buffer.resize(room, 0);
        let read = rustix::io::read(&self.terminal, &mut self.buffer[..]).unwrap_or(0);
        if read == 0 {
            return false;
        }
        let bytes = self.buffer.split_to(read).freeze();
        self.buffer.clear();
        let offset = self.log.offset();
        self.log.append(&bytes);
        self.screen.feed(&bytes);
        self.last_life = now();
        for client in &mut self.clients {
            if let Some(viewer) = &mut client.viewer {
                viewer.send(offset, &bytes, &mut client.out);
                // One that is gone is found out when it is polled.
                let _ = client.out.write(&client.stream);
            }
        }
        true
    }

    /// Gives the program what was typed, as far as it takes it.
    fn feed_terminal(&mut self) {
        while let Some((id, bytes)) = self.typed.front_mut() {
            let written = match rustix::io::write(&self.terminal, bytes) {
                Ok(written) => written,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return,
                // Nobody will ever take it.
                Err(_) => bytes.len(),
            };
            bytes.advance(written);
            let (id, done) = (*id, bytes.is_empty());
            if done {
                self.typed.pop_front();
            }
            let client = self.clients.iter_mut().find(|client| client.id == id);
            if let Some(Client { out, viewer: Some(viewer), .. }) = client {
                viewer.was_taken(written, out);
            }
        }
    }

    /// Shows the screen to those who were behind and are back.
    fn paint_again(&mut self) {
        for client in &mut self.clients {
            let Some(viewer) = client.viewer.as_mut().filter(|viewer| viewer.is_back(&client.out))
            else {
                continue;
            };
            viewer.show_again(self.log.offset(), &self.screen.paint(), &mut client.out);
        }
    }

    /// Attaches a client: the session takes the size of its terminal, and it gets the screen.
    fn attach(&mut self, index: usize, attach: &Attach) {
        let client = &mut self.clients[index];
        let (offset, paint) = (self.log.offset(), self.screen.paint());
        let viewer = Viewer::new(attach, offset, &paint, &mut client.out);
        let size = viewer.wanted_size();
        client.viewer = Some(viewer);
        self.take_size(size);
    }

    /// The session has the size of who attached, resized or typed last.
    fn take_size(&mut self, size: Option<(u16, u16)>) {
        let Some(size) = size.filter(|size| *size != self.screen.size()) else { return };
        if tcsetwinsize(&self.terminal, winsize(size)).is_ok() {
            self.screen.resize(size.0, size.1);
        }
    }

    /// What an attached client sends; `false` where it makes no sense.
    fn hear(&mut self, index: usize, body: Body) -> bool {
        let client = &mut self.clients[index];
        let Some(viewer) = &mut client.viewer else { return false };
        match body {
            Body::Data(data) if data.stream == STDIN => {
                if !viewer.takes(data.offset, data.bytes.len()) {
                    return false;
                }
                let size = viewer.wanted_size();
                self.typed.push_back((client.id, data.bytes));
                self.last_life = now();
                self.take_size(size);
                self.feed_terminal();
            }
            Body::Credit(Credit { stream: LOG, limit }) => viewer.grant(limit),
            Body::Resize(resize) => {
                viewer.resize(resize);
                let size = viewer.wanted_size();
                self.take_size(size);
            }
            _ => return false,
        }
        true
    }

    /// Tells those who are attached how it ended, after all that was printed.
    fn bid_farewell(&mut self) {
        let (code, signal) = self.status.map_or((None, None), |end| (end.code(), end.signal()));
        let until = now() + FAREWELL;
        for client in &mut self.clients {
            if client.viewer.is_some() {
                client.out.push(Body::Exited(Exited { code, signal }));
            }
            while client.out.write(&client.stream).is_ok() && client.out.len() > 0 {
                let timeout = Timespec::try_from(until.saturating_sub(now())).ok();
                let mut fds = [PollFd::new(&client.stream, PollFlags::OUT)];
                if now() >= until || poll(&mut fds, timeout.as_ref()).is_err() {
                    break;
                }
            }
        }
    }

    fn accept(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        if self.clients.len() >= CLIENTS || set_nonblocking(stream.as_fd()).is_err() {
            return;
        }
        self.accepted += 1;
        self.clients.push(Client {
            id: self.accepted,
            stream,
            decoder: Decoder::default(),
            out: Outgoing::default(),
            viewer: None,
        });
    }

    /// Reads and answers a client; `false` where it is done or broken.
    fn serve(&mut self, index: usize) -> bool {
        let Client { stream, decoder, .. } = &mut self.clients[index];
        match decoder.read_with(|room| stream.read(room)) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
        loop {
            let message = self.clients[index].decoder.next_message();
            let Ok(message) = message else { return false };
            let Some(body) = message else { break };
            let understood = match body {
                Body::Attach(attach) => {
                    self.attach(index, &attach);
                    true
                }
                Body::Data(_) | Body::Credit(_) | Body::Resize(_) => self.hear(index, body),
                other => {
                    let answer = self.answer(other);
                    self.clients[index].out.push(answer);
                    true
                }
            };
            // What waits for who is attached is bounded by its credit; another who asks and never
            // reads is let go.
            if !understood || self.clients[index].out.len() > MOST_WAITING {
                return false;
            }
        }
        let client = &mut self.clients[index];
        client.out.write(&client.stream).is_ok()
    }

    fn answer(&mut self, body: Body) -> Body {
        match body {
            Body::Describe(_) => {
                Body::Sessions(Sessions { sessions: vec![self.describe()], more: false })
            }
            Body::SignalSession(SignalSession { number: 0, .. }) => {
                self.groups = self.live_groups();
                self.signal_all(Signal::HUP);
                self.signal_all(Signal::CONT);
                self.kill_at = Some(now() + GRACE);
                Body::Done(Done {})
            }
            Body::SignalSession(signal) => match Signal::from_named_raw(signal.number) {
                Some(signal) => {
                    self.signal_all(signal);
                    Body::Done(Done {})
                }
                None => failed("there is no such signal"),
            },
            _ => failed("a holder does not know this"),
        }
    }

    /// Signals every process group of the session, and those it had when it was hung up.
    fn signal_all(&self, signal: Signal) {
        let mut groups = self.live_groups();
        groups.extend(&self.groups);
        groups.sort_unstable();
        groups.dedup();
        for group in groups.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process_group(group, signal);
        }
    }

    fn live_groups(&self) -> Vec<i32> {
        self.tree(&processes::all()).iter().map(|process| process.group).collect()
    }

    /// Whether nothing of the session runs any more, what left its terminal included.
    fn is_deserted(&self) -> bool {
        let all = processes::all();
        let ours = |process: &Process| {
            let zombie = process.pid == self.pid();
            !zombie && (process.session == self.pid() || self.groups.contains(&process.group))
        };
        !all.iter().any(ours)
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    fn tree<'a>(&self, all: &'a [Process]) -> Vec<&'a Process> {
        processes::tree(all, self.pid())
    }

    /// Takes a sample of CPU, and notes when there was some.
    fn sample(&mut self) {
        let cpu = self.cpu(&processes::all());
        let before = self.samples[1].0;
        if cpu.saturating_sub(before) >= Duration::from_millis(100) {
            self.last_life = now();
        }
        self.samples = [self.samples[1], (cpu, now())];
    }

    fn cpu(&self, all: &[Process]) -> Duration {
        self.tree(all).iter().map(|process| process.cpu).sum()
    }

    fn describe(&self) -> Session {
        // After a hang-up it has ended when nothing of it is left.
        let ended = self.status.filter(|_| self.kill_at.is_none());
        let (state, evidence) = match ended.map(end_words) {
            Some(words) => (State::Ended, words),
            None => state::decide(&self.facts()),
        };
        Session {
            name: self.name.clone(),
            state: state.word().into(),
            evidence,
            pid: self.child.id(),
            started_at: self.started_at,
            command: one_line(&self.argv.join(" ")),
            code: ended.and_then(|status| status.code()),
            signal: ended.and_then(|status| status.signal()),
            ended_at: ended.map(|_| wall()),
        }
    }

    fn facts(&self) -> Facts {
        let all = processes::all();
        let (before, at) = self.samples[0];
        let program = self.argv.first().filter(|_| !state::is_waiting_shell(&self.argv));
        let base = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
        Facts {
            report: self.report(),
            cpu: (self.cpu(&all).saturating_sub(before), now().saturating_sub(at)),
            program: program.map(base),
            foreground: self.foreground(&all),
            silent: now().saturating_sub(self.last_life),
            busy_lease: self.busy_lease,
        }
    }

    /// What runs in the foreground, unless that is the program itself.
    fn foreground(&self, all: &[Process]) -> Option<String> {
        let group = tcgetpgrp(&self.terminal).ok()?.as_raw_nonzero().get();
        let named = all.iter().find(|process| process.pid == group);
        let named = named.or_else(|| all.iter().find(|process| process.group == group));
        named.filter(|_| group != self.pid()).map(|process| process.name.clone())
    }

    fn report(&self) -> Option<Report> {
        let mark = marks::read_mark(&self.folder)?;
        let process = processes::read(mark.pid);
        Some(Report {
            working: mark.working,
            age: now().checked_sub(mark.at)?,
            alive: process.is_some_and(|process| process.started == mark.started),
        })
    }

    fn write_end(&mut self) {
        let words = match self.status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => format!("code {code} {}\n", wall()),
            Some((None, Some(signal))) => format!("signal {signal} {}\n", wall()),
            _ => return,
        };
        let _ = fs::write(self.folder.join("ended"), words);
        let _ = fs::remove_file(self.folder.join("sock"));
    }
}

fn end_words(status: ExitStatus) -> String {
    sessions::end_words(status.code(), status.signal())
}

fn failed(reason: &str) -> Body {
    Body::Failed(Failed { reason: reason.into(), not_found: false })
}

fn read_spec() -> Result<NewSession, String> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(1 << 20).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    let mut decoder = Decoder::default();
    decoder.push(&bytes);
    match decoder.next_message() {
        Ok(Some(Body::NewSession(spec))) => Ok(spec),
        _ => Err("the holder was not told what to hold".into()),
    }
}

/// The words to run: the command, or the user's login shell.
fn command(spec: &NewSession) -> Vec<OsString> {
    if spec.argv.is_empty() {
        return vec![Place::shell().into(), "-l".into()];
    }
    spec.argv.iter().map(|word| OsString::from_vec(word.clone())).collect()
}

/// Says before anything is made that a program is not there.
fn runnable(argv: &[OsString], spec: &NewSession) -> Result<(), String> {
    let Some(program) = argv.first().filter(|word| !word.is_empty()) else {
        return Err("no program was named".into());
    };
    let path = Path::new(program);
    let variable = spec.env.iter().find(|variable| variable.name == "PATH");
    let search = variable.map(|variable| variable.value.clone().into());
    let search = search.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let there = match path.components().count() {
        1 => std::env::split_paths(&search).any(|folder| folder.join(path).is_file()),
        // Relative to a folder that only the program will be in: it tells by itself.
        _ => path.is_relative() || path.is_file(),
    };
    match there {
        true => Ok(()),
        false => Err(format!("cannot start `{}`: there is no such program", path.display())),
    }
}

fn terminal(size: (u16, u16)) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    tcsetwinsize(&master, winsize(size))?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    Ok((master, slave))
}

fn spawn(
    place: &Place,
    name: &str,
    spec: &NewSession,
    argv: &[OsString],
    slave: &OwnedFd,
) -> std::io::Result<Child> {
    let stream = || slave.try_clone().map(Stdio::from);
    let mut command = Command::new("/proc/self/exe");
    command.arg("terminal").args(argv);
    for (variable, value) in [("TERM", "xterm-256color"), ("COLORTERM", "truecolor")] {
        command.env(variable, value);
    }
    place.prepare(&mut command, &spec.directory);
    command
        .env("SIMSTIM_SESSION", name)
        .envs(spec.env.iter().map(|variable| (&variable.name, &variable.value)))
        .stdin(stream()?)
        .stdout(stream()?)
        .stderr(stream()?)
        .spawn()
}

fn listen(folder: &Path) -> std::io::Result<UnixListener> {
    let opened = File::open(folder)?;
    let _ = fs::remove_file(folder.join("sock"));
    // By way of the folder's descriptor: a path may be longer than an address can hold. The umask
    // makes the socket this user's alone.
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/sock", opened.as_raw_fd()))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect()
}
