//! The way from a bridge to the holder of the session that its client is attached to.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::event::PollFlags;
use rustix::io::Errno;
use schema::bytes::Bytes;
use schema::frame::{Decoder, MAX_DATA};
use schema::message::{Attach, Body, Data, Hello, Painted, SCREEN};

use crate::bridge::set_nonblocking;
use crate::log::LogReader;
use crate::outgoing::Outgoing;
use crate::screen::Scrollback;
use crate::sessions;
use crate::terminal::size;

/// Earlier output is looked for in the last so many bytes.
const EARLIER: u64 = 4 << 20;
/// A first paint is at most so many messages.
const MOST_PAINT: usize = 1024;

/// A connection to a holder.
pub(crate) struct Link {
    pub(crate) folder: PathBuf,
    pub(crate) stream: UnixStream,
    decoder: Decoder,
    out: Outgoing,
    /// Its first message came, which is its hello.
    greeted: bool,
    /// Earlier lines that are to come before the first paint, and what came of the paint.
    earlier: Option<(Attach, Vec<Body>)>,
}

impl Link {
    /// Attaches to the session in a folder.
    pub(crate) fn open(folder: PathBuf, attach: Attach) -> std::io::Result<Self> {
        let stream = sessions::connect(&folder)?;
        set_nonblocking(stream.as_fd())?;
        let (decoder, out) = (Decoder::default(), Outgoing::default());
        let wanted = attach.scrollback > 0 && attach.received.is_none();
        let earlier = wanted.then(|| (attach.clone(), Vec::new()));
        let mut link = Self { folder, stream, decoder, out, greeted: false, earlier };
        link.say(Body::Attach(attach));
        Ok(link)
    }

    pub(crate) fn say(&mut self, body: Body) {
        self.out.push(body);
        // A holder that is gone is found out by reading.
        let _ = self.out.write(&self.stream);
    }

    /// What to wait for on its stream.
    pub(crate) fn interest(&self, has_room: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, has_room);
        flags.set(PollFlags::OUT, self.out.len() > 0);
        flags
    }

    /// Reads what it says and puts it into `said`.
    ///
    /// # Errors
    /// Why it is of no use any more; what it said before counts.
    pub(crate) fn hear(&mut self, said: &mut Outgoing) -> Result<(), String> {
        let written = self.out.write(&self.stream);
        let read = self.decoder.read_with(|room| rustix::io::read(&self.stream, room));
        let lives = match read {
            Ok(0) => false,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => written.is_ok(),
            Err(_) => false,
        };
        let nonsense = |_| "its holder talks nonsense".to_owned();
        while let Some(body) = self.decoder.next_message().map_err(nonsense)? {
            match body {
                Body::Hello(hello) if !self.greeted => agree(&hello)?,
                body => self.pass(body, said)?,
            }
            self.greeted = true;
        }
        if lives { Ok(()) } else { Err("its holder is gone".into()) }
    }

    /// Passes a message on; the first paint waits until it is known where it belongs.
    fn pass(&mut self, body: Body, said: &mut Outgoing) -> Result<(), String> {
        match (body, &mut self.earlier) {
            (body @ Body::Data(Data { stream: SCREEN, .. }), Some((_, paint))) => {
                if paint.len() >= MOST_PAINT {
                    return Err("its holder paints without end".into());
                }
                paint.push(body);
            }
            (body @ Body::Painted(Painted { offset }), earlier @ Some(_)) => {
                let (attach, paint) = earlier.take().unwrap_or_default();
                for body in self.earlier_lines(&attach, offset).into_iter().chain(paint) {
                    said.push(body);
                }
                said.push(body);
            }
            (body, _) => said.push(body),
        }
        Ok(())
    }

    /// The lines that had left the screen when it was painted, as a paint of their own.
    fn earlier_lines(&self, attach: &Attach, until: u64) -> Vec<Body> {
        let size = size(attach.rows, attach.columns);
        let mut earlier = Scrollback::new(size, attach.scrollback);
        let mut log = LogReader::at(&self.folder, until.saturating_sub(EARLIER));
        while log.offset() < until {
            let most = usize::try_from(until - log.offset()).unwrap_or(MAX_DATA).min(MAX_DATA);
            let bytes = log.read(most);
            if bytes.is_empty() {
                break;
            }
            earlier.feed(&bytes);
        }
        let lines = earlier.lines();
        let parts = lines.chunks(MAX_DATA).scan(0, |at, part| {
            let offset = *at;
            *at += part.len() as u64;
            Some(Body::Data(Data { stream: SCREEN, offset, bytes: Bytes::copy_from_slice(part) }))
        });
        parts.collect()
    }
}

fn agree(hello: &Hello) -> Result<(), String> {
    if schema::agree(hello.protocol_min, hello.protocol_max).is_some() {
        return Ok(());
    }
    let version: String = hello.version.chars().take(40).collect();
    Err(format!("its holder, of version {version}, speaks otherwise"))
}
