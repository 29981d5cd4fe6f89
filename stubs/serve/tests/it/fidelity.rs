//! Every recorded case of vLLM that is imitated, byte for byte over a socket.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
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

const CORPORA: [&str; 3] = ["vllm-0.33.0", "vllm-0.32.0", "vllm-0.32.0-cpu-engine"];
/// Of all recorded cases, how many may be known to differ.
const MOST_KNOWN_PERCENT: usize = 3;

fn start(corpus: &str, config: &Config) -> Stub {
    let profile = corpus.trim_end_matches("-cpu-engine");
    let scripts = fixtures().join(format!("wire/{corpus}/scripts.json"));
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

/// A metrics page without what depends on time and on what was served before: every sample's number,
/// the lines of single HTTP handlers, and so the page's length. Our own lines are left out too; names,
/// order, help texts, types and the other labels stay.
fn metrics_page(text: &str) -> String {
    let is_ours = |line: &str| {
        let name = line
            .trim_start_matches("# HELP ")
            .trim_start_matches("# TYPE ");
        name.starts_with("stubline_")
    };
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let end = line.trim_end();
        let is_size = !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_ours(line) || line.starts_with("http_") && line.contains("{handler=") {
            continue;
        }
        if line.starts_with("content-length: ") {
            out.push_str("content-length: N\r\n");
        } else if is_size && end != "0" {
            out.push_str("SIZE\r\n");
        } else if let Some((name, _)) = end.rsplit_once(' ').filter(|_| !line.contains(['#', '\r']))
        {
            out.push_str(name);
            out.push_str(" N\n");
        } else {
            out.push_str(line);
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
        let is_page = name.starts_with("get-metrics");
        let length = if is_page { usize::MAX } else { expected.len() };
        let ours = exchange(stub.address(), name, &request, length);
        let (mut expected, mut ours) = (normalised(&expected), normalised(&ours));
        if is_page {
            (expected, ours) = (metrics_page(&expected), metrics_page(&ours));
        }
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

fn configurations(corpus: &str) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(fixtures().join("wire").join(corpus)).unwrap();
    let paths = folder.map(|entry| entry.unwrap().path());
    let mut configurations: Vec<_> = paths.filter(|path| path.is_dir()).collect();
    configurations.sort();
    configurations
}

fn known() -> Known {
    let known = std::fs::read_to_string(fixtures().join("known.toml")).unwrap();
    toml::from_str(&known).unwrap()
}

fn check(corpus: &str) {
    let (configurations, known) = (configurations(corpus), known());
    let mut known: Vec<_> = known
        .case
        .iter()
        .filter(|case| case.corpus == corpus)
        .collect();
    let mut count = 0;
    let mut report = Vec::new();
    // Side by side, since some wait for what a recording waited for.
    let found: Vec<_> = std::thread::scope(|scope| {
        let start = |configuration| scope.spawn(move || differing(corpus, configuration));
        let threads: Vec<_> = configurations.iter().map(|path| start(&**path)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for (configuration, (cases, different)) in configurations.iter().zip(found) {
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
}

#[test]
fn few_cases_are_known_to_differ() {
    let known = known();
    assert!(known.case.iter().all(|case| !case.reason.is_empty()));
    let count = |corpus: &str| -> usize {
        let cases = |path: PathBuf| {
            let config = std::fs::read_to_string(path.join("cases.json")).unwrap();
            serde_json::from_str::<Config>(&config).unwrap().cases.len()
        };
        configurations(corpus).into_iter().map(cases).sum()
    };
    let count: usize = CORPORA.into_iter().map(count).sum();
    let known = known.case.len();
    assert!(
        known * 100 <= MOST_KNOWN_PERCENT * count,
        "{known} of {count} are listed as known"
    );
}

#[test]
fn vllm_0_33_0() {
    check(CORPORA[0]);
}

#[test]
fn vllm_0_32_0() {
    check(CORPORA[1]);
}

#[test]
fn vllm_0_32_0_with_its_own_engine() {
    check(CORPORA[2]);
}
