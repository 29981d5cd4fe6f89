//! The load loop: worker threads with a runtime each, senders that take requests in turn, and
//! connections that are kept.

mod answer;
mod connection;
mod heard;
mod patience;
mod request;
mod stability;
mod tickets;
mod timer;
mod worker;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::time::Instant;
use wire::request::Endpoint;

use crate::bench::{Config, Keep, Stability};
use crate::cpu::{self, Cpu};
use crate::error::UsageError;
use crate::http::Target;
use crate::record::Record;
use crate::totals::Totals;
use answer::{Form, Kept};
pub(crate) use heard::Heard;
use request::Requests;
use stability::Windows;
use tickets::Tickets;
use worker::Worker;

/// What the workers of one run share.
#[derive(Debug)]
pub(crate) struct Job {
    address: SocketAddr,
    connections: usize,
    kept: Kept,
    progress: bool,
    requests: Requests,
    form: Form,
    tickets: Tickets,
    timeout: Duration,
    timeout_ns: u64,
    keep: Keep,
    warm_up: Duration,
    until_stable: Option<f64>,
    interrupt: Arc<AtomicBool>,
    /// Wakes workers that wait when the run is interrupted.
    interrupted: Notify,
    /// By worker, the requests that it has completed and counted.
    completed: Vec<Completed>,
    workers: usize,
}

/// A worker's counter, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Completed(AtomicU64);

impl Job {
    pub(crate) fn new(
        config: &Config,
        target: &Target,
        model: &str,
        run_id: &str,
    ) -> Result<Self, UsageError> {
        let connections = config.load.connections(config.connections, config.limit)?;
        if config.workers == 0 {
            return Err(UsageError("--workers must be at least 1".into()));
        }
        let workers = config.workers.min(connections);
        let texts = config.keep == Keep::Records;
        Ok(Self {
            address: target.address,
            connections,
            kept: Kept {
                data: texts && (config.keep_data || config.choices() > 1),
                events: config.keep_events,
                texts,
            },
            progress: config.progress,
            requests: Requests::new(config, target, model, run_id)?,
            form: Form {
                is_native: config.endpoint == Endpoint::Generate,
                is_stream: config.stream,
            },
            tickets: Tickets::new(config, connections),
            timeout: config.timeout,
            timeout_ns: u64::try_from(config.timeout.as_nanos()).unwrap_or(u64::MAX),
            keep: config.keep,
            warm_up: config.warm_up,
            until_stable: config.until_stable,
            interrupt: Arc::clone(&config.interrupt),
            interrupted: Notify::new(),
            completed: (0..workers).map(|_| Completed::default()).collect(),
            workers,
        })
    }
}

/// The shortest request of a run.
pub(crate) fn first_request(
    config: &Config,
    target: &Target,
    model: &str,
    run_id: &str,
) -> Result<Vec<u8>, UsageError> {
    let mut bytes = Vec::new();
    let first = tickets::Ticket {
        number: 0,
        warms_up: false,
        intended_ns: None,
    };
    Requests::new(config, target, model, run_id)?.write(first, &mut bytes);
    Ok(bytes)
}

/// What a load yields.
pub(crate) struct Loaded {
    pub(crate) records: Vec<Record>,
    pub(crate) totals: Totals,
    pub(crate) client: Cpu,
    pub(crate) stability: Option<Stability>,
    pub(crate) interrupted: bool,
}

/// A worker's share of a load.
struct Share {
    records: Vec<Record>,
    totals: Totals,
    client: Cpu,
}

/// The run's clock; all workers have the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: Instant,
}

impl Clock {
    /// Nanoseconds from the run's start.
    fn now(self) -> u64 {
        self.at(Instant::now())
    }

    fn at(self, instant: Instant) -> u64 {
        let since = instant.duration_since(self.origin);
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }

    fn instant(self, at: u64) -> Instant {
        self.origin + Duration::from_nanos(at)
    }
}

