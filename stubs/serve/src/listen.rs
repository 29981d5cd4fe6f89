//! Listening sockets, one for each worker, sharing an address.

use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel queues for each worker.
const BACKLOG: i32 = 16384;

/// Binds `count` listeners to one address; port 0 picks a free port for all of them.
pub(crate) fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    // Sharing is between our workers alone: another server there is a taken port.
    drop(TcpListener::bind(address)?);
    let first = bind_shared(address)?;
    let address = first.local_addr()?;
    let others = (1..count).map(|_| bind_shared(address));
    std::iter::once(Ok(first)).chain(others).collect()
}

/// Lets the process open as many connections as it may.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if limit != raised
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!("failed to raise the number of open files: {error}");
    }
}

fn bind_shared(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
