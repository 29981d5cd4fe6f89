//! Requests that come in parts or in chunks.

use std::io;
use std::sync::Arc;
use std::task::Poll;

use plan::Route;
use plan::reply::Reply;
use plan::stub::Context;
use tokio::time::Instant;
use wire::http1::{self, BodyDecoder, Framing, RequestHead};

use super::Connection;
use crate::cpu;
use crate::exchange::{Arrived, Exchange};
use crate::local::Phase;

/// Chunk framing above this, and eight bytes a byte of content, is no request.
const MAX_FRAMING: usize = 1 << 20;
/// Most room that is made for a body before it comes, in bytes.
const MAX_RESERVED: usize = 1 << 20;

/// A body above this is read by a stub on a thread of its own, so that nobody else waits meanwhile.
const LARGE: usize = 256 << 10;

/// A body whose bytes are all there.
enum Body {
    /// Behind the head, so many bytes.
    Behind(usize),
    /// From chunks; so many bytes of input were used.
    Chunked(Vec<u8>, usize),
}

/// A request whose bytes are all there.
struct Request {
    body: Body,
    /// Length of the head.
    head: usize,
    /// The request and what came behind it.
    input: Vec<u8>,
    received: Instant,
}

impl Request {
    fn body(&self) -> &[u8] {
        match &self.body {
            Body::Behind(length) => &self.input[self.head..self.head + length],
            Body::Chunked(content, _) => content,
        }
    }

    fn used(&self) -> usize {
        match self.body {
            Body::Behind(length) => self.head + length,
            Body::Chunked(_, used) => used,
        }
    }

    /// Does something with it as it arrived.
    fn with<T>(&self, act: impl FnOnce(&Arrived<'_>) -> T) -> T {
        let head = RequestHead::parse(&self.input).ok().flatten();
        let (head, length) = head.expect("the head was parsed before the body was read");
        act(&Arrived {
            body: self.body(),
            head: &head,
            head_bytes: &self.input[..length],
            received: self.received,
        })
    }
}

/// How a body ended.
enum Read {
    /// As it should.
    Complete(Body),
    /// Too early.
    Ended,
    /// In bytes that are no HTTP.
    Invalid,
    /// Beyond the limits.
    TooLarge,
}

impl Connection<'_> {
    /// Reads the rest of the request whose start is in the input, and decides the answer to it; `false` when
    /// there is none to come.
    pub(super) async fn rest(&mut self, exchange: &mut Exchange) -> io::Result<bool> {
        let (length, framing, waits) = loop {
            if let Ok(Some((head, length))) = RequestHead::parse(&self.input) {
                break (length, head.framing, head.expect_continue);
            }
            if !self.read_more(Phase::Draining).await? {
                return Ok(false);
            }
            if self.arrived(Instant::now(), exchange) {
                return Ok(true);
            }
        };
        if waits && framing != Framing::Length(0) {
            self.write_continue().await?;
        }
        match self.body(length, framing).await? {
            Read::Ended => return Ok(false),
            Read::Complete(body) => {
                let request = Request {
                    body,
                    head: length,
                    input: std::mem::take(&mut self.input),
                    received: Instant::now(),
                };
                self.decide(request, exchange).await?;
            }
            Read::Invalid => {
                self.invalid(exchange);
            }
            Read::TooLarge => {
                let input = std::mem::take(&mut self.input);
                exchange.too_large(self, &input);
            }
        }
        Ok(true)
    }

    /// Decides the answer to a request, of which the input keeps what came behind it.
    async fn decide(&mut self, request: Request, exchange: &mut Exchange) -> io::Result<()> {
        let request = if request.body().len() > LARGE {
            let (request, reply) = self.decide_aside(request).await?;
            request.with(|arrived| exchange.answer(self, arrived, reply));
            request
        } else {
            request.with(|arrived| exchange.decide(self, arrived));
            request
        };
        let used = request.used();
        self.input = request.input;
        self.input.drain(..used);
        Ok(())
    }

    /// Asks the stub on another thread.
    async fn decide_aside(&self, request: Request) -> io::Result<(Request, Result<Reply, Route>)> {
        let worker = self.worker;
        let mut context = Context::new(worker.context.borrow_mut().random.u64(..));
        context.created = worker.date(request.received).0;
        let (stub, wants_facts) = (Arc::clone(&worker.stub), worker.shared.truth.is_some());
        let decided = tokio::task::spawn_blocking(move || {
            let before = cpu::thread();
            let reply = request.with(|arrived| {
                let call = arrived.call(wants_facts);
                stub.reply(&call, &mut context)
            });
            (request, reply, cpu::thread().saturating_sub(before))
        });
        let (request, reply, time) = decided.await?;
        worker.counters.count_aside(time);
        Ok((request, reply))
    }

    /// Reads the body behind a head of so many bytes.
    async fn body(&mut self, head: usize, framing: Framing) -> io::Result<Read> {
        let limit = self.worker.shared.max_body;
        let mut decoder = BodyDecoder::new(framing);
        let mut content = Vec::new();
        let mut used = head;
        loop {
            match framing {
                Framing::Length(length) => {
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    if length > limit {
                        return Ok(Read::TooLarge);
                    }
                    let present = self.input.len() - head;
                    if present >= length {
                        return Ok(Read::Complete(Body::Behind(length)));
                    }
                    self.input.reserve((length - present).min(MAX_RESERVED));
                }
                Framing::Chunked | Framing::UntilClose => {
                    let fed =
                        decoder.feed(&self.input[used..], |part| content.extend_from_slice(part));
                    match fed {
                        Err(_) => return Ok(Read::Invalid),
                        Ok(taken) => used += taken,
                    }
                    // Framing is bounded too: sizes, their extensions, trailers.
                    let framing = self.input.len().saturating_sub(head + content.len());
                    if content.len() > limit || framing > MAX_FRAMING + 8 * content.len() {
                        return Ok(Read::TooLarge);
                    }
                    if decoder.is_complete() {
                        return Ok(Read::Complete(Body::Chunked(content, used)));
                    }
                }
            }
            if !self.read_more(Phase::Stopping).await? {
                return Ok(Read::Ended);
            }
        }
    }

    /// Reads some bytes; `false` when the client ends the connection, or the server by coming to a phase.
    ///
    /// What has sent no whole head is not in flight and ends as soon as the server drains.
    async fn read_more(&mut self, last: Phase) -> io::Result<bool> {
        std::future::poll_fn(|cx| match self.poll_more(cx) {
            Poll::Pending if self.local.phase() >= last => Poll::Ready(Ok(false)),
            read => read.map_ok(|count| count > 0),
        })
        .await
    }

    async fn write_continue(&mut self) -> io::Result<()> {
        let mut bytes = http1::CONTINUE;
        while !bytes.is_empty() {
            match self.stream.try_write(bytes, &[]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
