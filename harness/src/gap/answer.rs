//! What a client sees of an answer, read from the data of its events or its whole body, whatever the
//! dialect. Nothing in it is trusted: what is not of the right form is not there.

use std::collections::BTreeMap;

use serde_json::Value;
use wire::finish::{FinishReason, StopReason};

use super::attribution::{Answer, Call, Choice, Tokens};
use crate::record::Record;

/// What a record's data says.
pub fn of_record(record: &Record) -> Answer {
    let (mut answer, is_native) = read(record.data.iter().map(|data| &**data));
    answer.usage = record.usage;
    answer.chunks = record.texts.len() as u64;
    if is_native && answer.choices.len() == 1 {
        // Whether frames say all so far or what is new is known to who read them first.
        answer.choices[0].content = record.content.as_ref().into();
    }
    answer
}

/// What the data of events says, usage apart.
pub fn of_data<'a>(data: impl Iterator<Item = &'a [u8]>) -> Answer {
    read(data).0
}

/// The same, and whether the frames are SGLang's own.
fn read<'a>(data: impl Iterator<Item = &'a [u8]>) -> (Answer, bool) {
    let mut reading = Reading::default();
    for event in data.filter_map(|data| serde_json::from_slice(data).ok()) {
        reading.event(&event);
    }
    let choices = reading.choices.into_values().map(Parts::choice);
    let answer = Answer {
        choices: choices.collect(),
        ..Answer::default()
    };
    (answer, reading.is_native)
}

/// Events so far.
#[derive(Debug, Default)]
struct Reading {
    choices: BTreeMap<u64, Parts>,
    is_native: bool,
}

/// One choice so far.
#[derive(Debug, Default)]
struct Parts {
    choice: Choice,
    calls: BTreeMap<u64, Call>,
    ids: Option<Vec<u32>>,
    texts: Option<Vec<String>>,
    /// Ids of the last native frame, and how many it says there are.
    frame: Option<(Vec<u32>, Option<u64>)>,
}

impl Reading {
    fn event(&mut self, event: &Value) {
        if event.get("meta_info").is_some() {
            self.is_native = true;
            self.frame(event);
            return;
        }
        for choice in list(&event["choices"]) {
            let index = choice["index"].as_u64().unwrap_or(0);
            self.choices.entry(index).or_default().add(choice);
        }
        for (index, ids) in list(&event["sglext"]["output_ids"]).iter().enumerate() {
            let choice = self.choices.entry(index as u64).or_default();
            choice.ids = ids_of(ids);
        }
    }

    fn frame(&mut self, frame: &Value) {
        let index = frame["index"].as_u64().unwrap_or(0);
        let parts = self.choices.entry(index).or_default();
        let meta = &frame["meta_info"];
        if let Some(text) = frame["text"].as_str() {
            // All so far, or what is new.
            let known = &mut parts.choice.content;
            if text.starts_with(&**known) {
                *known = text.into();
            } else {
                known.push_str(text);
            }
        }
        parts.end(
            &meta["finish_reason"]["type"],
            &meta["finish_reason"]["matched"],
        );
        if let Some(ids) = ids_of(&frame["output_ids"]) {
            let count = meta["completion_tokens"].as_u64();
            parts.ids.get_or_insert_default().extend(&ids);
            parts.frame = Some((ids, count));
        }
    }
}

impl Parts {
    fn add(&mut self, choice: &Value) {
        let delta = ["delta", "message"].iter().find_map(|key| choice.get(key));
        let delta = delta.unwrap_or(choice);
        for key in ["content", "text"] {
            self.choice
                .content
                .push_str(delta[key].as_str().unwrap_or_default());
        }
        // Servers that send both mean the same by them.
        let reasoning = ["reasoning", "reasoning_content"];
        let reasoning = reasoning.iter().find_map(|key| delta[key].as_str());
        self.choice
            .reasoning
            .push_str(reasoning.unwrap_or_default());
        for (at, call) in list(&delta["tool_calls"]).iter().enumerate() {
            let index = call["index"].as_u64().unwrap_or(at as u64);
            let known = self.calls.entry(index).or_default();
            let function = &call["function"];
            known
                .name
                .push_str(function["name"].as_str().unwrap_or_default());
            let arguments = function["arguments"].as_str();
            known.arguments.push_str(arguments.unwrap_or_default());
        }
        let stop = ["stop_reason", "matched_stop"];
        let stop = stop.iter().find_map(|key| choice.get(key));
        self.end(&choice["finish_reason"], stop.unwrap_or(&Value::Null));
        for key in ["token_ids", "response_token_ids"] {
            if let Some(ids) = ids_of(&choice[key]) {
                self.ids.get_or_insert_default().extend(ids);
            }
        }
        self.logprobs(&choice["logprobs"]);
    }

