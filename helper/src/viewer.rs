//! Who is attached to a session: what they were shown, what they typed, and how far they are behind.
//!
//! A program waits for whoever is attached, as it would for a terminal, but for [`PATIENCE`] only:
//! who takes nothing for longer, or whose connection is broken, is let go on without. It gets what
//! it missed from the log when it is back, or the screen anew where the log has dropped some of it.

use std::time::Duration;

use schema::bytes::Bytes;
use schema::frame::MAX_DATA;
use schema::message::{
    Attach, Attached, Body, Credit, Data, LOG, Painted, Resize, SCREEN, STDIN, TYPED, VIEW,
};

use crate::log::{LogReader, LogWriter};
use crate::outgoing::Outgoing;
use crate::screen::Screen;
use crate::terminal::size;

/// How long a session's program waits for one who is attached and takes nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of the log so much waits for a connection at once, in bytes.
const BACKLOG: usize = 4 * MAX_DATA;

/// What there is to be seen.
#[derive(Clone, Copy)]
pub(crate) struct Show<'a> {
    pub(crate) screen: &'a Screen,
    pub(crate) log: &'a LogWriter,
}

/// One who is attached, over all its connections.
pub(crate) struct Viewer {
    /// Counts attachments up from one.
    pub(crate) key: u64,
    /// What the client calls the attachment; empty: it never comes back.
    pub(crate) name: Vec<u8>,
    size: (u16, u16),
    read_only: bool,
    /// Output up to this offset was sent, and may be sent.
    sent: u64,
    limit: u64,
    /// What was typed: bytes that came, that the program took, and that may come.
    typed: u64,
    taken: u64,
    typed_limit: u64,
    /// Since when its credit is used up.
    stalled: Option<Duration>,
    /// It was let go on without.
    behind: bool,
    /// It is to be painted anew once it has all output.
    spoiled: bool,
}

impl Viewer {
    /// Begins with the screen.
    pub(crate) fn new(key: u64, attach: Attach, show: Show<'_>, out: &mut Outgoing) -> Self {
        let mut viewer = Self {
            key,
            size: size(attach.rows, attach.columns),
            read_only: attach.read_only,
            name: attach.client,
            sent: 0,
            limit: 0,
            typed: 0,
            taken: 0,
            typed_limit: if attach.read_only { 0 } else { TYPED },
            stalled: None,
            behind: false,
            spoiled: false,
        };
        out.push(Body::Attached(Attached { known: false, typed: 0, resumed: false }));
        viewer.paint(show, out);
        viewer.grant_typing(out);
        viewer
    }

    /// Goes on over another connection: with what it missed, or with the screen.
    pub(crate) fn resume(&mut self, attach: &Attach, show: Show<'_>, out: &mut Outgoing) {
        self.size = size(attach.rows, attach.columns);
        let kept = attach.received.filter(|offset| show.log.keeps(*offset));
        let (known, typed, resumed) = (true, self.typed, kept.is_some());
        out.push(Body::Attached(Attached { known, typed, resumed }));
        if let Some(offset) = kept {
            (self.sent, self.limit) = (offset, offset + VIEW);
            (self.stalled, self.behind, self.spoiled) = (None, false, attach.repaint);
        } else {
            self.paint(show, out);
        }
        self.grant_typing(out);
    }

    fn paint(&mut self, show: Show<'_>, out: &mut Outgoing) {
        let mut at = 0;
        for part in show.screen.paint().chunks(MAX_DATA) {
            let bytes = Bytes::copy_from_slice(part);
            out.push(Body::Data(Data { stream: SCREEN, offset: at, bytes }));
            at += part.len() as u64;
        }
        let offset = show.log.offset();
        out.push(Body::Painted(Painted { offset }));
        (self.sent, self.limit) = (offset, offset + VIEW);
        (self.stalled, self.behind, self.spoiled) = (None, false, false);
    }

    fn grant_typing(&self, out: &mut Outgoing) {
        if !self.read_only {
            out.push(Body::Credit(Credit { stream: STDIN, limit: self.typed_limit }));
        }
    }

    /// The size that its terminal gives the session; `None` where it only looks.
    pub(crate) fn wanted_size(&self) -> Option<(u16, u16)> {
        (!self.read_only).then_some(self.size)
    }

