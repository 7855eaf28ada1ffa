//! The messages between simstim and its helper.
//!
//! Order of a stream: the helper writes the marker it was given, then [`Hello`]; the client answers
//! [`Welcome`]; then requests and data; either side ends with [`Goodbye`], the other answers
//! [`GoodbyeAck`]. The client sends a [`Ping`] every 5 s; a helper that heard none for 30 s leaves.
//!
//! Streams of bytes have 64-bit offsets and credit: a side may send bytes up to, not including, the
//! offset that the other side granted last.

use prost::bytes::Bytes;

/// Stream number of a program's standard input: client to helper.
pub const STDIN: u32 = 0;
/// Stream number of a program's standard output: helper to client.
pub const STDOUT: u32 = 1;
/// Stream number of a program's standard error: helper to client.
pub const STDERR: u32 = 2;

/// Stream number of a session's log: helper to client. Its offsets are those of the log.
pub const LOG: u32 = 3;
/// Stream number of a session's screen as it is: helper to client. It begins at 0 with each paint.
pub const SCREEN: u32 = 4;

/// How far a session may run ahead of who is attached, in bytes: so much may still come after a key.
pub const VIEW: u64 = 256 * 1024;
/// How far what is typed may run ahead of a session's program, in bytes.
pub const TYPED: u64 = 64 * 1024;

/// How far the sender of a stream may run ahead of its reader, in bytes.
pub const WINDOW: u64 = 1 << 22;

/// What one frame carries.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// `None` is a message from a version that knows more than this one.
    #[prost(
        oneof = "Body",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33"
    )]
    pub body: Option<Body>,
}

/// Every message there is.
#[derive(Clone, PartialEq, prost::Oneof)]
#[allow(missing_docs, reason = "each variant carries the documented message of its name")]
pub enum Body {
    #[prost(message, tag = "1")]
    Hello(Hello),
    #[prost(message, tag = "2")]
    Welcome(Welcome),
    #[prost(message, tag = "3")]
    Ping(Ping),
    #[prost(message, tag = "4")]
    Pong(Pong),
    #[prost(message, tag = "5")]
    Goodbye(Goodbye),
    #[prost(message, tag = "6")]
    GoodbyeAck(GoodbyeAck),
    #[prost(message, tag = "7")]
    Exec(Exec),
    #[prost(message, tag = "8")]
    Started(Started),
    #[prost(message, tag = "9")]
    Data(Data),
    #[prost(message, tag = "10")]
    Eof(Eof),
    #[prost(message, tag = "11")]
    Credit(Credit),
    #[prost(message, tag = "12")]
    Exited(Exited),
    #[prost(message, tag = "13")]
    Failed(Failed),
    #[prost(message, tag = "14")]
    Signal(Signal),
    #[prost(message, tag = "15")]
    ListSessions(ListSessions),
    #[prost(message, tag = "16")]
    Sessions(Sessions),
    #[prost(message, tag = "17")]
    NewSession(NewSession),
    #[prost(message, tag = "18")]
    SessionStarted(SessionStarted),
    #[prost(message, tag = "19")]
    SignalSession(SignalSession),
    #[prost(message, tag = "20")]
    Done(Done),
    #[prost(message, tag = "21")]
    ReadLog(ReadLog),
    #[prost(message, tag = "22")]
    LogStart(LogStart),
    #[prost(message, tag = "23")]
    Describe(Describe),
    #[prost(message, tag = "24")]
    CheckIdle(CheckIdle),
    #[prost(message, tag = "25")]
    Verdict(Verdict),
    #[prost(message, tag = "26")]
    Attach(Attach),
    #[prost(message, tag = "27")]
    Painted(Painted),
    #[prost(message, tag = "28")]
    Resize(Resize),
    #[prost(message, tag = "29")]
    Attached(Attached),
    #[prost(message, tag = "30")]
    Notice(Notice),
    #[prost(message, tag = "31")]
    Repaint(Repaint),
    #[prost(message, tag = "32")]
    Why(Why),
    #[prost(message, tag = "33")]
    Reasons(Reasons),
}

