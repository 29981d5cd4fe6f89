//! The echo stub and the character tokenizer: both sides count the same, to the token.

use std::path::Path;
use std::sync::Arc;

use harness::arrival::Arrival;
use harness::bench::{self, Config, Dialect, Limit};
use harness::dataset;
use harness::report::Summary;
use vocab::Tokenizer;
use wire::request::Endpoint;

use crate::stub::{start, url};

#[test]
fn a_thousand_mixed_prompts_count_the_same_on_both_sides() {
    let prompts =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/prompts/mixed-1000.jsonl");
    let samples = Arc::new(dataset::read(&prompts).unwrap());
    assert_eq!(samples.len(), 1000);
    let (vllm, sglang) = (start(&["echo"]), start(&["echo", "--dialect", "sglang"]));
    for (server, dialect, endpoint) in [
        (&vllm, Dialect::Vllm, Endpoint::Chat),
        (&vllm, Dialect::Vllm, Endpoint::Completions),
        (&sglang, Dialect::Sglang, Endpoint::Generate),
    ] {
        for stream in [true, false] {
            let tokenizer = Arc::new(Tokenizer::named("char").unwrap());
            let url = url(server);
            let config = Config {
                dialect,
                endpoint,
                stream,
                load: Arrival::Concurrency(16),
                limit: Limit::Requests(1000),
                workers: 1,
                ..Config::new(url, Arc::clone(&samples), tokenizer)
            };
            let summary = Summary::new(&bench::run(&config).unwrap(), &config);
            let told = (summary.n_samples_completed, summary.exit_code());
            assert_eq!(told, (1000, 0), "{endpoint:?} {:?}", summary.errors);
            let paired = summary.osl_paired.unwrap();
            assert_eq!(
                (paired.mean_diff, paired.ratio, paired.n),
                (0.0, Some(1.0), 1000),
                "{endpoint:?}"
            );
        }
    }
}
