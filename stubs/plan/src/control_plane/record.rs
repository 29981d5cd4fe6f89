//! What is told of a turn that is over: in the log, in the truth file and in `/metrics`.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use wire::worker_lines::Stats;

/// What the real server's log puts before the line.
const LOGGER: &str = "INFO:executorch.examples.llm_server.python.serving_chat:";
/// The same before the line that only debugging shows.
const WORKER_LOGGER: &str = "DEBUG:executorch.examples.llm_server.python.worker_client:";

/// What a turn came to. Times are the worker's own unless said otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRecord {
    /// What the worker told.
    pub stats: Stats,
    /// `finish_reason` of the answer.
    pub finish: &'static str,
    /// The client's name for the request, or the server's.
    pub request_id: String,
    /// The session, if it has a name.
    pub session_id: Option<String>,
    /// How long the request waited for the worker.
    pub queue: Duration,
    /// From the request to the worker's first text, if there was any.
    pub ttft: Option<Duration>,
}

/// Which line is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TurnLog {
    /// The reset reason under its own name, with request, queue, TTFT and cancellation.
    Strict,
    /// The real server's keys in its order.
    #[default]
    Upstream,
}

/// How much is written.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Detail {
    /// Nothing.
    Off,
    /// A line for each turn.
    #[default]
    Info,
    /// And one before it that says how the session went on.
    Debug,
}

impl TurnRecord {
    /// [`Self::queue`] in milliseconds.
    pub fn queue_ms(&self) -> f64 {
        milliseconds(self.queue)
    }

    /// [`Self::ttft`] in milliseconds.
    pub fn ttft_ms(&self) -> Option<f64> {
        self.ttft.map(milliseconds)
    }

    /// The lines of the log, each with its end.
    pub fn lines(&self, log: TurnLog, detail: Detail) -> String {
        let mut out = String::new();
        if detail == Detail::Off {
            return out;
        }
        let stats = &self.stats;
        if let (Detail::Debug, Some(reason)) = (detail, &stats.session_reset_reason) {
            write(
                &mut out,
                format_args!(
                    "{WORKER_LOGGER}warm-resume: reason={} reused={} prefilled={}\n",
                    escaped(reason),
                    counted(stats.reused_prompt_tokens),
                    counted(stats.prefilled_prompt_tokens),
                ),
            );
        }
        write(&mut out, format_args!("{LOGGER}llm_turn_stats"));
        for (name, value) in self.members(log) {
            write(&mut out, format_args!(" {name}={}", escaped(&value)));
        }
        out.push('\n');
        out
    }

    /// The line's keys and values.
    fn members(&self, log: TurnLog) -> Vec<(&'static str, String)> {
        let stats = &self.stats;
        let reason = match log {
            TurnLog::Strict => "session_reset_reason",
            TurnLog::Upstream => "reason",
        };
        let text = |text: &Option<String>, none: &str| text.as_deref().unwrap_or(none).to_owned();
        let mut members = vec![
            ("session_id", text(&self.session_id, "<scratch>")),
            (reason, text(&stats.session_reset_reason, "None")),
            ("prompt_tokens", counted(stats.prompt_tokens)),
            ("reused_prompt_tokens", counted(stats.reused_prompt_tokens)),
            (
                "prefilled_prompt_tokens",
                counted(stats.prefilled_prompt_tokens),
            ),
            ("completion_tokens", counted(stats.completion_tokens)),
            ("prefill_ms", measured(stats.prefill_ms)),
            ("prefill_tok_s", measured(stats.prefill_tok_s)),
            ("decode_ms", measured(stats.decode_ms)),
            ("decode_tok_s", measured(stats.decode_tok_s)),
            ("total_ms", measured(stats.total_ms)),
            ("finish", self.finish.to_owned()),
        ];
        if stats.vision_encoder_ms.is_some() {
            members.push(("vision_encoder_ms", measured(stats.vision_encoder_ms)));
        }
        if log == TurnLog::Strict {
            members.extend([
                ("request_id", self.request_id.clone()),
                ("queue_ms", measured(Some(self.queue_ms()))),
                ("ttft_ms", measured(self.ttft_ms())),
                ("cancelled", stats.cancelled.to_string()),
            ]);
        }
        members
    }
}

