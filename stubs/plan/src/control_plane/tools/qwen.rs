//! `<function=NAME><parameter=KEY>VALUE</parameter></function>`, mostly between `<tool_call>` and
//! `</tool_call>`. A value may hold such markup itself: it ends where what follows can stand behind it.

use wire::json::{Json, Object};
use wire::python::{self, Number};

use super::{Degraded, Tool, is_space, stripped};
use crate::tools::{CLOSE, OPEN};

const FUNCTION: &str = "<function=";
const PARAMETER: &str = "<parameter=";

type Calls = Result<Vec<(String, String)>, Degraded>;

/// An element with a name.
struct Element<'t> {
    /// Where it begins in the text it was found in.
    start: usize,
    name: &'t str,
    body: &'t str,
    /// What stands behind it and its white space.
    behind: &'t str,
}

/// The text before the first call, and the calls.
pub(super) fn read<'t>(text: &'t str, tools: &[Tool]) -> (&'t str, Calls) {
    let wrapped = text.find(OPEN);
    let Some(first) = function(text) else {
        let bare = text.find(FUNCTION);
        return match wrapped.into_iter().chain(bare).min() {
            Some(at) => (&text[..at], Err(Degraded::Malformed)),
            None => (text, Ok(Vec::new())),
        };
    };
    let at = wrapped.map_or(first.start, |at| at.min(first.start));
    (&text[..at], calls(first, tools))
}

fn function(text: &str) -> Option<Element<'_>> {
    element(text, FUNCTION, "</function>", |behind| {
        let may_follow = [FUNCTION, CLOSE, OPEN];
        behind.is_empty() || may_follow.iter().any(|tag| behind.starts_with(tag))
    })
}

fn parameter(text: &str) -> Option<Element<'_>> {
    element(text, PARAMETER, "</parameter>", |behind| {
        behind.is_empty() || behind.starts_with(PARAMETER)
    })
}

/// The first whole element, its body as short as what follows allows.
fn element<'t>(
    text: &'t str,
    open: &str,
    close: &str,
    may_end: impl Fn(&str) -> bool,
) -> Option<Element<'t>> {
    text.match_indices(open).find_map(|(start, _)| {
        let named = &text[start + open.len()..];
        let (name, inside) = named.split_once('>')?;
        let name = name.trim_end_matches(is_space);
        if name.is_empty() || name.contains(is_space) {
            return None;
        }
        inside.match_indices(close).find_map(|(end, _)| {
            let behind = inside[end + close.len()..].trim_start_matches(is_space);
            may_end(behind).then_some(Element {
                start,
                name,
                body: &inside[..end],
                behind,
            })
        })
    })
}

fn calls(first: Element<'_>, tools: &[Tool]) -> Calls {
    let mut calls = Vec::new();
    let mut next = Some(first);
    while let Some(found) = next {
        let known = tools.iter().find(|tool| tool.name == found.name);
        let tool = known.ok_or(Degraded::Unknown)?;
        calls.push((tool.name.clone(), arguments(found.body, tool)?));
        next = function(found.behind);
    }
    Ok(calls)
}

/// The parameters as JSON, each of the type that the tool declares.
fn arguments(body: &str, tool: &Tool) -> Result<String, Degraded> {
    let mut values: Vec<(&str, Option<String>)> = Vec::new();
    let mut rest = body;
    while let Some(found) = parameter(rest) {
        let mut types = tool.types.iter().rev();
        let declared = types.find(|(name, _)| name == found.name);
        let declared = declared.map(|(_, declared)| &**declared);
        let value = value(stripped(found.body), declared);
        match values.iter_mut().find(|(name, _)| *name == found.name) {
            Some((_, known)) => *known = value,
            None => values.push((found.name, value)),
        }
        rest = found.behind;
    }
    let member = |(name, value): (&str, Option<String>)| {
        let value = value.ok_or(Degraded::Malformed)?;
        Ok(format!("{}: {value}", text(name)))
    };
    let members: Vec<String> = values.into_iter().map(member).collect::<Result<_, _>>()?;
    Ok(format!("{{{}}}", members.join(", ")))
}

/// A value as JSON, if it is one; what is not of the declared type stays a text.
fn value(value: &str, declared: Option<&str>) -> Option<String> {
    let read = match declared {
        Some("string") => None,
        Some("boolean") => match value.to_lowercase().as_str() {
            flag @ ("true" | "false") => Some(flag.to_owned()),
            _ => None,
        },
        Some("integer") => integer(value),
        Some("number") => number(value),
        _ => return guessed(value),
    };
    Some(read.unwrap_or_else(|| text(value)))
}

