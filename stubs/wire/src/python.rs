//! Values as Python prints them, for error texts that quote Python.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::json::{Json, escape_into};

/// `repr(text)`: single quotes unless only double quotes avoid an escape.
pub fn repr(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            _ if is_printable(character) => out.push(character),
            _ => match u32::from(character) {
                code @ ..=0xff => write!(out, "\\x{code:02x}").expect("a String takes all"),
                code @ ..=0xffff => write!(out, "\\u{code:04x}").expect("a String takes all"),
                code => write!(out, "\\U{code:08x}").expect("a String takes all"),
            },
        }
    }
    out.push(quote);
    out
}

/// `str.isprintable` as far as control, format, surrogate, private and separator characters go.
fn is_printable(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            '\u{a0}' | '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{1680}' | '\u{180e}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}' | '\u{3000}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0001}'..='\u{e007f}' | '\u{f0000}'..='\u{10ffff}')
}

/// `str(number)` of a float: shortest digits that round-trip, an exponent below 1e-4 and from 1e16.
pub fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').expect("{:e} writes an exponent");
        let exponent: i32 = exponent.parse().expect("an exponent is an integer");
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let text = number.to_string();
    if text.contains('.') {
        text
    } else {
        format!("{text}.0")
    }
}

/// `str(value)` of a scalar; of a list or an object its kind and size, as vLLM shows inputs.
pub fn summary(value: &Json<'_>) -> String {
    match value {
        Json::Array(items) => format!("<list of {} items>", items.len()),
        Json::Object(members) => format!("<dict of {} items>", members.distinct()),
        scalar => display(scalar),
    }
}

/// `str(value)`
pub fn display(value: &Json<'_>) -> String {
    let quoted = |value: &Json<'_>| match value {
        Json::String(text) => repr(text),
        Json::Surrogates(text) => repr(text),
        value => display(value),
    };
    match value {
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(quoted).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Bool(true) => "True".into(),
        Json::Bool(false) => "False".into(),
        Json::Null => "None".into(),
        Json::Number("NaN") => "nan".into(),
        Json::Number(text) => match number(text) {
            Number::Float(number) => float(number),
            Number::Int(_) => (*text).into(),
        },
        Json::Object(members) => {
            let members: Vec<String> = members
                .0
                .iter()
                .map(|(name, value)| format!("{}: {}", repr(name), quoted(value)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        Json::String(text) => text.to_string(),
        Json::Surrogates(text) => text.clone(),
    }
}

/// `json.dumps(value, ensure_ascii=False)`: a space behind each comma and colon.
pub fn dumps(value: &Json<'_>) -> String {
    dumped(value, Spelling::default())
}

/// `json.dumps(value, ensure_ascii=False, sort_keys=True)`
pub fn sorted_dumps(value: &Json<'_>) -> String {
    let spelling = Spelling {
        is_sorted: true,
        ..Spelling::default()
    };
    dumped(value, spelling)
}

/// `json.dumps(value, ensure_ascii=False, separators=(",", ":"))`
pub fn compact_dumps(value: &Json<'_>) -> String {
    let spelling = Spelling {
        is_compact: true,
        ..Spelling::default()
    };
    dumped(value, spelling)
}

/// How JSON is written where Python leaves a choice.
#[derive(Clone, Copy, Default)]
struct Spelling {
    /// No space behind commas and colons.
    is_compact: bool,
    /// Keys in order.
    is_sorted: bool,
}

impl Spelling {
    fn comma(self) -> &'static [u8] {
        if self.is_compact { b"," } else { b", " }
    }

    fn colon(self) -> &'static [u8] {
        if self.is_compact { b":" } else { b": " }
    }
}

fn dumped(value: &Json<'_>, spelling: Spelling) -> String {
    let mut out = Vec::new();
    dump(value, spelling, &mut out);
    String::from_utf8(out).expect("JSON of text is UTF-8")
}

/// `json.dumps(text)`, quotes included: what is not ASCII is escaped.
pub fn escape_ascii(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for character in text.chars() {
        if character < '\u{7f}' {
            escape_into(character.encode_utf8(&mut [0; 4]), out);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
        }
    }
    out.push(b'"');
}

