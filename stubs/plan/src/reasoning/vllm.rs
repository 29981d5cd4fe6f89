//! Reasoning as vLLM finds it.

use super::{ReasoningParser, Split, Tags, not_empty};
use crate::tools;

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
            ReasoningParser::Qwen3 | ReasoningParser::Qwen3Thinking => self.by_text(text, is_last),
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
        let ends = [close, call.filter(|_| self.parser.ends_at_calls())];
        if let Some(at) = ends.into_iter().flatten().min() {
            self.in_content = true;
            let tag = if Some(at) == close {
                ReasoningParser::CLOSE.len()
            } else {
                0
            };
            return Split::at(&mut self.pending, at, tag);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::voice::cuts;

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
            let parts = cuts::parts(&text, &cuts);
            prop_assert_eq!(split(&parts, false), split(&[&text], false));
        }
    }
}
