//! Every recorded case, byte for byte over a socket.
//!
//! `STUBLINE_CASES=default/chat` runs only the cases whose configuration and name hold this text.

mod corpus; // where recordings are and what plays them
pub(crate) mod exchange; // a request sent as it was sent
mod meanwhile; // exchanges with something else going on

use std::collections::HashSet;

use serde::Deserialize;
use serve::replay::{Plays, load};
use wire::recording::{Rules, difference, normalised};

use crate::replay::Player;
use crate::support::{Stub, fixtures};
use corpus::{Case, Configuration, Corpus, Native, is_any, is_rust};

#[derive(Deserialize)]
struct Known {
    case: Vec<KnownCase>,
}

/// A case that is not imitated.
#[derive(Deserialize)]
pub(crate) struct KnownCase {
    pub(crate) case: String,
    config: String,
    pub(crate) corpus: String,
    pub(crate) reason: String,
}

const VLLM_0_33_0: Corpus = Corpus {
    folder: "vllm-0.33.0",
    has: is_any,
    words: &[
        "vllm",
        "--workers",
        "1",
        "--profile",
        "vllm-0.33.0",
        "--model",
        "tiny-model",
    ],
    more_words: &[],
    tokenizer: "tokenizers/bpe",
    rules: Rules::VLLM,
    native: None,
};
const VLLM_0_32_0: Corpus = Corpus {
    folder: "vllm-0.32.0",
    words: &[
        "vllm",
        "--workers",
        "1",
        "--profile",
        "vllm-0.32.0",
        "--model",
        "tiny-model",
    ],
    ..VLLM_0_33_0
};
const VLLM_CPU_ENGINE: Corpus = Corpus {
    folder: "vllm-0.32.0-cpu-engine",
    ..VLLM_0_32_0
};
const SGLANG: Corpus = Corpus {
    folder: "sglang-0.5.23",
    has: |configuration| !is_rust(configuration),
    words: &[
        "sglang",
        "--workers",
        "1",
        "--profile",
        "sglang-0.5.23",
        "--fast-health",
    ],
    more_words: &[("httptools", &["--http", "httptools"])],
    tokenizer: "wire/sglang-0.5.23/stub-model",
    rules: Rules::SGLANG,
    // An abort takes effect with the next token.
    native: Some(Native {
        events: 5,
        filled: &[
            ("default", "gen-basic-repeat", "gen-basic"),
            ("default", "gen-batch", "gen-logprob-flat"),
            ("default", "gen-logprob-flat", "gen-logprob-token-ids"),
            ("default", "gen-logprob-stream", "gen-logprob-top2-text"),
            ("metrics", "gen-basic-repeat", "cmpl-stream-usage"),
        ],
    }),
};
const SGLANG_RUST: Corpus = Corpus {
    has: is_rust,
    words: &[
        "sglang",
        "--workers",
        "1",
        "--profile",
        "sglang-0.5.23-rust",
    ],
    more_words: &[],
    rules: Rules::SGLANG_RUST,
    native: Some(Native {
        events: 4,
        filled: &[
            ("rust-server", "gen-basic-repeat", "gen-basic"),
            (
                "rust-server",
                "gen-prompt-token-ids",
                "gen-input-ids-stream",
            ),
        ],
    }),
    ..SGLANG
};

/// Corpora, and how many percent of their cases may be known to differ.
const LIMITS: [(&[&Corpus], usize); 3] = [
    (&[&VLLM_0_33_0, &VLLM_0_32_0, &VLLM_CPU_ENGINE], 3),
    (&[&SGLANG], 3),
    (&[&SGLANG_RUST], 10),
];

/// Cases of a configuration that were run, and those that differ, each with how.
#[derive(Default)]
struct Found {
    run: HashSet<String>,
    different: Vec<(String, String)>,
}

impl Found {
    fn add(&mut self, corpus: &Corpus, case: &Case, ours: &[u8]) {
        let rules = corpus.rules.of_page(case.path());
        let (mut expected, mut ours) =
            (normalised(&case.response, &rules), normalised(ours, &rules));
        if case.name.starts_with("get-metrics") || case.path() == "/metrics" {
            (expected, ours) = (metrics_page(&expected), metrics_page(&ours));
        }
        if case.name.starts_with("session-disconnect") && ours.len() > expected.len() {
            // The client went away here; the server had more to say.
            ours.truncate(ours.floor_char_boundary(expected.len()));
        }
        self.run.insert(case.name.clone());
        if let Some(how) = difference(&expected, &ours) {
            self.different.push((case.name.clone(), short(&how)));
        }
    }
}

