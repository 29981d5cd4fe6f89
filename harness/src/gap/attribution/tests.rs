use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

static TOKENIZERS: LazyLock<[Tokenizer; 4]> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/tokenizers/bpe");
    [folder, "byte", "char", "word"]
        .map(|name| Tokenizer::find(name, |path| std::fs::read_to_string(path).ok()).unwrap())
});

fn bpe() -> &'static Tokenizer {
    &TOKENIZERS[0]
}

fn usage(count: usize) -> Usage {
    Usage::new(1, count as u64)
}

/// What a server without mistakes makes of a text: its ids, an end token behind them, and its count.
fn served(text: &str, choice: Choice) -> Answer {
    let bpe = bpe();
    let mut ids = bpe.vocab.encode(text, false);
    if choice.finish == Some(FinishReason::Stop) {
        ids.push(bpe.eos_token_ids[0]);
    }
    Answer {
        usage: Some(usage(ids.len())),
        choices: vec![Choice {
            tokens: Tokens::Ids(ids),
            ..choice
        }],
        chunks: 1,
    }
}

fn choice(reasoning: &str, content: &str, calls: &[(&str, &str)]) -> Choice {
    let call = |&(name, arguments): &(&str, &str)| Call {
        name: name.into(),
        arguments: arguments.into(),
    };
    Choice {
        content: content.into(),
        reasoning: reasoning.into(),
        calls: calls.iter().map(call).collect(),
        finish: Some(FinishReason::Stop),
        ..Choice::default()
    }
}

fn found(answer: &Answer) -> Attribution {
    attribute(answer, bpe(), &Flavour::default(), Counted::All)
}

/// Causes as words, in the order of reports.
fn said(attribution: &Attribution) -> String {
    let causes = attribution.explained.iter();
    let causes: Vec<String> = causes
        .map(|(cause, tokens)| format!("{} {tokens}", cause.as_str()))
        .collect();
    assert_eq!(attribution.unexplained, 0, "{attribution:?}");
    causes.join(", ")
}

const TOOL: &str = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

/// Each text, told so, has these causes.
fn have_causes<'a>(told: impl IntoIterator<Item = (&'a str, Choice, &'a str)>) {
    for (text, choice, causes) in told {
        let attribution = found(&served(text, choice));
        assert_eq!(said(&attribution), causes, "{text}");
        assert_eq!(attribution.basis, Basis::TokenIds);
    }
}

const THOUGHT: &str = "<think>\nHm.\n</think>\n\nYes";

#[test]
fn each_token_of_a_known_answer_has_its_cause() {
    have_causes([
        (
            "Hello there.",
            choice("", "Hello there.", &[]),
            "end_token 1",
        ),
        (
            THOUGHT,
            choice("\nHm.\n", "\n\nYes", &[]),
            "delimiters 2, end_token 1",
        ),
        (
            THOUGHT,
            choice("Hm.", "Yes", &[]),
            "delimiters 2, whitespace 2, end_token 1",
        ),
        (
            THOUGHT,
            choice("", "<think>\nHm.\n</think>\n\nYes", &[]),
            "end_token 1",
        ),
        (
            THOUGHT,
            choice("", "Yes", &[]),
            "delimiters 2, whitespace 2, hidden_reasoning 3, end_token 1",
        ),
        (
            "Hm.</think>Yes",
            choice("", "Yes", &[]),
            "delimiters 1, hidden_reasoning 3, end_token 1",
        ),
        (
            "A<|im_start|>B",
            choice("", "AB", &[]),
            "end_token 1, special_tokens 1, retokenization 1",
        ),
    ]);
}

#[test]
fn calls_are_structure_and_arguments_unless_they_are_told_as_text() {
    have_causes([
        (
            &*format!("So.\n{TOOL}"),
            choice("", "So.", &[("f", "{\"a\": 1}")]),
            "tool_structure 16, tool_arguments 6, end_token 1",
        ),
        (
            &format!("{TOOL}\n{TOOL}"),
            choice("", "", &[("f", "{\"a\":1}"), ("f", "{\"a\":1}")]),
            "whitespace 1, tool_structure 32, tool_arguments 12, end_token 1",
        ),
        (
            "[{\"name\": \"f\", \"parameters\": {\"a\": 1}}]",
            choice("", "", &[("f", "{\"a\": 1}")]),
            "tool_structure 16, tool_arguments 6, end_token 1",
        ),
        (
            &format!("Hm.{TOOL}"),
            choice("Hm.", TOOL, &[]),
            "end_token 1",
        ),
    ]);
}

