//! A JSON object that is still coming, closed where it breaks off.

use std::borrow::Cow;

/// As much of an object as a text has, as complete JSON.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Growing<'t> {
    pub(super) closed: Cow<'t, str>,
    /// Bytes of the text that are the object's, blanks at the end included; counts only if it is whole.
    pub(super) length: usize,
    pub(super) is_whole: bool,
}

impl<'t> Growing<'t> {
    /// Reads the object at the front; none if there is none, or if what is there cannot become one. A
    /// member that lacks its value is left out, an unfinished number or word is guessed, and an
    /// unfinished string closed if `with_strings`, else left out too.
    pub(super) fn read(text: &'t str, with_strings: bool) -> Option<Self> {
        let mut scan = Scan {
            closers: Vec::new(),
            kept: 0,
            tail: "",
            // The blanks at the end of an unfinished string do not count either.
            text: text.trim_end(),
            at: 0,
            with_strings,
        };
        match scan.object() {
            Ok(()) => Some(Self {
                closed: text[..scan.at].into(),
                is_whole: true,
                length: if text[scan.at..].trim().is_empty() {
                    text.len()
                } else {
                    scan.at
                },
            }),
            Err(Broken::End) if !scan.closers.is_empty() => {
                let mut closed = text[..scan.kept].to_owned();
                closed.push_str(scan.tail);
                closed.extend(scan.closers.iter().rev().map(|&closer| char::from(closer)));
                Some(Self {
                    closed: closed.into(),
                    is_whole: false,
                    length: text.len(),
                })
            }
            Err(_) => None,
        }
    }
}

/// Why an object cannot be read to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Broken {
    End,
    Malformed,
}

/// Words that are values.
const WORDS: [&str; 6] = ["null", "true", "false", "NaN", "Infinity", "-Infinity"];

#[derive(Debug)]
struct Scan<'t> {
    text: &'t str,
    at: usize,
    /// What closes the containers that are open.
    closers: Vec<u8>,
    /// Bytes that stay if the text ends here, and what they lack before the closers.
    kept: usize,
    tail: &'static str,
    with_strings: bool,
}

