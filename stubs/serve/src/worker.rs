//! One thread that accepts connections and serves them.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plan::stub::{Context, Stub};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::connection;
use crate::cpu::Thread;
use crate::metrics::Metrics;
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
    pub(crate) stub: Arc<Stub>,
    pub(crate) truth: Option<Sink>,
}

/// A worker's own state.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) context: RefCell<Context>,
    pub(crate) shared: Shared,
    date: RefCell<(u64, String)>,
    idle: Notify,
    open: Cell<usize>,
}

impl Worker {
    /// Serves a listener until the phase says stop.
    pub(crate) fn run(
        listener: std::net::TcpListener,
        shared: Shared,
        seed: u64,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        shared.metrics.add_worker(Thread::current());
        let worker = Rc::new(Self {
            context: RefCell::new(Context::new(seed)),
            date: RefCell::default(),
            idle: Notify::new(),
            open: Cell::new(0),
            shared,
        });
        LocalSet::new().block_on(&runtime, async move {
            let listener = TcpListener::from_std(listener)?;
            worker.accept(listener).await;
            worker.drain().await;
            Ok(())
        })
    }

    async fn accept(self: &Rc<Self>, listener: TcpListener) {
        let mut phase = self.shared.phase.clone();
        let mut warned: Option<Instant> = None;
        loop {
            let accepted = tokio::select! {
                biased;
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => return,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, mostly: others must end before more can come.
                    if warned.is_none_or(|warned| warned.elapsed() > Duration::from_secs(1)) {
                        tracing::warn!("failed to accept a connection: {error}");
                        warned = Some(Instant::now());
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            };
            let number = self.shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
            let worker = Rc::clone(self);
            self.open.set(self.open.get() + 1);
            tokio::task::spawn_local(async move {
                if let Err(error) = connection::serve(stream, &worker, number).await {
                    tracing::debug!("connection {number}: {error}");
                }
                worker.open.set(worker.open.get() - 1);
                worker.idle.notify_one();
            });
        }
    }

    async fn drain(&self) {
        while self.open.get() > 0 {
            self.idle.notified().await;
        }
    }

    /// Seconds since 1970 and the `date` header for them.
    pub(crate) fn date(&self) -> (u64, std::cell::Ref<'_, str>) {
        let now = SystemTime::now();
        let seconds = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        if self.date.borrow().0 != seconds {
            *self.date.borrow_mut() = (seconds, httpdate::fmt_http_date(now));
        }
        let date = std::cell::Ref::map(self.date.borrow(), |(_, date)| &**date);
        (seconds, date)
    }

    /// Nanoseconds from the server's start.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.shared.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
