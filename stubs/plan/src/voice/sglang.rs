//! One choice's text on its way through SGLang's parsers.

use std::sync::Arc;

use wire::chunk::{Delta, Nulls, ToolCall};

use crate::reasoning::sglang::Detector;
use crate::reasoning::{ReasoningParser, Split};
use crate::tools::{self, Blocks, ToolParser};

/// What SGLang does with a choice's text.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent keys of a request"
)]
pub(crate) struct Manner {
    /// `--reasoning-parser`
    pub(crate) reasoning: Option<ReasoningParser>,
    /// `separate_reasoning`
    pub(crate) separate_reasoning: bool,
    /// `stream_reasoning`
    pub(crate) stream_reasoning: bool,
    /// The request has the model think.
    pub(crate) thinks: bool,
    /// What looks for calls: none without a parser or tools, or if `tool_choice` is `none`.
    pub(crate) tools: Option<Tools>,
    /// The Rust front end says a call in one piece.
    pub(crate) whole_calls: bool,
    /// Of the calls' ids.
    pub(crate) seed: u64,
}

/// How a request's calls are found.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    pub(crate) parser: ToolParser,
    /// Names of the request's tools; calls of others are dropped.
    pub(crate) names: Arc<[String]>,
    /// `parallel_tool_calls`, which only the Rust front end's parser looks at.
    pub(crate) parallel: bool,
}

/// The parsers at work.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    detector: Option<Detector>,
    caller: Option<Caller>,
    pub(super) has_called: bool,
}

#[derive(Clone, Debug)]
enum Caller {
    Pieces(Box<tools::sglang::Detector>),
    Whole(Blocks),
}

impl Reader {
    pub(super) fn new(manner: Manner) -> Self {
        let parser = manner.reasoning.filter(|_| manner.separate_reasoning);
        let detector =
            parser.map(|parser| Detector::new(parser, manner.thinks, manner.stream_reasoning));
        let (seed, whole_calls) = (manner.seed, manner.whole_calls);
        let caller = manner.tools.map(|tools| {
            let (parser, names) = (tools.parser, tools.names);
            if whole_calls {
                Caller::Whole(Blocks::new(parser, names, tools.parallel, seed))
            } else {
                Caller::Pieces(tools::sglang::Detector::new(parser, names, seed).into())
            }
        });
        Self {
            detector,
            caller,
            has_called: false,
        }
    }

    /// Text is content as it is.
    pub(super) fn is_plain(&self) -> bool {
        self.detector.is_none() && self.caller.is_none()
    }

    pub(super) fn deltas(&mut self, text: &str, is_last: bool) -> Vec<Delta<'static>> {
        let split = match &mut self.detector {
            None => Split::content(text),
            Some(detector) => detector.feed(text, is_last),
        };
        let mut deltas: Vec<_> = split.reasoning.into_iter().map(reasoning).collect();
        let content = split.content.unwrap_or_default();
        match &mut self.caller {
            None if content.is_empty() => {}
            None => deltas.push(Delta {
                content: Some(content.into()),
                ..Delta::default()
            }),
            Some(Caller::Pieces(detector)) => {
                let called = detector.feed(&content, is_last);
                self.has_called |= !called.calls.is_empty();
                deltas.extend(called.content.map(|text| parsed(Some(text), Vec::new())));
                let calls = called.calls.into_iter();
                deltas.extend(calls.map(|call| parsed(None, vec![call])));
            }
            Some(Caller::Whole(blocks)) => {
                let waits = self.detector.is_some() && !text.is_empty() && content.is_empty();
                if waits && deltas.is_empty() {
                    deltas.push(parsed(None, Vec::new()));
                }
                for called in blocks.feed(&content, is_last) {
                    let has_called = !called.calls.is_empty();
                    self.has_called |= has_called;
                    let mut delta = parsed(called.content, called.calls);
                    delta.role = (has_called || delta.content.as_deref() == Some(""))
                        .then(|| "assistant".into());
                    deltas.push(delta);
                }
            }
        }
        deltas
    }

    pub(super) fn whole(&mut self, text: &str) -> Delta<'static> {
        let split = match &self.detector {
            None => Split::content(text),
            Some(detector) => detector.whole(text),
        };
        let text = split.content.unwrap_or_default();
        let (content, tool_calls) = match &mut self.caller {
            None => (Some(text), Vec::new()),
            Some(Caller::Pieces(detector)) => detector.whole(&text),
            Some(Caller::Whole(blocks)) => blocks.whole(&text),
        };
        self.has_called |= !tool_calls.is_empty();
        Delta {
            content: content.map(Into::into),
            reasoning: split.reasoning.map(Into::into),
            tool_calls,
            ..Delta::default()
        }
    }
}

fn reasoning(text: String) -> Delta<'static> {
    Delta {
        reasoning: Some(text.into()),
        ..Delta::default()
    }
}

/// What went through the tool parser.
fn parsed(content: Option<String>, tool_calls: Vec<ToolCall<'static>>) -> Delta<'static> {
    Delta {
        content: content.map(Into::into),
        nulls: Nulls {
            tool_parser: true,
            ..Nulls::default()
        },
        tool_calls,
        ..Delta::default()
    }
}