/// As the truth file has it.
impl Serialize for TurnRecord {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Spelt<'r> {
            session_id: Option<&'r str>,
            session_reset_reason: Option<&'r str>,
            prompt_tokens: Option<i128>,
            reused_prompt_tokens: Option<i128>,
            prefilled_prompt_tokens: Option<i128>,
            completion_tokens: Option<i128>,
            prefill_ms: Option<f64>,
            prefill_tok_s: Option<f64>,
            decode_ms: Option<f64>,
            decode_tok_s: Option<f64>,
            total_ms: Option<f64>,
            finish: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            vision_encoder_ms: Option<f64>,
            queue_ms: f64,
            ttft_ms: Option<f64>,
            cancelled: bool,
        }
        let stats = &self.stats;
        let spelt = Spelt {
            session_id: self.session_id.as_deref(),
            session_reset_reason: stats.session_reset_reason.as_deref(),
            prompt_tokens: stats.prompt_tokens,
            reused_prompt_tokens: stats.reused_prompt_tokens,
            prefilled_prompt_tokens: stats.prefilled_prompt_tokens,
            completion_tokens: stats.completion_tokens,
            prefill_ms: stats.prefill_ms,
            prefill_tok_s: stats.prefill_tok_s,
            decode_ms: stats.decode_ms,
            decode_tok_s: stats.decode_tok_s,
            total_ms: stats.total_ms,
            finish: self.finish,
            vision_encoder_ms: stats.vision_encoder_ms,
            queue_ms: self.queue_ms(),
            ttft_ms: self.ttft_ms(),
            cancelled: stats.cancelled,
        };
        spelt.serialize(serializer)
    }
}

/// A duration in milliseconds.
fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Python's `%d`.
fn counted(count: Option<i128>) -> String {
    count.map_or_else(|| "None".into(), |count| count.to_string())
}

/// Python's `%.1f`.
fn measured(measure: Option<f64>) -> String {
    match measure {
        None => "None".into(),
        Some(measure) if measure.is_nan() => "nan".into(),
        Some(measure) => format!("{measure:.1}"),
    }
}

/// A value that neither ends the line nor looks like the next key: bytes that are not visible ASCII, and `%`
/// itself, as `%` and two digits.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            out.push(char::from(byte));
        } else {
            write(&mut out, format_args!("%{byte:02X}"));
        }
    }
    out
}

fn write(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a String takes all");
}

#[cfg(test)]
mod tests {
    use wire::worker_lines::Heard;

    use super::*;

    fn record(done: &str) -> TurnRecord {
        let Ok(Heard::Done(stats)) = Heard::parse(done.as_bytes()) else {
            panic!("{done} is no end");
        };
        TurnRecord {
            stats: *stats,
            finish: "stop",
            request_id: "r 1".into(),
            session_id: Some("a=b%".into()),
            queue: Duration::from_micros(1250),
            ttft: None,
        }
    }

    const DONE: &str = r#"{"done":true,"completion_tokens":8,"decode_ms":36.0,"decode_tok_s":222.22222222222223,"finish_reason":"stop","prefill_ms":2.95,"prefill_tok_s":20000.0,"prefilled_prompt_tokens":59,"prompt_tokens":60,"reused_prompt_tokens":1,"session_reset_reason":"because of x=1\nllm_turn_stats","total_ms":38.95}"#;

    #[test]
    fn no_value_breaks_the_line() {
        let record = record(DONE);
        let front = "INFO:executorch.examples.llm_server.python.serving_chat:llm_turn_stats session_id=a=b%25 ";
        let back = "reason=because%20of%20x=1%0Allm_turn_stats prompt_tokens=60 reused_prompt_tokens=1 \
                    prefilled_prompt_tokens=59 completion_tokens=8 prefill_ms=3.0 prefill_tok_s=20000.0 \
                    decode_ms=36.0 decode_tok_s=222.2 total_ms=39.0 finish=stop";
        let line = record.lines(TurnLog::Upstream, Detail::Info);
        assert_eq!(line, format!("{front}{back}\n"));
        let line = record.lines(TurnLog::Strict, Detail::Info);
        assert!(line.contains(" session_reset_reason=because%20of%20x=1%0Allm_turn_stats "));
        assert!(line.ends_with(" request_id=r%201 queue_ms=1.2 ttft_ms=None cancelled=false\n"));
    }

    #[test]
    fn the_level_says_how_much_is_written() {
        let record = record(DONE);
        assert_eq!(record.lines(TurnLog::Upstream, Detail::Off), "");
        let lines = record.lines(TurnLog::Upstream, Detail::Debug);
        let debug = "DEBUG:executorch.examples.llm_server.python.worker_client:warm-resume: \
                     reason=because%20of%20x=1%0Allm_turn_stats reused=1 prefilled=59\n";
        assert_eq!(
            lines.strip_prefix(debug),
            Some(&*record.lines(TurnLog::Upstream, Detail::Info))
        );
    }

    #[test]
    fn what_the_worker_did_not_tell_is_not_made_up() {
        let record = record(r#"{"done":true,"completion_tokens":"8","prefill_ms":null}"#);
        let line = record.lines(TurnLog::Upstream, Detail::Info);
        for member in [
            "reason=None",
            "completion_tokens=None",
            "prefill_ms=None",
            "total_ms=0.0",
        ] {
            assert!(line.contains(member), "{line}");
        }
    }
}