/// What a value of no declared type says if it is JSON.
fn guessed(value: &str) -> Option<String> {
    let Ok(json) = Json::parse(value.as_bytes()) else {
        return Some(text(value));
    };
    match &json {
        Json::Number(number) if !is_finite(number) => Some(text(value)),
        json if holds_infinity(json) => None,
        json => Some(python::dumps(json)),
    }
}

fn holds_infinity(value: &Json<'_>) -> bool {
    match value {
        Json::Array(items) => items.iter().any(holds_infinity),
        Json::Number(number) => !is_finite(number),
        Json::Object(Object(members)) => members.iter().any(|(_, value)| holds_infinity(value)),
        _ => false,
    }
}

fn is_finite(number: &str) -> bool {
    match python::number(number) {
        Number::Float(number) => number.is_finite(),
        Number::Int(_) => true,
    }
}

/// Digits behind a sign, as Python's `int` reads them.
fn integer(value: &str) -> Option<String> {
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    Some(match (digits, value.starts_with('-')) {
        ("", _) => "0".into(),
        (digits, true) => format!("-{digits}"),
        (digits, false) => digits.to_owned(),
    })
}

/// A finite decimal number, as Python's `float` reads it.
fn number(value: &str) -> Option<String> {
    let is_of_numbers = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    if !value.bytes().all(is_of_numbers) {
        return None;
    }
    let number: f64 = value.parse().ok()?;
    number.is_finite().then(|| python::float(number))
}

fn text(value: &str) -> String {
    python::dumps(&Json::String(value.into()))
}

#[cfg(test)]
mod tests {
    use super::super::ToolFormat;
    use super::super::tests::check as check_as;

    #[track_caller]
    fn check(text: &str, content: &str, calls: &[&str]) {
        check_as(ToolFormat::QwenXml, text, content, calls);
    }

    fn call(parameters: &str) -> String {
        format!("<tool_call>\n<function=get_weather>\n{parameters}\n</function>\n</tool_call>")
    }

    #[test]
    fn values_are_of_the_declared_type() {
        for (name, given, expected) in [
            ("city", "\nParis\n", r#""Paris""#),
            ("city", "7", r#""7""#),
            ("days", "+007", "7"),
            ("days", "-0", "0"),
            ("days", "10.0", r#""10.0""#),
            ("days", "1_000", r#""1_000""#),
            ("wet", "TRUE", "true"),
            ("wet", "1", r#""1""#),
            ("degrees", "3", "3.0"),
            ("degrees", "-1e3", "-1000.0"),
            ("degrees", "1e999", r#""1e999""#),
            ("degrees", "inf", r#""inf""#),
            ("more", "[1,{\"a\":null}]", r#"[1, {"a": null}]"#),
            ("more", "NaN", r#""NaN""#),
            ("other", "plain", r#""plain""#),
            ("other", "7", "7"),
        ] {
            let text = call(&format!("<parameter={name}>{given}</parameter>"));
            check(&text, "", &[&format!("{{\"{name}\": {expected}}}")]);
        }
    }

    #[test]
    fn a_value_may_hold_markup() {
        let text = call(
            "<parameter=city>a</parameter></function> b</parameter>\n<parameter=days>1</parameter>",
        );
        check(
            &text,
            "",
            &[r#"{"city": "a</parameter></function> b", "days": 1}"#],
        );
    }

    #[test]
    fn calls_stand_with_and_without_a_wrapping() {
        let bare = "<function=get_weather></function>";
        check(&format!(" Both: {bare} {bare}"), "Both:", &["{}", "{}"]);
        check(&format!("x {}\n{}", call(""), call("")), "x", &["{}", "{}"]);
    }

    #[test]
    fn broken_calls_are_dropped_and_unknown_ones_are_text() {
        check(
            "a <tool_call>\n<function=get_weather>\n<parameter",
            "a",
            &[],
        );
        check("a <function=get_weather>", "a", &[]);
        check("no call", "no call", &[]);
        let unknown = "a <function=nope></function>";
        check(unknown, unknown, &[]);
        let overridden = "<parameter=more>[1e999]</parameter><parameter=more>1</parameter>";
        check(&call(overridden), "", &[r#"{"more": 1}"#]);
        let unknown = "a <function=nope><parameter=x>[NaN]</parameter></function>";
        check(unknown, unknown, &[]);
        check(
            &format!("a {}", call("<parameter=more>[NaN]</parameter>")),
            "a",
            &[],
        );
    }
}
