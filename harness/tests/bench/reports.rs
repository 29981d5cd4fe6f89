//! What is said about a run.

use std::sync::atomic::{AtomicUsize, Ordering};

use harness::bench::{self, Config, TokenCountSource};
use harness::report::{self, OtherBasis, Summary};
use serde_json::Value;

use crate::fake::{Fake, GOOD, MORE, ROLE, Reply, TEXT, stream};

fn of(events: &'static [&'static str]) -> Reply {
    Reply {
        parts: vec![stream(events)],
        close: false,
    }
}

fn summary(fake: &Fake, token_count_source: TokenCountSource) -> Summary {
    let config = Config {
        token_count_source,
        ..fake.config()
    };
    Summary::new(&bench::run(&config).unwrap(), &config)
}

#[test]
fn both_counts_stand_beside_each_other() {
    let fake = Fake::always(stream(&GOOD));
    let by_client = summary(&fake, TokenCountSource::Client);
    let output = by_client.output_sequence_lengths.clone().unwrap();
    assert_eq!((output.count, output.max, output.partial), (3, 9, false));
    assert_eq!(by_client.input_sequence_lengths.as_ref().unwrap().max, 2);
    let paired = by_client.osl_paired.unwrap();
    assert_eq!(
        (paired.mean_diff, paired.ratio, paired.n),
        (3.0, Some(1.5), 3)
    );
    let (tps, tps_server) = (by_client.tps.unwrap(), by_client.tps_server.unwrap());
    assert!((tps / tps_server - 1.5).abs() < 1e-9);
    let by_server = summary(&fake, TokenCountSource::Server);
    assert_eq!(by_server.output_sequence_lengths.unwrap().max, 6);
    assert_eq!(by_server.input_sequence_lengths.unwrap().max, 7);
    let OtherBasis::Client { output, .. } = by_server.other else {
        panic!("the client is the other basis");
    };
    assert_eq!(output.unwrap().max, 9);
}

const KEYS: [&str; 30] = [
    "token_count_source",
    "n_samples_issued",
    "n_samples_completed",
    "n_samples_failed",
    "duration_ns",
    "qps",
    "tps",
    "tps_server",
    "latency",
    "ttft",
    "tpot",
    "itl",
    "input_sequence_lengths",
    "output_sequence_lengths",
    "input_sequence_lengths_server",
    "output_sequence_lengths_server",
    "tpot_server",
    "osl_paired",
    "n_samples_missing_usage",
    "n_samples_missing_usage_empty_output",
    "errors",
    "n_samples_resent",
    "client_cpu_ns_per_request",
    "server_cpu_ns_per_request",
    "client_wait_ns_per_request",
    "interrupted",
    "send_late",
    "server_wait_ns_per_request",
    "stability",
    "warm_up_ns",
];

#[test]
fn the_summary_has_the_keys_of_the_contract() {
    let fake = Fake::always(stream(&GOOD));
    let json = report::json(&summary(&fake, TokenCountSource::Client));
    let value: Value = serde_json::from_str(&json).unwrap();
    let object = value.as_object().unwrap();
    assert_eq!(object.len(), KEYS.len());
    for key in KEYS {
        assert!(object.contains_key(key), "{key}");
    }
    let json = report::json(&summary(&fake, TokenCountSource::Server));
    for key in [
        "tpot_client",
        "input_sequence_lengths_client",
        "output_sequence_lengths_client",
    ] {
        assert!(json.contains(&format!("\"{key}\": ")), "{key}");
    }
}

const ODD: &str = r#"{"choices":[],"usage":{"prompt_tokens":true,"completion_tokens":-1}}"#;

