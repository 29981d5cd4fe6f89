//! One thread that accepts connections and serves them.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plan::stub::{Context, Stub};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::connection;
use crate::cpu::Thread;
use crate::metrics::{Counters, Metrics};
use crate::truth::Sink;

/// How far a server is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// Accepting.
    Serving,
    /// Finishing what is in flight.
    Draining,
    /// Giving up what is in flight.
    Stopping,
}

/// What the workers of a server share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) connections: Arc<AtomicU64>,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) max_body: usize,
    pub(crate) max_head: usize,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) origin: Instant,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) started_unix_ns: u64,
    pub(crate) truth: Option<Sink>,
}

impl Shared {
    /// Nanoseconds from the server's start.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Accepts connections until the phase says stop, and returns when all that were served have ended.
    pub(crate) fn serve<F>(
        &self,
        listener: std::net::TcpListener,
        serve: impl Fn(TcpStream, u64) -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = io::Result<()>> + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::from_std(listener)?;
            let open = Rc::new(Open::default());
            while let Some(stream) = self.accept(&listener).await {
                let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
                let (served, one) = (serve(stream, number), One::new(&open));
                tokio::task::spawn_local(async move {
                    if let Err(error) = served.await {
                        tracing::debug!("connection {number}: {error}");
                    }
                    drop(one);
                });
            }
            drop(listener);
            while open.count.get() > 0 {
                open.ended.notified().await;
            }
            Ok(())
        })
    }

    /// The next connection; `None` when the server stops.
    async fn accept(&self, listener: &TcpListener) -> Option<TcpStream> {
        let mut phase = self.phase.clone();
        let mut warned: Option<Instant> = None;
        loop {
            let accepted = tokio::select! {
                biased;
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => return None,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => return Some(stream),
                Err(error) => {
                    // Out of file descriptors, mostly: others must end before more can come.
                    if warned.is_none_or(|warned| warned.elapsed() > Duration::from_secs(1)) {
                        tracing::warn!("failed to accept a connection: {error}");
                        warned = Some(Instant::now());
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
}

/// Connections that are being served.
#[derive(Debug, Default)]
struct Open {
    count: Cell<usize>,
    ended: Notify,
}

/// One of them, until it is dropped.
struct One(Rc<Open>);

impl One {
    fn new(open: &Rc<Open>) -> Self {
        open.count.set(open.count.get() + 1);
        Self(Rc::clone(open))
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.ended.notify_one();
    }
}

/// A worker's own state.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) context: RefCell<Context>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) shared: Shared,
    pub(crate) stub: Arc<Stub>,
    date: Date,
}

impl Worker {
    /// Serves a listener until the phase says stop.
    pub(crate) fn run(
        listener: std::net::TcpListener,
        shared: Shared,
        stub: Arc<Stub>,
        seed: u64,
    ) -> io::Result<()> {
        let worker = Rc::new(Self {
            context: RefCell::new(Context::new(seed)),
            counters: shared.metrics.add_worker(Thread::current()),
            date: Date::default(),
            shared,
            stub,
        });
        worker.shared.serve(listener, |stream, number| {
            let worker = Rc::clone(&worker);
            async move { connection::serve(stream, &worker, number).await }
        })
    }

    /// Seconds since 1970 and the `date` header for them.
    pub(crate) fn date(&self) -> (u64, std::cell::Ref<'_, str>) {
        self.date.now()
    }

    /// Nanoseconds from the server's start.
    pub(crate) fn now_ns(&self) -> u64 {
        self.shared.now_ns()
    }
}

/// The `date` header, made once a second.
#[derive(Debug, Default)]
pub(crate) struct Date(RefCell<(u64, String)>);

impl Date {
    /// Seconds since 1970 and the header's value.
    pub(crate) fn now(&self) -> (u64, std::cell::Ref<'_, str>) {
        let now = SystemTime::now();
        let seconds = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        if self.0.borrow().0 != seconds {
            *self.0.borrow_mut() = (seconds, httpdate::fmt_http_date(now));
        }
        let date = std::cell::Ref::map(self.0.borrow(), |(_, date)| &**date);
        (seconds, date)
    }
}
