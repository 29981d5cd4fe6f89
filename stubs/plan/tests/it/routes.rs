//! Responses and messages as text, and what holds for any of them.

use std::fmt::Write as _;
use std::sync::Arc;

use plan::reply::{Body, Reply};
use plan::source::ScriptFile;
use plan::stub::Stub;
use plan::{Kind, ReasoningParser, Step, ToolParser};
use proptest::prelude::*;
use serde_json::{Value, json};
use wire::dialect::Dialect;

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
    assert_eq!(ends, timeline.cut().is_none());
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
    assert!(steps.iter().all(|(step, _)| step.kind != Kind::Usage));
    let (mut steps, ends) = events(ask(
        &stub(),
        "/v1/messages",
        &message_body("[[fault]]", true),
    ));
    assert!(ends);
    let (step, error) = steps.pop().unwrap();
    assert_eq!(step.kind, Kind::Error);
    let expected = json!({"type": "api_error", "message": "Internal server error"});
    assert_eq!(error["error"], expected);
}

/// A stub of a profile that says `text`.
fn saying(profile: &str, text: &str) -> Stub {
    let mut stub = stub();
    let script = json!({"say": {"choices": [{"text": text}]}}).to_string();
    let source = ScriptFile::from_json(&script, &stub.engine.tokenizer).unwrap();
    stub.engine.source = Box::new(source);
    stub.dialect = Dialect::named(profile).unwrap();
    stub
}

const CALLS: &str = r#"<tool_call>{"name": "f", "arguments": {"b": 1}}</tool_call><tool_call>{"name": "g", "arguments": {}}</tool_call>"#;

/// What a message ends with, streamed and whole.
fn endings(stub: &Stub, more: &Value) -> [Value; 2] {
    let ask = |stream| {
        let mut body = message_body("?", stream);
        let members = body.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        ask(stub, "/v1/messages", &body)
    };
    let (mut streamed, ends) = events(ask(true));
    assert!(ends);
    streamed.pop();
    let (step, mut delta) = streamed.pop().unwrap();
    assert_eq!(step.kind, Kind::Usage);
    let whole = whole(ask(false));
    let whole = ["stop_reason", "stop_sequence"].map(|name| whole[name].clone());
    [delta["delta"].take(), whole.into()]
}

#[test]
fn a_message_tells_what_stopped_it() {
    let named = json!({"tool_choice": {"type": "tool", "name": "f"}});
    let stop = |stop: &str| json!({"stop_sequences": [stop]});
    for profile in ["vllm-0.33.0", "vllm-0.32.0"] {
        for (text, more, reason, sequence) in [
            ("a STOP b", stop("STOP"), "stop_sequence", json!("STOP")),
            ("a b", stop("STOP"), "end_turn", Value::Null),
            ("a b", json!({"max_tokens": 1}), "max_tokens", Value::Null),
            (CALLS, named.clone(), "tool_use", Value::Null),
            (CALLS, json!({}), "tool_use", Value::Null),
            // The stop string comes behind whole calls.
            (CALLS, stop("</tool_call>"), "tool_use", Value::Null),
        ] {
            let [streamed, whole] = endings(&saying(profile, text), &more);
            assert_eq!(whole, json!([reason, sequence]), "{text} {more}");
            let expected = json!({"stop_reason": reason, "stop_sequence": sequence});
            assert_eq!(streamed, expected, "{text} {more}");
        }
    }
}

#[test]
fn a_call_that_a_stop_string_cuts_is_not_told_as_one() {
    let stub = saying("vllm-0.33.0", CALLS);
    let mut body = message_body("?", true);
    body["stop_sequences"] = json!([": 1"]);
    let (steps, _) = events(ask(&stub, "/v1/messages", &body));
    let (_, delta) = &steps[steps.len() - 2];
    let expected = json!({"stop_reason": "stop_sequence", "stop_sequence": ": 1"});
    assert_eq!(delta["delta"], expected);
}

#[test]
fn a_chat_that_calls_tells_what_stopped_it_too() {
    let stub = saying("vllm-0.33.0", CALLS);
    let function = json!({"name": "f", "parameters": {"type": "object"}});
    let body = json!({"messages": [{"role": "user", "content": "?"}], "stop": ["</tool_call>"],
                      "tools": [{"type": "function", "function": function}]});
    let choice = whole(ask(&stub, "/v1/chat/completions", &body))["choices"][0].take();
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["stop_reason"], "</tool_call>");
}

#[test]
fn an_empty_message_has_a_block() {
    let empty = ask(
        &saying("vllm-0.33.0", ""),
        "/v1/messages",
        &message_body("?", false),
    );
    assert_eq!(
        whole(empty)["content"],
        json!([{"type": "text", "text": ""}])
    );
}

