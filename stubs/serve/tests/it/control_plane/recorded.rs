//! Every recorded exchange with ExecuTorch's LLM server, byte for byte, and its log line for line.
//!
//! A server's cases are one conversation: sessions live from one to the next, and so do failures of the
//! worker. Turns that are left take as long as they took, so servers are played side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use wire::recording::{REQUEST, RESPONSE, Rules, difference, normalised};

use super::{Plane, file};
use crate::fidelity::exchange::Socket;
use crate::fidelity::known;
use crate::model_worker::{model_file, objects};
use crate::support::fixtures;

const CORPORA: [&str; 2] = ["executorch-1.5.1", "executorch-cff6f4dd32e6"];
/// The second exchange of two that were made at a time.
const SECOND: &str = "-two";
const FIRST: &str = "-one";
/// The date of what never came, which is behind all others.
const NEVER: &str = "~";
/// Longer than anything takes that ends.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often what shows by itself is looked at, which takes as long.
const TRIES: u32 = 1000;
const POLL: Duration = Duration::from_millis(20);

/// A recorded exchange.
#[derive(Debug)]
struct Case {
    name: String,
    request: Vec<u8>,
    response: Vec<u8>,
    /// How it ended for the client.
    end: String,
    server: String,
    /// Lines of the log that tell of turns.
    log: Vec<String>,
    /// Its server had trouble while it logged one.
    lost_log: bool,
    /// When it was made: the second, and the worker's time as far as it has one.
    at: (String, f64),
}

fn folder(corpus: &str) -> PathBuf {
    fixtures().join("wire").join(corpus)
}

/// The exchanges of a corpus, in order.
fn cases(corpus: &str) -> Vec<Case> {
    let index = objects(&format!("wire/{corpus}/cases.json"));
    let files = std::fs::read_dir(folder(corpus)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let names = names.filter_map(|name| Some(name.strip_suffix(RESPONSE)?.to_owned()));
    let mut cases: Vec<Case> = names.map(|name| case(corpus, &index, name)).collect();
    cases.sort_by(|one, other| {
        let times = one.at.1.total_cmp(&other.at.1);
        times.then_with(|| one.name.cmp(&other.name))
    });
    // What was not answered, or later, was made at the time of what its worker did before.
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for case in cases.iter_mut().filter(|case| case.at.1.is_finite()) {
        let last = last.entry(case.server.clone()).or_default();
        if case.at.0 == NEVER || case.name.ends_with(SECOND) {
            case.at.0.clone_from(last);
        }
        last.clone_from(&case.at.0);
    }
    cases.sort_by(|one, other| {
        let moments = one.at.0.cmp(&other.at.0);
        let times = one.at.1.total_cmp(&other.at.1);
        moments.then(times).then_with(|| one.name.cmp(&other.name))
    });
    cases
}

fn case(corpus: &str, index: &Map<String, Value>, name: String) -> Case {
    let read = |name: &str, end: &str| std::fs::read(folder(corpus).join(format!("{name}{end}")));
    let both = name.strip_suffix(FIRST);
    let both = both.or_else(|| name.strip_suffix(SECOND));
    let both = both.filter(|both| index["cases"].get(both).is_some());
    let of_both = both.unwrap_or(&name);
    let told = &index["cases"][of_both];
    let response = read(&name, RESPONSE).unwrap();
    let text = String::from_utf8_lossy(&response);
    let date = text.lines().find_map(|line| line.strip_prefix("date: "));
    let lines = String::from_utf8(read(of_both, ".worker.jsonl").unwrap_or_default()).unwrap();
    let first = lines.lines().next().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["t"].as_f64().unwrap()
    });
    let log = String::from_utf8(read(of_both, ".log.txt").unwrap_or_default()).unwrap();
    let turns = log.lines().filter(|line| line.contains("llm_turn_stats"));
    Case {
        at: (
            date.unwrap_or(NEVER).to_owned(),
            first.unwrap_or(f64::INFINITY),
        ),
        end: told["end"].as_str().unwrap_or_default().to_owned(),
        log: turns.map(masked).collect(),
        lost_log: log.contains("--- Logging error ---"),
        request: read(&name, REQUEST).unwrap(),
        server: told["server"].as_str().unwrap().to_owned(),
        response,
        name,
    }
}

