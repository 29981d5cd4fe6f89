//! Message bodies, whatever the cuts of the byte stream.

use super::Framing;

/// Takes a message body out of a byte stream, whatever its cuts.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Complete,
    /// Content left of a body of known length, or of a chunk.
    Content {
        left: u64,
        chunked: bool,
    },
    /// The CRLF behind a chunk's content.
    ChunkEnd {
        cr: bool,
    },
    Size(Size),
    /// Trailer lines; `length` counts the bytes of the current one.
    Trailer {
        length: usize,
        cr: bool,
    },
    UntilClose,
}

/// The line with a chunk's size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Size {
    bytes: u64,
    digits: u8,
    /// Behind the digits, where anything may stand.
    extension: bool,
    cr: bool,
}

/// A chunked body that breaks the format.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("malformed chunked body")]
pub struct BadChunk;

impl BodyDecoder {
    /// A decoder for one body.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Chunked => State::SIZE,
            Framing::Length(0) => State::Complete,
            Framing::Length(left) => State::Content {
                left,
                chunked: false,
            },
            Framing::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// The body's end has been read.
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Whether the connection's end may end this body.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.state, State::Complete | State::UntilClose)
    }

    /// Takes what belongs to the body from the front of `bytes`, calls `content` with each part of
    /// its content, and gives the number of bytes taken.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut content: impl FnMut(&[u8]),
    ) -> Result<usize, BadChunk> {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                State::Complete => break,
                State::UntilClose => {
                    content(&bytes[at..]);
                    at = bytes.len();
                }
                State::Content { left, chunked } => {
                    let available = bytes.len() - at;
                    let taken = usize::try_from(left).map_or(available, |left| left.min(available));
                    content(&bytes[at..at + taken]);
                    at += taken;
                    self.state = match (left - taken as u64, chunked) {
                        (0, false) => State::Complete,
                        (0, true) => State::ChunkEnd { cr: false },
                        (left, chunked) => State::Content { left, chunked },
                    };
                }
                _ => {
                    if self.state == State::SIZE {
                        at += whole_chunks(&bytes[at..], &mut content);
                    }
                    if let Some(&byte) = bytes.get(at) {
                        self.state = self.state.after(byte)?;
                        at += 1;
                    }
                }
            }
        }
        Ok(at)
    }
}

/// Takes chunks that are all there, usually written and not empty from the front; gives their length.
fn whole_chunks(bytes: &[u8], content: &mut impl FnMut(&[u8])) -> usize {
    let mut at = 0;
    while let Some((chunk, length)) = whole_chunk(&bytes[at..]) {
        content(chunk);
        at += length;
    }
    at
}

/// The content of a chunk, and the length of the whole.
fn whole_chunk(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (mut size, mut digits) = (0, 0);
    for &byte in bytes.iter().take(6) {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => break,
        };
        size = size * 16 + usize::from(digit);
        digits += 1;
    }
    let content = bytes[digits..].strip_prefix(b"\r\n")?;
    let (chunk, behind) = content.split_at_checked(size)?;
    let usual = size > 0 && behind.starts_with(b"\r\n");
    usual.then_some((chunk, digits + size + 4))
}

/// Bytes of a trailer line that are read.
const MAX_TRAILER: usize = 8192;

impl State {
    const SIZE: Self = Self::Size(Size {
        bytes: 0,
        digits: 0,
        extension: false,
        cr: false,
    });

    /// The state behind one byte of chunk framing.
    fn after(self, byte: u8) -> Result<Self, BadChunk> {
        match (self, byte) {
            (Self::Size(size), byte) => size.after(byte),
            (Self::ChunkEnd { cr: false }, b'\r') => Ok(Self::ChunkEnd { cr: true }),
            (Self::ChunkEnd { cr: true }, b'\n') => Ok(Self::SIZE),
            (
                Self::Trailer {
                    length: 0,
                    cr: true,
                },
                b'\n',
            ) => Ok(Self::Complete),
            (Self::Trailer { cr: true, .. }, b'\n') => Ok(Self::trailer(0, false)),
            (Self::Trailer { length, cr: false }, b'\r') => Ok(Self::trailer(length, true)),
            (Self::Trailer { length, cr: false }, _) if length < MAX_TRAILER => {
                Ok(Self::trailer(length + 1, false))
            }
            _ => Err(BadChunk),
        }
    }

    fn trailer(length: usize, cr: bool) -> Self {
        Self::Trailer { length, cr }
    }
}

impl Size {
    /// Digits of a size below 2^60.
    const MAX_DIGITS: u8 = 15;

    fn after(self, byte: u8) -> Result<State, BadChunk> {
        match byte {
            b'\n' if self.cr && self.digits > 0 => Ok(match self.bytes {
                0 => State::trailer(0, false),
                left => State::Content {
                    left,
                    chunked: true,
                },
            }),
            _ if self.cr => Err(BadChunk),
            b'\r' => Ok(State::Size(Self { cr: true, ..self })),
            _ if self.extension => Ok(State::Size(self)),
            b';' | b' ' if self.digits > 0 => Ok(State::Size(Self {
                extension: true,
                ..self
            })),
            _ if self.digits < Self::MAX_DIGITS => {
                let digit = char::from(byte).to_digit(16).ok_or(BadChunk)?;
                Ok(State::Size(Self {
                    bytes: self.bytes * 16 + u64::from(digit),
                    digits: self.digits + 1,
                    ..self
                }))
            }
            _ => Err(BadChunk),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http1::{LAST_CHUNK, RequestHead, ResponseHead, write_chunk};

    fn decode(framing: Framing, cuts: &[&[u8]]) -> (Result<usize, BadChunk>, Vec<u8>, bool) {
        let mut decoder = BodyDecoder::new(framing);
        let mut content = Vec::new();
        let mut taken = 0;
        for bytes in cuts {
            match decoder.feed(bytes, |part| content.extend_from_slice(part)) {
                Ok(count) => taken += count,
                Err(error) => return (Err(error), content, false),
            }
        }
        (Ok(taken), content, decoder.is_complete())
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for bad in [
            "x\r\n",
            "\r\n",
            "5\r\nhelloX",
            "5\rX",
            "ffffffffffffffff\r\n",
            "-1\r\n",
        ] {
            let (result, _, _) = decode(Framing::Chunked, &[bad.as_bytes()]);
            assert_eq!(result, Err(BadChunk), "{bad:?}");
        }
    }

    #[test]
    fn extensions_and_trailers_are_skipped() {
        let body = b"5;a=b\r\nhello\r\n0\r\nx: y\r\n\r\nGET";
        let (taken, content, complete) = decode(Framing::Chunked, &[body]);
        assert_eq!(
            (taken, content, complete),
            (Ok(body.len() - 3), b"hello".to_vec(), true)
        );
    }

    proptest! {
        #[test]
        fn any_cut_of_a_chunked_body_yields_its_content(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut bytes = Vec::new();
            for part in &parts {
                write_chunk(&mut bytes, |out| out.extend_from_slice(part));
            }
            bytes.extend_from_slice(LAST_CHUNK);
            let length = bytes.len();
            bytes.extend_from_slice(b"next");
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(Framing::Chunked, &pieces), (Ok(length), parts.concat(), true));
        }

        #[test]
        fn no_head_panics(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(Some((head, length))) = RequestHead::parse(&bytes) {
                prop_assert!(length <= bytes.len());
                prop_assert!(head.path().len() <= bytes.len());
            }
            if let Ok(Some((_, length))) = ResponseHead::parse(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
