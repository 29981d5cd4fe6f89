//! Counters of a running server and their page.

mod counters;
mod late;
mod process;
mod progress;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plan::stub::Stub;
use wire::dialect::sglang::info::encode_loads;
use wire::dialect::{Dialect, prometheus};
use wire::metrics::{Counter, Distribution, Series, Snapshot};

use crate::cpu::Thread;

pub(crate) use counters::{Asked, Counters, Method};
pub use late::Lateness;
pub(crate) use progress::{Progress, nanoseconds};

/// What all workers count together.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Locked by a worker when it starts and by the page, never by a request for text.
    workers: Mutex<Vec<(Thread, Arc<Counters>)>>,
}

impl Metrics {
    /// Takes up a worker and gives it the counters of a server.
    pub(crate) fn add_worker(&self, thread: Thread, dialect: Dialect) -> Arc<Counters> {
        let counters = Arc::new(Counters::new(dialect));
        let mut workers = self.workers.lock().expect("nobody panics with the lock");
        workers.push((thread, Arc::clone(&counters)));
        counters
    }

    /// CPU time of all workers, and of threads that worked for them.
    pub(crate) fn worker_cpu(&self) -> Duration {
        let workers = self.workers.lock().expect("nobody panics with the lock");
        let times = workers.iter().map(|(thread, counters)| {
            thread.time() + Duration::from_nanos(counters.aside_ns.value())
        });
        times.sum()
    }

    /// How long all workers could have run but waited for a core, where the kernel tells.
    pub(crate) fn worker_wait(&self) -> Option<Duration> {
        let workers = self.workers.lock().expect("nobody panics with the lock");
        workers.iter().map(|(thread, _)| thread.wait()).sum()
    }

    /// The pacing error so far, if anything was paced.
    pub(crate) fn lateness(&self) -> Option<Lateness> {
        let workers = self.workers.lock().expect("nobody panics with the lock");
        late::lateness(workers.iter().map(|(_, counters)| &counters.late))
    }

    /// Requests whose answer has begun.
    fn requests(&self) -> u64 {
        let workers = self.workers.lock().expect("nobody panics with the lock");
        let requests = workers
            .iter()
            .map(|(_, counters)| counters.requests.value());
        requests.sum()
    }

    /// The page of `/metrics`: the imitated server's, and what only a stub has.
    pub(crate) fn page(&self, stub: &Stub, started_unix_ns: u64) -> String {
        let mut page = String::new();
        let created = Duration::from_nanos(started_unix_ns).as_secs_f64();
        self.encode_counted(stub, created, &mut page);
        self.encode_own(&mut page);
        page
    }

    /// Appends what only a stub has.
    pub(crate) fn encode_own(&self, page: &mut String) {
        let mut add = |name: &str, kind: &str, help: &str, value: f64| {
            prometheus::head(page, name, kind, help);
            writeln!(page, "{name} {value}").expect("a String takes all");
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
            self.requests() as f64,
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
            encode_late(&late, page);
        }
    }

    fn encode_counted(&self, stub: &Stub, created: f64, page: &mut String) {
        self.with_snapshot(stub, created, |snapshot| {
            stub.dialect.encode_metrics(snapshot, page);
        });
    }

    /// The JSON of SGLang's `/v1/loads` at a moment since 1970.
    pub(crate) fn loads(&self, stub: &Stub, now: Duration) -> Vec<u8> {
        let mut out = Vec::new();
        self.with_snapshot(stub, 0.0, |snapshot| {
            encode_loads(stub.dialect.version(), snapshot, now, &mut out);
        });
        out
    }

    fn with_snapshot(&self, stub: &Stub, created: f64, told: impl FnOnce(&Snapshot<'_>)) {
        let workers = self.workers.lock().expect("nobody panics with the lock");
        let counters: Vec<&Counters> = workers.iter().map(|(_, counters)| &**counters).collect();
        let handled = counters::handled(&counters, stub.dialect.manner().routes);
        let mut snapshot = Snapshot {
            counters: [0; Counter::COUNT],
            created,
            distributions: Series::ALL.map(|_| Distribution::default()),
            handled: &handled,
            max_model_len: stub.engine.max_model_len,
            model: &stub.names[0],
            process: process::read(),
            running: 0,
            waiting: 0,
        };
        for counters in counters {
            counters.add_to(&mut snapshot);
        }
        told(&snapshot);
    }
}

/// The pacing error as a summary.
fn encode_late(late: &Lateness, page: &mut String) {
    let name = "stubline_pacing_late_seconds";
    prometheus::head(page, name, "summary", "Lateness of paced steps.");
    writeln!(
        page,
        "{name}{{quantile=\"0.5\"}} {}\n\
         {name}{{quantile=\"0.99\"}} {}\n\
         {name}_sum {}\n\
         {name}_count {}",
        late.p50.as_secs_f64(),
        late.p99.as_secs_f64(),
        late.total.as_secs_f64(),
        late.steps,
    )
    .expect("a String takes all");
}