/// The helper's first message: which machine this is and what speaks.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hello {
    /// Fleet of the mark that the machine was made with.
    #[prost(string, tag = "1")]
    pub fleet: String,
    /// Host of that mark; a renamed host keeps the name it was made with.
    #[prost(string, tag = "2")]
    pub host: String,
    /// Nonce of that mark: differs for each machine ever made.
    #[prost(string, tag = "3")]
    pub nonce: String,
    /// Oldest protocol version the helper speaks.
    #[prost(uint32, tag = "4")]
    pub protocol_min: u32,
    /// Newest protocol version the helper speaks.
    #[prost(uint32, tag = "5")]
    pub protocol_max: u32,
    /// The helper's version, for people.
    #[prost(string, tag = "6")]
    pub version: String,
    /// Differs after each start of the machine.
    #[prost(string, tag = "7")]
    pub boot_id: String,
    /// Counts the boots this disk has seen; smaller than last time: the disk went back in time.
    #[prost(uint64, tag = "8")]
    pub epoch: u64,
    /// What this bridge is for: `look`, `exec` or `attach`; `holder` on a session's socket.
    #[prost(string, tag = "9")]
    pub purpose: String,
}

/// The client's answer to [`Hello`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Welcome {
    /// The protocol version to speak.
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// The client's version, for people.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// The client is alive.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Ping {}

/// The helper is alive.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Pong {}

/// The sender has nothing more to say.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Goodbye {}

/// Everything before the [`Goodbye`] was received.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct GoodbyeAck {}

/// Runs a program, without a shell in between. One for each bridge.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Exec {
    /// The program, looked up in PATH, and its arguments.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub argv: Vec<Vec<u8>>,
    /// Variables to set on top of the helper's environment.
    #[prost(message, repeated, tag = "2")]
    pub env: Vec<Variable>,
    /// Working directory; empty is the home directory.
    #[prost(bytes = "vec", tag = "3")]
    pub directory: Vec<u8>,
    /// In a terminal of this size: what it prints is all [`STDOUT`], and [`Resize`] may follow.
    #[prost(message, optional, tag = "4")]
    pub terminal: Option<Resize>,
}

/// One environment variable.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Variable {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// The program of an [`Exec`] runs.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Started {
    /// Its process id on the machine.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
}

/// Bytes of a stream.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Data {
    /// Which stream.
    #[prost(uint32, tag = "1")]
    pub stream: u32,
    /// Offset of the first byte from the stream's beginning.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// The bytes, at most [`crate::frame::MAX_DATA`].
    #[prost(bytes = "bytes", tag = "3")]
    pub bytes: Bytes,
}

/// A stream is over: nothing more comes, or (from its reader) nothing more is wanted.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Eof {
    /// Which stream.
    #[prost(uint32, tag = "1")]
    pub stream: u32,
}

/// The reader of a stream takes bytes up to `limit`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Credit {
    /// Which stream.
    #[prost(uint32, tag = "1")]
    pub stream: u32,
    /// Offset that may not be reached; never smaller than before.
    #[prost(uint64, tag = "2")]
    pub limit: u64,
}

/// The program ended and all its output was sent. Exactly one of the two is set.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Exited {
    /// Its exit code, where it left by itself.
    #[prost(int32, optional, tag = "1")]
    pub code: Option<i32>,
    /// The signal that killed it.
    #[prost(int32, optional, tag = "2")]
    pub signal: Option<i32>,
}

/// A request could not be carried out.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Failed {
    /// What was tried and why it failed, for people.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// The program of an [`Exec`] does not exist (as a shell's 127).
    #[prost(bool, tag = "2")]
    pub not_found: bool,
}

/// Sends a signal to the program's process group.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Signal {
    /// The signal's number on Linux.
    #[prost(int32, tag = "1")]
    pub number: i32,
}

/// Asks for the sessions of the machine. Asking holds nothing awake.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ListSessions {}

