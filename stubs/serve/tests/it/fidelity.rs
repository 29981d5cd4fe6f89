//! Every recorded case of vLLM that is imitated, byte for byte over a socket.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use wire::recording::{difference, normalised};

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
        let (expected, mut ours) = (normalised(&expected), normalised(&ours));
        if name.starts_with("session-disconnect") && ours.len() > expected.len() {
            // The client went away here; the server had more to say.
            ours.truncate(ours.floor_char_boundary(expected.len()));
        }
        if let Some(how) = difference(&expected, &ours) {
            different.push((name.clone(), how));
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

#[test]
fn vllm_0_33_0() {
    check("vllm-0.33.0");
}

#[test]
fn vllm_0_32_0() {
    check("vllm-0.32.0");
}
