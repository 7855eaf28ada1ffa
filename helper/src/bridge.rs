//! The bridge: framed messages over stdin and stdout, one poll loop, no threads.
//!
//! It always reads its stdin, so the client can never be stuck writing; what it buffers for the
//! client is bounded by the credit the client granted and by [`BACKLOG`]. It leaves when its stdin
//! ends, when it was told goodbye, or 30 s after the last ping.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use schema::frame::{Decoder, MAX_DATA};
use schema::message::{
    Attach, Attached, Body, Data, Eof, Failed, Goodbye, GoodbyeAck, Hello, LOG, LogStart, Pong,
    ReadLog, STDIN, Session, Sessions, Started, VIEW,
};

use crate::awake;
use crate::link::Link;
use crate::log::{self, LogReader};
use crate::outgoing::Outgoing;
use crate::place::Place;
use crate::program::{Program, Source};
use crate::sessions;

/// How long a client may be silent. It pings every 5 s, so six pings were lost.
const SILENCE: Duration = Duration::from_secs(30);

/// Program output is read only while less than this waits for the client: half a window.
const BACKLOG: usize = 2 * 1024 * 1024;

/// What a bridge was opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Asking only: holds nothing awake.
    Look,
    /// Running one program for the life of the bridge.
    Exec,
    /// Being attached to a session: only what is typed holds the machine awake.
    Attach,
}

impl Purpose {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::Look, Self::Exec, Self::Attach].into_iter().find(|purpose| purpose.word() == word)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Exec => "exec",
            Self::Attach => "attach",
        }
    }
}

/// Why the loop ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Told goodbye, and answered.
    Goodbye,
    /// stdin ended, stdout broke, or the pings stopped.
    Abandoned,
}

/// One run of the protocol.
pub(crate) struct Bridge {
    purpose: Purpose,
    place: Place,
    decoder: Decoder,
    out: Outgoing,
    last_ping: Instant,
    program: Option<Program>,
    tail: Option<Tail>,
    link: Option<Link>,
    leaving: bool,
    /// Held to the goodbye where this bridge keeps the machine awake.
    presence: Option<File>,
}

/// A log that is being sent.
struct Tail {
    reader: LogReader,
    folder: PathBuf,
    follow: bool,
    limit: u64,
    /// What is said when it was sent whole.
    end: Body,
}

/// How often a followed log is looked at: as fast as a person notices.
const FOLLOW: Duration = Duration::from_millis(100);

/// What one poll was asked to watch, in the order of its file descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    Input,
    Output,
    Program(Source),
    Link,
}

impl Bridge {
    pub(crate) fn new(purpose: Purpose, place: Place, marker: &str, hello: Hello) -> Self {
        let presence = if purpose == Purpose::Exec { awake::be_present(&place) } else { None };
        let mut bridge = Self {
            purpose,
            place,
            decoder: Decoder::default(),
            out: Outgoing::default(),
            last_ping: Instant::now(),
            program: None,
            tail: None,
            link: None,
            leaving: false,
            presence,
        };
        bridge.out.preface(marker.as_bytes());
        bridge.send(Body::Hello(hello));
        bridge
    }

