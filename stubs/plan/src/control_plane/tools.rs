//! How answers call tools: all of an answer's calls are whole and known, or there are none.

mod hermes;
mod qwen;

use std::str::FromStr;

use wire::json::{Json, Object};

/// The spelling of calls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ToolFormat {
    /// JSON between `<tool_call>` and `</tool_call>`.
    #[default]
    Hermes,
    /// `<function=NAME><parameter=KEY>VALUE</parameter></function>`, as Qwen's coders write it.
    QwenXml,
}

impl FromStr for ToolFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "hermes" => Ok(Self::Hermes),
            "qwen_xml" => Ok(Self::QwenXml),
            _ => Err("known are: hermes, qwen_xml".into()),
        }
    }
}

/// A tool that a request offers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Tool {
    name: String,
    /// The declared types of its parameters.
    types: Vec<(String, String)>,
}

/// What an answer turned out to be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Read {
    pub(super) content: String,
    /// Names and arguments.
    pub(super) calls: Vec<(String, String)>,
}

/// Why a text with a call in it has none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Degraded {
    /// A call is not as it should be; what stands before it is shown.
    Malformed,
    /// A tool is called that there is not; all of the text is shown.
    Unknown,
}

impl ToolFormat {
    /// Reads an answer.
    pub(super) fn read(self, text: &str, tools: &[Tool]) -> Read {
        let (before, calls) = match self {
            Self::Hermes => hermes::read(text, tools),
            Self::QwenXml => qwen::read(text, tools),
        };
        match calls {
            Ok(calls) if !calls.is_empty() => Read {
                content: stripped(before).to_owned(),
                calls,
            },
            Ok(_) | Err(Degraded::Unknown) => Read {
                content: text.to_owned(),
                calls: Vec::new(),
            },
            Err(Degraded::Malformed) => Read {
                content: stripped(before).to_owned(),
                calls: Vec::new(),
            },
        }
    }
}

impl Tool {
    /// The tools of a request; of a name that is there twice the last counts.
    pub(super) fn all(tools: &Json<'_>) -> Vec<Self> {
        let Json::Array(tools) = tools else {
            return Vec::new();
        };
        let one = |tool: &Json<'_>| {
            let function = tool.as_object()?.get("function")?.as_object()?;
            let name = function.get("name")?.as_str()?;
            let parameters = function.get("parameters").and_then(Json::as_object);
            let properties = parameters.and_then(|parameters| parameters.get("properties"));
            let properties = properties.and_then(Json::as_object);
            Some(Self {
                name: name.to_owned(),
                types: properties.map_or_else(Vec::new, types),
            })
        };
        let named = tools.iter().rev().filter_map(one);
        named.filter(|tool| !tool.name.is_empty()).collect()
    }

    fn named<'t>(tools: &'t [Self], name: &str) -> Result<&'t Self, Degraded> {
        let found = tools.iter().find(|tool| tool.name == name);
        found.ok_or(Degraded::Unknown)
    }
}

fn types(properties: &Object<'_>) -> Vec<(String, String)> {
    let declared = |(name, schema): &(std::borrow::Cow<'_, str>, Json<'_>)| {
        let kind = schema.as_object()?.get("type")?.as_str()?;
        Some((name.clone().into_owned(), kind.to_owned()))
    };
    properties.0.iter().filter_map(declared).collect()
}

/// Python's `str.strip()`.
fn stripped(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Python's `str.isspace()` of one character.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `get_weather(city: string, days: integer, wet: boolean, degrees: number, more)`
    pub(super) fn tools() -> Vec<Tool> {
        let json = br#"[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":
            {"city":{"type":"string"},"days":{"type":"integer"},"wet":{"type":"boolean"},"degrees":{"type":"number"},"more":{}}}}}]"#;
        Tool::all(&Json::parse(json).unwrap())
    }

    #[track_caller]
    pub(super) fn check(format: ToolFormat, text: &str, content: &str, calls: &[&str]) {
        let read = format.read(text, &tools());
        assert_eq!(read.content, content, "{text}");
        let found: Vec<&str> = read
            .calls
            .iter()
            .map(|(_, arguments)| &**arguments)
            .collect();
        assert_eq!(found, calls, "{text}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(
            parts in proptest::collection::vec(
                proptest::sample::select(vec![
                    "<tool_call>", "</tool_call>", "<function=get_weather>", "<function=x >", "</function>",
                    "<parameter=days>", "</parameter>", " ", "7", "{\"name\": \"get_weather\"}", "[", "é", "\n", ">",
                ]),
                0..12,
            ),
        ) {
            let text = parts.concat();
            for format in [ToolFormat::Hermes, ToolFormat::QwenXml] {
                let read = format.read(&text, &tools());
                proptest::prop_assert!(text.contains(&read.content));
                for (name, arguments) in read.calls {
                    proptest::prop_assert_eq!(name, "get_weather");
                    proptest::prop_assert!(Json::parse(arguments.as_bytes()).is_ok());
                }
            }
        }
    }
}
