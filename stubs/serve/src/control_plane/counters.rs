//! Turns as `/metrics` tells of them: all together, and the last.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use plan::control_plane::TurnRecord;
use wire::dialect::prometheus::head;

/// Why sessions do or do not go on; what else a worker says is `other`, so that there are not too many.
const REASONS: [&str; 5] = ["new", "exact_prefix", "mismatch", "dirty", "equal"];

/// What the turns that are over came to.
#[derive(Debug, Default)]
pub(super) struct TurnCounters(Mutex<Totals>);

#[derive(Debug, Default)]
struct Totals {
    /// Turns by finish reason, reset reason and whether they were cancelled.
    turns: BTreeMap<(&'static str, &'static str, bool), u64>,
    sums: Numbers,
    /// Of the last turn.
    last: Numbers,
}

/// The numbers of a turn, or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    prompt_tokens: i128,
    reused_prompt_tokens: i128,
    prefilled_prompt_tokens: i128,
    completion_tokens: i128,
    prefill_ms: f64,
    decode_ms: f64,
    total_ms: f64,
    queue_ms: f64,
    /// None of a turn without text.
    ttft_ms: Option<f64>,
    /// Prefilled tokens, never reused ones, over `prefill_ms`.
    prefill_tok_s: f64,
    /// Completion tokens over `decode_ms`.
    decode_tok_s: f64,
}

impl TurnCounters {
    /// Counts a turn.
    pub(super) fn count(&self, record: &TurnRecord) {
        let mut totals = self.0.lock().expect("nobody panics with the lock");
        let reason = match record.stats.session_reset_reason.as_deref() {
            None => "None",
            Some(told) => REASONS
                .iter()
                .find(|known| **known == told)
                .unwrap_or(&"other"),
        };
        let key = (record.finish, reason, record.stats.cancelled);
        *totals.turns.entry(key).or_default() += 1;
        let last = Numbers::of(record);
        totals.sums = totals.sums.with(&last);
        totals.last = last;
    }

    /// Appends what `/metrics` shows.
    pub(super) fn encode(&self, page: &mut String) {
        let totals = self.0.lock().expect("nobody panics with the lock");
        head(page, "llm_turns_total", "counter", "Turns that are over.");
        for ((finish, reason, cancelled), count) in &totals.turns {
            write(
                page,
                format_args!(
                    "llm_turns_total{{finish=\"{finish}\",session_reset_reason=\"{reason}\",cancelled=\"{cancelled}\"}} {count}\n"
                ),
            );
        }
        let sums = &totals.sums;
        for (name, help, value) in sums.counts().into_iter().chain(sums.times()) {
            let name = format!("llm_turn_{name}_total");
            head(page, &name, "counter", help);
            write(page, format_args!("{name} {value}\n"));
        }
        for (name, help, value) in sums.rates() {
            let name = format!("llm_turn_{name}");
            head(page, &name, "gauge", help);
            write(page, format_args!("{name} {value}\n"));
        }
        let last = &totals.last;
        let numbers = last.counts().into_iter().chain(last.times());
        for (name, help, value) in numbers.chain(last.rates()) {
            let name = format!("llm_turn_last_{name}");
            head(page, &name, "gauge", &format!("Of the last turn: {help}"));
            write(page, format_args!("{name} {value}\n"));
        }
    }
}

type Shown = (&'static str, &'static str, f64);

impl Numbers {
    fn of(record: &TurnRecord) -> Self {
        let stats = &record.stats;
        let count = |count: Option<i128>| count.unwrap_or(0);
        // What is no number would make all sums none.
        let measure = |told: Option<f64>| told.filter(|told| told.is_finite()).unwrap_or(0.0);
        Self {
            prompt_tokens: count(stats.prompt_tokens),
            reused_prompt_tokens: count(stats.reused_prompt_tokens),
            prefilled_prompt_tokens: count(stats.prefilled_prompt_tokens),
            completion_tokens: count(stats.completion_tokens),
            prefill_ms: measure(stats.prefill_ms),
            decode_ms: measure(stats.decode_ms),
            total_ms: measure(stats.total_ms),
            queue_ms: record.queue_ms(),
            ttft_ms: record.ttft_ms(),
            prefill_tok_s: measure(stats.prefill_tok_s),
            decode_tok_s: measure(stats.decode_tok_s),
        }
    }

    /// The sums with another turn, and the rates over these.
    fn with(&self, other: &Self) -> Self {
        let mut sum = Self {
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            reused_prompt_tokens: self
                .reused_prompt_tokens
                .saturating_add(other.reused_prompt_tokens),
            prefilled_prompt_tokens: self
                .prefilled_prompt_tokens
                .saturating_add(other.prefilled_prompt_tokens),
            completion_tokens: self
                .completion_tokens
                .saturating_add(other.completion_tokens),
            prefill_ms: self.prefill_ms + other.prefill_ms,
            decode_ms: self.decode_ms + other.decode_ms,
            total_ms: self.total_ms + other.total_ms,
            queue_ms: self.queue_ms + other.queue_ms,
            ttft_ms: Some(self.ttft_ms.unwrap_or(0.0) + other.ttft_ms.unwrap_or(0.0)),
            ..Self::default()
        };
        sum.prefill_tok_s = rate(sum.prefilled_prompt_tokens, sum.prefill_ms);
        sum.decode_tok_s = rate(sum.completion_tokens, sum.decode_ms);
        sum
    }

    fn counts(&self) -> [Shown; 4] {
        let number = as_float;
        [
            (
                "prompt_tokens",
                "Tokens of prompts, reused ones included.",
                number(self.prompt_tokens),
            ),
            (
                "reused_prompt_tokens",
                "Tokens that sessions had.",
                number(self.reused_prompt_tokens),
            ),
            (
                "prefilled_prompt_tokens",
                "Tokens that were prefilled.",
                number(self.prefilled_prompt_tokens),
            ),
            (
                "completion_tokens",
                "Tokens that were decoded, the one at the end not counted.",
                number(self.completion_tokens),
            ),
        ]
    }

    fn times(&self) -> impl Iterator<Item = Shown> {
        let ttft = self.ttft_ms.map(|ttft_ms| {
            let help = "Milliseconds to the worker's first text.";
            ("ttft_ms", help, ttft_ms)
        });
        let times = [
            ("prefill_ms", "Milliseconds of prefill.", self.prefill_ms),
            ("decode_ms", "Milliseconds of decoding.", self.decode_ms),
            ("total_ms", "Milliseconds in the worker.", self.total_ms),
            (
                "queue_ms",
                "Milliseconds of waiting for the worker.",
                self.queue_ms,
            ),
        ];
        times.into_iter().chain(ttft)
    }

    fn rates(&self) -> [Shown; 2] {
        [
            (
                "prefill_tok_s",
                "Prefilled tokens, never reused ones, over the seconds of prefill.",
                self.prefill_tok_s,
            ),
            (
                "decode_tok_s",
                "Completion tokens over the seconds of decoding.",
                self.decode_tok_s,
            ),
        ]
    }
}

/// Tokens over milliseconds, in tokens a second; 0 if no time has passed.
fn rate(tokens: i128, milliseconds: f64) -> f64 {
    if milliseconds > 0.0 {
        as_float(tokens) * 1000.0 / milliseconds
    } else {
        0.0
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tokens are far below 2^53"
)]
fn as_float(count: i128) -> f64 {
    count as f64
}

fn write(page: &mut String, arguments: std::fmt::Arguments<'_>) {
    page.write_fmt(arguments).expect("a String takes all");
}
