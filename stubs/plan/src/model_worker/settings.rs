//! What a worker is told beside what it says.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// Where the times of a turn begin and end.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Timing {
    /// `prefill_ms` ends with the engine's prefill; the bookkeeping behind it is in `total_ms` alone.
    #[default]
    Strict,
    /// As recorded: `prefill_ms` has the bookkeeping in it.
    Upstream,
}

/// How a worker behaves, whatever it says: the object `worker` of a script file.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own in the file"
)]
pub struct Settings {
    /// Milliseconds between prefill and decoding, for notes on the session.
    pub bookkeeping_ms: f64,
    /// Milliseconds of a decoding step.
    pub decode_ms_per_token: f64,
    /// Resets of sessions fail.
    pub fail_reset: bool,
    /// Every time is longer or shorter by up to this share of it.
    pub jitter: f64,
    /// Sessions, the one without a name included.
    pub max_sessions: u64,
    /// Milliseconds of prefill, however long the prompt is.
    pub prefill_ms: f64,
    /// Milliseconds of prefill for each token.
    pub prefill_ms_per_token: f64,
    /// Seed of the jitter.
    pub seed: u64,
    /// Whether the times pass for real.
    pub sleep: bool,
    /// Exit with this code instead of getting ready.
    pub start_exit: Option<u8>,
    /// Lines before the first one.
    pub start_lines: Vec<Bytes>,
    /// Milliseconds before anything is written.
    pub start_ms: f64,
    /// Obey cancellations where the other side offers them.
    pub supports_cancel: bool,
    /// Sessions go on from the tokens that they have.
    pub warm_resume: bool,
    /// Most tokens of prompt and answer together; null for no limit.
    pub window: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bookkeeping_ms: 0.0,
            decode_ms_per_token: 4.0,
            fail_reset: false,
            jitter: 0.0,
            max_sessions: 3,
            prefill_ms: 0.0,
            prefill_ms_per_token: 0.05,
            seed: 0,
            sleep: true,
            start_exit: None,
            start_lines: Vec::new(),
            start_ms: 0.0,
            supports_cancel: true,
            warm_resume: true,
            window: Some(4096),
        }
    }
}

/// Bytes in JSON: a text, or a list of numbers where they are no UTF-8.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(try_from = "Value")]
pub struct Bytes(pub Vec<u8>);

impl TryFrom<Value> for Bytes {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value {
            Value::String(text) => Ok(Self(text.into_bytes())),
            value => serde_json::from_value(value)
                .map(Self)
                .map_err(|_| "neither a text nor a list of bytes"),
        }
    }
}

impl Settings {
    /// What no worker can do, in one line.
    pub fn check(&self) -> Result<(), &'static str> {
        let times = [
            self.bookkeeping_ms,
            self.decode_ms_per_token,
            self.prefill_ms,
            self.prefill_ms_per_token,
            self.start_ms,
        ];
        if !times.iter().all(|time| (0.0..1e9).contains(time)) {
            return Err("times must be from 0 up to 1e9 milliseconds");
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err("jitter must be from 0 to 1");
        }
        Ok(())
    }

    /// How long the steps of a turn take; `turn` is its number.
    pub(super) fn cost(&self, turn: u64) -> Cost<'_> {
        Cost {
            random: fastrand::Rng::with_seed(self.seed ^ turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            settings: self,
        }
    }
}

/// How long the steps of a turn take.
pub(super) struct Cost<'s> {
    random: fastrand::Rng,
    settings: &'s Settings,
}

impl Cost<'_> {
    pub(super) fn prefill(&mut self, tokens: usize) -> Duration {
        #[expect(
            clippy::cast_precision_loss,
            reason = "prompts are far below 2^53 tokens"
        )]
        let tokens = tokens as f64;
        let settings = self.settings;
        self.time(settings.prefill_ms + settings.prefill_ms_per_token * tokens)
    }

    pub(super) fn bookkeeping(&mut self) -> Duration {
        self.time(self.settings.bookkeeping_ms)
    }

    pub(super) fn decode(&mut self) -> Duration {
        self.time(self.settings.decode_ms_per_token)
    }

    fn time(&mut self, milliseconds: f64) -> Duration {
        let jitter = self.settings.jitter;
        let factor = if jitter > 0.0 {
            1.0 + jitter * (2.0 * self.random.f64() - 1.0)
        } else {
            1.0
        };
        time(milliseconds * factor)
    }
}

/// Whole nanoseconds, so that sums come out as stated.
pub(super) fn time(milliseconds: f64) -> Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times were checked"
    )]
    let nanoseconds = (milliseconds * 1e6).round() as u64;
    Duration::from_nanos(nanoseconds)
}

/// As the lines tell it.
#[expect(clippy::cast_precision_loss, reason = "2^53 nanoseconds are 104 days")]
pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}
