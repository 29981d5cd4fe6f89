//! Whole replies as text: what is due when, and its bytes; and what holds for any of them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use plan::pace::Pace;
use plan::reply::{Body, Reply};
use plan::source::{Fixed, ScriptFile};
use plan::stub::{Context, Stub};
use plan::{ReasoningParser, Step, ToolParser};
use proptest::prelude::*;
use serde_json::{Value, json};
use wire::chunk::Chunk;
use wire::dialect::Dialect;
use wire::http1;
use wire::sse;

use crate::support::{all, ask, ask_in, tokenizer};

/// A line for each step: when it is due, and its data.
fn timeline(reply: Reply) -> String {
    let mut out = String::new();
    match reply.body {
        Body::Stream(mut timeline) => {
            let mut bytes = Vec::new();
            while let Some(step) = timeline.step(&mut bytes) {
                let text = String::from_utf8(std::mem::take(&mut bytes)).unwrap();
                let data = text
                    .lines()
                    .find(|line| line.starts_with("data: "))
                    .unwrap();
                writeln!(out, "{:?} {data}", step.due).unwrap();
            }
        }
        Body::Whole(whole) => {
            let text = String::from_utf8_lossy(&whole.bytes);
            writeln!(out, "{:?} {text}", whole.due).unwrap();
        }
        other => panic!("{other:?}"),
    }
    out
}

fn paced(mut stub: Stub) -> Stub {
    stub.engine.pace = "steady:ttft=20ms,itl=5ms".parse().unwrap();
    stub
}

#[test]
fn an_echo_with_usage() {
    let stub = paced(Stub::echo(tokenizer("char")));
    let body = json!({"messages": [{"role": "user", "content": "Hé\n"}], "stream": true, "stream_options": {"include_usage": true}});
    insta::assert_snapshot!(timeline(ask(&stub, "/v1/chat/completions", &body)));
}

#[test]
fn a_stream_is_rendered_at_once_if_it_is_short() {
    let stub = Stub::echo(tokenizer("char"));
    let is_rendered = |text: &str, id: &str| {
        let body = json!({"prompt": text, "stream": true, "request_id": id});
        let reply = ask(&stub, "/v1/completions", &body);
        matches!(reply.body, Body::Rendered(_))
    };
    assert!(is_rendered(&"a".repeat(2000), "b"));
    assert!(!is_rendered(&"a".repeat(60_000), "b"));
    assert!(!is_rendered(&"a".repeat(2000), &"b".repeat(9000)));
}

