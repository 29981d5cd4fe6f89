//! What a response says, read as clients read it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wire::chunk::{Choice, Chunk};
use wire::finish::StopReason;
use wire::http1::WholeResponse;
use wire::sse;
use wire::usage::Usage;

use super::answer::list;
use crate::load::Heard;

/// An answer with everything that bases count.
#[derive(Debug)]
pub(super) struct Seen {
    /// What the load loop of `bench` makes of the same bytes.
    pub(super) heard: Heard,
    /// By index.
    pub(super) choices: BTreeMap<u32, Spoken>,
    /// In their order, `[DONE]` left out; none if the answer is not streamed.
    pub(super) events: Vec<Event>,
    /// `completion_tokens` of the last usage, as it is written.
    pub(super) usage_as_sent: Option<String>,
    /// All texts in the order in which they came, whatever their choice.
    pub(super) joined: String,
    /// The `text` of all native frames together.
    pub(super) frames: String,
    /// The reasoning of chunks that have no content.
    pub(super) reasoning_alone: String,
    /// What stands in `reasoning_content` where `reasoning` says it too.
    pub(super) said_twice: String,
}

/// What one choice says.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    pub(super) content: String,
    pub(super) reasoning: String,
    /// By index.
    pub(super) calls: BTreeMap<u32, Call>,
    /// Those that the server returned.
    pub(super) ids: Option<Vec<u32>>,
    pub(super) stop: Option<Stop>,
}

/// What ended a choice, where that is no end token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stop {
    Text,
    Token(u32),
}

/// A tool call.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: String,
}

/// A streamed event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: Kind,
    /// The texts that it adds, each of one field; empty unless it says something.
    pub(super) texts: Vec<String>,
    /// The counts of its usage that are usable.
    pub(super) usage: Usage,
}

/// What an event is there for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Kind {
    Text,
    Role,
    Finish,
    Usage,
    Empty,
}

#[derive(Default, Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    meta_info: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct RawUsage<'a> {
    #[serde(borrow, default)]
    completion_tokens: Option<&'a RawValue>,
}

impl Seen {
    /// Reads a whole response; `is_native` if it is `/generate`'s, `is_stream` if one was asked for.
    pub(super) fn read(response: &[u8], is_native: bool, is_stream: bool) -> anyhow::Result<Self> {
        let whole = WholeResponse::parse(response, false, true)?;
        let mut seen = Self {
            heard: Heard::read(is_native, is_stream, response),
            choices: BTreeMap::new(),
            events: Vec::new(),
            usage_as_sent: None,
            joined: String::new(),
            frames: String::new(),
            reasoning_alone: String::new(),
            said_twice: String::new(),
        };
        let body = whole.map_or_else(|| cut_body(response), |whole| whole.body);
        for data in events(&body, is_stream) {
            let raw: RawEvent<'_> = serde_json::from_slice(&data)?;
            let usage = raw.usage.or(raw.meta_info).map(RawValue::get);
            let counts = usage.and_then(|text| serde_json::from_str::<RawUsage<'_>>(text).ok());
            if let Some(tokens) = counts.and_then(|counts| counts.completion_tokens) {
                seen.usage_as_sent = Some(tokens.get().to_owned());
            }
            let event = if is_native {
                seen.frame(&data)?
            } else {
                seen.chunk(&data)?
            };
            if is_stream {
                seen.events.push(event);
            }
        }
        Ok(seen)
    }

    fn chunk(&mut self, data: &[u8]) -> anyhow::Result<Event> {
        let chunk = Chunk::decode(data)?;
        let value: Value = serde_json::from_slice(data)?;
        let mut texts = Vec::new();
        for choice in &chunk.choices {
            texts.extend(self.choice(choice));
        }
        for (number, raw) in list(&value["choices"]).iter().enumerate() {
            let index = raw["index"].as_u64().unwrap_or(number as u64);
            self.ids(index, &raw["response_token_ids"]);
            let delta = &raw["delta"];
            if delta["reasoning"].is_string() {
                let again = delta["reasoning_content"].as_str();
                self.said_twice.push_str(again.unwrap_or_default());
            }
        }
        for (index, ids) in list(&value["sglext"]["output_ids"]).iter().enumerate() {
            self.ids(index as u64, ids);
        }
        let says = chunk
            .choices
            .iter()
            .any(|choice| choice.delta.says_something());
        let kind = match &chunk.choices[..] {
            _ if says => Kind::Text,
            [] if value["usage"].is_object() => Kind::Usage,
            choices if choices.iter().any(|choice| choice.finish.is_some()) => Kind::Finish,
            choices if choices.iter().any(|choice| choice.delta.role.is_some()) => Kind::Role,
            _ => Kind::Empty,
        };
        Ok(Event {
            kind,
            texts,
            usage: chunk.usage.unwrap_or_default(),
        })
    }

    fn choice(&mut self, choice: &Choice<'_>) -> Vec<String> {
        let spoken = self.choices.entry(choice.index).or_default();
        let mut texts = Vec::new();
        let delta = &choice.delta;
        for (part, whole) in [
            (&delta.reasoning, &mut spoken.reasoning),
            (&delta.content, &mut spoken.content),
        ] {
            let part = part.as_deref().unwrap_or_default();
            whole.push_str(part);
            self.joined.push_str(part);
            texts.push(part.to_owned());
        }
        if delta.content.as_deref().unwrap_or_default().is_empty() {
            self.reasoning_alone
                .push_str(delta.reasoning.as_deref().unwrap_or_default());
        }
        for call in &delta.tool_calls {
            let known = spoken.calls.entry(call.index).or_default();
            for (part, whole) in [
                (&call.name, &mut known.name),
                (&call.arguments, &mut known.arguments),
            ] {
                let part = part.as_deref().unwrap_or_default();
                whole.push_str(part);
                texts.push(part.to_owned());
            }
        }
        if let Some(ids) = &choice.token_ids {
            spoken.ids.get_or_insert_default().extend(ids);
        }
        if let Some(finish) = &choice.finish {
            spoken.stop = finish.stop_reason.as_ref().map(|reason| match reason {
                StopReason::Token(id) => Stop::Token(*id),
                StopReason::Text(_) => Stop::Text,
            });
        }
        texts.retain(|text| !text.is_empty());
        texts
    }

    fn ids(&mut self, index: u64, ids: &Value) {
        if ids.is_array() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            self.choices.entry(index).or_default().ids = Some(native_ids(ids));
        }
    }

