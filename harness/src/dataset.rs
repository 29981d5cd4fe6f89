//! What is asked: JSON lines from a file, or random text.

use std::path::Path;

use serde_json::value::RawValue;
use vocab::Vocab;

use crate::error::UsageError;

/// One thing to ask.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its name in the reports; the line's index where the line names none.
    pub id: String,
    /// What is asked.
    pub prompt: Prompt,
    /// Output tokens to ask for.
    pub max_tokens: Option<u32>,
}

/// What is asked, in one of three forms.
#[derive(Clone, Debug)]
pub enum Prompt {
    /// Token ids, for completions and native answers.
    InputIds(Vec<u32>),
    /// A JSON array of chat messages as the data set spells it.
    Messages(Box<RawValue>),
    /// Text: a completion's prompt, or a chat's only user message.
    Text(String),
}

/// Samples of a JSON lines file.
pub fn read(path: &Path) -> Result<Vec<Sample>, UsageError> {
    let wrong = |reason: String| UsageError(format!("--dataset {}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    parse(&text).map_err(|UsageError(reason)| wrong(reason))
}

/// `count` samples of seeded words that the vocabulary counts as `isl` tokens each, or as near as
/// words come, asking for `osl` output tokens.
pub fn random(isl: usize, osl: u32, count: usize, vocab: &Vocab, seed: u64) -> Vec<Sample> {
    let mut random = fastrand::Rng::with_seed(seed);
    let sample = |index: usize| Sample {
        id: index.to_string(),
        prompt: Prompt::Text(words(isl, vocab, &mut random)),
        max_tokens: Some(osl),
    };
    (0..count).map(sample).collect()
}

/// Puts token ids in place of texts, where the vocabulary's ids are those of a model.
pub fn encode(samples: &mut [Sample], vocab: &Vocab) {
    let texts = samples
        .iter_mut()
        .filter(|_| matches!(vocab, Vocab::Huggingface(_)));
    for sample in texts {
        if let Prompt::Text(text) = &sample.prompt {
            sample.prompt = Prompt::InputIds(vocab.encode(text, false));
        }
    }
}

#[derive(serde::Deserialize)]
struct Line {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    input_ids: Option<Vec<u32>>,
    #[serde(default)]
    max_tokens: Option<u32>,
    #[serde(default)]
    messages: Option<Box<RawValue>>,
    #[serde(default)]
    prompt: Option<String>,
}

/// Samples of JSON lines.
pub fn parse(text: &str) -> Result<Vec<Sample>, UsageError> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    let samples: Result<Vec<Sample>, String> = lines
        .map(|(index, line)| {
            sample(index, line).map_err(|reason| format!("line {}: {reason}", index + 1))
        })
        .collect();
    match samples {
        Ok(samples) if samples.is_empty() => Err(UsageError("there is no line in it".into())),
        samples => samples.map_err(UsageError),
    }
}

fn sample(index: usize, line: &str) -> Result<Sample, String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let prompt = match (line.prompt, line.messages, line.input_ids) {
        (Some(text), None, None) => Prompt::Text(text),
        (None, Some(messages), None) => {
            let read: Result<Vec<serde_json::Map<String, serde_json::Value>>, _> =
                serde_json::from_str(messages.get());
            match read {
                Ok(read) if !read.is_empty() => Prompt::Messages(messages),
                _ => return Err("messages must be a non-empty array of objects".into()),
            }
        }
        (None, None, Some(ids)) => Prompt::InputIds(ids),
        _ => return Err("expected one of prompt, messages and input_ids".into()),
    };
    Ok(Sample {
        id: line.id.unwrap_or_else(|| index.to_string()),
        prompt,
        max_tokens: line.max_tokens,
    })
}

const WORDS: [&str; 24] = [
    " the",
    " of",
    " and",
    " water",
    " under",
    " light",
    " a",
    " small",
    " river",
    " it",
    " stone",
    " house",
    " between",
    " year",
    " with",
    " paper",
    " number",
    " green",
    " to",
    " question",
    " morning",
    " hand",
    " wind",
    " is",
];

