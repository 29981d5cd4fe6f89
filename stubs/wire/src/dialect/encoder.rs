//! What one answer says as bytes.

use std::ops::Range;
use std::sync::Arc;

use super::pattern::{Patterns, Shape, Values};
use super::sglang::Told;
use super::{Dialect, Envelope};
use crate::chunk::Chunk;
use crate::http1;
use crate::json;
use crate::usage::Usage;

/// Encodes the events of one stream, or one whole answer: what is usual by a pattern, the rest by the
/// typed encoder.
#[derive(Clone, Debug)]
pub struct Encoder {
    dialect: Dialect,
    envelope: Envelope,
    patterns: Arc<Patterns>,
    /// Those of this stream's plain texts.
    templates: Vec<Template>,
    /// What was said so far, where events say it again.
    told: Told,
}

/// Where a plain text stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Field {
    /// `content`, or `text` of a completion.
    Content,
    /// `reasoning`
    Reasoning,
}

/// The event of a plain text, cut where the text goes.
#[derive(Clone, Debug)]
pub struct Template {
    index: u32,
    field: Field,
    prefix: Vec<u8>,
    suffix: Vec<u8>,
    /// The last chunk, to be written again with another text of as many bytes.
    last: Vec<u8>,
    /// Where the text stands in it.
    last_text: Range<usize>,
}

impl Encoder {
    /// An encoder for one answer, with the patterns of all answers of its stub.
    pub fn new(dialect: Dialect, envelope: Envelope, patterns: Arc<Patterns>) -> Self {
        Self {
            dialect,
            envelope,
            patterns,
            templates: Vec::new(),
            told: Told::new(),
        }
    }

    /// What all chunks share.
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// The dialect that it speaks.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Appends one event, `data: ` and blank line included.
    pub fn event(&mut self, chunk: &Chunk<'_>, out: &mut Vec<u8>) {
        match Shape::of(chunk, false) {
            Some((shape, text, usage)) => self.shaped(shape, text, usage, out),
            None => by_type(self.dialect, &self.envelope, chunk, &mut self.told, out),
        }
    }

    /// Appends the JSON of an answer that is not streamed.
    pub fn whole(&self, answer: &Chunk<'_>, out: &mut Vec<u8>) {
        match Shape::of(answer, true) {
            Some((shape, text, usage)) => self.shaped(shape, text, usage, out),
            None => self.dialect.encode_whole(&self.envelope, answer, out),
        }
    }

    /// Appends the event or the whole answer of that shape with these values.
    pub fn shaped(&self, shape: Shape, text: &str, usage: Usage, out: &mut Vec<u8>) {
        if let Some(pattern) = self.patterns.find(self.dialect, &self.envelope, shape) {
            return pattern.fill(&self.values(shape, text, usage), out);
        }
        let chunk = shape.chunk(text, usage);
        if shape.is_whole {
            return self.dialect.encode_whole(&self.envelope, &chunk, out);
        }
        let told = &mut Told::new();
        by_type(self.dialect, &self.envelope, &chunk, told, out);
    }

    fn values<'v>(&'v self, shape: Shape, text: &'v str, usage: Usage) -> Values<'v> {
        Values {
            created: self.envelope.created,
            id: self.envelope.id_of(shape.index()),
            text,
            usage,
        }
    }

    /// How the events of a choice's plain text are written.
    pub fn template(&mut self, index: u32, field: Field) -> &mut Template {
        let is_it = |template: &Template| template.index == index && template.field == field;
        let known = self.templates.iter().position(is_it);
        let at = known.unwrap_or(self.templates.len());
        if known.is_none() {
            self.templates.push(self.new_template(index, field));
        }
        &mut self.templates[at]
    }

