//! Bodies that vLLM's own request models answered, and what our reading of them says.

use wire::dialect::Dialect;
use wire::request::Endpoint;

const CASES: &str = include_str!("../../../fixtures/wire/vllm-0.33.0-schema/cases.jsonl");

/// What is not imitated: a part of the body, how many cases have it, why.
const KNOWN: &[(&str, usize, &str)] = &[
    (
        "structured_outputs",
        52,
        "grammars have checks of their own",
    ),
    (
        "repetition_detection",
        7,
        "a data class with checks of its own",
    ),
    ("structural_tag", 6, "judged by a grammar library"),
    ("tool_calls", 12, "their items are checked lazily"),
    (
        "tool_choice",
        11,
        "tools of the wrong shape raise Python exceptions",
    ),
    (
        "\"role\": \"tool\", \"content\": [5]",
        1,
        "content parts are not checked",
    ),
    ("logprob_token_ids", 1, "its check against echo is left out"),
    ("\\ud800", 2, "a lone surrogate cannot be shown again"),
];

#[derive(serde::Deserialize)]
struct Case {
    answer: Option<String>,
    body: String,
    endpoint: String,
}

fn answer(case: &Case) -> Option<String> {
    let endpoint = match case.endpoint.as_str() {
        "chat" => Endpoint::Chat,
        _ => Endpoint::Completions,
    };
    let json = Some("application/json");
    let failure = Dialect::VLLM
        .parse(endpoint, json, case.body.as_bytes())
        .err()?;
    let mut out = Vec::new();
    failure.encode(&mut out);
    Some(String::from_utf8_lossy(&out).into_owned())
}

#[test]
fn answers_are_those_of_the_real_models() {
    let mut known = vec![0; KNOWN.len()];
    let mut different = Vec::new();
    for line in CASES.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let ours = answer(&case);
        if ours == case.answer {
            continue;
        }
        match KNOWN.iter().position(|(part, ..)| case.body.contains(part)) {
            Some(index) => known[index] += 1,
            None => different.push(format!(
                "{} {}\n  theirs {:?}\n  ours   {ours:?}",
                case.endpoint, case.body, case.answer
            )),
        }
    }
    assert!(
        different.is_empty(),
        "these differ:\n{}",
        different.join("\n")
    );
    let expected: Vec<usize> = KNOWN.iter().map(|(_, count, _)| *count).collect();
    assert_eq!(known, expected, "of {} cases", CASES.lines().count());
}
