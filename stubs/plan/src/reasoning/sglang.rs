//! Reasoning as SGLang finds it: by text alone.

use super::{ReasoningParser, Split, not_empty};
use crate::tools;

/// Splits one choice's text as it comes.
#[derive(Clone, Debug)]
pub(crate) struct Detector {
    parser: ReasoningParser,
    is_reasoning: bool,
    /// Reasoning is given out as it comes, not at its end: `stream_reasoning`.
    streams: bool,
    /// An opening tag has been taken out; of others only text in one piece with it is free.
    is_opened: bool,
    /// Text that may turn out to begin a tag.
    pending: String,
}

impl Detector {
    /// A detector for an answer to a request that does or does not have the model think.
    pub(crate) fn new(parser: ReasoningParser, thinks: bool, streams: bool) -> Self {
        Self {
            parser,
            is_reasoning: thinks || parser != ReasoningParser::Qwen3,
            streams,
            is_opened: false,
            pending: String::new(),
        }
    }

    /// Splits the next text; `is_last` gives out what was kept.
    pub(crate) fn feed(&mut self, text: &str, is_last: bool) -> Split {
        self.pending.push_str(text);
        let mut split = self.next();
        if is_last {
            let rest = std::mem::take(&mut self.pending);
            let rest = rest
                .strip_prefix(ReasoningParser::OPEN)
                .filter(|_| self.is_reasoning)
                .unwrap_or(&rest);
            let side = if self.is_reasoning {
                &mut split.reasoning
            } else {
                &mut split.content
            };
            side.get_or_insert_default().push_str(rest);
        }
        Split {
            reasoning: split.reasoning.and_then(not_empty),
            content: split.content.and_then(not_empty),
        }
    }

    fn next(&mut self) -> Split {
        let tags = [ReasoningParser::OPEN, ReasoningParser::CLOSE];
        let tags = || tags.into_iter().chain(self.call());
        if tags().any(|tag| tag.starts_with(&*self.pending) && tag != self.pending) {
            return Split::default();
        }
        if !self.is_opened
            && let Some(at) = self.pending.find(ReasoningParser::OPEN)
        {
            self.pending
                .replace_range(at..at + ReasoningParser::OPEN.len(), "");
            self.is_opened = true;
            self.is_reasoning = true;
        }
        if !self.is_reasoning {
            return Split {
                reasoning: None,
                content: Some(std::mem::take(&mut self.pending)),
            };
        }
        if let Some((at, tag)) = self.end(&self.pending) {
            self.is_reasoning = false;
            return Split::at(&mut self.pending, at, tag);
        }
        if !self.streams {
            return Split::default();
        }
        let open = Some(ReasoningParser::OPEN).filter(|_| !self.is_opened);
        let tags = [ReasoningParser::CLOSE]
            .into_iter()
            .chain(self.call())
            .chain(open);
        let kept = tags.map(|tag| tools::begun(&self.pending, tag)).max();
        let kept = self
            .pending
            .split_off(self.pending.len() - kept.unwrap_or(0));
        Split {
            reasoning: Some(std::mem::replace(&mut self.pending, kept)),
            content: None,
        }
    }

    /// The tag of a call, if it ends the reasoning.
    fn call(&self) -> Option<&'static str> {
        self.parser.ends_at_calls().then_some(tools::OPEN)
    }

    /// Where the reasoning ends, and the bytes there that are a tag to be left out.
    fn end(&self, text: &str) -> Option<(usize, usize)> {
        let close = text
            .find(ReasoningParser::CLOSE)
            .map(|at| (at, ReasoningParser::CLOSE.len()));
        close.or_else(|| Some((text.find(self.call()?)?, 0)))
    }

    /// Splits a whole answer: `POST /separate_reasoning`. Empty parts are none.
    pub(crate) fn whole(&self, text: &str) -> Split {
        if !self.is_reasoning && !text.contains(ReasoningParser::OPEN) {
            return Split {
                reasoning: None,
                content: not_empty(text.to_owned()),
            };
        }
        let mut text = text;
        while let Some(rest) = text.strip_prefix(ReasoningParser::OPEN) {
            text = rest;
        }
        let (at, tag) = self.end(text).unwrap_or((text.len(), 0));
        Split {
            reasoning: not_empty(text[..at].to_owned()),
            content: not_empty(text[at + tag..].to_owned()),
        }
    }
}

