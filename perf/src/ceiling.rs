//! The least that a server can do: read, and write prepared bytes, with no look at what was read.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use anyhow::Context as _;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, write};
use socket2::{Domain, Socket, Type};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
const BUFFER: usize = 64 << 10;
const LISTENER: u64 = u64::MAX;

/// Arguments of the hidden command that serves the bare loop; the response comes on stdin.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Bytes of the shortest request
    #[arg(long, value_name = "BYTES")]
    request: usize,
    /// Threads that serve
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
}

/// Serves for as long as the process that started it.
///
/// # Errors
/// What the kernel refuses.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    let mut response = Vec::new();
    std::io::stdin().lock().read_to_end(&mut response)?;
    let (address, threads) = serve(args.workers, args.request, &response)?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "listening on http://{address}")?;
    stdout.flush()?;
    for thread in threads {
        let _ = thread.join();
    }
    Ok(0)
}

/// Starts threads that share a port.
pub fn serve(
    workers: usize,
    request: usize,
    response: &[u8],
) -> anyhow::Result<(SocketAddr, Vec<JoinHandle<()>>)> {
    let first = listener(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = first.local_addr()?;
    let others = (1..workers.max(1)).map(|_| listener(address));
    let listeners: std::io::Result<Vec<_>> = std::iter::once(Ok(first)).chain(others).collect();
    let spawn = |listener| {
        let response = response.to_vec();
        std::thread::Builder::new().spawn(move || {
            Loop::new(listener, request, response)
                .and_then(|mut served| served.run())
                .expect("epoll works");
        })
    };
    let threads = listeners?
        .into_iter()
        .map(spawn)
        .collect::<std::io::Result<_>>();
    Ok((address, threads.context("failed to start a thread")?))
}

fn listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

struct Loop {
    buffer: Vec<u8>,
    connections: Vec<Option<Connection>>,
    epoll: OwnedFd,
    listener: TcpListener,
    request: usize,
    response: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// Bytes of a request that is not complete.
    read: usize,
    /// Bytes of the response that are still to be written; the socket was full.
    left: usize,
}

impl Loop {
    fn new(listener: TcpListener, request: usize, response: Vec<u8>) -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &listener,
            EventData::new_u64(LISTENER),
            EventFlags::IN,
        )?;
        Ok(Self {
            buffer: vec![0; BUFFER],
            connections: Vec::new(),
            epoll,
            listener,
            request,
            response,
        })
    }

    fn run(&mut self) -> rustix::io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            for event in events.drain(..) {
                if event.data.u64() == LISTENER {
                    self.accept()?;
                    continue;
                }
                let number = usize::try_from(event.data.u64()).expect("an index");
                let flags = event.flags;
                let is_over = flags.intersects(EventFlags::RDHUP | EventFlags::HUP);
                if self.turn(number).is_none() || is_over {
                    self.connections[number] = None;
                }
            }
        }
    }

    fn accept(&mut self) -> rustix::io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_err() || stream.set_nodelay(true).is_err() {
                continue;
            }
            let free = self.connections.iter().position(Option::is_none);
            let number = free.unwrap_or(self.connections.len());
            if free.is_none() {
                self.connections.push(None);
            }
            let data = EventData::new_u64(number as u64);
            let wanted = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&self.epoll, &stream, data, wanted)?;
            self.connections[number] = Some(Connection {
                stream,
                read: 0,
                left: 0,
            });
        }
        Ok(())
    }

    /// Reads what there is and writes once; `None` ends the connection.
    fn turn(&mut self, number: usize) -> Option<()> {
        let connection = self.connections.get_mut(number)?.as_mut()?;
        if connection.left > 0 {
            return connection.write(&self.response);
        }
        loop {
            let count = match read(&connection.stream, &mut self.buffer) {
                Ok(0) => return None,
                Ok(count) => count,
                Err(Errno::AGAIN) => return Some(()),
                Err(_) => return None,
            };
            connection.read += count;
            if count < BUFFER {
                break;
            }
        }
        if connection.read < self.request {
            return Some(());
        }
        connection.read = 0;
        connection.left = self.response.len();
        connection.write(&self.response)
    }
}

impl Connection {
    fn write(&mut self, response: &[u8]) -> Option<()> {
        match write(&self.stream, &response[response.len() - self.left..]) {
            Ok(count) => self.left -= count,
            Err(Errno::AGAIN) => {}
            Err(_) => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_any_sort_gets_the_bytes_whole() {
        let response = vec![b'x'; 3 << 20];
        let (address, _threads) = serve(2, 10, &response).unwrap();
        for _ in 0..3 {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut received = vec![0; response.len()];
            for _ in 0..3 {
                stream.write_all(b"0123456789").unwrap();
                stream.read_exact(&mut received).unwrap();
                assert!(received == response);
            }
        }
    }

    #[test]
    fn a_request_in_parts_is_answered_once() {
        let (address, _threads) = serve(1, 6, b"ok").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        for part in [&b"abc"[..], b"defg", b"abcdef"] {
            stream.write_all(part).unwrap();
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!([&b"ok"[..], b"okok"].contains(&&*received), "{received:?}");
    }
}
