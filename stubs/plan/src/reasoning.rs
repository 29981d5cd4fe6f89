//! Reasoning parsers: which of the model's text is reasoning, which is content.

use std::str::FromStr;

/// A parser by vLLM's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReasoningParser {
    /// `qwen3`: reasoning up to `</think>`, an opening `<think>` being optional.
    Qwen3,
}

/// A parser that is not known.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown reasoning parser `{0}`; known: qwen3")]
pub struct UnknownParser(String);

impl FromStr for ReasoningParser {
    type Err = UnknownParser;

    fn from_str(name: &str) -> Result<Self, UnknownParser> {
        match name {
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

    /// Whether a prompt already ends the reasoning, as a template does that switches it off.
    pub(crate) fn is_over(prompt: &str) -> bool {
        match (prompt.rfind(Self::OPEN), prompt.rfind(Self::CLOSE)) {
            (Some(open), Some(close)) => close > open,
            (None, close) => close.is_some(),
            (Some(_), None) => false,
        }
    }
}

/// Splits one choice's text as it comes.
#[derive(Clone, Debug)]
pub(crate) struct Splitter {
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

impl Splitter {
    /// A splitter for an answer whose prompt did or did not end the reasoning.
    pub(crate) fn new(is_over: bool) -> Self {
        Self {
            in_content: is_over,
            at_start: true,
            pending: String::new(),
        }
    }

    /// Splits the next text; `is_last` gives out what was kept.
    pub(crate) fn feed(&mut self, text: &str, is_last: bool) -> Split {
        if self.in_content {
            return Split {
                reasoning: None,
                content: Some(text.to_owned()),
            };
        }
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
        if let Some(at) = self.pending.find(ReasoningParser::CLOSE) {
            self.in_content = true;
            let content = self.pending.split_off(at + ReasoningParser::CLOSE.len());
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

    /// Bytes at the end of the pending text that may begin the closing tag.
    fn begun_tag(&self) -> usize {
        let longest = ReasoningParser::CLOSE.len() - 1;
        (1..=longest)
            .rev()
            .find(|&length| self.pending.ends_with(&ReasoningParser::CLOSE[..length]))
            .unwrap_or(0)
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
        let mut splitter = Splitter::new(is_over);
        let (mut reasoning, mut content) = (String::new(), String::new());
        for (index, part) in parts.iter().enumerate() {
            let split = splitter.feed(part, index + 1 == parts.len());
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
            ("", ("", "")),
        ] {
            let (reasoning, content) = split(&[text], false);
            assert_eq!((&*reasoning, &*content), expected, "{text}");
        }
        assert_eq!(split(&["a<think>b"], true).1, "a<think>b");
    }

    #[test]
    fn a_tag_alone_says_nothing() {
        let mut splitter = Splitter::new(false);
        assert_eq!(splitter.feed("<think>", false), Split::default());
        assert_eq!(splitter.feed("a", false).reasoning.as_deref(), Some("a"));
        assert_eq!(splitter.feed("</think>", false), Split::default());
        assert_eq!(splitter.feed("", true).content.as_deref(), Some(""));
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