    /// Runs until the client leaves. A program that still runs then is hung up (SIGHUP to its
    /// process group), as a terminal would.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        set_nonblocking(stdin.as_fd())?;
        set_nonblocking(stdout.as_fd())?;
        let end = loop {
            if let Some(end) = self.turn(stdin.as_fd(), stdout.as_fd())? {
                break end;
            }
        };
        if let (End::Abandoned, Some(program)) = (end, &self.program) {
            program.hang_up();
        }
        self.depart();
        Ok(())
    }

    /// Keeps the machine awake no longer; its idle count begins here.
    fn depart(&mut self) {
        if self.presence.take().is_some() {
            awake::restart_count(&self.place);
        }
    }

    fn turn(&mut self, stdin: BorrowedFd<'_>, stdout: BorrowedFd<'_>) -> io::Result<Option<End>> {
        if self.leaving && self.out.len() == 0 {
            return Ok(Some(End::Goodbye));
        }
        let now = Instant::now();
        if now.duration_since(self.last_ping) >= SILENCE {
            return Ok(Some(End::Abandoned));
        }
        for watched in self.wait(stdin, stdout, now)? {
            match watched {
                Watched::Input => {
                    if !self.read(stdin)? {
                        return Ok(Some(End::Abandoned));
                    }
                }
                // Written below, with what the others add.
                Watched::Output => {}
                Watched::Program(source) => self.serve(source),
                Watched::Link => self.hear_holder(),
            }
        }
        self.finish_program();
        self.send_log();
        let written = self.out.write(stdout);
        Ok(written.err().map(|_| End::Abandoned))
    }

    /// Waits until something can be done, at most until the next deadline.
    fn wait(
        &self,
        stdin: BorrowedFd<'_>,
        stdout: BorrowedFd<'_>,
        now: Instant,
    ) -> io::Result<Vec<Watched>> {
        let mut watched = vec![Watched::Input];
        let mut fds = vec![PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        if self.out.len() > 0 {
            watched.push(Watched::Output);
            fds.push(PollFd::from_borrowed_fd(stdout, PollFlags::OUT));
        }
        let mut deadline = self.last_ping + SILENCE;
        if let Some(program) = &self.program {
            for (source, fd, flags) in program.interests(self.has_room()) {
                watched.push(Watched::Program(source));
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
            deadline = deadline.min(program.deadline(now).unwrap_or(deadline));
        }
        if let Some(link) = &self.link {
            watched.push(Watched::Link);
            fds.push(PollFd::new(&link.stream, link.interest(self.has_room())));
        }
        if self.tail.as_ref().is_some_and(|tail| tail.reader.offset() < tail.limit) {
            deadline = deadline.min(now + FOLLOW);
        }
        let timeout = Timespec::try_from(deadline.saturating_duration_since(now)).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().zip(watched).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, watched)| watched).collect())
    }

    /// Reads and answers what the client sent; `false` when it is gone.
    fn read(&mut self, stdin: BorrowedFd<'_>) -> io::Result<bool> {
        match self.decoder.read_with(|room| rustix::io::read(stdin, room)) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        while let Some(body) = self.decoder.next_message().map_err(broken)? {
            self.answer(body)?;
        }
        Ok(true)
    }

    fn answer(&mut self, body: Body) -> io::Result<()> {
        match body {
            Body::Welcome(welcome) if schema::PROTOCOL.contains(&welcome.protocol) => {}
            Body::Ping(_) => {
                self.last_ping = Instant::now();
                self.send(Body::Pong(Pong {}));
            }
            Body::Goodbye(Goodbye {}) => {
                self.leaving = true;
                if let Some(link) = &mut self.link {
                    link.say(Body::Goodbye(Goodbye {}));
                }
                // Before the answer: whoever got it may ask at once what keeps the machine.
                self.depart();
                self.send(Body::GoodbyeAck(GoodbyeAck {}));
            }
            Body::Attach(attach) if self.purpose == Purpose::Attach && self.link.is_none() => {
                if let Err(reason) = self.attach(attach) {
                    self.fail(&reason);
                }
            }
            Body::Credit(credit) if credit.stream == LOG && self.tail.is_some() => {
                if let Some(tail) = &mut self.tail {
                    tail.limit = tail.limit.max(credit.limit);
                }
            }
            Body::Data(_) | Body::Credit(_) | Body::Resize(_) | Body::Repaint(_)
                if self.purpose == Purpose::Attach =>
            {
                // Late where the session has ended.
                if let Some(link) = &mut self.link {
                    link.say(body);
                }
            }
            Body::Exec(exec) if self.purpose == Purpose::Exec && self.program.is_none() => {
                match Program::start(&exec, &self.place) {
                    Ok(program) => {
                        self.send(Body::Started(Started { pid: program.pid() }));
                        self.send(program.input_credit());
                        self.program = Some(program);
                    }
                    Err(error) => self.send(Body::Failed(start_failure(&exec.argv, &error))),
                }
            }
            Body::Data(data) if data.stream == STDIN => {
                let mut told = None;
                self.with_program(|program| {
                    told = program.take_input(data.offset, data.bytes)?;
                    Ok(())
                })?;
                if let Some(body) = told {
                    self.send(body);
                }
            }
            Body::Eof(Eof { stream: STDIN }) => {
                self.with_program(|program| {
                    program.end_input();
                    Ok(())
                })?;
            }
            Body::Eof(Eof { stream }) => {
                self.with_program(|program| program.end_output(stream))?;
            }
            // Late where the log was sent whole.
            Body::Credit(credit) if credit.stream == LOG => {}
            Body::Credit(credit) => {
                self.with_program(|program| program.grant(credit.stream, credit.limit))?;
            }
            Body::Resize(resize) => {
                self.with_program(|program| {
                    program.resize(resize);
                    Ok(())
                })?;
            }
            Body::Signal(signal) => {
                self.with_program(|program| {
                    program.signal(signal.number);
                    Ok(())
                })?;
            }
            other => return self.answer_on_sessions(other),
        }
        Ok(())
    }

    fn answer_on_sessions(&mut self, body: Body) -> io::Result<()> {
        match body {
            Body::ListSessions(_) => {
                let mut sessions = sessions::list(&self.place);
                sessions.extend(awake::claims(&self.place, self.purpose == Purpose::Look));
                self.send_sessions(sessions);
            }
            Body::CheckIdle(check) => {
                let verdict = awake::check(&self.place, &check);
                self.send(Body::Verdict(verdict));
            }
            Body::Why(_) => {
                let reasons = awake::reasons(&self.place);
                self.send(Body::Reasons(reasons));
            }
            Body::ReadLog(request) => self.begin_log(&request),
            Body::NewSession(spec) if self.purpose != Purpose::Look => {
                match sessions::start(&self.place, spec) {
                    Ok(started) => self.send(Body::SessionStarted(started)),
                    Err(reason) => self.fail(&reason),
                }
            }
            Body::SignalSession(signal) if self.purpose == Purpose::Exec => {
                let found = sessions::find(&self.place, &signal.name);
                let held = found.and_then(|folder| match sessions::is_held(&folder) {
                    true => Ok(folder),
                    false => Err(format!("session `{}` has ended", signal.name)),
                });
                let answer =
                    held.and_then(|folder| sessions::ask(&folder, Body::SignalSession(signal)));
                match answer {
                    Ok(body) => self.send(body),
                    Err(reason) => self.fail(&reason),
                }
            }
            _ => return Err(broken("the client sent a message that has no place here")),
        }
        Ok(())
    }

    /// Messages for a program that ended, or never started, are late rather than wrong.
    fn with_program(
        &mut self,
        act: impl FnOnce(&mut Program) -> Result<(), &'static str>,
    ) -> io::Result<()> {
        self.program.as_mut().map_or(Ok(()), act).map_err(broken)
    }

    /// Opens the way to a session's holder, which answers with the screen or with what was missed.
    fn attach(&mut self, attach: Attach) -> Result<(), String> {
        let folder = sessions::find(&self.place, &attach.name)?;
        if !sessions::is_held(&folder) {
            return self.send_rest(folder, &attach);
        }
        let link = Link::open(folder, attach);
        self.link = Some(link.map_err(|error| format!("its holder does not answer: {error}"))?);
        Ok(())
    }

    /// To one whose connection broke and whose session ended meanwhile: what it missed, and the end.
    fn send_rest(&mut self, folder: PathBuf, attach: &Attach) -> Result<(), String> {
        let received = attach.received.filter(|offset| log::keeps(&folder, *offset));
        let (Some(offset), Some(end)) = (received, sessions::end(&folder)) else {
            return Err(format!("session `{}` has ended", attach.name));
        };
        self.send(Body::Attached(Attached { known: false, typed: 0, resumed: true }));
        let reader = LogReader::at(&folder, offset);
        let limit = offset + VIEW;
        self.tail = Some(Tail { reader, folder, follow: false, limit, end: Body::Exited(end) });
        Ok(())
    }

    /// Passes on what the holder says. Its end is the end of the attachment.
    fn hear_holder(&mut self) {
        let Some(link) = &mut self.link else { return };
        if let Err(why) = link.hear(&mut self.out) {
            self.lose_holder(&why);
        }
    }

    /// What a session said at its end may not have come: the client asks again, and gets it from the
    /// log.
    fn lose_holder(&mut self, why: &str) {
        let Some(link) = self.link.take() else { return };
        match sessions::end(&link.folder) {
            Some(_) => self.leaving = true,
            None => self.fail(why),
        }
    }

    fn fail(&mut self, reason: &str) {
        let reason = reason.chars().take(1000).collect();
        self.send(Body::Failed(Failed { reason, not_found: false }));
    }

    /// In as many messages as it takes.
    fn send_sessions(&mut self, mut sessions: Vec<Session>) {
        // A session is below 1.2 kB: names, commands and evidence are bounded where they are made.
        const MOST: usize = MAX_DATA / 1200;
        loop {
            let rest = sessions.split_off(sessions.len().min(MOST));
            let more = !rest.is_empty();
            self.send(Body::Sessions(Sessions { sessions, more }));
            if !more {
                return;
            }
            sessions = rest;
        }
    }

    fn begin_log(&mut self, request: &ReadLog) {
        match sessions::find(&self.place, &request.name) {
            Ok(folder) => {
                let reader = LogReader::new(&folder);
                let offset = reader.offset();
                self.send(Body::LogStart(LogStart { offset }));
                let end = Body::Eof(Eof { stream: LOG });
                let follow = request.follow;
                self.tail = Some(Tail { reader, folder, follow, limit: offset, end });
            }
            Err(reason) => self.fail(&reason),
        }
    }

    /// Sends what the log has, as far as the client takes it.
    fn send_log(&mut self) {
        while self.has_room() {
            let Some(tail) = &mut self.tail else { return };
            // Asked before reading: what was printed before the end is then read.
            let over = !tail.follow || !sessions::is_held(&tail.folder);
            let room = tail.limit.saturating_sub(tail.reader.offset());
            if room == 0 {
                return;
            }
            let most = usize::try_from(room).unwrap_or(MAX_DATA).min(MAX_DATA);
            let bytes = tail.reader.read(most);
            if !bytes.is_empty() {
                let offset = tail.reader.offset() - bytes.len() as u64;
                self.send(Body::Data(Data { stream: LOG, offset, bytes: bytes.into() }));
            } else if over {
                let end = self.tail.take().map(|tail| tail.end);
                return end.map_or((), |end| self.send(end));
            } else {
                return;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.out.len() < BACKLOG
    }

    fn serve(&mut self, source: Source) {
        let Some(program) = &mut self.program else { return };
        if let Some(body) = program.serve(source) {
            self.send(body);
        }
    }

    fn finish_program(&mut self) {
        let room = self.has_room();
        if let Some(exited) = self.program.as_mut().and_then(|program| program.finish(room)) {
            self.program = None;
            self.send(exited);
        }
    }

    fn send(&mut self, body: Body) {
        self.out.push(body);
    }
}

fn start_failure(argv: &[Vec<u8>], error: &io::Error) -> Failed {
    let program = argv.first().map(|word| String::from_utf8_lossy(word)).unwrap_or_default();
    let program: String = program.chars().take(200).collect();
    Failed {
        reason: format!("cannot start `{program}`: {error}"),
        not_found: error.kind() == io::ErrorKind::NotFound,
    }
}

fn broken(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = fcntl_getfl(fd)?;
    fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    Ok(())
}
