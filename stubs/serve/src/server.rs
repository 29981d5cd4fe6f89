//! A running stub server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plan::replay::Replay;
use plan::stub::Stub;
use tokio::sync::watch;
use tokio::time::Instant;

pub use crate::metrics::Lateness;

use crate::control_plane::{self, Desk};
use crate::listen;
use crate::local::Phase;
use crate::metrics::Metrics;
use crate::replay::{Player, Plays};
use crate::truth;
use crate::worker::{Shared, Worker};

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to bind; port 0 picks a free one.
    pub address: SocketAddr,
    /// How long an idle connection is kept between requests; `None` for ever.
    pub keep_alive: Option<Duration>,
    /// Longest request body in bytes.
    pub max_body: usize,
    /// Longest request head in bytes.
    pub max_head: usize,
    /// Seed of the ids.
    pub seed: u64,
    /// The truth file.
    pub truth: Option<PathBuf>,
    /// Threads that serve.
    pub workers: usize,
}

impl Default for Config {
    /// Loopback, a free port, one worker, the documented limits.
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            keep_alive: None,
            max_body: 32 << 20,
            max_head: 256 << 10,
            seed: 0,
            truth: None,
            workers: 1,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be bound.
    #[error("cannot listen on {0}: {1}; choose another --port (0 for any free one) or --host")]
    Bind(SocketAddr, io::Error),
    /// A model worker could not be started.
    #[error("{0}")]
    ModelWorker(String),
    /// A thread could not be started.
    #[error("cannot start a worker: {0}")]
    Thread(io::Error),
    /// The truth file cannot be written.
    #[error("cannot write {0:?}: {1}")]
    Truth(PathBuf, io::Error),
}

/// A server that runs until it is stopped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    phase: watch::Sender<Phase>,
    truth: Option<truth::Writer>,
    workers: Vec<JoinHandle<io::Result<()>>>,
}

/// What a server says when it has stopped.
#[derive(Clone, Copy, Debug)]
pub struct Stopped {
    /// Its pacing error, if anything was paced.
    pub lateness: Option<Lateness>,
    /// Truth records that found no room in the queue.
    pub truth_dropped: u64,
}

impl Server {
    /// Binds and starts a stub; when this returns, every worker accepts.
    pub fn start(config: &Config, stub: Arc<Stub>) -> Result<Self, StartError> {
        let seed = config.seed;
        let run = move |listener, shared, number: u64| {
            let stub = Arc::clone(&stub);
            Worker::run(listener, shared, stub, seed.wrapping_add(number))
        };
        Self::launch(config, || Ok(run))
    }

    /// Binds and plays recorded answers.
    pub fn replay(config: &Config, replay: Arc<Replay>, plays: Plays) -> Result<Self, StartError> {
        let run =
            move |listener, shared, _| Player::run(listener, shared, Arc::clone(&replay), plays);
        Self::launch(config, || Ok(run))
    }

    /// Binds, lets the worker of a control plane get ready, and serves it.
    pub(crate) fn control_plane(
        config: &Config,
        desk: impl FnOnce() -> Result<Desk, StartError>,
    ) -> Result<Self, StartError> {
        Self::launch(config, || {
            let desk = Arc::new(desk()?);
            Ok(move |listener, shared, _| control_plane::run(listener, shared, Arc::clone(&desk)))
        })
    }

    /// Binds, prepares what is to run on each thread once nothing else can fail, and starts it.
    fn launch<R>(
        config: &Config,
        prepare: impl FnOnce() -> Result<R, StartError>,
    ) -> Result<Self, StartError>
    where
        R: Fn(std::net::TcpListener, Shared, u64) -> io::Result<()> + Clone + Send + 'static,
    {
        listen::raise_file_limit();
        let workers = config.workers.max(1);
        let listeners = listen::bind(config.address, workers)
            .map_err(|error| StartError::Bind(config.address, error))?;
        let address = listeners[0]
            .local_addr()
            .map_err(|error| StartError::Bind(config.address, error))?;
        let (sink, writer) = match &config.truth {
            None => (None, None),
            Some(path) => {
                let (sink, writer) =
                    truth::open(path).map_err(|error| StartError::Truth(path.clone(), error))?;
                (Some(sink), Some(writer))
            }
        };
        let run = prepare()?;
        let (phase, phases) = watch::channel(Phase::Serving);
        let metrics = Arc::new(Metrics::default());
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        let started = started.map_or(0, |since| since.as_nanos());
        let shared = Shared {
            connections: Arc::default(),
            keep_alive: config.keep_alive,
            max_body: config.max_body,
            max_head: config.max_head,
            metrics: Arc::clone(&metrics),
            origin: Instant::now(),
            phase: phases,
            started_unix_ns: u64::try_from(started).unwrap_or(u64::MAX),
            truth: sink,
        };
        let spawn = |(number, listener)| {
            let (shared, run) = (shared.clone(), run.clone());
            std::thread::Builder::new()
                .name(format!("serve-{number}"))
                .spawn(move || run(listener, shared, number))
        };
        let threads: io::Result<_> = (0..).zip(listeners).map(spawn).collect();
        Ok(Self {
            address,
            metrics,
            phase,
            truth: writer,
            workers: threads.map_err(StartError::Thread)?,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// CPU time of its workers so far.
    pub fn cpu(&self) -> Duration {
        self.metrics.worker_cpu()
    }

    /// How long its workers were ready to run but waited for a core, where the kernel tells.
    pub fn wait(&self) -> Option<Duration> {
        self.metrics.worker_wait()
    }

    /// Stops accepting, waits up to `drain` for what is in flight, ends the rest, flushes the truth.
    pub fn stop(self, drain: Duration) -> io::Result<Stopped> {
        self.phase.send_replace(Phase::Draining);
        let deadline = self.phase.clone();
        let (finished, waits) = std::sync::mpsc::channel::<()>();
        let timer = std::thread::spawn(move || {
            if waits.recv_timeout(drain).is_err() {
                deadline.send_replace(Phase::Stopping);
            }
        });
        let mut result = Ok(());
        for worker in self.workers {
            let ended = worker.join();
            let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            result = result.and(ended);
        }
        // The timer ends with the channel; whether it had run out no longer matters.
        drop(finished);
        timer.join().expect("the timer does not panic");
        result?;
        Ok(Stopped {
            lateness: self.metrics.lateness(),
            truth_dropped: match self.truth {
                None => 0,
                Some(writer) => writer.finish()?,
            },
        })
    }
}
