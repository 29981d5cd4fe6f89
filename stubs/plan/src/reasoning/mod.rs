//! Reasoning parsers: which of the model's text is reasoning, which is content.

pub(crate) mod sglang;
mod vllm;

use std::str::FromStr;

use vocab::Vocab;

pub(crate) use vllm::Splitter;

/// A parser by the servers' names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReasoningParser {
    /// `deepseek_r1` of vLLM: reasoning up to the token `</think>` in streams, as text in whole answers,
    /// which the template's switch does not reach. `deepseek-r1` of SGLang: as text in both.
    DeepseekR1,
    /// `qwen3`: reasoning up to `</think>`, an opening `<think>` being optional.
    Qwen3,
    /// SGLang's `qwen3-thinking`: the same, which the template's switch does not reach.
    Qwen3Thinking,
}

/// A parser that is not known.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown reasoning parser `{name}`; known: {known}")]
pub struct UnknownParser {
    known: &'static str,
    name: String,
}

/// vLLM's names.
impl FromStr for ReasoningParser {
    type Err = UnknownParser;

    fn from_str(name: &str) -> Result<Self, UnknownParser> {
        match name {
            "deepseek_r1" => Ok(Self::DeepseekR1),
            "qwen3" => Ok(Self::Qwen3),
            _ => Err(UnknownParser {
                known: "deepseek_r1, qwen3",
                name: name.to_owned(),
            }),
        }
    }
}

impl ReasoningParser {
    /// The parser that SGLang has by that name, case aside.
    pub fn sglang(name: &str) -> Result<Self, UnknownParser> {
        match &*name.to_lowercase() {
            "deepseek-r1" | "gigachat35" | "step3" | "step3p5" => Ok(Self::DeepseekR1),
            "dots" | "interns1" | "nanbeige" | "qwen3" => Ok(Self::Qwen3),
            "minimax" | "qwen3-thinking" => Ok(Self::Qwen3Thinking),
            _ => Err(UnknownParser {
                known: "deepseek-r1, dots, gigachat35, interns1, minimax, nanbeige, qwen3, qwen3-thinking, step3, step3p5",
                name: name.to_owned(),
            }),
        }
    }

    /// The tag before the reasoning.
    pub(crate) const OPEN: &str = "<think>";
    /// The tag behind the reasoning.
    pub(crate) const CLOSE: &str = "</think>";

    /// Whether a tool call ends the reasoning as the closing tag does, but stays.
    pub(crate) fn ends_at_calls(self) -> bool {
        self != Self::DeepseekR1
    }

    /// Whether vLLM counts tokens without an opening tag as reasoning.
    pub(crate) fn counts_unopened(self) -> bool {
        self != Self::DeepseekR1
    }

    /// Whether a prompt already ends the reasoning, as a template does that switches it off.
    pub(crate) fn is_over(prompt: &str) -> bool {
        match (prompt.rfind(Self::OPEN), prompt.rfind(Self::CLOSE)) {
            (Some(open), Some(close)) => close > open,
            (None, close) => close.is_some(),
            (Some(_), None) => false,
        }
    }
}

/// Ids of the tags, where they are tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tags {
    pub(crate) open: Option<u32>,
    pub(crate) close: Option<u32>,
}

impl Tags {
    pub(crate) fn find(vocab: &Vocab) -> Self {
        Self {
            open: vocab.added(ReasoningParser::OPEN),
            close: vocab.added(ReasoningParser::CLOSE),
        }
    }
}

/// What a piece of text turned out to be.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Split {
    pub(crate) reasoning: Option<String>,
    pub(crate) content: Option<String>,
}

impl Split {
    /// All of it is content.
    pub(crate) fn content(text: &str) -> Self {
        Self {
            reasoning: None,
            content: Some(text.to_owned()),
        }
    }

    /// What stands before and behind a tag of so many bytes; nothing stays in `text`.
    fn at(text: &mut String, at: usize, tag: usize) -> Self {
        let content = text.split_off(at + tag);
        text.truncate(at);
        Self {
            reasoning: not_empty(std::mem::take(text)),
            content: not_empty(content),
        }
    }
}

fn not_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
