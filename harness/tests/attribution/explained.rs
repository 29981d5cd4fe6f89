use std::path::Path;
use std::sync::Arc;

use harness::bench::{Config, Dialect, Limit};
use harness::dataset;
use harness::gap::attribution::Flavour;
use harness::gap::live::{self, Asked};
use harness::gap::paired::{self, Report};
use serde_json::json;
use vocab::Tokenizer;
use wire::request::Endpoint;

use crate::corpus::{Corpus, STOP};
use crate::folders::{fixtures, folder};
use crate::stub::{start, url};

struct Server {
    stub: serve::server::Server,
    corpus: Corpus,
    tokenizer: Arc<Tokenizer>,
    dialect: Dialect,
}

const ANSWERS: u64 = 2000;
/// Where each answer is a stream of many events.
const SOME: u64 = 150;

impl Server {
    fn new(dialect: Dialect, name: &str) -> Self {
        let (tokenizer, words) = match dialect {
            Dialect::Sglang => (
                "wire/sglang-0.5.23/stub-model",
                "sglang --reasoning-parser qwen3 --tool-call-parser qwen25",
            ),
            _ => (
                "tokenizers/bpe",
                "vllm tiny-model --reasoning-parser qwen3 --enable-auto-tool-choice --tool-call-parser hermes",
            ),
        };
        let path = fixtures().join(tokenizer).display().to_string();
        let tokenizer =
            Tokenizer::find(&path, |path: &Path| std::fs::read_to_string(path).ok()).unwrap();
        let corpus = Corpus::write(&folder(name), &tokenizer, 2000, 6);
        let source = format!("script:{}", corpus.scripts.display());
        let mut words: Vec<&str> = words.split(' ').collect();
        words.extend(["--tokenizer", &path, "--source", &source]);
        Self {
            stub: start(&words),
            corpus,
            tokenizer: Arc::new(tokenizer),
            dialect,
        }
    }

    fn config(&self, endpoint: Endpoint) -> Config {
        let samples = dataset::read(&self.corpus.prompts).unwrap();
        let mut config = Config::new(url(&self.stub), samples.into(), Arc::clone(&self.tokenizer));
        config.dialect = self.dialect;
        config.endpoint = endpoint;
        config.load = harness::arrival::Arrival::Concurrency(4);
        let stop = json!([STOP]);
        if endpoint == Endpoint::Generate {
            let params = json!({"stop": stop});
            config.extra_body.insert("sampling_params".into(), params);
        } else {
            config.extra_body.insert("stop".into(), stop);
        }
        if endpoint == Endpoint::Chat {
            let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
            let tools = json!([tool("get_weather"), tool("get_time")]);
            config.extra_body.insert("tools".into(), tools);
        }
        config
    }
}

/// Explains the answers of a route by their ids, each to its last token, and gives the share of the
/// difference that stays unexplained without them.
fn share_without_ids(server: &Server, endpoint: Endpoint, stream: bool, requests: u64) -> f64 {
    let config = Config {
        stream,
        limit: Limit::Requests(requests),
        ..server.config(endpoint)
    };
    let asked = live::ask(&config).unwrap();
    let report = live::measure(&config, &asked, &Flavour::default()).unwrap();
    let told = paired::text(&report, 6);
    assert_eq!(report.bases.token_ids, requests, "{told}");
    assert_eq!(report.unexplained.absolute, 0, "{told}");
    assert_eq!(report.exit_code(0), 0, "{told}");
    assert!(report.explained.len() > 2 && report.total > 0, "{told}");
    let config = Config {
        limit: Limit::Requests(requests.min(500)),
        ..config
    };
    let unseen = live::measure(&config, &Asked::default(), &Flavour::default()).unwrap();
    let added_up = |report: &Report| {
        report.samples.iter().all(|sample| {
            let found = &sample.attribution;
            let explained: i64 = found.explained.iter().map(|(_, tokens)| tokens).sum();
            explained + found.unexplained == found.difference
        })
    };
    assert!(added_up(&report) && added_up(&unseen));
    unseen.unexplained.share.unwrap()
}

#[test]
fn vllms_answers_are_explained_to_the_last_token() {
    let server = Server::new(Dialect::Vllm, "explained-vllm");
    let share = share_without_ids(&server, Endpoint::Chat, false, ANSWERS);
    assert!((0.1..0.4).contains(&share), "{share}");
    share_without_ids(&server, Endpoint::Chat, true, SOME);
    share_without_ids(&server, Endpoint::Completions, true, SOME);
}

#[test]
fn sglangs_answers_are_explained_to_the_last_token() {
    let server = Server::new(Dialect::Sglang, "explained-sglang");
    let share = share_without_ids(&server, Endpoint::Chat, false, ANSWERS);
    assert!((0.1..0.4).contains(&share), "{share}");
    share_without_ids(&server, Endpoint::Chat, true, SOME);
    share_without_ids(&server, Endpoint::Completions, true, SOME);
    share_without_ids(&server, Endpoint::Generate, true, SOME);
}
