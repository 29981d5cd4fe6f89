//! SGLang's routes beside its answers: odd requests, refusals, and how streams are laid out.

use std::time::Duration;

use plan::reply::{Body, Reply};
use plan::source::Fixed;
use plan::stub::Stub;
use plan::{Kind, ReasoningParser, ToolParser};
use serde_json::{Value, json};
use wire::dialect::Dialect;

use crate::support::{all, ask, tokenizer};

/// A stub of SGLang whose model always says the same.
fn stub(text: &str) -> Stub {
    let chars = tokenizer("char");
    let mut stub = Stub::echo(chars.clone());
    stub.dialect = Dialect::SGLANG;
    stub.engine.source = Box::new(Fixed::new(text, &chars));
    stub.engine.honors_limits = true;
    stub.engine.max_model_len = Some(64);
    stub
}

/// The status and the body.
fn whole(reply: Reply) -> (u16, String) {
    let bytes = match reply.body {
        Body::Whole(whole) => whole.bytes,
        Body::Rendered(rendered) => rendered.bytes.clone(),
        Body::Stream(mut timeline) => all(&mut timeline),
        body => panic!("no body: {body:?}"),
    };
    (reply.status, String::from_utf8(bytes).unwrap())
}

fn asked(path: &str, body: &Value) -> (u16, String) {
    whole(ask(&stub("hi"), path, body))
}

#[test]
fn parsers_that_are_not_there_are_an_error_of_the_server() {
    let call = json!({"text": "a", "tools": [], "tool_call_parser": "odd"});
    let reasoning = json!({"text": "a", "reasoning_parser": "odd"});
    for (path, body) in [
        ("/parse_function_call", &call),
        ("/parse_function_call", &json!({"text": "a"})),
        ("/separate_reasoning", &reasoning),
    ] {
        let expected = (500, "Internal Server Error".to_owned());
        assert_eq!(asked(path, body), expected, "{path} {body}");
    }
}

#[test]
fn blocks_of_reasoning_are_told() {
    let body =
        json!({"text": "<think>a</think>b", "reasoning_parser": "qwen3", "return_blocks": true});
    let expected = r#"{"reasoning_text":"a","text":"b","reasoning_blocks":["a"],"text_blocks":["b"],"blocks":[{"type":"reasoning","text":"a"},{"type":"text","text":"b"}]}"#;
    assert_eq!(asked("/separate_reasoning", &body).1, expected);
}

