//! Encoded frames that a stream has not taken yet.

use std::io;
use std::os::fd::AsFd;

use schema::frame::{Encoder, FrameError};
use schema::message::Body;

/// Frames on their way out of this process, in order.
#[derive(Default)]
pub(crate) struct Outgoing {
    encoder: Encoder,
    bytes: Vec<u8>,
    start: usize,
}

impl Outgoing {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Bytes before the first frame.
    pub(crate) fn preface(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn push(&mut self, body: Body) {
        // Every message of ours is far below the limit, or cut to it where it is made.
        let result = self.encoder.encode(body, &mut self.bytes);
        debug_assert_eq!(result, Ok::<(), FrameError>(()));
    }

    /// What waits, for tests.
    #[cfg(test)]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let bytes = self.bytes.split_off(self.start);
        (self.bytes, self.start) = (Vec::new(), 0);
        bytes
    }

    /// Writes what the stream takes now; it must not block.
    pub(crate) fn write(&mut self, fd: impl AsFd) -> io::Result<()> {
        while self.len() > 0 {
            match rustix::io::write(&fd, &self.bytes[self.start..]) {
                Ok(written) => self.start += written,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
        Ok(())
    }
}
