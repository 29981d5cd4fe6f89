//! A client's socket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::{Errno, read, write, writev};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tasks::News;

/// A socket for the task that [`crate::tasks::Tasks`] polls when there is news of it; nobody else is woken.
#[derive(Debug)]
pub(crate) struct Stream {
    news: Arc<News>,
    socket: mio::net::TcpStream,
}

impl Stream {
    pub(crate) fn new(socket: mio::net::TcpStream, news: Arc<News>) -> Self {
        Self { news, socket }
    }

    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        self.socket.set_nodelay(true)
    }

    /// Writes what the socket takes at once of two parts.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if that is nothing.
    pub(crate) fn try_write(&self, front: &[u8], back: &[u8]) -> io::Result<usize> {
        loop {
            let written = match (front, back) {
                (front, []) => write(&self.socket, front),
                ([], back) => write(&self.socket, back),
                (front, back) => writev(
                    &self.socket,
                    &[io::IoSlice::new(front), io::IoSlice::new(back)],
                ),
            };
            match written {
                Err(Errno::INTR) => {}
                Err(error) => {
                    if error == Errno::AGAIN {
                        self.news.was_filled();
                    }
                    return Err(error.into());
                }
                Ok(count) => return Ok(count),
            }
        }
    }

    /// Whether a write may succeed that did not before.
    pub(crate) fn poll_writable(&self) -> Poll<()> {
        if self.news.is_writable() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.news.is_readable() {
            let room = out.initialize_unfilled();
            let most = room.len();
            match read(&self.socket, &mut *room) {
                Ok(count) => {
                    if count > 0 && count < most {
                        self.news.was_drained();
                    }
                    out.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.news.was_drained();
                    break;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        Poll::Pending
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_writable());
        match self.try_write(bytes, &[]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            written => Poll::Ready(written),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown(std::net::Shutdown::Write))
    }
}
