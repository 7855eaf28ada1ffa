//! One program run for a bridge: its pipes or its terminal, its credit, its end.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::termios::tcsetwinsize;
use schema::bytes::{Buf as _, Bytes, BytesMut};
use schema::frame::MAX_DATA;
use schema::message::{
    Body, Credit, Data, Eof, Exec, Exited, Resize, STDERR, STDIN, STDOUT, WINDOW,
};

use crate::bridge::set_nonblocking;
use crate::place::Place;
use crate::terminal;

/// A child that outlives the program may hold its output open. So long is waited for more.
const DRAIN: Duration = Duration::from_secs(2);

/// How often an exit is looked for where the kernel has no pidfd (before Linux 5.3).
const LOOK: Duration = Duration::from_millis(20);

/// What a person types at the end of an input, Ctrl-D.
const END_OF_TEXT: u8 = 4;

/// Which of the program's file descriptors is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Input,
    Output(usize),
    Exit,
}

/// A running program.
pub(crate) struct Program {
    child: Child,
    group: Option<Pid>,
    exit: Option<OwnedFd>,
    input: Input,
    outputs: [Output; 2],
    /// The program's side of its terminal, where it has one, for as long as it runs: it may close and
    /// open its terminal as it likes.
    slave: Option<OwnedFd>,
    status: Option<ExitStatus>,
    /// Since when the program is gone and its output silent.
    silent_since: Option<Instant>,
}

/// The program's standard input, and what it has not read yet (at most one window).
struct Input {
    pipe: Option<OwnedFd>,
    pending: VecDeque<Bytes>,
    received: u64,
    consumed: u64,
    limit: u64,
    ended: bool,
}

/// One of the program's output streams.
struct Output {
    stream: u32,
    pipe: Option<OwnedFd>,
    sent: u64,
    limit: u64,
    /// Read into again once what was read is sent.
    buffer: BytesMut,
}

impl Program {
    /// Starts the program in its own process group, in the home folder unless told otherwise.
    pub(crate) fn start(exec: &Exec, place: &Place) -> io::Result<Self> {
        let argv: Vec<OsString> =
            exec.argv.iter().map(|word| OsString::from_vec(word.clone())).collect();
        let Some((program, arguments)) = argv.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program was named"));
        };
        if let Some(Resize { rows, columns }) = exec.terminal {
            return Self::start_in_terminal(exec, &argv, terminal::size(rows, columns), place);
        }
        let mut command = Command::new(program);
        place.prepare(&mut command, &exec.directory);
        let mut child = command
            .args(arguments)
            .envs(exec.env.iter().map(|variable| (&variable.name, &variable.value)))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().map(OwnedFd::from);
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        Self::new(child, None, stdin, [stdout, stderr])
    }

    fn start_in_terminal(
        exec: &Exec,
        argv: &[OsString],
        size: (u16, u16),
        place: &Place,
    ) -> io::Result<Self> {
        let mut command = terminal::command(argv);
        place.prepare(&mut command, &exec.directory);
        for variable in &exec.env {
            let value = match variable.name.as_str() {
                "TERM" => terminal::known(&variable.value, place),
                _ => &variable.value,
            };
            command.env(&variable.name, value);
        }
        let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, path)| path);
        if !terminal::is_there(&argv[0], path.unwrap_or_default()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (master, slave) = terminal::open(size)?;
        let stream = || slave.try_clone().map(Stdio::from);
        let child = command.stdin(stream()?).stdout(stream()?).stderr(stream()?).spawn()?;
        let input = master.try_clone()?;
        Self::new(child, Some(slave), Some(input), [Some(master), None])
    }

    fn new(
        child: Child,
        slave: Option<OwnedFd>,
        stdin: Option<OwnedFd>,
        outputs: [Option<OwnedFd>; 2],
    ) -> io::Result<Self> {
        let [stdout, stderr] = outputs;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        for pipe in [&stdin, &stdout, &stderr].into_iter().flatten() {
            set_nonblocking(pipe.as_fd())?;
        }
        Ok(Self {
            exit: group.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            group,
            child,
            slave,
            input: Input {
                pipe: stdin,
                pending: VecDeque::new(),
                received: 0,
                consumed: 0,
                limit: WINDOW,
                ended: false,
            },
            outputs: [(STDOUT, stdout), (STDERR, stderr)].map(|(stream, pipe)| Output {
                stream,
                pipe,
                sent: 0,
                limit: 0,
                buffer: BytesMut::new(),
            }),
            status: None,
            silent_since: None,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The grant that lets the client send input up to the current limit.
    pub(crate) fn input_credit(&self) -> Body {
        Body::Credit(Credit { stream: STDIN, limit: self.input.limit })
    }

    /// What to poll for. `room` says whether more output may be buffered for the client.
    pub(crate) fn interests(&self, room: bool) -> Vec<(Source, BorrowedFd<'_>, PollFlags)> {
        let mut interests = Vec::new();
        if let (Some(pipe), false) = (&self.input.pipe, self.input.pending.is_empty()) {
            interests.push((Source::Input, pipe.as_fd(), PollFlags::OUT));
        }
        for (index, output) in self.outputs.iter().enumerate() {
            if let (Some(pipe), true) = (&output.pipe, room && output.has_credit()) {
                interests.push((Source::Output(index), pipe.as_fd(), PollFlags::IN));
            }
        }
        if let (Some(exit), None) = (&self.exit, self.status) {
            interests.push((Source::Exit, exit.as_fd(), PollFlags::IN));
        }
        interests
    }

    /// When to look again though nothing is ready.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        match (self.status, self.silent_since) {
            (None, _) if self.exit.is_none() => Some(now + LOOK),
            (Some(_), Some(since)) => Some(since + DRAIN),
            (Some(_), None) | (None, _) => None,
        }
    }

    /// Moves the bytes that `source` is ready for; returns what to tell the client.
    pub(crate) fn serve(&mut self, source: Source) -> Option<Body> {
        match source {
            Source::Input => self.input.feed(),
            Source::Output(index) => {
                self.silent_since = None;
                self.outputs[index].read()
            }
            Source::Exit => None,
        }
    }

    /// The last message, once the program is gone and its output is sent. `room` is as for
    /// [`Self::interests`].
    pub(crate) fn finish(&mut self, room: bool) -> Option<Body> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        let status = self.status?;
        self.slave = None;
        let now = Instant::now();
        let since = *self.silent_since.get_or_insert(now);
        // Output that waits for credit or room is not silence: the client is slow.
        let waits = |output: &Output| output.pipe.is_some() && !(room && output.has_credit());
        if self.outputs.iter().any(waits) {
            self.silent_since = None;
            return None;
        }
        let open = self.outputs.iter().any(|output| output.pipe.is_some());
        if open && now.duration_since(since) < DRAIN {
            return None;
        }
        Some(Body::Exited(Exited { code: status.code(), signal: status.signal() }))
    }

    /// Takes input bytes of the client; returns what to tell it.
    ///
    /// # Errors
    /// Bytes beyond the credit or out of order: the client is broken.
    pub(crate) fn take_input(
        &mut self,
        offset: u64,
        bytes: Bytes,
    ) -> Result<Option<Body>, &'static str> {
        let input = &mut self.input;
        if offset != input.received || input.ended {
            return Err("input came out of order");
        }
        input.received += bytes.len() as u64;
        if input.received > input.limit {
            return Err("input came beyond its credit");
        }
        if input.pipe.is_none() {
            return Ok(None);
        }
        input.pending.push_back(bytes);
        // Where others wait, the program is slow: it is fed when it can take more.
        Ok(if input.pending.len() == 1 { input.feed() } else { None })
    }

    pub(crate) fn end_input(&mut self) {
        self.input.ended = true;
        if self.slave.is_some() {
            // A terminal has no end: what a person types instead.
            self.input.pending.push_back(Bytes::from_static(&[END_OF_TEXT]));
            return;
        }
        self.input.close_if_done();
    }

    /// Raises the limit of an output stream.
    pub(crate) fn grant(&mut self, stream: u32, limit: u64) -> Result<(), &'static str> {
        let output = self.output(stream)?;
        output.limit = output.limit.max(limit);
        Ok(())
    }

    /// Nobody reads an output stream any more: the program gets SIGPIPE at its next write.
    pub(crate) fn end_output(&mut self, stream: u32) -> Result<(), &'static str> {
        self.output(stream)?.pipe = None;
        Ok(())
    }

    fn output(&mut self, stream: u32) -> Result<&mut Output, &'static str> {
        let output = self.outputs.iter_mut().find(|output| output.stream == stream);
        output.ok_or("there is no such output stream")
    }

    /// The terminal of who looks has another size.
    pub(crate) fn resize(&self, resize: Resize) {
        if let (Some(slave), size) = (&self.slave, terminal::size(resize.rows, resize.columns)) {
            let _ = tcsetwinsize(slave, terminal::winsize(size));
        }
    }

    pub(crate) fn signal(&self, number: i32) {
        if let (Some(group), Some(signal)) = (self.group, Signal::from_named_raw(number)) {
            let _ = kill_process_group(group, signal);
        }
    }

    /// The client is gone: what a closed terminal does to its programs.
    pub(crate) fn hang_up(&self) {
        for signal in [Signal::HUP, Signal::CONT] {
            self.signal(signal.as_raw());
        }
    }
}