#[test]
fn stops_cuts_and_other_cuttings_have_their_cause() {
    let stopped = Choice {
        stop: Some(StopReason::Text(" STOP".into())),
        ..choice("", "one two", &[])
    };
    let attribution = found(&served("one two STOP", stopped));
    assert_eq!(said(&attribution), "end_token 1, stop_string 2");

    let comma = bpe().vocab.encode(",", false)[0];
    let stopped = Choice {
        stop: Some(StopReason::Token(comma)),
        ..choice("", "one", &[])
    };
    let mut answer = served("one", stopped);
    answer.choices[0].tokens = Tokens::Ids(bpe().vocab.encode("one,", false));
    answer.usage = Some(usage(2));
    assert_eq!(said(&found(&answer)), "stop_token 1");

    let cut = Choice {
        finish: Some(FinishReason::Length),
        ..choice("", "a ", &[])
    };
    let mut answer = served("a 🦀", cut);
    let Tokens::Ids(ids) = &mut answer.choices[0].tokens else {
        panic!("ids were given");
    };
    ids.pop();
    answer.usage = Some(usage(ids.len()));
    assert!(said(&found(&answer)).contains("split_characters"));
    answer.choices[0].content.push(char::REPLACEMENT_CHARACTER);
    assert!(!said(&found(&answer)).contains("split_characters"));

    let mut letters = served("", choice("", "Hello", &[]));
    let bpe = bpe();
    let ids = "Hello"
        .chars()
        .flat_map(|letter| bpe.vocab.encode(&letter.to_string(), false));
    letters.choices[0].tokens = Tokens::Ids(ids.collect());
    letters.usage = Some(usage(5));
    assert_eq!(said(&found(&letters)), "retokenization 3");
}

#[test]
fn tokens_by_name_are_as_good_as_ids() {
    let texts = ["<think>", "Hm", "</think>", "", "é", "<|im_end|>"].map(Into::into);
    let mut answer = served("", choice("Hm", "é", &[]));
    answer.choices[0].tokens = Tokens::Texts(texts.into());
    answer.usage = Some(usage(6));
    let attribution = found(&answer);
    assert_eq!(said(&attribution), "delimiters 2, end_token 1");
    assert_eq!(attribution.basis, Basis::Logprobs);
    let named = ["token_id:3036", "token_id:363", "token_id:4089"].map(Into::into);
    answer.choices[0] = Choice {
        tokens: Tokens::Texts(named.into()),
        ..choice("", "Hello", &[])
    };
    answer.usage = Some(usage(3));
    assert_eq!(said(&found(&answer)), "end_token 1");
}

#[test]
fn without_tokens_the_text_is_rendered_again() {
    for (text, choice, causes) in [
        (
            "Hello there.",
            choice("", "Hello there.", &[]),
            "end_token 1",
        ),
        (
            THOUGHT,
            choice("Hm.", "Yes", &[]),
            "delimiters 2, whitespace 2, end_token 1",
        ),
        (
            "Hm.</think>Yes",
            choice("Hm.", "Yes", &[]),
            "delimiters 1, end_token 1",
        ),
        (
            &format!("So.\n{TOOL}"),
            choice("", "So.", &[("f", "{\"a\": 1}")]),
            "tool_structure 16, tool_arguments 6, end_token 1",
        ),
    ] {
        let mut answer = served(text, choice);
        answer.choices[0].tokens = Tokens::Unknown;
        let attribution = found(&answer);
        assert_eq!(attribution.basis, Basis::Inferred);
        let rest: Vec<_> = said(&attribution)
            .split(", ")
            .filter(|cause| !cause.starts_with("retokenization"))
            .map(String::from)
            .collect();
        assert_eq!(rest.join(", "), causes, "{text}");
    }
    let mut far = served("", choice("", "Hello", &[]));
    far.choices[0].tokens = Tokens::Unknown;
    far.usage = Some(usage(40));
    let attribution = found(&far);
    assert_eq!(
        attribution.of(Cause::EndToken) + attribution.unexplained,
        38
    );
    far.usage = Some(Usage {
        reasoning_tokens: Some(37),
        ..Usage::new(1, 40)
    });
    assert_eq!(said(&found(&far)), "hidden_reasoning 37, end_token 1");
}

#[test]
fn missing_usage_and_uncounted_choices_are_causes() {
    let mut answer = served("Hello", choice("", "Hello", &[]));
    answer.usage = None;
    let attribution = found(&answer);
    assert_eq!((attribution.server, attribution.client), (None, 2));
    assert_eq!(said(&attribution), "end_token 1, missing_usage -3");
    let mut two = served("Hello", choice("", "Hello", &[]));
    two.choices.push(two.choices[0].clone());
    two.usage = Some(usage(6));
    let first = attribute(&two, bpe(), &Flavour::default(), Counted::First);
    assert_eq!(said(&first), "end_token 1, other_choices 3");
    assert_eq!(said(&found(&two)), "end_token 2");
    two.usage = Some(usage(7));
    assert_eq!(found(&two).unexplained, 1);
    assert_eq!(found(&Answer::default()).difference, 0);
}

