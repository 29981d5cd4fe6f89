//! Where each token went that the model said: into a text that arrived, or into nothing, and why.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use vocab::{Tokenizer, Vocab};

use super::basis::What;
use super::seen::{Spoken, Stop};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const THINK: [&str; 2] = ["<think>", "</think>"];

/// What the model says in one choice.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    /// Ids and the bytes of text that become visible with them, the end token left out.
    pieces: Vec<(u32, Range<usize>)>,
}

/// What the tokens of a choice come to.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// What is added and taken away between the model's tokens and those of the texts that arrived.
    pub(super) terms: BTreeMap<What, i64>,
    /// The model's tokens whose text arrived.
    pub(super) arrived: i64,
    /// Those of them that complete no character.
    pub(super) unfinished: i64,
}

#[derive(Deserialize)]
struct RawScript {
    choices: Vec<RawChoice>,
}

#[derive(Deserialize)]
struct RawChoice {
    text: String,
    #[serde(default)]
    token_ids: Vec<u32>,
}

impl Script {
    /// The choices of a script, in the form of script files.
    pub(super) fn choices(script: &Value, tokenizer: &Tokenizer) -> anyhow::Result<Vec<Self>> {
        let raw: RawScript = serde_json::from_value(script.clone())?;
        let choices = raw.choices.into_iter();
        Ok(choices
            .map(|choice| Self::new(choice, &tokenizer.vocab))
            .collect())
    }

    /// A text that the model says and nothing else.
    pub(super) fn plain(text: &str, vocab: &Vocab) -> Self {
        let choice = RawChoice {
            text: text.to_owned(),
            token_ids: Vec::new(),
        };
        Self::new(choice, vocab)
    }

    fn new(choice: RawChoice, vocab: &Vocab) -> Self {
        let (mut text, mut pieces, mut at) = (String::new(), Vec::new(), 0);
        let mut put = |id, bytes: usize| {
            pieces.push((id, at..at + bytes));
            at += bytes;
        };
        match choice.token_ids.split_last() {
            None => {
                text = choice.text;
                for token in vocab.tokens(&text) {
                    put(token.id, token.bytes as usize);
                }
            }
            Some((_, ids)) => {
                for (&id, delta) in ids.iter().zip(vocab.deltas(&choice.token_ids)) {
                    put(id, delta.len());
                    text.push_str(&delta);
                }
            }
        }
        Self { text, pieces }
    }

    /// Tokens with the end token.
    pub(super) fn len(&self) -> usize {
        self.pieces.len() + 1
    }

    /// Follows the first `sent` tokens, the end token the last of all, to what a client has got.
    pub(super) fn trace(&self, sent: usize, spoken: &Spoken, vocab: &Vocab) -> Trace {
        let mut trace = Trace::default();
        let places = Places::find(&self.text, spoken);
        let mut inside = vec![0; places.visible.len()];
        let pieces = &self.pieces[..sent.min(self.pieces.len())];
        for (number, (id, range)) in pieces.iter().enumerate() {
            let is_last = number + 1 == sent;
            match places.segment(range) {
                _ if range.is_empty() && vocab.special(*id).is_some() => {
                    trace.add(What::SpecialTokens, -1);
                }
                Some(segment) => {
                    inside[segment] += 1;
                    trace.arrived += 1;
                    trace.unfinished += i64::from(range.is_empty());
                }
                None if is_last && spoken.stop == Some(Stop::Token(*id)) => {
                    trace.add(What::StopToken, -1);
                }
                None => trace.add(places.lost(&self.text, range, spoken), -1),
            }
        }
        if sent > pieces.len() {
            trace.add(What::EndToken, -1);
        }
        for (segment, tokens) in places.visible.iter().zip(inside) {
            let said = count(vocab, &self.text[segment.range.clone()]);
            trace.add(What::Retokenization, said - tokens);
            let arrived = count(vocab, segment.text);
            trace.add(What::Arguments, arrived - said);
        }
        trace
    }
}

impl Trace {
    pub(super) fn add(&mut self, what: What, tokens: i64) {
        if tokens != 0 {
            *self.terms.entry(what).or_default() += tokens;
        }
    }
}

pub(super) fn count(vocab: &Vocab, text: &str) -> i64 {
    i64::try_from(vocab.count(text)).unwrap_or(i64::MAX)
}

