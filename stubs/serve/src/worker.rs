//! One thread that accepts connections and serves them.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mio::Interest;
use plan::reply::Facts;
use plan::stub::{Context, Stub};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::Instant;
use wire::http1::{BadHead, KnownHead, RequestHead};

use crate::connection;
use crate::cpu::Thread;
use crate::exchange::Output;
use crate::local::{Local, Phase};
use crate::metrics::{Counters, Metrics, nanoseconds};
use crate::pacer::{Pacer, Wait};
use crate::stream::Stream;
use crate::tasks::{self, News};
use crate::truth::{Ended, Record, Sink};

/// So many may come in at once.
const CROWD: u64 = 64;
/// How long to wait for file descriptors to become free.
const PATIENCE: Duration = Duration::from_millis(10);

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
        self.ns(Instant::now())
    }

    /// The wall clock's nanoseconds beyond whole seconds at a moment.
    pub(crate) fn nanos(&self, moment: Instant) -> u32 {
        let unix = self.started_unix_ns + self.ns(moment);
        u32::try_from(unix % 1_000_000_000).expect("less than a second")
    }

    /// A moment in nanoseconds from the server's start.
    pub(crate) fn ns(&self, moment: Instant) -> u64 {
        nanoseconds(moment.saturating_duration_since(self.origin))
    }

    /// What the truth file says of a request of which nothing is known but when and where it came.
    pub(crate) fn record(
        &self,
        dialect: &'static str,
        connection: u64,
        received: Instant,
    ) -> Record {
        Record {
            bytes: 0,
            chunks: Vec::new(),
            connection,
            dialect,
            ended: Ended::Done,
            facts: Facts::default(),
            method: None,
            parsed_ns: self.now_ns(),
            received_ns: self.ns(received),
            request_id: String::new(),
            route: None,
            started_unix_ns: self.started_unix_ns,
            status: 200,
            turn: None,
        }
    }

    /// Accepts connections until the phase says stop, and returns when all that were served have ended.
    pub(crate) fn serve(
        &self,
        listener: std::net::TcpListener,
        serve: impl AsyncFn(Stream, &Local, u64) -> io::Result<()> + Clone + 'static,
    ) -> io::Result<()> {
        // For what is decided aside, on another thread, and for nothing else: its own turns are not taken.
        let mut builder = Builder::new_current_thread();
        let runtime = builder.max_blocking_threads(1).build()?;
        let _entered = runtime.enter();
        let (local, poll) = Local::new()?;
        let local = Rc::new(local);
        let tasks = &local.tasks;
        let alarm = tasks.news(|registry, token| local.pacer.register(registry, token))?;
        let (held, told) = (Rc::clone(&local), Arc::clone(&alarm));
        tasks.spawn_service(alarm, async move {
            if let Err(error) = held.pacer.run(&told).await {
                tracing::error!("failed to keep the pace, nothing paced goes on: {error}");
            }
        });
        let mut listener = mio::net::TcpListener::from_std(listener);
        let readable = Interest::READABLE;
        let news =
            tasks.news(|registry, token| registry.register(&mut listener, token, readable))?;
        let door = Door {
            listener,
            news: Arc::clone(&news),
        };
        let (held, shared) = (Rc::clone(&local), self.clone());
        tasks.spawn_service(news, async move {
            shared.accept(door, &held, serve).await;
            held.end(shared.phase).await;
        });
        tasks.run(poll, || local.pacer.patience())
    }

    /// Serves those who come until the phase says stop.
    async fn accept(
        &self,
        door: Door,
        local: &Rc<Local>,
        serve: impl AsyncFn(Stream, &Local, u64) -> io::Result<()> + Clone + 'static,
    ) {
        let mut phase = self.phase.clone();
        while let Some(socket) = door.next(&mut phase, &local.pacer).await {
            let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
            let (served, serve) = (Rc::clone(local), serve.clone());
            let spawned = local.tasks.spawn_connection(socket, |stream| async move {
                if let Err(error) = serve(stream, &served, number).await {
                    tracing::debug!("connection {number}: {error}");
                }
            });
            if let Err(error) = spawned {
                tracing::warn!("failed to wait for connection {number}: {error}");
            }
            if number.is_multiple_of(CROWD) {
                // Those who are in have their turn.
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Where clients come in.
struct Door {
    listener: mio::net::TcpListener,
    news: Arc<News>,
}

impl Door {
    /// The next connection; `None` when the server stops.
    async fn next(
        &self,
        phase: &mut watch::Receiver<Phase>,
        pacer: &Pacer,
    ) -> Option<mio::net::TcpStream> {
        let mut warned: Option<Instant> = None;
        loop {
            let accepted = tokio::select! {
                biased;
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => return None,
                accepted = std::future::poll_fn(|_| self.poll_accept()) => accepted,
            };
            match accepted {
                Ok(socket) => return Some(socket),
                Err(error) => {
                    // Out of file descriptors, mostly: others must end before more can come.
                    if warned.is_none_or(|warned| warned.elapsed() > Duration::from_secs(1)) {
                        tracing::warn!("failed to accept a connection: {error}");
                        warned = Some(Instant::now());
                    }
                    let wait = Wait::new(pacer);
                    wait.until(Instant::now() + PATIENCE).await.ok()?;
                }
            }
        }
    }

    fn poll_accept(&self) -> Poll<io::Result<mio::net::TcpStream>> {
        while self.news.is_readable() {
            match self.listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.news.was_drained(),
                accepted => return Poll::Ready(accepted.map(|(socket, _)| socket)),
            }
        }
        Poll::Pending
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
    /// The last head, mostly like the next.
    head: RefCell<KnownHead>,
    /// Of exchanges that have ended, for those to come.
    outputs: RefCell<Vec<Output>>,
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
            counters: shared.metrics.add_worker(Thread::current(), stub.dialect),
            date: Date::default(),
            head: RefCell::default(),
            outputs: RefCell::default(),
            shared,
            stub,
        });
        let served = Rc::clone(&worker);
        worker
            .shared
            .serve(listener, async move |stream, local, number| {
                connection::serve(stream, &served, local, number).await
            })
    }

    /// Reads a head from the front of some bytes.
    pub(crate) fn parse_head<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Result<Option<(RequestHead<'a>, usize)>, BadHead> {
        self.head.borrow_mut().parse(bytes)
    }

    /// Seconds since 1970 and the `date` header for them.
    pub(crate) fn date(&self, now: Instant) -> (u64, std::cell::Ref<'_, str>) {
        self.date.at(now)
    }

    /// An empty buffer.
    pub(crate) fn take_output(&self) -> Output {
        self.outputs.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives a buffer back.
    pub(crate) fn give_output(&self, output: Output) {
        let mut outputs = self.outputs.borrow_mut();
        if outputs.len() < tasks::BATCH {
            outputs.push(output.emptied());
        }
    }
}

/// The `date` header, made once a second.
#[derive(Debug, Default)]
pub(crate) struct Date(RefCell<Made>);

#[derive(Debug, Default)]
struct Made {
    header: String,
    seconds: u64,
    /// When the second is over.
    until: Option<Instant>,
}

impl Date {
    /// Seconds since 1970 and the header's value.
    pub(crate) fn at(&self, now: Instant) -> (u64, std::cell::Ref<'_, str>) {
        if self.0.borrow().until.is_none_or(|until| until <= now) {
            let date = SystemTime::now();
            let since = date.duration_since(UNIX_EPOCH).unwrap_or_default();
            let left = 1_000_000_000 - u64::from(since.subsec_nanos());
            *self.0.borrow_mut() = Made {
                header: httpdate::fmt_http_date(date),
                seconds: since.as_secs(),
                until: Some(now + Duration::from_nanos(left)),
            };
        }
        let made = self.0.borrow();
        let seconds = made.seconds;
        (seconds, std::cell::Ref::map(made, |made| &*made.header))
    }
}
