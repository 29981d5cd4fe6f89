//! Answers that are given up while they are under way.

use std::time::Duration;

use plan::reply::{Body, Reply};
use plan::stub::Stub;
use plan::under_way::{Limits, UnderWay};
use plan::{Remains, Step};
use proptest::prelude::*;
use serde_json::{Value, json};
use wire::dialect::Dialect;

use crate::support::{ask, tokenizer};

const PATHS: [&str; 3] = ["/generate", "/v1/chat/completions", "/v1/completions"];
const ITL: Duration = Duration::from_millis(10);

/// A stub of SGLang's that says a character each 10 ms.
fn stub(limits: Limits) -> Stub {
    let mut stub = Stub::echo(tokenizer("char"));
    stub.dialect = Dialect::SGLANG;
    stub.engine.pace = "steady:itl=10ms".parse().unwrap();
    stub.engine.under_way = Some(UnderWay::new(limits));
    stub
}

const NAMED: Limits = Limits {
    keeps_names: true,
    running: None,
    queued: None,
    shares_names: false,
};

/// A request for so many choices.
fn body(path: &str, text: &str, choices: u64, stream: bool) -> Value {
    match path {
        "/generate" => {
            json!({"text": text, "stream": stream, "sampling_params": {"n": choices}})
        }
        "/v1/completions" => {
            json!({"prompt": text, "n": choices, "stream": stream, "stream_options": {"include_usage": true}})
        }
        _ => {
            json!({"messages": [{"role": "user", "content": text}], "n": choices, "stream": stream, "stream_options": {"include_usage": true}})
        }
    }
}

/// Steps and bytes of a stream.
type Told = (Vec<Step>, Vec<u8>);

fn tell(reply: &mut Reply, until: Duration, told: &mut Told) {
    let Body::Stream(timeline) = &mut reply.body else {
        panic!("{:?}", reply.body);
    };
    timeline.steps(until, usize::MAX, &mut told.1, &mut told.0);
}

/// The data of each event.
fn events(bytes: &[u8]) -> Vec<&str> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect()
}

/// The text of a choice, of a stream's events or a whole answer, and how it ended.
fn said(events: &[&str], choice: u64) -> (String, Option<String>) {
    let mut text = String::new();
    let mut finish = None;
    for event in events.iter().filter(|event| **event != "[DONE]") {
        let event: Value = serde_json::from_str(event).unwrap();
        if event.get("meta_info").is_some() {
            if event.get("index").is_none_or(|index| index == choice) {
                event["text"].as_str().unwrap().clone_into(&mut text);
                let kind = &event["meta_info"]["finish_reason"]["type"];
                finish = finish.or_else(|| kind.as_str().map(Into::into));
            }
            continue;
        }
        let own = event["choices"].as_array().unwrap();
        for own in own.iter().filter(|own| own["index"] == choice) {
            for added in [
                &own["text"],
                &own["delta"]["content"],
                &own["message"]["content"],
            ] {
                text.push_str(added.as_str().unwrap_or_default());
            }
            finish = finish.or_else(|| own["finish_reason"].as_str().map(Into::into));
        }
    }
    (text, finish)
}

fn aborted(reply: &mut Reply, now: Duration, choices: &[u32]) -> Option<Remains> {
    reply.body.abort(now, choices)
}

proptest! {
    #[test]
    fn a_stream_cut_at_any_moment_is_begun_as_it_would_have_been_and_ends_at_once(
        text in "[a-c]{1,8}",
        path in prop::sample::select(&PATHS[..]),
        choices in 1_u64..3,
        (now, taken) in (0_u32..120, 0_u32..120),
    ) {
        let (now, taken) = (Duration::from_millis(now.into()), Duration::from_millis(taken.min(now).into()));
        let stub = stub(NAMED);
        let body = body(path, &text, choices, true);
        let mut uncut = (Vec::new(), Vec::new());
        let mut reply = ask(&stub, path, &body);
        tell(&mut reply, now, &mut uncut);
        let due = (uncut.0.len(), uncut.1.len());
        tell(&mut reply, Duration::MAX, &mut uncut);
        drop(reply);

        let mut cut = (Vec::new(), Vec::new());
        let mut reply = ask(&stub, path, &body);
        tell(&mut reply, taken, &mut cut);
        let all: Vec<u32> = (0..2).collect();
        let remains = aborted(&mut reply, now, &all);
        tell(&mut reply, Duration::MAX, &mut cut);
        prop_assert_eq!(&cut.0[..due.0], &uncut.0[..due.0]);
        prop_assert_eq!(&cut.1[..due.1], &uncut.1[..due.1]);
        prop_assert!(cut.1.ends_with(b"data: [DONE]\n\n\r\n0\r\n\r\n"));
        let is_over = due.0 == uncut.0.len();
        prop_assert_eq!(remains.is_none(), is_over);
        prop_assert!(is_over || cut.0[due.0..].iter().all(|step| step.due == now));
        let tokens: u32 = cut.0.iter().map(|step| step.tokens).sum();
        for choice in 0..choices {
            let (whole, _) = said(&events(&uncut.1), choice);
            let (part, finish) = said(&events(&cut.1), choice);
            prop_assert!(whole.starts_with(&part));
            prop_assert_eq!(finish.as_deref() == Some("abort"), !is_over);
        }
        if let Some(remains) = remains {
            prop_assert_eq!(remains.usage.completion_tokens, Some(tokens.into()));
            // The step under way is told too.
            let steps = now.as_millis() / ITL.as_millis() + 1;
            let each = steps.min(text.len() as u128);
            prop_assert_eq!(u128::from(tokens), each * u128::from(choices));
        }
    }

    #[test]
    fn what_is_sent_whole_says_what_the_stream_would_have_said(
        text in "[a-c]{1,8}",
        path in prop::sample::select(&PATHS[..]),
        choices in 1_u64..3,
        now in 0_u32..120,
        given_up in prop::sample::subsequence(vec![0_u32, 1], 0..3),
    ) {
        let now = Duration::from_millis(now.into());
        let stub = stub(NAMED);
        let mut streamed = (Vec::new(), Vec::new());
        let mut reply = ask(&stub, path, &body(path, &text, choices, true));
        let of_stream = aborted(&mut reply, now, &given_up);
        tell(&mut reply, Duration::MAX, &mut streamed);
        drop(reply);
        let mut reply = ask(&stub, path, &body(path, &text, choices, false));
        prop_assert_eq!(&aborted(&mut reply, now, &given_up), &of_stream);
        let Body::Whole(whole) = &reply.body else {
            panic!("{:?}", reply.body);
        };
        let json = std::str::from_utf8(&whole.bytes).unwrap();
        let answers: Vec<Value> = match serde_json::from_str(json).unwrap() {
            Value::Array(answers) => answers,
            _ => vec![serde_json::from_str(json).unwrap(); 2],
        };
        for choice in 0..choices {
            let answer = answers[usize::try_from(choice).unwrap()].to_string();
            prop_assert_eq!(said(&[&answer], choice), said(&events(&streamed.1), choice));
        }
        let last = streamed.0.iter().map(|step| step.due).max();
        prop_assert_eq!(Some(whole.due), last);
    }
}