    /// A frame of `/generate`, whose text and ids are all so far or what is new.
    fn frame(&mut self, data: &[u8]) -> anyhow::Result<Event> {
        let value: Value = serde_json::from_slice(data)?;
        let meta = &value["meta_info"];
        let index = value["index"].as_u64().unwrap_or(0);
        let spoken = self.choices.entry(u32::try_from(index)?).or_default();
        let text = value["text"].as_str().unwrap_or_default();
        self.frames.push_str(text);
        let ids = spoken.ids.take().unwrap_or_default();
        let told = native_ids(&value["output_ids"]);
        let is_whole = text.starts_with(&*spoken.content) && told.starts_with(&ids);
        let new = text.strip_prefix(&*spoken.content).filter(|_| is_whole);
        let new = new.unwrap_or(text).to_owned();
        spoken.ids = Some(if is_whole { told } else { [ids, told].concat() });
        spoken.content.push_str(&new);
        self.joined.push_str(&new);
        let matched = &meta["finish_reason"]["matched"];
        spoken.stop = match matched {
            Value::String(_) => Some(Stop::Text),
            _ => matched
                .as_u64()
                .map(u32::try_from)
                .transpose()?
                .map(Stop::Token),
        };
        let is_finish = meta["finish_reason"].is_object();
        let usage = serde_json::from_str::<Box<RawValue>>(&meta.to_string())?;
        Ok(Event {
            kind: match (new.is_empty(), is_finish) {
                (false, _) => Kind::Text,
                (true, true) => Kind::Finish,
                (true, false) => Kind::Empty,
            },
            texts: Some(new)
                .filter(|new| !new.is_empty())
                .into_iter()
                .collect(),
            usage: Usage::read(&usage).unwrap_or_default(),
        })
    }
}

fn native_ids(value: &Value) -> Vec<u32> {
    let ids = list(value).iter().filter_map(Value::as_u64);
    ids.filter_map(|id| u32::try_from(id).ok()).collect()
}

/// The data of each event, or the body.
pub(super) fn events(body: &[u8], is_stream: bool) -> Vec<Vec<u8>> {
    if !is_stream {
        return vec![body.to_vec()];
    }
    let mut events = Vec::new();
    let mut decoder = sse::Decoder::default();
    decoder.feed(body, |data| events.push(data.to_vec()));
    decoder.finish(|data| events.push(data.to_vec()));
    events.retain(|data| data.trim_ascii() != b"[DONE]");
    events
}

/// What there is of the body of a response whose chunks do not end.
fn cut_body(response: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    if let Ok(Some((head, length))) = wire::http1::ResponseHead::parse(response) {
        let mut decoder = wire::http1::BodyDecoder::new(head.framing);
        // A bad chunk ends what can be read.
        let _ = decoder.feed(&response[length..], |part| body.extend_from_slice(part));
    }
    body
}
