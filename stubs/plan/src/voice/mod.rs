//! One choice's text on its way through the server's parsers: reasoning, then tool calls.

#[cfg(test)]
pub(crate) mod cuts;
#[cfg(test)]
mod recorded;
pub(crate) mod sglang;

use wire::chunk::{Delta, Nulls};
use wire::finish::{Finish, FinishReason};

use self::sglang::{Manner, Reader};
use crate::reasoning::{Split, Splitter};
use crate::tools::Caller;

/// The parsers of one choice, each if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Voice {
    pub(crate) caller: Option<Caller>,
    /// Content without text makes no chunk, nor does reasoning that ends without: the server has a tool
    /// parser, called or not.
    pub(crate) drops_empty: bool,
    pub(crate) hides_reasoning: bool,
    /// A call makes the finish reason `tool_calls`.
    pub(crate) names_calls: bool,
    pub(crate) splitter: Option<Splitter>,
    /// SGLang's parsers; the others are vLLM's.
    pub(crate) reader: Option<Box<Reader>>,
}

impl Voice {
    /// A choice of SGLang's.
    pub(crate) fn sglang(manner: Manner) -> Self {
        Self {
            reader: Some(Box::new(Reader::new(manner))),
            ..Self::default()
        }
    }

    /// Text is content as it is.
    pub(crate) fn is_plain(&self) -> bool {
        if let Some(reader) = &self.reader {
            return reader.is_plain();
        }
        let parses = self.caller.is_some() || self.splitter.is_some();
        !(parses || self.drops_empty || self.hides_reasoning)
    }

    /// What the next text adds, which came with `ids`: a delta for each chunk that it makes. SGLang's
    /// parsers want to see every step, those without text and the end token's included; an aborted
    /// answer has no last step, since they say nothing more then.
    pub(crate) fn deltas(&mut self, text: &str, ids: &[u32], is_last: bool) -> Vec<Delta<'static>> {
        match &mut self.reader {
            None => self.feed(text, ids, is_last).into_iter().collect(),
            Some(reader) => reader.deltas(text, is_last),
        }
    }

    /// What the next text adds by vLLM's parsers; `None` if it makes no chunk.
    pub(crate) fn feed(
        &mut self,
        text: &str,
        ids: &[u32],
        is_last: bool,
    ) -> Option<Delta<'static>> {
        let split = match &mut self.splitter {
            None => Split::content(text),
            Some(splitter) => splitter.feed(text, ids, is_last),
        };
        let is_bare = self.drops_empty && split.content.is_some();
        let is_hidden = |text: &String| self.hides_reasoning || (is_bare && text.is_empty());
        let reasoning = split.reasoning.filter(|text| !is_hidden(text));
        let delta = match &mut self.caller {
            None => self.plain(split.content, reasoning, is_last),
            Some(caller) => {
                let found = caller.feed(split.content.as_deref().unwrap_or_default(), is_last);
                Delta {
                    content: found.content.map(Into::into),
                    nulls: found.nulls,
                    reasoning: reasoning.map(Into::into),
                    tool_calls: found.calls,
                    role: None,
                }
            }
        };
        let says_nothing = delta.content.is_none()
            && delta.reasoning.is_none()
            && delta.tool_calls.is_empty()
            && !delta.nulls.content;
        (!says_nothing || is_last).then_some(delta)
    }

    fn plain(
        &self,
        content: Option<String>,
        reasoning: Option<String>,
        is_last: bool,
    ) -> Delta<'static> {
        let bare = self.drops_empty || (self.hides_reasoning && is_last);
        let content = content.filter(|content| !bare || !content.is_empty());
        Delta {
            nulls: Nulls {
                reasoning: self.hides_reasoning && content.is_some(),
                ..Nulls::default()
            },
            content: content.map(Into::into),
            reasoning: reasoning.map(Into::into),
            ..Delta::default()
        }
    }

    /// The message of a whole answer.
    pub(crate) fn whole(&mut self, text: &str) -> Delta<'static> {
        if let Some(reader) = &mut self.reader {
            return reader.whole(text);
        }
        let split = match &mut self.splitter {
            None => Split::content(text),
            Some(splitter) => splitter.whole(text),
        };
        let reasoning = split.reasoning.filter(|_| !self.hides_reasoning);
        let (content, tool_calls) = match (&mut self.caller, split.content) {
            (Some(caller), Some(content)) => caller.whole(&content),
            (_, content) => (content, Vec::new()),
        };
        Delta {
            content: content.map(Into::into),
            reasoning: reasoning.map(Into::into),
            tool_calls,
            ..Delta::default()
        }
    }

    /// Some part of a call has been given out.
    pub(crate) fn has_called(&self) -> bool {
        match &self.reader {
            None => self.caller.as_ref().is_some_and(Caller::has_called),
            Some(reader) => reader.has_called,
        }
    }

    /// The finish of an answer that may have called tools.
    pub(crate) fn finish(&self, finish: &Finish<'static>) -> Finish<'static> {
        let names_calls = self.names_calls || self.reader.is_some();
        if self.has_called() && names_calls && finish.reason == FinishReason::Stop {
            return Finish {
                reason: FinishReason::ToolCalls,
                ..finish.clone()
            };
        }
        finish.clone()
    }
}
