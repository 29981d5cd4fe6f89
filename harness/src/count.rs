//! What an answer and its prompt count as, by each basis that a client has.

use std::collections::HashMap;

use serde_json::json;
use vocab::{Template, Tokenizer};
use wire::request::Endpoint;

use crate::bench::Config;
use crate::dataset::{Prompt, Sample};
use crate::record::Record;

/// Token counts of one request by the client's tokenizer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// The prompt by its [`InputRule`], if it could be rendered.
    pub input: Option<u64>,
    /// The whole content.
    pub content: u64,
    /// The whole reasoning.
    pub reasoning: u64,
    /// Each chunk by itself, summed.
    pub per_chunk: u64,
    /// Chunks that carried text.
    pub chunks: u64,
}

impl Counts {
    /// Content and reasoning, rule O-3 without a constant for delimiters.
    pub fn output(&self) -> u64 {
        self.content + self.reasoning
    }
}

/// By which rule a prompt becomes a count.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
pub enum InputRule {
    /// The number of token ids.
    #[serde(rename = "I-1")]
    Ids,
    /// Messages through the chat template, or joined by line feeds if the tokenizer has none.
    #[serde(rename = "I-2")]
    Messages,
    /// Text as it is, with the special tokens that the tokenizer puts around it.
    #[serde(rename = "I-3")]
    Text,
}

impl InputRule {
    /// The rule for a sample on a route.
    pub fn new(sample: &Sample, endpoint: Endpoint) -> Self {
        match (&sample.prompt, endpoint) {
            (Prompt::InputIds(_), _) => Self::Ids,
            (Prompt::Messages(_), _) | (Prompt::Text(_), Endpoint::Chat) => Self::Messages,
            (Prompt::Text(_), Endpoint::Completions | Endpoint::Generate) => Self::Text,
        }
    }
}

/// Counts of each record, in their order.
pub(crate) fn counts(config: &Config, records: &[Record]) -> Vec<Counts> {
    let mut texts = Texts {
        tokenizer: &config.tokenizer,
        known: HashMap::new(),
    };
    let mut inputs: HashMap<usize, Option<u64>> = HashMap::new();
    let counted = records.iter().map(|record| Counts {
        input: *inputs
            .entry(record.sample)
            .or_insert_with(|| input(&config.samples[record.sample], config)),
        ..texts.output(record)
    });
    counted.collect()
}

/// Counts texts, each different one once: benchmarks hear the same answer often.
struct Texts<'a> {
    tokenizer: &'a Tokenizer,
    known: HashMap<&'a str, u64>,
}

impl<'a> Texts<'a> {
    fn count(&mut self, text: &'a str) -> u64 {
        let count = || self.tokenizer.vocab.count(text) as u64;
        *self.known.entry(text).or_insert_with(count)
    }

    fn output(&mut self, record: &'a Record) -> Counts {
        let (mut content, mut reasoning) = (&*record.content, &*record.reasoning);
        let mut per_chunk = 0;
        for chunk in &record.texts {
            let (head, tail) = content.split_at(chunk.content as usize);
            let (thought, thoughts) = reasoning.split_at(chunk.reasoning as usize);
            per_chunk += self.count(head) + self.count(thought);
            (content, reasoning) = (tail, thoughts);
        }
        Counts {
            input: None,
            content: self.count(&record.content),
            reasoning: self.count(&record.reasoning),
            per_chunk,
            chunks: record.texts.len() as u64,
        }
    }
}

fn input(sample: &Sample, config: &Config) -> Option<u64> {
    let vocab = &config.tokenizer.vocab;
    let count = match (&sample.prompt, config.endpoint) {
        (Prompt::InputIds(ids), _) => ids.len(),
        (Prompt::Text(text), Endpoint::Completions | Endpoint::Generate) => {
            vocab.encode(text, true).len()
        }
        (Prompt::Text(text), Endpoint::Chat) => {
            let messages = json!([{"role": "user", "content": text}]);
            vocab.count(&render(&messages, config.tokenizer.template.as_ref())?)
        }
        (Prompt::Messages(raw), _) => {
            let messages = serde_json::from_str(raw.get()).ok()?;
            vocab.count(&render(&messages, config.tokenizer.template.as_ref())?)
        }
    };
    Some(count as u64)
}