/// The responses of a case and of what goes on meanwhile; where a step was missed, since the machine was
/// busy, it is tried again.
fn patiently(corpus: &Corpus, configuration: &Configuration, case: &Case) -> Vec<Vec<u8>> {
    let mut responses = meanwhile::exchanges(corpus, configuration, case);
    for _ in 0..3 {
        let mut found = Found::default();
        let cases = std::iter::once(case).chain(case.aux.as_deref());
        cases
            .zip(&responses)
            .for_each(|(case, ours)| found.add(corpus, case, ours));
        if found.different.is_empty() {
            break;
        }
        responses = meanwhile::exchanges(corpus, configuration, case);
    }
    responses
}

/// Both sides of a difference, each cut.
fn short(how: &str) -> String {
    let cut = |line: &str| line.chars().take(150).collect::<String>();
    how.lines().map(cut).collect::<Vec<_>>().join("\n")
}

/// Runs the cases of a configuration whose names are `chosen`.
fn compared(
    corpus: &Corpus,
    configuration: &Configuration,
    chosen: &dyn Fn(&str) -> bool,
) -> Found {
    let cases = configuration.cases().filter(|case| chosen(&case.name));
    let (held, plain): (Vec<Case>, Vec<Case>) =
        cases.partition(|case| corpus.native.is_some() && case.waits());
    let mut found = Found::default();
    std::thread::scope(|scope| {
        let wait = |case| scope.spawn(move || patiently(corpus, configuration, case));
        let threads: Vec<_> = held.iter().map(wait).collect();
        if !plain.is_empty() {
            let stub = corpus.start(configuration, &[]);
            for case in &plain {
                prepare(&stub, corpus, configuration, &case.name);
                found.add(corpus, case, &exchange::exchange(stub.address(), case));
            }
            stub.stop();
        }
        for (case, thread) in held.iter().zip(threads) {
            let responses = thread.join().unwrap();
            for (case, ours) in std::iter::once(case)
                .chain(case.aux.as_deref())
                .zip(responses)
            {
                found.add(corpus, case, &ours);
            }
        }
    });
    found
}