#[test]
fn parallel_calls_may_be_disabled() {
    let stub = saying("vllm-0.33.0", CALLS);
    for (disabled, calls) in [(true, 1), (false, 2)] {
        let choice = json!({"type": "auto", "disable_parallel_tool_use": disabled});
        let body = |stream| {
            let mut body = message_body("?", stream);
            body["tool_choice"] = choice.clone();
            body
        };
        let whole = whole(ask(&stub, "/v1/messages", &body(false)));
        assert_eq!(whole["content"].as_array().unwrap().len(), calls);
        let (steps, _) = events(ask(&stub, "/v1/messages", &body(true)));
        let starts = |json: &Value| json["type"] == "content_block_start";
        let started = steps.iter().filter(|(_, json)| starts(json));
        assert_eq!(started.count(), calls);
    }
}

#[test]
fn a_fault_ends_the_open_block_of_newer_messages() {
    for (profile, after, tail) in [
        (
            "vllm-0.33.0",
            6,
            "signature_delta content_block_stop api_error",
        ),
        (
            "vllm-0.32.0",
            6,
            "thinking_delta thinking_delta internal_error",
        ),
        ("vllm-0.33.0", 0, "message_start api_error"),
    ] {
        let mut stub = stub();
        let fault = json!({"kind": "error", "after": after});
        let text = "<think>Hm, hm, hm, hm.</think>";
        let script = json!({"fault": {"choices": [{"text": text}], "fault": fault}});
        let source = ScriptFile::from_json(&script.to_string(), &stub.engine.tokenizer);
        stub.engine.source = Box::new(source.unwrap());
        stub.dialect = Dialect::named(profile).unwrap();
        let (steps, _) = events(ask(&stub, "/v1/messages", &message_body("?", true)));
        let names: Vec<_> = steps
            .iter()
            .map(|(_, json)| {
                let of = [
                    &json["error"]["type"],
                    &json["delta"]["type"],
                    &json["type"],
                ];
                of.into_iter().find_map(Value::as_str).unwrap()
            })
            .collect();
        assert!(names.join(" ").ends_with(tail), "{names:?}");
    }
}

/// The items of a response of a profile that a limit cuts, streamed and whole.
fn cut_items(profile: &str, text: &str, tokens: u32) -> [Value; 2] {
    let stub = saying(profile, text);
    let ask = |stream| {
        let mut body = response_body("?", stream);
        body["max_output_tokens"] = tokens.into();
        ask(&stub, "/v1/responses", &body)
    };
    let (mut streamed, _) = events(ask(true));
    let mut last = streamed.pop().unwrap().1;
    let (_, done) = streamed.pop().unwrap();
    let items = last["response"]["output"].take();
    assert_eq!(done["item"], *items.as_array().unwrap().last().unwrap());
    [items, whole(ask(false))["output"].take()].map(|items| {
        let items = items.as_array().unwrap().iter();
        items.map(|item| item["status"].clone()).collect()
    })
}

#[test]
fn a_limit_is_told_of_the_item_that_it_cuts() {
    let reasoning = "<think>Hm, hm, hm, hm.</think>";
    let items = |text| cut_items("vllm-0.33.0", text, 6);
    assert_eq!(items(reasoning), [json!(["incomplete"]), json!([null])]);
    assert_eq!(
        cut_items("vllm-0.32.0", reasoning, 6),
        [json!(["completed"]), json!([null])]
    );
    let said = "<think></think>Let me see, and see.";
    assert_eq!(items(said), [json!(["incomplete"]), json!(["incomplete"])]);
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

#[test]
fn a_response_includes_logprobs_of_its_text() {
    let stub = saying("vllm-0.33.0", "<think>Hm.</think>ab cd");
    let body = |stream: bool| {
        let mut body = response_body("?", stream);
        body["include"] = json!(["message.output_text.logprobs"]);
        body["top_logprobs"] = 2.into();
        body
    };
    let text_of = |response: &Value| response["output"][1]["content"][0].clone();
    let whole = whole(ask(&stub, "/v1/responses", &body(false)));
    assert_eq!(whole["top_logprobs"], 2);
    let all = text_of(&whole)["logprobs"].as_array().unwrap().clone();
    let (steps, _) = events(ask(&stub, "/v1/responses", &body(true)));
    let streamed = text_of(&steps.last().unwrap().1["response"])["logprobs"].clone();
    let streamed = streamed.as_array().unwrap();
    // The whole answer has the reasoning's and the end's too.
    assert!(streamed.len() > 1 && streamed.len() < all.len());
    assert!(streamed.iter().all(|token| all.contains(token)));
    assert_eq!(
        streamed[0]["top_logprobs"][0]["logprob"],
        streamed[0]["logprob"]
    );
    assert!(streamed[0]["top_logprobs"][1]["bytes"].is_array());
    let deltas: Vec<Value> = steps
        .iter()
        .filter(|(step, _)| step.kind == Kind::Content)
        .flat_map(|(_, json)| json["logprobs"].as_array().unwrap().clone())
        .collect();
    let mut bare = streamed.clone();
    for token in &mut bare {
        let tops = token["top_logprobs"].as_array_mut().unwrap();
        for top in tops {
            top.as_object_mut().unwrap().remove("bytes");
        }
        token.as_object_mut().unwrap().remove("bytes");
    }
    assert_eq!(deltas, bare);
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
            let facts = reply.facts.as_ref().unwrap();
            let usage = facts.usage.unwrap();
            prop_assert_eq!(facts.prompt.as_ref(), Some(&text));
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
