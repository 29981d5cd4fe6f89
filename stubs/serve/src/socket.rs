//! A connection whose exchanges are made one after the other by a task of its own.

use std::io;
use std::pin::Pin;
use std::task::Poll;

use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};
use tokio::time::Instant;
use wire::http1::{self, Framing, RequestHead, WholeRequest};

use crate::local::{Local, Phase};
use crate::pacer::Wait;
use crate::stream::Stream;
use crate::worker::Shared;

/// The client's end, and what has been read from it.
pub(crate) struct Socket<'l> {
    /// Bytes read and not yet used.
    pub(crate) input: Vec<u8>,
    pub(crate) local: &'l Local,
    /// It has had a request, so that it may be idle too long.
    is_used: bool,
    stream: Stream,
}

/// What comes of waiting for a request.
pub(crate) enum Came {
    /// The client or the server ends the connection.
    Ended,
    /// Bytes that are no HTTP.
    Invalid,
    /// More than a request may have.
    TooLarge,
    /// A whole request, at the front of the input, and whether interim bytes were sent for it.
    Whole { has_continued: bool },
}

impl<'l> Socket<'l> {
    pub(crate) fn new(stream: Stream, local: &'l Local) -> io::Result<Self> {
        stream.set_nodelay()?;
        Ok(Self {
            input: Vec::new(),
            is_used: false,
            local,
            stream,
        })
    }

    /// Waits for a request.
    pub(crate) async fn request(&mut self, shared: &Shared) -> io::Result<Came> {
        let limit = shared.max_head + shared.max_body;
        let mut has_continued = false;
        // Bytes that are looked at again; what has hardly grown is still a part.
        let mut enough = 0;
        let limit_idle = shared.keep_alive.filter(|_| self.is_used);
        let idle = limit_idle.map(|idle| Instant::now() + idle);
        loop {
            if self.input.len() >= enough || self.input.ends_with(b"\r\n\r\n") {
                match WholeRequest::parse(&self.input) {
                    Ok(Some(_)) => {
                        self.is_used = true;
                        return Ok(Came::Whole { has_continued });
                    }
                    Ok(None) if self.head().is_none() && self.input.len() > shared.max_head => {
                        return Ok(Came::Invalid);
                    }
                    Ok(None) if self.input.len() > limit || self.promises_more_than(shared) => {
                        return Ok(Came::TooLarge);
                    }
                    Ok(None) => {}
                    Err(_) => return Ok(Came::Invalid),
                }
                enough = self.input.len() + self.input.len() / 8;
                if self.is_lengthy() {
                    enough = 0;
                }
            }
            if !has_continued && self.waits_for_continue() {
                self.stream.write_all(http1::CONTINUE).await?;
                has_continued = true;
            }
            if !self.read(idle).await? {
                return Ok(Came::Ended);
            }
        }
    }

    fn head(&self) -> Option<RequestHead<'_>> {
        Some(RequestHead::parse(&self.input).ok()??.0)
    }

    /// Its head tells the length, so that looking again costs nothing.
    fn is_lengthy(&self) -> bool {
        self.head()
            .is_none_or(|head| matches!(head.framing, Framing::Length(_)))
    }

    fn promises_more_than(&self, shared: &Shared) -> bool {
        let most = u64::try_from(shared.max_body).unwrap_or(u64::MAX);
        self.head()
            .is_some_and(|head| matches!(head.framing, Framing::Length(length) if length > most))
    }

    fn waits_for_continue(&self) -> bool {
        self.head().is_some_and(|head| head.expect_continue)
    }

    /// Reads some bytes; `false` when the client or the server ends the connection.
    async fn read(&mut self, idle: Option<Instant>) -> io::Result<bool> {
        let is_idle = self.input.is_empty();
        let last = if is_idle {
            Phase::Draining
        } else {
            Phase::Stopping
        };
        let wait = Wait::new(&self.local.pacer);
        let patience = async {
            match idle.filter(|_| is_idle) {
                Some(idle) => wait.until(idle).await,
                None => std::future::pending().await,
            }
        };
        let read = async {
            tokio::select! {
                read = self.stream.read_buf(&mut self.input) => read,
                waited = patience => waited.map(|()| 0),
            }
        };
        let count = self.local.unless(last, read).await.transpose()?;
        Ok(count.unwrap_or(0) > 0)
    }

    /// Writes all of some bytes.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Writes what the client takes of some bytes, and returns when it has taken any, or fails when it has
    /// gone; what it sends ahead is kept, up to `most` bytes.
    pub(crate) async fn progress(&mut self, bytes: &[u8], most: usize) -> io::Result<usize> {
        std::future::poll_fn(|cx| {
            while self.input.len() < most {
                let mut part = [0; 4096];
                let mut part = ReadBuf::new(&mut part);
                match Pin::new(&mut self.stream).poll_read(cx, &mut part) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(())) if !part.filled().is_empty() => {
                        self.input.extend_from_slice(part.filled());
                    }
                    Poll::Ready(_) => {
                        return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                    }
                }
            }
            if bytes.is_empty() {
                return Poll::Pending;
            }
            Pin::new(&mut self.stream).poll_write(cx, bytes)
        })
        .await
    }
}
