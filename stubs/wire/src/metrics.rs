//! What a server has counted since its start, as its metrics page tells it.

/// Content type of the page.
pub const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";
/// Content type where the application below `/metrics` answers, which takes `HEAD` and a slash.
pub const BELOW_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A number that only grows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counter {
    /// Requests refused because the queue was full.
    AdmissionRejections,
    /// Prompt tokens that the prefix cache had.
    CachedTokens,
    /// Choices that ended with `abort`.
    EndedByAbort,
    /// Choices that ended with `error`.
    EndedByError,
    /// Choices that ended with `length`.
    EndedByLength,
    /// Choices that ended with `repetition`.
    EndedByRepetition,
    /// Choices that ended with `stop`.
    EndedByStop,
    /// Tokens of answers.
    GenerationTokens,
    /// Prompt tokens that were looked up in the prefix cache.
    PrefixCacheQueries,
    /// Tokens of prompts.
    PromptTokens,
}

impl Counter {
    /// Number of counters.
    pub const COUNT: usize = Self::PromptTokens as usize + 1;
}

/// What is observed again and again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Series {
    /// From a choice's first token to its last.
    DecodeTime,
    /// From a request's arrival to its last token.
    EndToEnd,
    /// Tokens of a choice.
    GenerationTokens,
    /// From a request's arrival to the end of its answer, whatever it asks for.
    HttpDuration,
    /// From scheduling to the last token.
    InferenceTime,
    /// Between the steps of a choice.
    InterToken,
    /// Tokens of an engine step, the prompt's computed ones included.
    IterationTokens,
    /// Tokens of a request's longest choice.
    MaxGenerationTokens,
    /// `max_tokens` as the engine was told.
    MaxTokens,
    /// `n`
    N,
    /// Times that a choice was preempted.
    Preemptions,
    /// Prompt tokens that were not in the prefix cache.
    PrefillComputed,
    /// From scheduling to the first token.
    PrefillTime,
    /// Tokens of a choice's prompt.
    PromptTokens,
    /// From arrival to scheduling.
    QueueTime,
    /// Mean time between a choice's tokens.
    TimePerOutputToken,
    /// From a request's arrival to a choice's first token.
    TimeToFirstToken,
}

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// Numbers in a smaller unit.
pub(crate) const fn scaled<const N: usize>(mut bounds: [u64; N], unit: u64) -> [u64; N] {
    let mut index = 0;
    while index < N {
        bounds[index] *= unit;
        index += 1;
    }
    bounds
}

const LENGTHS: &[u64] = &[
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000,
];
const STEPS: &[u64] = &[
    1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384,
];
const FIRST: &[u64] = &scaled(
    [
        1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10_000, 20_000,
        40_000, 80_000, 160_000, 640_000, 2_560_000,
    ],
    MILLISECOND,
);
const GAPS: &[u64] = &scaled(
    [
        10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1000, 2500, 5000, 7500, 10_000, 20_000,
        40_000, 80_000,
    ],
    MILLISECOND,
);
const WHOLE: &[u64] = &scaled(
    [
        300, 500, 800, 1000, 1500, 2000, 2500, 5000, 10_000, 15_000, 20_000, 30_000, 40_000,
        50_000, 60_000, 120_000, 240_000, 480_000, 960_000, 1_920_000, 7_680_000,
    ],
    MILLISECOND,
);
const HTTP: &[u64] = &scaled(
    [
        10, 25, 50, 75, 100, 250, 500, 750, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000,
        7500, 10_000, 30_000, 60_000,
    ],
    MILLISECOND,
);
/// Bounds of the durations by handler, in nanoseconds.
pub const HANDLER_BOUNDS: &[u64] = &scaled([100, 500, 1000], MILLISECOND);

impl Series {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::DecodeTime,
        Self::EndToEnd,
        Self::GenerationTokens,
        Self::HttpDuration,
        Self::InferenceTime,
        Self::InterToken,
        Self::IterationTokens,
        Self::MaxGenerationTokens,
        Self::MaxTokens,
        Self::N,
        Self::Preemptions,
        Self::PrefillComputed,
        Self::PrefillTime,
        Self::PromptTokens,
        Self::QueueTime,
        Self::TimePerOutputToken,
        Self::TimeToFirstToken,
    ];

    /// Upper bounds of its buckets: nanoseconds, tokens or times.
    pub fn bounds(self) -> &'static [u64] {
        match self {
            Self::GenerationTokens
            | Self::MaxGenerationTokens
            | Self::MaxTokens
            | Self::PrefillComputed
            | Self::PromptTokens => LENGTHS,
            Self::DecodeTime
            | Self::EndToEnd
            | Self::InferenceTime
            | Self::PrefillTime
            | Self::QueueTime => WHOLE,
            Self::HttpDuration => HTTP,
            Self::InterToken | Self::TimePerOutputToken => GAPS,
            Self::IterationTokens => STEPS,
            Self::N => &[1, 2, 5, 10, 20],
            Self::Preemptions => &[1, 2, 3, 4, 5, 10, 20],
            Self::TimeToFirstToken => FIRST,
        }
    }

    /// How many of its own unit make one of the page's.
    pub fn unit(self) -> u64 {
        match self {
            Self::DecodeTime
            | Self::EndToEnd
            | Self::HttpDuration
            | Self::InferenceTime
            | Self::InterToken
            | Self::PrefillTime
            | Self::QueueTime
            | Self::TimePerOutputToken
            | Self::TimeToFirstToken => SECOND,
            _ => 1,
        }
    }

    /// Whether its buckets go no further than the context.
    pub fn is_length(self) -> bool {
        self.bounds() == LENGTHS
    }
}

/// How often which values were observed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Distribution {
    /// By bucket, not summed up; the last is beyond all bounds.
    pub buckets: Vec<u64>,
    /// All values together.
    pub sum: u64,
}

/// What one route was asked by one method.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Handled {
    /// Its path, `none` for what is no route.
    pub handler: &'static str,
    /// HTTP method.
    pub method: &'static str,
    /// Answers by the first digit of their status from 1 to 5.
    pub by_status: [u64; 5],
    /// How long they took, in nanoseconds, by [`HANDLER_BOUNDS`].
    pub durations: Distribution,
    /// Bytes of request bodies as their `content-length` tells.
    pub request_bytes: u64,
    /// Bytes of response bodies as their `content-length` tells.
    pub response_bytes: u64,
}

/// The process itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Most open files.
    pub max_fds: u64,
    /// Open files.
    pub open_fds: u64,
    /// Its number.
    pub pid: u32,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// When it started, in seconds since 1970.
    pub start_seconds: f64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
}

/// All of it at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot<'a> {
    /// By [`Counter`].
    pub counters: [u64; Counter::COUNT],
    /// When counting began, in seconds since 1970.
    pub created: f64,
    /// By [`Series`].
    pub distributions: [Distribution; Series::ALL.len()],
    /// What was asked at all, by route and method.
    pub handled: &'a [Handled],
    /// Longest context in tokens, if there is a limit.
    pub max_model_len: Option<u64>,
    /// The model's first name.
    pub model: &'a str,
    /// The process.
    pub process: Process,
    /// Choices that are being answered.
    pub running: u64,
    /// Choices that wait for their turn.
    pub waiting: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_numbered_and_their_bounds_rise() {
        for (number, series) in Series::ALL.into_iter().enumerate() {
            assert_eq!(series as usize, number);
            assert!(series.bounds().is_sorted(), "{series:?}");
        }
    }
}
