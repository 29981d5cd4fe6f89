//! Whose counts stand where, and what becomes of those that are none or are missing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use harness::UsageError;
use harness::bench::{self, Config, Dialect, Malformed, TokenCountSource};
use harness::report::{self, Summary};
use serde_json::{Value, json};
use vocab::Tokenizer;
use wire::request::Endpoint;

use crate::fake::{Fake, GOOD, MORE, ROLE, Reply, TEXT, USAGE, stream, whole};
use crate::reports::Folder;

pub(crate) fn of(events: &[&str]) -> Reply {
    Reply {
        parts: vec![stream(events)],
        close: false,
    }
}

pub(crate) fn usage(counts: &str) -> String {
    format!(r#"{{"choices":[],"usage":{{{counts}}}}}"#)
}

pub(crate) fn by_server(fake: &Fake) -> Config {
    Config {
        token_count_source: TokenCountSource::Server,
        ..fake.config()
    }
}

pub(crate) fn summary(config: &Config) -> Summary {
    Summary::new(&bench::run(config).unwrap(), config)
}

#[test]
fn no_thread_that_sends_can_reach_the_tokenizer() {
    let tokenizer: Arc<OnceLock<Weak<Tokenizer>>> = Arc::default();
    let holders = Arc::new(AtomicUsize::new(0));
    let (seen, most) = (Arc::clone(&tokenizer), Arc::clone(&holders));
    let fake = Fake::new(move |_| {
        let now = seen.get().map_or(0, Weak::strong_count);
        most.fetch_max(now, Ordering::SeqCst);
        of(&GOOD)
    });
    let config = fake.config();
    tokenizer.set(Arc::downgrade(&config.tokenizer)).unwrap();
    let run = bench::run(&config).unwrap();
    assert_eq!(run.counts[2].content, 9);
    // Threads cannot borrow it, so they would hold it.
    assert_eq!(holders.load(Ordering::SeqCst), 1, "the configuration alone");
}

#[test]
fn counts_are_kept_or_dropped_one_by_one_and_the_first_bad_type_is_named() {
    for (bad, found) in [
        ("7.0", "a float"),
        ("true", "a bool"),
        ("\"7\"", "a string"),
        ("-7", "negative"),
        ("1180591620717411303424", "above 2^40"),
        ("[7]", "an array"),
    ] {
        let completion = usage(&format!(r#""prompt_tokens":7,"completion_tokens":{bad}"#));
        let prompt = usage(&format!(r#""prompt_tokens":{bad},"completion_tokens":6"#));
        let fake = Fake::new(move |post| match post {
            0 => of(&GOOD),
            1 => of(&[ROLE, TEXT, MORE, &completion, "[DONE]"]),
            _ => of(&[ROLE, TEXT, MORE, &prompt, "[DONE]"]),
        });
        let config = by_server(&fake);
        let run = bench::run(&config).unwrap();
        let expected = Malformed {
            request: 1,
            samples: 2,
            name: "completion_tokens",
            found,
        };
        assert_eq!(run.malformed, Some(expected));
        let summary = Summary::new(&run, &config);
        assert_eq!((summary.n_samples_completed, summary.exit_code()), (3, 4));
        assert_eq!(summary.n_samples_missing_usage, 1);
        let blocks = [
            summary.input_sequence_lengths,
            summary.output_sequence_lengths,
        ];
        let blocks = blocks.map(|block| block.map(|block| (block.count, block.max, block.partial)));
        assert_eq!(blocks, [Some((2, 7, true)), Some((2, 6, true))]);
    }
    let fake = Fake::always(stream(&GOOD));
    assert_eq!(fake.run().malformed, None);
}

#[test]
fn a_primary_basis_that_lacks_a_prompts_count_is_incomplete_too() {
    let fake = Fake::new(|_| {
        of(&[
            ROLE,
            TEXT,
            MORE,
            &usage(r#""completion_tokens":6"#),
            "[DONE]",
        ])
    });
    let server = summary(&by_server(&fake));
    assert_eq!((server.n_samples_missing_usage, server.exit_code()), (0, 4));
    assert_eq!(server.input_sequence_lengths, None);
    let text = report::text(&server);
    assert!(text.contains("lack a count of their prompt"), "{text}");
    assert_eq!(summary(&fake.config()).exit_code(), 0);
}

#[test]
fn a_failed_sample_outweighs_missing_counts() {
    let fake = Fake::new(|post| match post {
        0 => whole(500, "no"),
        _ => of(&[ROLE, TEXT, MORE, "[DONE]"]),
    });
    assert_eq!(summary(&by_server(&fake)).exit_code(), 1);
}

#[test]
fn usage_that_is_off_is_only_missed_by_streams() {
    let body = r#"{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    let fake = Fake::new(move |_| whole(200, body));
    let config = Config {
        include_usage: false,
        stream: false,
        ..by_server(&fake)
    };
    assert_eq!(summary(&config).exit_code(), 0);
    let error = bench::run(&Config {
        stream: true,
        ..config
    });
    assert!(error.unwrap_err().is::<UsageError>());
    assert_eq!(fake.seen().len(), 3);
}

/// Two choices, each in parts that come in turn; the words end where parts do not.
const TURNS: [&str; 6] = [
    r#"{"choices":[{"index":0,"delta":{"content":"on"}}]}"#,
    r#"{"choices":[{"index":1,"delta":{"reasoning":"hm "}}]}"#,
    r#"{"choices":[{"index":1,"delta":{"content":"tw"}}]}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"e two"}}]}"#,
    r#"{"choices":[{"index":1,"delta":{"content":"o "}}]}"#,
    "[DONE]",
];

fn several(fake: &Fake) -> Config {
    Config {
        n: 2,
        tokenizer: Tokenizer::named("word").unwrap().into(),
        ..fake.config()
    }
}

#[test]
fn several_answers_are_counted_apart_and_summed_and_usage_is_not_asked_for() {
    let fake = Fake::new(|_| of(&TURNS));
    let config = several(&fake);
    let run = bench::run(&config).unwrap();
    let counts = run.counts[0];
    // "one two", "two " and "hm ": as they came they would be read as fewer words.
    assert_eq!((counts.content, counts.reasoning), (4, 2), "{counts:?}");
    assert_eq!(&*run.records[0].content, "ontwe twoo ");
    let body = &fake.seen()[0].body;
    assert!(body.ends_with(r#""n":2,"stream":true}"#), "{body}");
    assert_eq!(Summary::new(&run, &config).exit_code(), 0);
    let server = Config {
        token_count_source: TokenCountSource::Server,
        ..config.clone()
    };
    assert_eq!(summary(&server).exit_code(), 4);
    let mut extra = Config { n: 1, ..config };
    extra.extra_body.insert("n".into(), 2.into());
    assert_eq!(bench::run(&extra).unwrap().counts[0], counts);
    let body = fake.seen().pop().unwrap().body;
    assert!(body.contains("stream_options"), "{body}");
}

#[test]
fn several_native_answers_are_counted_apart_too() {
    let frame = |index: u8, text: &str| {
        format!(r#"{{"text":"{text}","meta_info":{{"completion_tokens":5}},"index":{index}}}"#)
    };
    let whole = [
        frame(0, "on"),
        frame(1, "tw"),
        frame(0, "one two"),
        frame(1, "two "),
    ];
    let new = [
        frame(0, "on"),
        frame(1, "tw"),
        frame(0, "e two"),
        frame(1, "o "),
    ];
    for frames in [whole, new] {
        let fake = Fake::new(move |_| {
            let events = frames.iter().map(|frame| &**frame).chain(["[DONE]"]);
            of(&events.collect::<Vec<_>>())
        });
        let mut config = Config {
            dialect: Dialect::Sglang,
            endpoint: Endpoint::Generate,
            token_count_source: TokenCountSource::Server,
            ..several(&fake)
        };
        let run = bench::run(&config).unwrap();
        let usage = run.records[0].usage.unwrap();
        assert_eq!(
            (run.counts[0].content, usage.completion_tokens),
            (4, Some(10))
        );
        let body = fake.seen().pop().unwrap().body;
        assert!(body.contains(r#""n":2"#), "{body}");
        let params = json!({"n": 2});
        config.extra_body.insert("sampling_params".into(), params);
        assert!(bench::run(&config).unwrap_err().is::<UsageError>());
        config.n = 1;
        assert_eq!(bench::run(&config).unwrap().counts[0].content, 4);
    }
}

#[test]
fn several_whole_answers_are_summed_on_either_basis() {
    let body = r#"{"choices":[{"index":0,"message":{"content":"one two"}},{"index":1,"message":{"content":"two "}}],
        "usage":{"prompt_tokens":1,"completion_tokens":9}}"#;
    let fake = Fake::new(move |_| whole(200, body));
    for source in [TokenCountSource::Client, TokenCountSource::Server] {
        let config = Config {
            stream: false,
            token_count_source: source,
            ..several(&fake)
        };
        let summary = summary(&config);
        assert_eq!(summary.exit_code(), 0);
        let output = summary.output_sequence_lengths.unwrap();
        let expected = match source {
            TokenCountSource::Client => 4,
            TokenCountSource::Server => 9,
        };
        assert_eq!((output.max, output.partial), (expected, false));
    }
}

const CALL: [&str; 3] = [
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"sum","arguments":""}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}"#,
];

#[test]
fn each_answer_is_counted_by_its_rule() {
    let think = r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#;
    let fake = Fake::new(move |post| match post {
        0 => of(&GOOD),
        1 => of(&[ROLE, think, TEXT, MORE, USAGE, "[DONE]"]),
        _ => of(&[ROLE, CALL[0], CALL[1], CALL[2], USAGE, "[DONE]"]),
    });
    let config = fake.config();
    let run = bench::run(&config).unwrap();
    let folder = Folder::new();
    report::write_folder(&folder.0, &run, &config, &Summary::new(&run, &config)).unwrap();
    let accounting: Value = serde_json::from_str(&folder.read("token_accounting.json")).unwrap();
    let samples = accounting["samples"].as_array().unwrap();
    let told: Vec<Value> = samples
        .iter()
        .map(|sample| {
            let output = &sample["output"];
            let keys = [
                "rule",
                "by_rule",
                "retokenized",
                "content",
                "reasoning",
                "tools",
                "per_chunk",
                "usage",
            ];
            keys.map(|key| output[key].clone()).into_iter().collect()
        })
        .collect();
    assert_eq!(
        told,
        [
            json!(["O-2", 9, 9, 9, 0, 0, 9, 6]),
            json!(["O-3", 11, 11, 9, 2, 0, 11, 6]),
            // "sum" and the arguments.
            json!(["O-4", 10, 10, 0, 0, 10, 10, 6]),
        ]
    );
    assert_eq!(
        accounting["rules"],
        json!({"I-2": 3, "O-2": 1, "O-3": 1, "O-4": 1})
    );
    assert_eq!(
        accounting["constants"],
        json!({"end_token": 0, "delimiters": 0, "tool_structure": 0})
    );
    assert_eq!(accounting["aggregate"]["output_by_rule"]["max"], 11);
}

#[test]
fn both_names_of_reasoning_count_once() {
    for delta in [
        r#"{"reasoning":"hm"}"#,
        r#"{"reasoning_content":"hm"}"#,
        r#"{"reasoning":"hm","reasoning_content":"hm"}"#,
        r#"{"content":"","reasoning":"hm"}"#,
    ] {
        let think = format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#);
        let fake = Fake::new(move |_| of(&[ROLE, &think, MORE, USAGE, "[DONE]"]));
        let run = fake.run();
        assert_eq!((run.counts[0].reasoning, run.counts[0].content), (2, 4));
        // The thought is what the time to first token counts to.
        let record = &run.records[0];
        assert_eq!((record.texts.len(), record.texts[0].reasoning), (2, 2));
    }
}
