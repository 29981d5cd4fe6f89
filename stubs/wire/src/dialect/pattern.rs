//! JSON that was rendered once by the typed encoder and is filled in for each answer.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use super::sglang::Told;
use super::{Dialect, Envelope, Field};
use crate::chunk::{Choice, Chunk, Delta, Nulls};
use crate::finish::FinishReason;
use crate::http1::write_number;
use crate::json::escape_into;
use crate::request::{Endpoint, UsagePolicy};
use crate::sse;
use crate::usage::Usage;

/// Patterns that are kept; what comes after them is encoded anew each time.
const KEPT: usize = 64;

/// The patterns of one stub, each made when it is first needed.
#[derive(Debug)]
pub struct Patterns([OnceLock<Kept>; KEPT]);

#[derive(Debug)]
struct Kept {
    key: Key,
    fingerprint: Option<Arc<str>>,
    model: Arc<str>,
    /// None if a value could not be told from what stands around it.
    pattern: Option<Pattern>,
}

/// What decides which bytes stand around the values, beside model and fingerprint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Key {
    /// First, since in it keys differ most.
    shape: Shape,
    endpoint: Endpoint,
    policy: UsagePolicy,
    is_typed: bool,
    dialect: Dialect,
}

/// What an event or a whole answer says beside its values: id, time, text and counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape {
    choice: Option<ChoiceShape>,
    has_usage: bool,
    pub(super) is_whole: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct ChoiceShape {
    field: Option<Field>,
    finish: Option<FinishReason>,
    index: u32,
    is_role: bool,
}

/// What is filled in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values<'a> {
    pub(super) created: u64,
    pub(super) id: &'a str,
    pub(super) text: &'a str,
    pub(super) usage: Usage,
}

impl Default for Patterns {
    fn default() -> Self {
        Self([const { OnceLock::new() }; KEPT])
    }
}

impl Patterns {
    /// The pattern for a chunk of that shape in that envelope, if it has nothing but the usual.
    pub(super) fn find(
        &self,
        dialect: Dialect,
        envelope: &Envelope,
        shape: Shape,
    ) -> Option<&Pattern> {
        let is_usual = envelope.metrics.is_none()
            && envelope.prompt_logprobs.is_none()
            && envelope.prompt_text.is_none()
            && envelope.prompt_token_ids.is_none()
            && envelope.output_mode.is_none()
            && envelope.meta.is_none();
        let key = Key {
            dialect,
            endpoint: envelope.endpoint,
            is_typed: envelope.is_typed,
            policy: envelope.usage,
            shape,
        };
        if !is_usual {
            return None;
        }
        let new = || Kept {
            key,
            fingerprint: envelope.fingerprint.clone(),
            model: Arc::clone(&envelope.model),
            pattern: Pattern::new(key, envelope),
        };
        let is_it = |kept: &&Kept| {
            kept.key == key
                && kept.model == envelope.model
                && kept.fingerprint == envelope.fingerprint
        };
        // A request may have any number of choices: those behind the first leave room.
        let room = if shape.is_of_first() { KEPT } else { KEPT / 2 };
        let mut kept = self.0[..room].iter().map(|kept| kept.get_or_init(new));
        kept.find(is_it)?.pattern.as_ref()
    }
}

impl Shape {
    /// An event that tells the role and begins the content of choice 0.
    pub fn role() -> Self {
        Self::event(ChoiceShape {
            is_role: true,
            ..ChoiceShape::text(0, Field::Content)
        })
    }

    /// The event of a text alone.
    pub fn text(index: u32, field: Field) -> Self {
        Self::event(ChoiceShape::text(index, field))
    }

    /// An event that ends choice 0 with a last text.
    pub fn finish(reason: FinishReason) -> Self {
        Self::event(ChoiceShape {
            finish: Some(reason),
            ..ChoiceShape::text(0, Field::Content)
        })
    }

    /// An event that ends choice 0 and says nothing.
    pub fn bare_finish(reason: FinishReason) -> Self {
        Self::event(ChoiceShape {
            field: None,
            finish: Some(reason),
            index: 0,
            is_role: false,
        })
    }

    /// An event of usage alone.
    pub fn usage() -> Self {
        Self {
            choice: None,
            has_usage: true,
            is_whole: false,
        }
    }

