//! Tool parsers: which of the model's content calls a tool.

mod blocks;
mod growing;
pub(crate) mod sglang;
mod vllm;
mod whole;

use std::str::FromStr;

use wire::chunk::{Nulls, ToolCall};

pub(crate) use blocks::Blocks;
pub(crate) use vllm::{Caller, Form};
pub(crate) use whole::find;

/// A parser by the servers' names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ToolParser {
    /// `hermes`: JSON between `<tool_call>` and `</tool_call>`.
    Hermes,
    /// SGLang's `qwen25` or `qwen`: the same with line breaks inside the tags.
    Qwen25,
}

/// A parser that is not known.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown tool call parser `{name}`; known: {known}")]
pub struct UnknownToolParser {
    known: &'static str,
    name: String,
}

/// vLLM's names.
impl FromStr for ToolParser {
    type Err = UnknownToolParser;

    fn from_str(name: &str) -> Result<Self, UnknownToolParser> {
        match name {
            "hermes" => Ok(Self::Hermes),
            _ => Err(UnknownToolParser {
                known: "hermes",
                name: name.to_owned(),
            }),
        }
    }
}

impl ToolParser {
    /// The parser that SGLang has by that name.
    pub fn sglang(name: &str) -> Result<Self, UnknownToolParser> {
        match name {
            "hermes" => Ok(Self::Hermes),
            "qwen" | "qwen25" => Ok(Self::Qwen25),
            _ => Err(UnknownToolParser {
                known: "hermes, qwen, qwen25",
                name: name.to_owned(),
            }),
        }
    }
}

/// The tag before a call.
pub(crate) const OPEN: &str = "<tool_call>";
/// The tag behind a call.
pub(crate) const CLOSE: &str = "</tool_call>";

/// What a piece of content turned out to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Called {
    pub(crate) calls: Vec<ToolCall<'static>>,
    pub(crate) content: Option<String>,
    pub(crate) nulls: Nulls,
}

impl Called {
    fn content(text: String) -> Self {
        Self {
            content: Some(text),
            ..Self::default()
        }
    }

    pub(crate) fn says_nothing(&self) -> bool {
        self.calls.is_empty() && self.content.is_none() && !self.nulls.content
    }
}

/// Bytes at the end of `text` that may begin `tag`.
pub(crate) fn begun(text: &str, tag: &str) -> usize {
    let lengths = (1..tag.len()).rev();
    let mut begun = lengths.filter(|&length| text.as_bytes().ends_with(&tag.as_bytes()[..length]));
    begun.next().unwrap_or(0)
}

/// `index` of a call.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