    pub(crate) fn resize(&mut self, resize: Resize) {
        self.size = size(resize.rows, resize.columns);
    }

    pub(crate) fn grant(&mut self, limit: u64) {
        if limit > self.limit {
            self.limit = limit;
            self.stalled = None;
        }
    }

    /// Its terminal shows something that the session did not print.
    pub(crate) fn is_spoiled(&mut self) {
        self.spoiled = true;
    }

    /// How much more may be printed, in bytes; `None` where nobody waits for it. Call before
    /// anything is read for it: it counts how long it takes nothing.
    pub(crate) fn room(&mut self, offset: u64, now: Duration) -> Option<u64> {
        if self.behind {
            return None;
        }
        let room = self.limit.saturating_sub(offset);
        if room > 0 {
            self.stalled = None;
            return Some(room);
        }
        let since = *self.stalled.get_or_insert(now);
        if now >= since + PATIENCE {
            self.behind = true;
            return None;
        }
        Some(0)
    }

    /// When to look again though it takes nothing.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.stalled.filter(|_| !self.behind).map(|since| since + PATIENCE)
    }

    /// Sends output that begins at `offset` and is within its room, unless it has not even got what
    /// was printed before.
    pub(crate) fn send(&mut self, offset: u64, bytes: &Bytes, out: &mut Outgoing) {
        if !self.behind && self.sent == offset {
            self.sent = offset + bytes.len() as u64;
            out.push(Body::Data(Data { stream: LOG, offset, bytes: bytes.clone() }));
        }
    }

    /// Sends what it has missed, as far as it takes it now; where the log has not all of that, the
    /// screen.
    pub(crate) fn catch_up(&mut self, show: Show<'_>, out: &mut Outgoing) {
        if self.behind && self.limit > self.sent && out.len() == 0 {
            self.behind = false;
        }
        let end = show.log.offset();
        while !self.behind && self.sent < end.min(self.limit) && out.len() < BACKLOG {
            let room = usize::try_from(end.min(self.limit) - self.sent).unwrap_or(MAX_DATA);
            let bytes = LogReader::at(show.log.folder(), self.sent).next(room.min(MAX_DATA));
            let Some(bytes) = bytes else { return self.paint(show, out) };
            let offset = self.sent;
            self.sent += bytes.len() as u64;
            out.push(Body::Data(Data { stream: LOG, offset, bytes: bytes.into() }));
        }
        if self.spoiled && self.sent == end {
            self.paint(show, out);
        }
    }

    /// Sends what it has missed up to the end, however much it takes now.
    pub(crate) fn finish(&mut self, show: Show<'_>, out: &mut Outgoing) {
        self.catch_up(show, out);
        if self.sent != show.log.offset() {
            self.paint(show, out);
        }
    }

    /// Takes what was typed: whether it is in order and within its credit.
    pub(crate) fn takes(&mut self, offset: u64, length: usize) -> bool {
        let fits = offset == self.typed && offset + length as u64 <= self.typed_limit;
        self.typed += length as u64;
        fits
    }

    /// The program took so much of what was typed; `out` is where to say so, if it is connected.
    pub(crate) fn was_taken(&mut self, length: usize, out: Option<&mut Outgoing>) {
        self.taken += length as u64;
        if self.typed_limit - self.taken <= TYPED / 2 {
            self.typed_limit = self.taken + TYPED;
            if let Some(out) = out {
                self.grant_typing(out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Stage {
        folder: std::path::PathBuf,
        screen: Screen,
        log: LogWriter,
    }

    impl Drop for Stage {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    impl Stage {
        fn new(name: &str) -> Self {
            let name = format!("simstim-viewer-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let log = LogWriter::new(&folder);
            Self { folder, screen: Screen::new(24, 80), log }
        }

        fn show(&self) -> Show<'_> {
            Show { screen: &self.screen, log: &self.log }
        }

        /// As a holder prints.
        fn print(&mut self, bytes: &[u8], viewer: &mut Viewer, out: &mut Outgoing) {
            let offset = self.log.offset();
            self.log.append(bytes);
            viewer.send(offset, &Bytes::copy_from_slice(bytes), out);
        }
    }

    fn attach(received: Option<u64>) -> Attach {
        let client = b"client".to_vec();
        Attach { rows: 24, columns: 80, received, client, ..Attach::default() }
    }

    /// What was sent of the session's output, and whether a paint was among it.
    fn sent(out: &mut Outgoing) -> (Vec<u8>, bool) {
        let mut decoder = schema::frame::Decoder::default();
        decoder.push(&out.take());
        let (mut bytes, mut painted) = (Vec::new(), false);
        while let Some(body) = decoder.next_message().unwrap() {
            match body {
                Body::Data(data) if data.stream == LOG => bytes.extend_from_slice(&data.bytes),
                Body::Painted(_) => painted = true,
                _ => {}
            }
        }
        (bytes, painted)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_who_takes_nothing_is_waited_for_in_bounds_and_catches_up() {
        let (mut stage, mut out) = (Stage::new("slow"), Outgoing::default());
        let mut viewer = Viewer::new(1, attach(None), stage.show(), &mut out);
        assert_eq!(viewer.room(0, SECOND), Some(VIEW));
        let full = vec![b'x'; usize::try_from(VIEW).unwrap()];
        for part in full.chunks(1 << 15) {
            stage.print(part, &mut viewer, &mut Outgoing::default());
        }
        assert_eq!(viewer.room(VIEW, 2 * SECOND), Some(0));
        assert_eq!(viewer.deadline(), Some(7 * SECOND));
        assert_eq!(viewer.room(VIEW, 7 * SECOND), None, "the program goes on without it");
        stage.print(b"missed", &mut viewer, &mut out);
        let mut out = Outgoing::default();
        viewer.catch_up(stage.show(), &mut out);
        assert_eq!(out.len(), 0, "it has no credit");
        viewer.grant(VIEW + 100);
        viewer.catch_up(stage.show(), &mut out);
        assert_eq!(sent(&mut out), (b"missed".to_vec(), false));
        assert_eq!(viewer.room(VIEW + 6, 8 * SECOND), Some(94));
    }

    #[test]
    fn one_who_comes_back_goes_on_where_it_was_and_types_nothing_twice() {
        let (mut stage, mut out) = (Stage::new("back"), Outgoing::default());
        let mut viewer = Viewer::new(1, attach(None), stage.show(), &mut out);
        stage.print(b"one two three", &mut viewer, &mut out);
        assert!(viewer.takes(0, 10));
        let mut out = Outgoing::default();
        viewer.resume(&attach(Some(4)), stage.show(), &mut out);
        viewer.catch_up(stage.show(), &mut out);
        assert_eq!(sent(&mut out), (b"two three".to_vec(), false));
        assert!(viewer.takes(10, 5), "what came before counts");
        let mut out = Outgoing::default();
        let spoiled = Attach { repaint: true, ..attach(Some(8)) };
        viewer.resume(&spoiled, stage.show(), &mut out);
        viewer.catch_up(stage.show(), &mut out);
        assert_eq!(sent(&mut out), (b"three".to_vec(), true));
        let mut out = Outgoing::default();
        viewer.resume(&attach(Some(900)), stage.show(), &mut out);
        assert!(sent(&mut out).1, "an offset that never was is met with the screen");
    }

    #[test]
    fn what_the_log_has_dropped_is_replaced_by_the_screen() {
        let (mut stage, mut out) = (Stage::new("dropped"), Outgoing::default());
        let mut viewer = Viewer::new(1, attach(None), stage.show(), &mut out);
        stage.log.append(&vec![b'x'; 20 << 20]);
        let mut out = Outgoing::default();
        viewer.resume(&attach(Some(5)), stage.show(), &mut out);
        assert_eq!(sent(&mut out), (Vec::new(), true));
    }

    #[test]
    fn typing_beyond_its_credit_or_out_of_order_is_refused() {
        let (stage, mut out) = (Stage::new("typing"), Outgoing::default());
        let mut viewer = Viewer::new(1, attach(None), stage.show(), &mut out);
        assert!(viewer.takes(0, 10) && viewer.takes(10, (1 << 16) - 10));
        assert!(!viewer.takes(TYPED, 1));
        let mut other = Viewer::new(2, attach(None), stage.show(), &mut out);
        assert!(!other.takes(5, 1));
    }
}