    /// A whole answer of one choice, with usage.
    pub fn answer(reason: FinishReason) -> Self {
        Self {
            has_usage: true,
            is_whole: true,
            ..Self::event(ChoiceShape {
                is_role: true,
                finish: Some(reason),
                ..ChoiceShape::text(0, Field::Content)
            })
        }
    }

    /// The choice that it is of.
    pub(super) fn index(self) -> u32 {
        self.choice.map_or(0, |choice| choice.index)
    }

    /// It tells of no choice but the first.
    fn is_of_first(self) -> bool {
        self.index() == 0
    }

    fn event(choice: ChoiceShape) -> Self {
        Self {
            choice: Some(choice),
            has_usage: false,
            is_whole: false,
        }
    }

    /// The shape of a chunk and its values, unless it holds more than a pattern has room for.
    pub(super) fn of<'c>(chunk: &'c Chunk<'_>, is_whole: bool) -> Option<(Self, &'c str, Usage)> {
        let usage = chunk.usage.unwrap_or_default();
        let counts = usage.prompt_tokens.is_some() && usage.completion_tokens.is_some();
        let no_details = usage.reasoning_tokens.is_none() && usage.cache.is_none();
        let own = chunk.choices.first().map_or(0, |choice| choice.index);
        let is_bare = chunk.error.is_none() && chunk.extension.is_none() && chunk.origin == own;
        if !is_bare || chunk.usage.is_some() && !(counts && no_details) {
            return None;
        }
        let (choice, text) = match &chunk.choices[..] {
            [] => (None, ""),
            [choice] => {
                let (shape, text) = ChoiceShape::of(choice)?;
                (Some(shape), text)
            }
            _ => return None,
        };
        let shape = Self {
            choice,
            has_usage: chunk.usage.is_some(),
            is_whole,
        };
        Some((shape, text, usage))
    }

    /// A chunk of this shape.
    pub(super) fn chunk(self, text: &str, usage: Usage) -> Chunk<'_> {
        Chunk {
            choices: self
                .choice
                .iter()
                .map(|choice| choice.choice(text))
                .collect(),
            usage: self.has_usage.then_some(usage),
            origin: self.index(),
            ..Chunk::default()
        }
    }
}

impl ChoiceShape {
    fn text(index: u32, field: Field) -> Self {
        Self {
            field: Some(field),
            finish: None,
            index,
            is_role: false,
        }
    }

    fn of<'c>(choice: &'c Choice<'_>) -> Option<(Self, &'c str)> {
        let delta = &choice.delta;
        let is_bare = !choice.is_echo
            && choice.logprobs.is_none()
            && choice.prompt_logprobs.is_none()
            && choice.prompt_token_ids.is_none()
            && choice.token_ids.is_none()
            && choice.progress.is_none()
            && delta.tool_calls.is_empty()
            && delta.nulls == Nulls::default()
            && delta.role.as_ref().is_none_or(|role| role == "assistant");
        let finish = choice.finish.as_ref();
        if !is_bare || finish.is_some_and(|finish| finish.stop_reason.is_some()) {
            return None;
        }
        let (field, text) = match (&delta.content, &delta.reasoning) {
            (Some(text), None) => (Some(Field::Content), &**text),
            (None, Some(text)) => (Some(Field::Reasoning), &**text),
            (None, None) => (None, ""),
            (Some(_), Some(_)) => return None,
        };
        let shape = Self {
            field,
            finish: finish.map(|finish| finish.reason),
            index: choice.index,
            is_role: delta.role.is_some(),
        };
        Some((shape, text))
    }

    fn choice(self, text: &str) -> Choice<'_> {
        let when = |field| (self.field == Some(field)).then_some(Cow::Borrowed(text));
        Choice {
            delta: Delta {
                content: when(Field::Content),
                reasoning: when(Field::Reasoning),
                role: self.is_role.then_some("assistant".into()),
                ..Delta::default()
            },
            finish: self.finish.map(Into::into),
            index: self.index,
            ..Choice::default()
        }
    }
}