/// The answer to [`ListSessions`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sessions {
    /// Every session that is kept, ended ones included.
    #[prost(message, repeated, tag = "1")]
    pub sessions: Vec<Session>,
    /// Another message with the rest follows.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// One session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Session {
    /// Its name, unique on the machine.
    #[prost(string, tag = "1")]
    pub name: String,
    /// `working`, `waiting`, `quiet` or `ended`. Anything else is to be taken as working.
    #[prost(string, tag = "2")]
    pub state: String,
    /// Why it is in that state, for people.
    #[prost(string, tag = "3")]
    pub evidence: String,
    /// Process id of its program on the machine; 0 where it is not known or over.
    #[prost(uint32, tag = "4")]
    pub pid: u32,
    /// When it started, in seconds since 1970 by the machine's clock.
    #[prost(uint64, tag = "5")]
    pub started_at: u64,
    /// Its program and arguments, for people.
    #[prost(string, tag = "6")]
    pub command: String,
    /// The exit code of its program, where it ended by itself.
    #[prost(int32, optional, tag = "7")]
    pub code: Option<i32>,
    /// The signal that killed its program.
    #[prost(int32, optional, tag = "8")]
    pub signal: Option<i32>,
    /// When it ended, in seconds since 1970 by the machine's clock.
    #[prost(uint64, optional, tag = "9")]
    pub ended_at: Option<u64>,
    /// Clients that are attached now.
    #[prost(uint32, tag = "10")]
    pub attached: u32,
    /// How long ago a person last gave a sign of life (a key, a paste, the mouse, another size), in
    /// seconds; `None`: never.
    #[prost(uint64, optional, tag = "11")]
    pub key_age: Option<u64>,
}

/// Starts a program in a terminal that outlives every connection.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NewSession {
    /// Its name; empty lets the helper choose one.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The program and its arguments; empty is the user's login shell.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub argv: Vec<Vec<u8>>,
    /// Variables to set on top of the machine's own.
    #[prost(message, repeated, tag = "3")]
    pub env: Vec<Variable>,
    /// Working directory; empty is the home directory.
    #[prost(bytes = "vec", tag = "4")]
    pub directory: Vec<u8>,
    /// Lines of the terminal.
    #[prost(uint32, tag = "5")]
    pub rows: u32,
    /// Columns of the terminal.
    #[prost(uint32, tag = "6")]
    pub columns: u32,
    /// How long its program counts as working after its last sign of life, in seconds.
    #[prost(uint64, tag = "7")]
    pub busy_lease: u64,
    /// What to run in its place after a restart of the machine; empty: it ends with the machine.
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub resume: Vec<Vec<u8>>,
    /// From the helper to its holder: this is such a start again.
    #[prost(bool, tag = "9")]
    pub restored: bool,
}

/// The session of a [`NewSession`] runs.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SessionStarted {
    /// What it is called.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What an ended session of that name is called from now on.
    #[prost(string, tag = "2")]
    pub aside: String,
    /// It cannot take all of the machine's memory.
    #[prost(bool, tag = "3")]
    pub capped: bool,
}

/// Sends a signal to what runs in the foreground of a session, and to its program.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SignalSession {
    /// The session.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The signal's number on Linux.
    #[prost(int32, tag = "2")]
    pub number: i32,
}

/// What was asked for is done.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Done {}

/// Reads what is kept of a session's output: answered by [`LogStart`], then [`Data`] of [`LOG`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReadLog {
    /// The session.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Go on until the session ends.
    #[prost(bool, tag = "2")]
    pub follow: bool,
}

/// Where the kept part of a log begins.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LogStart {
    /// The offset of its first byte from the session's beginning.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
}

/// Asks a holder what its session does: answered by [`Sessions`] with that one.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Describe {}

/// Asks whether the machine is idle long enough to stop. Asking holds nothing awake.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CheckIdle {
    /// How long nothing may have worked, in seconds.
    #[prost(uint64, tag = "1")]
    pub idle_stop: u64,
    /// How often this is asked, in seconds; a longer gap starts the count anew.
    #[prost(uint64, tag = "2")]
    pub interval: u64,
    /// A stop ends processes: then whoever is attached counts for longer.
    #[prost(bool, tag = "3")]
    pub ends_processes: bool,
}