/// A line of the log without what was measured; what a value must not hold is escaped in ours.
fn masked(line: &str) -> String {
    let line = line.replace("because of x=1", "because%20of%20x=1");
    let members = line.split(' ').map(|member| match member.split_once('=') {
        Some((name, _)) if name.ends_with("_ms") && name != "vision_encoder_ms" => {
            format!("{name}=N")
        }
        Some((name, _)) if name.ends_with("_tok_s") => format!("{name}=N"),
        _ => member.to_owned(),
    });
    members.collect::<Vec<_>>().join(" ")
}

fn plane(corpus: &str, server: &str) -> Plane {
    let name = format!("{corpus}-{server}.json");
    let model = file(&name, &model_file(server));
    let tokenizer = fixtures().join("executorch/tokenizer");
    let mut words = vec!["--profile", corpus, "--model-id", "stub-model"];
    words.extend(["--tokenizer-path", "byte"]);
    words.extend(["--model-path", model.to_str().unwrap()]);
    if server == "srv-hf" {
        words.extend(["--hf-tokenizer", tokenizer.to_str().unwrap()]);
        words.extend(["--max-context", "512"]);
    }
    if server == "srv-h11" {
        words.extend(["--http", "h11"]);
    }
    Plane::start(words)
}

/// How our response differs, if it does.
fn compared(case: &Case, response: &[u8]) -> Option<String> {
    let rules = Rules::EXECUTORCH;
    let expected = normalised(&case.response, &rules);
    let mut ours = normalised(response, &rules);
    if case.end == "we-closed" {
        // The server had more to say.
        ours.truncate(ours.floor_char_boundary(expected.len()));
    }
    difference(&expected, &ours).map(|how| {
        let cut = |line: &str| line.chars().take(170).collect::<String>();
        how.lines().map(cut).collect::<Vec<_>>().join("\n")
    })
}

/// How our log differs, if it does. A line that the real server lost is there.
fn compared_log(case: &Case, log: &str) -> Option<String> {
    let logged: Vec<String> = log.lines().map(masked).collect();
    let is_lost = case.lost_log && case.log.is_empty() && logged.len() == 1;
    let differs = !is_lost && logged != case.log;
    differs.then(|| format!("log {:?}\nours {logged:?}", case.log))
}

/// Sends a request as it was sent and reads what comes, as long as the recording's client did.
fn exchange(address: SocketAddr, case: &Case) -> Vec<u8> {
    let mut socket = Socket::send(address, &case.request, PATIENCE);
    if case.end != "we-closed" {
        return socket.read_whole(&case.request);
    }
    // A client that was told nothing left while its turn ran.
    let enough = case.response.len().max(1);
    if case.response.is_empty() {
        std::thread::sleep(Duration::from_millis(100));
        return Vec::new();
    }
    socket.read_until(|bytes, _| bytes.len() >= enough);
    socket.received
}

/// Plays a server's cases; gives those that differ, and how.
fn played(corpus: &str, server: &str, cases: &[&Case]) -> Vec<(String, String)> {
    let plane = plane(corpus, server);
    let mut found = Vec::new();
    let mut left = cases;
    while let Some((case, rest)) = left.split_first() {
        left = rest;
        if let Some((second, rest)) = rest.split_first()
            && second.name.ends_with(SECOND)
        {
            assert!(case.name.ends_with(FIRST), "{case:?}");
            left = rest;
            found.extend(at_once(&plane, case, second));
            continue;
        }
        found.extend(played_one(&plane, case).map(|how| (case.name.clone(), how)));
    }
    plane.stop();
    found
}

