//! Every recorded case of vLLM that is imitated, byte for byte over a socket.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::support::{Stub, fixtures};

#[derive(Deserialize)]
struct Config {
    cases: Vec<Case>,
    env: HashMap<String, String>,
    flags: Vec<String>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
}

#[derive(Deserialize)]
struct Known {
    case: Vec<KnownCase>,
}

/// A case that is not imitated.
#[derive(Deserialize)]
struct KnownCase {
    case: String,
    config: String,
    corpus: String,
    reason: String,
}

/// Of the cases of a corpus, how many may be known to differ.
const KNOWN_SHARE: f64 = 0.09;

fn start(profile: &str, config: &Config) -> Stub {
    let scripts = fixtures().join(format!("wire/{profile}/scripts.json"));
    let scripts = format!("script:{}", scripts.display());
    let tokenizer = fixtures().join("tokenizers/bpe");
    let mut words = vec!["vllm", "--workers", "1", "--profile", profile];
    words.extend(["--model", "tiny-model", "--source", &scripts]);
    words.extend(["--tokenizer", tokenizer.to_str().unwrap()]);
    words.extend(config.flags.iter().map(String::as_str));
    Stub::start_with(words, |name| config.env.get(name).cloned())
}

/// Sends recorded bytes and reads until the connection is closed or the response is complete.
fn exchange(address: SocketAddr, name: &str, request: &[u8], expected: usize) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(if name.contains("slow") {
            4000
        } else {
            300
        })))
        .unwrap();
    stream.write_all(request).unwrap();
    if name.starts_with("session-half-close") {
        stream.shutdown(Shutdown::Write).unwrap();
    }
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

/// What `--enable-per-request-metrics` measures.
const TIMES: [&str; 4] = [
    "\"time_to_first_token_ms\":",
    "\"generation_time_ms\":",
    "\"mean_itl_ms\":",
    "\"tokens_per_second\":",
];

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
        let prefix = [
            "chatcmpl-tool-",
            "generate-tokens-",
            "chatcmpl-",
            "cmpl-",
            "modelperm-",
        ]
        .into_iter()
        .find(|prefix| rest.strip_prefix(prefix).is_some_and(|id| is_hex(id, 16)));
        if let Some(prefix) = prefix {
            out.push_str(prefix);
            out.push_str("ID");
            rest = &rest[prefix.len() + 16..];
        } else if let Some(behind) = rest.strip_prefix("\"created\":") {
            out.push_str("\"created\":0");
            rest = behind.trim_start_matches(|digit: char| digit.is_ascii_digit());
        } else if let Some(key) = TIMES.into_iter().find(|key| rest.starts_with(key)) {
            out.push_str(key);
            out.push('0');
            rest = rest[key.len()..]
                .trim_start_matches(|part: char| part.is_ascii_digit() || part == '.');
        } else if let Some(behind) = rest
            .strip_prefix("\r\nx-request-id: ")
            .filter(|id| is_hex(id, 32))
        {
            out.push_str("\r\nx-request-id: ID");
            rest = &behind[32..];
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

/// Cases of a configuration that differ, each with how.
fn differing(corpus: &str, configuration: &Path) -> (usize, Vec<(String, String)>) {
    let config = std::fs::read_to_string(configuration.join("cases.json")).unwrap();
    let config: Config = serde_json::from_str(&config).unwrap();
    let stub = start(corpus, &config);
    let mut different = Vec::new();
    for Case { name } in &config.cases {
        let read = |end: &str| std::fs::read(configuration.join(format!("{name}.{end}.http")));
        let (request, expected) = (read("request").unwrap(), read("response").unwrap());
        let ours = exchange(stub.address(), name, &request, expected.len());
        let (mut expected, mut ours) = (normalised(&expected), normalised(&ours));
        if TIMES.iter().any(|key| expected.contains(key)) {
            expected = without_lengths(&expected);
            ours = without_lengths(&ours);
        }
        if name.starts_with("session-disconnect") && ours.len() > expected.len() {
            // The client went away here; the server had more to say.
            ours.truncate(ours.floor_char_boundary(expected.len()));
        }
        if expected != ours {
            different.push((name.clone(), difference(&expected, &ours)));
        }
    }
    stub.stop();
    (config.cases.len(), different)
}

fn check(corpus: &str) {
    let mut configurations: Vec<_> = std::fs::read_dir(fixtures().join("wire").join(corpus))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    configurations.sort();
    let known = std::fs::read_to_string(fixtures().join("known.toml")).unwrap();
    let known: Known = toml::from_str(&known).unwrap();
    assert!(known.case.iter().all(|case| !case.reason.is_empty()));
    let mut known: Vec<_> = known
        .case
        .iter()
        .filter(|case| case.corpus == corpus)
        .collect();
    let (mut count, known_count) = (0, known.len());
    let mut report = Vec::new();
    for configuration in configurations {
        let (cases, different) = differing(corpus, &configuration);
        let config = configuration.file_name().unwrap().to_str().unwrap();
        count += cases;
        for (name, how) in different {
            let listed = |case: &&KnownCase| case.config == config && case.case == name;
            match known.iter().position(listed) {
                Some(index) => drop(known.swap_remove(index)),
                None => report.push(format!("{config}/{name}:\n{how}")),
            }
        }
    }
    for case in known {
        report.push(format!(
            "{}/{} is listed as known and passes",
            case.config, case.case
        ));
    }
    assert!(
        report.is_empty(),
        "of {count} cases:\n{}",
        report.join("\n")
    );
    #[expect(clippy::cast_precision_loss, reason = "some hundred cases")]
    let share = known_count as f64 / count as f64;
    assert!(
        share <= KNOWN_SHARE,
        "{known_count} of {count} are listed as known"
    );
}

/// The first place where two texts part, lengths left out of account if something else differs.
fn difference(expected: &str, ours: &str) -> String {
    let (bare, our_bare) = (without_lengths(expected), without_lengths(ours));
    if bare == our_bare {
        return parting(expected, ours);
    }
    parting(&bare, &our_bare)
}

/// Without chunk sizes and `content-length`, which follow from the rest.
fn without_lengths(text: &str) -> String {
    let is_size = |line: &str| line.bytes().all(|byte| byte.is_ascii_hexdigit());
    let kept = text
        .split("\r\n")
        .filter(|line| line.is_empty() || !(is_size(line) || line.starts_with("content-length: ")));
    kept.collect::<Vec<_>>().join("\r\n")
}

fn parting(expected: &str, ours: &str) -> String {
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
fn vllm_0_33_0() {
    check("vllm-0.33.0");
}

#[test]
fn vllm_0_32_0() {
    check("vllm-0.32.0");
}
