//! Shapes of JSON that are remembered, and what takes values out between their bytes.

use std::borrow::Cow;
use std::ops::Range;

/// As many shapes are remembered: role, text, reasoning, the end, usage, and some to spare.
pub(super) const MAX_SHAPES: usize = 8;
/// Bytes around the holes of a shape that is worth remembering.
pub(super) const MAX_BYTES: usize = 4096;

/// Shapes in the order in which streams bring them.
#[derive(Clone, Debug)]
pub(super) struct Shapes<S> {
    all: Vec<S>,
    /// The last one used: often the next chunk is like it, else like the one behind it.
    last: usize,
}

impl<S> Default for Shapes<S> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            last: 0,
        }
    }
}

impl<S> Shapes<S> {
    /// Tries shapes until one can read a chunk; what it reads is put into `value`, empty before.
    pub(super) fn recall<T: Default>(
        &mut self,
        value: &mut T,
        mut read: impl FnMut(&mut S, &mut T) -> Option<()>,
    ) -> Option<()> {
        for index in (self.last..self.all.len()).chain(0..self.last) {
            if read(&mut self.all[index], value).is_some() {
                self.last = index;
                return Some(());
            }
            *value = T::default();
        }
        None
    }

    pub(super) fn remember(&mut self, shape: S) {
        let next = (self.last + 1).min(self.all.len());
        if self.all.len() < MAX_SHAPES {
            self.all.insert(next, shape);
            self.last = next;
        } else {
            self.last = next % MAX_SHAPES;
            self.all[self.last] = shape;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

/// Bytes around holes, each for a value that may be another the next time.
#[derive(Clone, Debug)]
pub(super) struct Template<V> {
    bytes: Vec<u8>,
    /// In their order.
    holes: Vec<Hole<V>>,
}

/// Where a value stood.
#[derive(Clone, Copy, Debug)]
struct Hole<V> {
    /// Bytes of the template before it.
    at: usize,
    value: V,
}

impl<V> Default for Template<V> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            holes: Vec::new(),
        }
    }
}

impl<V: Copy> Template<V> {
    /// Its bytes, without what stood in the holes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many holes there are.
    pub(super) fn holes(&self) -> usize {
        self.holes.len()
    }

    /// Appends bytes that stay as they are.
    pub(super) fn literal(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a hole.
    pub(super) fn hole(&mut self, value: V) {
        let at = self.bytes.len();
        self.holes.push(Hole { at, value });
    }

    /// The bytes before the first hole.
    pub(super) fn first(&self) -> &[u8] {
        let end = self.holes.first().map_or(self.bytes.len(), |hole| hole.at);
        &self.bytes[..end]
    }

    /// Puts other bytes in place of some before the first hole.
    pub(super) fn replace(&mut self, range: Range<usize>, bytes: &[u8]) {
        if bytes.len() == range.len() {
            self.bytes[range].copy_from_slice(bytes);
            return;
        }
        for hole in &mut self.holes {
            hole.at = hole.at - range.len() + bytes.len();
        }
        self.bytes.splice(range, bytes.iter().copied());
    }

    /// Reads what follows the first bytes: `take` takes the value of each hole from the front. `None` if
    /// there is anything else.
    #[inline]
    pub(super) fn read<'a>(
        &self,
        mut rest: &'a [u8],
        mut take: impl FnMut(V, &mut &'a [u8]) -> Option<()>,
    ) -> Option<()> {
        for (index, hole) in self.holes.iter().enumerate() {
            take(hole.value, &mut rest)?;
            let next = self.holes.get(index + 1);
            let end = next.map_or(self.bytes.len(), |next| next.at);
            rest = rest.strip_prefix(&self.bytes[hole.at..end])?;
        }
        rest.is_empty().then_some(())
    }
}

/// Where a part stands in the whole that it was borrowed from.
pub(super) fn span(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let span = start..start + part.len();
    (whole.get(span.clone())? == part).then_some(span)
}

/// Where a text stands between its quotes, if it is written as it is.
pub(super) fn text_span(json: &[u8], text: &str) -> Option<Range<usize>> {
    let span = span(json, text.as_bytes())?;
    let before = json.get(span.start.checked_sub(1)?);
    (before == Some(&b'"') && json.get(span.end) == Some(&b'"')).then_some(span)
}

/// Takes a string from the front, without its quotes and up to the closing one.
pub(super) fn text<'a>(json: &mut &'a [u8], out: &mut Cow<'a, [u8]>) -> Option<()> {
    let length = special_at(json)?;
    if json[length] != b'"' {
        return escaped(json, out);
    }
    let (text, rest) = json.split_at(length);
    if !text.is_ascii() {
        std::str::from_utf8(text).ok()?;
    }
    *out = Cow::Borrowed(text);
    *json = rest;
    Some(())
}

/// The same for a string with escapes.
#[cold]
fn escaped(json: &mut &[u8], out: &mut Cow<'_, [u8]>) -> Option<()> {
    let mut length = 0;
    loop {
        length += special_at(json.get(length..)?)?;
        match json[length] {
            b'"' => break,
            // What follows is read by the decoder below, a quote or another backslash aside.
            b'\\' => length += 2,
            _ => return None,
        }
    }
    let mut quoted = Vec::with_capacity(length + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(&json[..=length]);
    let text: String = serde_json::from_slice(&quoted).ok()?;
    *out = Cow::Owned(text.into_bytes());
    *json = &json[length..];
    Some(())
}

/// Bytes of printable ASCII at the front that mean themselves in a string.
pub(super) fn plain(json: &[u8]) -> usize {
    let special = special_at(json).unwrap_or(json.len());
    if json[..special].is_ascii() {
        return special;
    }
    let other = json[..special].iter().position(|byte| !byte.is_ascii());
    other.unwrap_or(special)
}

/// Where the first byte stands that ends a string, escapes, or must not be in one.
pub(super) fn special_at(json: &[u8]) -> Option<usize> {
    let (words, rest) = json.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = special(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(index * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let is_special = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < 0x20;
    Some(json.len() - rest.len() + rest.iter().position(is_special)?)
}

/// Of eight bytes, the highest bit of the first special one, and maybe of others behind it.
fn special(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    // The lowest byte that borrows is below the limit; only bytes above it may borrow from it.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let quote = below(word ^ (ONES * u64::from(b'"')), 1);
    let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
    (quote | backslash | below(word, 0x20)) & (ONES << 7)
}

/// Takes a whole number of at most twelve digits, none of which can be too large a count, from the
/// front.
pub(super) fn number(json: &mut &[u8]) -> Option<u64> {
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
    fn the_first_special_byte_is_found_wherever_it_stands() {
        for special in [b'"', b'\\', 0, 0x1f] {
            for other in [b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xff] {
                let mut bytes = [other; 21];
                assert_eq!(special_at(&bytes), None);
                for at in (0..bytes.len()).rev() {
                    bytes[at] = special;
                    assert_eq!(special_at(&bytes), Some(at), "{special} {other}");
                }
            }
        }
    }
}