fn dump(value: &Json<'_>, spelling: Spelling, out: &mut Vec<u8>) {
    let quoted = |text: &str, out: &mut Vec<u8>| {
        out.push(b'"');
        escape_into(text, out);
        out.push(b'"');
    };
    match value {
        Json::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { spelling.comma() });
                dump(item, spelling, out);
            }
            out.push(b']');
        }
        Json::Bool(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Json::Null => out.extend_from_slice(b"null"),
        Json::Number(text) => match number(text) {
            Number::Float(number) if number.is_finite() => {
                out.extend_from_slice(float(number).as_bytes());
            }
            Number::Float(number) if number.is_nan() => out.extend_from_slice(b"NaN"),
            Number::Float(number) => {
                let sign: &[u8] = if number > 0.0 { b"" } else { b"-" };
                out.extend_from_slice(sign);
                out.extend_from_slice(b"Infinity");
            }
            Number::Int(0) => out.push(b'0'),
            Number::Int(_) => out.extend_from_slice(text.as_bytes()),
        },
        Json::Object(members) => {
            out.push(b'{');
            let pairs = members.0.iter().map(|(name, value)| (&**name, value));
            let mut values: HashMap<&str, &Json<'_>> = pairs.collect();
            let mut names: Vec<&str> = members.0.iter().map(|(name, _)| &**name).collect();
            if spelling.is_sorted {
                names.sort_unstable();
            }
            for (index, name) in names.into_iter().enumerate() {
                // Of a repeated key the first place and the last value count.
                let Some(value) = values.remove(name) else {
                    continue;
                };
                out.extend_from_slice(if index == 0 { b"" } else { spelling.comma() });
                quoted(name, out);
                out.extend_from_slice(spelling.colon());
                dump(value, spelling, out);
            }
            out.push(b'}');
        }
        Json::String(text) => quoted(text, out),
        Json::Surrogates(text) => quoted(text, out),
    }
}

/// `bool(value)`
pub fn truthy(value: &Json<'_>) -> bool {
    match value {
        Json::Array(items) => !items.is_empty(),
        Json::Bool(flag) => *flag,
        Json::Null => false,
        Json::Number(text) => match number(text) {
            Number::Float(number) => number != 0.0,
            Number::Int(number) => number != 0,
        },
        Json::Object(members) => !members.0.is_empty(),
        Json::String(text) => !text.is_empty(),
        Json::Surrogates(_) => true,
    }
}

/// A JSON number as Python holds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// `float`
    Float(f64),
    /// `int`; what is beyond an `i128` is cut to its ends.
    Int(i128),
}

/// Reads a number that [`Json`] found.
pub fn number(text: &str) -> Number {
    match text {
        "NaN" => Number::Float(f64::NAN),
        "Infinity" => Number::Float(f64::INFINITY),
        "-Infinity" => Number::Float(f64::NEG_INFINITY),
        _ if text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-') =>
        {
            let ends = if text.starts_with('-') {
                i128::MIN
            } else {
                i128::MAX
            };
            Number::Int(text.parse().unwrap_or(ends))
        }
        _ => Number::Float(text.parse().unwrap_or(f64::NAN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reprs_are_pythons() {
        for (text, expected) in [
            ("it's", "\"it's\""),
            ("a\"b", "'a\"b'"),
            ("a'\"b", "'a\\'\"b'"),
            (
                "\n\t\0\u{7f}\u{a0}é\u{200b}\u{2028}😀\u{e000}\\",
                "'\\n\\t\\x00\\x7f\\xa0é\\u200b\\u2028😀\\ue000\\\\'",
            ),
        ] {
            assert_eq!(repr(text), expected);
        }
    }

    #[test]
    fn dumps_are_pythons() {
        let text = r#"{"a":[-0,1E2,NaN,"\u00e9\u0001"],"b":{},"a":[],"c":-0.0}"#;
        let dumped = dumps(&Json::parse(text.as_bytes()).unwrap());
        assert_eq!(dumped, r#"{"a": [], "b": {}, "c": -0.0}"#);
        let text = r#"[-0,1E2,NaN,"\u00e9\u0001"]"#;
        let dumped = dumps(&Json::parse(text.as_bytes()).unwrap());
        assert_eq!(dumped, r#"[0, 100.0, NaN, "é\u0001"]"#);
        let dumped = compact_dumps(&Json::parse(b"[1e999, -1e999]").unwrap());
        assert_eq!(dumped, "[Infinity,-Infinity]");
    }

    #[test]
    fn floats_are_pythons() {
        for (number, expected) in [
            (1e-5, "1e-05"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (123_456_789.123, "123456789.123"),
            (0.1, "0.1"),
            (1.234e-5, "1.234e-05"),
            (-0.0, "-0.0"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (3.0, "3.0"),
        ] {
            assert_eq!(float(number), expected);
        }
    }
}
