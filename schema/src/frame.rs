//! Frames: a length, a sequence number, one message. Bytes in, messages out; no I/O.
//!
//! ```text
//! 0        4                12
//! | length | sequence       | prost message, `length` bytes, at most 64 KiB |
//! ```
//!
//! Both numbers are big-endian. The sequence starts at 0 and grows by one a frame in each
//! direction; a gap or a repeat means that bytes were lost or doubled, and ends the stream.

use prost::Message as _;
use prost::bytes::{Buf as _, BytesMut};

use crate::message::{Body, Message};

/// The largest message, in bytes. A length above it is garbage, not a message to wait for.
pub const MAX_MESSAGE: usize = 64 * 1024;

/// The most bytes that one [`Body::Data`] carries, so that the message around it stays in bounds.
pub const MAX_DATA: usize = MAX_MESSAGE - 64;

const HEADER: usize = 12;

/// Room that a decoder has for one read, in bytes: what a pipe holds.
const READ: usize = 64 * 1024;

/// Why a stream of frames cannot go on. Every variant is final for its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// The header announces, or the caller tries to send, more than [`MAX_MESSAGE`] bytes.
    TooLong(usize),
    /// A frame is missing or came twice.
    OutOfSequence {
        /// The number that should have come.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// The message does not decode, or says nothing this version knows.
    Malformed(String),
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong(length) => {
                write!(f, "a frame of {length} bytes is longer than {MAX_MESSAGE}")
            }
            Self::OutOfSequence { expected, found } => {
                write!(f, "frame {found} came where frame {expected} was due")
            }
            Self::Malformed(why) => write!(f, "a frame does not decode: {why}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Turns messages into frames, numbering them.
#[derive(Debug, Default)]
pub struct Encoder {
    next: u64,
}

impl Encoder {
    /// Appends the frame of `body` to `out`. On an error `out` is as it was.
    pub fn encode(&mut self, body: Body, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let message = Message { body: Some(body) };
        let length = message.encoded_len();
        if length > MAX_MESSAGE {
            return Err(FrameError::TooLong(length));
        }
        let header = u32::try_from(length).expect("MAX_MESSAGE fits in 32 bits");
        out.reserve(HEADER + length);
        out.extend_from_slice(&header.to_be_bytes());
        out.extend_from_slice(&self.next.to_be_bytes());
        message.encode_raw(out);
        self.next += 1;
        Ok(())
    }
}

/// Turns received bytes into messages. Holds at most one read more than one frame. The bytes of a
/// [`Body::Data`] are those that were read, not a copy.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
    next: u64,
}

impl Decoder {
    /// Takes bytes as they came from the stream, cut anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Where the next bytes of the stream are to be appended; it has room for 64 KiB.
    pub fn space(&mut self) -> &mut BytesMut {
        self.buffer.reserve(READ);
        &mut self.buffer
    }

    /// Lets `read` fill a part of 64 KiB and takes as many bytes of it as `read` says.
    ///
    /// # Errors
    /// Those of `read`; nothing is taken then.
    pub fn read_with<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let before = self.buffer.len();
        self.space().resize(before + READ, 0);
        let result = read(&mut self.buffer[before..]);
        let taken = result.as_ref().map_or(0, |&taken| taken.min(READ));
        self.buffer.truncate(before + taken);
        result
    }

    /// The next whole message, or `None` until more bytes are pushed.
    ///
    /// # Errors
    /// Any [`FrameError`]; the decoder must not be used after one.
    pub fn next_message(&mut self) -> Result<Option<Body>, FrameError> {
        let Some((header, rest)) = self.buffer.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let (length, sequence) = parse_header(header);
        if length > MAX_MESSAGE {
            return Err(FrameError::TooLong(length));
        }
        if sequence != self.next {
            return Err(FrameError::OutOfSequence { expected: self.next, found: sequence });
        }
        if rest.len() < length {
            return Ok(None);
        }
        let mut bytes = self.buffer.split_to(HEADER + length).freeze();
        bytes.advance(HEADER);
        let message =
            Message::decode(bytes).map_err(|error| FrameError::Malformed(error.to_string()))?;
        self.next += 1;
        let body = message.body.ok_or_else(|| {
            FrameError::Malformed("it holds no message that this version knows".into())
        })?;
        Ok(Some(body))
    }
}

fn parse_header(header: &[u8; HEADER]) -> (usize, u64) {
    let (length, sequence) = header.split_at(4);
    let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
    let sequence = u64::from_be_bytes(sequence.try_into().expect("eight bytes"));
    (usize::try_from(length).unwrap_or(usize::MAX), sequence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Credit, Data, Ping};

    fn frames(bodies: &[Body]) -> Vec<u8> {
        let mut encoder = Encoder::default();
        let mut out = Vec::new();
        for body in bodies {
            encoder.encode(body.clone(), &mut out).unwrap();
        }
        out
    }

    fn sample() -> Vec<Body> {
        vec![
            Body::Ping(Ping {}),
            Body::Data(Data { stream: 1, offset: 1 << 40, bytes: vec![0, 255, b'\n'].into() }),
            Body::Credit(Credit { stream: 2, limit: u64::MAX }),
        ]
    }

    #[test]
    fn messages_survive_any_cut() {
        let bytes = frames(&sample());
        for cut in 1..bytes.len() {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for chunk in bytes.chunks(cut) {
                decoder.push(chunk);
                while let Some(body) = decoder.next_message().unwrap() {
                    seen.push(body);
                }
            }
            assert_eq!(seen, sample(), "cut into pieces of {cut}");
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_at_once() {
        let mut decoder = Decoder::default();
        decoder.push(&[0xff; HEADER]);
        assert_eq!(decoder.next_message(), Err(FrameError::TooLong(0xffff_ffff)));
    }

    #[test]
    fn a_lost_frame_and_a_doubled_frame_are_seen() {
        let first = frames(&[Body::Ping(Ping {})]);
        let mut decoder = Decoder::default();
        decoder.push(&first);
        decoder.push(&first);
        assert_eq!(decoder.next_message(), Ok(Some(Body::Ping(Ping {}))));
        assert_eq!(
            decoder.next_message(),
            Err(FrameError::OutOfSequence { expected: 1, found: 0 })
        );
    }

    #[test]
    fn an_unknown_message_is_malformed_not_ignored() {
        let mut decoder = Decoder::default();
        decoder.push(&[0; HEADER]);
        assert!(matches!(decoder.next_message(), Err(FrameError::Malformed(_))));
    }

    #[test]
    fn the_largest_data_fits_and_one_more_message_byte_does_not() {
        let data = |len| {
            Body::Data(Data { stream: u32::MAX, offset: u64::MAX, bytes: vec![7; len].into() })
        };
        let mut out = Vec::new();
        Encoder::default().encode(data(MAX_DATA), &mut out).unwrap();
        let before = out.clone();
        let error = Encoder::default().encode(data(MAX_MESSAGE), &mut out).unwrap_err();
        assert!(matches!(error, FrameError::TooLong(_)));
        assert_eq!(out, before);
    }
}
