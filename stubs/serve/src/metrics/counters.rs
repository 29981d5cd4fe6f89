//! What one worker counts. It alone writes, so counting is a load and a store without a lock; a page
//! that reads meanwhile may see one number a request ahead of another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plan::Route;
use wire::dialect::Dialect;
use wire::metrics::{Counter, Distribution, HANDLER_BOUNDS, Handled, Series, Snapshot};
use wire::route::Entry;

use super::late::Late;
use super::progress::nanoseconds;

/// HTTP methods that are told apart; the last stands for the rest.
const METHODS: [&str; 9] = [
    "POST", "GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "OTHER",
];

/// A number that one thread writes and others read.
#[derive(Debug, Default)]
pub(super) struct Number(AtomicU64);

impl Number {
    pub(super) fn add(&self, more: u64) {
        self.set(self.value().wrapping_add(more));
    }

    pub(super) fn sub(&self, less: u64) {
        self.set(self.value().wrapping_sub(less));
    }

    pub(super) fn raise(&self, value: u64) {
        if value > self.value() {
            self.set(value);
        }
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All numbers of one worker.
#[derive(Debug)]
pub(crate) struct Counters {
    /// CPU time of other threads that worked for this one, in nanoseconds.
    pub(super) aside_ns: Number,
    pub(super) late: Late,
    pub(super) requests: Number,
    pub(super) running: Number,
    pub(super) waiting: Number,
    counts: [Number; Counter::COUNT],
    /// By route, those that are none at the end, and then by method.
    handled: Vec<[OfMethod; METHODS.len()]>,
    series: [Observed; Series::ALL.len()],
}

#[derive(Debug)]
struct Observed {
    bounds: &'static [u64],
    /// The first of them, at hand.
    first: u64,
    buckets: Box<[Number]>,
    /// The last value that was looked up, and its bucket: answers of a load are often alike.
    last: (Number, Number),
    sum: Number,
}

#[derive(Debug)]
struct OfMethod {
    by_status: [Number; 5],
    durations: Observed,
    request_bytes: Number,
    response_bytes: Number,
}

/// One HTTP exchange, as the server's own counters see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// As `content-length` tells.
    pub(crate) request_bytes: u64,
    /// As `content-length` tells.
    pub(crate) response_bytes: u64,
    pub(crate) route: Option<Route>,
    pub(crate) status: u16,
}

/// An HTTP method that is told apart, or the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method(usize);

impl Method {
    pub(crate) fn named(name: &str) -> Self {
        let known = METHODS.iter().position(|known| *known == name);
        Self(known.unwrap_or(METHODS.len() - 1))
    }
}

impl Counters {
    pub(super) fn new(dialect: Dialect) -> Self {
        let of_method = |_| OfMethod {
            by_status: Default::default(),
            durations: Observed::new(HANDLER_BOUNDS),
            request_bytes: Number::default(),
            response_bytes: Number::default(),
        };
        let of_route = |_| std::array::from_fn(of_method);
        Self {
            aside_ns: Number::default(),
            late: Late::default(),
            requests: Number::default(),
            running: Number::default(),
            waiting: Number::default(),
            counts: Default::default(),
            handled: (0..=Route::COUNT).map(of_route).collect(),
            series: Series::ALL.map(|series| Observed::new(dialect.bounds(series))),
        }
    }

    pub(super) fn add(&self, counter: Counter, more: u64) {
        self.counts[counter as usize].add(more);
    }

    pub(super) fn observe(&self, series: Series, value: u64) {
        self.observe_many(series, value, 1);
    }

    /// The same value so many times.
    pub(super) fn observe_many(&self, series: Series, value: u64, times: u64) {
        self.series[series as usize].add(value, times);
    }

    /// Another thread worked so long for this one.
    pub(crate) fn count_aside(&self, time: Duration) {
        self.aside_ns.add(nanoseconds(time));
    }

    /// Counts a request whose answer begins.
    pub(crate) fn count_request(&self) {
        self.requests.add(1);
    }

