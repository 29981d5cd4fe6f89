//! SGLang's own route: what it is asked, and what recorded answers of it count as.

use std::path::Path;
use std::sync::Arc;

use harness::UsageError;
use harness::bench::{self, Config, Dialect, Limit, Run, TokenCountSource};
use harness::dataset::{Prompt, Sample};
use harness::record::Failure;
use harness::report::{self, Summary};
use serde_json::{Value, json};
use vocab::Tokenizer;
use wire::request::Endpoint;

use crate::fake::Fake;
use crate::reports::Folder;

const CORPUS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../fixtures/wire/sglang-0.5.23"
);

fn recorded(case: &str) -> Vec<u8> {
    std::fs::read(format!("{CORPUS}/{case}.response.http")).unwrap()
}

fn tokenizer() -> Tokenizer {
    let folder = Path::new(CORPUS).join("stub-model");
    Tokenizer::from_files(|name| std::fs::read_to_string(folder.join(name)).ok()).unwrap()
}

fn config(fake: &Fake) -> Config {
    Config {
        dialect: Dialect::Sglang,
        endpoint: Endpoint::Generate,
        tokenizer: Arc::new(tokenizer()),
        limit: Limit::Requests(2),
        ..fake.config()
    }
}

fn run(case: &str) -> Run {
    let config = config(&Fake::always(recorded(case)));
    bench::run(&Config {
        stream: case.ends_with("-stream"),
        ..config
    })
    .unwrap()
}

#[test]
fn recorded_answers_count_by_every_basis() {
    let (good, bad) = (Some(true), Some(false));
    // Tokens by the client, those of the server, whose ids are as many, O-1, chunks and characters.
    for (case, client, server, ids_decode, chunks, characters) in [
        ("default/gen-stream", 10, 11, good, 10, 32),
        ("incremental/gen-stream", 10, 11, good, 10, 32),
        ("metrics/gen-stream", 10, 11, good, 10, 32),
        ("rust-server/gen-stream", 10, 11, good, 10, 32),
        ("default/gen-unicode-stream", 55, 56, good, 51, 75),
        ("incremental/gen-unicode-stream", 55, 56, good, 51, 75),
        ("httptools/gen-unicode-stream", 55, 56, good, 51, 75),
        ("default/gen-stop-stream", 3, 6, bad, 3, 6),
        ("incremental/gen-stop-stream", 3, 6, bad, 3, 6),
        ("default/gen-stop-no-trim-stream", 6, 6, good, 3, 15),
        ("default/gen-stop-token-ids-stream", 2, 3, good, 2, 5),
        ("default/gen-length-stream", 5, 5, good, 5, 18),
        ("default/gen-empty-stream", 0, 1, good, 0, 0),
        ("default/gen-zero-tokens-stream", 0, 0, good, 0, 0),
        ("default/gen-logprob-stream", 2, 3, good, 2, 2),
        ("incremental/gen-logprob-top2-text-stream", 2, 3, good, 2, 2),
        ("default/gen-basic", 10, 11, good, 0, 32),
        ("default/gen-batch-one", 2, 3, good, 0, 2),
        ("default/gen-n2", 34, 36, None, 0, 57),
        ("skip-tokenizer-init/ids-stream", 0, 11, None, 0, 0),
    ] {
        let run = run(case);
        assert_eq!(run.totals.completed, 2, "{case}: {:?}", run.records);
        let (record, counts) = (&run.records[1], &run.counts[1]);
        let usage = record.usage.unwrap();
        assert_eq!(
            (counts.output(), usage.completion_tokens, counts.output_ids),
            (client, Some(server), Some(server)),
            "{case}"
        );
        assert_eq!(
            (
                counts.ids_decode,
                counts.chunks,
                record.content.chars().count()
            ),
            (ids_decode, chunks, characters),
            "{case}"
        );
        assert_eq!(record.first_ns().is_some(), chunks > 0, "{case}");
    }
}

#[test]
fn samples_of_one_prompt_are_counted_together() {
    for case in ["default/gen-n2-stream", "incremental/gen-n2-stream"] {
        let run = run(case);
        let (record, counts) = (&run.records[0], &run.counts[0]);
        let usage = record.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (Some(9), Some(36))
        );
        assert_eq!((counts.output_ids, counts.ids_decode), (Some(36), None));
        assert_eq!((counts.chunks, record.content.len()), (34, 57), "{case}");
    }
}

#[test]
fn recorded_failures_are_failed_samples() {
    let queue_full = "The request queue is full.";
    for (case, failure, reason) in [
        ("default/gen-abort-stream", Failure::Abort, "Aborted"),
        ("incremental/gen-abort-stream", Failure::Abort, "Aborted"),
        ("default/gen-abort", Failure::Abort, "Aborted"),
        ("queue-limit/queue-full-stream", Failure::Abort, queue_full),
        ("queue-limit/queue-full", Failure::Http(503), queue_full),
        (
            "queue-limit/queue-abort-waiting-stream",
            Failure::Abort,
            "Abort in waiting queue",
        ),
        (
            "default/gen-err-too-long-stream",
            Failure::ErrorEvent,
            "The input (10400 tokens)",
        ),
        (
            "default/gen-err-temperature-stream",
            Failure::ErrorEvent,
            "temperature must be",
        ),
        (
            "default/gen-err-temperature",
            Failure::Http(400),
            "temperature must be",
        ),
    ] {
        let run = run(case);
        let record = &run.records[1];
        assert_eq!(record.failure, Some(failure), "{case}");
        assert!(record.detail.contains(reason), "{case}: {}", record.detail);
        assert_eq!(run.totals.completed, 0, "{case}");
    }
}