/// Brings the prefix cache into the state that it had when the case was recorded.
fn prepare(stub: &Stub, corpus: &Corpus, configuration: &Configuration, name: &str) {
    let Some(native) = &corpus.native else {
        return;
    };
    let mut client = stub.client();
    let authorization = configuration.authorization();
    let flush = format!(
        "POST /flush_cache HTTP/1.1\r\nHost: a\r\n{authorization}Content-Length: 0\r\n\r\n"
    );
    client.send(flush.as_bytes());
    client.response().expect("an answer");
    if let Some(filler) = native.filler(&configuration.name, name) {
        exchange::exchange(stub.address(), &configuration.case(filler));
    }
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
            // The line before it ends what this one would have ended.
            if line.ends_with("\r\n") && out.ends_with('\n') {
                out.truncate(out.len() - 1);
                out.push_str("\r\n");
            }
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

pub(crate) fn known() -> Vec<KnownCase> {
    let known = std::fs::read_to_string(fixtures().join("known.toml")).unwrap();
    toml::from_str::<Known>(&known).unwrap().case
}

impl KnownCase {
    fn is_of(&self, corpus: &Corpus) -> bool {
        self.corpus == corpus.folder && (corpus.has)(&self.config)
    }
}

fn check(corpus: &Corpus) {
    let filter = std::env::var("STUBLINE_CASES").unwrap_or_default();
    let (configurations, known) = (corpus.configurations(), known());
    // Side by side, since some wait for what a recording waited for.
    let found: Vec<Found> = std::thread::scope(|scope| {
        let filter = &filter;
        let run = |configuration| scope.spawn(move || one_of(corpus, configuration, filter));
        let threads: Vec<_> = configurations.iter().map(run).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    });
    let (mut count, mut report, mut counts) = (0, Vec::new(), Vec::new());
    for (configuration, found) in configurations.iter().zip(found) {
        let config = &configuration.name;
        let known = known.iter().filter(|known| known.is_of(corpus));
        let known: HashSet<&str> = known
            .filter(|known| known.config == *config && found.run.contains(&known.case))
            .map(|known| &*known.case)
            .collect();
        let differs: HashSet<&str> = found.different.iter().map(|(name, _)| &**name).collect();
        let passing = known.difference(&differs);
        let passing = passing.map(|case| format!("{config}/{case} is listed as known and passes"));
        let unknown = found.different.iter();
        let unknown = unknown.filter(|(name, _)| !known.contains(&**name));
        let unknown = unknown.map(|(name, how)| format!("{config}/{name}:\n{how}"));
        let lines: Vec<String> = passing.chain(unknown).collect();
        count += found.run.len();
        if !lines.is_empty() {
            counts.push(format!("{config}: {} of {}", lines.len(), found.run.len()));
        }
        report.extend(lines);
    }
    let failed = report.len();
    report.extend(counts);
    let report = report.join("\n");
    assert!(failed == 0, "{failed} of {count} cases:\n{report}");
}

fn one_of(corpus: &Corpus, configuration: &Configuration, filter: &str) -> Found {
    let chosen = |name: &str| format!("{}/{name}", configuration.name).contains(filter);
    compared(corpus, configuration, &chosen)
}

#[test]
fn few_cases_are_known_to_differ() {
    let known = known();
    assert!(known.iter().all(|case| !case.reason.is_empty()));
    for (corpora, percent) in LIMITS {
        let of_these = |case: &&KnownCase| corpora.iter().any(|corpus| case.is_of(corpus));
        let known = known.iter().filter(of_these).count();
        let count = |corpus: &&Corpus| -> usize {
            let configurations = corpus.configurations();
            configurations.iter().map(Configuration::count).sum()
        };
        let count: usize = corpora.iter().map(count).sum();
        let name = corpora[0].folder;
        assert!(known * 100 <= percent * count, "{name}: {known} of {count}");
    }
}

#[test]
fn known_cases_are_recorded() {
    let corpora = LIMITS.iter().flat_map(|(corpora, _)| *corpora);
    let corpora: Vec<_> = corpora
        .map(|corpus| (corpus, corpus.configurations()))
        .collect();
    let is_of_executorch = |case: &KnownCase| case.corpus.starts_with("executorch");
    for case in known().into_iter().filter(|case| !is_of_executorch(case)) {
        let found = corpora.iter().find(|(corpus, _)| case.is_of(corpus));
        let (_, configurations) = found.expect("a corpus");
        let recorded = configurations.iter().any(|configuration| {
            let names = |found: &wire::recording::Case| {
                found.name == case.case || found.aux.as_ref() == Some(&case.case)
            };
            configuration.name == case.config && configuration.index.cases.iter().any(names)
        });
        assert!(recorded, "{}/{}/{}", case.corpus, case.config, case.case);
    }
}

#[test]
fn all_recordings_are_enumerated() {
    for (corpora, _) in LIMITS {
        for configuration in corpora.iter().flat_map(|corpus| corpus.configurations()) {
            assert_eq!(
                configuration.count(),
                configuration.responses(),
                "{}",
                configuration.name
            );
        }
    }
}

/// What is sent and compared is as recorded: a server that says what was recorded passes.
#[test]
fn played_recordings_do_not_differ() {
    for corpus in [&SGLANG, &SGLANG_RUST] {
        for configuration in corpus.configurations() {
            let player = Player::start(load(&configuration.folder).unwrap(), Plays::default());
            let mut found = Found::default();
            for case in configuration.cases().filter(|case| case.aux.is_none()) {
                let ours = exchange::exchange(player.address(), &case);
                found.add(corpus, &case, &ours);
            }
            player.stop();
            assert_eq!(found.different, [], "{}", configuration.name);
        }
    }
}

#[test]
fn vllm_0_33_0() {
    check(&VLLM_0_33_0);
}

#[test]
fn vllm_0_32_0() {
    check(&VLLM_0_32_0);
}

#[test]
fn vllm_0_32_0_with_its_own_engine() {
    check(&VLLM_CPU_ENGINE);
}

#[test]
fn sglang_0_5_23() {
    check(&SGLANG);
}

#[test]
fn sglang_0_5_23_with_its_rust_front_end() {
    check(&SGLANG_RUST);
}
