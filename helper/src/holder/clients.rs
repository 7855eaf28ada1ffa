//! Those who are connected to a holder: they ask, or are attached; and those who were, and may be
//! back.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::tcsetwinsize;
use schema::frame::{Decoder, MAX_DATA};
use schema::message::{Attach, Body, Credit, Exited, LOG, STDIN};

use super::{Holder, now};
use crate::bridge::set_nonblocking;
use crate::outgoing::Outgoing;
use crate::terminal::winsize;
use crate::viewer::{Show, Viewer};

/// Clients at once; one more is turned away.
const CLIENTS: usize = 64;
/// Broken attachments that may go on.
const DEPARTED: usize = 64;
/// The most that may wait for a client, in bytes: a paint of the largest screen, and what follows.
const MOST_WAITING: usize = 64 << 20;
/// For those who are attached to take the end.
const FAREWELL: Duration = Duration::from_secs(2);

pub(super) struct Client {
    pub(super) stream: UnixStream,
    decoder: Decoder,
    pub(super) out: Outgoing,
    pub(super) viewer: Option<Viewer>,
}

impl Holder {
    /// How much may be read of what the program prints: as much as whoever is attached can take.
    pub(super) fn room(&mut self) -> usize {
        let (time, offset) = (now(), self.log.offset());
        let present = self.clients.iter_mut().filter_map(|client| client.viewer.as_mut());
        let viewers = present.chain(&mut self.departed);
        let least = viewers.filter_map(|viewer| viewer.room(offset, time)).min();
        least.and_then(|room| usize::try_from(room).ok()).unwrap_or(MAX_DATA).min(MAX_DATA)
    }

    /// When one who is attached is let go on without, at the earliest.
    pub(super) fn patience(&self) -> Option<Duration> {
        let present = self.clients.iter().filter_map(|client| client.viewer.as_ref());
        present.chain(&self.departed).filter_map(Viewer::deadline).min()
    }

    /// Sends those who were behind what they missed.
    pub(super) fn catch_up(&mut self) {
        let show = Show { screen: &self.screen, log: &self.log };
        for client in &mut self.clients {
            if let Some(viewer) = &mut client.viewer {
                viewer.catch_up(show, &mut client.out);
            }
        }
    }

    pub(super) fn accept(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        if self.clients.len() >= CLIENTS || set_nonblocking(stream.as_fd()).is_err() {
            return;
        }
        let mut out = Outgoing::default();
        out.push(Body::Hello(self.hello.clone()));
        let _ = out.write(&stream);
        self.clients.push(Client { stream, decoder: Decoder::default(), out, viewer: None });
    }

    /// Lets a client go. An attachment that was not left for good may go on.
    pub(super) fn dismiss(&mut self, index: usize) {
        let viewer = self.clients.remove(index).viewer;
        if let Some(viewer) = viewer.filter(|viewer| !viewer.name.is_empty()) {
            let surplus = (self.departed.len() + 1).saturating_sub(DEPARTED);
            self.departed.drain(..surplus);
            self.departed.push(viewer);
        }
    }

    /// Attaches a client: the session takes the size of its terminal, and it gets the screen, or
    /// what it missed.
    fn attach(&mut self, index: usize, attach: Attach) {
        let before = self.departed_of(index, &attach.client);
        let show = Show { screen: &self.screen, log: &self.log };
        let client = &mut self.clients[index];
        let viewer = if let Some(mut viewer) = before {
            viewer.resume(&attach, show, &mut client.out);
            viewer
        } else {
            (self.attachments, self.last_sign) = (self.attachments + 1, Some(now()));
            Viewer::new(self.attachments, attach, show, &mut client.out)
        };
        let size = viewer.wanted_size();
        client.viewer = Some(viewer);
        self.take_size(size);
    }

    /// The attachment of that name, taken from where it was: a connection that nobody knows yet to
    /// be broken loses it, so that nothing comes over that any more.
    fn departed_of(&mut self, index: usize, name: &[u8]) -> Option<Viewer> {
        if name.is_empty() {
            return None;
        }
        let others = self.clients.iter_mut().enumerate().filter(|(other, _)| *other != index);
        for (_, client) in others {
            if client.viewer.as_ref().is_some_and(|viewer| viewer.name == name) {
                let _ = client.stream.shutdown(std::net::Shutdown::Both);
                return client.viewer.take();
            }
        }
        let found = self.departed.iter().position(|viewer| viewer.name == name)?;
        Some(self.departed.remove(found))
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
                self.typed.push_back((viewer.key, data.bytes));
                (self.last_life, self.last_sign) = (now(), Some(now()));
                self.take_size(size);
                self.feed_terminal();
            }
            Body::Credit(Credit { stream: LOG, limit }) => viewer.grant(limit),
            Body::Resize(resize) => {
                viewer.resize(resize);
                let size = viewer.wanted_size();
                self.last_sign = Some(now());
                self.take_size(size);
            }
            Body::Repaint(_) => viewer.is_spoiled(),
            // It leaves for good.
            Body::Goodbye(_) => client.viewer = None,
            _ => return false,
        }
        true
    }

    /// The program took so many bytes of what an attachment typed.
    pub(super) fn was_taken(&mut self, key: u64, length: usize) {
        for client in &mut self.clients {
            if let Some(viewer) = client.viewer.as_mut().filter(|viewer| viewer.key == key) {
                return viewer.was_taken(length, Some(&mut client.out));
            }
        }
        if let Some(viewer) = self.departed.iter_mut().find(|viewer| viewer.key == key) {
            viewer.was_taken(length, None);
        }
    }

    /// Reads and answers a client; `false` where it is done or broken.
    pub(super) fn serve(&mut self, index: usize) -> bool {
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
                    self.attach(index, attach);
                    true
                }
                Body::Data(_)
                | Body::Credit(_)
                | Body::Resize(_)
                | Body::Repaint(_)
                | Body::Goodbye(_) => self.hear(index, body),
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

    /// Tells those who are attached how it ended, after all that was printed.
    pub(super) fn bid_farewell(&mut self) {
        let (code, signal) = self.status.map_or((None, None), |end| (end.code(), end.signal()));
        let until = now() + FAREWELL;
        let show = Show { screen: &self.screen, log: &self.log };
        for client in &mut self.clients {
            if let Some(viewer) = &mut client.viewer {
                viewer.finish(show, &mut client.out);
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
}
