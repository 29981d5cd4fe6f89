//! SGLang's metrics page: names, labels and order as recorded. A stub counts what all answers have in
//! common, so streamed ones and others stand in one line, as if all were streamed.

mod families;

use crate::dialect::prometheus::{self, buckets, escaped, real};
use crate::metrics::{Counter, Distribution, Handled, Series, Snapshot, scaled};

use families::FAMILIES;

/// What is told under one name.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    of: Of,
}

/// How it is told.
enum Kind {
    Counter(&'static [Sample]),
    /// Of what a stub never does.
    EmptyHistogram,
    Gauge(&'static [Sample]),
    Histogram(Series),
    /// By path and method.
    Http(Http),
}

/// What is told of HTTP.
#[derive(Clone, Copy)]
enum Http {
    Active,
    Requests,
    Responses,
}

/// What it is told of, which decides the labels that all lines have.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Of {
    /// A model's answers, streamed or not.
    Answers,
    /// A model.
    Model,
    /// A process of a model's.
    Process,
    /// A model's share of the hardware.
    Rank,
    /// The server.
    Server,
}

/// One line.
struct Sample {
    /// Labels of its own.
    labels: &'static [(&'static str, &'static str)],
    value: Value,
}

/// Where a line's number comes from.
#[derive(Clone, Copy)]
enum Value {
    /// Prompt tokens that were not cached.
    Computed,
    /// Nothing that a stub has.
    Constant(f64),
    /// The longest context.
    Context,
    /// A counter.
    Counted(Counter),
    /// CPU time of the process.
    Cpu,
    /// Choices that have ended.
    Ended,
    /// The share of prompt tokens that were cached.
    HitRate,
    /// Choices that are being answered.
    Running,
    /// Choices that wait for their turn.
    Waiting,
}

const ENDED: [Counter; 5] = [
    Counter::EndedByAbort,
    Counter::EndedByError,
    Counter::EndedByLength,
    Counter::EndedByRepetition,
    Counter::EndedByStop,
];

/// Appends the page.
pub(crate) fn encode(snapshot: &Snapshot<'_>, out: &mut String) {
    let mut page = Page {
        model: format!("model_name=\"{}\"", escaped(snapshot.model)),
        out,
        snapshot,
    };
    for family in FAMILIES {
        page.family(family);
    }
}

struct Page<'p> {
    model: String,
    out: &'p mut String,
    snapshot: &'p Snapshot<'p>,
}

impl Page<'_> {
    fn family(&mut self, family: &Family) {
        let (name, help) = (family.name, family.help);
        let kind = match &family.kind {
            Kind::Counter(_) | Kind::Http(Http::Requests | Http::Responses) => "counter",
            Kind::EmptyHistogram | Kind::Histogram(_) => "histogram",
            Kind::Gauge(_) | Kind::Http(Http::Active) => "gauge",
        };
        prometheus::head(self.out, name, kind, help);
        match &family.kind {
            Kind::Counter(samples) | Kind::Gauge(samples) => {
                for sample in *samples {
                    let own = sample.labels.iter();
                    let own = own
                        .map(|(name, word)| format!("{name}=\"{word}\""))
                        .collect();
                    self.line(name, family.of, own, self.value(sample.value));
                }
            }
            Kind::EmptyHistogram => self.histogram(family, &[], 1, &Distribution::default()),
            Kind::Histogram(series) => {
                let snapshot = self.snapshot;
                let distribution = &snapshot.distributions[*series as usize];
                self.histogram(family, bounds(*series), series.unit(), distribution);
            }
            Kind::Http(told) => {
                for handled in self.snapshot.handled {
                    self.http(family, *told, handled);
                }
            }
        }
    }

    /// A line with these labels and those that all lines of the kind have, sorted by name.
    fn line(&mut self, name: &str, of: Of, own: Vec<String>, value: f64) {
        let mut labels = own;
        if of != Of::Server {
            labels.push("engine_type=\"unified\"".into());
            labels.push(self.model.clone());
        }
        match of {
            Of::Answers => labels.push("is_streaming=\"true\"".into()),
            Of::Process | Of::Rank => {
                let ranks = ["moe_ep_rank=\"0\"", "pp_rank=\"0\"", "tp_rank=\"0\""];
                labels.extend(ranks.map(Into::into));
            }
            Of::Model | Of::Server => {}
        }
        if of == Of::Process {
            labels.push(format!("pid=\"{}\"", self.snapshot.process.pid));
        }
        labels.sort_unstable();
        let labels: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
        prometheus::line(self.out, name, &labels, value);
    }

    fn histogram(
        &mut self,
        family: &Family,
        bounds: &[u64],
        unit: u64,
        distribution: &Distribution,
    ) {
        let (name, of) = (family.name, family.of);
        let sum = real(distribution.sum) / real(unit);
        self.line(&format!("{name}_sum"), of, Vec::new(), sum);
        for (bound, count) in buckets(bounds, unit, distribution) {
            self.line(&format!("{name}_bucket"), of, vec![bound], count);
        }
        let count = real(distribution.buckets.iter().sum());
        self.line(&format!("{name}_count"), of, Vec::new(), count);
    }

    fn http(&mut self, family: &Family, told: Http, handled: &Handled) {
        let labels = || {
            vec![
                format!("endpoint=\"{}\"", handled.handler),
                format!("method=\"{}\"", handled.method),
            ]
        };
        let (name, of) = (family.name, family.of);
        match told {
            Http::Active => self.line(name, of, labels(), 0.0),
            Http::Requests => {
                self.line(name, of, labels(), real(handled.by_status.iter().sum()));
            }
            Http::Responses => {
                for (digit, count) in (1..).zip(handled.by_status) {
                    if count > 0 {
                        let mut labels = labels();
                        labels.push(format!("status_code=\"{digit}00\""));
                        self.line(name, of, labels, real(count));
                    }
                }
            }
        }
    }

    fn value(&self, value: Value) -> f64 {
        let snapshot = self.snapshot;
        let count = |counter: Counter| snapshot.counters[counter as usize];
        let (prompt, cached) = (count(Counter::PromptTokens), count(Counter::CachedTokens));
        match value {
            Value::Computed => real(prompt.saturating_sub(cached)),
            Value::Constant(value) => value,
            Value::Context => real(snapshot.max_model_len.unwrap_or(0)),
            Value::Counted(counter) => real(count(counter)),
            Value::Cpu => snapshot.process.cpu_seconds,
            Value::Ended => real(ENDED.into_iter().map(count).sum()),
            Value::HitRate if prompt == 0 => 0.0,
            Value::HitRate => real(cached) / real(prompt),
            Value::Running => real(snapshot.running),
            Value::Waiting => real(snapshot.waiting),
        }
    }
}