impl Input {
    /// Gives the program what it takes; returns fresh credit, or the end of the stream.
    fn feed(&mut self) -> Option<Body> {
        let pipe = self.pipe.as_ref()?;
        while let Some(bytes) = self.pending.front_mut() {
            match rustix::io::write(pipe, bytes) {
                Ok(written) => {
                    self.consumed += written as u64;
                    bytes.advance(written);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                Err(_) => return Some(self.refuse()),
            }
            if bytes.is_empty() {
                self.pending.pop_front();
            }
        }
        self.close_if_done();
        if self.limit - self.consumed > WINDOW / 2 {
            return None;
        }
        self.limit = self.consumed + WINDOW;
        Some(Body::Credit(Credit { stream: STDIN, limit: self.limit }))
    }

    /// The program closed its input: nothing more is wanted.
    fn refuse(&mut self) -> Body {
        self.pipe = None;
        self.pending.clear();
        self.limit = u64::MAX;
        Body::Eof(Eof { stream: STDIN })
    }

    fn close_if_done(&mut self) {
        if self.ended && self.pending.is_empty() {
            self.pipe = None;
        }
    }
}

impl Output {
    fn has_credit(&self) -> bool {
        self.sent < self.limit
    }

    fn read(&mut self) -> Option<Body> {
        let pipe = self.pipe.as_ref()?;
        let room = usize::try_from(self.limit - self.sent).unwrap_or(MAX_DATA).min(MAX_DATA);
        self.buffer.resize(room, 0);
        match rustix::io::read(pipe, &mut self.buffer[..]) {
            Ok(read) if read > 0 => {
                let bytes = self.buffer.split_to(read).freeze();
                self.buffer.clear();
                let offset = self.sent;
                self.sent += read as u64;
                Some(Body::Data(Data { stream: self.stream, offset, bytes }))
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => None,
            Ok(_) | Err(_) => {
                self.pipe = None;
                Some(Body::Eof(Eof { stream: self.stream }))
            }
        }
    }
}