fn played_one(plane: &Plane, case: &Case) -> Option<String> {
    plane.logged();
    for tries in 1..TRIES {
        let response = exchange(plane.address(), case);
        if case.end == "we-closed" && !case.log.is_empty() {
            // The turn goes on without its client.
            wait_for(|| !plane.log.0.lock().unwrap().is_empty());
        }
        let log = plane.logged();
        let how = compared(case, &response).or_else(|| compared_log(case, &log));
        // What became of a worker shows when a turn that was left has ended, or was given up.
        let is_told = case.name.contains("disconnect") && case.name.ends_with("-health");
        // On a busy machine a cancellation may miss a step.
        let is_missed = case.name.starts_with("stop-ignored") && tries < 40;
        if how.is_none() || !(is_missed || is_told) {
            return how;
        }
        std::thread::sleep(POLL);
    }
    Some("it stays as it is".into())
}

fn wait_for(is_there: impl Fn() -> bool) {
    for _ in 0..TRIES {
        if is_there() {
            return;
        }
        std::thread::sleep(POLL);
    }
}

/// Two exchanges, the second while the first is under way.
fn at_once(plane: &Plane, one: &Case, two: &Case) -> Vec<(String, String)> {
    plane.logged();
    let mut first = Socket::send(plane.address(), &one.request, PATIENCE);
    first.read_until(|bytes, _| bytes.windows(6).filter(|part| part == b"data: ").count() > 1);
    let second = Socket::send(plane.address(), &two.request, PATIENCE);
    let responses = [first, second].map(|socket| socket.read_whole(&one.request));
    let lines = plane.logged().lines().count();
    let log = (lines != one.log.len()).then(|| (one.name.clone(), format!("{lines} in the log")));
    let cases = [one, two].into_iter().zip(responses);
    let found = cases.filter_map(|(case, response)| {
        let how = compared(case, &response)?;
        Some((case.name.clone(), how))
    });
    found.chain(log).collect()
}

fn check(corpus: &str) {
    let filter = std::env::var("STUBLINE_CASES").unwrap_or_default();
    let cases = cases(corpus);
    let mut servers: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in &cases {
        servers.entry(&case.server).or_default().push(case);
    }
    servers.retain(|server, cases| {
        let is_chosen = |case: &&Case| format!("{server}/{}", case.name).contains(&filter);
        cases.iter().any(is_chosen)
    });
    let found: Vec<(String, String)> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (server, cases) in &servers {
            threads.push(scope.spawn(move || played(corpus, server, cases)));
        }
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let run: BTreeSet<&str> = servers.values().flatten().map(|case| &*case.name).collect();
    let known = known();
    let known: BTreeSet<&str> = known
        .iter()
        .filter(|known| known.corpus == corpus && run.contains(&*known.case))
        .map(|known| &*known.case)
        .collect();
    let differs: BTreeSet<&str> = found.iter().map(|(name, _)| &**name).collect();
    let passing = known.difference(&differs);
    let passing = passing.map(|case| format!("{case} is listed as known and passes"));
    let unknown = found.iter().filter(|(name, _)| !known.contains(&**name));
    let unknown = unknown.map(|(name, how)| format!("{name}:\n{how}"));
    let report: Vec<String> = passing.chain(unknown).collect();
    let (failed, count) = (report.len(), run.len());
    assert!(
        failed == 0,
        "{failed} of {count} cases:\n{}",
        report.join("\n")
    );
}

#[test]
fn executorch_1_5_1() {
    check(CORPORA[0]);
}

#[test]
fn executorch_before_cancellation() {
    check(CORPORA[1]);
}

#[test]
fn few_exchanges_are_known_to_differ() {
    let known = known();
    for corpus in CORPORA {
        let cases = cases(corpus);
        let known: Vec<_> = known
            .iter()
            .filter(|known| known.corpus == corpus)
            .collect();
        for case in &known {
            assert!(
                cases.iter().any(|found| found.name == case.case),
                "{}",
                case.case
            );
            assert!(!case.reason.is_empty());
        }
        assert!(known.len() * 100 <= 5 * cases.len(), "{corpus}");
    }
}
