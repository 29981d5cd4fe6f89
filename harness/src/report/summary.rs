//! `result_summary.json`

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use wire::request::Endpoint;
use wire::usage::Usage;

use crate::bench::{Config, Run, Stability, TokenCountSource};
use crate::count::Counts;
use crate::record::Record;
use crate::stats::{Distribution, float};
use crate::totals::Totals;

/// A run in numbers. Times are nanoseconds, lengths tokens; failed samples count in
/// `n_samples_failed` and `errors` alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Who counted the tokens under the plain names.
    pub token_count_source: TokenCountSource,
    /// Requests taken up.
    pub n_samples_issued: u64,
    /// Complete and well-formed answers.
    pub n_samples_completed: u64,
    /// All others.
    pub n_samples_failed: u64,
    /// From the start to the last answer's end.
    pub duration_ns: u64,
    /// Completed samples a second.
    pub qps: f64,
    /// Output tokens a second.
    pub tps: Option<f64>,
    /// Output tokens a second by the server's count.
    pub tps_server: Option<f64>,
    /// From the intended send time to the answer's end.
    pub latency: Option<Distribution>,
    /// From the intended send time to the first chunk that says something.
    pub ttft: Option<Distribution>,
    /// Time per output token behind the first.
    pub tpot: Option<Distribution>,
    /// Gaps between chunks that say something, of all samples.
    pub itl: Option<Distribution>,
    /// Prompt tokens.
    pub input_sequence_lengths: Option<Distribution>,
    /// Output tokens, reasoning included.
    pub output_sequence_lengths: Option<Distribution>,
    /// The same by the other count.
    #[serde(flatten)]
    pub other: OtherBasis,
    /// The same by the token ids that were sent and returned, of native answers.
    #[serde(flatten)]
    pub ids: Option<IdsBasis>,
    /// Client's against server's output tokens.
    pub osl_paired: Option<PairedLengths>,
    /// Completed samples without a usable count from the server.
    pub n_samples_missing_usage: u64,
    /// Those of them whose answer said nothing.
    pub n_samples_missing_usage_empty_output: u64,
    /// Samples that were sent again since an idle connection had closed without a word.
    pub n_samples_resent: u64,
    /// Failed samples by kind.
    pub errors: BTreeMap<String, u64>,
    /// Open loop: from the intended send time to the write.
    pub send_late: Option<Distribution>,
    /// How long requests were sent before those that count.
    pub warm_up_ns: u64,
    /// How well the throughput is known, if the run was to last until it is.
    pub stability: Option<Stability>,
    /// The run was ended early.
    pub interrupted: bool,
    /// CPU time of the sending threads per issued sample.
    pub client_cpu_ns_per_request: Option<f64>,
    /// Time per issued sample that the sending threads could have run but had no core.
    pub client_wait_ns_per_request: Option<f64>,
    /// CPU time of the server per issued sample.
    pub server_cpu_ns_per_request: Option<f64>,
    /// Time per issued sample that the server's threads could have run but had no core.
    pub server_wait_ns_per_request: Option<f64>,
}

/// The blocks of the count that is not primary.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum OtherBasis {
    /// The server is primary.
    Client {
        /// Prompt tokens.
        #[serde(rename = "input_sequence_lengths_client")]
        input: Option<Distribution>,
        /// Output tokens.
        #[serde(rename = "output_sequence_lengths_client")]
        output: Option<Distribution>,
        /// Time per output token behind the first.
        #[serde(rename = "tpot_client")]
        tpot: Option<Distribution>,
    },
    /// The client is primary.
    Server {
        /// Prompt tokens.
        #[serde(rename = "input_sequence_lengths_server")]
        input: Option<Distribution>,
        /// Output tokens.
        #[serde(rename = "output_sequence_lengths_server")]
        output: Option<Distribution>,
        /// Time per output token behind the first.
        #[serde(rename = "tpot_server")]
        tpot: Option<Distribution>,
    },
}

/// Lengths by token ids.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdsBasis {
    /// Of prompts that were asked with ids.
    #[serde(rename = "input_sequence_lengths_ids")]
    pub input: Option<Distribution>,
    /// Ids that the server returned.
    #[serde(rename = "output_sequence_lengths_ids")]
    pub output: Option<Distribution>,
}

/// Output tokens of samples that both sides counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairedLengths {
    /// Mean of client − server.
    pub mean_diff: f64,
    /// Sum of the client's by sum of the server's, unless that is 0.
    pub ratio: Option<f64>,
    /// Number of such samples.
    pub n: u64,
}

