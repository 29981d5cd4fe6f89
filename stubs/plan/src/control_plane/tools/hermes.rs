//! JSON between `<tool_call>` and `</tool_call>`: an object or a list of them.

use wire::json::Json;
use wire::python;

use super::{Degraded, Tool, is_space, stripped};
use crate::tools::{CLOSE, OPEN};

type Calls = Result<Vec<(String, String)>, Degraded>;

/// The text before the first call, and the calls.
pub(super) fn read<'t>(text: &'t str, tools: &[Tool]) -> (&'t str, Calls) {
    match text.find(OPEN) {
        Some(at) => (&text[..at], calls(&text[at..], tools)),
        None => (text, Ok(Vec::new())),
    }
}

fn calls(text: &str, tools: &[Tool]) -> Calls {
    let mut calls = Vec::new();
    let mut rest = text;
    while let Some((_, block)) = rest.split_once(OPEN) {
        let block = block.trim_start_matches(is_space);
        let (json, length) = Json::parse_front(block).map_err(|_| Degraded::Malformed)?;
        let (between, behind) = block[length..]
            .split_once(CLOSE)
            .ok_or(Degraded::Malformed)?;
        if !stripped(between).is_empty() {
            return Err(Degraded::Malformed);
        }
        rest = behind;
        let entries = match &json {
            Json::Array(entries) => &entries[..],
            entry => std::slice::from_ref(entry),
        };
        for entry in entries {
            calls.push(call(entry, tools)?);
        }
    }
    Ok(calls)
}

fn call(entry: &Json<'_>, tools: &[Tool]) -> Result<(String, String), Degraded> {
    let entry = entry.as_object().ok_or(Degraded::Malformed)?;
    let given = |name| entry.get(name).filter(|value| **value != Json::Null);
    let arguments = given("arguments").or_else(|| given("parameters"));
    let name = match entry.get("name") {
        Some(Json::String(name)) => name,
        // Python cannot look such a name up.
        Some(Json::Array(names)) if !names.is_empty() => return Err(Degraded::Malformed),
        Some(Json::Object(names)) if !names.0.is_empty() => return Err(Degraded::Malformed),
        _ => return Err(Degraded::Unknown),
    };
    let tool = Tool::named(tools, name)?;
    let arguments = arguments.map_or_else(|| "{}".to_owned(), python::dumps);
    Ok((tool.name.clone(), arguments))
}

#[cfg(test)]
mod tests {
    use super::super::ToolFormat;
    use super::super::tests::check as check_as;

    #[track_caller]
    fn check(text: &str, content: &str, calls: &[&str]) {
        check_as(ToolFormat::Hermes, text, content, calls);
    }

    #[test]
    fn whole_calls_are_read() {
        let one = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\":\"Paris\"}}\n</tool_call>";
        check(one, "", &[r#"{"city": "Paris"}"#]);
        let two = format!(" Both. {one}\n{one} and");
        check(&two, "Both.", &[r#"{"city": "Paris"}"#; 2]);
        check(
            r#"<tool_call>[{"name":"get_weather","arguments":null,"parameters":{"a":"</tool_call>"}},{"name":"get_weather"}]</tool_call>"#,
            "",
            &[r#"{"a": "</tool_call>"}"#, "{}"],
        );
    }

    #[test]
    fn broken_calls_are_dropped_with_all_behind_them() {
        for broken in [
            r#"{"name": "get_weather", "argu"#,
            r#"{"name": "get_weather"} x</tool_call>"#,
            r#"{"name": "get_weather"}"#,
            "7</tool_call>",
            r#"{"name": ["get_weather"]}</tool_call>"#,
        ] {
            check(
                &format!(" Let me see. <tool_call>\n{broken}"),
                "Let me see.",
                &[],
            );
        }
    }

    #[test]
    fn a_call_of_an_unknown_tool_is_text() {
        for unknown in [
            r#"{"name": "nope"}"#,
            r#"{"arguments": {}}"#,
            r#"{"name": 7}"#,
        ] {
            let text = format!("a <tool_call>{unknown}</tool_call> b");
            check(&text, &text, &[]);
        }
        check(" no call ", " no call ", &[]);
        check(
            "a <tool_call>[]</tool_call>",
            "a <tool_call>[]</tool_call>",
            &[],
        );
    }
}
