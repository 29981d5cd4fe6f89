//! One client's connection: requests in, one exchange after the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use plan::pace::Pace;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::time::Instant;
use wire::http1::{Framing, RequestHead};

use crate::exchange::{Arrived, Exchange, Next, Outcome};
use crate::local::{Local, Phase};
use crate::pacer::Wait;
use crate::stream::Stream;
use crate::worker::Worker;

mod request;

/// Serves a connection to its end.
pub(crate) async fn serve(
    stream: Stream,
    worker: &Worker,
    local: &Local,
    number: u64,
) -> io::Result<()> {
    stream.set_nodelay()?;
    let mut connection = Connection {
        idle: None,
        input: Vec::new(),
        local,
        number,
        stream,
        worker,
    };
    let mut exchange = Exchange::new(Instant::now());
    // Answers that take their time are due one after the other, as their requests were read.
    let is_burst = worker.stub.engine.pace == Pace::Burst;
    while let Some(received) = connection.arrival().await? {
        // Whoever has news at the same time comes as far as this before one goes on: code that has just run
        // runs quicker, the kernel's as well as ours.
        if is_burst {
            local.tasks.others().await;
        }
        // Boxed, as below, so that an idle connection is a small task.
        if !connection.arrived(received, &mut exchange)
            && !Box::pin(connection.rest(&mut exchange)).await?
        {
            return Ok(());
        }
        let next = exchange.fill(worker);
        // What is long is best written while it is in the cache, and its room used again for the next.
        let is_together = is_burst && exchange.is_short();
        if is_together {
            local.tasks.others().await;
        }
        let sent = exchange.write(&connection);
        if is_together {
            local.tasks.others().await;
        }
        let outcome = match sent.map(|()| exchange.settle(worker, next)) {
            Ok(Next::Over) => exchange.end(&connection, Ok(()))?,
            Ok(next) => {
                exchange.rest(worker);
                Box::pin(connection.finish(&mut exchange, next)).await?
            }
            Err(error) => exchange.end(&connection, Err(error))?,
        };
        if outcome == Outcome::Close {
            return Ok(());
        }
        connection.rest_from(exchange.ended());
    }
    Ok(())
}

/// A connection's socket and what it has read.
pub(crate) struct Connection<'w> {
    idle: Option<Idle<'w>>,
    /// Bytes read and not yet used.
    input: Vec<u8>,
    pub(crate) local: &'w Local,
    pub(crate) number: u64,
    pub(crate) stream: Stream,
    pub(crate) worker: &'w Worker,
}

/// How long a connection has had no request, where that is limited.
struct Idle<'w> {
    /// Since when, until the wait has begun.
    begins: Option<Instant>,
    limit: Instant,
    wait: Wait<'w>,
}

impl Connection<'_> {
    /// Waits for bytes of a request, unless some are there; gives the moment, or `None` when the client or the server
    /// ends the connection.
    async fn arrival(&mut self) -> io::Result<Option<Instant>> {
        if !self.input.is_empty() {
            // Whoever sends ahead gives others their turn between its requests.
            tokio::task::yield_now().await;
            return Ok(Some(Instant::now()));
        }
        // A connection that waits has no buffer of its own.
        self.local.give_buffer(std::mem::take(&mut self.input));
        std::future::poll_fn(|cx| self.poll_arrival(cx)).await
    }

    fn poll_arrival(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Instant>>> {
        if let Poll::Ready(count) = self.poll_more(cx)? {
            return Poll::Ready(Ok((count > 0).then(Instant::now)));
        }
        if self.local.phase() >= Phase::Draining {
            return Poll::Ready(Ok(None));
        }
        if let Some(idle) = &mut self.idle {
            let begins = idle.begins.take();
            if !begins.is_some_and(|now| idle.wait.is_set(now)) {
                return idle.wait.poll(idle.limit, cx).map_ok(|()| None);
            }
        }
        Poll::Pending
    }

    /// Decides the answer to a request and takes it out of the input, if it is all there.
    fn arrived(&mut self, received: Instant, exchange: &mut Exchange) -> bool {
        let input = &self.input[..];
        let (head, length) = match self.worker.parse_head(input) {
            Ok(Some((_, length))) if length > self.worker.shared.max_head => {
                return self.invalid(exchange);
            }
            Ok(Some((head, _))) if self.lacks_host(&head) => return self.invalid(exchange),
            Ok(Some(parsed)) => parsed,
            Ok(None) if input.len() <= self.worker.shared.max_head => return false,
            Ok(None) | Err(_) => return self.invalid(exchange),
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
                    _ => return false,
                }
            }
            _ => return false,
        };
        let arrived = Arrived {
            body,
            head: &head,
            head_bytes: &input[..length],
            received,
        };
        exchange.decide(self, &arrived);
        self.input.drain(..used);
        true
    }

    fn lacks_host(&self, head: &RequestHead<'_>) -> bool {
        self.worker.stub.dialect.needs_host() && !head.is_http10 && head.header("host").is_none()
    }

    fn invalid(&mut self, exchange: &mut Exchange) -> bool {
        self.input.clear();
        exchange.invalid(self);
        true
    }

    /// Sends the rest of an answer as it falls due.
    async fn finish(&mut self, exchange: &mut Exchange, next: Next) -> io::Result<Outcome> {
        let mut next = Ok(next);
        loop {
            let waited = match next {
                Ok(Next::Over) => return exchange.end(self, Ok(())),
                Ok(Next::Turn) => {
                    tokio::task::yield_now().await;
                    Ok(())
                }
                Ok(Next::Wait(until)) => self.wait(until, exchange).await,
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
        std::future::poll_fn(|_| match self.stream.poll_writable() {
            Poll::Pending => self.unless_stopping(),
            Poll::Ready(()) => Poll::Ready(Ok(())),
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
        Pin::new(&mut self.stream)
            .poll_read(cx, &mut read)
            .map_ok(|()| {
                if self.input.capacity() == 0 {
                    self.input = local.take_buffer();
                }
                self.input.extend_from_slice(read.filled());
                read.filled().len()
            })
    }

    /// Counts the time without a request from a moment on that has just been.
    fn rest_from(&mut self, now: Instant) {
        if let Some(limit) = self.worker.shared.keep_alive {
            let limit = now + limit;
            let pacer = &self.local.pacer;
            let idle = self.idle.get_or_insert_with(|| Idle {
                begins: None,
                limit,
                wait: Wait::new(pacer),
            });
            idle.begins = Some(now);
            idle.limit = limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside it, an idle connection costs what tells its task of news, some 150 bytes, and its deadline.
    #[test]
    fn an_idle_connection_is_a_small_task() {
        fn size<F>(_: impl Fn(Stream, &'static Worker, &'static Local, u64) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(serve) <= 680, "{} bytes", size(serve));
    }
}
