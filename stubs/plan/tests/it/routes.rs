//! Responses and messages as text, and what holds for any of them.

use std::fmt::Write as _;
use std::sync::Arc;

use plan::reply::{Body, Reply};
use plan::source::ScriptFile;
use plan::stub::Stub;
use plan::{Kind, ReasoningParser, Step, ToolParser};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{ask, tokenizer};

/// Each event with its JSON, and whether the body ends.
fn events(reply: Reply) -> (Vec<(Step, Value)>, bool) {
    let Body::Stream(mut timeline) = reply.body else {
        panic!("not a stream: {:?}", reply.body);
    };
    let (mut steps, mut all) = (Vec::new(), Vec::new());
    while let Some(step) = timeline.step(&mut all) {
        let text = std::str::from_utf8(&all).unwrap();
        let data = text.lines().rfind(|line| line.starts_with("data: "));
        let json = serde_json::from_str(data.unwrap().trim_start_matches("data: "));
        steps.push((step, json.unwrap()));
    }
    let ends = all.ends_with(b"\r\n0\r\n\r\n");
    assert_ne!(ends, timeline.is_cut());
    (steps, ends)
}

/// A stub whose model thinks, talks and calls a function twice, or gives up where the prompt says so.
fn stub() -> Stub {
    let bpe = tokenizer("bpe");
    let text = r#"<think>Hm.</think>Let me see.<tool_call>{"name": "f", "arguments": {"b": 1}}</tool_call><tool_call>{"name": "g", "arguments": {}}</tool_call>"#;
    let fault = json!({"kind": "error", "after": 6});
    let scripts = json!({
        "hello": {"choices": [{"text": text}]},
        "fault": {"choices": [{"text": text}], "fault": fault},
    });
    let source = ScriptFile::from_json(&scripts.to_string(), &bpe).unwrap();
    let mut stub = Stub::echo(bpe);
    stub.engine.source = Box::new(source);
    stub.engine.honors_limits = true;
    stub.engine.pace = "steady:ttft=20ms,itl=5ms".parse().unwrap();
    stub.parsers.reasoning = Some(ReasoningParser::Qwen3);
    stub.parsers.tools = Some(ToolParser::Hermes);
    stub
}

fn response_body(text: &str, stream: bool) -> Value {
    let tool = json!({"type": "function", "name": "f", "parameters": {"type": "object"}});
    json!({"input": text, "stream": stream, "tools": [tool]})
}

fn message_body(text: &str, stream: bool) -> Value {
    let tool = json!({"name": "f", "input_schema": {"type": "object"}});
    json!({"model": "echo", "max_tokens": 500, "stream": stream, "tools": [tool],
           "messages": [{"role": "user", "content": text}]})
}

fn outline(reply: Reply) -> String {
    let mut out = String::new();
    for (step, json) in events(reply).0 {
        let Step {
            due, kind, tokens, ..
        } = step;
        let of = |name| json.get(name).map(Value::to_string).unwrap_or_default();
        let (index, delta) = (of("output_index") + &of("index"), of("delta"));
        let name = json["type"].as_str().unwrap();
        writeln!(out, "{due:?} {kind:?} {tokens} {name} {index} {delta}").unwrap();
    }
    out
}

#[test]
fn a_response_of_all_kinds_of_items() {
    let reply = ask(&stub(), "/v1/responses", &response_body("?", true));
    insta::assert_snapshot!(outline(reply));
}

#[test]
fn a_message_of_all_kinds_of_blocks() {
    let reply = ask(&stub(), "/v1/messages", &message_body("?", true));
    insta::assert_snapshot!(outline(reply));
}

fn whole(reply: Reply) -> Value {
    let Body::Whole(whole) = reply.body else {
        panic!("a stream");
    };
    serde_json::from_slice(&whole.bytes).unwrap()
}

#[test]
fn streamed_and_whole_responses_end_alike() {
    let streamed = ask(&stub(), "/v1/responses", &response_body("?", true));
    let (mut streamed, ends) = events(streamed);
    assert!(ends);
    let streamed = streamed.pop().unwrap().1["response"].take();
    let whole = whole(ask(&stub(), "/v1/responses", &response_body("?", false)));
    for key in ["usage", "status", "tools", "max_output_tokens"] {
        assert_eq!(streamed[key], whole[key], "{key}");
    }
    let texts = |response: &Value| -> Vec<String> {
        let items = response["output"].as_array().unwrap().iter();
        items
            .map(|item| item["content"][0]["text"].to_string() + &item["arguments"].to_string())
            .collect()
    };
    assert_eq!(texts(&streamed), texts(&whole));
    assert_eq!(texts(&whole).len(), 4);
}

#[test]
fn a_fault_cuts_a_response_and_is_told_in_a_message() {
    let (steps, ends) = events(ask(
        &stub(),
        "/v1/responses",
        &response_body("[[fault]]", true),
    ));
    assert!(!ends);
    assert!(steps.iter().all(|(step, _)| step.kind != Kind::Done));
    let (mut steps, ends) = events(ask(
        &stub(),
        "/v1/messages",
        &message_body("[[fault]]", true),
    ));
    assert!(ends);
    let (step, error) = steps.pop().unwrap();
    assert_eq!(step.kind, Kind::Error);
    let expected = json!({"type": "internal_error", "message": "Internal server error"});
    assert_eq!(error["error"], expected);
}

#[test]
fn what_needs_kept_responses_is_refused() {
    for (body, status, param) in [
        (
            json!({"input": "a", "previous_response_id": "resp_1"}),
            404,
            "response_id",
        ),
        (json!({"input": "a", "background": true}), 400, "background"),
        (json!({"input": "a", "prompt": {"id": "p"}}), 400, "prompt"),
    ] {
        let reply = ask(&stub(), "/v1/responses", &body);
        assert_eq!(reply.status, status);
        assert_eq!(whole(reply)["error"]["param"], param);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_token_is_told_of_once(
        text in "[a-c ]{0,12}",
        max_tokens in 1_u32..20,
        tokens_per_chunk in 1_u32..4,
    ) {
        let mut stub = stub();
        stub.engine.source = Stub::echo(Arc::clone(&stub.engine.tokenizer)).engine.source;
        stub.streaming.tokens_per_chunk = tokens_per_chunk;
        let response = json!({"input": text, "stream": true, "max_output_tokens": max_tokens});
        let message = json!({"model": "echo", "max_tokens": max_tokens, "stream": true,
                             "messages": [{"role": "user", "content": text}]});
        for (path, body) in [("/v1/responses", response), ("/v1/messages", message)] {
            let reply = ask(&stub, path, &body);
            let usage = reply.facts.usage.unwrap();
            prop_assert_eq!(reply.facts.prompt.as_ref(), Some(&text));
            let (steps, ends) = events(reply);
            prop_assert!(ends);
            let told: u32 = steps.iter().map(|(step, _)| step.tokens).sum();
            prop_assert_eq!(Some(u64::from(told)), usage.completion_tokens);
            prop_assert!(steps.is_sorted_by_key(|(step, _)| step.due));
            let deltas: String = steps
                .iter()
                .filter_map(|(_, json)| {
                    let delta = &json["delta"];
                    let texts = [delta, &delta["text"], &delta["thinking"]];
                    texts.into_iter().find_map(Value::as_str)
                })
                .collect();
            prop_assert!(text.starts_with(&deltas), "{deltas}");
        }
    }
}
