//! Requests that wait for others, or are given up by them.

use std::thread;

use serde_json::{Value, json};

use crate::support::{Client, Response, Stub, post};
use crate::waits::TruthFile;

const SLOW: &str = "steady:ttft=1ms,itl=1h";

fn chat(text: &str, stream: bool) -> String {
    let body = json!({
        "messages": [{"role": "user", "content": text}],
        "rid": text,
        "stream": stream,
    });
    let request = post("/v1/chat/completions", &body.to_string());
    let name = format!("Host: a\r\nx-request-id: {text}\r\n");
    request.replacen("Host: a\r\n", &name, 1)
}

/// The record of the request with that prompt.
fn record<'r>(records: &'r [Value], prompt: &str) -> &'r Value {
    let found = records
        .iter()
        .find(|record| record["request_id"] == *prompt);
    found.expect("a record")
}

fn first_due(record: &Value) -> u64 {
    record["chunks"][0]["due_ns"].as_u64().unwrap()
}

fn last_due(record: &Value) -> u64 {
    let chunks = record["chunks"].as_array().unwrap();
    chunks.last().unwrap()["due_ns"].as_u64().unwrap()
}

#[test]
fn whoever_waits_for_an_hour_is_woken_when_given_up() {
    let truth = TruthFile::new("given-up");
    let words = ["sglang", "--workers", "2", "--pace", SLOW];
    let stub = Stub::start(words.into_iter().chain(["--truth", truth.path()]));
    let ask = |number: usize| -> Response {
        let mut client = stub.client();
        client.send(chat(&format!("abc-{number}"), number % 2 == 1).as_bytes());
        client.response().expect("an answer")
    };
    thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|number| scope.spawn(move || ask(number)))
            .collect();
        let mut other = stub.client();
        while asked.iter().any(|asked| !asked.is_finished()) {
            let abort = other.post("/abort_request", r#"{"abort_all":true}"#);
            assert_eq!((abort.status, abort.body.len()), (200, 0));
        }
        for asked in asked {
            let answer = asked.join().unwrap();
            assert_eq!(answer.status, 200);
            let content = answer.content();
            assert!("abc-".starts_with(&content), "{content}");
            assert!(String::from_utf8_lossy(&answer.body).contains(r#""finish_reason":"abort""#));
        }
    });
    stub.stop();
    let records = truth.records();
    for number in 0..8 {
        let record = record(&records, &format!("abc-{number}"));
        assert_eq!(record["finish_reason"], "abort");
        assert_eq!(record["ended"], "done");
        assert!(record["completion_tokens"].as_u64().unwrap() <= 2);
    }
}

#[test]
fn a_name_is_in_use_until_its_answer_is_over() {
    let stub = Stub::start(["sglang", "--workers", "2", "--pace", SLOW, "--drain", "0s"]);
    let mut first = stub.client();
    first.send(chat("mine", true).as_bytes());
    assert!(first.read());
    let mut other = stub.client();
    for stream in [false, true] {
        other.send(chat("mine", stream).as_bytes());
        let refused = other.response().unwrap();
        assert_eq!(refused.status, 400);
        assert_eq!(
            String::from_utf8(refused.body).unwrap(),
            r#"{"object":"error","message":"Duplicate request ID detected: mine","type":"BadRequestError","param":null,"code":400}"#
        );
    }
    other.post("/abort_request", r#"{"rid":"mine"}"#);
    assert_eq!(first.response().unwrap().content(), "mi");
    // As soon as the client has the end, the name is free.
    first.send(chat("mine", true).as_bytes());
    assert!(first.read());
    assert!(first.input().starts_with(b"HTTP/1.1 200"));
    stub.stop();
}

#[test]
fn turns_are_had_in_the_order_of_arrival_and_a_client_that_goes_away_gives_up_its_own() {
    let truth = TruthFile::new("turns");
    let pace = "steady:ttft=20ms,itl=5ms";
    let words = [
        "echo",
        "--workers",
        "2",
        "--max-num-seqs",
        "1",
        "--pace",
        pace,
    ];
    let stub = Stub::start(words.into_iter().chain(["--truth", truth.path()]));
    let texts = ["first", "second", "gone", "last"];
    let mut clients: Vec<Client> = Vec::new();
    for text in texts {
        let mut client = stub.client();
        client.send(chat(text, true).as_bytes());
        // The head comes at once, so the request was let in.
        assert!(client.read());
        clients.push(client);
    }
    drop(clients.remove(2));
    for (client, text) in clients.iter_mut().zip(["first", "second", "last"]) {
        assert_eq!(client.response().unwrap().content(), text);
    }
    let mut after = stub.client();
    after.send(chat("after", false).as_bytes());
    assert_eq!(after.response().unwrap().content(), "after");
    stub.stop();
    let records = truth.records();
    assert_eq!(record(&records, "gone")["ended"], "client_abort");
    assert_eq!(record(&records, "gone")["chunks"], json!([]));
    let order = ["first", "second", "last"];
    for (one, next) in order.iter().zip(&order[1..]) {
        let (one, next) = (record(&records, one), record(&records, next));
        // Its pace counts from its turn.
        let turn = first_due(next) - 20_000_000;
        assert!(turn >= last_due(one), "{one}\n{next}");
    }
}

#[test]
fn an_answer_that_takes_no_time_keeps_nobody_waiting() {
    for words in [
        &["echo", "--max-num-seqs", "1"][..],
        &["max", "--max-num-seqs", "1"],
        &["vllm", "--max-num-seqs", "1"],
        &[
            "sglang",
            "--max-running-requests",
            "1",
            "--max-queued-requests",
            "20",
        ],
    ] {
        let stub = Stub::start(words.iter().copied());
        let mut clients: Vec<Client> = (0..20).map(|_| stub.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(chat(&format!("abc-{number}"), number % 2 == 1).as_bytes());
        }
        for client in &mut clients {
            assert_eq!(client.response().unwrap().status, 200, "{words:?}");
        }
        stub.stop();
    }
}
