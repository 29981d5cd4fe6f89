//! JSON as Python's `json.loads` reads it, borrowed from the body.
//!
//! The servers imitated here accept what Python accepts (`NaN`, duplicate keys, lone surrogates) and
//! quote Python's error texts with Python's character offsets, so a stricter parser cannot stand in.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

/// Deepest nesting that is read; Python raises `RecursionError` not far beyond.
const MAX_DEPTH: usize = 900;
/// Most digits of an integer that Python converts.
const MAX_DIGITS: usize = 4300;

/// A JSON value that borrows from the text it was read from.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'a> {
    /// `[…]`
    Array(Vec<Self>),
    /// `true` or `false`
    Bool(bool),
    /// `null`
    Null,
    /// A number as written, or `NaN`, `Infinity`, `-Infinity`.
    Number(&'a str),
    /// `{…}`, keys in order as written, duplicates included.
    Object(Object<'a>),
    /// A string.
    String(Cow<'a, str>),
    /// A string with lone surrogates, which stand here as U+FFFD.
    Surrogates(String),
}

/// The members of an object as written; of a repeated key the last one counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object<'a>(pub Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> Object<'a> {
    /// The value of `key`, the last one if it is repeated.
    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        self.0
            .iter()
            .rev()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// Removes `key` and gives its value, the last one if it is repeated.
    pub fn take(&mut self, key: &str) -> Option<Json<'a>> {
        let mut taken = None;
        while let Some(at) = self.0.iter().rposition(|(name, _)| name == key) {
            let (_, value) = self.0.remove(at);
            taken = taken.or(Some(value));
        }
        taken
    }

    /// Number of different keys, as Python's `len(dict)`.
    pub fn distinct(&self) -> usize {
        let mut keys: Vec<&str> = self.0.iter().map(|(name, _)| name.as_ref()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.len()
    }
}

impl<'a> Json<'a> {
    /// Reads one value and nothing behind it; a UTF-8 byte order mark before it is skipped.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, JsonError> {
        let mut reader = Reader::new(bytes)?;
        reader.skip_whitespace();
        let value = reader.value(0)?;
        reader.skip_whitespace();
        if reader.at < reader.text.len() {
            return Err(reader.error("Extra data", reader.at));
        }
        Ok(value)
    }

    /// Reads the value that a text begins with, and gives the length of that in bytes.
    pub fn parse_front(text: &'a str) -> Result<(Self, usize), JsonError> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        Ok((value, reader.at))
    }

    /// The text of a string without lone surrogates.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&Object<'a>> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }
}

/// For a library that takes any value; keys keep their order, a number beyond `serde_json`'s is `null`.
impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Array(items) => serializer.collect_seq(items),
            Json::Bool(flag) => serializer.serialize_bool(*flag),
            Json::Null => serializer.serialize_unit(),
            Json::Number(text) => {
                let number = text.parse::<serde_json::Number>().ok();
                number.serialize(serializer)
            }
            Json::Object(members) => {
                let members = members.0.iter();
                serializer.collect_map(members.map(|(name, value)| (&**name, value)))
            }
            Json::String(text) => serializer.serialize_str(text),
            Json::Surrogates(text) => serializer.serialize_str(text),
        }
    }
}

/// Why a text is not JSON, in Python's words.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JsonError {
    /// The bytes are not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// `json.JSONDecodeError`: message and offset in characters.
    #[error("{message} at character {offset}")]
    Syntax {
        /// Python's message.
        message: &'static str,
        /// Offset of the fault in characters, not bytes.
        offset: usize,
    },
    /// Nested too deeply or a number too long for Python's parser.
    #[error("beyond the parser's limits")]
    TooLarge,
}

