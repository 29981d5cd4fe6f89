//! One client's connection: requests in, one exchange after the other.

use std::io;

use tokio::net::TcpStream;
use wire::http1::{self, BodyDecoder, Framing, RequestHead};

use crate::exchange::{Exchange, Outcome};
use crate::worker::{Phase, Worker};

/// Bytes asked of the kernel at a time.
const READ: usize = 16 << 10;
/// Chunk framing above this, and eight bytes a byte of content, is no request.
const MAX_FRAMING: usize = 1 << 20;
/// A buffer above this is given back after the request that needed it.
const KEEP: usize = 64 << 10;

/// Serves a connection to its end.
pub(crate) async fn serve(stream: TcpStream, worker: &Worker, number: u64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = Connection {
        stream,
        input: Vec::new(),
        output: Vec::new(),
        worker,
        number,
    };
    let mut served_any = false;
    while let Some(request) = connection.request(served_any).await? {
        let outcome = connection.exchange(request).await?;
        served_any = true;
        if outcome == Outcome::Close {
            break;
        }
        connection.shrink();
    }
    Ok(())
}

/// A connection's socket and buffers.
pub(crate) struct Connection<'w> {
    pub(crate) stream: TcpStream,
    /// Bytes read and not yet used.
    pub(crate) input: Vec<u8>,
    /// Bytes to be written.
    pub(crate) output: Vec<u8>,
    pub(crate) worker: &'w Worker,
    pub(crate) number: u64,
}

/// A request whose bytes are all there.
#[derive(Debug)]
enum Request {
    /// Its head is the first `head` bytes of the input; the body follows or was taken apart.
    Complete { head: usize, body: Body },
    /// Bytes that are no HTTP.
    Invalid,
    /// More than the limits allow.
    TooLarge,
}

#[derive(Debug)]
enum Body {
    /// Behind the head, so many bytes.
    Behind(usize),
    /// From chunks; so many bytes of input were used.
    Chunked(Vec<u8>, usize),
    /// Dropped with all that came along: uvicorn stays with HTTP/1 where a client asks for an upgrade,
    /// but its parser reads no further.
    Lost,
}

impl Connection<'_> {
    /// Reads the next request; `None` when there is none to come.
    async fn request(&mut self, served_any: bool) -> io::Result<Option<Request>> {
        loop {
            if !self.input.is_empty() {
                match RequestHead::parse(&self.input) {
                    Err(_) => return Ok(Some(Request::Invalid)),
                    Ok(Some((_, length))) if length > self.worker.shared.max_head => {
                        return Ok(Some(Request::Invalid));
                    }
                    Ok(Some((head, length))) if head.upgrades() => {
                        return Ok(Some(Request::Complete {
                            head: length,
                            body: Body::Lost,
                        }));
                    }
                    Ok(Some((head, length))) => {
                        let (framing, waits) = (head.framing, head.expect_continue);
                        return self.body(length, framing, waits).await;
                    }
                    Ok(None) if self.input.len() > self.worker.shared.max_head => {
                        return Ok(Some(Request::Invalid));
                    }
                    Ok(None) => {}
                }
            }
            let may_idle = served_any && self.input.is_empty();
            if !self.read_more(true, may_idle).await? {
                return Ok(None);
            }
        }
    }

    async fn body(
        &mut self,
        head: usize,
        framing: Framing,
        waits: bool,
    ) -> io::Result<Option<Request>> {
        let limit = self.worker.shared.max_body;
        let mut decoder = BodyDecoder::new(framing);
        let mut content = Vec::new();
        let mut used = head;
        if waits && framing != Framing::Length(0) {
            self.write(http1::CONTINUE, &mut 0).await?;
        }
        loop {
            let complete = match framing {
                Framing::Length(length) => {
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    if length > limit {
                        return Ok(Some(Request::TooLarge));
                    }
                    (self.input.len() - head >= length).then_some(Body::Behind(length))
                }
                Framing::Chunked | Framing::UntilClose => {
                    let fed =
                        decoder.feed(&self.input[used..], |part| content.extend_from_slice(part));
                    match fed {
                        Err(_) => return Ok(Some(Request::Invalid)),
                        Ok(taken) => used += taken,
                    }
                    // Framing is bounded too: sizes, their extensions, trailers.
                    let framing = self.input.len().saturating_sub(head + content.len());
                    if content.len() > limit || framing > MAX_FRAMING + 8 * content.len() {
                        return Ok(Some(Request::TooLarge));
                    }
                    decoder
                        .is_complete()
                        .then(|| Body::Chunked(std::mem::take(&mut content), used))
                }
            };
            if let Some(body) = complete {
                return Ok(Some(Request::Complete { head, body }));
            }
            if !self.read_more(false, false).await? {
                return Ok(None);
            }
        }
    }

    /// Reads some bytes; `false` when the client or the server ends the connection.
    ///
    /// What has sent no whole head is not in flight and ends as soon as the server drains.
    async fn read_more(&mut self, in_head: bool, may_idle: bool) -> io::Result<bool> {
        if self.input.capacity() - self.input.len() < READ / 4 {
            self.input.reserve(READ);
        }
        let mut phase = self.worker.shared.phase.clone();
        let idle_limit = self.worker.shared.keep_alive.filter(|_| may_idle);
        let idle = async {
            match idle_limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let ends = |phase: &Phase| match phase {
            Phase::Serving => false,
            Phase::Draining => in_head,
            Phase::Stopping => true,
        };
        let read = async {
            loop {
                self.stream.readable().await?;
                match self.stream.try_read_buf(&mut self.input) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result,
                }
            }
        };
        tokio::select! {
            biased;
            count = read => Ok(count? > 0),
            _ = phase.wait_for(ends) => Ok(false),
            () = idle => Ok(false),
        }
    }

    async fn exchange(&mut self, request: Request) -> io::Result<Outcome> {
        let input = std::mem::take(&mut self.input);
        let (exchange, used) = match &request {
            Request::Invalid => (Exchange::invalid(self), input.len()),
            Request::TooLarge => (Exchange::too_large(self, &input), input.len()),
            Request::Complete { head, body } => {
                let (body, used) = match body {
                    Body::Behind(length) => (&input[*head..head + length], head + length),
                    Body::Chunked(content, used) => (&content[..], *used),
                    Body::Lost => (&[][..], input.len()),
                };
                (Exchange::new(self, &input, body), used)
            }
        };
        self.input = input;
        self.input.drain(..used);
        exchange.run(self).await
    }

    /// Writes bytes, unless the server gives up first, and adds those that went out to `written`.
    pub(crate) async fn write(&self, mut bytes: &[u8], written: &mut u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(count) => {
                    *written += count as u64;
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut phase = self.worker.shared.phase.clone();
                    tokio::select! {
                        writable = self.stream.writable() => writable?,
                        _ = phase.wait_for(|phase| *phase == Phase::Stopping) => {
                            return Err(io::ErrorKind::TimedOut.into());
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn shrink(&mut self) {
        if self.input.is_empty() && self.input.capacity() > KEEP {
            self.input = Vec::new();
        }
        if self.output.capacity() > KEEP {
            self.output = Vec::new();
        }
    }
}
