//! A model worker's turns: their times, their sessions, and that each ends once.

use std::sync::Arc;
use std::time::Duration;

use plan::model_worker::{Host, Model, Stop, Timing, Worker};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::tokenizer;

/// Everything around a worker, kept.
#[derive(Default)]
struct Around {
    /// Frames, each there after so many lines.
    frames: Vec<(usize, Vec<u8>)>,
    lines: Vec<String>,
    passed: Duration,
}

impl Host for Around {
    fn control(&mut self) -> Vec<u8> {
        let lines = self.lines.len();
        let (due, later) = std::mem::take(&mut self.frames)
            .into_iter()
            .partition::<Vec<_>, _>(|frame| frame.0 <= lines);
        self.frames = later;
        due.into_iter().flat_map(|frame| frame.1).collect()
    }

    fn pass(&mut self, time: Duration) {
        self.passed += time;
    }

    fn write(&mut self, line: &[u8]) -> Result<(), Stop> {
        self.lines.push(String::from_utf8_lossy(line).into_owned());
        Ok(())
    }
}

fn worker(model: &Value, timing: Timing) -> Worker {
    let tokenizer = tokenizer("byte");
    let model = Model::from_json(&model.to_string(), &tokenizer, |_| None).unwrap();
    Worker::new(model, tokenizer, timing, true)
}

/// The lines that answer one.
fn said(worker: &mut Worker, line: &Value) -> Vec<String> {
    let mut around = Around::default();
    worker
        .line(line.to_string().as_bytes(), &mut around)
        .unwrap();
    around.lines
}

fn done(worker: &mut Worker, line: &Value) -> Value {
    serde_json::from_str(said(worker, line).last().unwrap()).unwrap()
}

/// 10 tokens at 0.5 ms each, 4 more at 3 ms and the step that finds the end.
fn costly() -> Value {
    json!({
        "worker": {"prefill_ms_per_token": 0.5, "decode_ms_per_token": 3, "bookkeeping_ms": 1.25},
        "default": {"worker": {"pieces": ["a", "b", "c", "d"]}},
    })
}

#[test]
fn times_are_as_the_costs_state() {
    for (timing, prefill_ms) in [(Timing::Strict, 5.0), (Timing::Upstream, 6.25)] {
        let mut worker = worker(&costly(), timing);
        let done = done(&mut worker, &json!({"prompt": "0123456789"}));
        assert_eq!(done["prefill_ms"], prefill_ms);
        assert_eq!(done["prefill_tok_s"], 10_000.0 / prefill_ms);
        assert_eq!(done["decode_ms"], 15.0);
        assert_eq!(done["decode_tok_s"], 4000.0 / 15.0);
        assert_eq!(done["total_ms"], 21.25);
    }
}

#[test]
fn rates_are_over_prefilled_tokens_alone() {
    let mut worker = worker(&costly(), Timing::Strict);
    let mut ask = json!({"session_id": "s", "prompt_segments": [{"text": "0123456789"}]});
    assert_eq!(done(&mut worker, &ask)["session_reset_reason"], "new");
    ask["prompt_segments"] = json!([
        {"text": "0123456789"}, {"ids": [100_001, 100_002, 100_003, 100_004]}, {"text": "xy"},
    ]);
    let done = done(&mut worker, &ask);
    assert_eq!(done["session_reset_reason"], "exact_prefix");
    assert_eq!(done["reused_prompt_tokens"], 14);
    assert_eq!(done["prefilled_prompt_tokens"], 2);
    assert_eq!(done["prefill_ms"], 1.0);
    assert_eq!(done["prefill_tok_s"], 2000.0);
}

#[test]
fn no_time_is_no_rate() {
    let mut model = costly();
    model["worker"] = json!({"prefill_ms_per_token": 0, "decode_ms_per_token": 0});
    let said = said(&mut worker(&model, Timing::Strict), &json!({"prompt": "x"}));
    let last = said.last().unwrap();
    for member in [
        "prefill_tok_s",
        "decode_tok_s",
        "prefill_ms",
        "decode_ms",
        "total_ms",
    ] {
        assert!(last.contains(&format!("\"{member}\":0.0")), "{last}");
    }
}

#[test]
fn the_marker_of_the_last_message_picks() {
    let model = json!({"default": "D", "a": "A", "b": {"choices": [{"text": "B"}]}});
    let mut worker = worker(&model, Timing::Strict);
    let chat = "<|im_start|>user\n[[a]]<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n";
    for (prompt, expected) in [
        ("[[a]] and [[b]] and [[c]]".to_owned(), "B"),
        (
            format!("{chat}<|im_start|>user\n[[b]] [[a]]<|im_end|>\n"),
            "B",
        ),
        (format!("{chat}<|im_start|>user\nhi<|im_end|>\n"), "D"),
    ] {
        let lines = said(&mut worker, &json!({"prompt": prompt}));
        assert_eq!(
            lines[0],
            format!("{{\"token\":\"{expected}\"}}"),
            "{prompt}"
        );
    }
}

