//! What an answer and its prompt count as, by each basis that a client has.

use std::collections::HashMap;

use serde_json::{Value, json};
use vocab::{Template, TemplateError, Tokenizer, Vocab};
use wire::request::Endpoint;

use crate::bench::{Config, Dialect};
use crate::dataset::{Prompt, Sample};
use crate::gap::attribution::Choice;
use crate::gap::{answer, prompt};
use crate::record::Record;

/// Token counts of one request by the client's tokenizer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// The prompt by its [`InputRule`], if it could be rendered.
    pub input: Option<u64>,
    /// The whole content; of several answers, each by itself.
    pub content: u64,
    /// The whole reasoning, as the content.
    pub reasoning: u64,
    /// Names and arguments of tool calls, each whole.
    pub tools: u64,
    /// Each chunk by itself, summed.
    pub per_chunk: u64,
    /// Chunks that carried text.
    pub chunks: u64,
    /// Token ids of the prompt, if it was asked with them.
    pub input_ids: Option<u64>,
    /// Token ids that the server returned.
    pub output_ids: Option<u64>,
    /// Rule O-1: the returned ids decode to the text, end and special tokens left out; none if there
    /// are no ids to decode.
    pub ids_decode: Option<bool>,
}

impl Counts {
    /// Content, reasoning and tool calls: rules O-2 to O-4 without constants for what a parser ate.
    pub fn output(&self) -> u64 {
        self.content + self.reasoning + self.tools
    }
}

/// By which rule a prompt becomes a count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InputRule {
    /// I-1: the number of token ids.
    Ids,
    /// I-2: messages through the chat template, or joined by line feeds if the tokenizer has none.
    Messages,
    /// I-3: text as it is, with the special tokens that the tokenizer puts around it.
    Text,
}

impl InputRule {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ids => "I-1",
            Self::Messages => "I-2",
            Self::Text => "I-3",
        }
    }

    /// The rule for a sample on a route.
    pub fn new(sample: &Sample, endpoint: Endpoint) -> Self {
        match (&sample.prompt, endpoint) {
            (Prompt::InputIds(_), _) => Self::Ids,
            (Prompt::Messages(_), _) | (Prompt::Text(_), Endpoint::Chat) => Self::Messages,
            (Prompt::Text(_), Endpoint::Completions | Endpoint::Generate) => Self::Text,
        }
    }
}

/// By which rule an answer becomes a count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OutputRule {
    /// O-1: the number of returned ids, which decode to the text.
    Ids,
    /// O-2: text.
    Text,
    /// O-3: content and reasoning.
    Reasoning,
    /// O-4: those and tool calls.
    Tools,
}

impl OutputRule {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ids => "O-1",
            Self::Text => "O-2",
            Self::Reasoning => "O-3",
            Self::Tools => "O-4",
        }
    }

    /// The best rule for an answer, and the count by it.
    pub fn apply(record: &Record, counts: &Counts) -> (Self, u64) {
        match counts.output_ids {
            Some(ids) if counts.ids_decode == Some(true) => (Self::Ids, ids),
            _ if record.tool_calls => (Self::Tools, counts.output()),
            _ if !record.reasoning.is_empty() => (Self::Reasoning, counts.output()),
            _ => (Self::Text, counts.output()),
        }
    }
}

/// Counts of each record, in their order.
pub(crate) fn counts(config: &Config, records: &[Record]) -> Vec<Counts> {
    let mut texts = Texts {
        tokenizer: &config.tokenizer,
        several: config.choices() > 1,
        known: HashMap::new(),
        decoded: HashMap::new(),
    };
    let mut inputs: HashMap<usize, Option<u64>> = HashMap::new();
    let mut unrendered = Vec::new();
    let counted = records.iter().map(|record| Counts {
        input: *inputs.entry(record.sample).or_insert_with(|| {
            let input = input(&config.samples[record.sample], config);
            input.map_err(|error| unrendered.push(error)).ok()
        }),
        input_ids: match &config.samples[record.sample].prompt {
            Prompt::InputIds(ids) => Some(ids.len() as u64),
            Prompt::Messages(_) | Prompt::Text(_) => None,
        },
        ..texts.output(record)
    });
    let counted = counted.collect();
    if let Some(first) = unrendered.first() {
        let prompts = unrendered.len();
        tracing::warn!(
            prompts,
            "the chat template fails, so prompts are not counted: {first}"
        );
    }
    counted
}

