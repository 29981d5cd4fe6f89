//! The fuzz targets' assertions on stable: bytes near good ones, for a moment.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

#[path = "../fuzz/src/lib.rs"]
pub mod bodies;

const CASES: &str = include_str!("../../../fixtures/wire/vllm-0.33.0-schema/cases.jsonl");

const CHUNKS: &[&str] = &[
    r#"{"choices":[{"index":0,"delta":{"content":"a\n"},"finish_reason":null}]}"#,
    r#"{"choices":[{"index":1,"delta":{"role":"assistant","content":""},"token_ids":[1]}],"usage":null}"#,
    r#"{"choices":[{"delta":{"reasoning_content":"r"},"finish_reason":"stop","stop_reason":7}]}"#,
    r#"{"choices":[{"delta":{"reasoning":"r","content":"c"},"finish_reason":"odd","stop_reason":"END"}]}"#,
    r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"x"}]},"token_ids":[1,2]}]}"#,
    r#"{"choices":[{"text":"é\u0001","finish_reason":"length"}],"usage":{"prompt_tokens":3}}"#,
    r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":1}}}"#,
    r#"{"error":{"message":"no \"x\"","code":500}}"#,
    concat!(
        r#"{"text":"a\n","output_ids":[1],"meta_info":{"id":"x","finish_reason":null,"completion_tokens":1,"ts":1.5},"index":0}"#,
        "\n",
        r#"{"text":"a\né","output_ids":[1,23],"meta_info":{"id":"x","finish_reason":null,"completion_tokens":2,"ts":2.5},"index":0}"#
    ),
    r#"[{"text":"a","output_ids":[1,2],"meta_info":{"finish_reason":{"type":"stop","matched":2},"cached_tokens":1}}]"#,
];

const MESSAGES: &[&str] = &[
    "\u{3}POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
    "\u{7}GET http://a/b?c HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "\u{9}HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    "\u{6}5;a=b\r\nhello\r\na\r\n0123456789\r\n0\r\nx: y\r\n\r\nGET",
];

const STREAMS: &[&str] = &[
    "\u{8}data: {\"a\":1}\n\ndata: [DONE]\n\n",
    "\u{8}data: a\r\n\r\n: ping\r\n\r\ndata:b\r\n\r\n",
    "\u{8}event: x\rdata: a\rdata: b\r\rdata",
];

/// A seed with some bytes replaced or cut out, or with a part of it doubled.
fn near(seeds: Vec<String>) -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<Index>(), any::<Index>(), any::<Option<u8>>());
    (select(seeds), vec(edit, 0..4)).prop_map(|(seed, edits)| {
        let mut bytes = seed.into_bytes();
        for (from, to, byte) in edits {
            let (from, to) = (from.index(bytes.len() + 1), to.index(bytes.len() + 1));
            match byte {
                Some(byte) if from < bytes.len() => bytes[from] = byte,
                _ if from < to => drop(bytes.drain(from..to)),
                _ => bytes.extend_from_within(to..from),
            }
        }
        bytes
    })
}

fn owned(seeds: &[&str]) -> Vec<String> {
    seeds.iter().map(|&seed| seed.to_owned()).collect()
}

/// Bodies of SGLang's routes.
const ROUTES: &[&str] = &[
    r#"{"model":"stub-model","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call_output","call_id":"c","output":["b"]}],"tools":[{"type":"function","name":"f","parameters":{}}],"tool_choice":{"type":"function","name":"f"},"reasoning":{"effort":"low"}}"#,
    r#"{"model":"m","max_tokens":5,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"a"},{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"b"}]}],"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"enabled","budget_tokens":2000}}"#,
    r#"{"query":[1,2],"items":[[3],[4]],"label_token_ids":[[1],[2]],"temperature":0.5,"apply_softmax":true}"#,
    r#"{"query":"a","items":["b"],"label_token_ids":[1,2]}"#,
    r#"{"tokens":[[1,2],[3]],"prompt":["a","b"],"skip_special_tokens":false}"#,
    r#"{"text":"<think>a</think>b","reasoning_parser":"qwen3","return_blocks":true,"tools":[{"type":"function","function":{"name":"f"}}]}"#,
    r#"{"instances":[{"text":"a"},{"input_ids":[1]}],"parameters":{"sampling_params":{"n":2}},"server_args":{"a":1}}"#,
    r#"{"model":"m","prompt":"a","system":"b","messages":[{"role":"user","content":"c"}],"options":{"num_predict":8,"stop":["x"]}}"#,
];

/// Request bodies, good and bad.
fn requests() -> Vec<String> {
    let body = |line| -> String {
        let mut case: serde_json::Value = serde_json::from_str(line).expect("a case a line");
        serde_json::from_value(case["body"].take()).expect("a case has a body")
    };
    let routes = ROUTES.iter().map(|&body| body.to_owned());
    CASES.lines().map(body).chain(routes).collect()
}

proptest! {
    #[test]
    fn chunks_survive(data in near(owned(CHUNKS))) {
        bodies::chunk(&data);
    }

    #[test]
    fn messages_do_not_depend_on_cuts(data in near(owned(MESSAGES))) {
        bodies::http1(&data);
    }

    #[test]
    fn requests_are_objects_or_refused(data in near(requests())) {
        bodies::request(&data);
    }

    #[test]
    fn streams_do_not_depend_on_cuts(data in near(owned(STREAMS))) {
        bodies::sse(&data);
    }
}

#[test]
fn whole_seeds_hold() {
    for seed in CHUNKS {
        bodies::chunk(seed.as_bytes());
    }
    for request in requests() {
        bodies::request(request.as_bytes());
    }
}