#[test]
fn streams_of_other_layouts_are_cut_alike() {
    let stub = stub(NAMED);
    let requests = [
        (
            "/v1/messages",
            json!({"model": "echo", "max_tokens": 99, "stream": true, "messages": [{"role": "user", "content": "abcdef"}]}),
        ),
        ("/v1/responses", json!({"input": "abcdef", "stream": true})),
    ];
    for (path, body) in &requests {
        for now in (0..100).step_by(5).map(Duration::from_millis) {
            let mut uncut = (Vec::new(), Vec::new());
            let mut reply = ask(&stub, path, body);
            tell(&mut reply, now, &mut uncut);
            let due = uncut.1.len();
            tell(&mut reply, Duration::MAX, &mut uncut);
            drop(reply);
            let mut cut = (Vec::new(), Vec::new());
            let mut reply = ask(&stub, path, body);
            tell(&mut reply, now, &mut cut);
            let remains = reply.body.abort(now, &[0]);
            tell(&mut reply, Duration::MAX, &mut cut);
            let tokens = |steps: &[Step]| -> u32 { steps.iter().map(|step| step.tokens).sum() };
            if remains.is_none() {
                // Nothing but the end is left, and that is laid out.
                assert_eq!(cut, uncut);
                assert_eq!(tokens(&cut.0), 6);
                continue;
            }
            assert_eq!(cut.1[..due], uncut.1[..due]);
            assert!(cut.1.ends_with(b"\r\n0\r\n\r\n"));
            let steps = u32::try_from(now.as_millis() / ITL.as_millis()).unwrap();
            assert_eq!(tokens(&cut.0), steps + 1, "{path} {now:?}");
            assert!(cut.0.iter().all(|step| step.due <= now));
        }
        let mut reply = ask(&stub, path, body);
        let mut told = (Vec::new(), Vec::new());
        assert!(reply.body.give_up(stub.dialect, ITL * 9).is_some());
        tell(&mut reply, ITL * 9, &mut told);
        assert!(told.1.ends_with(b"\r\n0\r\n\r\n"));
        assert_eq!(told.0.iter().map(|step| step.tokens).sum::<u32>(), 0);
    }
}

#[test]
fn what_waits_is_given_up_without_a_token() {
    let stub = stub(Limits {
        running: Some(1),
        ..NAMED
    });
    let first = ask(&stub, PATHS[0], &body(PATHS[0], "abc", 1, true));
    assert!(first.ticket.is_some());
    for path in PATHS {
        for stream in [false, true] {
            let mut request = body(path, "abc", 1, stream);
            request["rid"] = "mine".into();
            let mut reply = ask(&stub, path, &request);
            let now = Duration::from_secs(5);
            let remains = reply.body.give_up(stub.dialect, now).unwrap();
            assert_eq!(remains.usage.completion_tokens, Some(0));
            let mut told = (Vec::new(), Vec::new());
            if stream {
                tell(&mut reply, now, &mut told);
            } else if let Body::Whole(whole) = &reply.body {
                assert_eq!(whole.due, now);
                let answer = String::from_utf8(whole.bytes.clone()).unwrap();
                told.1 = format!("data: {answer}").into_bytes();
            }
            let (text, finish) = said(&events(&told.1), 0);
            assert_eq!((&*text, finish.as_deref()), ("", Some("abort")), "{path}");
        }
    }
}
