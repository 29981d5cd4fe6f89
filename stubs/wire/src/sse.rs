//! Server-sent events: framing out, and an incremental decoder that takes any cut of the bytes.
//!
//! The decoder follows the WHATWG event stream rules as far as inference servers use them: lines end
//! in LF, CRLF or CR, `:` starts a comment, several `data` lines join with LF, one space behind the
//! colon is dropped. Unlike a browser it also yields an event that the end of the stream left
//! without its blank line, because cut streams are what the harness looks for.

/// The event that ends an OpenAI stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Appends one event with a single line of data.
pub fn encode(data: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
}

/// The data of an event as [`encode`] writes it; if there is a line end in it, the event is another.
pub fn decode(event: &[u8]) -> Option<&[u8]> {
    event.strip_prefix(b"data: ")?.strip_suffix(b"\n\n")
}

/// Splits a byte stream into events, whatever its cuts.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// An unfinished line from earlier input.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a CR that ended a line; an LF behind it belongs to it.
    after_cr: bool,
}

impl Decoder {
    /// Feeds bytes and calls `event` with the data of each event that they complete.
    pub fn feed(&mut self, mut bytes: &[u8], mut event: impl FnMut(&[u8])) {
        if !bytes.is_empty() && std::mem::take(&mut self.after_cr) {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        if self.is_between_events() {
            bytes = whole_events(bytes, &mut event);
            if bytes.is_empty() {
                return;
            }
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            if self.line.is_empty() {
                self.line_ends(&bytes[..end], &mut event);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&bytes[..end]);
                self.line_ends(&line, &mut event);
                line.clear();
                self.line = line;
            }
            let cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if cr {
                match bytes.first() {
                    Some(b'\n') => bytes = &bytes[1..],
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
        }
        self.line.extend_from_slice(bytes);
    }

    /// What is fed next begins an event, or a field in front of its data.
    pub fn is_between_events(&self) -> bool {
        self.line.is_empty() && !self.has_data && !self.after_cr
    }

    /// Ends the stream: yields the data of an event that had no final blank line.
    pub fn finish(mut self, mut event: impl FnMut(&[u8])) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.line_ends(&line, &mut event);
        }
        self.line_ends(b"", &mut event);
    }

    fn line_ends(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        if line.is_empty() {
            if self.has_data {
                event(&self.data);
            }
            self.data.clear();
            self.has_data = false;
            return;
        }
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        if field == b"data" {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data
                .extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
    }
}

/// Takes events of a single line of data, as servers write them, from the front.
fn whole_events<'a>(mut bytes: &'a [u8], event: &mut impl FnMut(&[u8])) -> &'a [u8] {
    while let Some(line) = bytes.strip_prefix(b"data: ") {
        let end = memchr::memchr2(b'\n', b'\r', line).unwrap_or(line.len());
        let Some(behind) = line[end..].strip_prefix(b"\n\n") else {
            break;
        };
        event(&line[..end]);
        bytes = behind;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events<'a>(cuts: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        let mut out = Vec::new();
        let mut push = |data: &[u8]| out.push(String::from_utf8_lossy(data).into_owned());
        let mut decoder = Decoder::default();
        for bytes in cuts {
            decoder.feed(bytes, &mut push);
        }
        decoder.finish(&mut push);
        out
    }

    #[test]
    fn framing_variants_are_read() {
        let cases: &[(&[u8], &[&str])] = &[
            (b"data: a\n\ndata: b\n\n", &["a", "b"]),
            (b"data:a\n\n", &["a"]),
            (b"data:  a\n\n", &[" a"]),
            (b"data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]),
            (b"data: a\r\rdata: b\r\r", &["a", "b"]),
            (b"data: a\r\n\ndata: b\n\n", &["a", "b"]),
            (b": ping\n\nevent: x\nid: 1\ndata: a\n\n", &["a"]),
            (b": ping\ndata: a\n\n", &["a"]),
            (b"data: a\ndata: b\n\n", &["a\nb"]),
            (b"data\n\n", &[""]),
            (b"data: a", &["a"]),
            (b"data: a\n", &["a"]),
            (b"dat: a\n\n\n\n", &[]),
            (b"", &[]),
        ];
        for (bytes, expected) in cases {
            let text = bytes.escape_ascii().to_string();
            assert_eq!(events([*bytes]), *expected, "{text:?}");
            assert_eq!(events(bytes.chunks(1)), *expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_cut_yields_the_same_events(
            parts in prop::collection::vec(
                prop::sample::select(vec!["data", ":", " ", "\n", "\r", "\r\n", "\n\n", "a", "é", "{}", "event"]),
                0..40,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let bytes = parts.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            prop_assert_eq!(events(pieces), events([&bytes[..]]));
        }

        #[test]
        fn decode_undoes_encode(lines in prop::collection::vec("[^\r\n]{0,20}", 0..8)) {
            let mut bytes = Vec::new();
            for line in &lines {
                encode(line.as_bytes(), &mut bytes);
            }
            prop_assert_eq!(events([&bytes[..]]), lines);
        }
    }
}