#[test]
fn missing_usage_is_partial_and_never_a_failure() {
    let replies = [
        of(&GOOD),
        of(&[ROLE, TEXT, MORE, ODD, "[DONE]"]),
        of(&[ROLE, "[DONE]"]),
    ];
    let fake = Fake::new(move |post| replies[post % 3].clone());
    let by_client = summary(&fake, TokenCountSource::Client);
    assert_eq!(
        (by_client.n_samples_completed, by_client.exit_code()),
        (3, 0)
    );
    assert_eq!(by_client.n_samples_missing_usage, 2);
    assert_eq!(by_client.n_samples_missing_usage_empty_output, 1);
    assert_eq!(by_client.osl_paired.unwrap().n, 1);
    assert_eq!(by_client.output_sequence_lengths.as_ref().unwrap().count, 3);
    let OtherBasis::Server { input, output, .. } = by_client.other else {
        panic!("the server is the other basis");
    };
    let (input, output) = (input.unwrap(), output.unwrap());
    assert!(input.partial && output.partial && output.count == 1);
    let by_server = summary(&fake, TokenCountSource::Server);
    assert_eq!(by_server.exit_code(), 4);
    assert!(by_server.output_sequence_lengths.unwrap().partial);
}

#[test]
fn no_usage_at_all_leaves_null() {
    let fake = Fake::new(|_| of(&[ROLE, TEXT, MORE, "[DONE]"]));
    let value = serde_json::to_value(summary(&fake, TokenCountSource::Client)).unwrap();
    for key in [
        "tps_server",
        "output_sequence_lengths_server",
        "tpot_server",
        "osl_paired",
    ] {
        assert_eq!(value[key], Value::Null, "{key}");
    }
    assert_eq!(value["n_samples_missing_usage"], 3);
    assert_eq!(value["server_cpu_ns_per_request"], Value::Null);
    assert!(value["client_cpu_ns_per_request"].as_f64().unwrap() > 0.0);
    let by_server = summary(&fake, TokenCountSource::Server);
    assert_eq!((by_server.tps, by_server.exit_code()), (None, 4));
}

/// A folder of this test's own, removed when dropped.
pub(crate) struct Folder(pub(crate) std::path::PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        Self(std::env::temp_dir().join(format!("stubline-bench-{}-{number}", std::process::id())))
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_folder_holds_every_sample() {
    let fake = Fake::new(|post| match post {
        1 => of(&[ROLE, TEXT]),
        _ => of(&GOOD),
    });
    let config = Config {
        keep_events: true,
        ..fake.config()
    };
    let run = bench::run(&config).unwrap();
    let summary = Summary::new(&run, &config);
    let folder = Folder::new();
    report::write_folder(&folder.0, &run, &config, &summary).unwrap();
    assert_eq!(folder.read("report.txt"), report::text(&summary));
    assert_eq!(folder.read("result_summary.json"), report::json(&summary));
    let events = folder.read("events.jsonl");
    let events: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), 3);
    assert_eq!(events[0]["id"], "hi");
    assert_eq!(events[0]["request_id"], run.request_id(&run.records[0]));
    assert_eq!(events[0]["chunks"].as_array().unwrap().len(), 4);
    assert_eq!(events[0]["chunks"][1][1], TEXT.len());
    assert_eq!(
        (
            &events[0]["content_chars"],
            &events[0]["output_tokens_server"]
        ),
        (&9.into(), &6.into())
    );
    assert_eq!(
        (&events[1]["error"], &events[1]["complete_ns"]),
        (&"no_done".into(), &Value::Null)
    );
    let accounting: Value = serde_json::from_str(&folder.read("token_accounting.json")).unwrap();
    assert_eq!(accounting["token_ids_gate"], Value::Null);
    assert_eq!(accounting["samples"].as_array().unwrap().len(), 2);
    let sample = &accounting["samples"][0];
    assert_eq!(
        (&sample["input"]["rule"], &sample["input"]["client"]),
        (&"I-2".into(), &2.into())
    );
    assert_eq!(
        (
            &sample["output"]["retokenized"],
            &sample["output"]["chunks"]
        ),
        (&9.into(), &2.into())
    );
    assert_eq!(accounting["aggregate"]["output_usage"]["max"], 6);
}

#[test]
fn the_text_fits_a_terminal() {
    let fake = Fake::always(stream(&GOOD));
    let text = report::text(&summary(&fake, TokenCountSource::Client));
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{text}");
    assert!(
        text.starts_with("3 of 3 samples completed, 0 failed, in "),
        "{text}"
    );
    assert!(
        text.contains("output tokens, client − usage: mean +3.000 over 3 samples, ratio 1.5000"),
        "{text}"
    );
}
