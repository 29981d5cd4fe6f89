//! Chunks there and back: the fast path against the typed encoder, decoding against encoding.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::borrow::Cow;
use std::sync::Arc;

use proptest::prelude::*;
use wire::chunk::{Choice, Chunk, Delta, Gist, Reader};
use wire::dialect::{Dialect, Encoder, Envelope, Field};
use wire::finish::{Finish, FinishReason, StopReason};
use wire::http1;
use wire::request::{Endpoint, UsagePolicy};
use wire::sse;
use wire::usage::Usage;

fn envelope(endpoint: Endpoint, usage: UsagePolicy) -> Envelope {
    Envelope {
        created: 1_700_000_000,
        fingerprint: Some("fp".into()),
        usage,
        ..Envelope::new(endpoint, "an \"id\"".into(), "\"content\":\"model".into())
    }
}

fn dialects() -> impl Strategy<Value = Dialect> {
    let names: Vec<&str> = Dialect::names().collect();
    prop::sample::select(names).prop_map(|name| Dialect::named(name).unwrap())
}

fn endpoints() -> impl Strategy<Value = Endpoint> {
    prop::sample::select(vec![Endpoint::Chat, Endpoint::Completions])
}

fn policies() -> impl Strategy<Value = UsagePolicy> {
    let all = vec![
        UsagePolicy::Continuous,
        UsagePolicy::Final,
        UsagePolicy::Omit,
    ];
    prop::sample::select(all)
}

fn finishes() -> impl Strategy<Value = Finish<'static>> {
    let reasons = vec![
        FinishReason::Abort,
        FinishReason::Length,
        FinishReason::Repetition,
        FinishReason::Stop,
    ];
    let stop_reason = prop_oneof![
        any::<u32>().prop_map(StopReason::Token),
        any::<String>().prop_map(|text| StopReason::Text(text.into())),
    ];
    (prop::sample::select(reasons), prop::option::of(stop_reason)).prop_map(
        |(reason, stop_reason)| Finish {
            reason,
            stop_reason,
        },
    )
}

fn usages() -> impl Strategy<Value = Usage> {
    (
        0_u64..1 << 40,
        0_u64..1 << 40,
        prop::option::of(0_u64..1 << 40),
    )
        .prop_map(|(prompt, completion, reasoning_tokens)| Usage {
            reasoning_tokens,
            ..Usage::new(prompt, completion)
        })
}

/// A chunk that a server can send on that route.
fn chunks(endpoint: Endpoint) -> impl Strategy<Value = Chunk<'static>> {
    let text = || prop::option::of(any::<String>().prop_map(Cow::from));
    let delta = match endpoint {
        Endpoint::Chat => (text(), text())
            .prop_map(|(content, reasoning)| Delta {
                content,
                reasoning,
                ..Delta::default()
            })
            .boxed(),
        Endpoint::Completions | Endpoint::Generate => any::<String>()
            .prop_map(|text| Delta {
                content: Some(text.into()),
                ..Delta::default()
            })
            .boxed(),
    };
    let ids = prop::option::of(prop::collection::vec(any::<u32>(), 0..4));
    let choice = (0_u32..5, delta, prop::option::of(finishes()), ids).prop_map(
        |(index, delta, finish, token_ids)| Choice {
            delta,
            finish,
            index,
            token_ids,
            ..Choice::default()
        },
    );
    (prop::option::of(choice), prop::option::of(usages())).prop_map(|(choice, usage)| Chunk {
        choices: choice.into_iter().collect(),
        usage,
        ..Chunk::default()
    })
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

