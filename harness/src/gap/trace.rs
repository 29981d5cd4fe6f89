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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gap::files;
    use crate::gap::seen::Call;

    fn terms(script: &Value, sent: usize, spoken: &Spoken) -> Vec<(What, i64)> {
        let tokenizer = files::tokenizer("bpe").unwrap();
        let script = Script::choices(script, &tokenizer).unwrap();
        let trace = script[0].trace(sent, spoken, &tokenizer.vocab);
        let arrived =
            [&spoken.content, &spoken.reasoning].map(|text| count(&tokenizer.vocab, text));
        let calls = spoken.calls.values().map(|call| {
            count(&tokenizer.vocab, &call.name) + count(&tokenizer.vocab, &call.arguments)
        });
        let arrived = arrived.iter().sum::<i64>() + calls.sum::<i64>();
        let all: i64 = trace.terms.values().sum();
        assert_eq!(i64::try_from(sent).unwrap() + all, arrived);
        trace.terms.into_iter().collect()
    }

    fn said(text: &str) -> Value {
        json!({"choices": [{"text": text}]})
    }

    fn spoken(reasoning: &str, content: &str) -> Spoken {
        Spoken {
            content: content.into(),
            reasoning: reasoning.into(),
            ..Spoken::default()
        }
    }

    #[test]
    fn tokens_without_text_have_a_reason_each() {
        let script = said("<think>\nHi.\n</think>\n\nHello there.");
        let all = Script::choices(&script, &files::tokenizer("bpe").unwrap()).unwrap()[0].len();
        let eaten = terms(&script, all, &spoken("Hi.", "Hello there."));
        assert_eq!(
            eaten,
            [
                (What::EndToken, -1),
                (What::Delimiters, -2),
                (What::Whitespace, -2)
            ]
        );
        let hidden = terms(&script, all, &spoken("", "\n\nHello there."));
        assert_eq!(hidden[2].0, What::HiddenReasoning);
        let stopped = Spoken {
            stop: Some(Stop::Text),
            ..spoken("\nHi.\n", "\n\nHello")
        };
        assert_eq!(
            terms(&script, all - 2, &stopped),
            [(What::StopString, -1), (What::Delimiters, -2)]
        );
        let cut = terms(&script, all - 1, &spoken("\nHi.\n", "\n\nHello"));
        assert_eq!(cut, [(What::Delimiters, -2), (What::NotReceived, -2)]);
    }

    #[test]
    fn a_call_is_its_structure_and_what_stands_in_it() {
        let script =
            said("Well.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>");
        let all = Script::choices(&script, &files::tokenizer("bpe").unwrap()).unwrap()[0].len();
        let mut called = spoken("", "Well.\n");
        let call = Call {
            name: "f".into(),
            arguments: "{\"a\": 1}".into(),
        };
        called.calls.insert(0, call);
        let known: Vec<What> = terms(&script, all, &called)
            .iter()
            .map(|term| term.0)
            .collect();
        assert_eq!(
            known,
            [What::EndToken, What::ToolStructure, What::Arguments]
        );
        let dropped = terms(&script, all, &spoken("", "Well.\n"));
        assert!(dropped.iter().any(|term| term.0 == What::DroppedCall));
        let inline =
            "Well.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>";
        assert_eq!(
            terms(&script, all, &spoken("", inline)),
            [(What::EndToken, -1)]
        );
    }

    #[test]
    fn letters_said_one_by_one_are_fewer_when_read() {
        let script = json!({"choices": [{"text": "ab", "token_ids": [64, 65, 4088, 4089]}]});
        let found = terms(&script, 4, &spoken("", "ab"));
        assert_eq!(
            found,
            [
                (What::EndToken, -1),
                (What::SpecialTokens, -1),
                (What::Retokenization, -1)
            ]
        );
    }
}