/// The answer to [`CheckIdle`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Verdict {
    /// It may be stopped.
    #[prost(bool, tag = "1")]
    pub stop: bool,
    /// Why, or what keeps it awake; for people.
    #[prost(string, tag = "2")]
    pub why: String,
    /// How long nothing has worked, in seconds.
    #[prost(uint64, tag = "3")]
    pub idle_for: u64,
}

/// Attaches to a session. The answer is [`Attached`], then, unless output goes on from `received`, a
/// paint: [`Data`] of [`SCREEN`], then [`Painted`]; then the session's output as [`Data`] of [`LOG`],
/// and [`Exited`] at its end. Another paint may come at any time, where the reader fell behind. What
/// is typed goes back as [`Data`] of [`STDIN`].
///
/// Who leaves for good says [`Goodbye`]. Without it the holder remembers the attachment: an attach
/// with the same `client` takes its place, whether its connection is known to be broken or not.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Attach {
    /// The session.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Lines of the terminal.
    #[prost(uint32, tag = "2")]
    pub rows: u32,
    /// Columns of the terminal.
    #[prost(uint32, tag = "3")]
    pub columns: u32,
    /// Only looks: neither types nor sets the size.
    #[prost(bool, tag = "4")]
    pub read_only: bool,
    /// Random bytes that name this attachment over all its connections; empty: it has only one.
    #[prost(bytes = "vec", tag = "5")]
    pub client: Vec<u8>,
    /// Output before this offset was received; it is to go on there, where it is still kept.
    #[prost(uint64, optional, tag = "6")]
    pub received: Option<u64>,
    /// The terminal shows something that is not the session's: a paint is wanted in any case.
    #[prost(bool, tag = "7")]
    pub repaint: bool,
    /// Lines of earlier output to be sent before the first paint.
    #[prost(uint32, tag = "8")]
    pub scrollback: u32,
}

/// The answer to [`Attach`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Attached {
    /// An attachment of that name was here before, and goes on.
    #[prost(bool, tag = "1")]
    pub known: bool,
    /// So many bytes typed in this attachment have come; what follows begins there.
    #[prost(uint64, tag = "2")]
    pub typed: u64,
    /// Output goes on where it was broken off, with a credit of [`VIEW`] bytes from there; if not,
    /// a paint follows.
    #[prost(bool, tag = "3")]
    pub resumed: bool,
}

/// Something to be said beside what the session prints.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Notice {
    /// One line for people.
    #[prost(string, tag = "1")]
    pub text: String,
}

/// The terminal shows something that is not the session's: a paint is wanted.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Repaint {}

/// The screen was sent. Output goes on at `offset`, with a credit of [`VIEW`] bytes from there.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Painted {
    /// Offset of the next byte from the session's beginning.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
}

/// The terminal of an attached client, or of who runs a program in one, has another size.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Resize {
    /// Lines.
    #[prost(uint32, tag = "1")]
    pub rows: u32,
    /// Columns.
    #[prost(uint32, tag = "2")]
    pub columns: u32,
}

/// Asks for everything that keeps the machine awake, or could. Asking holds nothing awake.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Why {}

/// The answer to [`Why`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Reasons {
    /// What there is.
    #[prost(message, repeated, tag = "1")]
    pub sources: Vec<Source>,
    /// How long nothing has worked, in seconds; `None` where nobody counts, or something works.
    #[prost(uint64, optional, tag = "2")]
    pub idle_for: Option<u64>,
    /// What was decided lately, the last one last.
    #[prost(message, repeated, tag = "3")]
    pub decisions: Vec<Decision>,
}

/// Something that keeps a machine awake, or could.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Source {
    /// What it is, such as `session build`.
    #[prost(string, tag = "1")]
    pub what: String,
    /// It keeps the machine awake now.
    #[prost(bool, tag = "2")]
    pub keeps: bool,
    /// The evidence, with its last sign of life.
    #[prost(string, tag = "3")]
    pub why: String,
}

/// Something that was decided about stopping the machine.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Decision {
    /// When, in seconds since 1970 by the machine's clock.
    #[prost(uint64, tag = "1")]
    pub at: u64,
    /// What, and on which evidence.
    #[prost(string, tag = "2")]
    pub what: String,
}