/// Where in the model's text stands what arrived.
struct Places<'a> {
    visible: Vec<Segment<'a>>,
    /// Tags of reasoning, however they are spelt.
    tags: Vec<Range<usize>>,
    /// Between a tag and its end, the tags included.
    tools: Vec<Range<usize>>,
    /// Between the tags of reasoning.
    thoughts: Range<usize>,
    /// Behind the last visible text.
    end: usize,
}

/// A text that arrived, and where the model said it.
struct Segment<'a> {
    range: Range<usize>,
    text: &'a str,
}

impl<'a> Places<'a> {
    fn find(said: &str, spoken: &'a Spoken) -> Self {
        let mut places = Places {
            visible: Vec::new(),
            tags: tags(said),
            tools: Vec::new(),
            thoughts: thoughts(said),
            end: 0,
        };
        places.put(said, &spoken.reasoning);
        places.put(said, &spoken.content);
        if spoken.content.contains(OPEN) {
            return places;
        }
        let mut rest = places.thoughts.end;
        let mut calls = spoken.calls.values();
        while let Some(open) = said[rest..].find(OPEN).map(|at| rest + at) {
            let close = said[open..].find(CLOSE);
            rest = close.map_or(said.len(), |at| open + at + CLOSE.len());
            places.tools.push(open..rest);
            if let Some(call) = calls.next() {
                let block = &said[open..rest];
                let name = block.find(&*call.name).map(|at| open + at);
                let name = name.map(|at| at..at + call.name.len());
                let arguments = arguments(block).map(|part| open + part.start..open + part.end);
                let texts = [&call.name, &call.arguments];
                for (range, text) in [name, arguments].into_iter().zip(texts) {
                    places
                        .visible
                        .extend(range.map(|range| Segment { range, text }));
                }
            }
        }
        places
    }

    /// Notes where a text stands behind those before it.
    fn put(&mut self, said: &str, text: &'a str) {
        let found = said[self.end..].find(text).filter(|_| !text.is_empty());
        if let Some(at) = found {
            let start = self.end + at;
            self.end = start + text.len();
            let range = start..self.end;
            self.visible.push(Segment { range, text });
        }
    }

    /// The visible text that a token is part of.
    fn segment(&self, token: &Range<usize>) -> Option<usize> {
        let holds = |segment: &Segment<'_>| {
            let Range { start, end } = segment.range;
            let is_inside = token.is_empty() && token.start < end;
            token.start.max(start) < token.end.min(end) || is_inside && token.start >= start
        };
        self.visible.iter().position(holds)
    }

    /// Why a token's text is nowhere.
    fn lost(&self, said: &str, token: &Range<usize>, spoken: &Spoken) -> What {
        let text = &said[token.clone()];
        let is_in = |range: &Range<usize>| range.start <= token.start && token.end <= range.end;
        if self.tags.iter().any(is_in) {
            What::Delimiters
        } else if self.tools.iter().any(is_in) {
            if spoken.calls.is_empty() {
                What::DroppedCall
            } else {
                What::ToolStructure
            }
        } else if is_in(&self.thoughts) && spoken.reasoning.is_empty() {
            What::HiddenReasoning
        } else if spoken.stop == Some(Stop::Text) && token.start >= self.end {
            What::StopString
        } else if !text.is_empty() && text.trim().is_empty() {
            What::Whitespace
        } else {
            What::NotReceived
        }
    }
}

fn tags(said: &str) -> Vec<Range<usize>> {
    let found = THINK.iter().flat_map(|tag| said.match_indices(tag));
    found.map(|(at, tag)| at..at + tag.len()).collect()
}

/// What stands between the tags of reasoning; from the start if only the second is there.
fn thoughts(said: &str) -> Range<usize> {
    let [open, close] = THINK.map(|tag| said.find(tag));
    match (open, close) {
        (None, None) => 0..0,
        (open, close) => {
            let start = open.map_or(0, |at| at + THINK[0].len());
            start..close.unwrap_or(said.len()).max(start)
        }
    }
}

/// Where the value of `arguments` stands in a call.
fn arguments(block: &str) -> Option<Range<usize>> {
    const KEY: &str = "\"arguments\":";
    let start = block.find(KEY)? + KEY.len();
    let start = block.len() - block[start..].trim_start().len();
    let mut values = serde_json::Deserializer::from_str(&block[start..]).into_iter();
    let value: &RawValue = values.next()?.ok()?;
    Some(start..start + value.get().len())
}