/// Ids without the end tokens behind them.
pub(crate) fn without_end<'a>(ids: &'a [u32], tokenizer: &Tokenizer) -> &'a [u32] {
    let is_end = |id: &u32| tokenizer.eos_token_ids.contains(id);
    let last = ids.iter().rposition(|id| !is_end(id));
    &ids[..last.map_or(0, |last| last + 1)]
}

/// Counts texts, each different one once: benchmarks hear the same answer often.
struct Texts<'a> {
    tokenizer: &'a Tokenizer,
    /// Answers are several in one.
    several: bool,
    known: HashMap<&'a str, u64>,
    /// Texts of token ids.
    decoded: HashMap<&'a [u32], String>,
}

impl<'a> Texts<'a> {
    fn count(&mut self, text: &'a str) -> u64 {
        let count = || self.tokenizer.vocab.count(text) as u64;
        *self.known.entry(text).or_insert_with(count)
    }

    /// Whether ids are those of a text; end tokens are left out, as decoding does with special ones.
    fn decode(&mut self, ids: &'a [u32], text: &str) -> Option<bool> {
        let vocab = &self.tokenizer.vocab;
        if matches!(vocab, Vocab::Word) {
            return None;
        }
        let ids = without_end(ids, self.tokenizer);
        let decode = || vocab.decode(ids);
        Some(self.decoded.entry(ids).or_insert_with(decode) == text)
    }

    /// Counts a text that will hardly come again.
    fn fresh(&self, text: &str) -> u64 {
        self.tokenizer.vocab.count(text) as u64
    }

    /// Names and arguments of the calls in the data of events taken together.
    fn calls(&self, data: &[Box<[u8]>]) -> u64 {
        let choices = answer::of_data(data.iter().map(|data| &**data)).choices;
        let calls = choices.iter().flat_map(|choice| &choice.calls);
        calls
            .map(|call| self.fresh(&call.name) + self.fresh(&call.arguments))
            .sum()
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
        if !record.texts.is_empty() {
            let calls = record.tools.chunks(1).map(|event| self.calls(event));
            per_chunk += calls.sum::<u64>();
        }
        let (content, reasoning) = if self.several {
            let choices = answer::of_data(record.data.iter().map(|data| &**data)).choices;
            let sum = |text: fn(&Choice) -> &str| {
                let counts = choices.iter().map(|choice| self.fresh(text(choice)));
                counts.sum()
            };
            (
                sum(|choice| &choice.content),
                sum(|choice| &choice.reasoning),
            )
        } else {
            (self.count(&record.content), self.count(&record.reasoning))
        };
        Counts {
            input: None,
            input_ids: None,
            output_ids: record.output_ids,
            ids_decode: record
                .said_ids
                .as_deref()
                .and_then(|ids| self.decode(ids, &record.content)),
            content,
            reasoning,
            tools: self.calls(&record.tools),
            per_chunk,
            chunks: record.texts.len() as u64,
        }
    }
}

fn input(sample: &Sample, config: &Config) -> Result<u64, TemplateError> {
    let vocab = &config.tokenizer.vocab;
    let count = match (&sample.prompt, config.endpoint) {
        (Prompt::InputIds(ids), _) => ids.len(),
        (Prompt::Text(text), Endpoint::Completions | Endpoint::Generate) => {
            vocab.encode(text, true).len()
        }
        (Prompt::Text(text), Endpoint::Chat) => {
            chat(&json!([{"role": "user", "content": text}]), config)?
        }
        (Prompt::Messages(raw), endpoint) => {
            let messages = serde_json::from_str(raw.get()).expect("a raw value is JSON");
            match endpoint {
                Endpoint::Chat => chat(&messages, config)?,
                _ => vocab.count(&asked(&messages, config.tokenizer.template.as_ref())?),
            }
        }
    };
    Ok(count as u64)
}

/// Tokens of messages that the server renders, with what else of the request's body its template reads.
fn chat(messages: &Value, config: &Config) -> Result<usize, TemplateError> {
    let tokenizer = &config.tokenizer;
    let mut body = config.extra_body.clone();
    let mut read = ["tools", "chat_template_kwargs"].into_iter();
    if read.any(|name| body.contains_key(name)) {
        body.insert("messages".into(), messages.clone());
        let prompt = prompt::Prompt::count(&Value::Object(body).to_string(), tokenizer);
        let tokens = prompt.map(|prompt| match config.dialect {
            Dialect::Sglang => prompt.rewritten,
            _ => prompt.whole,
        });
        if let Some(tokens) = tokens.and_then(|tokens| usize::try_from(tokens).ok()) {
            return Ok(tokens);
        }
    }
    let text = asked(messages, tokenizer.template.as_ref())?;
    Ok(tokenizer.vocab.count(&text))
}