impl Summary {
    /// The numbers of a run.
    pub fn new(run: &Run, config: &Config) -> Self {
        let samples = run.records.iter().zip(&run.counts);
        let completed: Vec<(&Record, &Counts)> = samples
            .filter(|(record, _)| record.is_completed())
            .collect();
        let totals = &run.totals;
        let issued = totals.issued();
        let rate = |count| rate(count, run.duration_ns);
        let records = || completed.iter().map(|(record, _)| *record);
        let missing = |record: &&Record| server_output(record).is_none();
        let client = Basis::client(&completed);
        let server = Basis::server(&completed);
        let tps_server = server.output_sum.map(rate);
        let (primary, other) = match config.token_count_source {
            TokenCountSource::Client => (client, server.into_server()),
            TokenCountSource::Server => (server, client.into_client()),
        };
        Self {
            token_count_source: config.token_count_source,
            n_samples_issued: issued,
            n_samples_completed: totals.completed,
            n_samples_failed: issued - totals.completed,
            duration_ns: run.duration_ns,
            qps: rate(totals.completed),
            tps: primary.output_sum.map(rate),
            tps_server,
            latency: distribution(records().map(Record::latency_ns))
                .or_else(|| totals.latency.distribution()),
            ttft: distribution(records().filter_map(Record::ttft_ns))
                .or_else(|| totals.ttft.distribution()),
            tpot: primary.tpot,
            itl: distribution(records().flat_map(Record::gaps_ns)),
            input_sequence_lengths: primary.input,
            output_sequence_lengths: primary.output,
            other,
            ids: (config.endpoint == Endpoint::Generate).then(|| Basis::ids(&completed)),
            osl_paired: paired(&completed),
            n_samples_missing_usage: records().filter(missing).count() as u64,
            n_samples_missing_usage_empty_output: records()
                .filter(missing)
                .filter(|record| record.is_empty())
                .count() as u64,
            n_samples_resent: totals.resent,
            errors: errors(totals),
            send_late: totals.send_late.distribution(),
            warm_up_ns: u64::try_from(config.warm_up.as_nanos()).unwrap_or(u64::MAX),
            stability: run.stability,
            interrupted: run.interrupted,
            client_cpu_ns_per_request: per_request(Some(run.client.time), issued),
            client_wait_ns_per_request: per_request(run.client.wait, issued),
            server_cpu_ns_per_request: per_request(run.server.map(|server| server.time), issued),
            server_wait_ns_per_request: per_request(
                run.server.and_then(|server| server.wait),
                issued,
            ),
        }
    }

    /// 0 if all samples completed, 1 if one failed, there was none or the run was interrupted, 4 if
    /// some of the primary counts are missing.
    pub fn exit_code(&self) -> u8 {
        let lacks = |block: &Option<Distribution>| block.as_ref().is_none_or(|block| block.partial);
        if self.n_samples_failed > 0 || self.n_samples_completed == 0 || self.interrupted {
            1
        } else if lacks(&self.input_sequence_lengths) || lacks(&self.output_sequence_lengths) {
            4
        } else {
            0
        }
    }
}

/// The blocks that depend on who counts.
struct Basis {
    input: Option<Distribution>,
    output: Option<Distribution>,
    output_sum: Option<u64>,
    tpot: Option<Distribution>,
}

impl Basis {
    fn client(completed: &[(&Record, &Counts)]) -> Self {
        Self::new(
            completed,
            |_, counts| counts.input,
            |_, counts| Some(counts.output()),
        )
    }

    fn server(completed: &[(&Record, &Counts)]) -> Self {
        Self::new(
            completed,
            |record, _| server_input(record),
            |record, _| server_output(record),
        )
    }

    fn ids(completed: &[(&Record, &Counts)]) -> IdsBasis {
        let Self { input, output, .. } = Self::new(
            completed,
            |_, counts| counts.input_ids,
            |_, counts| counts.output_ids,
        );
        IdsBasis { input, output }
    }

    fn new(
        completed: &[(&Record, &Counts)],
        input: impl Fn(&Record, &Counts) -> Option<u64>,
        output: impl Fn(&Record, &Counts) -> Option<u64>,
    ) -> Self {
        let all = completed.len();
        let counted = |count: &dyn Fn(&Record, &Counts) -> Option<u64>| -> Vec<u64> {
            let counts = completed.iter();
            counts
                .filter_map(|(record, counts)| count(record, counts))
                .collect()
        };
        let (inputs, outputs) = (counted(&input), counted(&output));
        let tpots = counted(&|record, counts| record.tpot_ns(output(record, counts)?));
        let (inputs_missing, outputs_missing) = (inputs.len() < all, outputs.len() < all);
        let sum = (!outputs.is_empty()).then(|| outputs.iter().sum());
        let block = |values, missing| {
            let block = Distribution::new(values)?;
            Some(block.with_partial(missing))
        };
        Self {
            input: block(inputs, inputs_missing),
            output: block(outputs, outputs_missing),
            output_sum: sum,
            tpot: block(tpots, outputs_missing),
        }
    }

    fn into_client(self) -> OtherBasis {
        OtherBasis::Client {
            input: self.input,
            output: self.output,
            tpot: self.tpot,
        }
    }

    fn into_server(self) -> OtherBasis {
        OtherBasis::Server {
            input: self.input,
            output: self.output,
            tpot: self.tpot,
        }
    }
}

/// Of so many in a time, how many a second.
fn rate(count: u64, duration_ns: u64) -> f64 {
    match duration_ns {
        0 => 0.0,
        _ => float(count) / (float(duration_ns) / 1e9),
    }
}

fn server_input(record: &Record) -> Option<u64> {
    record.usage.and_then(|usage: Usage| usage.prompt_tokens)
}

fn server_output(record: &Record) -> Option<u64> {
    record.usage.and_then(|usage| usage.completion_tokens)
}

fn distribution(values: impl Iterator<Item = u64>) -> Option<Distribution> {
    Distribution::new(values.collect())
}

fn paired(completed: &[(&Record, &Counts)]) -> Option<PairedLengths> {
    let pairs = completed.iter();
    let pairs =
        pairs.filter_map(|(record, counts)| Some((counts.output(), server_output(record)?)));
    let (client, server, n) = pairs.fold((0, 0, 0), |(client, server, n), pair| {
        (client + pair.0, server + pair.1, n + 1)
    });
    (n > 0).then(|| PairedLengths {
        mean_diff: (float(client) - float(server)) / float(n),
        ratio: (server > 0).then(|| float(client) / float(server)),
        n,
    })
}

fn errors(totals: &Totals) -> BTreeMap<String, u64> {
    let failed = totals.failed.iter();
    failed
        .map(|(failure, &count)| (failure.to_string(), count))
        .collect()
}

fn per_request(cpu: Option<Duration>, issued: u64) -> Option<f64> {
    let nanoseconds = cpu?.as_secs_f64() * 1e9;
    (issued > 0).then(|| nanoseconds / float(issued))
}
