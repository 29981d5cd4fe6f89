//! Every recorded case of vLLM that is imitated, byte for byte over a socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::Deserialize;

use crate::support::{Stub, fixtures};

#[derive(Deserialize)]
struct Config {
    cases: Vec<Case>,
    flags: Vec<String>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
}

/// What the next issue imitates.
const LATER: [&str; 17] = [
    "burst",
    "echo",
    "embeddings",
    "error-",
    "json-",
    "logprobs",
    "orca",
    "priority",
    "prompt-text",
    "raise-",
    "rerank",
    "score",
    "spec",
    "token-ids",
    "tool",
    "two-",
    "boundary",
];

fn start(profile: &str, flags: &[String]) -> Stub {
    let scripts = fixtures().join(format!("wire/{profile}/scripts.json"));
    let scripts = format!("script:{}", scripts.display());
    let tokenizer = fixtures().join("tokenizers/bpe");
    let mut words = vec!["vllm", "--workers", "1", "--profile", profile];
    words.extend(["--model", "tiny-model", "--source", &scripts]);
    words.extend(["--tokenizer", tokenizer.to_str().unwrap()]);
    words.extend(flags.iter().map(String::as_str));
    Stub::start(words)
}

/// Sends recorded bytes and reads until the connection is closed or the response is complete.
fn exchange(address: SocketAddr, request: &[u8], expected: usize) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream.write_all(request).unwrap();
    let mut response = Vec::new();
    let mut buffer = vec![0; 65536];
    while response.len() < expected {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => response.extend_from_slice(&buffer[..count]),
        }
    }
    response
}

/// Replaces what may differ between two runs: dates, random ids, times.
fn normalised(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::new();
    let mut rest = &*text;
    let is_hex = |text: &str, count: usize| {
        text.len() >= count
            && text
                .bytes()
                .take(count)
                .all(|byte| byte.is_ascii_hexdigit())
    };
    while let Some(character) = rest.chars().next() {
        let prefix = ["chatcmpl-", "cmpl-", "modelperm-"]
            .into_iter()
            .find(|prefix| rest.strip_prefix(prefix).is_some_and(|id| is_hex(id, 16)));
        if let Some(prefix) = prefix {
            out.push_str(prefix);
            out.push_str("ID");
            rest = &rest[prefix.len() + 16..];
        } else if let Some(behind) = rest.strip_prefix("\"created\":") {
            out.push_str("\"created\":0");
            rest = behind.trim_start_matches(|digit: char| digit.is_ascii_digit());
        } else if let Some(behind) = rest.strip_prefix("\r\ndate: ") {
            out.push_str("\r\ndate: DATE");
            rest = behind.find("\r\n").map_or("", |end| &behind[end..]);
        } else {
            out.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    out
}

fn is_imitated(name: &str) -> bool {
    let starts = ["chat", "completion", "err-", "ok-", "think", "no-think"];
    starts.iter().any(|start| name.starts_with(start))
        && !LATER.iter().any(|later| name.contains(later))
}

fn check(profile: &str, configuration: &str, expected_count: usize) {
    let folder = fixtures().join(format!("wire/{profile}/{configuration}"));
    let config = std::fs::read_to_string(folder.join("cases.json")).unwrap();
    let config: Config = serde_json::from_str(&config).unwrap();
    let stub = start(profile, &config.flags);
    let mut different = Vec::new();
    let mut count = 0;
    for case in config.cases.iter().filter(|case| is_imitated(&case.name)) {
        let read =
            |end: &str| std::fs::read(folder.join(format!("{}.{end}.http", case.name))).unwrap();
        let expected = read("response");
        let ours = exchange(stub.address(), &read("request"), expected.len());
        let (expected, ours) = (normalised(&expected), normalised(&ours));
        count += 1;
        if expected != ours {
            different.push(format!("{}:\n{}", case.name, difference(&expected, &ours)));
        }
    }
    stub.stop();
    assert!(
        different.is_empty(),
        "{} of {count} differ:\n{}",
        different.len(),
        different.join("\n")
    );
    assert_eq!(count, expected_count);
}

/// The first place where two texts part.
fn difference(expected: &str, ours: &str) -> String {
    let same = expected
        .bytes()
        .zip(ours.bytes())
        .take_while(|(a, b)| a == b);
    let at = same.count();
    let around = |text: &str| {
        let start = text.floor_char_boundary(at.saturating_sub(60));
        let end = text.floor_char_boundary((at + 160).min(text.len()));
        text[start..end].escape_debug().to_string()
    };
    format!(
        "  recorded {}\n  ours     {}",
        around(expected),
        around(ours)
    )
}

#[test]
fn vllm_0_33_0_default() {
    check("vllm-0.33.0", "default", 164);
}

#[test]
fn vllm_0_32_0_default() {
    check("vllm-0.32.0", "default", 164);
}

#[test]
fn vllm_0_33_0_reasoning() {
    check("vllm-0.33.0", "reasoning-qwen3", 28);
}

#[test]
fn vllm_0_33_0_forced_usage() {
    check("vllm-0.33.0", "force-include-usage", 5);
}