proptest! {
    #[test]
    fn patterns_write_what_the_typed_encoder_writes(
        dialect in dialects(),
        (endpoint, chunks) in endpoints().prop_flat_map(|endpoint| {
            (Just(endpoint), prop::collection::vec(chunks(endpoint), 1..6))
        }),
        policy in policies(),
        answers in prop::collection::vec((".{0,9}", any::<u32>(), "m|n"), 1..4),
        roles in prop::collection::vec(prop::sample::select(vec![None, Some("assistant"), Some("user")]), 1..4),
    ) {
        let patterns = Arc::default();
        for (id, created, model) in answers {
            let envelope = Envelope {
                created: created.into(),
                id,
                model: model.into(),
                ..envelope(endpoint, policy)
            };
            let mut encoder = Encoder::new(dialect, envelope.clone(), Arc::clone(&patterns));
            for (chunk, role) in chunks.iter().zip(roles.iter().cycle()) {
                let mut chunk = chunk.clone();
                for choice in &mut chunk.choices {
                    choice.delta.role = role.filter(|_| endpoint == Endpoint::Chat).map(Cow::from);
                }
                let (mut json, mut typed) = (Vec::new(), Vec::new());
                dialect.encode(&envelope, &chunk, &mut Vec::new(), &mut json);
                sse::encode(&json, &mut typed);
                let mut fast = Vec::new();
                encoder.event(&chunk, &mut fast);
                prop_assert_eq!(text(fast), text(typed));

                let (mut typed, mut fast) = (Vec::new(), Vec::new());
                dialect.encode_whole(&envelope, &chunk, &mut typed);
                encoder.whole(&chunk, &mut fast);
                prop_assert_eq!(text(fast), text(typed));
            }
        }
    }

    #[test]
    fn templates_write_chunks_of_what_the_typed_encoder_writes(
        dialect in dialects(),
        endpoint in endpoints(),
        field in prop::sample::select(vec![Field::Content, Field::Reasoning]),
        texts in prop::collection::vec(".{0,2}|\\PC{0,9}", 1..4),
        index in 0_u32..3,
        is_plain in any::<bool>(),
    ) {
        let field = if endpoint == Endpoint::Chat { field } else { Field::Content };
        let mut envelope = envelope(endpoint, UsagePolicy::Omit);
        // What no pattern has room for, though it does not show here.
        envelope.prompt_text = (!is_plain).then(String::new);
        let mut encoder = Encoder::new(dialect, envelope.clone(), Arc::default());
        for said in &texts {
            let of = |one| (field == one).then(|| Cow::from(&**said));
            let delta = Delta {
                content: of(Field::Content),
                reasoning: of(Field::Reasoning),
                ..Delta::default()
            };
            let chunk = Chunk {
                choices: vec![Choice { delta, index, ..Choice::default() }],
                ..Chunk::default()
            };
            let (mut json, mut event) = (Vec::new(), Vec::new());
            dialect.encode(&envelope, &chunk, &mut Vec::new(), &mut json);
            sse::encode(&json, &mut event);
            let (mut typed, mut fast) = (Vec::new(), Vec::new());
            http1::write_chunk(&mut typed, |out| out.extend_from_slice(&event));
            let bytes = encoder.template(index, field).write_chunk(said, &mut fast);
            prop_assert_eq!(bytes, event.len());
            prop_assert_eq!(text(fast), text(typed));
        }
    }

    #[test]
    fn chunks_of_one_length_are_those_written_one_by_one(
        dialect in dialects(),
        endpoint in endpoints(),
        said in "[a-e\"\né ]{0,24}|[a-e]{0,24}",
        each in 0_usize..5,
    ) {
        let envelope = envelope(endpoint, UsagePolicy::Omit);
        let mut encoder = Encoder::new(dialect, envelope, Arc::default());
        let mut together = b"before".to_vec();
        let template = encoder.template(0, Field::Content);
        let Some(bytes) = template.write_chunks(&said, each, &mut together) else {
            prop_assert_eq!(together, b"before");
            return Ok(());
        };
        let mut one_by_one = b"before".to_vec();
        for start in (0..said.len()).step_by(each) {
            let part = &said[start..start + each];
            prop_assert_eq!(bytes, template.write_chunk(part, &mut one_by_one));
        }
        prop_assert_eq!(text(together), text(one_by_one));
    }

    #[test]
    fn decoding_undoes_encoding(
        dialect in dialects().prop_filter("SGLang leaves more out", |dialect| dialect.name() == "vllm"),
        (endpoint, chunk) in endpoints().prop_flat_map(|endpoint| (Just(endpoint), chunks(endpoint))),
        policy in policies(),
    ) {
        let mut json = Vec::new();
        dialect.encode(&envelope(endpoint, policy), &chunk, &mut Vec::new(), &mut json);
        let (mut expected, mut decoded) = (chunk, Chunk::decode(&json).unwrap());
        if let Some(usage) = &mut expected.usage {
            // The profile of an older version has no such count.
            usage.reasoning_tokens = usage.reasoning_tokens.filter(|_| dialect.is_proven());
        }
        if endpoint == Endpoint::Chat && matches!(dialect, Dialect::Sglang(_)) {
            // SGLang has the ids of a chat elsewhere, where no client reads them.
            expected.choices.iter_mut().for_each(|choice| choice.token_ids = None);
        }
        for usage in [&mut expected.usage, &mut decoded.usage].into_iter().flatten() {
            // SGLang always writes it, be it 0.
            usage.reasoning_tokens.get_or_insert(0);
        }
        prop_assert_eq!(decoded, expected);
    }

    #[test]
    fn a_reader_reads_what_the_decoder_decodes(
        jsons in prop::collection::vec(spelt(), 1..16),
    ) {
        let mut reader = Reader::default();
        for json in &jsons {
            let mut before = reader.clone();
            if let Some(gist) = before.read_known_line(json) {
                prop_assert!(!json.contains(&b'\n') && !json.contains(&b'\r'));
                prop_assert_eq!(Some(gist), reader.clone().read(json).ok());
            }
            let decoded = Chunk::decode(json).map(Gist::from);
            let read = reader.read(json);
            prop_assert_eq!(
                read.map_err(|error| error.to_string()),
                decoded.map_err(|error| error.to_string()),
                "{}",
                String::from_utf8_lossy(json)
            );
        }
    }
}

