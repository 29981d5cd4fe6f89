//! A kept HTTP/1.1 connection that carries one request at a time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wire::http1::{BodyDecoder, Framing, ResponseHead};

use super::Clock;
use super::answer::Answer;
use crate::record::Failure;

const INPUT: usize = 16 << 10;
/// A longer head is no head.
const MAX_HEAD: usize = 256 << 10;
/// How long the end of a body may follow `[DONE]`; the sample is complete already.
const DRAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    /// Bytes of `input` that have been read.
    filled: usize,
    /// When the last read returned, in nanoseconds from the run's start.
    read_ns: u64,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = tokio::time::timeout(timeout, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            input: vec![0; INPUT],
            filled: 0,
            read_ns: 0,
        })
    }

    /// Sends a request and reads its answer to the end.
    pub(super) async fn exchange(
        &mut self,
        request: &[u8],
        stream: bool,
        clock: Clock,
        answer: &mut Answer,
    ) -> Result<Ended, Failure> {
        self.stream.write_all(request).await.map_err(cut)?;
        let (head, body) = self.head(clock, answer).await?;
        answer.begin(head, stream);
        self.body(head, body, clock, answer).await
    }

    /// Reads up to the end of a final head, and tells where in the input the body begins.
    async fn head(
        &mut self,
        clock: Clock,
        answer: &mut Answer,
    ) -> Result<(ResponseHead, usize), Failure> {
        self.filled = 0;
        loop {
            let parsed = ResponseHead::parse(&self.input[..self.filled]);
            match parsed.map_err(|_| Failure::BadHttp)? {
                Some((head, length)) if head.status >= 200 => return Ok((head, length)),
                Some((_, interim)) => {
                    self.input.copy_within(interim..self.filled, 0);
                    self.filled -= interim;
                }
                None if self.filled == MAX_HEAD => return Err(Failure::BadHttp),
                None => {
                    if self.filled == self.input.len() {
                        self.input.resize(self.filled * 2, 0);
                    }
                    if self.read(clock, answer).await.map_err(cut)? == 0 {
                        return Err(Failure::Cut);
                    }
                }
            }
        }
    }

    async fn body(
        &mut self,
        head: ResponseHead,
        mut from: usize,
        clock: Clock,
        answer: &mut Answer,
    ) -> Result<Ended, Failure> {
        let mut decoder = BodyDecoder::new(head.framing);
        loop {
            let (input, at) = (&self.input[from..self.filled], self.read_ns);
            let taken = decoder
                .feed(input, |part| answer.feed(part, at))
                .map_err(|_| Failure::BadHttp)?;
            let done = answer.said.done_ns.is_some();
            if decoder.is_complete() || done && head.framing == Framing::UntilClose {
                let reusable = head.keep_alive && taken == input.len();
                return Ok(ended(answer, at, reusable));
            }
            (from, self.filled) = (0, 0);
            let read = if done {
                let read = tokio::time::timeout(DRAIN, self.read(clock, answer)).await;
                match read {
                    Ok(Ok(count @ 1..)) => count,
                    _ => return Ok(ended(answer, at, false)),
                }
            } else {
                self.read(clock, answer).await.map_err(cut)?
            };
            if read == 0 && decoder.ends_with_connection() {
                return Ok(ended(answer, self.read_ns, false));
            }
            if read == 0 {
                return Err(Failure::Cut);
            }
        }
    }

    async fn read(&mut self, clock: Clock, answer: &mut Answer) -> io::Result<usize> {
        let count = self.stream.read(&mut self.input[self.filled..]).await?;
        self.read_ns = clock.now();
        self.filled += count;
        answer.bytes += count as u64;
        Ok(count)
    }
}

/// How an answer ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// When it was complete, in nanoseconds from the run's start.
    pub(super) at_ns: u64,
    /// The connection can carry another request.
    pub(super) reusable: bool,
}

fn ended(answer: &mut Answer, at: u64, reusable: bool) -> Ended {
    let at_ns = answer.finish(at);
    Ended { at_ns, reusable }
}

fn cut(_: io::Error) -> Failure {
    Failure::Cut
}