impl Scan<'_> {
    /// The next byte that is not blank.
    fn next(&mut self) -> Result<u8, Broken> {
        let rest = &self.text.as_bytes()[self.at..];
        let blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().take_while(blank).count();
        self.text
            .as_bytes()
            .get(self.at)
            .copied()
            .ok_or(Broken::End)
    }

    fn object(&mut self) -> Result<(), Broken> {
        if self.next()? != b'{' {
            return Err(Broken::Malformed);
        }
        self.enter(b'}');
        while let Some(&closer) = self.closers.last() {
            if self.next()? == closer {
                self.at += 1;
                self.closers.pop();
            } else {
                if closer == b'}' {
                    self.key()?;
                }
                match self.next()? {
                    b'{' => {
                        self.enter(b'}');
                        continue;
                    }
                    b'[' => {
                        self.enter(b']');
                        continue;
                    }
                    first => self.scalar(first)?,
                }
            }
            self.kept = self.at;
            if let Some(&closer) = self.closers.last() {
                match self.next()? {
                    b',' => self.at += 1,
                    byte if byte == closer => {}
                    _ => return Err(Broken::Malformed),
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, closer: u8) {
        self.at += 1;
        self.kept = self.at;
        self.closers.push(closer);
    }

    fn key(&mut self) -> Result<(), Broken> {
        self.string().map_err(|(why, _)| why)?;
        if self.next()? != b':' {
            return Err(Broken::Malformed);
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self, first: u8) -> Result<(), Broken> {
        let rest = &self.text[self.at..];
        match first {
            b'"' => self.string().map_err(|(why, end)| {
                if self.with_strings && why == Broken::End {
                    (self.kept, self.tail) = (end, "\"");
                }
                why
            }),
            b'0'..=b'9' => self.number(),
            b'-' if !rest.starts_with("-I") => self.number(),
            _ => {
                if let Some(word) = WORDS.iter().find(|word| rest.starts_with(**word)) {
                    self.at += word.len();
                    return Ok(());
                }
                let begun = |word: &&&str| word.starts_with(rest);
                let word = WORDS.iter().find(begun).ok_or(Broken::Malformed)?;
                (self.kept, self.tail) = (self.at, word);
                Err(Broken::End)
            }
        }
    }

    fn number(&mut self) -> Result<(), Broken> {
        let rest = &self.text[self.at..];
        let is_part =
            |character: char| matches!(character, '0'..='9' | '.' | '-' | '+' | 'e' | 'E');
        if let Some(length) = rest.find(|character| !is_part(character)) {
            self.at += length;
            return Ok(());
        }
        let so_far = rest.trim_end_matches(['.', '-', '+', 'e', 'E']);
        if !so_far.is_empty() {
            self.kept = self.at + so_far.len();
        }
        Err(Broken::End)
    }

    /// Goes behind a string; of one without end, says where its last whole character ends.
    fn string(&mut self) -> Result<(), (Broken, usize)> {
        let bytes = self.text.as_bytes();
        if bytes.get(self.at) != Some(&b'"') {
            return Err((Broken::Malformed, self.at));
        }
        let mut at = self.at + 1;
        while let Some(&byte) = bytes.get(at) {
            let length = match (byte, bytes.get(at + 1)) {
                (b'"', _) => {
                    self.at = at + 1;
                    return Ok(());
                }
                (b'\\', Some(b'u')) => {
                    let digits = bytes[at + 2..].iter().take(4);
                    2 + digits.take_while(|digit| **digit != b'"').count()
                }
                (b'\\', _) => 2,
                _ => 1,
            };
            let is_cut = byte == b'\\'
                && (at + length > bytes.len()
                    || (bytes.get(at + 1) == Some(&b'u') && at + 6 > bytes.len()));
            if is_cut {
                break;
            }
            at += length;
        }
        Err((Broken::End, at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::json::Json;

    use super::*;

    #[test]
    fn an_object_is_closed_where_it_breaks_off() {
        for (text, expected) in [
            ("{", "{}"),
            (" {\"a", " {}"),
            ("{\"a\":", "{}"),
            ("{\"a\": \"", "{\"a\": \"\"}"),
            ("{\"a\": \"x\\", "{\"a\": \"x\"}"),
            ("{\"a\": \"x\\u00", "{\"a\": \"x\"}"),
            ("{\"a\": \"x\\u00e9", "{\"a\": \"x\\u00e9\"}"),
            ("{\"a\": \"x\\\\u00", "{\"a\": \"x\\\\u00\"}"),
            ("{\"a\": \"x y ", "{\"a\": \"x y\"}"),
            ("{\"a\": 1.", "{\"a\": 1}"),
            ("{\"a\": -", "{}"),
            ("{\"a\": nu", "{\"a\": null}"),
            ("{\"a\": -I", "{\"a\": -Infinity}"),
            ("{\"a\": [1, {\"b\": [], ", "{\"a\": [1, {\"b\": []}]}"),
            ("{\"a\": 1, \"b\"", "{\"a\": 1}"),
        ] {
            let growing = Growing::read(text, true).unwrap();
            assert_eq!((&*growing.closed, growing.is_whole), (expected, false));
        }
        let without = Growing::read("{\"a\": [\"x\", \"y", false).unwrap();
        assert_eq!(without.closed, "{\"a\": [\"x\"]}");
        for text in [
            "",
            " ",
            "[1",
            "x",
            "{a",
            "{\"a\" 1",
            "{\"a\": x",
            "{\"a\": 1 2",
        ] {
            assert_eq!(Growing::read(text, true), None, "{text}");
        }
        let whole = Growing::read("{\"a\": {}}\n</tool", true).unwrap();
        assert_eq!((&*whole.closed, whole.length), ("{\"a\": {}}", 9));
        assert_eq!(Growing::read("{} \n", true).unwrap().length, 4);
    }

    proptest! {
        #[test]
        fn a_beginning_of_json_closes_to_json(
            text in r#"\{"a": (\[1, (true|-2\.5e3), "é\\u00e9\\n"\]|\{"b": "[xé]{0,3}"\}), "c": (null|"\\\\")\}"#,
            end in any::<prop::sample::Index>(),
            with_strings in any::<bool>(),
        ) {
            let end = text.floor_char_boundary(1 + end.index(text.len()));
            let growing = Growing::read(&text[..end], with_strings).unwrap();
            prop_assert!(Json::parse(growing.closed.as_bytes()).is_ok(), "{}", growing.closed);
            prop_assert_eq!(growing.is_whole, end == text.len());
        }

        #[test]
        fn nothing_makes_it_stop(text in r#"\{?[a{}\[\]":, \\u0-9e.ntINé-]{0,30}"#, with_strings in any::<bool>()) {
            if let Some(growing) = Growing::read(&text, with_strings) {
                prop_assert!(text.is_char_boundary(growing.length));
            }
        }
    }
}
