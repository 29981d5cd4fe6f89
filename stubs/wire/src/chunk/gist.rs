//! Chunks read quickly: those of a stream are alike but for a text and a few counts.
//!
//! [`Reader`] remembers the bytes of chunks that the decoder has read, with holes where texts and
//! counts stood. In place of one JSON string or number any other may stand without a change to what
//! the rest means. So a chunk whose bytes are the same around the holes needs no more than a
//! comparison, and whatever is not alike goes through the decoder.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

use super::shapes::{MAX_BYTES, Shapes, Template, number, plain, span, text, text_span};
use super::{Chunk, DecodeError, RawChunk, native};
use crate::usage::Usage;

/// What a chunk adds, all its choices together: as much as a client needs that counts and clocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gist<'a> {
    /// `content`, or `text` of a completion, in UTF-8.
    pub content: Cow<'a, [u8]>,
    /// `reasoning` or `reasoning_content`, in UTF-8.
    pub reasoning: Cow<'a, [u8]>,
    /// There are `tool_calls`.
    pub calls_tools: bool,
    /// An error in place of an answer: its message.
    pub error: Option<Cow<'a, str>>,
    /// `usage`
    pub usage: Option<Usage>,
}

impl Gist<'_> {
    /// It carries text, reasoning or a tool call: what a time to first token counts from.
    pub fn says_something(&self) -> bool {
        !self.content.is_empty() || !self.reasoning.is_empty() || self.calls_tools
    }
}

impl<'a> From<Chunk<'a>> for Gist<'a> {
    fn from(chunk: Chunk<'a>) -> Self {
        let mut gist = Self {
            error: chunk.error,
            usage: chunk.usage,
            ..Self::default()
        };
        for choice in chunk.choices {
            add(&mut gist.content, choice.delta.content);
            add(&mut gist.reasoning, choice.delta.reasoning);
            gist.calls_tools |= !choice.delta.tool_calls.is_empty();
        }
        gist
    }
}

fn add<'a>(to: &mut Cow<'a, [u8]>, text: Option<Cow<'a, str>>) {
    let text = match text.unwrap_or_default() {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    };
    if to.is_empty() {
        *to = text;
    } else {
        to.to_mut().extend_from_slice(&text);
    }
}

/// Reads the chunks of one server, those quickly that are like earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    shapes: Shapes<Shape>,
    /// Those of native frames.
    pub(super) frames: Shapes<native::Shape>,
}

impl Reader {
    /// Reads a chunk, or a whole answer, as [`Chunk::decode`] does.
    pub fn read<'a>(&mut self, json: &'a [u8]) -> Result<Gist<'a>, DecodeError> {
        if let Some(gist) = self.recall(json, |_| true) {
            return Ok(gist);
        }
        let raw = RawChunk::read(json)?;
        let usage = raw.usage;
        let chunk = raw.into_chunk();
        if let Some(shape) = Shape::of(json, &chunk, usage) {
            self.shapes.remember(shape);
        }
        Ok(chunk.into())
    }

    /// Reads a chunk that is like an earlier one and has no line end, `None` if it is not: so whoever
    /// looks for line ends has none to look for in it.
    pub fn read_known_line<'a>(&mut self, json: &'a [u8]) -> Option<Gist<'a>> {
        self.recall(json, |shape| shape.is_line)
    }

    fn recall<'a>(&mut self, json: &'a [u8], may_be: impl Fn(&Shape) -> bool) -> Option<Gist<'a>> {
        let mut gist = Gist::default();
        let read = |shape: &mut Shape, gist: &mut Gist<'a>| {
            may_be(shape).then_some(())?;
            shape.read(json, gist)
        };
        self.shapes.recall(&mut gist, read)?;
        Some(gist)
    }
}

/// A chunk's bytes around its holes.
#[derive(Clone, Debug)]
struct Shape {
    template: Template<Value>,
    /// Where the id stands, if the chunk begins with one: any other may stand there.
    id: Range<usize>,
    /// Its usage, counts that stand in a hole aside.
    usage: Option<Usage>,
    /// There is no line end in it; there never is in a hole.
    is_line: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Value {
    CompletionTokens,
    Content,
    PromptTokens,
    Reasoning,
    TotalTokens,
}

const ID: &[u8] = b"{\"id\":\"";

impl Shape {
    /// The shape of a chunk that the decoder has read, if others like it are to be expected. `usage`
    /// is its usage as written.
    fn of(json: &[u8], chunk: &Chunk<'_>, usage: Option<&RawValue>) -> Option<Self> {
        let choice = chunk.choices.first();
        let calls_tools = choice.is_some_and(|choice| !choice.delta.tool_calls.is_empty());
        if chunk.choices.len() > 1 || chunk.error.is_some() || calls_tools {
            return None;
        }
        let mut spans = Vec::new();
        if let Some(super::Choice { delta, .. }) = choice {
            let texts = [
                (&delta.content, Value::Content),
                (&delta.reasoning, Value::Reasoning),
            ];
            for (text, value) in texts {
                if let Some(text) = text {
                    spans.push((text_span(json, text)?, value));
                }
            }
        }
        if let (Some(usage), Some(_)) = (usage, chunk.usage) {
            spans.extend(count_spans(json, usage));
        }
        spans.sort_unstable_by_key(|(span, _)| span.start);
        let mut template = Template::default();
        let mut from = 0;
        for (span, value) in spans {
            template.literal(json.get(from..span.start)?);
            template.hole(value);
            from = span.end;
        }
        template.literal(&json[from..]);
        let id = json.strip_prefix(ID).map_or(0, plain);
        let mut id = ID.len()..ID.len() + id;
        let begins_with_id = !id.is_empty() && template.first().get(id.end) == Some(&b'"');
        if !begins_with_id {
            id = 0..0;
        }
        let shape = Self {
            template,
            id,
            usage: chunk.usage,
            is_line: memchr::memchr2(b'\n', b'\r', json).is_none(),
        };
        (shape.template.bytes().len() <= MAX_BYTES).then_some(shape)
    }