#[test]
fn frames_are_obeyed_within_a_step() {
    let mut worker = worker(&costly(), Timing::Strict);
    let ask = |id: u64| json!({"prompt": "x", "cancel_request_id": id}).to_string();
    // Those that are stray, stale, early and zero do nothing; half a frame waits for the other half.
    let mut frames: Vec<_> = [0, 6, 8, u64::MAX]
        .map(|id| (1, id.to_le_bytes().to_vec()))
        .into();
    frames.push((1, 7_u64.to_le_bytes()[..3].to_vec()));
    frames.push((2, 7_u64.to_le_bytes()[3..].to_vec()));
    let mut around = Around {
        frames,
        ..Around::default()
    };
    worker.line(ask(7).as_bytes(), &mut around).unwrap();
    assert_eq!(around.lines.len(), 3, "{:?}", around.lines);
    let done: Value = serde_json::from_str(&around.lines[2]).unwrap();
    assert_eq!(done["cancelled"], true);
    assert_eq!(done["finish_reason"], "stop");
    assert_eq!(done["completion_tokens"], 2);
    assert_eq!(done.get("generated_token_ids"), None);
    for (id, expected) in [(7, "cancel_request_id is stale or duplicate"), (8, "")] {
        let ask = serde_json::from_str(&ask(id)).unwrap();
        let lines = said(&mut worker, &ask);
        assert!(lines.last().unwrap().contains(expected), "{lines:?}");
        assert!(!lines.last().unwrap().contains("cancelled"), "{lines:?}");
    }
}

/// An end that is reached keeps its reason; a frame before it turns it into a cancellation.
#[test]
fn late_frames_change_nothing() {
    for (lines, cancelled) in [(0, true), (1, true), (2, false)] {
        let ask = json!({"prompt": "x", "cancel_request_id": 1, "max_new_tokens": 2});
        let mut around = Around {
            frames: vec![(lines, 1_u64.to_le_bytes().to_vec())],
            ..Around::default()
        };
        let mut worker = worker(&costly(), Timing::Strict);
        worker
            .line(ask.to_string().as_bytes(), &mut around)
            .unwrap();
        let last = around.lines.last().unwrap();
        assert_eq!(last.contains("cancelled"), cancelled, "{last}");
        assert_eq!(last.contains("\"length\""), !cancelled, "{last}");
    }
}

