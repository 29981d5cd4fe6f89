//! A kept HTTP/1.1 connection that carries one request at a time.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use wire::chunk;
use wire::http1::{BodyDecoder, Framing, ResponseHead};

use super::Clock;
use super::answer::Answer;
use crate::record::Failure;

/// Most bytes of a read.
const INPUT: usize = 64 << 10;
/// A longer head is no head.
const MAX_HEAD: usize = 256 << 10;
/// A longer head is not worth a comparison.
const MAX_KNOWN_HEAD: usize = 2 << 10;
/// How long the end of a body may follow `[DONE]`; the sample is complete already.
const DRAIN: Duration = Duration::from_secs(1);

/// What a worker's connections use in turn: each read is taken apart before the next.
#[derive(Debug)]
pub(super) struct Desk {
    clock: Clock,
    input: Box<[u8]>,
    heads: Heads,
    chunks: chunk::Reader,
}

impl Desk {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            input: vec![0; INPUT].into(),
            heads: Heads::default(),
            chunks: chunk::Reader::default(),
        }
    }
}

/// Reads heads; one with the bytes of the last is known.
#[derive(Debug, Default)]
struct Heads {
    bytes: Vec<u8>,
    head: Option<ResponseHead>,
}

impl Heads {
    fn read(&mut self, bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, Failure> {
        if let Some(head) = self.head.filter(|_| bytes.starts_with(&self.bytes)) {
            return Ok(Some((head, self.bytes.len())));
        }
        let parsed = ResponseHead::parse(bytes).map_err(|_| Failure::BadHttp)?;
        if let Some((head, length)) = parsed.filter(|&(_, length)| length <= MAX_KNOWN_HEAD) {
            self.bytes.clear();
            self.bytes.extend_from_slice(&bytes[..length]);
            self.head = Some(head);
        }
        Ok(parsed)
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = tokio::time::timeout(timeout, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Sends a request and reads its answer to the end.
    pub(super) async fn exchange(
        &mut self,
        request: &[u8],
        desk: &RefCell<Desk>,
        answer: &mut Answer,
    ) -> Result<Ended, Failure> {
        self.stream.write_all(request).await.map_err(cut)?;
        let mut reading = Reading::Head(Vec::new());
        loop {
            let done = answer.said.done_ns;
            let read = std::future::poll_fn(|context| {
                self.poll_read(context, &mut desk.borrow_mut(), &mut reading, answer)
            });
            let ended = match done {
                None => read.await?,
                // Only the end is missing, and may be.
                Some(at_ns) => match tokio::time::timeout(DRAIN, read).await {
                    Err(_) | Ok(Err(Failure::Cut)) => Some(Ended {
                        at_ns,
                        reusable: false,
                    }),
                    Ok(ended) => ended?,
                },
            };
            if let Some(ended) = ended {
                return Ok(ended);
            }
        }
    }

    /// Reads once, and takes what has come apart.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        desk: &mut Desk,
        reading: &mut Reading,
        answer: &mut Answer,
    ) -> Poll<Result<Option<Ended>, Failure>> {
        let mut input = ReadBuf::new(&mut desk.input);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut input)).map_err(cut)?;
        let count = input.filled().len();
        let part = Part {
            bytes: &desk.input[..count],
            at_ns: desk.clock.now(),
        };
        answer.bytes += count as u64;
        Poll::Ready(reading.take(part, &mut desk.heads, &mut desk.chunks, answer))
    }
}

/// What a read brought; nothing where the server closed the connection.
#[derive(Clone, Copy)]
struct Part<'a> {
    bytes: &'a [u8],
    /// When it returned, in nanoseconds from the run's start.
    at_ns: u64,
}

/// How far an answer has been read.
#[derive(Debug)]
enum Reading {
    /// With what there is of a head that is not all there.
    Head(Vec<u8>),
    Body(ResponseHead, BodyDecoder),
}

impl Reading {
    fn take(
        &mut self,
        part: Part<'_>,
        heads: &mut Heads,
        chunks: &mut chunk::Reader,
        answer: &mut Answer,
    ) -> Result<Option<Ended>, Failure> {
        match self {
            Self::Head(_) if part.bytes.is_empty() => Err(Failure::Cut),
            Self::Head(begun) if begun.is_empty() => {
                let Some((head, length)) = final_head(part.bytes, heads)? else {
                    begun.extend_from_slice(part.bytes);
                    return Ok(None);
                };
                let bytes = &part.bytes[length..];
                self.begin(head, Part { bytes, ..part }, chunks, answer)
            }
            Self::Head(begun) => {
                begun.extend_from_slice(part.bytes);
                let Some((head, length)) = final_head(begun, heads)? else {
                    return Ok(None);
                };
                let bytes = &std::mem::take(begun)[length..];
                self.begin(head, Part { bytes, ..part }, chunks, answer)
            }
            Self::Body(head, decoder) => body(*head, decoder, part, chunks, answer),
        }
    }

    fn begin(
        &mut self,
        head: ResponseHead,
        part: Part<'_>,
        chunks: &mut chunk::Reader,
        answer: &mut Answer,
    ) -> Result<Option<Ended>, Failure> {
        answer.begin(head);
        let mut decoder = BodyDecoder::new(head.framing);
        if part.bytes.is_empty() && !decoder.is_complete() {
            *self = Self::Body(head, decoder);
            return Ok(None);
        }
        let ended = body(head, &mut decoder, part, chunks, answer);
        *self = Self::Body(head, decoder);
        ended
    }
}

/// The first head that is not of an interim answer, and where it ends; `None` asks for more bytes.
fn final_head(bytes: &[u8], heads: &mut Heads) -> Result<Option<(ResponseHead, usize)>, Failure> {
    let mut from = 0;
    while let Some((head, length)) = heads.read(&bytes[from..])? {
        from += length;
        if head.status >= 200 {
            return Ok(Some((head, from)));
        }
    }
    if bytes.len() - from >= MAX_HEAD {
        return Err(Failure::BadHttp);
    }
    Ok(None)
}

/// Takes a part of the body; nothing is left of it unless the answer has ended.
fn body(
    head: ResponseHead,
    decoder: &mut BodyDecoder,
    part: Part<'_>,
    chunks: &mut chunk::Reader,
    answer: &mut Answer,
) -> Result<Option<Ended>, Failure> {
    let Part { bytes, at_ns } = part;
    let taken = decoder
        .feed(bytes, |content| answer.feed(content, at_ns, chunks))
        .map_err(|_| Failure::BadHttp)?;
    let done = answer.said.done_ns.is_some();
    let ends = decoder.is_complete() || done && head.framing == Framing::UntilClose;
    let closed = bytes.is_empty() && !ends;
    if closed && !decoder.ends_with_connection() {
        return Err(Failure::Cut);
    }
    Ok((ends || closed).then(|| Ended {
        at_ns: answer.finish(at_ns, chunks),
        reusable: head.keep_alive && ends && taken == bytes.len(),
    }))
}

/// How an answer ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// When it was complete, in nanoseconds from the run's start.
    pub(super) at_ns: u64,
    /// The connection can carry another request.
    pub(super) reusable: bool,
}

fn cut(_: io::Error) -> Failure {
    Failure::Cut
}