    /// A step that had a time was written so much later.
    pub(crate) fn count_late(&self, late: Duration) {
        self.late.add(nanoseconds(late));
    }

    /// Counts an exchange that is over, so long after its arrival.
    pub(crate) fn count_http(&self, asked: &Asked, duration_ns: u64) {
        let queued = [Route::Chat, Route::Completions, Route::Generate];
        if asked.status == 503 && asked.route.is_some_and(|route| queued.contains(&route)) {
            self.add(Counter::AdmissionRejections, 1);
        }
        if asked.route.is_some_and(Route::is_uncounted) {
            return;
        }
        self.observe(Series::HttpDuration, duration_ns);
        let row = asked.route.map_or(Route::COUNT, |route| route as usize);
        let of_method = &self.handled[row][asked.method.0];
        let digit = usize::from(asked.status / 100).clamp(1, 5);
        of_method.by_status[digit - 1].add(1);
        of_method.durations.add(duration_ns, 1);
        of_method.request_bytes.add(asked.request_bytes);
        of_method.response_bytes.add(asked.response_bytes);
    }

    /// Adds the engine's numbers to those of other workers.
    pub(super) fn add_to(&self, snapshot: &mut Snapshot<'_>) {
        for (sum, counter) in snapshot.counters.iter_mut().zip(&self.counts) {
            *sum += counter.value();
        }
        for (sum, series) in snapshot.distributions.iter_mut().zip(&self.series) {
            series.add_to(sum);
        }
        snapshot.running += self.running.value();
        snapshot.waiting += self.waiting.value();
    }
}

/// What was asked of all workers together, by route and method; what was not asked is left out.
pub(super) fn handled(workers: &[&Counters], routes: &[Entry]) -> Vec<Handled> {
    let mut handled = Vec::new();
    let none = std::iter::once((Route::COUNT, "none"));
    let is_first = |(at, entry): &(usize, &Entry)| {
        let before = &mut routes[..*at].iter();
        before.all(|other| other.route != entry.route)
    };
    let routes = routes.iter().enumerate().filter(is_first);
    let routes = routes.map(|(_, entry)| (entry.route as usize, entry.path));
    for (row, handler) in routes.chain(none) {
        for (column, method) in METHODS.into_iter().enumerate() {
            let mut sum = Handled {
                handler,
                method,
                by_status: [0; 5],
                durations: Distribution::default(),
                request_bytes: 0,
                response_bytes: 0,
            };
            for worker in workers {
                worker.handled[row][column].add_to(&mut sum);
            }
            if sum.by_status.iter().any(|count| *count > 0) {
                handled.push(sum);
            }
        }
    }
    handled
}

impl OfMethod {
    fn add_to(&self, sum: &mut Handled) {
        for (sum, count) in sum.by_status.iter_mut().zip(&self.by_status) {
            *sum += count.value();
        }
        self.durations.add_to(&mut sum.durations);
        sum.request_bytes += self.request_bytes.value();
        sum.response_bytes += self.response_bytes.value();
    }
}

impl Observed {
    fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            first: bounds.first().copied().unwrap_or(0),
            buckets: (0..=bounds.len()).map(|_| Number::default()).collect(),
            last: (Number(AtomicU64::new(u64::MAX)), Number::default()),
            sum: Number::default(),
        }
    }

    fn add(&self, value: u64, times: u64) {
        let bucket = self.bucket(value);
        self.buckets[bucket].add(times);
        self.sum.add(value.wrapping_mul(times));
    }

    fn bucket(&self, value: u64) -> usize {
        // Nearly all values of a server in no hurry are small.
        if value <= self.first {
            return 0;
        }
        let (last, bucket) = &self.last;
        if last.value() != value {
            let found = self.bounds.partition_point(|bound| *bound < value);
            bucket.set(found as u64);
            last.set(value);
        }
        usize::try_from(bucket.value()).unwrap_or(0)
    }

    fn add_to(&self, sum: &mut Distribution) {
        sum.buckets.resize(self.buckets.len(), 0);
        for (sum, count) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum += count.value();
        }
        sum.sum += self.sum.value();
    }
}