#[test]
fn a_completion_with_two_choices_and_continuous_usage() {
    let stub = paced(Stub::echo(tokenizer("word")));
    let body = json!({"prompt": "one two", "n": 2, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    insta::assert_snapshot!(timeline(ask(&stub, "/v1/completions", &body)));
}

fn thinking() -> Stub {
    let bpe = tokenizer("bpe");
    let scripts = r#"{"hello":{"choices":[{"text":"<think>\nHm.</think>\n\nYes."}]}}"#;
    let source = ScriptFile::from_json(scripts, &bpe).unwrap();
    let mut stub = paced(Stub::echo(bpe));
    stub.engine.source = Box::new(source);
    stub.parsers.reasoning = Some(ReasoningParser::Qwen3);
    stub
}

#[test]
fn reasoning_streamed_and_whole() {
    let ask_for = |stream: bool| {
        let body = json!({"messages": [{"role": "user", "content": "?"}], "stream": stream});
        timeline(ask(&thinking(), "/v1/chat/completions", &body))
    };
    insta::assert_snapshot!(ask_for(true) + &ask_for(false));
}

#[test]
fn an_older_version_writes_older_keys() {
    let ask_for = |stream: bool| {
        let mut stub = thinking();
        stub.dialect = Dialect::named("vllm-0.10").unwrap();
        stub.fingerprint = stub.dialect.fingerprint();
        let body = json!({"messages": [{"role": "user", "content": "?"}], "stream": stream});
        timeline(ask(&stub, "/v1/chat/completions", &body))
    };
    insta::assert_snapshot!(ask_for(true) + &ask_for(false));
}

/// Text, reasoning, completion tokens and due times of a reply.
fn said(reply: Reply) -> (String, String, u64, Vec<u128>) {
    let mut out = (String::new(), String::new(), 0, Vec::new());
    let mut add = |json: &[u8]| {
        if json == b"[DONE]" {
            return;
        }
        let chunk = Chunk::decode(json).unwrap();
        for choice in chunk.choices {
            out.0.extend(choice.delta.content);
            out.1.extend(choice.delta.reasoning);
        }
        out.2 = chunk
            .usage
            .and_then(|usage| usage.completion_tokens)
            .unwrap_or(out.2);
    };
    match reply.body {
        Body::Stream(mut timeline) => {
            let mut bytes = Vec::new();
            while let Some(step) = timeline.step(&mut bytes) {
                let start = bytes
                    .windows(6)
                    .position(|window| window == b"data: ")
                    .unwrap();
                let mut decoder = sse::Decoder::default();
                decoder.feed(&bytes[start..start + step.bytes as usize], &mut add);
                bytes.clear();
                out.3.push(step.due.as_micros());
            }
        }
        Body::Whole(whole) => add(&whole.bytes),
        other => panic!("{other:?}"),
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn streamed_and_whole_say_the_same(
        text in any::<String>(),
        vocabulary in prop::sample::select(vec!["char", "byte", "word"]),
        tokens_per_chunk in 1_u32..5,
        n in 1_u32..3,
        max_tokens in prop::option::of(1_u32..20),
        stop in prop::option::of("[a-c]{1,2}"),
        profile in prop::sample::select(Dialect::names().collect::<Vec<_>>()),
    ) {
        let mut stub = paced(Stub::echo(tokenizer(vocabulary)));
        stub.dialect = Dialect::named(profile).unwrap();
        stub.engine.honors_limits = true;
        stub.streaming.tokens_per_chunk = tokens_per_chunk;
        let body = |stream: bool| {
            let options = stream.then(|| json!({"include_usage": true}));
            json!({"messages": [{"role": "user", "content": text}], "n": n, "max_tokens": max_tokens,
                   "stop": stop, "stream": stream, "stream_options": options})
        };
        let path = "/v1/chat/completions";
        let (content, reasoning, tokens, due) = said(ask(&stub, path, &body(true)));
        let whole = said(ask(&stub, path, &body(false)));
        let mut sorted: Vec<char> = content.chars().collect();
        let mut other: Vec<char> = whole.0.chars().collect();
        sorted.sort_unstable();
        other.sort_unstable();
        prop_assert_eq!(sorted, other);
        prop_assert_eq!((&*reasoning, tokens), (&*whole.1, whole.2));
        prop_assert!(due.is_sorted());
        if n == 1 {
            prop_assert_eq!(&content, &whole.0);
            prop_assert!(text.starts_with(&content));
        }
    }
}

/// What a script's answer is made of, and what of it shows where.
#[derive(Clone, Debug)]
struct Parts {
    reasoning: Option<String>,
    content: String,
    calls: Vec<(String, Value)>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let call = ("[a-z_]{1,8}", any::<bool>(), "[a-zé\"{} ]{0,6}");
    let call = call.prop_map(|(name, flag, text)| (name, json!({"flag": flag, "text": text})));
    (
        prop::option::of("[a-zé🎉 \n]{0,20}"),
        "[a-zé🎉,. ]{0,30}",
        prop::collection::vec(call, 0..3),
    )
        .prop_map(|(reasoning, content, calls)| Parts {
            reasoning,
            content,
            calls,
        })
}

impl Parts {
    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(reasoning) = &self.reasoning {
            write!(text, "<think>{reasoning}</think>").unwrap();
        }
        text += &self.content;
        for (name, arguments) in &self.calls {
            let call = json!({"name": name, "arguments": arguments});
            write!(text, "<tool_call>\n{call}\n</tool_call>").unwrap();
        }
        text
    }
}

/// Content, reasoning, calls and completion tokens of each choice of a reply.
#[derive(Debug, Default, PartialEq)]
struct Spoken {
    content: String,
    reasoning: String,
    calls: Vec<(String, String)>,
    finish: String,
}

fn spoken(reply: Reply) -> (Vec<Spoken>, Option<u64>) {
    let (mut choices, mut tokens) = (Vec::<Spoken>::new(), None);
    let mut add = |json: &[u8]| {
        let Ok(chunk) = Chunk::decode(json) else {
            return;
        };
        for choice in chunk.choices {
            let index = choice.index as usize;
            choices.resize_with(choices.len().max(index + 1), Spoken::default);
            let spoken = &mut choices[index];
            spoken.content.extend(choice.delta.content);
            spoken.reasoning.extend(choice.delta.reasoning);
            for call in choice.delta.tool_calls {
                if let Some(name) = call.name {
                    spoken.calls.push((name.into_owned(), String::new()));
                }
                let last = spoken.calls.last_mut().unwrap();
                last.1.extend(call.arguments);
            }
            let finish = choice.finish.map(|finish| finish.reason.as_str());
            spoken.finish.extend(finish);
        }
        tokens = chunk
            .usage
            .and_then(|usage| usage.completion_tokens)
            .or(tokens);
    };
    match reply.body {
        Body::Stream(mut timeline) => {
            let bytes = all(&mut timeline);
            let mut decoder = http1::BodyDecoder::new(http1::Framing::Chunked);
            let mut events = sse::Decoder::default();
            decoder
                .feed(&bytes, |part| events.feed(part, &mut add))
                .unwrap();
        }
        Body::Rendered(rendered) => add(&rendered.bytes),
        Body::Whole(whole) => add(&whole.bytes),
        other => panic!("{other:?}"),
    }
    (choices, tokens)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_script_is_said_whole_whatever_the_options(
        scripted in prop::collection::vec(parts(), 1..3),
        n in 1_usize..4,
        steps in prop::collection::vec(1_u32..5, 0..4),
        bursts in any::<bool>(),
        interval in 1_u32..5,
        hides_reasoning in any::<bool>(),
        profile in prop::sample::select(Dialect::names().filter(|name| name.starts_with("vllm")).collect::<Vec<_>>()),
    ) {
        let bpe = tokenizer("bpe");
        let texts: Vec<_> = scripted.iter().map(Parts::text).collect();
        let choices: Vec<_> = texts.iter().map(|text| json!({"text": text})).collect();
        let rhythm = if bursts { "burst" } else { "steps" };
        let script = json!({"s": {"choices": choices, rhythm: steps}}).to_string();
        let source = ScriptFile::from_json(&script, &bpe).unwrap();
        let counts = texts.iter().cycle().take(n).map(|text| bpe.vocab.count(text) as u64 + 1);
        let scripted_tokens: u64 = counts.sum();
        let mut stub = paced(Stub::echo(bpe));
        stub.dialect = Dialect::named(profile).unwrap();
        stub.engine.source = Box::new(source);
        stub.parsers.reasoning = Some(ReasoningParser::Qwen3);
        stub.parsers.tools = Some(ToolParser::Hermes);
        let ask_for = |stream: bool| {
            let tool = json!({"type": "function", "function": {"name": "f"}});
            let body = json!({"messages": [{"role": "user", "content": "?"}], "n": n, "temperature": 1,
                "tools": [tool], "include_reasoning": !hides_reasoning, "stream": stream,
                "stream_interval": interval, "stream_options": stream.then(|| json!({"include_usage": true}))});
            spoken(ask(&stub, "/v1/chat/completions", &body))
        };
        let (streamed, tokens) = ask_for(true);
        prop_assert_eq!(tokens, Some(scripted_tokens));
        prop_assert_eq!(streamed.len(), n);
        for (spoken, parts) in streamed.iter().zip(scripted.iter().cycle()) {
            // Without a block of its own, all before a call is taken for reasoning.
            let (reasoning, content) = match &parts.reasoning {
                Some(reasoning) => (&**reasoning, &*parts.content),
                None => (&*parts.content, ""),
            };
            prop_assert_eq!(&*spoken.reasoning, if hides_reasoning { "" } else { reasoning });
            prop_assert_eq!(&*spoken.content, content);
            let calls = spoken.calls.iter().map(|(name, arguments)| {
                (name.clone(), serde_json::from_str(arguments).unwrap())
            });
            prop_assert_eq!(&calls.collect::<Vec<_>>(), &parts.calls);
            let finish = if parts.calls.is_empty() { "stop" } else { "tool_calls" };
            prop_assert_eq!(&*spoken.finish, finish);
        }
        let (whole, tokens) = ask_for(false);
        prop_assert_eq!(tokens, Some(scripted_tokens));
        for (streamed, whole) in streamed.iter().zip(&whole) {
            prop_assert_eq!(&streamed.reasoning, &whole.reasoning);
            prop_assert_eq!(streamed.content.trim(), whole.content.trim());
            prop_assert_eq!(&streamed.finish, &whole.finish);
            let read = |calls: &[(String, String)]| calls.iter().map(|(name, arguments)| {
                (name.clone(), serde_json::from_str::<Value>(arguments).unwrap())
            }).collect::<Vec<_>>();
            prop_assert_eq!(read(&streamed.calls), read(&whole.calls));
        }
    }
}

/// A reply's bytes and steps, and what is told of it.
fn spelt(reply: Reply) -> (String, Vec<Step>, String) {
    let (mut bytes, mut steps) = (Vec::new(), Vec::new());
    match reply.body {
        Body::Rendered(rendered) => {
            bytes.extend_from_slice(&rendered.bytes);
            steps.extend_from_slice(&rendered.steps);
        }
        Body::Stream(mut timeline) => {
            timeline.steps(Duration::ZERO, usize::MAX, &mut bytes, &mut steps);
        }
        Body::Whole(whole) => {
            steps.push(whole.step());
            bytes = whole.bytes;
        }
        other => panic!("{other:?}"),
    }
    let told = format!(
        "{} {:?} {:?} {:?}",
        reply.status, reply.headers, reply.facts, reply.works
    );
    (String::from_utf8(bytes).unwrap(), steps, told)
}

proptest! {
    #[test]
    fn a_plain_answer_says_what_the_long_way_says(
        text in "[a-c\"\n\u{1}é ]{0,30}",
        (is_chat, stream, usage) in any::<(bool, bool, bool)>(),
        options in prop::sample::subsequence(
            vec!["ignore_eos", "min_tokens", "max_tokens", "honors", "fixed", "custom"], 0..6),
        (tokens_per_chunk, stream_interval) in (1_u32..5, 1_u32..5),
        limit in 0_u32..40,
        tokenizer_name in prop::sample::select(vec!["char", "byte", "word", "bpe"]),
        profile in prop::sample::select(Dialect::names().collect::<Vec<_>>()),
    ) {
        let has = |name| options.contains(&name);
        let tokenizer = tokenizer(tokenizer_name);
        let mut stub = Stub::echo(Arc::clone(&tokenizer));
        stub.dialect = Dialect::named(profile).unwrap();
        stub.fingerprint = stub.dialect.fingerprint();
        stub.engine.honors_limits = has("honors");
        if has("fixed") {
            stub.engine.source = Box::new(Fixed::new(&text, &tokenizer));
        }
        stub.streaming.tokens_per_chunk = tokens_per_chunk;
        stub.streaming.stream_interval = stream_interval;
        let mut body = json!({"stream": stream, "user": has("custom").then_some("me")});
        let path = if is_chat {
            body["messages"] = json!([{"role": "user", "content": text}]);
            "/v1/chat/completions"
        } else {
            body["prompt"] = json!(format!("x{text}"));
            "/v1/completions"
        };
        if stream {
            body["stream_options"] = json!({"include_usage": usage});
        }
        for name in ["min_tokens", "max_tokens"] {
            if has(name) {
                body[name] = json!(limit);
            }
        }
        body["ignore_eos"] = json!(has("ignore_eos"));
        let quick = spelt(ask(&stub, path, &body));
        // No time at all, but a pace: nothing is taken for plain.
        stub.engine.pace = "steady:ttft=0s,itl=0s".parse().unwrap();
        prop_assert_eq!(quick, spelt(ask(&stub, path, &body)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn events_taken_together_are_those_taken_one_by_one(
        text in "[a-c\"\n\u{1}é]{0,20}",
        n in 1_usize..4,
        options in prop::sample::subsequence(vec!["stop", "logprobs", "continuous_usage_stats", "chat"], 0..4),
        is_paced in any::<bool>(),
        keep_alive in prop::option::of(1_u64..8),
        (room, tick) in (1_usize..2000, 1_u64..9),
    ) {
        let has = |name| options.contains(&name);
        let mut stub = Stub::echo(tokenizer("char"));
        stub.engine.honors_limits = true;
        stub.streaming.keep_alive = keep_alive.map(Duration::from_millis);
        // Without a pace it might be rendered at once.
        stub.engine.pace = "steady:ttft=0s,itl=0s".parse().unwrap();
        let stub = if is_paced { paced(stub) } else { stub };
        let mut body = json!({"n": n, "temperature": 1, "stream": true, "stream_options":
            {"include_usage": true, "continuous_usage_stats": has("continuous_usage_stats")}});
        let path = if has("chat") {
            body["messages"] = json!([{"role": "user", "content": text}]);
            "/v1/chat/completions"
        } else {
            body["prompt"] = json!(format!("x{text}"));
            "/v1/completions"
        };
        if has("stop") {
            body["stop"] = json!(["ab"]);
        }
        if has("logprobs") {
            body["logprobs"] = if has("chat") { json!(true) } else { json!(1) };
        }
        let stream = || match ask(&stub, path, &body).body {
            Body::Stream(timeline) => timeline,
            other => panic!("{other:?}"),
        };
        let (mut one_by_one, mut expected) = (Vec::new(), Vec::new());
        let mut timeline = stream();
        while let Some(step) = timeline.step(&mut one_by_one) {
            expected.push(step);
        }
        let (mut bytes, mut steps) = (Vec::new(), Vec::new());
        let (mut timeline, mut now) = (stream(), Duration::ZERO);
        while let Some(due) = timeline.due() {
            prop_assert_eq!(due, expected[steps.len()].due);
            if due > now {
                now += Duration::from_millis(tick);
            }
            let mut part = Vec::new();
            timeline.steps(now, room, &mut part, &mut steps);
            bytes.extend(part);
        }
        prop_assert_eq!(steps, expected);
        prop_assert_eq!(String::from_utf8(bytes).unwrap(), String::from_utf8(one_by_one).unwrap());
    }
}

#[test]
fn a_broken_call_ends_as_the_answer_says() {
    let bpe = tokenizer("bpe");
    let broken = r#"{"s":{"choices":[{"text":"<tool_call>{\"name\": \"f\", \"arguments\": {</tool_call>"}]}}"#;
    let source = ScriptFile::from_json(broken, &bpe).unwrap();
    let mut stub = Stub::echo(bpe);
    stub.engine.source = Box::new(source);
    stub.parsers.tools = Some(ToolParser::Hermes);
    for stream in [false, true] {
        let tool = json!({"type": "function", "function": {"name": "f"}});
        let body = json!({"messages": [{"role": "user", "content": "?"}], "tools": [tool], "stream": stream});
        let reply = ask(&stub, "/v1/chat/completions", &body);
        let told = reply.facts.as_ref().unwrap().finish_reason;
        let (choices, _) = spoken(reply);
        assert_eq!(told, Some(&*choices[0].finish));
    }
}

#[test]
fn an_answer_that_is_rendered_once_shows_nothing_of_other_requests() {
    let mut stub = Stub::echo(tokenizer("char"));
    stub.streaming.renders_once = true;
    let mut context = Context::new(7);
    let mut said = |body: Value| spoken(ask_in(&mut context, &stub, "/v1/completions", &body));
    let odd =
        said(json!({"prompt": "ab", "echo": true, "n": 2, "temperature": 1, "request_id": "me"}));
    assert_eq!((odd.0.len(), &*odd.0[0].content), (2, "abab"));
    let usual = said(json!({"prompt": "ab"}));
    assert_eq!((usual.0.len(), &*usual.0[0].content), (1, "ab"));
}

#[test]
fn an_answer_that_is_rendered_once_keeps_its_pace() {
    let mut stub = Stub::echo(tokenizer("char"));
    stub.streaming.renders_once = true;
    let body = json!({"messages": [{"role": "user", "content": "ab"}], "stream": true});
    let answered = |stub: &Stub| ask(stub, "/v1/chat/completions", &body).body;
    assert!(matches!(answered(&stub), Body::Rendered(_)));
    let (ttft, itl) = (Duration::from_millis(50), Duration::from_millis(10));
    stub.engine.pace = Pace::Steady { ttft, itl };
    let Body::Stream(mut timeline) = answered(&stub) else {
        panic!("a paced answer is sent step by step");
    };
    assert_eq!(timeline.due(), Some(ttft));
}

#[test]
fn what_would_take_too_much_memory_is_refused() {
    let mut stub = Stub::echo(tokenizer("char"));
    stub.engine.honors_limits = true;
    for body in [
        json!({"prompt": "ab", "prompt_logprobs": 2_000_000_000}),
        json!({"prompt": vec!["a"; 1024], "n": 16384, "temperature": 1}),
        json!({"prompt": "a".repeat(100_000), "prompt_logprobs": 20, "n": 1000, "temperature": 1, "max_tokens": 1}),
    ] {
        assert_eq!(ask(&stub, "/v1/completions", &body).status, 400);
    }
}