/// Messages as the model is asked, with the prompt for its answer.
pub(crate) fn render(
    messages: impl serde::Serialize,
    template: &Template,
) -> Result<String, TemplateError> {
    template.render(json!({"messages": messages, "add_generation_prompt": true}))
}

fn asked(messages: &Value, template: Option<&Template>) -> Result<String, TemplateError> {
    let Some(template) = template else {
        let messages = messages.as_array().into_iter().flatten();
        let texts: Vec<&str> = messages.flat_map(texts).collect();
        return Ok(texts.join("\n"));
    };
    render(messages, template)
}

/// The texts of a message: its content, or the text parts of it.
fn texts(message: &Value) -> Vec<&str> {
    match &message["content"] {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts
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

    fn texts(tokenizer: &Tokenizer) -> Texts<'_> {
        Texts {
            tokenizer,
            several: false,
            known: HashMap::new(),
            decoded: HashMap::new(),
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
        assert_eq!(input(&messages, &char).ok(), Some(4));
        assert_eq!(input(&text, &char).ok(), Some(2));
        let bpe = config(Tokenizer::from_files(folder).unwrap(), Endpoint::Chat);
        assert_eq!(
            input(&text, &bpe).ok(),
            Some(11),
            "as the server's template has it"
        );
        let bpe = config(
            Tokenizer::from_files(folder).unwrap(),
            Endpoint::Completions,
        );
        assert_eq!(input(&text, &bpe).ok(), Some(1));
        assert_eq!(input(&ids, &bpe).ok(), Some(9));
        assert_eq!(InputRule::new(&text, Endpoint::Chat), InputRule::Messages);
        assert_eq!(InputRule::new(&ids, Endpoint::Completions), InputRule::Ids);
    }

    #[test]
    fn tools_and_arguments_of_the_template_count_as_the_server_writes_them() {
        let text = sample(Prompt::Text("hi".into()));
        let count = |extra: Value, dialect| {
            let Value::Object(extra_body) = extra else {
                unreachable!("a body is an object")
            };
            let bpe = Tokenizer::from_files(folder).unwrap();
            let config = Config {
                dialect,
                extra_body,
                ..config(bpe, Endpoint::Chat)
            };
            input(&text, &config).unwrap()
        };
        let thinks = json!({"chat_template_kwargs": {"enable_thinking": false}});
        assert_eq!(count(thinks, Dialect::Vllm), 15);
        let tools = json!({"tools": [{"type": "function", "function": {"name": "a"}}]});
        let [vllm, sglang] = [Dialect::Vllm, Dialect::Sglang].map(|of| count(tools.clone(), of));
        assert!(15 < vllm && vllm < sglang, "{vllm} {sglang}");
    }

    #[test]
    fn ids_count_and_are_held_against_the_text() {
        let bpe = Tokenizer::from_files(folder).unwrap();
        let said = |text: &str, ids: Vec<u32>| Record {
            content: text.into(),
            output_ids: Some(ids.len() as u64),
            said_ids: Some(ids.into()),
            ..crate::record::tests::completed()
        };
        let mut ids = bpe.vocab.encode("Hello", false);
        let count = ids.len() as u64 + 1;
        ids.push(bpe.eos_token_ids[0]);
        let good = said("Hello", ids.clone());
        let counts = texts(&bpe).output(&good);
        assert_eq!(
            (counts.output_ids, counts.ids_decode),
            (Some(count), Some(true))
        );
        let cut = said("Hell", ids);
        assert_eq!(texts(&bpe).output(&cut).ids_decode, Some(false));
        let word = Tokenizer::named("word").unwrap();
        assert_eq!(texts(&word).output(&good).ids_decode, None);
        let silent = crate::record::tests::completed();
        assert_eq!(texts(&bpe).output(&silent).ids_decode, None);
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
        let counts = texts(&bpe).output(&record);
        assert!(counts.per_chunk > counts.output(), "{counts:?}");
        assert_eq!(counts.chunks, 4);
        let byte = Tokenizer::named("byte").unwrap();
        let counts = texts(&byte).output(&record);
        assert_eq!(
            (counts.content, counts.reasoning, counts.per_chunk),
            (5, 2, 7)
        );
    }
}
