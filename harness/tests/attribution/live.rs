//! `stubline gap --url` against servers that tell less or more.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use clap::Parser as _;
use harness::UsageError;
use harness::gap::live;
use serde_json::{Value, json};
use serve::server::Server;
use wire::http1::WholeRequest;

use crate::folders::{fixtures, folder};
use crate::stub::{start, url};

#[derive(clap::Parser)]
struct Gap {
    #[command(flatten)]
    args: harness::gap::cli::Args,
}

fn gap(words: &[&str]) -> anyhow::Result<(u8, String)> {
    let words = ["gap"].into_iter().chain(words.iter().copied());
    let mut out = Vec::new();
    let code = harness::gap::cli::run(&Gap::parse_from(words).args, &mut out)?;
    Ok((code, String::from_utf8(out).unwrap()))
}

fn report(words: &[&str]) -> (u8, Value) {
    let (code, told) = gap(&[words, &["--format", "json"]].concat()).unwrap();
    (code, serde_json::from_str(&told).unwrap())
}

fn causes(report: &Value) -> Vec<(&str, i64)> {
    let causes = report["explained"].as_array().unwrap().iter();
    causes
        .map(|sum| {
            (
                sum["cause"].as_str().unwrap(),
                sum["tokens"].as_i64().unwrap(),
            )
        })
        .collect()
}

fn bpe() -> String {
    fixtures().join("tokenizers/bpe").display().to_string()
}

/// vLLM with the recordings' scripts and parsers.
fn vllm(more: &[&str]) -> Server {
    let scripts = fixtures().join("wire/vllm-0.33.0/scripts.json");
    let scripts = format!("script:{}", scripts.display());
    let tokenizer = bpe();
    let words = ["vllm", "tiny-model", "--reasoning-parser", "qwen3"];
    let source = ["--tokenizer", &tokenizer, "--source", &scripts];
    start(&[&words[..], &source, more].concat())
}

fn prompts(name: &str, scripts: &[&str]) -> String {
    let path = folder(name).join("prompts.jsonl");
    let lines = scripts
        .iter()
        .map(|script| format!("{{\"prompt\":\"[[{script}]]\"}}\n"));
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    path.display().to_string()
}

#[test]
fn ids_logprobs_and_text_alone_tell_the_same_causes() {
    let server = vllm(&[]);
    let dataset = prompts("grounds", &["think"]);
    let tokenizer = bpe();
    let words = [
        "--url",
        &url(&server),
        "--tokenizer",
        &tokenizer,
        "--dataset",
        &dataset,
    ];
    let expected = [("delimiters", 2), ("end_token", 1)];
    let (code, ids) = report(&words);
    assert_eq!((code, causes(&ids)), (0, expected.to_vec()), "{ids:#}");
    assert_eq!(ids["bases"]["token_ids"], 1);
    assert_eq!(ids["difference"]["mean"], 3.0);
    assert_eq!(ids["samples"][0]["basis"], "token_ids");
    let about = ids["about"].to_string();
    assert!(
        about.contains("/tokenize cuts a specimen as this tokenizer does"),
        "{about}"
    );
    let as_ids = vllm(&["--return-tokens-as-token-ids"]);
    for url in [url(&server), url(&as_ids)] {
        let mut config = harness::bench::Config::new(
            url,
            harness::dataset::read(dataset.as_ref()).unwrap().into(),
            std::sync::Arc::new(
                vocab::Tokenizer::find(&tokenizer, |path| std::fs::read_to_string(path).ok())
                    .unwrap(),
            ),
        );
        config.limit = harness::bench::Limit::Requests(1);
        config.extra_body.insert("logprobs".into(), true.into());
        let flavour = harness::gap::attribution::Flavour::default();
        let report = live::measure(&config, &live::Asked::default(), &flavour).unwrap();
        let report: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(causes(&report), expected, "{report:#}");
        assert_eq!(report["bases"]["inferred"], 0);
        config.extra_body.clear();
        let report = live::measure(&config, &live::Asked::default(), &flavour).unwrap();
        let report: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(causes(&report), expected, "{report:#}");
        assert_eq!(report["bases"]["inferred"], 1);
    }
}

#[test]
fn each_choice_is_explained_by_itself() {
    let server = vllm(&[]);
    let dataset = prompts("choices", &["think", "hello"]);
    let tokenizer = bpe();
    let words = [
        "--url",
        &url(&server),
        "--tokenizer",
        &tokenizer,
        "--dataset",
        &dataset,
        "--extra-body",
        "{\"n\":2}",
    ];
    let (code, report) = report(&words);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(causes(&report), [("delimiters", 4), ("end_token", 4)]);
}

#[test]
fn the_table_says_what_was_not_seen_and_the_exit_code_what_is_left() {
    let server = strict(6);
    let words = [
        "--url",
        &server,
        "--tokenizer",
        "char",
        "--requests",
        "1",
        "--stream",
        "off",
    ];
    let (code, told) = gap(&words).unwrap();
    for line in [
        "not seen: return_token_ids is refused (400)",
        "not seen: logprobs is asked for and not given",
        "not seen: the tokens of answers: causes are inferred from text and counts",
        "/tokenize answers 404",
        "1 samples (1 by text alone)",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    assert_eq!(
        code, 1,
        "one token is the end token, three are of no known cause: {told}"
    );
    let (code, _) = gap(&[&words[..], &["--tolerance", "3"]].concat()).unwrap();
    assert_eq!(code, 0);
}

#[test]
fn a_tokenizer_is_needed_before_anything_is_asked() {
    for words in [
        ["--url", "http://127.0.0.1:9", "--tokenizer", "/nowhere"],
        ["--url", "nonsense", "--tokenizer", "char"],
    ] {
        let error = gap(&words).unwrap_err();
        assert!(error.is::<UsageError>(), "{error}");
    }
}

/// A server that refuses `return_token_ids` and says "hi" in so many tokens.
fn strict(tokens: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap(), tokens));
        }
    });
    url
}

fn answer(mut stream: TcpStream, tokens: u64) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !matches!(WholeRequest::parse(&request), Ok(Some(_))) {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&buffer[..count]),
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let (status, body) = if request.contains("/tokenize") {
        ("404 Not Found", json!({}))
    } else if request.contains("/v1/models") {
        ("200 OK", json!({"data": [{"id": "m"}]}))
    } else if request.contains("return_token_ids") {
        ("400 Bad Request", json!({"error": {"message": "no"}}))
    } else {
        let message = json!({"content": "hi"});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let usage = json!({"prompt_tokens": 1, "completion_tokens": tokens});
        ("200 OK", json!({"choices": [choice], "usage": usage}))
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes());
}