/// Chunks as servers spell them: some good, some odd, some damaged.
fn spelt() -> impl Strategy<Value = Vec<u8>> {
    let damage = prop_oneof![
        3 => Just(None),
        1 => (any::<prop::sample::Index>(), prop::option::of(special())).prop_map(Some),
    ];
    let id = prop_oneof![
        2 => Just("chatcmpl-0".to_owned()),
        2 => Just("chatcmpl-11".to_owned()),
        1 => string(),
    ];
    let parts = (shape(), id, string(), usage(), damage);
    parts.prop_map(|(shape, id, text, usage, damage)| {
        let json = shape.replace("ID", &id).replace("TEXT", &text);
        let mut json = json.replace("USAGE", &usage).into_bytes();
        if let Some((index, byte)) = damage {
            let at = index.index(json.len());
            json.splice(at..=at, byte);
        }
        json
    })
}

/// With places for an id, a text and a usage.
fn shape() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        r#"{"id":"ID","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
        r#"{"id":"ID","choices":[{"index":0,"delta":{"content":"TEXT"},"finish_reason":null}]}"#,
        r#"{"id":"ID","choices":[{"delta":{"reasoning":"TEXT","content":"TEXT"}}],"usage":USAGE}"#,
        r#"{"id":"ID","usage":USAGE,"choices":[{"text":"TEXT","finish_reason":"stop"}]}"#,
        r#"{"id":"ID","choices":[],"usage":USAGE,"created":1}"#,
        r#"{"id":"ID","choices":[{"message":{"content":"TEXT"}}],"error":null,"id":"TEXT"}"#,
        r#"{"id":"ID","choices":[{"delta":{"content":"TEXT"}},{"delta":{"content":"TEXT"}}]}"#,
        r#"{"id":"ID","choices":[{"delta":{"tool_calls":[{"id":"TEXT"}]}}]}"#,
        r#"{"id":"ID","error":{"message":"TEXT"},"usage":USAGE}"#,
        "{\"choices\":\n[{\"delta\":{\"content\": \"TEXT\"}}],\r\"usage\": USAGE} ",
        r#"{"choices":[{"delta":{"content":"TEXT"}}],"usage":{"prompt_tokens":USAGE}}"#,
    ])
}

/// The inside of a string: plain, escaped, or not allowed.
fn string() -> impl Strategy<Value = String> {
    let escaped = any::<String>().prop_map(|text| {
        let quoted = serde_json::to_string(&text).unwrap();
        quoted[1..quoted.len() - 1].to_owned()
    });
    let odd = vec![
        "", "\\", "\"", "\\\"", "\\ud800", "\\u0041", "\u{1}", "\\x", "a\\", "\u{7f}",
    ];
    prop_oneof![
        "[ -~]{0,12}",
        escaped,
        prop::sample::select(odd).prop_map(str::to_owned)
    ]
}

fn usage() -> impl Strategy<Value = String> {
    let count = || {
        let odd = vec![
            "null",
            "0",
            "01",
            "-1",
            "1.5",
            "1e3",
            "true",
            "\"5\"",
            "1099511627777",
            "999999999999",
            "",
        ];
        prop_oneof![
            any::<u16>().prop_map(|count| count.to_string()),
            prop::sample::select(odd).prop_map(str::to_owned),
        ]
    };
    let keys = vec![
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "prompt_t\\u006fkens",
    ];
    let member =
        (prop::sample::select(keys), count()).prop_map(|(key, count)| format!("\"{key}\":{count}"));
    let object = prop::collection::vec(member, 0..4)
        .prop_map(|members| format!("{{{}}}", members.join(",")));
    prop_oneof![
        3 => (any::<u16>(), any::<u16>()).prop_map(|(prompt, completion)| {
            format!(r#"{{"prompt_tokens":{prompt},"total_tokens":9,"completion_tokens":{completion}}}"#)
        }),
        2 => object,
        1 => count(),
    ]
}

fn special() -> impl Strategy<Value = u8> {
    prop_oneof![
        prop::sample::select(b"\"\\{}[],:0\x00\x80\xff ".to_vec()),
        any::<u8>(),
    ]
}

/// Which chunks were read without the decoder shows in what they cost; here, that each is understood.
#[test]
fn a_stream_with_changing_ids_texts_and_counts_is_read() {
    let mut reader = Reader::default();
    for round in 0..3 {
        for (content, usage) in [("", 0), ("a", 1), ("b\\n", 2), ("é", 3)] {
            let json = format!(
                r#"{{"id":"{round}","choices":[{{"delta":{{"content":"{content}"}}}}],"usage":{{"completion_tokens":{usage}}}}}"#
            );
            let gist = reader.read(json.as_bytes()).unwrap();
            assert_eq!(*gist.content, *content.replace("\\n", "\n").as_bytes());
            assert_eq!(gist.says_something(), usage > 0);
            assert_eq!(gist.usage.unwrap().completion_tokens, Some(usage));
        }
    }
}