fn render(messages: &serde_json::Value, template: Option<&Template>) -> Option<String> {
    let Some(template) = template else {
        let texts: Vec<&str> = messages.as_array()?.iter().flat_map(texts).collect();
        return Some(texts.join("\n"));
    };
    let context = json!({"messages": messages, "add_generation_prompt": true});
    let rendered = template.render(context);
    rendered
        .inspect_err(|error| tracing::warn!("a prompt is not counted: {error}"))
        .ok()
}

/// The texts of a message: its content, or the text parts of it.
fn texts(message: &serde_json::Value) -> Vec<&str> {
    match &message["content"] {
        serde_json::Value::String(text) => vec![text],
        serde_json::Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::record::TextChunk;

    fn folder(name: &str) -> Option<String> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/tokenizers/bpe");
        std::fs::read_to_string(format!("{folder}/{name}")).ok()
    }

    fn config(tokenizer: Tokenizer, endpoint: Endpoint) -> Config {
        Config {
            endpoint,
            ..Config::new(String::new(), Arc::default(), Arc::new(tokenizer))
        }
    }

    fn sample(prompt: Prompt) -> Sample {
        Sample {
            id: String::new(),
            prompt,
            max_tokens: None,
        }
    }

    #[test]
    fn prompts_count_by_their_rule() {
        let raw = r#"[{"role":"system","content":"ab"},{"role":"user","content":[{"type":"text","text":"c"}]}]"#;
        let messages = sample(Prompt::Messages(serde_json::from_str(raw).unwrap()));
        let text = sample(Prompt::Text("hi".into()));
        let ids = sample(Prompt::InputIds(vec![7; 9]));
        let char = config(Tokenizer::named("char").unwrap(), Endpoint::Chat);
        assert_eq!(input(&messages, &char), Some(4));
        assert_eq!(input(&text, &char), Some(2));
        let bpe = config(Tokenizer::from_files(folder).unwrap(), Endpoint::Chat);
        assert_eq!(
            input(&text, &bpe),
            Some(11),
            "as the server's template has it"
        );
        let bpe = config(
            Tokenizer::from_files(folder).unwrap(),
            Endpoint::Completions,
        );
        assert_eq!(input(&text, &bpe), Some(1));
        assert_eq!(input(&ids, &bpe), Some(9));
        assert_eq!(InputRule::new(&text, Endpoint::Chat), InputRule::Messages);
        assert_eq!(InputRule::new(&ids, Endpoint::Completions), InputRule::Ids);
    }

    #[test]
    fn cut_words_cost_more_per_chunk_than_whole() {
        let chunk = |content, reasoning| TextChunk {
            at_ns: 0,
            content,
            reasoning,
        };
        let record = Record {
            content: "Hello".into(),
            reasoning: "Hi".into(),
            texts: [chunk(0, 2), chunk(2, 0), chunk(3, 0), chunk(0, 0)].into(),
            ..crate::record::tests::completed()
        };
        let bpe = Tokenizer::from_files(folder).unwrap();
        let known = HashMap::new();
        let tokenizer = &bpe;
        let counts = Texts { tokenizer, known }.output(&record);
        assert!(counts.per_chunk > counts.output(), "{counts:?}");
        assert_eq!(counts.chunks, 4);
        let byte = Tokenizer::named("byte").unwrap();
        let known = HashMap::new();
        let tokenizer = &byte;
        let counts = Texts { tokenizer, known }.output(&record);
        assert_eq!(
            (counts.content, counts.reasoning, counts.per_chunk),
            (5, 2, 7)
        );
    }
}
