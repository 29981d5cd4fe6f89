//! Scripts of mixed answers: reasoning, tool calls, stop strings, characters of several bytes, and
//! tokens as a model samples them, which are not always those that its tokenizer cuts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use vocab::Tokenizer;

pub(crate) const STOP: &str = " STOP";

/// A script file of many answers, and prompts that ask for each.
pub(crate) struct Corpus {
    pub(crate) scripts: PathBuf,
    pub(crate) prompts: PathBuf,
}

impl Corpus {
    /// `count` answers in a folder, seeded.
    pub(crate) fn write(folder: &Path, tokenizer: &Tokenizer, count: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut scripts, mut prompts) = (Map::new(), String::new());
        for number in 0..count {
            let name = format!("a{number}");
            let max_tokens = if random.u8(..8) == 0 {
                random.u32(1..30)
            } else {
                700
            };
            let prompt = format!("[[{name}]] Say something.");
            let line = json!({"id": name, "prompt": prompt, "max_tokens": max_tokens});
            writeln!(prompts, "{line}").unwrap();
            scripts.insert(name, answer(tokenizer, &mut random));
        }
        let corpus = Self {
            scripts: folder.join("scripts.json"),
            prompts: folder.join("prompts.jsonl"),
        };
        std::fs::write(&corpus.scripts, Value::Object(scripts).to_string()).unwrap();
        std::fs::write(&corpus.prompts, prompts).unwrap();
        corpus
    }
}

const PHRASES: [&str; 16] = [
    "Hello, world!",
    " The answer is 42.",
    "\n\nÉté à Zürich – naïve café",
    " 你好，世界。龍",
    " 🦀👩‍👩‍👧🇨🇭",
    "\n",
    "  two  spaces ",
    " e\u{301}\u{200d}",
    " Ἑλλάς שלום नमस्ते",
    "\t`let x = a < b && c > d;`\n",
    " {\"json\": [1, 2.5, null]}",
    " <b>&amp;</b>",
    " 0123456789",
    "\r\n\u{a0}",
    " don't we'll I'M",
    " ﬁ ½ ㎢ Å",
];

fn phrase(random: &mut fastrand::Rng, most: usize) -> String {
    (0..random.usize(..=most))
        .map(|_| PHRASES[random.usize(..PHRASES.len())])
        .collect()
}

const CALLS: [&str; 4] = [
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"unit\": \"celsius\"}}",
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich 🦀\"}}",
    "{\"name\":\"get_weather\",\"arguments\":{\"city\":\"東京\",\"days\":[1,2]}}",
    "{\"name\": \"get_time\", \"arguments\": {}}",
];

/// Parts of an answer, each of which a model samples by itself.
fn parts(random: &mut fastrand::Rng) -> Vec<String> {
    let mut parts = Vec::new();
    let mut push = |text: &str| parts.push(text.to_owned());
    match random.u8(..8) {
        // Thoughts, in the way of most models.
        0..3 => {
            push("<think>");
            push(&format!("\n{}\n", phrase(random, 5)));
            push("</think>");
            push("\n\n");
        }
        // Opened by the prompt.
        3 => {
            push(&phrase(random, 4));
            push("</think>");
        }
        // Empty, as with thinking switched off.
        4 => {
            push("<think>");
            push("\n\n");
            push("</think>");
            push("\n\n");
        }
        // Never closed.
        5 => {
            push("<think>");
            push(&phrase(random, 6));
        }
        _ => {}
    }
    push(&phrase(random, 6));
    if random.u8(..6) == 0 {
        push(STOP);
        push(&phrase(random, 2));
    }
    if random.u8(..3) == 0 {
        for number in 0..random.usize(1..=2) {
            if number > 0 || random.bool() {
                push("\n");
            }
            push("<tool_call>");
            push(&format!("\n{}\n", CALLS[random.usize(..CALLS.len())]));
            push("</tool_call>");
        }
    }
    parts
}

fn answer(tokenizer: &Tokenizer, random: &mut fastrand::Rng) -> Value {
    let vocab = &tokenizer.vocab;
    let (mut text, mut ids) = (String::new(), Vec::new());
    for part in parts(random) {
        text.push_str(&part);
        if vocab.added(&part).is_none() && random.u8(..5) == 0 {
            let letters = part.chars().map(String::from);
            ids.extend(letters.flat_map(|letter| vocab.encode(&letter, false)));
        } else {
            ids.extend(vocab.encode(&part, false));
        }
    }
    if random.u8(..10) == 0 {
        let start = vocab.added("<|im_start|>").unwrap();
        ids.insert(random.usize(..=ids.len()), start);
    }
    let ends = &tokenizer.eos_token_ids;
    ids.push(ends[usize::from(random.u8(..6) == 0).min(ends.len() - 1)]);
    json!({"choices": [{"text": text, "token_ids": ids}]})
}
