//! Who is attached to a session: what they were shown, what they typed, and how far they are behind.
//!
//! A program waits for whoever is attached, as it would for a terminal, but for [`PATIENCE`] only:
//! who takes nothing for longer is let go on without, and gets the screen anew when it is back.

use std::time::Duration;

use rustix::termios::Winsize;
use schema::bytes::Bytes;
use schema::frame::MAX_DATA;
use schema::message::{
    Attach, Body, Credit, Data, LOG, Painted, Resize, SCREEN, STDIN, TYPED, VIEW,
};

use crate::outgoing::Outgoing;

/// How long a session's program waits for one who is attached and takes nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// One who is attached.
pub(crate) struct Viewer {
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
}

impl Viewer {
    /// Begins with the screen.
    pub(crate) fn new(attach: &Attach, offset: u64, paint: &[u8], out: &mut Outgoing) -> Self {
        let mut viewer = Self {
            size: size(attach.rows, attach.columns),
            read_only: attach.read_only,
            sent: 0,
            limit: 0,
            typed: 0,
            taken: 0,
            typed_limit: if attach.read_only { 0 } else { TYPED },
            stalled: None,
            behind: false,
        };
        viewer.show(offset, paint, out);
        viewer.grant_typing(out);
        viewer
    }

    fn show(&mut self, offset: u64, paint: &[u8], out: &mut Outgoing) {
        let mut at = 0;
        for part in paint.chunks(MAX_DATA) {
            let bytes = Bytes::copy_from_slice(part);
            out.push(Body::Data(Data { stream: SCREEN, offset: at, bytes }));
            at += part.len() as u64;
        }
        out.push(Body::Painted(Painted { offset }));
        (self.sent, self.limit) = (offset, offset + VIEW);
        (self.stalled, self.behind) = (None, false);
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
        self.limit = self.limit.max(limit);
    }

    /// How much more it may be sent, in bytes; `None` where nobody waits for it. Call before
    /// anything is read for it: it counts how long it takes nothing.
    pub(crate) fn room(&mut self, now: Duration) -> Option<u64> {
        if self.behind {
            return None;
        }
        let room = self.limit.saturating_sub(self.sent);
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

    /// Sends output that begins at `offset`, which is within its room.
    pub(crate) fn send(&mut self, offset: u64, bytes: &Bytes, out: &mut Outgoing) {
        if !self.behind {
            self.sent = offset + bytes.len() as u64;
            out.push(Body::Data(Data { stream: LOG, offset, bytes: bytes.clone() }));
        }
    }

    /// Whether it was behind and takes bytes again: it needs the screen.
    pub(crate) fn is_back(&self, out: &Outgoing) -> bool {
        self.behind && self.limit > self.sent && out.len() == 0
    }

    pub(crate) fn show_again(&mut self, offset: u64, paint: &[u8], out: &mut Outgoing) {
        self.show(offset, paint, out);
    }

    /// Takes what was typed: whether it is in order and within its credit.
    pub(crate) fn takes(&mut self, offset: u64, length: usize) -> bool {
        let fits = offset == self.typed && offset + length as u64 <= self.typed_limit;
        self.typed += length as u64;
        fits
    }

    /// The program took so much of what was typed.
    pub(crate) fn was_taken(&mut self, length: usize, out: &mut Outgoing) {
        self.taken += length as u64;
        if self.typed_limit - self.taken <= TYPED / 2 {
            self.typed_limit = self.taken + TYPED;
            self.grant_typing(out);
        }
    }
}

pub(crate) fn size(rows: u32, columns: u32) -> (u16, u16) {
    // A terminal that tells no size is taken for the usual one.
    let side = |side: u32, usual: u16| match u16::try_from(side) {
        Ok(0) | Err(_) => usual,
        Ok(side) => side.min(1000),
    };
    (side(rows, 24), side(columns, 80))
}

pub(crate) fn winsize((ws_row, ws_col): (u16, u16)) -> Winsize {
    Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn viewer(out: &mut Outgoing) -> Viewer {
        let attach = Attach { name: "a".into(), rows: 24, columns: 80, read_only: false };
        Viewer::new(&attach, 100, b"paint", out)
    }

    #[test]
    fn one_who_takes_nothing_is_waited_for_in_bounds_and_painted_anew() {
        let mut out = Outgoing::default();
        let mut viewer = viewer(&mut out);
        let second = Duration::from_secs(1);
        assert_eq!(viewer.room(second), Some(VIEW));
        for at in (0..VIEW).step_by(1 << 15) {
            viewer.send(100 + at, &Bytes::from(vec![0; 1 << 15]), &mut Outgoing::default());
        }
        assert_eq!(viewer.room(2 * second), Some(0));
        assert_eq!(viewer.deadline(), Some(7 * second));
        assert_eq!(viewer.room(7 * second), None, "the program goes on without it");
        let empty = Outgoing::default();
        assert!(!viewer.is_back(&empty));
        viewer.grant(100 + VIEW + 1);
        assert!(viewer.is_back(&empty));
        viewer.show_again(9_000_000, b"paint", &mut out);
        assert_eq!(viewer.room(8 * second), Some(VIEW));
    }

    #[test]
    fn typing_beyond_its_credit_or_out_of_order_is_refused() {
        let mut out = Outgoing::default();
        let mut viewer = viewer(&mut out);
        assert!(viewer.takes(0, 10) && viewer.takes(10, (1 << 16) - 10));
        assert!(!viewer.takes(TYPED, 1));
        let mut other = self::viewer(&mut out);
        assert!(!other.takes(5, 1));
    }
}