/// A text on its way to values.
pub(crate) struct Reader<'a> {
    text: &'a str,
    /// Bytes that have been read.
    pub(crate) at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, JsonError> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let text = std::str::from_utf8(bytes).map_err(|_| JsonError::NotUtf8)?;
        Ok(Self { text, at: 0 })
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// A part of the text.
    pub(crate) fn cut(&self, start: usize, end: usize) -> &'a str {
        &self.text[start..end]
    }

    fn error(&self, message: &'static str, at: usize) -> JsonError {
        let offset = self.text[..at].chars().count();
        JsonError::Syntax { message, offset }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(crate) fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::TooLarge);
        }
        let rest = &self.text[self.at..];
        let (literal, value) = match self.peek() {
            Some(b'"') => return self.string(),
            Some(b'{') => return self.object(depth),
            Some(b'[') => return self.array(depth),
            Some(b'n') => ("null", Json::Null),
            Some(b't') => ("true", Json::Bool(true)),
            Some(b'f') => ("false", Json::Bool(false)),
            Some(b'N') => ("NaN", Json::Number("NaN")),
            Some(b'I') => ("Infinity", Json::Number("Infinity")),
            Some(b'-') if rest.starts_with("-I") => ("-Infinity", Json::Number("-Infinity")),
            _ => return self.number(),
        };
        if !rest.starts_with(literal) {
            return Err(self.error("Expecting value", self.at));
        }
        self.at += literal.len();
        Ok(value)
    }

    /// The longest prefix that is a number, as Python's regular expression takes it.
    fn number(&mut self) -> Result<Json<'a>, JsonError> {
        let bytes = &self.text.as_bytes()[self.at..];
        let digits = |from: usize| {
            bytes[from..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count()
        };
        let sign = usize::from(bytes.first() == Some(&b'-'));
        let whole = match bytes.get(sign) {
            Some(b'0') => 1,
            Some(_) => digits(sign),
            None => 0,
        };
        if whole == 0 {
            return Err(self.error("Expecting value", self.at));
        }
        let mut end = sign + whole;
        if bytes.get(end) == Some(&b'.') {
            match digits(end + 1) {
                0 => {}
                fraction => end += 1 + fraction,
            }
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let signed = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            match bytes
                .get(end + 1 + signed)
                .map_or(0, |_| digits(end + 1 + signed))
            {
                0 => {}
                exponent => end += 1 + signed + exponent,
            }
        }
        if end == sign + whole && whole > MAX_DIGITS {
            return Err(JsonError::TooLarge);
        }
        let number = &self.text[self.at..self.at + end];
        self.at += end;
        Ok(Json::Number(number))
    }

    fn array(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        self.at += 1;
        self.skip_whitespace();
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_whitespace();
            match self.peek() {
                Some(b']') => break,
                Some(b',') => self.at += 1,
                _ => return Err(self.error("Expecting ',' delimiter", self.at)),
            }
            self.skip_whitespace();
        }
        self.at += 1;
        Ok(Json::Array(items))
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        self.at += 1;
        self.skip_whitespace();
        let mut members = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(Object(members)));
        }
        loop {
            if self.peek() != Some(b'"') {
                let message = "Expecting property name enclosed in double quotes";
                return Err(self.error(message, self.at));
            }
            let name = match self.string()? {
                Json::String(name) => name,
                Json::Surrogates(name) => name.into(),
                _ => unreachable!("string() yields strings"),
            };
            self.skip_whitespace();
            if self.peek() != Some(b':') {
                return Err(self.error("Expecting ':' delimiter", self.at));
            }
            self.at += 1;
            self.skip_whitespace();
            members.push((name, self.value(depth + 1)?));
            self.skip_whitespace();
            match self.peek() {
                Some(b'}') => break,
                Some(b',') => self.at += 1,
                _ => return Err(self.error("Expecting ',' delimiter", self.at)),
            }
            self.skip_whitespace();
        }
        self.at += 1;
        Ok(Json::Object(Object(members)))
    }

    /// The string whose opening quote is next.
    pub(crate) fn string(&mut self) -> Result<Json<'a>, JsonError> {
        let quote = self.at;
        let start = quote + 1;
        let end = self.plain_run(start, quote)?;
        if self.text.as_bytes()[end] == b'"' {
            self.at = end + 1;
            return Ok(Json::String(Cow::Borrowed(&self.text[start..end])));
        }
        let mut text = String::from(&self.text[start..end]);
        let mut lone_surrogates = false;
        self.at = end;
        loop {
            let unit = self.escape(quote)?;
            lone_surrogates |= unit.is_none();
            text.push(unit.unwrap_or('\u{fffd}'));
            let end = self.plain_run(self.at, quote)?;
            text.push_str(&self.text[self.at..end]);
            self.at = end;
            if self.text.as_bytes()[end] == b'"' {
                self.at += 1;
                break;
            }
        }
        Ok(if lone_surrogates {
            Json::Surrogates(text)
        } else {
            Json::String(text.into())
        })
    }

    /// Index of the next quote or backslash from `start`.
    fn plain_run(&self, start: usize, quote: usize) -> Result<usize, JsonError> {
        let bytes = &self.text.as_bytes()[start..];
        let run = plain_length(bytes);
        match bytes.get(run) {
            None => Err(self.error("Unterminated string starting at", quote)),
            Some(b'"' | b'\\') => Ok(start + run),
            Some(_) => Err(self.error("Invalid control character at", start + run)),
        }
    }

    /// One escape at the backslash `self.at`; `None` is a lone surrogate.
    fn escape(&mut self, quote: usize) -> Result<Option<char>, JsonError> {
        let backslash = self.at;
        let plain = match self.text.as_bytes().get(backslash + 1) {
            None => return Err(self.error("Unterminated string starting at", quote)),
            Some(b'u') => return self.unicode_escape(),
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(_) => return Err(self.error("Invalid \\escape", backslash)),
        };
        self.at = backslash + 2;
        Ok(Some(plain))
    }

    fn unicode_escape(&mut self) -> Result<Option<char>, JsonError> {
        let unit = |at: usize| {
            let digits = self.text.as_bytes().get(at + 2..at + 6)?;
            let valid =
                self.text[at..].starts_with("\\u") && digits.iter().all(u8::is_ascii_hexdigit);
            let digits =
                valid.then(|| std::str::from_utf8(digits).expect("hex digits are ASCII"))?;
            u32::from_str_radix(digits, 16).ok()
        };
        let at = self.at;
        let Some(first) = unit(at) else {
            return Err(self.error("Invalid \\uXXXX escape", at + 1));
        };
        if (0xd800..0xdc00).contains(&first)
            && let Some(second @ 0xdc00..0xe000) = unit(at + 6)
        {
            self.at = at + 12;
            let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return Ok(char::from_u32(code));
        }
        self.at = at + 6;
        Ok(char::from_u32(first))
    }
}