#[test]
fn what_a_client_lost_or_got_from_elsewhere_is_not_explained() {
    let whole = "One two three four five six seven eight nine.";
    let unexplained = |content: &str| found(&served(whole, choice("", content, &[]))).unexplained;
    let count = |text| i64::try_from(bpe().vocab.count(text)).unwrap();
    let lost = " five six seven eight nine.";
    assert_eq!(unexplained("One two three four"), count(lost));
    assert!((8..11).contains(&unexplained("One two eight nine.")));
    assert!(unexplained("Nothing of it is here") > 5);
    let more = count(whole) - count(&format!("{whole} And more."));
    assert!((more - 1..=more + 1).contains(&unexplained(&format!("{whole} And more."))));
    assert!(unexplained(&format!("More {whole}")) < 0);
}

/// Texts made of what parsers look for.
fn text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "\n",
        "\n\n",
        " ",
        "<",
        "a",
        "Hello",
        " world",
        "é",
        "🦀",
        "\u{fffd}",
        "<|im_end|>",
        "<|im_start|>",
        "\"arguments\":",
        "{\"a\":1}",
        "[TOOL_CALLS]",
        "STOP",
        "\"name\"",
    ]);
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

fn tokens() -> impl Strategy<Value = Tokens> {
    let id = prop_oneof![
        0_u32..4096,
        Just(4089),
        Just(4090),
        Just(4091),
        any::<u32>()
    ];
    let cut = text().prop_map(|text| Tokens::Ids(bpe().vocab.encode(&text, false)));
    prop_oneof![
        cut,
        prop::collection::vec(id, 0..20).prop_map(Tokens::Ids),
        prop::collection::vec(text(), 0..8).prop_map(Tokens::Texts),
        Just(Tokens::Unknown),
    ]
}

fn any_choice() -> impl Strategy<Value = Choice> {
    let calls = prop::collection::vec((text(), text()), 0..3);
    let finish = prop::sample::select(vec![
        None,
        Some(FinishReason::Stop),
        Some(FinishReason::Length),
        Some(FinishReason::ToolCalls),
    ]);
    let stop = prop_oneof![
        Just(None),
        any::<u32>().prop_map(|id| Some(StopReason::Token(id))),
        text().prop_map(|text| Some(StopReason::Text(text.into()))),
    ];
    (text(), text(), calls, finish, stop, tokens()).prop_map(
        |(content, reasoning, calls, finish, stop, tokens)| Choice {
            content,
            reasoning,
            calls: calls
                .into_iter()
                .map(|(name, arguments)| Call { name, arguments })
                .collect(),
            finish,
            stop,
            tokens,
        },
    )
}

proptest! {
    #[test]
    fn causes_and_rest_add_up(
        choices in prop::collection::vec(any_choice(), 0..3),
        said in prop::option::of(0_u64..60),
        hidden in prop::option::of(0_u64..1 << 40),
        number in 0_usize..4,
        first in any::<bool>(),
    ) {
        let usage = Usage { completion_tokens: said, reasoning_tokens: hidden, ..Usage::default() };
        let answer = Answer { choices, usage: Some(usage), chunks: 0 };
        let counted = if first { Counted::First } else { Counted::All };
        let found = attribute(&answer, &TOKENIZERS[number], &Flavour::default(), counted);
        let explained: i64 = found.explained.iter().map(|(_, tokens)| tokens).sum();
        prop_assert_eq!(explained + found.unexplained, found.difference);
        let server = i64::try_from(said.unwrap_or(0)).unwrap();
        prop_assert_eq!(server - i64::try_from(found.client).unwrap(), found.difference);
    }

    #[test]
    fn an_answer_told_whole_is_explained_to_the_last_token(
        thought in prop::option::of(text()),
        content in text(),
        number in 0_usize..3,
    ) {
        let plain = |mut text: String| {
            for mark in ["<think>", "</think>", "<tool_call>", "[TOOL_CALLS]", "<|im_end|>", "<|im_start|>"] {
                text = text.replace(mark, "");
            }
            text
        };
        let tokenizer = &TOKENIZERS[number];
        let (reasoning, content) = (thought.map(plain), plain(content));
        let thought = reasoning.as_ref().map(|reasoning| format!("<think>{reasoning}</think>"));
        let ids = tokenizer.vocab.encode(&format!("{}{content}", thought.unwrap_or_default()), false);
        let answer = Answer {
            usage: Some(usage(ids.len())),
            choices: vec![Choice {
                tokens: Tokens::Ids(ids),
                ..choice(&reasoning.unwrap_or_default(), &content, &[])
            }],
            chunks: 1,
        };
        let found = attribute(&answer, tokenizer, &Flavour::default(), Counted::All);
        prop_assert_eq!(found.unexplained, 0, "{:?} {:?}", found, answer);
    }
}