/// A turn that is refused a session has not used its number up, one with a wrong prompt has.
#[test]
fn numbers_are_used_up_by_turns_that_begin() {
    let mut model = costly();
    model["worker"]["max_sessions"] = 1.into();
    let mut worker = worker(&model, Timing::Strict);
    let stale = r#"{"error":"cancel_request_id is stale or duplicate"}"#;
    for (ask, expected) in [
        (
            json!({"session_id": "a", "cancel_request_id": 3}),
            r#"{"code":"unsupported_session","error":"cannot open session","session_id":"a"}"#,
        ),
        (
            json!({"prompt": "", "cancel_request_id": 3}),
            r#"{"error":"empty prompt"}"#,
        ),
        (
            json!({"prompt": "x", "cancel_request_id": 3, "session_id": 1}),
            stale,
        ),
        (
            json!({"prompt": "x", "cancel_request_id": 4.0}),
            r#"{"error":"cancel_request_id must be a positive uint64"}"#,
        ),
    ] {
        assert_eq!(said(&mut worker, &ask), [expected]);
    }
    let tokenizer = tokenizer("byte");
    let model = Model::from_json(r#"{"a":"x"}"#, &tokenizer, |_| None).unwrap();
    let mut serial = Worker::new(model, tokenizer, Timing::Strict, false);
    assert_eq!(
        said(
            &mut serial,
            &json!({"prompt": "x", "cancel_request_id": "?"})
        ),
        [r#"{"error":"cancel_request_id is not supported"}"#]
    );
}

#[test]
fn a_worker_may_fail_to_get_ready() {
    let model = json!({
        "worker": {"start_ms": 250, "start_lines": ["hello"], "start_exit": 4},
        "default": "x",
    });
    let mut around = Around::default();
    let started = worker(&model, Timing::Strict).start(&mut around);
    assert_eq!(started, Err(Stop(4)));
    assert_eq!(around.lines, ["hello"]);
    assert_eq!(around.passed, Duration::from_millis(250));
}

#[test]
fn recordings_are_played() {
    let recording = r#"{"dir":"from_worker","line":"{\"ready\":true}"}
{"dir":"to_worker","line":"{}"}
{"t":1.0,"dir":"from_worker","line":"{\"token\":\"a\"}"}
{"t":1.5,"dir":"exit","rc":3}"#;
    let tokenizer = tokenizer("byte");
    let find = |name: &str| (name == "a.worker.jsonl").then(|| recording.to_owned());
    let read = |json| Model::from_json(json, &tokenizer, find);
    let model = read(r#"{"replay":"a.worker.jsonl"}"#).unwrap();
    let mut worker = Worker::new(model, Arc::clone(&tokenizer), Timing::Strict, false);
    let mut around = Around::default();
    worker.start(&mut around).unwrap();
    assert_eq!(worker.line(b"anything", &mut around), Err(Stop(3)));
    assert_eq!(around.lines, [r#"{"ready":true}"#, r#"{"token":"a"}"#]);
    let missing = read(r#"{"replay":"b"}"#).unwrap_err();
    assert_eq!(missing.to_string(), "no recording b");
}

#[test]
fn unusable_models_say_why() {
    let tokenizer = tokenizer("byte");
    for (json, expected) in [
        ("{}", "no script in it"),
        (r#"{"worker":{}}"#, "no script in it"),
        (
            r#"{"a":"x","worker":{"jitter":2}}"#,
            "`worker` in the file: jitter must be from 0 to 1",
        ),
        (r#"{"a":{"choices":[]}}"#, "script `a`: has no choices"),
    ] {
        let error = Model::from_json(json, &tokenizer, |_| None).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let typo = r#"{"a":{"worker":{"picese":[]}}}"#;
    let error = Model::from_json(typo, &tokenizer, |_| None).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("`worker` in a: unknown field `picese`")
    );
}

/// A line that may be sent: operations and turns of a few sessions, some of them wrong.
fn line() -> impl Strategy<Value = Value> {
    let id = prop::sample::select(vec!["", "a", "b", "c"]);
    let operation = prop::sample::select(vec!["open", "close", "reset"]);
    let part = prop_oneof![
        "[xy\u{e9}]{0,4}".prop_map(|text| json!({"text": text})),
        prop::collection::vec(100_001_i64..100_005, 0..5).prop_map(|ids| json!({"ids": ids})),
    ];
    let parts = prop::collection::vec(part, 0..4);
    let stop = prop::collection::vec("[bc\u{e9}]{0,2}", 0..3);
    prop_oneof![
        (operation, id.clone()).prop_map(|(op, id)| json!({"op": op, "session_id": id})),
        (id, parts, stop, -1_i64..6, 0_u64..40).prop_map(|(id, parts, stop, most, cancel)| json!({
            "session_id": id, "prompt_segments": parts, "stop": stop, "max_new_tokens": most,
            "cancel_request_id": cancel,
        })),
        prop::sample::select(vec![json!({}), json!([]), json!({"prompt": 1}), json!("x")]),
    ]
}

/// What must hold of each `done`.
fn check(done: &Value, line: &str) {
    let number = |key: &str| done[key].as_f64().unwrap();
    let prompt = number("prompt_tokens");
    assert!(
        (number("reused_prompt_tokens") + number("prefilled_prompt_tokens") - prompt).abs() < 0.5
    );
    for (count, ms, rate) in [
        ("prefilled_prompt_tokens", "prefill_ms", "prefill_tok_s"),
        ("completion_tokens", "decode_ms", "decode_tok_s"),
    ] {
        let rated = if number(ms) > 0.0 {
            number(count) * 1000.0 / number(ms)
        } else {
            0.0
        };
        let printed = format!("\"{rate}\":{}", wire::worker_lines::float(rated));
        assert!(line.contains(&printed), "{printed} in {line}");
    }
    assert!(number("prefill_ms") + number("decode_ms") <= number("total_ms") + 1e-9);
}

proptest! {
    #[test]
    fn any_conversation_is_answered_line_by_line(
        lines in prop::collection::vec(line(), 0..30),
        frames in prop::collection::vec((0_usize..80, prop::collection::vec(0_u8..40, 0..17)), 0..6),
        costs in (0.0_f64..2.0, 0.0_f64..2.0, 0.0_f64..=1.0),
        seed: u64,
    ) {
        let model = json!({
            "worker": {
                "prefill_ms_per_token": costs.0, "decode_ms_per_token": costs.1, "jitter": costs.2,
                "seed": seed, "window": 12, "bookkeeping_ms": costs.0,
            },
            "default": {"worker": {"pieces": ["a", "b", "\u{e9}", [0xc3], "c", [0xff]]}},
        });
        let mut worker = worker(&model, Timing::Strict);
        let mut around = Around { frames, ..Around::default() };
        worker.start(&mut around).unwrap();
        for line in lines {
            let before = around.lines.len();
            worker.line(line.to_string().as_bytes(), &mut around).unwrap();
            let answer = &around.lines[before..];
            let (last, tokens) = answer.split_last().unwrap();
            for token in tokens {
                let token: Value = serde_json::from_str(token).unwrap();
                prop_assert!(token["token"].as_str().is_some_and(|text| !text.is_empty()));
            }
            let last_line: Value = serde_json::from_str(last).unwrap();
            prop_assert_eq!(last_line.get("token"), None);
            let ends = ["done", "error", "opened", "closed", "reset"];
            prop_assert_eq!(ends.iter().filter(|key| last_line.get(**key).is_some()).count(), 1);
            if last_line["done"] == true {
                check(&last_line, last);
            }
        }
    }
}