/// Appends `text` as the inside of a JSON string, without the quotes.
///
/// Escapes what pydantic, orjson and Python's `json.dumps(ensure_ascii=False)` escape, in their
/// spelling: `\b \t \n \f \r \" \\` and `\u00xx` for other control characters below 0x20.
pub fn escape_into(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    loop {
        let (run, behind) = rest.split_at(plain_length(rest));
        out.extend_from_slice(run);
        let Some((&byte, behind)) = behind.split_first() else {
            return;
        };
        rest = behind;
        let short = match byte {
            b'"' | b'\\' => byte,
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0c => b'f',
            b'\r' => b'r',
            _ => {
                let low = HEX[usize::from(byte & 0xf)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', b'0' + (byte >> 4), low]);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
}

/// Bytes that [`escape_into`] appends; as many as the text has if it stands in a JSON string as it is.
pub(crate) fn escaped_length(text: &str) -> usize {
    let mut length = text.len();
    let mut rest = text.as_bytes();
    loop {
        let run = plain_length(rest);
        length += match rest.get(run) {
            None => return length,
            Some(b'"' | b'\\' | 0x08 | b'\t' | b'\n' | 0x0c | b'\r') => 1,
            Some(_) => 5,
        };
        rest = &rest[run + 1..];
    }
}

/// Bytes at the front that stand in a JSON string as they are: up to a quote, a backslash or a control
/// character below 0x20. Most strings are short; of the others, blocks are passed over as a whole.
pub(crate) fn plain_length(bytes: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let is_special = |byte: u8| byte < 0x20 || matches!(byte, b'"' | b'\\');
    // Without a branch, so that many bytes are looked at together.
    let special =
        |&byte: &u8| u8::from(byte < 0x20) | u8::from(byte == b'"') | u8::from(byte == b'\\');
    let is_plain =
        |block: &[u8; BLOCK]| block.iter().map(special).fold(0, |any, one| any | one) == 0;
    let mut rest = bytes;
    while let Some((word, behind)) = rest.split_first_chunk() {
        if let Some(at) = special_at(*word) {
            return bytes.len() - rest.len() + at;
        }
        rest = behind;
        while let Some((block, behind)) = rest.split_first_chunk()
            && is_plain(block)
        {
            rest = behind;
        }
    }
    let mut tail = rest.iter();
    let run = tail.position(|&byte| is_special(byte));
    bytes.len() - rest.len() + run.unwrap_or(rest.len())
}

/// Where the first special byte of eight stands. All are looked at together, a bit in each for what was
/// found.
fn special_at(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    // The lowest bit that is set is right; those above it may be borrowed.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & HIGH;
    let word = u64::from_le_bytes(word);
    let quotes = below(word ^ (ONES * u64::from(b'"')), 1);
    let backslashes = below(word ^ (ONES * u64::from(b'\\')), 1);
    let found = below(word, 0x20) | quotes | backslashes;
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Texts with what `json.loads` of `CPython` says of them.
    const PYTHON: &[(&str, &str, usize)] = &[
        ("", "Expecting value", 0),
        ("{", "Expecting property name enclosed in double quotes", 1),
        ("{\"a\"", "Expecting ':' delimiter", 4),
        ("{\"a\":", "Expecting value", 5),
        ("{\"a\":1", "Expecting ',' delimiter", 6),
        (
            "{\"a\":1,}",
            "Expecting property name enclosed in double quotes",
            7,
        ),
        ("[1,]", "Expecting value", 3),
        ("[1", "Expecting ',' delimiter", 2),
        ("[", "Expecting value", 1),
        ("\"abc", "Unterminated string starting at", 0),
        ("\"a\tb\"", "Invalid control character at", 2),
        ("\"a\\x\"", "Invalid \\escape", 2),
        ("\"a\\u12\"", "Invalid \\uXXXX escape", 3),
        ("\"\\u12zz11\"", "Invalid \\uXXXX escape", 2),
        ("\"a\\", "Unterminated string starting at", 0),
        ("01", "Extra data", 1),
        ("-", "Expecting value", 0),
        ("1.", "Extra data", 1),
        ("1e", "Extra data", 1),
        ("nul", "Expecting value", 0),
        ("-Inf", "Expecting value", 0),
        ("\"éé\" x", "Extra data", 5),
    ];

    #[test]
    fn errors_are_pythons() {
        for &(text, message, offset) in PYTHON {
            let expected = Err(JsonError::Syntax { message, offset });
            assert_eq!(Json::parse(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn python_extras_are_accepted() {
        assert_eq!(Json::parse(b"NaN"), Ok(Json::Number("NaN")));
        assert_eq!(Json::parse(b" -Infinity "), Ok(Json::Number("-Infinity")));
        assert_eq!(
            Json::parse(br#""\ud83d\ude00""#),
            Ok(Json::String("😀".into()))
        );
        assert_eq!(
            Json::parse(br#""\ud800x""#),
            Ok(Json::Surrogates("\u{fffd}x".into()))
        );
        let twice = Json::parse(br#"{"a":1,"a":2}"#).unwrap();
        let members = twice.as_object().unwrap();
        assert_eq!(members.get("a"), Some(&Json::Number("2")));
        assert_eq!(members.distinct(), 1);
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = "[".repeat(100_000);
        assert_eq!(Json::parse(deep.as_bytes()), Err(JsonError::TooLarge));
    }

    fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn plain_runs_end_at_the_first_special_byte(mut bytes in prop::collection::vec(0x20_u8..0x7f, 0..99), places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3)) {
            for (at, byte) in places {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            let is_special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
            let expected = bytes.iter().position(is_special).unwrap_or(bytes.len());
            prop_assert_eq!(plain_length(&bytes), expected);
        }

        #[test]
        fn reads_what_serde_json_writes(value in value()) {
            let text = value.to_string();
            let read = Json::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(serde_json::to_value(&read).unwrap(), value);
        }

        #[test]
        fn accepts_whatever_serde_json_accepts(bytes in ".{0,40}") {
            if serde_json::from_str::<serde_json::Value>(&bytes).is_ok() {
                prop_assert!(Json::parse(bytes.as_bytes()).is_ok());
            }
        }

        #[test]
        fn escapes_as_serde_json_does(text in any::<String>()) {
            let mut out = vec![b'"'];
            escape_into(&text, &mut out);
            prop_assert_eq!(out.len() - 1, escaped_length(&text));
            out.push(b'"');
            prop_assert_eq!(out, serde_json::to_vec(&text).unwrap());
        }
    }
}
