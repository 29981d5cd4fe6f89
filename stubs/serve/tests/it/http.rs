//! The stub over sockets: echo, framing, limits, shutdown, truth.

use crate::support::{Client, Stub, post};
use crate::waits::TruthFile;
use proptest::prelude::*;
use serde_json::{Value, json};

fn chat(text: &str, stream: bool) -> String {
    json!({"messages": [{"role": "user", "content": text}], "stream": stream}).to_string()
}

/// What comes back for a text from both endpoints, streamed and not.
fn echoes(client: &mut Client, text: &str) -> [String; 3] {
    let completion = json!({"prompt": format!("{text}."), "stream": true}).to_string();
    [
        client
            .post("/v1/chat/completions", &chat(text, true))
            .content(),
        client
            .post("/v1/chat/completions", &chat(text, false))
            .content(),
        client.post("/v1/completions", &completion).content(),
    ]
}

fn assert_echo(client: &mut Client, text: &str) {
    let [streamed, whole, completion] = echoes(client, text);
    assert_eq!(streamed, text);
    assert_eq!(whole, text);
    assert_eq!(completion, format!("{text}."));
}

#[test]
fn odd_texts_come_back_byte_for_byte() {
    let bpe = crate::support::fixtures().join("tokenizers/bpe");
    let bpe = bpe.to_str().unwrap();
    for tokenizer in ["char", "byte", "word", bpe] {
        let stub = Stub::start(["echo", "--tokenizer", tokenizer]);
        let mut client = stub.client();
        for text in [
            "",
            " ",
            "  leading",
            "trailing \t",
            "a  b\n\nc",
            "\r\n",
            "a\0b",
            "\u{301}",
            "e\u{301}",
            "שלום עולם",
            "👩‍👩‍👧‍👦 🏳️‍🌈",
            "data: x\n\ndata: [DONE]\n\n",
            "\u{2028}\u{feff}",
            "<|im_end|>",
            "ﬁ\u{212b}",
        ] {
            assert_echo(&mut client, text);
        }
        stub.stop();
    }
}

#[test]
fn a_mebibyte_comes_back() {
    let stub = Stub::start(["echo", "--tokens-per-chunk", "100"]);
    let text = "0123456789abcd \n".repeat(1 << 16);
    assert_echo(&mut stub.client(), &text);
    stub.stop();
}

#[test]
fn any_text_comes_back() {
    let stub = Stub::start(["echo"]);
    let address = stub.address();
    let config = ProptestConfig::with_cases(200);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&"(\\PC|[\\s\u{0}-\u{1f}])*", |text| {
        assert_echo(&mut Client::connect(address), &text);
        Ok(())
    });
    result.unwrap();
    stub.stop();
}

#[test]
fn limits_count_for_echo_only_when_told() {
    let body =
        json!({"messages": [{"role": "user", "content": "abcdef"}], "max_tokens": 2, "stop": "d"});
    let body = body.to_string();
    for (flags, expected) in [
        (&["echo"][..], "abcdef"),
        (&["echo", "--honor-max-tokens"], "ab"),
        (&["echo", "--max-osl", "4"], "abcd"),
        (&["echo", "--max-osl", "8"], "abcdefab"),
    ] {
        let stub = Stub::start(flags.iter().copied());
        let answer = stub.client().post("/v1/chat/completions", &body);
        assert_eq!(answer.content(), expected, "{flags:?}");
        stub.stop();
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let stub = Stub::start(["echo"]);
    let mut client = stub.client();
    let texts = ["first", "second", "third"];
    let requests = texts.map(|text| post("/v1/chat/completions", &chat(text, text == "second")));
    client.send(requests.concat().as_bytes());
    for text in texts {
        assert_eq!(client.response().unwrap().content(), text);
    }
    stub.stop();
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let stub = Stub::start(["echo"]);
    let mut client = stub.client();
    for byte in post("/v1/chat/completions", &chat("slow", false)).bytes() {
        client.send(&[byte]);
    }
    assert_eq!(client.response().unwrap().content(), "slow");
    stub.stop();
}

#[test]
fn bytes_that_are_no_http_get_uvicorns_answer() {
    let stub = Stub::start(["vllm"]);
    let line = "GET / HTTP/1.1\nHost: a\n\n";
    let huge = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "v".repeat(300 << 10));
    for bytes in [
        "GARBAGE\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\n",
        line,
        &huge[..270 << 10],
    ] {
        let mut client = stub.client();
        client.send(bytes.as_bytes());
        let answer = client.response().unwrap();
        assert_eq!(answer.status, 400);
        assert_eq!(answer.body, b"Invalid HTTP request received.");
        assert!(client.response().is_none());
    }
    stub.stop();
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let stub = Stub::start(["vllm", "--max-body-bytes", "100"]);
    let answer = stub
        .client()
        .post("/v1/chat/completions", &chat(&"x".repeat(200), false));
    assert_eq!(answer.status, 413);
    let error: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(error["error"]["code"], 413);
    stub.stop();
}

