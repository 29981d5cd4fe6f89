//! The tests that wait for real: pacing on a socket, shutdown in mid-stream, aborts.

use std::path::PathBuf;

use crate::support::{Client, Stub, post};
use serde_json::{Value, json};

pub(crate) struct TruthFile(PathBuf);

impl TruthFile {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("stubline-{}-{name}.jsonl", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub(crate) fn records(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.0).unwrap();
        assert!(
            text.is_empty() || text.ends_with('\n'),
            "the last record is whole"
        );
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for TruthFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn streamed(text: &str) -> String {
    let body = json!({
        "messages": [{"role": "user", "content": text}],
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    post("/v1/chat/completions", &body.to_string())
}

#[test]
fn stopping_finishes_what_is_in_flight() {
    let truth = TruthFile::new("drain");
    let pace = "steady:ttft=30ms,itl=10ms";
    let stub = Stub::start([
        "echo",
        "--pace",
        pace,
        "--truth",
        truth.path(),
        "--workers",
        "2",
    ]);
    let mut clients: Vec<Client> = (0..100).map(|_| stub.client()).collect();
    for client in &mut clients {
        client.send(streamed("0123456789").as_bytes());
    }
    for client in &mut clients {
        assert!(client.read(), "the head comes at once");
    }
    stub.stop();
    for mut client in clients {
        assert_eq!(client.response().unwrap().content(), "0123456789");
    }
    let records = truth.records();
    assert_eq!(records.len(), 100);
    for record in records {
        assert_eq!(record["ended"], "done");
        assert_eq!(record["completion_tokens"], 10);
        assert_eq!(record["usage_sent"]["completion_tokens"], 10);
        assert_eq!(record["chunks"].as_array().unwrap().len(), 14);
    }
}

#[test]
fn what_outlasts_the_drain_is_ended_and_recorded() {
    let truth = TruthFile::new("cut");
    let pace = "steady:ttft=1ms,itl=10s";
    let words = [
        "echo",
        "--pace",
        pace,
        "--truth",
        truth.path(),
        "--drain",
        "50ms",
    ];
    let stub = Stub::start(words);
    let mut client = stub.client();
    client.send(streamed("ab").as_bytes());
    assert!(client.read());
    stub.stop();
    assert!(!client.response().unwrap().body.ends_with(b"[DONE]\n\n"));
    let records = truth.records();
    assert_eq!(records[0]["ended"], "drain");
    assert_eq!(records[0]["completion_tokens"], 1);
    assert_eq!(records[0]["usage_sent"], Value::Null);
}

#[test]
fn a_client_that_goes_away_is_an_abort_in_the_truth() {
    let truth = TruthFile::new("abort");
    let pace = "steady:ttft=1ms,itl=10s";
    let stub = Stub::start(["echo", "--pace", pace, "--truth", truth.path()]);
    let mut client = stub.client();
    client.send(streamed("ab").as_bytes());
    assert!(client.read());
    drop(client);
    let mut other = stub.client();
    other.send(b"GET /health HTTP/1.1\r\nx-request-id: mine\r\n\r\n");
    assert_eq!(other.response().unwrap().status, 200);
    stub.stop();
    let records = truth.records();
    let ended = |route: &str| {
        let mut found = records.iter().filter(|record| record["route"] == route);
        found.next().expect("every request has a record")["ended"].clone()
    };
    assert_eq!(ended("/v1/chat/completions"), "client_abort");
    assert_eq!(ended("/health"), "done");
    assert!(records.iter().any(|record| record["request_id"] == "mine"));
}

#[test]
fn the_truth_tells_how_messages_and_responses_end() {
    let truth = TruthFile::new("routes");
    let scripts = std::env::temp_dir().join(format!("stubline-{}-routes.json", std::process::id()));
    let choices = json!([{"text": "ab"}]);
    let fault = json!({"choices": choices, "fault": {"kind": "error", "after": 1}});
    let all = json!({"whole": {"choices": choices}, "fault": fault});
    std::fs::write(&scripts, all.to_string()).unwrap();
    let source = format!("script:{}", scripts.display());
    let words = ["vllm", "--model", "m", "--source", &source, "--truth"];
    let stub = Stub::start(words.into_iter().chain([truth.path()]));
    for text in ["[[whole]]", "[[fault]]"] {
        let said = json!([{"role": "user", "content": text}]);
        let response = json!({"input": said, "stream": true});
        let message = json!({"model": "m", "max_tokens": 9, "messages": said, "stream": true});
        for (path, body) in [("/v1/responses", response), ("/v1/messages", message)] {
            let request = post(path, &body.to_string());
            let mut client = stub.client();
            client.send(
                request
                    .replacen("Host: a", "Connection: close", 1)
                    .as_bytes(),
            );
            while client.read() {}
        }
    }
    stub.stop();
    std::fs::remove_file(&scripts).unwrap();
    let records = truth.records().into_iter();
    let told: Vec<Value> = records
        .map(|record| {
            let usage = &record["usage_sent"]["completion_tokens"];
            json!([record["ended"], record["finish_reason"], usage])
        })
        .collect();
    let expected = json!([
        ["done", "stop", 2],
        ["done", "stop", 2],
        ["fault:error", null, null],
        ["done", "error", null],
    ]);
    assert_eq!(Value::from(told), expected);
}

#[test]
fn nobody_waits_for_a_large_request_to_be_read() {
    let truth = TruthFile::new("large");
    let stub = Stub::start(["echo", "--workers", "1", "--truth", truth.path()]);
    let mut client = stub.client();
    let text = "0123456789abcdef".repeat(1 << 17);
    client.send(streamed(&text).as_bytes());
    let mut other = stub.client();
    other.send(b"GET /health HTTP/1.1\r\n\r\n");
    assert_eq!(other.response().unwrap().status, 200);
    drop(client);
    stub.stop();
    let records = truth.records();
    let parsed = |route: &str| {
        let mut found = records.iter().filter(|record| record["route"] == route);
        found.next().expect("every request has a record")["parsed_ns"].as_u64()
    };
    assert!(parsed("/health") < parsed("/v1/chat/completions"));
}

#[test]
fn steps_are_written_when_they_are_due() {
    let truth = TruthFile::new("pace");
    let pace = "steady:ttft=20ms,itl=10ms";
    let stub = Stub::start(["echo", "--pace", pace, "--truth", truth.path()]);
    let mut client = stub.client();
    client.send(streamed("abc").as_bytes());
    assert_eq!(client.response().unwrap().content(), "abc");
    let late = stub.stop().lateness.expect("the steps had times");
    assert_eq!(late.steps, 7);
    let record = &truth.records()[0];
    let received = record["received_ns"].as_u64().unwrap();
    let due: Vec<u64> = record["chunks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chunk| {
            let due = chunk["due_ns"].as_u64().unwrap();
            assert!(chunk["written_ns"].as_u64().unwrap() >= due);
            (due - received) / 1_000_000
        })
        .collect();
    assert_eq!(due, [20, 20, 30, 40, 50, 50, 50]);
}

#[test]
fn an_idle_connection_is_closed_between_requests_alone() {
    let stub = Stub::start(["vllm", "--keep-alive-timeout", "50ms"]);
    let mut unused = stub.client();
    let mut client = stub.client();
    client.send(b"GET /health HTTP/1.1\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 200);
    assert!(client.response().is_none());
    unused.send(b"GET /health HTTP/1.1\r\n\r\n");
    assert_eq!(unused.response().unwrap().status, 200);
    stub.stop();
}
