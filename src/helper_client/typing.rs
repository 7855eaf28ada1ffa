//! What a person types, kept until the machine is known to have it.

use std::collections::VecDeque;
use std::io::Read;

use schema::bytes::Bytes;
use schema::frame::MAX_DATA;
use schema::message::TYPED;
use tokio::sync::mpsc;

use super::streams::read_ahead;

/// The most that is read and not sent, in bytes.
const MOST_WAITING: usize = 64 * 1024;

/// Bytes typed, from the first that the machine may not have.
pub(super) struct Typing {
    chunks: mpsc::Receiver<Bytes>,
    /// It is read, for the keys that leave, and goes nowhere.
    ignored: bool,
    kept: VecDeque<u8>,
    /// Offset of the first byte kept, and of the first that was not sent.
    base: u64,
    sent: u64,
    /// The machine takes bytes up to here.
    limit: u64,
}

impl Typing {
    pub(super) fn start(input: Box<dyn Read + Send>, ignored: bool) -> Self {
        let (kept, chunks) = (VecDeque::new(), read_ahead(input));
        Self { chunks, ignored, kept, base: 0, sent: 0, limit: 0 }
    }

    fn unsent(&self) -> usize {
        self.kept.len() - usize::try_from(self.sent - self.base).unwrap_or(0)
    }

    /// How many bytes the machine is known to have.
    pub(super) fn confirmed(&self) -> u64 {
        self.base
    }

    /// Whether something waits to be sent.
    pub(super) fn waits(&self) -> bool {
        self.unsent() > 0
    }

    /// Reads what is typed next; `false` at the end. Cancel safe; pending while too much waits.
    pub(super) async fn read(&mut self) -> bool {
        if self.unsent() >= MOST_WAITING {
            return std::future::pending().await;
        }
        let Some(chunk) = self.chunks.recv().await else { return false };
        if !self.ignored {
            self.kept.extend(&chunk);
        }
        true
    }

    /// The next bytes that may be sent, and their offset.
    pub(super) fn next(&mut self) -> Option<(u64, Bytes)> {
        let room = usize::try_from(self.limit.saturating_sub(self.sent)).unwrap_or(MAX_DATA);
        let length = self.unsent().min(room).min(MAX_DATA);
        if length == 0 {
            return None;
        }
        let start = self.kept.len() - self.unsent();
        let bytes: Vec<u8> = self.kept.range(start..start + length).copied().collect();
        let offset = self.sent;
        self.sent += length as u64;
        Some((offset, bytes.into()))
    }

    /// The machine takes bytes up to `limit`: it has those that its program took.
    pub(super) fn may_go_to(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
        self.forget(limit.saturating_sub(TYPED));
    }

    fn forget(&mut self, before: u64) {
        let count = before.min(self.sent).saturating_sub(self.base);
        self.kept.drain(..usize::try_from(count).unwrap_or(0));
        self.base += count;
    }

    /// Another connection begins: nothing may go over it yet.
    pub(super) fn hold(&mut self) {
        self.limit = 0;
    }

    /// It is there: the machine has so many bytes of this attachment, so the rest is sent again.
    /// `None`: it does not know the attachment, and what became of the bytes sent, nobody knows; they
    /// are not sent twice. `false` where that cannot be.
    pub(super) fn came(&mut self, typed: Option<u64>) -> bool {
        if let Some(typed) = typed {
            if typed < self.base || typed > self.sent {
                return false;
            }
            self.forget(typed);
            self.sent = typed;
        } else {
            self.forget(self.sent);
            (self.base, self.sent) = (0, 0);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn typed(text: &'static [u8]) -> Typing {
        let mut typing = Typing::start(Box::new(text), false);
        assert!(typing.read().await);
        typing
    }

    fn next(typing: &mut Typing) -> Option<(u64, Vec<u8>)> {
        typing.next().map(|(offset, bytes)| (offset, bytes.to_vec()))
    }

    #[tokio::test]
    async fn what_did_not_come_is_sent_again_and_nothing_twice() {
        let mut typing = typed(b"abcdef").await;
        assert_eq!(next(&mut typing), None, "without credit");
        typing.may_go_to(4);
        assert_eq!(next(&mut typing), Some((0, b"abcd".to_vec())));
        typing.hold();
        assert_eq!(next(&mut typing), None, "credit is of one connection");
        assert!(typing.came(Some(3)));
        typing.may_go_to(TYPED);
        assert_eq!(next(&mut typing), Some((3, b"def".to_vec())));
        assert!(!typing.came(Some(2)), "that was forgotten: it had come");
        assert!(!typing.came(Some(7)), "that was never sent");
        assert!(!typing.read().await);
    }

    #[tokio::test]
    async fn what_was_sent_to_one_who_forgot_is_not_sent_again() {
        let mut typing = typed(b"abcdef").await;
        typing.may_go_to(4);
        assert_eq!(next(&mut typing), Some((0, b"abcd".to_vec())));
        assert!(typing.came(None));
        typing.may_go_to(TYPED);
        assert_eq!(next(&mut typing), Some((0, b"ef".to_vec())));
    }

    #[tokio::test]
    async fn what_the_program_took_is_forgotten() {
        let mut typing = typed(b"abcdef").await;
        typing.may_go_to(TYPED);
        assert!(next(&mut typing).is_some());
        typing.may_go_to(TYPED + 5);
        assert_eq!(typing.kept, b"f");
    }
}