/// Opens connections, then starts the clock and sends until the tickets are used up; `warm` is called
/// when the warm-up is over.
pub(crate) fn run(
    job: Job,
    cores: Option<&[usize]>,
    warm: impl FnOnce(),
) -> anyhow::Result<Loaded> {
    let job = Arc::new(job);
    let start = Arc::new(Start {
        barrier: Barrier::new(job.workers + 1),
        origin: OnceLock::new(),
    });
    let (running, finished) = mpsc::channel();
    let spawn = |index| spawn(index, &job, &start, running.clone());
    let threads: std::io::Result<Vec<Thread>> =
        cpu::on_cores(cores, || (0..job.workers).map(spawn).collect())?;
    let threads = threads.context("failed to start a worker thread")?;
    drop(running);
    start.barrier.wait();
    let mut warm = Some(warm);
    if let Some(warm) = warm.take_if(|_| job.warm_up.is_zero()) {
        warm();
    }
    start.barrier.wait();
    let stability = oversee(&job, start.clock(), &finished, warm);
    let shares = threads.into_iter().map(JoinHandle::join);
    let shares: Vec<Share> = shares
        .map(|share| share.expect("workers do not panic"))
        .collect();
    let mut totals = Totals::default();
    for share in &shares {
        totals.add(&share.totals);
    }
    let client = shares.iter().map(|share| share.client).sum();
    let mut records: Vec<Record> = shares.into_iter().flat_map(|share| share.records).collect();
    records.sort_unstable_by_key(|record| record.request);
    Ok(Loaded {
        records,
        totals,
        client,
        stability,
        interrupted: job.tickets.is_interrupted(),
    })
}

struct Start {
    barrier: Barrier,
    origin: OnceLock<Instant>,
}

impl Start {
    fn clock(&self) -> Clock {
        let origin = *self.origin.get_or_init(Instant::now);
        Clock { origin }
    }
}

type Thread = JoinHandle<Share>;

fn spawn(
    index: usize,
    job: &Arc<Job>,
    start: &Arc<Start>,
    running: Sender<()>,
) -> std::io::Result<Thread> {
    let senders =
        job.connections / job.workers + usize::from(index < job.connections % job.workers);
    let (job, start) = (Arc::clone(job), Arc::clone(start));
    std::thread::Builder::new()
        .name(format!("bench-{index}"))
        .spawn(move || {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
                .expect("a runtime needs a few file descriptors");
            let loaded = runtime.block_on(async {
                let idle = worker::connect_ahead(&job, senders).await;
                start.barrier.wait();
                start.barrier.wait();
                let worker =
                    Worker::new(job, index, start.clock(), idle).expect("a timer file descriptor");
                worker.run(senders).await
            });
            drop(running);
            loaded
        })
}

/// How often the run is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for the workers, with a bar once the run has taken two seconds; ends the load when its
/// throughput is stable or somebody interrupts it. Calls `warm` when the warm-up is over.
fn oversee(
    job: &Job,
    clock: Clock,
    finished: &mpsc::Receiver<()>,
    mut warm: Option<impl FnOnce()>,
) -> Option<Stability> {
    let bar = bar();
    let wanted = job.progress && std::io::stderr().is_terminal();
    let mut windows = job.until_stable.map(Windows::new);
    let still_warms = |now| job.warm_up.saturating_sub(Duration::from_nanos(now));
    let wait = || LOOK.min(still_warms(clock.now()).max(Duration::from_millis(1)));
    let look = |warms: bool| finished.recv_timeout(if warms { wait() } else { LOOK });
    while look(warm.is_some()) == Err(RecvTimeoutError::Timeout) {
        let now = clock.now();
        if let Some(warm) = warm.take_if(|_| still_warms(now).is_zero()) {
            warm();
        }
        if job.interrupt.load(Ordering::Relaxed) && !job.tickets.is_interrupted() {
            job.tickets.interrupt();
            job.interrupted.notify_waiters();
        }
        let sends = !job.tickets.is_over(now) && warm.is_none();
        if let Some(windows) = windows.as_mut().filter(|_| sends) {
            let completed = job.completed.iter();
            let completed = completed.map(|Completed(count)| count.load(Ordering::Relaxed));
            if windows.look(now, completed.sum()) {
                job.tickets.end();
            }
        }
        if wanted && now > 2_000_000_000 {
            bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
            bar.set_position(job.tickets.progress(now));
            bar.set_message(format!("{} requests", job.tickets.taken()));
        }
    }
    bar.finish_and_clear();
    windows.map(|windows| windows.stability())
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::hidden();
    let style = ProgressStyle::with_template("{elapsed:>4} {wide_bar} {percent:>3}% {msg}");
    bar.set_style(style.expect("the template is well formed"));
    bar.set_length(1000);
    bar
}
