//! What a server counts itself, from its Prometheus metrics.

/// Sums since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    /// Requests that were answered to their end.
    pub(crate) requests: f64,
    /// Chunks with text.
    pub(crate) chunks: f64,
    /// Time from each request's arrival to its answer's end, in seconds.
    pub(crate) inside: f64,
}

impl Counters {
    /// vLLM's counters, or the stub's own; `None` where there are neither.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let total = |name: &str| sum(text, name);
        let answered = total("vllm:request_success_total");
        Some(Self {
            requests: answered.or_else(|| total("stubline_requests_total"))?,
            chunks: total("vllm:time_to_first_token_seconds_count").unwrap_or(0.0)
                + total("vllm:inter_token_latency_seconds_count").unwrap_or(0.0),
            inside: total("vllm:e2e_request_latency_seconds_sum").unwrap_or(0.0),
        })
    }

    /// What was counted since an earlier reading.
    #[must_use]
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            chunks: self.chunks - before.chunks,
            inside: self.inside - before.inside,
        }
    }
}

fn sum(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let number = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit_once('}')?.1,
            None => rest.strip_prefix(' ')?,
        };
        number.split_whitespace().next()?.parse().ok()
    };
    text.lines()
        .filter_map(value)
        .reduce(|sum: f64, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_summed_and_vllms_counters_preferred() {
        let own = "# HELP x\nstubline_requests_total 7\n";
        let expected = Counters {
            requests: 7.0,
            ..Counters::default()
        };
        assert_eq!(Counters::read(own), Some(expected));
        let vllm = format!(
            "{own}vllm:request_success_total{{finished_reason=\"stop\"}} 2.0\n\
             vllm:request_success_total{{finished_reason=\"length\"}} 3.0\n\
             vllm:time_to_first_token_seconds_count{{engine=\"0\"}} 5.0\n\
             vllm:inter_token_latency_seconds_count 75\n\
             vllm:e2e_request_latency_seconds_sum 1.5\n"
        );
        let counters = Counters::read(&vllm).unwrap();
        let expected = Counters {
            requests: 5.0,
            chunks: 80.0,
            inside: 1.5,
        };
        assert_eq!(counters, expected);
        let left = counters.since(expected);
        assert_eq!(left, Counters::default());
        assert_eq!(Counters::read("other 1\n"), None);
    }
}