#[test]
fn scores_need_labels_and_items() {
    for (body, part) in [
        (json!({}), "items must be provided"),
        (json!({"items": "a"}), "label_token_ids is required"),
        (json!({"items": "a", "label_token_ids": []}), "nonempty"),
        (
            json!({"items": "a", "label_token_ids": [1, 1]}),
            "duplicate",
        ),
        (
            json!({"items": "a", "label_token_ids": [-1]}),
            "nonnegative",
        ),
        (
            json!({"items": "a", "label_token_ids": [4_000_000_000_u64]}),
            "out of vocabulary",
        ),
        (
            json!({"items": ["a", "b"], "label_token_ids": [[1]]}),
            "one list per item",
        ),
        (
            json!({"items": ["a"], "query": [1], "label_token_ids": [1]}),
            "Invalid combination",
        ),
        (
            json!({"items": "", "label_token_ids": [1]}),
            "Prompt cannot be empty",
        ),
        (
            json!({"items": "a", "label_token_ids": [1], "temperature": 2}),
            "apply_softmax=True",
        ),
    ] {
        let (status, answer) = asked("/v1/score", &body);
        assert!(status == 400 && answer.contains(part), "{body} {answer}");
    }
    let none = json!({"items": []});
    assert!(asked("/v1/score", &none).1.starts_with(r#"{"scores":[],"#));
    let shares = json!({"items": [[1], [2]], "query": [3], "label_token_ids": [1, 2],
        "apply_softmax": true, "return_token_logprobs": true});
    let (status, answer) = asked("/v1/score", &shares);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (status, &answer["usage"]["prompt_tokens"]),
        (200, &json!(4))
    );
    assert_eq!(answer["token_logprobs"].as_array().unwrap().len(), 2);
}

#[test]
fn ollama_says_nothing_to_nothing_and_expects_no_refusal() {
    let body = |prompt: &str, limit: i64, stream: bool| json!({"model": "m", "prompt": prompt, "stream": stream, "options": {"num_predict": limit}});
    let (status, empty) = asked("/api/generate", &body(" ", 5, false));
    assert_eq!(status, 200);
    assert!(empty.contains(r#""response":"","done":true"#), "{empty}");
    let (_, empty) = asked("/api/generate", &body("", 5, true));
    assert!(empty.ends_with("}\n\r\n0\r\n\r\n"), "{empty}");
    let (status, refused) = asked("/api/generate", &body("a", -5, false));
    assert_eq!((status, &*refused), (500, "Internal Server Error"));
    // The last piece of an answer is not told.
    let (_, lines) = asked("/api/generate", &body("a", 2, true));
    let said: Vec<&str> = lines.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(said.len(), 2, "{lines}");
    assert!(said[0].contains(r#""response":"h","done":false,"done_reason":null"#));
    assert!(said[1].contains(r#""response":"","done":true,"done_reason":"stop""#));
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": false,
        "options": {"num_predict": 8}});
    let (_, answer) = asked("/api/chat", &chat);
    assert!(answer.contains(r#""message":{"role":"assistant","content":"hi","images":null}"#));
    assert!(!answer.contains(r#""context""#), "{answer}");
}

#[test]
fn lists_are_cut_and_put_together_one_by_one() {
    let (_, answer) = asked("/tokenize", &json!({"prompt": ["ab", ""]}));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["count"], json!([2, 0]));
    let body = json!({"tokens": answer["tokens"]});
    assert_eq!(asked("/detokenize", &body).1, r#"{"text":["ab",""]}"#);
    let body = json!({"tokens": []});
    assert_eq!(asked("/v1/detokenize", &body).1, r#"{"text":""}"#);
    let chat = json!({"messages": [{"role": "user", "content": "abc"}]});
    assert!(asked("/v1/tokenize", &chat).1.contains(r#""count":3"#));
}

#[test]
fn instances_may_be_none_or_bad() {
    assert_eq!(asked("/vertex_generate", &json!({"instances": []})).1, "[]");
    let bad =
        json!({"instances": [{"text": "a"}], "parameters": {"sampling_params": {"top_p": 7}}});
    let (status, answer) = asked("/vertex_generate", &bad);
    assert_eq!(status, 400);
    assert!(
        answer.starts_with(r#"{"error":{"message":"top_p"#),
        "{answer}"
    );
    assert_eq!(
        asked("/set_internal_state", &json!({"server_args": {"a": 1}})).1,
        "[true]"
    );
}

#[test]
fn health_takes_its_time() {
    let mut stub = stub("hi");
    stub.front.health_takes = Duration::from_secs(1);
    let head = "GET /health HTTP/1.1\r\n\r\n";
    let (head, _) = wire::http1::RequestHead::parse(head.as_bytes())
        .unwrap()
        .unwrap();
    let call = plan::stub::Call {
        body: b"",
        head: &head,
        wants_facts: false,
    };
    let reply = stub.reply(&call, &mut plan::stub::Context::new(1)).unwrap();
    assert_eq!(reply.headers.content_type, Some(""));
    let Body::Whole(whole) = reply.body else {
        panic!("the answer waits");
    };
    assert_eq!((whole.due, whole.bytes.len()), (Duration::from_secs(1), 0));
}

fn message(text: &str, stream: bool, rest: &Value) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 20, "stream": stream,
        "messages": [{"role": "user", "content": text}]});
    for (name, value) in rest.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn messages_tell_refusals_where_they_come_up() {
    let long = "a".repeat(100);
    let (status, answer) = asked("/v1/messages", &message(&long, false, &json!({})));
    let start = r#"{"type":"error","error":{"type":"BadRequestError","message":"#;
    assert!(status == 400 && answer.starts_with(start), "{answer}");
    let (status, answer) = asked("/v1/messages", &message(&long, true, &json!({})));
    let names: Vec<&str> = answer
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    assert_eq!(
        (status, names),
        (200, vec!["message_start", "error", "message_stop"])
    );
    assert!(answer.contains(r#"{"type":"error","error":{"type":"invalid_request_error","#));
    let adapter = message("a", true, &json!({"model": "m:x"}));
    let (status, answer) = asked("/v1/messages", &adapter);
    let start = r#"{"type":"error","error":{"type":"invalid_request_error","message":"LoRA"#;
    assert!(status == 400 && answer.starts_with(start), "{answer}");
    let mut full = stub("hi");
    full.engine.max_queued = Some(0);
    let (status, answer) = whole(ask(&full, "/v1/messages", &message("a", false, &json!({}))));
    let expected =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Internal server error"}}"#;
    assert_eq!((status, &*answer), (503, expected));
    let (_, count) = asked(
        "/v1/messages/count_tokens",
        &message("abc", false, &json!({})),
    );
    assert_eq!(count, r#"{"input_tokens":3}"#);
}

#[test]
fn a_message_of_thoughts_and_calls_is_unsigned() {
    let mut stub = stub(
        "<think>Hm.</think>So.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1}}\n</tool_call>",
    );
    stub.parsers.reasoning = Some(ReasoningParser::Qwen3);
    stub.parsers.tools = Some(ToolParser::Qwen25);
    stub.engine.max_model_len = None;
    let tools = json!({"max_tokens": 500, "tools": [{"name": "f", "input_schema": {}}]});
    let (_, answer) = whole(ask(&stub, "/v1/messages", &message("a", false, &tools)));
    let expected = r#""content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"So."},{"type":"tool_use","id":"call_"#;
    assert!(answer.contains(expected), "{answer}");
    assert!(
        answer.contains(
            r#""name":"f","input":{"b":1}}],"model":"m","stop_reason":"tool_use","usage":"#
        )
    );
    let (_, answer) = whole(ask(&stub, "/v1/messages", &message("a", true, &tools)));
    assert!(!answer.contains("signature"), "{answer}");
    let end =
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":"#;
    assert!(answer.contains(end), "{answer}");
}

#[test]
fn a_response_tells_refusals_in_its_stream() {
    let body = |stream: bool| json!({"input": "a".repeat(100), "stream": stream});
    let (status, answer) = asked("/v1/responses", &body(false));
    let start = r#"{"error":{"message":"The input"#;
    assert!(status == 400 && answer.starts_with(start), "{answer}");
    assert!(answer.contains(r#""type":"invalid_request_error","param":null,"code":400}}"#));
    let reply = ask(&stub("hi"), "/v1/responses", &body(true));
    let names: Vec<&str> = reply.headers.first.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["cache-control", "connection"]);
    let (status, answer) = whole(reply);
    let names: Vec<&str> = answer
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.failed",
    ];
    assert_eq!((status, &names[..]), (200, &expected[..]));
    assert!(
        answer.contains(r#""status":"failed","usage":null"#),
        "{answer}"
    );
    assert!(answer.contains(r#""error":{"code":"server_error","message":"The input"#));
}

#[test]
fn a_message_before_a_call_waits_and_is_a_commentary() {
    let mut stub = stub("So.<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");
    stub.parsers.tools = Some(ToolParser::Qwen25);
    stub.engine.max_model_len = None;
    stub.engine.pace = "steady:ttft=20ms,itl=5ms".parse().unwrap();
    let tool = json!({"type": "function", "name": "f", "parameters": {}});
    let body = json!({"input": "a", "stream": true, "tools": [tool]});
    let Body::Stream(mut timeline) = ask(&stub, "/v1/responses", &body).body else {
        panic!("a stream");
    };
    let (mut bytes, mut steps) = (Vec::new(), Vec::new());
    while let Some(step) = timeline.step(&mut bytes) {
        steps.push(step);
    }
    let text = String::from_utf8(bytes).unwrap();
    assert!(
        text.contains(r#""phase":"commentary""#) && !text.contains("final_answer"),
        "{text}"
    );
    let said = steps
        .iter()
        .find(|step| step.kind == Kind::Content)
        .unwrap();
    assert!(said.due > Duration::from_millis(40), "{:?}", said.due);
    assert!(steps.is_sorted_by_key(|step| step.due));
    let plain = json!({"input": "a", "stream": false, "max_output_tokens": 3});
    let (_, answer) = whole(ask(&stub, "/v1/responses", &plain));
    // Two of the tokens are for what may stand around.
    assert!(
        answer.contains(r#""text":"S","type":"output_text""#),
        "{answer}"
    );
    assert!(
        answer.contains(r#""status":"incomplete","usage""#),
        "{answer}"
    );
    assert!(answer.contains(r#""incomplete_details":{"reason":"max_output_tokens"}"#));
    let plain = json!({"input": "a", "stream": true, "max_output_tokens": 3});
    let (_, answer) = whole(ask(&stub, "/v1/responses", &plain));
    assert!(answer.contains("event: response.incomplete"), "{answer}");
}

/// Values where another is expected.
fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!([]),
        json!({}),
        json!(""),
        json!("\u{10ffff}"),
        json!([[]]),
        json!([[u64::MAX]]),
        json!([-1]),
        json!({"a": null}),
        json!(1.5e300),
        json!([{"role": "user", "content": []}]),
        json!([{"type": "function_call"}]),
        json!(true),
        json!(["", 1]),
        json!([{"text": ""}]),
    ]
}

const NAMES: &[&str] = &[
    "input",
    "messages",
    "prompt",
    "text",
    "items",
    "query",
    "label_token_ids",
    "tokens",
    "instances",
    "parameters",
    "options",
    "tools",
    "tool_choice",
    "system",
    "max_tokens",
    "max_output_tokens",
    "thinking",
    "reasoning",
    "temperature",
    "model",
    "server_args",
];

#[test]
fn any_body_has_an_answer() {
    let stub = stub("hi");
    let odd = odd_values();
    let good = json!({"model": "echo", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}],
        "input": "a", "prompt": "a", "text": "a", "items": "a", "label_token_ids": [1], "tokens": [1],
        "instances": [{"text": "a"}], "reasoning_parser": "qwen3", "tool_call_parser": "hermes",
        "documents": ["a"], "query": "a", "stream": false});
    for entry in Dialect::SGLANG.manner().routes {
        if !entry.methods.contains(&"POST") || entry.path == "/echo" {
            continue;
        }
        for name in NAMES {
            for value in &odd {
                for stream in [false, true] {
                    let mut body = good.clone();
                    body[*name] = value.clone();
                    body["stream"] = stream.into();
                    let reply = ask(&stub, entry.path, &body);
                    let known = matches!(reply.status, 200 | 400 | 404 | 500);
                    assert!(known, "{} {body} {}", entry.path, reply.status);
                    if let Body::Stream(mut timeline) = reply.body {
                        all(&mut timeline);
                    }
                }
            }
        }
    }
}
