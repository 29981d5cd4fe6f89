//! Counters of a running server and their page.

mod counters;
mod process;
mod progress;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plan::stub::Stub;
use wire::metrics::{Counter, Distribution, Series, Snapshot};

use crate::cpu::Thread;

pub(crate) use counters::{Asked, Counters};
pub(crate) use progress::{Progress, nanoseconds};

/// What all workers count together.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    late_steps: AtomicU64,
    late_ns: AtomicU64,
    latest_ns: AtomicU64,
    requests: AtomicU64,
    /// Locked by a worker when it starts and by the page, never by a request for text.
    workers: Mutex<Vec<(Thread, Arc<Counters>)>>,
}

/// How late paced steps were written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lateness {
    /// The latest.
    pub max: Duration,
    /// The mean.
    pub mean: Duration,
    /// Steps that had a time.
    pub steps: u64,
}

impl Metrics {
    /// Takes up a worker and gives it its counters.
    pub(crate) fn add_worker(&self, thread: Thread) -> Arc<Counters> {
        let counters = Arc::new(Counters::new());
        let mut workers = self.workers.lock().expect("nobody panics with the lock");
        workers.push((thread, Arc::clone(&counters)));
        counters
    }

    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// A step that had a time was written so much later.
    pub(crate) fn count_late(&self, late: Duration) {
        let nanoseconds = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        self.late_steps.fetch_add(1, Ordering::Relaxed);
        self.late_ns.fetch_add(nanoseconds, Ordering::Relaxed);
        self.latest_ns.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    /// CPU time of all workers.
    pub(crate) fn worker_cpu(&self) -> Duration {
        let workers = self.workers.lock().expect("nobody panics with the lock");
        workers.iter().map(|(thread, _)| thread.time()).sum()
    }

    /// How long all workers could have run but waited for a core, where the kernel tells.
    pub(crate) fn worker_wait(&self) -> Option<Duration> {
        let workers = self.workers.lock().expect("nobody panics with the lock");
        workers.iter().map(|(thread, _)| thread.wait()).sum()
    }

    /// The pacing error so far, if anything was paced.
    pub(crate) fn lateness(&self) -> Option<Lateness> {
        let steps = self.late_steps.load(Ordering::Relaxed);
        let total = self.late_ns.load(Ordering::Relaxed);
        Some(Lateness {
            max: Duration::from_nanos(self.latest_ns.load(Ordering::Relaxed)),
            mean: Duration::from_nanos(total.checked_div(steps)?),
            steps,
        })
    }

    /// The page of `/metrics`: the imitated server's, and what only a stub has.
    pub(crate) fn page(&self, stub: &Stub, started_unix_ns: u64) -> String {
        let mut page = String::new();
        let created = Duration::from_nanos(started_unix_ns).as_secs_f64();
        self.encode_counted(stub, created, &mut page);
        let mut add = |name: &str, kind: &str, help: &str, value: f64| {
            writeln!(
                page,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
            )
            .expect("a String takes all");
        };
        add(
            "stubline_worker_cpu_seconds_total",
            "counter",
            "CPU time of the threads that serve connections.",
            self.worker_cpu().as_secs_f64(),
        );
        if let Some(wait) = self.worker_wait() {
            add(
                "stubline_worker_wait_seconds_total",
                "counter",
                "Time that these threads were ready to run but waited for a core.",
                wait.as_secs_f64(),
            );
        }
        #[expect(clippy::cast_precision_loss, reason = "a count for people")]
        add(
            "stubline_requests_total",
            "counter",
            "HTTP requests.",
            self.requests.load(Ordering::Relaxed) as f64,
        );
        if let Some(late) = self.lateness() {
            add(
                "stubline_pacing_late_seconds_mean",
                "gauge",
                "Mean lateness of paced steps.",
                late.mean.as_secs_f64(),
            );
            add(
                "stubline_pacing_late_seconds_max",
                "gauge",
                "Largest lateness of a paced step.",
                late.max.as_secs_f64(),
            );
        }
        page
    }

    fn encode_counted(&self, stub: &Stub, created: f64, page: &mut String) {
        let workers = self.workers.lock().expect("nobody panics with the lock");
        let counters: Vec<&Counters> = workers.iter().map(|(_, counters)| &**counters).collect();
        let handled = counters::handled(&counters);
        let mut snapshot = Snapshot {
            counters: [0; Counter::COUNT],
            created,
            distributions: Series::ALL.map(|_| Distribution::default()),
            handled: &handled,
            max_model_len: stub.engine.max_model_len,
            model: &stub.names[0],
            process: process::read(),
            running: 0,
        };
        for counters in counters {
            counters.add_to(&mut snapshot);
        }
        stub.dialect.encode_metrics(&snapshot, page);
    }
}