#[test]
fn the_raw_request_comes_back_from_echo() {
    let stub = Stub::start(["echo"]);
    let request = "POST /echo HTTP/1.1\r\nhost: a\r\nX-Odd:  v \r\ncontent-length: 3\r\n\r\nabc";
    let mut client = stub.client();
    client.send(request.as_bytes());
    let answer = client.response().unwrap();
    assert_eq!(String::from_utf8(answer.body).unwrap(), request);
    stub.stop();
}

#[test]
fn a_taken_port_is_said_before_anything_is_served() {
    let stub = Stub::start(["echo"]);
    let config = serve::server::Config {
        address: stub.address(),
        ..Default::default()
    };
    let tokenizer = std::sync::Arc::new(vocab::Tokenizer::named("char").unwrap());
    let again = plan::stub::Stub::echo(tokenizer);
    let error = serve::server::Server::start(&config, again.into()).unwrap_err();
    assert!(
        error.to_string().contains("choose another --port"),
        "{error}"
    );
    stub.stop();
}

#[test]
fn an_answer_beyond_the_sockets_buffers_comes_whole_and_is_recorded() {
    for stub in ["echo", "max"] {
        let truth = TruthFile::new(&format!("beyond-{stub}"));
        let words = [stub, "--truth", truth.path()];
        let length = ["--output-length", "400000"];
        let more = if stub == "max" { &length[..] } else { &[] };
        let stub = Stub::start(words.into_iter().chain(more.iter().copied()));
        let mut client = stub.client();
        let response = client.post(
            "/v1/chat/completions",
            &chat(&"0123456789".repeat(4000), true),
        );
        stub.stop();
        assert!(response.body.len() > 6 << 20);
        let record = &truth.records()[0];
        assert_eq!(record["ended"], "done");
        let chunks = record["chunks"].as_array().unwrap();
        let bytes = chunks.iter().filter_map(|chunk| chunk["bytes"].as_u64());
        assert_eq!(bytes.sum::<u64>(), response.body.len() as u64);
        let sent = record["bytes"].as_u64().unwrap();
        assert!(sent > (response.head.len() + response.body.len()) as u64);
    }
}

#[test]
fn max_renders_the_same_bytes_once_and_honours_each_request() {
    let stub = Stub::start(["max", "--metrics"]);
    let mut client = stub.client();
    let ask = |client: &mut Client, options: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut()
            .unwrap()
            .extend(options.as_object().unwrap().clone());
        client.post("/v1/chat/completions", &body.to_string())
    };
    let plain = ask(&mut client, json!({}));
    let streamed = ask(&mut client, json!({"stream": true}));
    let with_usage = json!({"stream": true, "stream_options": {"include_usage": true}});
    let counted = ask(&mut client, with_usage.clone());
    assert_eq!(plain.content().len(), 160);
    assert_eq!(streamed.content(), plain.content());
    assert_eq!(counted.content(), plain.content());
    let events = |body: &[u8]| body.windows(6).filter(|window| window == b"data: ").count();
    assert_eq!((events(&streamed.body), events(&counted.body)), (19, 20));
    assert_eq!(ask(&mut client, with_usage).body, counted.body);
    client.send(b"GET /metrics HTTP/1.1\r\n\r\n");
    let page = String::from_utf8(client.response().unwrap().body).unwrap();
    assert!(page.contains("\nstubline_requests_total 4\n"), "{page}");
    stub.stop();
}
