//! Chunks read quickly: those of a stream are alike but for a text and a few counts.
//!
//! [`Reader`] remembers the bytes of chunks that the decoder has read, with holes where the text and
//! the usage stood. In place of one JSON string or object any other may stand without a change to
//! what the rest means. So a chunk whose bytes are the same around the holes needs no more than a
//! comparison, and whatever is not alike goes through the decoder.

use std::borrow::Cow;
use std::ops::Range;

use super::{Chunk, DecodeError, RawChunk};
use crate::usage::Usage;

/// What a chunk adds, all its choices together: as much as a client needs that counts and clocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gist<'a> {
    /// `content`, or `text` of a completion.
    pub content: Cow<'a, str>,
    /// `reasoning` or `reasoning_content`.
    pub reasoning: Cow<'a, str>,
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
            gist.content += choice.delta.content.unwrap_or_default();
            gist.reasoning += choice.delta.reasoning.unwrap_or_default();
            gist.calls_tools |= !choice.delta.tool_calls.is_empty();
        }
        gist
    }
}

/// Reads the chunks of one server, those quickly that are like earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// In the order in which streams bring them.
    shapes: Vec<Shape>,
    /// The last one used: often the next chunk is like it, else like the one behind it.
    last: usize,
}

/// As many shapes are remembered: role, text, reasoning, the end, usage, and some to spare.
const MAX_SHAPES: usize = 8;
/// Bytes around the holes of a shape that is worth remembering.
const MAX_BYTES: usize = 4096;

impl Reader {
    /// Reads a chunk, or a whole answer, as [`Chunk::decode`] does.
    pub fn read<'a>(&mut self, json: &'a [u8]) -> Result<Gist<'a>, DecodeError> {
        let count = self.shapes.len();
        for index in (self.last..count).chain(0..self.last) {
            if let Some(gist) = self.shapes[index].read(json) {
                self.last = index;
                return Ok(gist);
            }
        }
        let raw = RawChunk::read(json)?;
        let usage = raw.usage.map(|usage| usage.get().as_bytes());
        let chunk = raw.into_chunk();
        if let Some(shape) = Shape::of(json, &chunk, usage) {
            self.remember(shape);
        }
        Ok(chunk.into())
    }

    fn remember(&mut self, shape: Shape) {
        let next = (self.last + 1).min(self.shapes.len());
        if self.shapes.len() < MAX_SHAPES {
            self.shapes.insert(next, shape);
            self.last = next;
        } else {
            self.last = next % MAX_SHAPES;
            self.shapes[self.last] = shape;
        }
    }
}

/// A chunk's bytes around its holes.
#[derive(Clone, Debug)]
struct Shape {
    bytes: Vec<u8>,
    /// Where the id stands, if the chunk begins with one: any other may stand there.
    id: Range<usize>,
    /// In their order.
    holes: Vec<Hole>,
    /// The usage, if there is no hole for it.
    usage: Option<Usage>,
}

/// Where a value stood.
#[derive(Clone, Copy, Debug)]
struct Hole {
    /// Bytes of the shape before it.
    at: usize,
    value: Value,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Value {
    Content,
    Reasoning,
    Usage,
}

const ID: &[u8] = b"{\"id\":\"";

impl Shape {
    /// The shape of a chunk that the decoder has read, if others like it are to be expected. `usage`
    /// is its usage as written.
    fn of(json: &[u8], chunk: &Chunk<'_>, usage: Option<&[u8]>) -> Option<Self> {
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
        // What is no usual usage stands there for good.
        let whole = usage
            .filter(|usage| Usage::scan(usage).is_some_and(|(_, length)| length == usage.len()));
        if let Some(whole) = whole {
            spans.push((span(json, whole)?, Value::Usage));
        }
        spans.sort_unstable_by_key(|(span, _)| span.start);
        let id = json.strip_prefix(ID).map_or(0, plain);
        let mut shape = Self {
            bytes: Vec::new(),
            id: ID.len()..ID.len() + id,
            holes: Vec::new(),
            usage: chunk.usage.filter(|_| whole.is_none()),
        };
        let mut from = 0;
        for (span, value) in spans {
            shape.bytes.extend_from_slice(json.get(from..span.start)?);
            let at = shape.bytes.len();
            shape.holes.push(Hole { at, value });
            from = span.end;
        }
        shape.bytes.extend_from_slice(&json[from..]);
        let begins_with_id = id > 0 && shape.first_literal().get(shape.id.end) == Some(&b'"');
        if !begins_with_id {
            shape.id = 0..0;
        }
        (shape.bytes.len() <= MAX_BYTES).then_some(shape)
    }

    /// The bytes before the first hole.
    fn first_literal(&self) -> &[u8] {
        let end = self.holes.first().map_or(self.bytes.len(), |hole| hole.at);
        &self.bytes[..end]
    }