const MILLISECOND: u64 = 1_000_000;
const LENGTHS: &[u64] = &[
    100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10_000, 12_500,
    15_000, 17_500, 20_000, 22_500, 25_000, 27_500, 30_000, 35_000, 40_000, 60_000, 80_000,
    100_000, 200_000, 300_000, 400_000, 600_000, 800_000, 1_000_000, 1_100_000,
];
const FIRST: &[u64] = &scaled(
    [
        100, 200, 400, 600, 800, 1000, 2000, 4000, 6000, 8000, 10_000, 20_000, 40_000, 60_000,
        80_000, 100_000, 200_000, 400_000,
    ],
    MILLISECOND,
);
const WHOLE: &[u64] = &scaled(
    [
        100, 200, 400, 600, 800, 1000, 2000, 4000, 6000, 8000, 10_000, 20_000, 40_000, 60_000,
        80_000, 100_000, 200_000, 400_000, 600_000, 1_200_000, 1_800_000, 2_400_000,
    ],
    MILLISECOND,
);
const GAPS: &[u64] = &scaled(
    [
        2, 4, 6, 8, 10, 15, 20, 25, 30, 35, 40, 60, 80, 100, 200, 400, 600, 800, 1000, 2000, 4000,
        6000, 8000,
    ],
    MILLISECOND,
);
const QUEUE: &[u64] = &scaled(
    [
        0, 1, 5, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000, 15_000, 20_000,
        30_000, 40_000, 50_000, 60_000, 70_000, 80_000, 90_000, 100_000, 200_000, 300_000, 400_000,
        500_000, 600_000, 700_000, 800_000, 900_000, 1_000_000, 1_200_000, 1_400_000, 1_600_000,
        1_800_000, 2_000_000, 2_500_000, 3_000_000,
    ],
    MILLISECOND,
);

/// Upper bounds of a series' buckets: nanoseconds or tokens.
pub(crate) fn bounds(series: Series) -> &'static [u64] {
    match series {
        Series::EndToEnd => WHOLE,
        Series::GenerationTokens | Series::PrefillComputed | Series::PromptTokens => LENGTHS,
        Series::InterToken | Series::TimePerOutputToken => GAPS,
        Series::QueueTime => QUEUE,
        Series::TimeToFirstToken => FIRST,
        other => other.bounds(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Process;

    #[test]
    fn numbers_stand_behind_their_sorted_labels() {
        let mut snapshot = Snapshot {
            counters: [0; Counter::COUNT],
            created: 0.0,
            distributions: Series::ALL.map(|_| Distribution::default()),
            handled: &[],
            max_model_len: Some(64),
            model: "m",
            process: Process::default(),
            running: 2,
            waiting: 1,
        };
        snapshot.counters[Counter::PromptTokens as usize] = 8;
        snapshot.counters[Counter::CachedTokens as usize] = 6;
        snapshot.distributions[Series::QueueTime as usize].buckets = vec![3];
        let mut page = String::new();
        encode(&snapshot, &mut page);
        for line in [
            "sglang:prompt_tokens_total{engine_type=\"unified\",is_streaming=\"true\",model_name=\"m\"} 8.0",
            "sglang:prefill_effective_tokens_total{engine_type=\"unified\",mode=\"input\",model_name=\"m\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"} 2.0",
            "sglang:cache_hit_rate{engine_type=\"unified\",model_name=\"m\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"} 0.75",
            "sglang:num_running_reqs{engine_type=\"unified\",model_name=\"m\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"} 2.0",
            "sglang:num_queue_reqs{engine_type=\"unified\",model_name=\"m\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"} 1.0",
            "sglang:queue_time_seconds_bucket{engine_type=\"unified\",le=\"0.0\",model_name=\"m\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"} 3.0",
            "# TYPE sglang:context_len gauge",
            "sglang:routing_keys_active 0.0",
        ] {
            assert!(page.lines().any(|other| other == line), "{line}\n{page}");
        }
    }

    #[test]
    fn bounds_rise() {
        assert!(
            Series::ALL
                .into_iter()
                .all(|series| bounds(series).is_sorted())
        );
    }
}
