//! A pass-through proxy that keeps what passes.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use tokio::time::Instant;

use super::store::Store;
use super::tape::{Exchange, Tape};

/// What all connections share.
struct Recorder {
    origin: Instant,
    store: RefCell<Store>,
    upstream: SocketAddr,
}

/// Passes connections on and records them until `stop` is there; gives the folder back.
pub(super) async fn run(
    listener: TcpListener,
    upstream: SocketAddr,
    store: Store,
    stop: impl Future<Output = ()>,
) -> Store {
    let recorder = Rc::new(Recorder {
        origin: Instant::now(),
        store: RefCell::new(store),
        upstream,
    });
    let tasks = LocalSet::new();
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((client, _)) => {
                    let recorder = Rc::clone(&recorder);
                    tokio::task::spawn_local(async move {
                        if let Err(error) = recorder.serve(client).await {
                            tracing::warn!("a connection failed: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("failed to accept a connection: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            }
        }
    };
    tasks
        .run_until(async {
            tokio::select! {
                () = stop => {}
                () = accept => {}
            }
        })
        .await;
    // Ends the connections, which file what they hold when they are dropped.
    drop(tasks);
    let recorder = Rc::into_inner(recorder).expect("all connections have ended");
    recorder.store.into_inner()
}

/// A connection's tape; what is left on it is filed when it is dropped.
struct Connection {
    recorder: Rc<Recorder>,
    tape: RefCell<Tape>,
}

impl Recorder {
    async fn serve(self: Rc<Self>, client: TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(self.upstream).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let connection = Connection {
            recorder: self,
            tape: RefCell::default(),
        };
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), server.into_split());
        let up = connection.pass(from_client, to_server, Direction::Up);
        let down = connection.pass(from_server, to_client, Direction::Down);
        // A server that ends the connection ends it for the client; a client may half-close.
        let up = async {
            match up.await {
                Ok(()) => std::future::pending().await,
                error => error,
            }
        };
        tokio::select! {
            result = up => result,
            result = down => result,
        }
    }

    fn file(&self, exchange: &Exchange) {
        let mut store = self.store.borrow_mut();
        let name = format!("case-{:04}", store.len() + 1);
        let notes = exchange.is_cut.then_some("the connection ended here");
        let response = (&*exchange.response, &exchange.times);
        if let Err(error) = store.put(&name, &exchange.request, response, notes) {
            tracing::error!("failed to write {name}: {error}");
        }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Down,
    Up,
}

impl Connection {
    async fn pass(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        direction: Direction,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = from.read(&mut buffer).await?;
            let read_at = self.now();
            if count == 0 {
                return to.shutdown().await;
            }
            let bytes = &buffer[..count];
            // On the tape before it is passed on: whoever has read it may look into the folder.
            if let Direction::Down = direction {
                self.tape.borrow_mut().received(read_at, bytes);
                self.file(false);
            }
            to.write_all(bytes).await?;
            if let Direction::Up = direction {
                self.tape.borrow_mut().sent(self.now(), bytes);
                self.file(false);
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.recorder.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn file(&self, closed: bool) {
        let mut tape = self.tape.borrow_mut();
        while let Some(exchange) = tape.next(closed) {
            self.recorder.file(&exchange);
        }
        if closed && let Some(exchange) = tape.rest() {
            self.recorder.file(&exchange);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.file(true);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::path::PathBuf;
    use std::time::Duration;

    use wire::recording::Times;

    use super::*;
    use crate::raw;

    const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";

    /// A server that answers each request in its own bytes, whatever it is.
    fn upstream() -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut buffer = [0; 1024];
                    while let Ok(count @ 1..) = stream.read(&mut buffer) {
                        let requests = buffer[..count].windows(4).filter(|end| end == b"\r\n\r\n");
                        stream.write_all(&OK.repeat(requests.count())).unwrap();
                    }
                });
            }
        });
        address
    }

    #[test]
    fn what_passes_is_kept_byte_for_byte() {
        let dir = PathBuf::from(env!("OUT_DIR")).join("proxy-test");
        let store = Store::open(&dir, "a test".into()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let received = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (stop, stopped) = tokio::sync::oneshot::channel();
            std::thread::spawn(move || {
                let received = raw::exchange(address, &GET.repeat(2), Duration::from_secs(20));
                stop.send(received.unwrap()).unwrap();
            });
            let (kept, received) = (std::cell::Cell::new(None), stopped);
            let stop = async { kept.set(received.await.ok()) };
            let store = run(listener, upstream(), store, stop).await;
            assert_eq!(store.len(), 2);
            kept.take().unwrap()
        });
        assert_eq!(received.bytes, OK.repeat(2));
        for name in ["case-0001", "case-0002"] {
            let read = |end: &str| std::fs::read(dir.join(format!("{name}{end}"))).unwrap();
            assert_eq!(read(".request.http"), GET);
            assert_eq!(read(".response.http"), OK);
            let times = Times::parse(&read(".times.json")).unwrap();
            let bytes: usize = times.0.iter().map(|arrival| arrival.1).sum();
            assert_eq!(bytes, OK.len());
        }
    }
}
