//! Calls as SGLang's Rust front end finds them in a stream: each one whole, when its closing tag is there.

use std::sync::Arc;

use wire::chunk::ToolCall;

use super::whole::entries;
use super::{CLOSE, Called, OPEN, ToolParser, begun, find};

/// Holds one choice's content back from an opening tag to its closing tag.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    parser: ToolParser,
    /// Names of the request's tools.
    names: Arc<[String]>,
    /// Nothing is said behind the first call.
    is_single: bool,
    ids: fastrand::Rng,
    /// Content that waits for a tag's end or for a closing tag.
    pending: String,
    calls: usize,
}

impl Blocks {
    pub(crate) fn new(parser: ToolParser, names: Arc<[String]>, parallel: bool, seed: u64) -> Self {
        Self {
            parser,
            names,
            is_single: !parallel,
            ids: fastrand::Rng::with_seed(seed),
            pending: String::new(),
            calls: 0,
        }
    }

    /// Takes the next content and says what it adds, in order. A call that is still open at the end is
    /// said as empty content.
    pub(crate) fn feed(&mut self, content: &str, is_last: bool) -> Vec<Called> {
        self.pending.push_str(content);
        let mut said = Vec::new();
        while !(self.is_single && self.calls > 0) {
            let open = self.pending.find(OPEN);
            let kept = if is_last {
                0
            } else {
                begun(&self.pending, OPEN)
            };
            let behind = self
                .pending
                .split_off(open.unwrap_or(self.pending.len() - kept));
            let before = std::mem::replace(&mut self.pending, behind);
            said.extend((!before.is_empty()).then(|| Called::content(before)));
            let Some(at) = self.pending.find(CLOSE).filter(|_| open.is_some()) else {
                break;
            };
            let behind = self.pending.split_off(at + CLOSE.len());
            let block = std::mem::replace(&mut self.pending, behind);
            said.push(self.block(block));
        }
        if self.is_single && self.calls > 0 {
            self.pending.clear();
        } else if is_last && self.pending.starts_with(OPEN) {
            said.push(Called::content(String::new()));
        }
        said
    }

    fn block(&mut self, block: String) -> Called {
        let calls = self.whole(&block).1;
        if calls.is_empty() {
            return Called::content(block);
        }
        Called {
            calls,
            content: Some(String::new()),
            ..Called::default()
        }
    }

    /// The content and the calls of a whole answer, or of what is to follow in a stream.
    pub(crate) fn whole(&mut self, text: &str) -> (Option<String>, Vec<ToolCall<'static>>) {
        let whole = find(self.parser, text, &self.names);
        if whole.calls.is_empty() {
            return (Some(text.to_owned()), Vec::new());
        }
        let mut calls = whole.calls;
        calls.truncate(if self.is_single { 1 } else { calls.len() });
        let first = self.calls;
        self.calls += calls.len();
        let calls = entries(calls, first, || call_id(&mut self.ids));
        let content = Some(whole.content).filter(|content| !content.is_empty());
        (content, calls)
    }
}

/// `call-` and a UUID of version 4.
fn call_id(random: &mut fastrand::Rng) -> String {
    let bits = random.u128(..) & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    format!("call-{}", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_said_whole_and_text_around_them_as_it_comes() {
        let names: Arc<[String]> = Arc::new(["f".to_owned()]);
        let parts = [
            "a<to",
            "ol_call>\n{\"name\":",
            "\"f\"}\n</tool",
            "_call>b<",
            "c<tool_call>x</tool_call><tool_call>",
        ];
        let told = |parallel| {
            let mut blocks = Blocks::new(ToolParser::Hermes, Arc::clone(&names), parallel, 1);
            let mut told = Vec::new();
            for (index, part) in parts.iter().enumerate() {
                for called in blocks.feed(part, index + 1 == parts.len()) {
                    let calls = called
                        .calls
                        .iter()
                        .map(|call| format!("{}:{:?}", call.index, call.arguments));
                    told.push(format!(
                        "{}{}",
                        called.content.unwrap_or_default(),
                        calls.collect::<String>()
                    ));
                }
            }
            told
        };
        assert_eq!(
            told(true),
            [
                "a",
                "0:Some(\"{}\")",
                "b",
                "<c",
                "<tool_call>x</tool_call>",
                ""
            ]
        );
        assert_eq!(told(false), ["a", "0:Some(\"{}\")"]);
    }

    #[test]
    fn ids_are_uuids() {
        let id = call_id(&mut fastrand::Rng::with_seed(1));
        assert_eq!((id.len(), &id[19..20]), (41, "4"));
        assert!("89ab".contains(&id[24..25]));
    }
}
