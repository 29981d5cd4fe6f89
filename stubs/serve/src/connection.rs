//! One client's connection: requests in, one exchange after the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use wire::http1::{Framing, RequestHead};

use crate::exchange::{Arrived, Exchange, Next, Outcome};
use crate::local::{Local, Phase};
use crate::pacer::Wait;
use crate::worker::Worker;

mod request;

/// Serves a connection to its end.
pub(crate) async fn serve(
    stream: TcpStream,
    worker: &Worker,
    local: &Local,
    number: u64,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut connection = Connection {
        idle: None,
        input: Vec::new(),
        local,
        number,
        stream,
        worker,
    };
    loop {
        let begun = match connection.arrival().await? {
            Arrival::Begun(begun) => Some(begun),
            Arrival::Ended => None,
            // Boxed, as below, so that an idle connection is a small task.
            Arrival::Part => Box::pin(connection.rest()).await?,
        };
        let outcome = match begun {
            None => return Ok(()),
            Some(Begun::Over(outcome)) => outcome,
            Some(Begun::UnderWay(exchange, next)) => {
                Box::pin(connection.finish(exchange, next)).await?
            }
        };
        if outcome == Outcome::Close {
            return Ok(());
        }
        connection.rest_from_now();
    }
}

/// A connection's socket and what it has read.
pub(crate) struct Connection<'w> {
    idle: Option<Idle<'w>>,
    /// Bytes read and not yet used.
    input: Vec<u8>,
    pub(crate) local: &'w Local,
    pub(crate) number: u64,
    pub(crate) stream: TcpStream,
    pub(crate) worker: &'w Worker,
}

/// How long a connection has had no request, where that is limited.
struct Idle<'w> {
    limit: Instant,
    wait: Wait<'w>,
}

/// What comes of reading.
enum Arrival {
    /// A request, and as much of its answer as was due and taken at once.
    Begun(Begun),
    /// The client or the server ends the connection.
    Ended,
    /// The start of a request, now in the input.
    Part,
}

/// An exchange after its first step.
enum Begun {
    /// It has ended.
    Over(Outcome),
    /// It has not, and waits for something.
    UnderWay(Box<Exchange>, Next),
}