    fn end(&mut self, reason: &Value, stop: &Value) {
        let Some(word) = reason.as_str() else {
            return;
        };
        self.choice.finish = Some(FinishReason::read(word));
        self.choice.stop = match stop {
            Value::String(text) => Some(StopReason::Text(text.clone().into())),
            Value::Number(id) => id
                .as_u64()
                .and_then(|id| u32::try_from(id).ok())
                .map(StopReason::Token),
            _ => None,
        };
    }

    fn logprobs(&mut self, logprobs: &Value) {
        let named = list(&logprobs["content"])
            .iter()
            .map(|entry| &entry["token"]);
        for token in named.chain(list(&logprobs["tokens"])) {
            let token = token.as_str().unwrap_or_default();
            self.texts.get_or_insert_default().push(token.into());
        }
    }

    fn choice(self) -> Choice {
        let ids = match self.frame {
            Some((ids, count)) if count == Some(ids.len() as u64) => Some(ids),
            _ => self.ids,
        };
        Choice {
            calls: self.calls.into_values().collect(),
            tokens: match (ids, self.texts) {
                (Some(ids), _) => Tokens::Ids(ids),
                (None, Some(texts)) => Tokens::Texts(texts),
                (None, None) => Tokens::Unknown,
            },
            ..self.choice
        }
    }
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn ids_of(value: &Value) -> Option<Vec<u32>> {
    let ids = value.as_array()?.iter();
    ids.map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(events: &[&str]) -> Answer {
        let data = events.iter().map(|event| event.as_bytes().into());
        of_record(&Record {
            data: data.collect(),
            content: "settled".into(),
            ..crate::record::tests::completed()
        })
    }

    #[test]
    fn a_stream_gives_texts_calls_and_tokens() {
        let answer = answer(&[
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"reasoning":"hm"},"token_ids":[1,2]}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[3]},{"index":1,"delta":{"content":"b"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls","stop_reason":7,"token_ids":[4]}]}"#,
            "not JSON",
            r#"{"choices":[],"sglext":{"output_ids":[null,[9]]}}"#,
        ]);
        let [first, second] = &answer.choices[..] else {
            panic!("{answer:?}");
        };
        assert_eq!((&*first.reasoning, &*first.content), ("hm", "a"));
        assert_eq!(first.calls[0].arguments, "{}");
        assert_eq!(first.finish, Some(FinishReason::ToolCalls));
        assert_eq!(first.stop, Some(StopReason::Token(7)));
        assert_eq!(second.content, "b");
        assert_eq!(second.tokens, Tokens::Ids(vec![9]));
    }

    #[test]
    fn logprobs_and_whole_bodies_and_native_frames_are_read() {
        let whole = answer(&[
            r#"{"choices":[{"index":0,"message":{"content":"a","reasoning_content":"b"},"finish_reason":"stop","matched_stop":"END","response_token_ids":[5]}]}"#,
        ]);
        assert_eq!(whole.choices[0].tokens, Tokens::Ids(vec![5]));
        assert_eq!(whole.choices[0].stop, Some(StopReason::Text("END".into())));
        let text = r#"{"choices":[{"text":"ab","logprobs":{"tokens":["a","b"]}}]}"#;
        let chat = r#"{"choices":[{"delta":{"content":"ab"},"logprobs":{"content":[{"token":"a"},{"token":"b"}]}}]}"#;
        for event in [text, chat] {
            let texts = Tokens::Texts(vec!["a".into(), "b".into()]);
            assert_eq!(answer(&[event]).choices[0].tokens, texts);
        }
        let native = |second: &str| {
            answer(&[
                r#"{"text":"a","output_ids":[1],"meta_info":{"completion_tokens":1,"finish_reason":null}}"#,
                &format!(
                    r#"{{"text":"ab","output_ids":{second},"meta_info":{{"completion_tokens":2,"finish_reason":{{"type":"stop","matched":2}}}}}}"#
                ),
            ])
        };
        for ids in ["[1,2]", "[2]"] {
            let answer = native(ids);
            assert_eq!(answer.choices[0].tokens, Tokens::Ids(vec![1, 2]));
            assert_eq!(answer.choices[0].stop, Some(StopReason::Token(2)));
            assert_eq!(answer.choices[0].content, "settled");
        }
    }
}
