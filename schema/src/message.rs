//! The messages between simstim and its helper.
//!
//! Order of a stream: the helper writes the marker it was given, then [`Hello`]; the client answers
//! [`Welcome`]; then requests and data; either side ends with [`Goodbye`], the other answers
//! [`GoodbyeAck`]. The client sends a [`Ping`] every 5 s; a helper that heard none for 30 s leaves.
//!
//! Streams of bytes have 64-bit offsets and credit: a side may send bytes up to, not including, the
//! offset that the other side granted last.

/// Stream number of a program's standard input: client to helper.
pub const STDIN: u32 = 0;
/// Stream number of a program's standard output: helper to client.
pub const STDOUT: u32 = 1;
/// Stream number of a program's standard error: helper to client.
pub const STDERR: u32 = 2;

/// How far the sender of a stream may run ahead of its reader, in bytes.
pub const WINDOW: u64 = 1 << 20;

/// What one frame carries.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// `None` is a message from a version that knows more than this one.
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16")]
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
    /// The kernel's boot id: differs after each boot.
    #[prost(string, tag = "7")]
    pub boot_id: String,
    /// Counts the boots this disk has seen; smaller than last time: the disk went back in time.
    #[prost(uint64, tag = "8")]
    pub epoch: u64,
    /// What this bridge is for: `look` or `exec`. Decides what it holds awake.
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
    #[prost(bytes = "vec", tag = "3")]
    pub bytes: Vec<u8>,
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
}