    /// What a chunk of this shape says; `None` if it is not of this shape.
    fn read<'a>(&mut self, json: &'a [u8]) -> Option<Gist<'a>> {
        let mut rest = match json.strip_prefix(self.first_literal()) {
            Some(rest) => rest,
            None => self.adopt_id(json)?,
        };
        let mut gist = Gist {
            usage: self.usage,
            ..Gist::default()
        };
        for (index, hole) in self.holes.iter().enumerate() {
            let length = match hole.value {
                Value::Content => text(rest, &mut gist.content)?,
                Value::Reasoning => text(rest, &mut gist.reasoning)?,
                Value::Usage => {
                    let (usage, length) = Usage::scan(rest)?;
                    gist.usage = Some(usage);
                    length
                }
            };
            let next = self.holes.get(index + 1);
            let end = next.map_or(self.bytes.len(), |next| next.at);
            rest = rest[length..].strip_prefix(&self.bytes[hole.at..end])?;
        }
        rest.is_empty().then_some(gist)
    }

    /// Takes over another answer's id if the chunk is the same around it up to the first hole; gives
    /// what follows.
    fn adopt_id<'a>(&mut self, json: &'a [u8]) -> Option<&'a [u8]> {
        let Range { start, end } = self.id.clone();
        if start == end {
            return None;
        }
        let behind = json.strip_prefix(ID)?;
        if behind.starts_with(&self.bytes[start..=end]) {
            return None;
        }
        let id = &behind[..plain(behind)];
        let rest = behind[id.len()..].strip_prefix(&self.first_literal()[end..])?;
        if id.len() == end - start {
            self.bytes[start..end].copy_from_slice(id);
        } else {
            self.bytes.splice(start..end, id.iter().copied());
            self.id.end = start + id.len();
            for hole in &mut self.holes {
                hole.at = hole.at - (end - start) + id.len();
            }
        }
        Some(rest)
    }
}

/// Where a part stands in the whole that it was borrowed from.
fn span(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let span = start..start + part.len();
    (whole.get(span.clone())? == part).then_some(span)
}

/// Where a text stands between its quotes, if it is written as it is.
fn text_span(json: &[u8], text: &str) -> Option<Range<usize>> {
    let span = span(json, text.as_bytes())?;
    let before = json.get(span.start.checked_sub(1)?);
    (before == Some(&b'"') && json.get(span.end) == Some(&b'"')).then_some(span)
}

/// The string at the front, without its quotes and up to the closing one, and its length as written.
fn text<'a>(json: &'a [u8], out: &mut Cow<'a, str>) -> Option<usize> {
    let length = json.iter().position(|&byte| is_special(byte))?;
    if json[length] == b'"' {
        *out = Cow::Borrowed(std::str::from_utf8(&json[..length]).ok()?);
        return Some(length);
    }
    escaped(json, out)
}

/// The same for a string with escapes.
#[cold]
fn escaped<'a>(json: &'a [u8], out: &mut Cow<'a, str>) -> Option<usize> {
    let mut at = 0;
    loop {
        at += json[at..].iter().position(|&byte| is_special(byte))?;
        match json[at] {
            b'"' => break,
            // What follows is read by the decoder below, a quote or another backslash aside.
            b'\\' => at += 2,
            _ => return None,
        }
        if at > json.len() {
            return None;
        }
    }
    let mut quoted = Vec::with_capacity(at + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(&json[..=at]);
    *out = Cow::Owned(serde_json::from_slice(&quoted).ok()?);
    Some(at)
}

/// A byte that ends a string, escapes, or must not be in one.
fn is_special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// Bytes of printable ASCII at the front that mean themselves in a string.
fn plain(json: &[u8]) -> usize {
    let ends = json
        .iter()
        .position(|&byte| is_special(byte) || !byte.is_ascii());
    ends.unwrap_or(json.len())
}

impl Usage {
    /// Reads a usage object of whole numbers and nulls from the front, as [`Usage::read`] would, and
    /// gives its length; `None` if it is any other.
    fn scan(json: &[u8]) -> Option<(Self, usize)> {
        let mut usage = Self::default();
        let mut seen = 0_u8;
        let mut rest = json.strip_prefix(b"{\"")?;
        loop {
            let key = &rest[..plain(rest)];
            rest = rest[key.len()..].strip_prefix(b"\":")?;
            let number = match rest.strip_prefix(b"null") {
                Some(behind) => {
                    rest = behind;
                    None
                }
                None => Some(number(&mut rest)?),
            };
            let (field, mark) = match key {
                b"prompt_tokens" => (Some(&mut usage.prompt_tokens), 1),
                b"completion_tokens" => (Some(&mut usage.completion_tokens), 2),
                b"completion_tokens_details" if number.is_none() => (None, 4),
                b"prompt_tokens_details" if number.is_none() => (None, 8),
                b"completion_tokens_details" | b"prompt_tokens_details" => return None,
                _ => (None, 0),
            };
            if seen & mark != 0 {
                return None;
            }
            seen |= mark;
            if let Some(field) = field {
                *field = number;
            }
            match rest {
                [b'}', ..] => return Some((usage, json.len() - rest.len() + 1)),
                [b',', b'"', behind @ ..] => rest = behind,
                _ => return None,
            }
        }
    }
}

/// Takes a whole number of at most twelve digits from the front.
fn number(json: &mut &[u8]) -> Option<u64> {
    let digits = json.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let leads_with_zero = digits > 1 && json[0] == b'0';
    if digits == 0 || digits > 12 || leads_with_zero {
        return None;
    }
    let value = |sum, digit: &u8| sum * 10 + u64::from(digit - b'0');
    let number = json[..digits].iter().fold(0, value);
    *json = &json[digits..];
    Some(number)
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
        assert_eq!(reader.shapes.len(), MAX_SHAPES);
    }
}