/// Two requests, the second with ids.
fn asked(fake: &Fake) -> Config {
    let mut config = config(fake);
    let ids = Sample {
        id: "ids".into(),
        prompt: Prompt::InputIds(vec![58; 12]),
        max_tokens: Some(64),
    };
    let samples = config.samples.iter().cloned().chain([ids]);
    config.samples = Arc::new(samples.collect());
    config
}

#[test]
fn the_summary_has_ids_as_a_third_count() {
    let fake = Fake::always(recorded("default/gen-stream"));
    for token_count_source in [TokenCountSource::Client, TokenCountSource::Server] {
        let config = Config {
            token_count_source,
            ..asked(&fake)
        };
        let summary = Summary::new(&bench::run(&config).unwrap(), &config);
        let ids = summary.ids.clone().unwrap();
        let (input, output) = (ids.input.unwrap(), ids.output.unwrap());
        assert_eq!((input.count, input.max, input.partial), (1, 12, true));
        assert_eq!((output.count, output.max, output.partial), (2, 11, false));
        assert_eq!(summary.osl_paired.unwrap().ratio, Some(10.0 / 11.0));
        let json: Value = serde_json::from_str(&report::json(&summary)).unwrap();
        assert_eq!(json["input_sequence_lengths_ids"]["max"], 12);
        assert_eq!(json["output_sequence_lengths_ids"]["max"], 11);
        assert!(report::text(&summary).contains("output tokens (ids)"));
    }
}

#[test]
fn the_folder_tells_of_each_samples_ids() {
    let fake = Fake::always(recorded("default/gen-stream"));
    let config = asked(&fake);
    let run = bench::run(&config).unwrap();
    let folder = Folder::new();
    report::write_folder(&folder.0, &run, &config, &Summary::new(&run, &config)).unwrap();
    let events = folder.read("events.jsonl");
    let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    let counts = ["output_tokens", "output_tokens_server", "output_tokens_ids"];
    assert_eq!(
        counts.map(|count| last[count].as_u64()),
        [Some(10), Some(11), Some(11)]
    );
    let accounting: Value = serde_json::from_str(&folder.read("token_accounting.json")).unwrap();
    assert_eq!(accounting["endpoint"], "generate");
    assert_eq!(
        accounting["token_ids_gate"],
        json!({"passed": 2, "failed": 0, "unchecked": 0})
    );
    assert_eq!(accounting["aggregate"]["output_token_ids"]["max"], 11);
    let (input, output) = (
        &accounting["samples"][1]["input"],
        &accounting["samples"][1]["output"],
    );
    assert_eq!(
        *input,
        json!({"rule": "I-1", "client": 12, "usage": 12, "token_ids": 12})
    );
    assert_eq!(
        (&output["token_ids"], &output["token_ids_decode"]),
        (&json!(11), &json!(true))
    );
    let seen = fake.seen();
    assert!(seen[0].head.starts_with("POST /generate HTTP/1.1\r\n"));
    assert_eq!(
        seen[0].body,
        r#"{"text":"hi","sampling_params":{"temperature":0},"stream":true}"#
    );
    let params = r#"],"sampling_params":{"temperature":0,"max_new_tokens":64},"stream":true}"#;
    assert!(seen[1].body.starts_with(r#"{"input_ids":[58,58,"#));
    assert!(seen[1].body.ends_with(params), "{}", seen[1].body);
}

#[test]
fn the_openai_routes_of_sglang_are_asked_for_usage() {
    for (case, endpoint, server) in [
        ("default/chat-stream-usage", Endpoint::Chat, 11),
        ("default/cmpl-stream-usage", Endpoint::Completions, 11),
    ] {
        let fake = Fake::always(recorded(case));
        let run = bench::run(&Config {
            endpoint,
            ..config(&fake)
        })
        .unwrap();
        let (record, counts) = (&run.records[1], &run.counts[1]);
        assert!(record.is_completed(), "{case}: {record:?}");
        assert_eq!(record.usage.unwrap().completion_tokens, Some(server));
        assert_eq!(
            (counts.output(), counts.chunks, counts.output_ids),
            (10, 10, None)
        );
        assert!(
            fake.seen()[0]
                .body
                .ends_with(r#""stream_options":{"include_usage":true}}"#)
        );
    }
}

#[test]
fn a_native_run_needs_no_model_but_its_own_dialect() {
    let fake = Fake::without_models(recorded("default/gen-stream"));
    let config = Config {
        model: None,
        ..config(&fake)
    };
    assert_eq!(bench::run(&config).unwrap().model, "");
    let refused = |config: Config| {
        let error = bench::run(&config).unwrap_err();
        assert!(error.is::<UsageError>(), "{error}");
    };
    refused(Config {
        endpoint: Endpoint::Chat,
        ..config.clone()
    });
    refused(Config {
        dialect: Dialect::Vllm,
        ..config.clone()
    });
    refused(Config {
        include_usage: false,
        ..config
    });
}
