//! Frames read quickly: those of a stream are alike but for the text, the ids and some numbers.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

use super::super::shapes::{MAX_BYTES, Template, number, plain, span, text};
use super::{Frame, Known, RawFinish, RawFrame, cached, ids, object};
use crate::usage::Usage;

/// More numbers than any frame without log probabilities has.
const MAX_HOLES: usize = 24;

/// A frame's bytes around what may be another value in the next.
#[derive(Clone, Debug)]
pub(in super::super) struct Shape {
    /// Its holes are those of values as written, strings with their quotes.
    template: Template<Value>,
    /// There is `meta_info`.
    has_usage: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Value {
    CachedTokens,
    CompletionTokens,
    Id,
    Ids,
    Index,
    /// A number that means nothing here.
    Number,
    PromptTokens,
    ReasoningTokens,
    StopToken,
    Text,
}

impl Shape {
    /// The shape of a frame that the decoder has read, if others like it are to be expected.
    pub(super) fn of(json: &[u8], raw: &RawFrame<'_>, frame: &Frame<'_>) -> Option<Self> {
        if frame.abort.is_some() || frame.error.is_some() {
            return None;
        }
        let spans = spans(json, raw, frame)?;
        let mut shape = Self {
            template: Template::default(),
            has_usage: frame.usage.is_some(),
        };
        let mut from = 0;
        for (span, value) in spans {
            shape.literal(json.get(from..span.start)?)?;
            shape.hole(value)?;
            from = span.end;
        }
        shape.literal(&json[from..])?;
        let bytes = shape.template.bytes();
        let is_line = memchr::memchr2(b'\n', b'\r', bytes).is_none();
        (is_line && bytes.len() <= MAX_BYTES).then_some(shape)
    }

    fn hole(&mut self, value: Value) -> Option<()> {
        self.template.hole(value);
        (self.template.holes() <= MAX_HOLES).then_some(())
    }

    /// Takes up bytes as they are, their numbers aside.
    fn literal(&mut self, mut json: &[u8]) -> Option<()> {
        while let Some(&byte) = json.first() {
            let length = match byte {
                b'"' => string_length(json)?,
                b'-' | b'0'..=b'9' => {
                    skip_number(&mut json)?;
                    self.hole(Value::Number)?;
                    continue;
                }
                _ => 1,
            };
            self.template.literal(&json[..length]);
            json = &json[length..];
        }
        Some(())
    }

    /// What a frame of this shape says; `None` if it is not of this shape, `frame` being good for
    /// nothing then.
    pub(super) fn read<'a>(
        &self,
        json: &'a [u8],
        known: Known<'_>,
        frame: &mut Frame<'a>,
    ) -> Option<()> {
        let rest = json.strip_prefix(self.template.first())?;
        let mut usage = Usage::default();
        self.template.read(rest, |value, rest| {
            match value {
                Value::CachedTokens => usage.cache = Some(cached(number(rest)?)),
                Value::CompletionTokens => usage.completion_tokens = Some(number(rest)?),
                Value::Id => quoted(rest, |rest| {
                    *rest = &rest[plain(rest)..];
                    Some(())
                })?,
                Value::Ids => frame.ids = Some(ids(rest, known.ids)?.into()),
                Value::Index => frame.index = Some(small(rest)?),
                Value::Number => skip_number(rest)?,
                Value::PromptTokens => usage.prompt_tokens = Some(number(rest)?),
                Value::ReasoningTokens => usage.reasoning_tokens = Some(number(rest)?),
                Value::StopToken => frame.stop_token = Some(small(rest)?),
                Value::Text => frame.text = Some(quoted(rest, |rest| string(rest, known.text))?),
            }
            Some(())
        })?;
        frame.usage = self.has_usage.then_some(usage);
        Some(())
    }
}

/// Where the values stand that mean something, in their order.
fn spans(json: &[u8], raw: &RawFrame<'_>, frame: &Frame<'_>) -> Option<Vec<(Range<usize>, Value)>> {
    let mut spans = Vec::new();
    if let Some(text) = frame.text {
        let Range { start, end } = span(json, text)?;
        spans.push((start - 1..end + 1, Value::Text));
    }
    if let Some(Cow::Borrowed(ids)) = frame.ids {
        spans.push((span(json, ids)?, Value::Ids));
    } else if raw.output_ids.is_some() {
        return None;
    }
    let meta = raw.meta().unwrap_or_default();
    let finish: Option<RawFinish<'_>> = object(meta.finish_reason);
    if let Some(id) = meta.id.map(|id| id.get().as_bytes())
        && id.starts_with(b"\"")
        && plain(&id[1..]) == id.len() - 2
    {
        spans.push((span(json, id)?, Value::Id));
    }
    for (value, means) in [
        (meta.cached_tokens, Value::CachedTokens),
        (meta.completion_tokens, Value::CompletionTokens),
        (meta.prompt_tokens, Value::PromptTokens),
        (meta.reasoning_tokens, Value::ReasoningTokens),
        (finish.and_then(|finish| finish.matched), Value::StopToken),
        (raw.index, Value::Index),
    ] {
        if let Some(value) = value.filter(|value| is_number(value)) {
            let digits = value.get().as_bytes();
            let mut rest = digits;
            // A number that does not count stands where one may come that does.
            number(&mut rest).filter(|_| rest.is_empty())?;
            spans.push((span(json, digits)?, means));
        }
    }
    spans.sort_unstable_by_key(|(span, _)| span.start);
    Some(spans)
}

fn is_number(value: &RawValue) -> bool {
    value
        .get()
        .starts_with(|first: char| first == '-' || first.is_ascii_digit())
}

fn small(json: &mut &[u8]) -> Option<u32> {
    number(json)?.try_into().ok()
}

/// Takes what stands in quotes from the front.
fn quoted<'a, T>(json: &mut &'a [u8], take: impl Fn(&mut &'a [u8]) -> Option<T>) -> Option<T> {
    let mut rest = json.strip_prefix(b"\"")?;
    let value = take(&mut rest)?;
    *json = rest.strip_prefix(b"\"")?;
    Some(value)
}

/// Takes a string as it is written from the front, without its quotes and up to the closing one.
fn string<'a>(json: &mut &'a [u8], known: &[u8]) -> Option<&'a [u8]> {
    let mut rest = json.strip_prefix(known).unwrap_or(json);
    text(&mut rest, &mut Cow::default())?;
    let (string, rest) = json.split_at(json.len() - rest.len());
    *json = rest;
    Some(string)
}

/// Bytes of a string at the front, its quotes included.
fn string_length(json: &[u8]) -> Option<usize> {
    let mut length = 1;
    loop {
        length += memchr::memchr2(b'"', b'\\', json.get(length..)?)?;
        if json[length] == b'"' {
            return Some(length + 1);
        }
        length += 2;
    }
}

/// Takes a number of any kind from the front.
fn skip_number(json: &mut &[u8]) -> Option<()> {
    let digits = |json: &[u8]| json.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut rest = json.strip_prefix(b"-").unwrap_or(json);
    let whole = digits(rest);
    if whole == 0 || whole > 1 && rest[0] == b'0' {
        return None;
    }
    rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let length = digits(fraction);
        rest = Some(&fraction[length..]).filter(|_| length > 0)?;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', exponent @ ..] => exponent,
            _ => exponent,
        };
        let length = digits(exponent);
        rest = Some(&exponent[length..]).filter(|_| length > 0)?;
    }
    *json = rest;
    Some(())
}