/// `reasoning_tokens` by each step, `ends` being the number of ids by then: all tokens up to and with the
/// closing tag, whose ids are `close`, if the request has the model think, whatever becomes of its text.
pub(crate) fn tokens(
    ids: &[u32],
    ends: impl Iterator<Item = usize>,
    close: &[u32],
    thinks: bool,
) -> Vec<u64> {
    let closes = |end: &usize| !close.is_empty() && ids[..*end].ends_with(close);
    let all = if thinks {
        (1..=ids.len()).find(closes).unwrap_or(ids.len())
    } else {
        0
    };
    ends.map(|end| end.min(all) as u64).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::voice::cuts;

    const PARSERS: [ReasoningParser; 3] = [
        ReasoningParser::DeepseekR1,
        ReasoningParser::Qwen3,
        ReasoningParser::Qwen3Thinking,
    ];

    fn split(mut detector: Detector, parts: &[&str]) -> (String, String) {
        let (mut reasoning, mut content) = (String::new(), String::new());
        for (index, part) in parts.iter().enumerate() {
            let split = detector.feed(part, index + 1 == parts.len());
            reasoning.extend(split.reasoning);
            content.extend(split.content);
        }
        (reasoning, content)
    }

    #[test]
    fn whole_answers_of_each_form_are_split() {
        let (r1, qwen3) = (ReasoningParser::DeepseekR1, ReasoningParser::Qwen3);
        for (parser, thinks, text, expected) in [
            (qwen3, false, "a", (None, Some("a"))),
            (qwen3, true, "a", (Some("a"), None)),
            (r1, false, "a", (Some("a"), None)),
            (
                qwen3,
                false,
                "<think><think>a</think>b",
                (Some("a"), Some("b")),
            ),
            (
                qwen3,
                true,
                "a<tool_call>b",
                (Some("a"), Some("<tool_call>b")),
            ),
            (
                qwen3,
                true,
                "a<tool_call>b</think>c",
                (Some("a<tool_call>b"), Some("c")),
            ),
            (r1, true, "a<tool_call>b", (Some("a<tool_call>b"), None)),
        ] {
            let split = Detector::new(parser, thinks, false).whole(text);
            let split = (split.reasoning.as_deref(), split.content.as_deref());
            assert_eq!(split, expected, "{parser:?} {thinks} {text}");
        }
    }

    #[test]
    fn tokens_of_reasoning_end_with_the_tag() {
        let ends = || [1, 3, 5].into_iter();
        assert_eq!(tokens(&[1, 2, 8, 9, 4], ends(), &[8, 9], true), [1, 3, 4]);
        assert_eq!(tokens(&[1, 2, 8, 9, 4], ends(), &[8, 9], false), [0, 0, 0]);
        assert_eq!(tokens(&[1, 2, 8, 8, 4], ends(), &[8, 9], true), [1, 3, 5]);
    }

    proptest! {
        #[test]
        fn any_cut_splits_alike(
            text in "(<think>)?[ab<]{0,6}(</thi)?[é<]{0,3}(</think>|<tool_call>)?[ab<>]{0,6}",
            cuts in prop::collection::vec(any::<Index>(), 0..6),
            parser in prop::sample::select(&PARSERS[..]),
            thinks in any::<bool>(),
            streams in any::<bool>(),
        ) {
            let detector = Detector::new(parser, thinks, streams);
            let whole = detector.whole(&text);
            let whole = (whole.reasoning.unwrap_or_default(), whole.content.unwrap_or_default());
            let parts = cuts::parts(&text, &cuts);
            prop_assert_eq!(split(detector.clone(), &[&text]), whole.clone());
            prop_assert_eq!(split(detector, &parts), whole);
        }
    }
}