fn words(tokens: usize, vocab: &Vocab, random: &mut fastrand::Rng) -> String {
    let mut text = String::new();
    let mut pushed = 0;
    // Words count alone nearly as they count in a row; the row is put right below.
    while pushed < tokens {
        let word = random.choice(WORDS).unwrap_or(" a");
        let word = if text.is_empty() {
            word.trim_start()
        } else {
            word
        };
        text.push_str(word);
        pushed += vocab.count(word);
    }
    let mut count = vocab.count(&text);
    while count < tokens {
        text.push_str(" a");
        count = vocab.count(&text);
    }
    while count > tokens {
        text.pop();
        count = vocab.count(&text);
    }
    text
}

#[cfg(test)]
mod tests {
    use vocab::Tokenizer;

    use super::*;

    #[test]
    fn each_form_of_line_is_read() {
        let text = r#"{"prompt":"a","max_tokens":5,"id":"x","split":"train"}

{"messages":[{"role":"user", "content":"b"}]}
{"input_ids":[1,2]}
"#;
        let samples = parse(text).unwrap();
        assert_eq!(samples.len(), 3);
        assert_eq!((&*samples[0].id, samples[0].max_tokens), ("x", Some(5)));
        assert!(matches!(&samples[0].prompt, Prompt::Text(text) if text == "a"));
        assert!(
            matches!(&samples[1].prompt, Prompt::Messages(raw) if raw.get() == r#"[{"role":"user", "content":"b"}]"#)
        );
        assert_eq!(samples[1].id, "2");
        assert!(matches!(&samples[2].prompt, Prompt::InputIds(ids) if ids == &[1, 2]));
    }

    #[test]
    fn a_bad_line_is_named() {
        for bad in [
            "nonsense",
            "{}",
            r#"{"prompt":1}"#,
            r#"{"prompt":"a","messages":[]}"#,
            r#"{"messages":[]}"#,
            r#"{"messages":["a"]}"#,
            r#"{"input_ids":[-1]}"#,
            r#"{"prompt":"a","max_tokens":"many"}"#,
        ] {
            let text = format!("{{\"prompt\":\"a\"}}\n\n{bad}\n");
            let error = parse(&text).unwrap_err();
            assert!(error.0.starts_with("line 3: "), "{error}");
        }
        assert_eq!(parse("\n").unwrap_err().0, "there is no line in it");
    }

    fn bpe() -> Vocab {
        let read = |name: &str| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/tokenizers/bpe");
            std::fs::read_to_string(format!("{folder}/{name}")).ok()
        };
        Tokenizer::from_files(read).unwrap().vocab
    }

    #[test]
    fn random_ids_are_those_of_a_model() {
        let mut samples = random(17, 9, 3, &bpe(), 3);
        let texts = format!("{samples:?}");
        encode(&mut samples, &Vocab::Byte);
        assert_eq!(format!("{samples:?}"), texts);
        encode(&mut samples, &bpe());
        for sample in samples {
            assert!(matches!(sample.prompt, Prompt::InputIds(ids) if ids.len() == 17));
        }
    }

    #[test]
    fn random_text_has_the_tokens_asked_for_and_follows_its_seed() {
        for vocab in [Vocab::Byte, Vocab::Char, Vocab::Word, bpe()] {
            for isl in [0, 1, 2, 17, 500] {
                for sample in random(isl, 9, 5, &vocab, 3) {
                    let Prompt::Text(text) = sample.prompt else {
                        panic!("random prompts are text");
                    };
                    assert_eq!(vocab.count(&text), isl, "{text:?}");
                    assert_eq!(sample.max_tokens, Some(9));
                }
            }
        }
        let text = |seed| format!("{:?}", random(50, 1, 2, &Vocab::Char, seed));
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }
}