/// JSON cut where its values go.
#[derive(Debug)]
pub(super) struct Pattern {
    /// What stands before a value, and the value.
    parts: Vec<(Box<[u8]>, Slot)>,
    end: Box<[u8]>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Slot {
    CompletionTokens,
    Created,
    Id,
    PromptTokens,
    Text,
    TotalTokens,
}

/// Values that stand nowhere else, and what they stand for.
const MARKS: [(&str, Slot); 6] = [
    ("\u{e000}id\u{e000}", Slot::Id),
    ("\u{e000}text\u{e000}", Slot::Text),
    ("4000000000000000021", Slot::Created),
    ("1000000000000000007", Slot::PromptTokens),
    ("2000000000000000009", Slot::CompletionTokens),
    ("3000000000000000016", Slot::TotalTokens),
];

impl Pattern {
    /// Renders marks in place of the values and cuts there; none if something else holds a mark.
    fn new(key: Key, envelope: &Envelope) -> Option<Self> {
        let [(id, _), (text, _), ..] = MARKS;
        let envelope = Envelope {
            created: 4_000_000_000_000_000_021,
            id: id.into(),
            further_ids: Vec::new(),
            ..envelope.clone()
        };
        let usage = Usage::new(1_000_000_000_000_000_007, 2_000_000_000_000_000_009);
        let chunk = key.shape.chunk(text, usage);
        let mut json = Vec::new();
        if key.shape.is_whole {
            key.dialect.encode_whole(&envelope, &chunk, &mut json);
        } else {
            let mut data = Vec::new();
            let told = &mut Told::new();
            key.dialect.encode(&envelope, &chunk, told, &mut data);
            sse::encode(&data, &mut json);
        }
        let json = String::from_utf8(json).ok()?;
        let mut found = Vec::new();
        for (mark, slot) in MARKS {
            let fingerprint = envelope.fingerprint.as_deref().unwrap_or_default();
            if envelope.model.contains(mark) || fingerprint.contains(mark) {
                return None;
            }
            let places = json.match_indices(mark);
            found.extend(places.map(|(at, mark)| (at, mark.len(), slot)));
        }
        found.sort_unstable_by_key(|(at, ..)| *at);
        let mut parts = Vec::new();
        let mut start = 0;
        for (at, length, slot) in found {
            parts.push((json.as_bytes()[start..at].into(), slot));
            start = at + length;
        }
        Some(Self {
            parts,
            end: json.as_bytes()[start..].into(),
        })
    }

    /// Appends the JSON with these values.
    pub(super) fn fill(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        for (before, slot) in &self.parts {
            out.extend_from_slice(before);
            slot.fill(values, out);
        }
        out.extend_from_slice(&self.end);
    }

    /// What stands before the text, and what behind it.
    pub(super) fn around_text(&self, values: &Values<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
        let at = self
            .parts
            .iter()
            .position(|(_, slot)| *slot == Slot::Text)?;
        let (mut before, mut behind) = (Vec::with_capacity(256), Vec::with_capacity(256));
        for (bytes, slot) in &self.parts[..at] {
            before.extend_from_slice(bytes);
            slot.fill(values, &mut before);
        }
        before.extend_from_slice(&self.parts[at].0);
        for (bytes, slot) in &self.parts[at + 1..] {
            behind.extend_from_slice(bytes);
            slot.fill(values, &mut behind);
        }
        behind.extend_from_slice(&self.end);
        Some((before, behind))
    }
}

impl Slot {
    fn fill(self, values: &Values<'_>, out: &mut Vec<u8>) {
        let usage = &values.usage;
        let number = match self {
            Self::Id => return escape_into(values.id, out),
            Self::Text => return escape_into(values.text, out),
            Self::Created => values.created,
            Self::PromptTokens => usage.prompt_tokens.unwrap_or(0),
            Self::CompletionTokens => usage.completion_tokens.unwrap_or(0),
            Self::TotalTokens => usage.total_tokens().unwrap_or(0),
        };
        write_number(usize::try_from(number).unwrap_or(usize::MAX), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_choices_leave_room_for_the_first() {
        let envelope = Envelope::new(Endpoint::Chat, "id".into(), "model".into());
        let patterns = Patterns::default();
        let is_kept = |shape| patterns.find(Dialect::VLLM, &envelope, shape).is_some();
        for index in 1..100 {
            is_kept(Shape::text(index, Field::Content));
        }
        assert!(is_kept(Shape::text(1, Field::Content)));
        assert!(!is_kept(Shape::text(99, Field::Content)));
        assert!(is_kept(Shape::role()) && is_kept(Shape::usage()));
    }
}
