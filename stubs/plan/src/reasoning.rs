//! Reasoning parsers: which of the model's text is reasoning, which is content.

use std::str::FromStr;

use vocab::Vocab;

use crate::tools;

/// A parser by vLLM's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReasoningParser {
    /// `deepseek_r1`: reasoning up to the token `</think>` in streams, as text in whole answers, which the
    /// template's switch does not reach.
    DeepseekR1,
    /// `qwen3`: reasoning up to `</think>`, an opening `<think>` being optional.
    Qwen3,
}

/// A parser that is not known.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown reasoning parser `{0}`; known: deepseek_r1, qwen3")]
pub struct UnknownParser(String);

impl FromStr for ReasoningParser {
    type Err = UnknownParser;

    fn from_str(name: &str) -> Result<Self, UnknownParser> {
        match name {
            "deepseek_r1" => Ok(Self::DeepseekR1),
            "qwen3" => Ok(Self::Qwen3),
            _ => Err(UnknownParser(name.to_owned())),
        }
    }
}

impl ReasoningParser {
    /// The tag before the reasoning.
    pub(crate) const OPEN: &str = "<think>";
    /// The tag behind the reasoning.
    pub(crate) const CLOSE: &str = "</think>";

    /// Whether tokens without an opening tag are counted as reasoning.
    pub(crate) fn counts_unopened(self) -> bool {
        self == Self::Qwen3
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

/// Splits one choice's text as it comes.
#[derive(Clone, Debug)]
pub(crate) struct Splitter {
    parser: ReasoningParser,
    tags: Tags,
    in_content: bool,
    /// No text has been given out yet, so an opening tag may still come.
    at_start: bool,
    /// Text that may turn out to begin a tag.
    pending: String,
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
}

impl Splitter {
    /// A splitter for an answer whose prompt did or did not end the reasoning.
    pub(crate) fn new(parser: ReasoningParser, tags: Tags, is_over: bool) -> Self {
        Self {
            parser,
            tags,
            in_content: is_over,
            at_start: true,
            pending: String::new(),
        }
    }

    /// Splits the next text, which came with `ids`; `is_last` gives out what was kept.
    pub(crate) fn feed(&mut self, text: &str, ids: &[u32], is_last: bool) -> Split {
        match self.parser {
            _ if self.in_content => Split::content(text),
            ReasoningParser::DeepseekR1 => self.by_tokens(text, ids),
            ReasoningParser::Qwen3 => self.by_text(text, is_last),
        }
    }

    /// The tags' tokens decide. Where text lags behind its tokens, since a stop string may follow, the
    /// real parser cuts it in odd places; so does this.
    fn by_tokens(&mut self, text: &str, ids: &[u32]) -> Split {
        let has = |tag: Option<u32>| tag.is_some_and(|tag| ids.contains(&tag));
        let (opens, closes) = (has(self.tags.open), has(self.tags.close));
        self.in_content = closes;
        if ids.len() == 1 && (opens || closes) {
            return Split::default();
        }
        if !closes {
            return Split {
                reasoning: Some(text.to_owned()),
                content: None,
            };
        }
        let (reasoning, content) = text.split_once(ReasoningParser::CLOSE).unwrap_or_else(|| {
            let last = text.char_indices().next_back().map_or(0, |(at, _)| at);
            let behind = text.char_indices().nth(ReasoningParser::CLOSE.len() - 1);
            (&text[..last], behind.map_or("", |(at, _)| &text[at..]))
        });
        let opened = reasoning.split_once(ReasoningParser::OPEN);
        let reasoning = opened.map_or(reasoning, |(_, behind)| behind);
        Split {
            reasoning: Some(reasoning.to_owned()),
            content: not_empty(content.to_owned()),
        }
    }

    fn by_text(&mut self, text: &str, is_last: bool) -> Split {
        self.pending.push_str(text);
        if self.at_start {
            if let Some(rest) = self.pending.strip_prefix(ReasoningParser::OPEN) {
                self.pending = rest.to_owned();
                self.at_start = false;
            } else if ReasoningParser::OPEN.starts_with(&*self.pending) && !is_last {
                return Split::default();
            }
            self.at_start &= self.pending.is_empty();
        }
        let close = self.pending.find(ReasoningParser::CLOSE);
        let call = self.pending.find(tools::OPEN);
        // A tool call ends the reasoning as the closing tag does, but stays.
        let ends = [
            close,
            call.filter(|_| self.parser == ReasoningParser::Qwen3),
        ];
        if let Some(at) = ends.into_iter().flatten().min() {
            self.in_content = true;
            let tag = if Some(at) == close {
                ReasoningParser::CLOSE.len()
            } else {
                0
            };
            let content = self.pending.split_off(at + tag);
            self.pending.truncate(at);
            return Split {
                reasoning: not_empty(std::mem::take(&mut self.pending)),
                content: not_empty(content),
            };
        }
        let kept = if is_last { 0 } else { self.begun_tag() };
        let keep = self.pending.split_off(self.pending.len() - kept);
        let reasoning = std::mem::replace(&mut self.pending, keep);
        Split {
            reasoning: not_empty(reasoning),
            content: None,
        }
    }

    /// Splits a whole answer; what is empty is left out.
    pub(crate) fn whole(&mut self, text: &str) -> Split {
        // deepseek_r1 looks at the prompt in streams alone.
        let is_over = self.in_content && self.parser != ReasoningParser::DeepseekR1;
        let split = if is_over {
            Split::content(text)
        } else {
            self.by_text(text, true)
        };
        Split {
            reasoning: split.reasoning.and_then(not_empty),
            content: split.content.and_then(not_empty),
        }
    }

    /// Bytes at the end of the pending text that may begin a tag that ends the reasoning.
    fn begun_tag(&self) -> usize {
        let tags = [ReasoningParser::CLOSE, tools::OPEN];
        let begun = tags.map(|tag| tools::begun(&self.pending, tag));
        begun[0].max(begun[1])
    }
}

fn not_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(parts: &[&str], is_over: bool) -> (String, String) {
        let mut splitter = Splitter::new(ReasoningParser::Qwen3, Tags::default(), is_over);
        let (mut reasoning, mut content) = (String::new(), String::new());
        for (index, part) in parts.iter().enumerate() {
            let split = splitter.feed(part, &[], index + 1 == parts.len());
            reasoning.extend(split.reasoning);
            content.extend(split.content);
        }
        (reasoning, content)
    }

    #[test]
    fn blocks_of_each_form_are_split() {
        for (text, expected) in [
            ("<think>\na</think>\n\nb", ("\na", "\n\nb")),
            ("a</think>b", ("a", "b")),
            ("<think>a", ("a", "")),
            ("a", ("a", "")),
            ("<think></think>b", ("", "b")),
            ("<think>a</think>b</think>c", ("a", "b</think>c")),
            ("a<tool_call>b", ("a", "<tool_call>b")),
            ("a</think><tool_call>b", ("a", "<tool_call>b")),
            ("", ("", "")),
        ] {
            let (reasoning, content) = split(&[text], false);
            assert_eq!((&*reasoning, &*content), expected, "{text}");
        }
        assert_eq!(split(&["a<think>b"], true).1, "a<think>b");
    }

    #[test]
    fn a_tag_alone_says_nothing() {
        let mut splitter = Splitter::new(ReasoningParser::Qwen3, Tags::default(), false);
        assert_eq!(splitter.feed("<think>", &[], false), Split::default());
        assert_eq!(
            splitter.feed("a", &[], false).reasoning.as_deref(),
            Some("a")
        );
        assert_eq!(splitter.feed("</think>", &[], false), Split::default());
        assert_eq!(splitter.feed("", &[], true).content.as_deref(), Some(""));
    }

    #[test]
    fn tokens_decide_for_deepseek_r1() {
        let tags = Tags {
            open: Some(1),
            close: Some(2),
        };
        let mut splitter = Splitter::new(ReasoningParser::DeepseekR1, tags, false);
        assert_eq!(splitter.feed("<th", &[1], false), Split::default());
        let lagging = splitter.feed("ink>", &[7, 8], false);
        assert_eq!(lagging.reasoning.as_deref(), Some("ink>"));
        let closing = splitter.feed("a</think>b", &[9, 2, 10], false);
        assert_eq!(closing.reasoning.as_deref(), Some("a"));
        assert_eq!(closing.content.as_deref(), Some("b"));
        assert_eq!(
            splitter.feed("</think>", &[2], true),
            Split::content("</think>")
        );
    }

    proptest! {
        #[test]
        fn any_cut_splits_alike(
            text in "(<think>)?[ab<]{0,6}(</thi)?[a<]{0,3}(</think>)?[ab<>]{0,6}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(split(&parts, false), split(&[&text], false));
        }
    }
}
