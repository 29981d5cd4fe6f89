//! vLLM's metrics page: names, labels and order as recorded, numbers as Python's client writes them.

mod families;

use crate::dialect::prometheus::{self, buckets, escaped, real};
use crate::metrics::{Counter, HANDLER_BOUNDS, Handled, Series, Snapshot};

pub(super) use families::{CACHE_CONFIG_0_32, CACHE_CONFIG_0_33};
use families::{FAMILIES, Kind, Sample, Value};

/// Appends the page.
pub(crate) fn encode(cache_config: &str, snapshot: &Snapshot<'_>, out: &mut String) {
    let mut page = Page { out, snapshot };
    page.python();
    page.process();
    page.engine();
    page.head(
        "vllm:cache_config_info",
        "gauge",
        "Information of the LLMEngine CacheConfig",
    );
    page.line("vllm:cache_config_info", &[cache_config], 1.0);
    page.http();
}

struct Page<'p> {
    out: &'p mut String,
    snapshot: &'p Snapshot<'p>,
}

const GENERATIONS: [&str; 3] = ["generation=\"0\"", "generation=\"1\"", "generation=\"2\""];

impl Page<'_> {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        prometheus::head(self.out, name, kind, help);
    }

    fn line(&mut self, name: &str, labels: &[&str], value: f64) {
        prometheus::line(self.out, name, labels, value);
    }

    /// The moments from which on was counted, as a family of its own.
    fn created(&mut self, name: &str, help: &str, labels: &[Vec<&str>]) {
        let name = format!("{name}_created");
        if !labels.is_empty() {
            self.head(&name, "gauge", help);
        }
        for labels in labels {
            self.line(&name, labels, self.snapshot.created);
        }
    }

    /// A stub has no Python whose garbage is collected.
    fn python(&mut self) {
        for (name, help) in [
            (
                "python_gc_objects_collected_total",
                "Objects collected during gc",
            ),
            (
                "python_gc_objects_uncollectable_total",
                "Uncollectable objects found during GC",
            ),
            (
                "python_gc_collections_total",
                "Number of times this generation was collected",
            ),
        ] {
            self.head(name, "counter", help);
            for generation in GENERATIONS {
                self.line(name, &[generation], 0.0);
            }
        }
        let version =
            r#"implementation="CPython",major="3",minor="12",patchlevel="1",version="3.12.1""#;
        self.head("python_info", "gauge", "Python platform information");
        self.line("python_info", &[version], 1.0);
    }

    fn process(&mut self) {
        let process = self.snapshot.process;
        for (name, kind, help, value) in [
            (
                "process_virtual_memory_bytes",
                "gauge",
                "Virtual memory size in bytes.",
                real(process.virtual_bytes),
            ),
            (
                "process_resident_memory_bytes",
                "gauge",
                "Resident memory size in bytes.",
                real(process.resident_bytes),
            ),
            (
                "process_start_time_seconds",
                "gauge",
                "Start time of the process since unix epoch in seconds.",
                process.start_seconds,
            ),
            (
                "process_cpu_seconds_total",
                "counter",
                "Total user and system CPU time spent in seconds.",
                process.cpu_seconds,
            ),
            (
                "process_open_fds",
                "gauge",
                "Number of open file descriptors.",
                real(process.open_fds),
            ),
            (
                "process_max_fds",
                "gauge",
                "Maximum number of open file descriptors.",
                real(process.max_fds),
            ),
        ] {
            self.head(name, kind, help);
            self.line(name, &[], value);
        }
    }

    fn engine(&mut self) {
        let model = format!("model_name=\"{}\"", escaped(self.snapshot.model));
        for family in FAMILIES {
            let (name, help) = (family.name, family.help);
            match family.kind {
                Kind::Counter(samples) => self.counter(name, help, "engine=\"0\"", &model, samples),
                Kind::ServerCounter(samples) => self.counter(name, help, "", &model, samples),
                Kind::Gauge(samples) => {
                    self.head(name, "gauge", help);
                    self.samples(name, "engine=\"0\"", &model, samples);
                }
                Kind::Histogram(series) => {
                    self.head(name, "histogram", help);
                    self.histogram(name, ["engine=\"0\"", &model], series);
                    self.created(name, help, &[vec!["engine=\"0\"", &model]]);
                }
            }
        }
    }

    fn counter(&mut self, name: &str, help: &str, engine: &str, model: &str, samples: &[Sample]) {
        let total = format!("{name}_total");
        self.head(&total, "counter", help);
        self.samples(&total, engine, model, samples);
        let name = format!("{name}_created");
        self.head(&name, "gauge", help);
        for sample in samples {
            let label = sample.label();
            self.line(
                &name,
                &sample.ordered(engine, model, &label),
                self.snapshot.created,
            );
        }
    }

    fn samples(&mut self, name: &str, engine: &str, model: &str, samples: &[Sample]) {
        for sample in samples {
            let label = sample.label();
            let value = self.value(sample.value);
            self.line(name, &sample.ordered(engine, model, &label), value);
        }
    }

    fn value(&self, value: Value) -> f64 {
        let count = |counter: Counter| self.snapshot.counters[counter as usize];
        match value {
            Value::Computed => {
                real(count(Counter::PromptTokens).saturating_sub(count(Counter::CachedTokens)))
            }
            Value::Constant(value) => value,
            Value::Counted(counter) => real(count(counter)),
            Value::Running => real(self.snapshot.running),
            Value::Waiting => real(self.snapshot.waiting),
        }
    }

    /// A histogram of the engine's or, without labels, of the server's.
    fn histogram(&mut self, name: &str, [engine, model]: [&str; 2], series: Series) {
        let snapshot = self.snapshot;
        let limit = snapshot.max_model_len.filter(|_| series.is_length());
        let bounds = series.bounds();
        let shown = bounds.partition_point(|bound| limit.is_none_or(|limit| *bound <= limit));
        let distribution = &snapshot.distributions[series as usize];
        let lines = buckets(&bounds[..shown], series.unit(), distribution);
        for (bound, count) in lines {
            self.line(&format!("{name}_bucket"), &[engine, &bound, model], count);
        }
        let count = real(distribution.buckets.iter().sum());
        self.line(&format!("{name}_count"), &[engine, model], count);
        let sum = real(distribution.sum) / real(series.unit());
        self.line(&format!("{name}_sum"), &[engine, model], sum);
    }

    fn http(&mut self) {
        let all = self.snapshot.handled;
        let labels = |handled: &Handled| {
            let handler = format!("handler=\"{}\"", handled.handler);
            (handler, format!("method=\"{}\"", handled.method))
        };
        let labels: Vec<(String, String)> = all.iter().map(labels).collect();
        self.requests(&labels);
        self.sizes("http_request_size_bytes", "incoming requests", |handled| {
            handled.request_bytes
        });
        self.sizes(
            "http_response_size_bytes",
            "outgoing responses",
            |handled| handled.response_bytes,
        );
        let (name, help) = (
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
        );
        self.head(name, "histogram", help);
        self.histogram(name, ["", ""], Series::HttpDuration);
        self.created(name, help, &[Vec::new()]);
        let (name, help) = (
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
        );
        self.head(name, "histogram", help);
        let unit = Series::HttpDuration.unit();
        for (handled, (handler, method)) in all.iter().zip(&labels) {
            for (bound, count) in buckets(HANDLER_BOUNDS, unit, &handled.durations) {
                self.line(&format!("{name}_bucket"), &[handler, &bound, method], count);
            }
            let count = real(handled.durations.buckets.iter().sum());
            self.line(&format!("{name}_count"), &[handler, method], count);
            let sum = real(handled.durations.sum) / real(unit);
            self.line(&format!("{name}_sum"), &[handler, method], sum);
        }
        let both = labels
            .iter()
            .map(|(handler, method)| vec![&**handler, &**method]);
        let both: Vec<Vec<&str>> = both.collect();
        self.created(name, help, &both);
    }

    fn requests(&mut self, labels: &[(String, String)]) {
        let (name, help) = (
            "http_requests",
            "Total number of requests by method, status and handler.",
        );
        self.head("http_requests_total", "counter", help);
        let mut told = Vec::new();
        for (handled, (handler, method)) in self.snapshot.handled.iter().zip(labels) {
            for (digit, count) in (1..).zip(handled.by_status) {
                if count > 0 {
                    let status = format!("status=\"{digit}xx\"");
                    self.line(
                        "http_requests_total",
                        &[handler, method, &status],
                        real(count),
                    );
                    told.push((&**handler, &**method, status));
                }
            }
        }
        let told = told
            .iter()
            .map(|(handler, method, status)| vec![*handler, *method, status]);
        let told: Vec<Vec<&str>> = told.collect();
        self.created(name, help, &told);
    }

    /// A summary by handler, whatever the method.
    fn sizes(&mut self, name: &str, what: &str, bytes: impl Fn(&Handled) -> u64) {
        let help = format!(
            "Content length of {what} by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. "
        );
        self.head(name, "summary", &help);
        let mut told = Vec::new();
        for of_handler in self
            .snapshot
            .handled
            .chunk_by(|a, b| a.handler == b.handler)
        {
            let handler = format!("handler=\"{}\"", of_handler[0].handler);
            let count = of_handler
                .iter()
                .flat_map(|handled| handled.by_status)
                .sum();
            self.line(&format!("{name}_count"), &[&handler], real(count));
            let sum = of_handler.iter().map(&bytes).sum();
            self.line(&format!("{name}_sum"), &[&handler], real(sum));
            told.push(handler);
        }
        let told: Vec<Vec<&str>> = told.iter().map(|handler| vec![&**handler]).collect();
        self.created(name, &help, &told);
    }
}

impl Sample {
    fn label(&self) -> String {
        let label = |(name, word)| format!("{name}=\"{word}\"");
        self.label.map(label).unwrap_or_default()
    }

    /// The labels by their names, as the client sorts them.
    fn ordered<'l>(&self, engine: &'l str, model: &'l str, own: &'l str) -> [&'l str; 3] {
        if self.label.is_some_and(|(name, _)| name < "model_name") {
            [engine, own, model]
        } else {
            [engine, model, own]
        }
    }
}