    /// The same for a stream that keeps it itself.
    pub fn new_template(&self, index: u32, field: Field) -> Template {
        let shape = Shape::text(index, field);
        let pattern = self.patterns.find(self.dialect, &self.envelope, shape);
        let values = self.values(shape, "", Usage::default());
        let (prefix, suffix) = pattern
            .and_then(|pattern| pattern.around_text(&values))
            .unwrap_or_else(|| self.around_text(shape));
        Template {
            index,
            field,
            prefix,
            suffix,
            last: Vec::new(),
            last_text: 0..0,
        }
    }

    /// An event of the typed encoder with a text that no other part of it has, cut there.
    fn around_text(&self, shape: Shape) -> (Vec<u8>, Vec<u8>) {
        let written = |text: &str| {
            let mut event = Vec::new();
            let chunk = shape.chunk(text, Usage::default());
            by_type(
                self.dialect,
                &self.envelope,
                &chunk,
                &mut Told::new(),
                &mut event,
            );
            event
        };
        // Where two texts of one letter differ is where the text stands.
        let (one, other) = (written("a"), written("b"));
        let at = one.iter().zip(&other).position(|(one, other)| one != other);
        let at = at.expect("a text chunk shows its text");
        (one[..at].to_vec(), one[at + 1..].to_vec())
    }
}

/// Appends an event by the typed encoder.
fn by_type(
    dialect: Dialect,
    envelope: &Envelope,
    chunk: &Chunk<'_>,
    told: &mut Told,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"data: ");
    dialect.encode(envelope, chunk, told, out);
    out.extend_from_slice(b"\n\n");
}

impl Template {
    /// Appends the event of a text as one chunk of a chunked body, and gives its bytes without the
    /// chunk's framing.
    pub fn write_chunk(&mut self, text: &str, out: &mut Vec<u8>) -> usize {
        let escaped = json::escaped_length(text);
        let is_plain = escaped == text.len();
        let bytes = self.prefix.len() + escaped + self.suffix.len();
        let start = out.len();
        if is_plain && text.len() == self.last_text.len() && !self.last.is_empty() {
            out.extend_from_slice(&self.last);
            let Range { start: from, end } = self.last_text;
            out[start + from..start + end].copy_from_slice(text.as_bytes());
            return bytes;
        }
        http1::write_chunk_size(bytes, out);
        out.extend_from_slice(&self.prefix);
        let text_at = out.len() - start;
        json::escape_into(text, out);
        out.extend_from_slice(&self.suffix);
        out.extend_from_slice(b"\r\n");
        if is_plain {
            self.last.clear();
            self.last.extend_from_slice(&out[start..]);
            self.last_text = text_at..text_at + text.len();
        }
        bytes
    }

    /// Does the same to each `each` bytes of an ASCII text that is made of such parts, and gives the bytes
    /// of one; none are written if the text is none, or has anything to escape.
    pub fn write_chunks(&mut self, text: &str, each: usize, out: &mut Vec<u8>) -> Option<usize> {
        let is_even = each > 0 && !text.is_empty() && text.len().is_multiple_of(each);
        if !(is_even && text.is_ascii() && json::escaped_length(text) == text.len()) {
            return None;
        }
        let (first, rest) = text.split_at(each);
        let start = out.len();
        let bytes = self.write_chunk(first, out);
        // As many copies as there are texts, by doubling, and then the texts into them.
        let one = out.len() - start;
        let end = start + one * (text.len() / each);
        out.reserve(end - out.len());
        while out.len() < end {
            let more = (out.len() - start).min(end - out.len());
            out.extend_from_within(start..start + more);
        }
        let copies = out[start + one..].chunks_exact_mut(one);
        for (copy, text) in copies.zip(rest.as_bytes().chunks_exact(each)) {
            copy[self.last_text.clone()].copy_from_slice(text);
        }
        Some(bytes)
    }

    /// Bytes of a chunk with a text of so many bytes, its framing included.
    pub fn chunk_bytes(&self, text: usize) -> usize {
        self.prefix.len() + text + self.suffix.len() + b"fff\r\n\r\n".len()
    }
}