    /// What a chunk of this shape says; `None` if it is not of this shape, `gist` being good for nothing
    /// then.
    fn read<'a>(&mut self, json: &'a [u8], gist: &mut Gist<'a>) -> Option<()> {
        let rest = match json.strip_prefix(self.template.first()) {
            Some(rest) => rest,
            None => self.adopt_id(json)?,
        };
        if self.usage.is_some() {
            gist.usage = self.usage;
        }
        self.template.read(rest, |value, rest| {
            match value {
                Value::CompletionTokens => {
                    gist.usage.as_mut()?.completion_tokens = Some(number(rest)?);
                }
                Value::Content => text(rest, &mut gist.content)?,
                Value::PromptTokens => gist.usage.as_mut()?.prompt_tokens = Some(number(rest)?),
                Value::Reasoning => text(rest, &mut gist.reasoning)?,
                Value::TotalTokens => {
                    number(rest)?;
                }
            }
            Some(())
        })
    }

    /// Takes over another answer's id if the chunk is the same around it up to the first hole; gives
    /// what follows.
    fn adopt_id<'a>(&mut self, json: &'a [u8]) -> Option<&'a [u8]> {
        let Range { start, end } = self.id.clone();
        if start == end {
            return None;
        }
        let behind = json.strip_prefix(ID)?;
        let first = self.template.first();
        if behind.starts_with(&first[start..=end]) {
            return None;
        }
        let id = &behind[..plain(behind)];
        let rest = behind[id.len()..].strip_prefix(&first[end..])?;
        self.template.replace(start..end, id);
        self.id.end = start + id.len();
        Some(rest)
    }
}

/// Where usual counts stand in a usage object.
fn count_spans(json: &[u8], usage: &RawValue) -> Vec<(Range<usize>, Value)> {
    #[derive(serde::Deserialize)]
    struct Counts<'a> {
        #[serde(borrow, default, rename = "completion_tokens")]
        completion: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "prompt_tokens")]
        prompt: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "total_tokens")]
        total: Option<&'a RawValue>,
    }
    let Ok(counts) = serde_json::from_str::<Counts<'_>>(usage.get()) else {
        return Vec::new();
    };
    let counts = [
        (counts.completion, Value::CompletionTokens),
        (counts.prompt, Value::PromptTokens),
        (counts.total, Value::TotalTokens),
    ];
    let spans = counts.into_iter().filter_map(|(count, value)| {
        let count = count?.get().as_bytes();
        let mut rest = count;
        number(&mut rest).filter(|_| rest.is_empty())?;
        Some((span(json, count)?, value))
    });
    spans.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_are_alike_share_a_shape() {
        let mut reader = Reader::default();
        for answer in 0..20 {
            let head = format!(r#"{{"id":"{answer}","choices":["#);
            let usage = format!(r#"],"usage":{{"prompt_tokens":{answer},"total_tokens":null}}}}"#);
            for chunk in [
                format!(r#"{head}{{"delta":{{"role":"assistant","content":""}}}}]}}"#),
                format!(r#"{head}{{"delta":{{"content":"a{answer}"}}}}]}}"#),
                format!(r#"{head}{{"delta":{{"content":"\n\u00e9"}}}}]}}"#),
                format!(r#"{head}{{"delta":{{"reasoning":"hm"}}}}{usage}"#),
                format!("{head}{usage}"),
            ] {
                reader.read(chunk.as_bytes()).unwrap();
            }
        }
        assert_eq!(reader.shapes.len(), 4);
        for answer in 0..20 {
            let call = format!(r#"{{"choices":[{{"delta":{{"role":"{answer}"}}}}]}}"#);
            reader.read(call.as_bytes()).unwrap();
        }
        assert_eq!(reader.shapes.len(), super::super::shapes::MAX_SHAPES);
    }
}