impl Connection<'_> {
    /// The next request, or its start.
    async fn arrival(&mut self) -> io::Result<Arrival> {
        if !self.input.is_empty() {
            // Whoever sends ahead gives others their turn between its requests.
            tokio::task::yield_now().await;
            return self.arrived_in_input();
        }
        // A connection that waits has no buffer of its own.
        self.input = Vec::new();
        std::future::poll_fn(|cx| self.poll_arrival(cx)).await
    }

    fn poll_arrival(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        let local = self.local;
        let mut buffer = local.input.borrow_mut();
        let mut read = ReadBuf::new(&mut buffer);
        if self.poll_stream(&mut read, cx)?.is_ready() {
            if read.filled().is_empty() {
                return Poll::Ready(Ok(Arrival::Ended));
            }
            let (arrival, used) = self.arrived(read.filled())?;
            self.input.extend_from_slice(&read.filled()[used..]);
            return Poll::Ready(Ok(arrival));
        }
        if local.phase() >= Phase::Draining {
            return Poll::Ready(Ok(Arrival::Ended));
        }
        if let Some(idle) = &mut self.idle {
            return idle.wait.poll(idle.limit, cx).map_ok(|()| Arrival::Ended);
        }
        Poll::Pending
    }

    fn poll_stream(
        &mut self,
        read: &mut ReadBuf<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, read)
    }

    fn arrived_in_input(&mut self) -> io::Result<Arrival> {
        let mut input = std::mem::take(&mut self.input);
        let (arrival, used) = self.arrived(&input)?;
        input.drain(..used);
        self.input = input;
        Ok(arrival)
    }

    /// Begins to answer a request that is all there; gives the bytes that it used.
    fn arrived(&mut self, input: &[u8]) -> io::Result<(Arrival, usize)> {
        let (head, length) = match self.worker.parse_head(input) {
            Ok(Some((_, length))) if length > self.worker.shared.max_head => {
                return self.invalid(input);
            }
            Ok(Some((head, _))) if self.lacks_host(&head) => return self.invalid(input),
            Ok(Some(parsed)) => parsed,
            Ok(None) if input.len() <= self.worker.shared.max_head => {
                return Ok((Arrival::Part, 0));
            }
            Ok(None) | Err(_) => return self.invalid(input),
        };
        let (body, used) = match head.framing {
            // uvicorn stays with HTTP/1 where a client asks for an upgrade, but its parser reads no
            // further.
            _ if head.upgrades() => (&[][..], input.len()),
            Framing::Length(0) => (&[][..], length),
            Framing::Length(bytes) if !head.expect_continue => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                match input[length..].get(..bytes) {
                    Some(body) if bytes <= self.worker.shared.max_body => (body, length + bytes),
                    _ => return Ok((Arrival::Part, 0)),
                }
            }
            _ => return Ok((Arrival::Part, 0)),
        };
        let arrived = Arrived {
            body,
            head: &head,
            head_bytes: &input[..length],
            received: Instant::now(),
        };
        let exchange = Exchange::new(self, &arrived);
        Ok((Arrival::Begun(self.begin(exchange)?), used))
    }

    fn lacks_host(&self, head: &RequestHead<'_>) -> bool {
        self.worker.stub.dialect.needs_host() && !head.is_http10 && head.header("host").is_none()
    }

    fn invalid(&mut self, input: &[u8]) -> io::Result<(Arrival, usize)> {
        let exchange = Exchange::invalid(self);
        Ok((Arrival::Begun(self.begin(exchange)?), input.len()))
    }

    /// Sends what is due at once, which is mostly all.
    fn begin(&mut self, mut exchange: Exchange) -> io::Result<Begun> {
        match exchange.advance(self) {
            Ok(Next::Over) => Ok(Begun::Over(exchange.end(self, Ok(()))?)),
            Ok(next) => Ok(Begun::UnderWay(Box::new(exchange), next)),
            Err(error) => Ok(Begun::Over(exchange.end(self, Err(error))?)),
        }
    }

    /// Sends the rest of an answer as it falls due.
    async fn finish(&mut self, mut exchange: Box<Exchange>, next: Next) -> io::Result<Outcome> {
        let mut next = Ok(next);
        loop {
            let waited = match next {
                Ok(Next::Over) => return exchange.end(self, Ok(())),
                Ok(Next::Turn) => {
                    tokio::task::yield_now().await;
                    Ok(())
                }
                Ok(Next::Wait(until)) => self.wait(until, &exchange).await,
                Ok(Next::Write) => self.writable().await,
                Err(error) => return exchange.end(self, Err(error)),
            };
            next = waited.and_then(|()| exchange.advance(self));
        }
    }

    /// Waits for a moment, or news; a client that goes away ends the wait, unless it has sent as much ahead as a
    /// head may hold.
    async fn wait(&mut self, until: Instant, exchange: &Exchange) -> io::Result<()> {
        let local = self.local;
        let mut wait = Wait::new(&local.pacer);
        let max_ahead = self.worker.shared.max_head;
        std::future::poll_fn(|cx| {
            if exchange.has_news(cx.waker()) || wait.poll(until, cx)?.is_ready() {
                return Poll::Ready(Ok(()));
            }
            while self.input.len() < max_ahead {
                match self.poll_more(cx)? {
                    Poll::Pending => break,
                    Poll::Ready(0) => {
                        return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                    }
                    Poll::Ready(_) => {}
                }
            }
            self.unless_stopping()
        })
        .await
    }

    async fn writable(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| match self.stream.poll_write_ready(cx) {
            Poll::Pending => self.unless_stopping(),
            ready @ Poll::Ready(_) => ready,
        })
        .await
    }

    /// Goes on to wait unless the server gives up what is in flight.
    fn unless_stopping(&self) -> Poll<io::Result<()>> {
        match self.local.phase() {
            Phase::Stopping => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Phase::Draining | Phase::Serving => Poll::Pending,
        }
    }

    /// Adds bytes to the input; gives how many, none at the client's end.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let local = self.local;
        let mut buffer = local.input.borrow_mut();
        let mut read = ReadBuf::new(&mut buffer);
        self.poll_stream(&mut read, cx).map_ok(|()| {
            self.input.extend_from_slice(read.filled());
            read.filled().len()
        })
    }

    /// Writes what the socket takes at once.
    pub(crate) fn try_write(&self, front: &[u8], back: &[u8]) -> io::Result<usize> {
        match (front, back) {
            (front, []) => self.stream.try_write(front),
            ([], back) => self.stream.try_write(back),
            (front, back) => {
                let both = [io::IoSlice::new(front), io::IoSlice::new(back)];
                self.stream.try_write_vectored(&both)
            }
        }
    }

    /// Counts the time without a request from here on.
    fn rest_from_now(&mut self) {
        if let Some(limit) = self.worker.shared.keep_alive {
            let limit = Instant::now() + limit;
            let pacer = &self.local.pacer;
            let idle = self.idle.get_or_insert_with(|| Idle {
                limit,
                wait: Wait::new(pacer),
            });
            idle.limit = limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside it, an idle connection costs the runtime's task and registration, some 500 bytes.
    #[test]
    fn an_idle_connection_is_a_small_task() {
        fn size<F>(_: impl Fn(TcpStream, &'static Worker, &'static Local, u64) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(serve) <= 384, "{} bytes", size(serve));
    }
}
