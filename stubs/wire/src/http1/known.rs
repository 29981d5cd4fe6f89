//! A head that is like the last one, known again by comparison: a client's requests differ in their
//! length and their id, if in anything.

use std::ops::Range;

use super::BadHead;
use super::head::{Framing, RequestHead, is_named, length};

/// Longest head that is remembered, in bytes.
const MAX_BYTES: usize = 4 << 10;

/// The last request head.
#[derive(Debug, Default)]
pub struct KnownHead(Option<Form>);

/// A head around the values that may differ.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what headers say")]
struct Form {
    parts: Vec<Part>,
    end: Vec<u8>,
    /// Of the headers in the end.
    end_headers: Vec<Header>,
    method: Range<usize>,
    target: Range<usize>,
    /// Where no header tells the body's length.
    framing: Framing,
    keep_alive: bool,
    expect_continue: bool,
    is_http10: bool,
    is_json: bool,
}

/// Name and value of a header, as places in what stands around it.
type Header = (Range<usize>, Range<usize>);

/// What stands before a value that may differ.
#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    headers: Vec<Header>,
    /// The name of the value's header.
    name: Range<usize>,
    value: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A word, of `x-request-id`.
    Id,
    /// Digits, of `content-length`.
    Length,
}

impl KnownHead {
    /// Reads a head as [`RequestHead::parse`] does, quicker where it is like the last one.
    ///
    /// # Errors
    /// [`BadHead`] for bytes that are none.
    pub fn parse<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<Option<(RequestHead<'a>, usize)>, BadHead> {
        let known = self.0.as_ref().and_then(|form| form.read(bytes));
        if known.is_some() {
            return Ok(known);
        }
        let parsed = RequestHead::parse(bytes)?;
        if let Some((head, length)) = &parsed
            && *length <= MAX_BYTES
        {
            self.0 = Some(Form::new(head, &bytes[..*length]));
        }
        Ok(parsed)
    }
}

impl Form {
    fn new(head: &RequestHead<'_>, bytes: &[u8]) -> Self {
        let place = |part: &[u8]| {
            let start = part.as_ptr() as usize - bytes.as_ptr() as usize;
            start..start + part.len()
        };
        let mut form = Self {
            parts: Vec::new(),
            end: Vec::new(),
            end_headers: Vec::new(),
            method: place(head.method.as_bytes()),
            target: place(head.target.as_bytes()),
            framing: head.framing,
            keep_alive: head.keep_alive,
            expect_continue: head.expect_continue,
            is_http10: head.is_http10,
            is_json: head.is_json,
        };
        // Where the part begins that is being gathered.
        let mut start = 0;
        for (name, value) in &head.headers {
            let (name, place) = (place(name), place(value));
            let from_start = |place: &Range<usize>| place.start - start..place.end - start;
            let named = |known| is_named(&bytes[name.clone()], known);
            let kind = match () {
                () if named("content-length") => Kind::Length,
                () if named("x-request-id") && is_word(value) => Kind::Id,
                () => {
                    let header = (from_start(&name), from_start(&place));
                    form.end_headers.push(header);
                    continue;
                }
            };
            form.parts.push(Part {
                bytes: bytes[start..place.start].to_vec(),
                headers: std::mem::take(&mut form.end_headers),
                name: from_start(&name),
                value: kind,
            });
            start = place.end;
        }
        form.end = bytes[start..].to_vec();
        form
    }

    /// Reads a head of this form.
    fn read<'a>(&self, bytes: &'a [u8]) -> Option<(RequestHead<'a>, usize)> {
        let mut headers = Vec::with_capacity(8);
        let mut framing = self.framing;
        let mut rest = bytes;
        for part in &self.parts {
            let value = rest.strip_prefix(&*part.bytes)?;
            let own = |place: &Range<usize>| &rest[place.clone()];
            headers.extend(
                part.headers
                    .iter()
                    .map(|(name, value)| (own(name), own(value))),
            );
            let (value, behind) = value.split_at(memchr::memchr(b'\r', value)?);
            match part.value {
                Kind::Id if is_word(value) => {}
                Kind::Id => return None,
                Kind::Length => framing = Framing::Length(length(value)?),
            }
            headers.push((own(&part.name), value));
            rest = behind;
        }
        let behind = rest.strip_prefix(&*self.end)?;
        let own = |place: &Range<usize>| &rest[place.clone()];
        headers.extend(
            self.end_headers
                .iter()
                .map(|(name, value)| (own(name), own(value))),
        );
        let line = std::str::from_utf8(&bytes[..self.target.end]).ok()?;
        let head = RequestHead {
            method: &line[self.method.clone()],
            target: &line[self.target.clone()],
            headers,
            framing,
            keep_alive: self.keep_alive,
            expect_continue: self.expect_continue,
            is_http10: self.is_http10,
            is_json: self.is_json,
        };
        Some((head, bytes.len() - behind.len()))
    }
}

/// Printable ASCII without spaces.
fn is_word(value: &[u8]) -> bool {
    let is_odd = |byte: &u8| u8::from(byte.wrapping_sub(b'!') > b'~' - b'!');
    !value.is_empty() && value.iter().fold(0, |odd, byte| odd | is_odd(byte)) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;

    const HEADS: &[&str] = &[
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:8000\r\ncontent-type: application/json\r\nx-request-id: a-1\r\ncontent-length: 12\r\n\r\n{}",
        "GET /health?a=b%20c HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Request-Id: a b\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nContent-Length:  3 \r\nX-Request-ID: 7\r\nUser-Agent: x/1 (y; z)\r\n\r\nabc",
        "POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
        "\r\n\nGET /health HTTP/1.1\r\nhost: a\r\n\r\n",
    ];

    const PIECES: &[&str] = &[
        "",
        " ",
        "\r",
        "\n",
        "\r\n",
        "\t",
        ":",
        "\0",
        "é",
        "0",
        "12",
        "99999999999999999999",
        "content-length: 7\r\n",
        "x-request-id: b\r\n",
        "\r\n\r\n",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_known_head_is_read_as_an_unknown_one(
            first in select(HEADS),
            edits in prop::collection::vec((any::<Index>(), 0_usize..4, select(PIECES)), 0..4),
            second in prop::option::of(select(HEADS)),
        ) {
            let mut known = KnownHead::default();
            let mut bytes = first.as_bytes().to_vec();
            for (from, length, piece) in edits {
                prop_assert_eq!(known.parse(&bytes), RequestHead::parse(&bytes));
                let from = from.index(bytes.len() + 1);
                bytes.splice(from..(from + length).min(bytes.len()), piece.bytes());
            }
            prop_assert_eq!(known.parse(&bytes), RequestHead::parse(&bytes));
            let second = second.unwrap_or(first).as_bytes();
            prop_assert_eq!(known.parse(second), RequestHead::parse(second));
        }
    }

    #[test]
    fn other_lengths_and_ids_are_of_the_same_form() {
        let head = |id: &str, length: u64| {
            format!(
                "POST /a HTTP/1.1\r\nhost: b\r\nx-request-id: {id}\r\ncontent-length: {length}\r\nx: y\r\n\r\n"
            )
        };
        let form = head("a-1", 7);
        let (parsed, length) = RequestHead::parse(form.as_bytes()).unwrap().unwrap();
        let form = Form::new(&parsed, &form.as_bytes()[..length]);
        let other = head("another", 1234);
        let found = form.read(other.as_bytes());
        assert!(found.is_some());
        assert_eq!(Ok(found), RequestHead::parse(other.as_bytes()));
    }
}
