//! Usage where servers put it, or leave it out.

use harness::bench::{self, Config};
use harness::report::Summary;
use serde_json::Value;
use wire::request::Endpoint;
use wire::usage::Usage;

use crate::counts::{by_server, of, summary, usage};
use crate::fake::{Fake, GOOD, MORE, ROLE, Reply, TEXT, USAGE, stream};

#[test]
fn usage_is_found_wherever_it_stands_and_counts_once() {
    let with_choices = r#"{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":6}}"#;
    let so_far = |count: u8| {
        format!(
            r#"{{"choices":[{{"delta":{{"content":"h"}}}}],"usage":{{"prompt_tokens":7,"completion_tokens":{count}}}}}"#
        )
    };
    let empty = r#"{"choices":[]}"#;
    let text_and_finish =
        r#"{"choices":[{"delta":{"content":"h"},"finish_reason":"length"}],"usage":null}"#;
    let (two, six) = (so_far(2), so_far(6));
    for events in [
        // An event without choices comes first; one behind the usage says nothing.
        vec![empty, TEXT, MORE, USAGE, empty, "[DONE]"],
        vec![ROLE, TEXT, with_choices, empty, "[DONE]"],
        // The same twice.
        vec![ROLE, TEXT, with_choices, USAGE, "[DONE]"],
        // With every chunk, asked for or not.
        vec![ROLE, &two, &six, "[DONE]"],
        // Nothing but null before it, and text beside the finish reason.
        vec![ROLE, text_and_finish, USAGE, "[DONE]"],
    ] {
        let events: Vec<String> = events.into_iter().map(str::to_owned).collect();
        let fake = Fake::new(move |_| of(&events.iter().map(|event| &**event).collect::<Vec<_>>()));
        let run = bench::run(&by_server(&fake)).unwrap();
        let record = &run.records[0];
        let usage = record.usage.unwrap();
        assert_eq!(
            (record.failure, usage.prompt_tokens, usage.completion_tokens),
            (None, Some(7), Some(6))
        );
        assert!(record.content.starts_with('h'));
        assert_eq!(fake.seen().len(), 3, "none is sent again");
    }
}

#[test]
fn prompts_told_of_in_parts_count_as_the_last_and_empty_texts_are_none() {
    let early = |prompt: u64| {
        format!(
            r#"{{"choices":[{{"delta":{{"content":""}}}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":0}}}}"#
        )
    };
    let (first, second) = (early(512), early(1000));
    let last = usage(r#""prompt_tokens":1000,"completion_tokens":6"#);
    let fake = Fake::new(move |_| of(&[ROLE, &first, &second, TEXT, MORE, &last, "[DONE]"]));
    let config = Config {
        keep_events: true,
        ..by_server(&fake)
    };
    let run = bench::run(&config).unwrap();
    let (record, counts) = (&run.records[0], &run.counts[0]);
    let usage = record.usage.unwrap();
    assert_eq!(usage.total_tokens(), Some(1006));
    // Six events, of which the fourth is the first with text.
    assert_eq!((record.events.len(), counts.chunks), (6, 2));
    assert_eq!(record.first_ns(), Some(record.events[3].0));
}

#[test]
fn what_follows_the_finish_is_read_before_the_connection_is_used_again() {
    let bytes = stream(&GOOD);
    let finish = bytes.windows(4).position(|window| window == b"stop");
    let (front, back) = bytes.split_at(finish.unwrap() + 10);
    let parts = vec![front.to_vec(), back.to_vec()];
    let fake = Fake::new(move |_| Reply {
        parts: parts.clone(),
        close: false,
    });
    let run = fake.run();
    let usages = run.records.iter().map(|record| record.usage);
    assert!(usages.eq([Some(Usage::new(7, 6)); 3]));
    let connections = fake.seen().into_iter().map(|seen| seen.connection);
    assert!(connections.is_sorted_by(|a, b| a == b));
}

#[test]
fn usage_that_nobody_asked_for_is_taken_and_spoils_nothing() {
    let fake = Fake::always(stream(&GOOD));
    let config = Config {
        include_usage: false,
        ..fake.config()
    };
    let summary = summary(&config);
    assert_eq!(
        (summary.exit_code(), summary.n_samples_missing_usage),
        (0, 0)
    );
    assert!(!fake.seen()[0].body.contains("stream_options"));
}

#[test]
fn absent_null_and_empty_usage_are_unknown_and_never_zero() {
    for tail in [
        "",
        r#"{"choices":[],"usage":null}"#,
        r#"{"choices":[],"usage":{}}"#,
    ] {
        let fake = Fake::new(move |_| match tail {
            "" => of(&[ROLE, TEXT, MORE, "[DONE]"]),
            _ => of(&[ROLE, TEXT, MORE, tail, "[DONE]"]),
        });
        let config = by_server(&fake);
        let run = bench::run(&config).unwrap();
        assert_eq!(run.malformed, None, "what is missing is not malformed");
        let summary = serde_json::to_value(Summary::new(&run, &config)).unwrap();
        for key in ["output_sequence_lengths", "tpot", "tps", "osl_paired"] {
            assert_eq!(summary[key], Value::Null, "{tail} {key}");
        }
        assert_eq!(summary["n_samples_missing_usage"], 3);
    }
}

#[test]
fn zeros_are_counts_and_nothing_is_divided_by_them() {
    let zeros = usage(r#""prompt_tokens":0,"completion_tokens":0"#);
    let fake = Fake::new(move |_| of(&[ROLE, TEXT, MORE, &zeros, "[DONE]"]));
    let summary = summary(&by_server(&fake));
    assert_eq!((summary.exit_code(), summary.tpot), (0, None));
    let paired = summary.osl_paired.unwrap();
    assert_eq!((paired.mean_diff, paired.ratio), (9.0, None));
}

#[test]
fn an_empty_finish_reason_and_no_end_are_no_finish() {
    let legacy = r#"{"id":"","choices":[{"index":0,"text":"x","finish_reason":""}],"usage":null}"#;
    let fake = Fake::new(move |_| of(&[legacy, legacy]));
    let config = Config {
        endpoint: Endpoint::Completions,
        ..fake.config()
    };
    let summary = summary(&config);
    assert_eq!(summary.errors["no_done"], 3);
}
