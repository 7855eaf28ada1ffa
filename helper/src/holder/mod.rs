//! The holder: keeps one session's terminal, its log and its facts, for as long as its program runs.
//!
//! It has no controlling terminal, no open stream to whoever started it, and a socket in the
//! session's folder for this user alone. It sleeps unless the program prints or somebody asks.

mod clients;
mod facts;
mod start;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, setsid};
use rustix::time::{ClockId, clock_gettime};
use schema::bytes::{Buf as _, Bytes, BytesMut};
use schema::frame::Encoder;
use schema::message::{Body, Done, Failed, Hello, Sessions, SignalSession};

use self::clients::Client;
use self::start::{command, listen, read_spec, runnable, spawn};
use crate::bridge::set_nonblocking;
use crate::log::LogWriter;
use crate::place::{Place, boot_id};
use crate::processes::{self, Process};
use crate::screen::Screen;
use crate::sessions;
use crate::terminal::{self, size};
use crate::viewer::Viewer;

/// How often CPU is sampled, so that "lately" means the last one or two of these.
const SAMPLE: Duration = Duration::from_secs(10);
/// From a hang-up to a kill.
const GRACE: Duration = Duration::from_secs(5);
/// After the program's end: output is complete when none came for so long.
const SILENCE: Duration = Duration::from_millis(50);
/// And at the latest after so long, whatever its children still print.
const DRAIN: Duration = Duration::from_secs(1);
/// Since boot, sleep included.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

pub(crate) fn wall() -> u64 {
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
    /// What every client is greeted with.
    hello: Hello,
    clients: Vec<Client>,
    /// Attachments whose connection broke, the last one last.
    departed: Vec<Viewer>,
    /// Attachments there ever were.
    attachments: u64,
    log: LogWriter,
    screen: Screen,
    /// Read into again once what was read is sent.
    buffer: BytesMut,
    /// What was typed and the program has not taken, and in which attachment.
    typed: VecDeque<(u64, Bytes)>,
    argv: Vec<String>,
    started_at: u64,
    busy_lease: Duration,
    /// CPU time and when it was taken: the last but one sample, and the last.
    samples: [(Duration, Duration); 2],
    last_life: Duration,
    /// When a person last gave a sign of life.
    last_sign: Option<Duration>,
    kill_at: Option<Duration>,
    /// How the program ended.
    status: Option<ExitStatus>,
    /// The process groups there were when the session was hung up.
    groups: Vec<i32>,
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
        let hello = place.hello("holder")?;
        let argv = command(&spec);
        runnable(&argv, &spec)?;
        let (rows, columns) = size(spec.rows, spec.columns);
        let (terminal, slave) = terminal::open((rows, columns))
            .map_err(|error| format!("cannot open a terminal: {error}"))?;
        let child = spawn(place, name, &spec, &argv, &slave)
            .map_err(failed("start a program in a terminal"))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let listener = listen(&folder).map_err(failed("open its socket"))?;
        set_nonblocking(terminal.as_fd()).map_err(failed("use its terminal"))?;
        let shown: Vec<String> =
            argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut holder = Self {
            name: name.into(),
            log: if spec.restored { LogWriter::after(&folder) } else { LogWriter::new(&folder) },
            folder,
            _lock: lock,
            exit: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            child,
            terminal,
            _slave: slave,
            listener,
            hello,
            clients: Vec::new(),
            departed: Vec::new(),
            attachments: 0,
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
            last_sign: None,
            kill_at: None,
            status: None,
            groups: Vec::new(),
        };
        let command = one_line(&holder.argv.join(" "));
        if spec.restored {
            holder.tell(&format!("\r\n[its machine was restarted; this is: {command}]\r\n"));
        }
        let (pid, started, run) = (holder.child.id(), holder.started_at, boot_id());
        let meta = format!("pid {pid}\nstarted {started}\nrun {run}\ncommand {command}\n");
        let folder = &holder.folder;
        let _ = fs::remove_file(folder.join("mark"));
        if !spec.resume.is_empty() && !spec.restored {
            let mut bytes = Vec::new();
            let encoded = Encoder::default().encode(Body::NewSession(spec), &mut bytes);
            encoded.map_err(|error| error.to_string())?;
            fs::write(folder.join("spec"), bytes).map_err(failed("write in its folder"))?;
        }
        fs::write(folder.join("meta"), meta).map_err(failed("write in its folder"))?;
        Ok(holder)
    }

    /// Puts words of ours among what the program printed.
    fn tell(&mut self, words: &str) {
        self.log.append(words.as_bytes());
        self.screen.feed(words.as_bytes());
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
        if let Some(stalled) = self.patience() {
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
                self.dismiss(index);
            }
        }
        if !ready[1].is_empty() {
            self.accept();
        }
        self.feed_terminal();
        let printed = room > 0 && ready[0].intersects(!PollFlags::OUT) && self.read_terminal(room);
        self.catch_up();
        match (room, printed) {
            (0, _) => Turn::HeldUp,
            (_, true) => Turn::Printed,
            (_, false) => Turn::Quiet,
        }
    }

    /// Logs and shows what the program printed, if it did.
    fn read_terminal(&mut self, room: usize) -> bool {
        self.buffer.resize(room, 0);
        // A terminal gives at most a page at a time: what there is by now goes on as one.
        let mut read = 0;
        while read < room {
            match rustix::io::read(&self.terminal, &mut self.buffer[read..]) {
                Ok(more @ 1..) => read += more,
                _ => break,
            }
        }
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
        while let Some((key, bytes)) = self.typed.front_mut() {
            let written = match rustix::io::write(&self.terminal, bytes) {
                Ok(written) => written,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return,
                // Nobody will ever take it.
                Err(_) => bytes.len(),
            };
            bytes.advance(written);
            let (key, done) = (*key, bytes.is_empty());
            if done {
                self.typed.pop_front();
            }
            self.was_taken(key, written);
        }
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
            Body::Notice(notice) => {
                for client in self.clients.iter_mut().filter(|client| client.viewer.is_some()) {
                    client.out.push(Body::Notice(notice.clone()));
                }
                Body::Done(Done {})
            }
            _ => failed("a holder does not know this"),
        }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    fn tree<'a>(&self, all: &'a [Process]) -> Vec<&'a Process> {
        processes::tree(all, self.pid())
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

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect()
}
