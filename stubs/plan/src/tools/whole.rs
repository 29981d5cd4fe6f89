//! Calls of an answer that is not streamed, as SGLang finds them.

use wire::chunk::ToolCall;
use wire::json::Json;
use wire::python;

use super::{CLOSE, OPEN, ToolParser, number};

/// What an answer turned out to be.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Whole {
    pub(crate) calls: Vec<Found>,
    pub(crate) content: String,
}

/// A call of a tool that there is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Found {
    /// As Python's `json.dumps` writes them.
    pub(crate) arguments: String,
    pub(crate) name: String,
    /// Which of the request's tools it calls.
    pub(crate) tool: usize,
}

/// Finds the calls of the tools with those names: `POST /parse_function_call`. Calls of other tools are
/// dropped; broken ones are, too, by `qwen25`, while they make all of the text content to `hermes`.
pub(crate) fn find(parser: ToolParser, text: &str, names: &[String]) -> Whole {
    let unread = || Whole {
        calls: Vec::new(),
        content: text.to_owned(),
    };
    let Some((before, _)) = text.split_once(parser.open()) else {
        return unread();
    };
    let mut calls = Vec::new();
    for block in blocks(parser, text) {
        let found = match Json::parse(block.trim().as_bytes()) {
            Ok(json) => named(&json, names),
            Err(_) if parser == ToolParser::Qwen25 => continue,
            Err(_) => None,
        };
        let Some(found) = found else { return unread() };
        calls.extend(found);
    }
    Whole {
        calls,
        content: before.trim().to_owned(),
    }
}

/// The texts between the tags; to `hermes` the last one need not have an end.
fn blocks(parser: ToolParser, text: &str) -> Vec<&str> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once(parser.open()) {
        let (block, behind) = match behind.split_once(parser.close()) {
            Some(parts) => parts,
            None if parser == ToolParser::Hermes => (behind, ""),
            None => break,
        };
        rest = behind;
        if !block.is_empty() || parser == ToolParser::Qwen25 {
            blocks.push(block);
        }
    }
    blocks
}

/// The calls of a block that are of known tools; none if it holds no calls at all.
fn named(json: &Json<'_>, names: &[String]) -> Option<Vec<Found>> {
    let calls = match json {
        Json::Array(calls) => calls,
        call => std::slice::from_ref(call),
    };
    let mut found = Vec::new();
    for call in calls {
        let call = call.as_object()?;
        let name = call.get("name").and_then(Json::as_str).unwrap_or_default();
        let Some(tool) = names.iter().position(|known| known == name) else {
            continue;
        };
        let parameters = call.get("parameters").filter(|it| python::truthy(it));
        let arguments = parameters.or_else(|| call.get("arguments"));
        found.push(Found {
            arguments: arguments.map_or_else(|| "{}".to_owned(), python::dumps),
            name: name.to_owned(),
            tool,
        });
    }
    Some(found)
}

/// Calls as an answer has them, numbered from `first`.
pub(super) fn entries(
    calls: Vec<Found>,
    first: usize,
    mut id: impl FnMut() -> String,
) -> Vec<ToolCall<'static>> {
    let numbered = (first..).zip(calls);
    let entry = |(index, call): (usize, Found)| ToolCall {
        arguments: Some(call.arguments.into()),
        id: Some(id().into()),
        index: number(index),
        name: Some(call.name.into()),
    };
    numbered.map(entry).collect()
}

impl ToolParser {
    /// What stands before a call.
    pub(super) fn open(self) -> &'static str {
        match self {
            Self::Hermes => OPEN,
            Self::Qwen25 => "<tool_call>\n",
        }
    }

    /// What stands behind a call.
    pub(super) fn close(self) -> &'static str {
        match self {
            Self::Hermes => CLOSE,
            Self::Qwen25 => "\n</tool_call>",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parser: ToolParser, text: &str) -> (String, Vec<(usize, String)>) {
        let whole = find(parser, text, &["f".to_owned(), "g".to_owned()]);
        let calls = whole.calls.into_iter();
        (
            whole.content,
            calls.map(|call| (call.tool, call.arguments)).collect(),
        )
    }

    #[test]
    fn calls_of_each_form_are_found() {
        let (hermes, qwen25) = (ToolParser::Hermes, ToolParser::Qwen25);
        let call = |arguments: &str| (1, arguments.to_owned());
        let text = " a\n<tool_call>\n{\"name\":\"g\",\"arguments\":{\"x\":\"é\"}}\n</tool_call>b";
        for parser in [hermes, qwen25] {
            let arguments = "{\"x\": \"é\"}";
            assert_eq!(read(parser, text), ("a".into(), vec![call(arguments)]));
        }
        let unended = "<tool_call>{\"name\":\"g\",\"parameters\":[1]}";
        assert_eq!(read(hermes, unended), (String::new(), vec![call("[1]")]));
        assert_eq!(read(qwen25, unended), (unended.into(), vec![]));
        let several = "<tool_call>\n[{\"name\":\"g\"},{\"name\":\"h\"},{\"name\":\"g\",\"arguments\":null}]\n</tool_call>";
        let calls = vec![call("{}"), call("null")];
        assert_eq!(read(qwen25, several), (String::new(), calls));
    }

    #[test]
    fn broken_calls_are_dropped_by_qwen25_alone() {
        let text = "a <tool_call>\n{\"name\": x}\n</tool_call>";
        assert_eq!(read(ToolParser::Hermes, text), (text.into(), vec![]));
        assert_eq!(read(ToolParser::Qwen25, text), ("a".into(), vec![]));
        let odd = "a <tool_call>\n5\n</tool_call>";
        assert_eq!(read(ToolParser::Qwen25, odd), (odd.into(), vec![]));
    }
}
