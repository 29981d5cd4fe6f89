//! Lays an answer's tokens over the text that a client saw of them.

use std::ops::Range;

use wire::finish::StopReason;

use super::marks::{Mark, arguments, common_prefix, first, marks, signs};
use super::pieces::Pieces;
use super::{Cause, Choice, Flavour};

/// What became of a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// The client saw it as content.
    Content,
    /// The client did not see it.
    Hidden(Cause),
    /// The client saw it as reasoning.
    Reasoning,
    /// It is not in what the client saw, and nothing says why.
    Unaligned,
}

/// Tokens and text, one laid over the other.
#[derive(Debug)]
pub(super) struct Laid {
    /// What became of each token.
    pub(super) kinds: Vec<Kind>,
    /// The content that is in the tokens' text.
    pub(super) content: String,
    /// The same of reasoning.
    pub(super) reasoning: String,
}

/// Lays tokens over what the client saw.
pub(super) fn lay(choice: &Choice, pieces: &Pieces, flavour: &Flavour) -> Laid {
    let mut walk = Walk::new(choice, pieces, flavour);
    walk.run();
    let mut kinds = walk.of_tokens();
    for &(number, cause) in &pieces.special {
        if matches!(kinds[number], Kind::Unaligned) || pieces.range(number).is_empty() {
            kinds[number] = Kind::Hidden(cause);
        }
    }
    walk.laid.kinds = kinds;
    walk.laid
}

/// Characters that text and tokens have to share to be in step again, if there are as many.
const IN_STEP: usize = 12;
/// How often they may fall out of step.
const MAX_LOST: usize = 64;

/// Which text is expected next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Side {
    Content,
    Reasoning,
}

/// A way along the text of the tokens.
struct Walk<'a> {
    choice: &'a Choice,
    pieces: &'a Pieces,
    flavour: &'a Flavour,
    text: &'a str,
    at: usize,
    side: Side,
    /// What the client saw and is not reached yet.
    content: &'a str,
    reasoning: &'a str,
    laid: Laid,
    /// What each byte of the text is.
    kinds: Vec<Kind>,
    /// Places where marks begin, and how long they are, in order.
    marks: Vec<(usize, usize, Mark)>,
    lost: usize,
}

impl<'a> Walk<'a> {
    fn new(choice: &'a Choice, pieces: &'a Pieces, flavour: &'a Flavour) -> Self {
        Self {
            choice,
            pieces,
            flavour,
            text: &pieces.text,
            at: 0,
            side: if choice.reasoning.is_empty() {
                Side::Content
            } else {
                Side::Reasoning
            },
            content: &choice.content,
            reasoning: &choice.reasoning,
            laid: Laid {
                kinds: Vec::new(),
                content: String::new(),
                reasoning: String::new(),
            },
            kinds: vec![Kind::Unaligned; pieces.text.len()],
            marks: marks(pieces, flavour),
            lost: 0,
        }
    }

    fn run(&mut self) {
        while self.at < self.text.len() {
            let moved = self.hides() || self.shows() || self.turns();
            let moved = moved || self.is_at_stop() && self.stops() || self.skips_space();
            if !(moved || self.stops() || self.regains()) {
                break;
            }
        }
        self.settle();
        if !self.pieces.partial.is_empty() {
            self.laid.content.push_str(signs(self.content));
            self.laid.reasoning.push_str(signs(self.reasoning));
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn expected(&self) -> &'a str {
        match self.side {
            Side::Content => self.content,
            Side::Reasoning => self.reasoning,
        }
    }

    fn next_mark(&self) -> Option<(usize, usize, Mark)> {
        let next = self.marks.partition_point(|mark| mark.0 < self.at);
        self.marks.get(next).copied()
    }

    fn is_marked(&self, at: usize) -> bool {
        self.marks.binary_search_by_key(&at, |mark| mark.0).is_ok()
    }

    /// The mark that is right here and that the client did not see.
    fn hidden_mark(&self) -> Option<(usize, Mark)> {
        let (start, length, mark) = self.next_mark()?;
        let spelt = &self.text[start..start + length];
        // Where thoughts end without a tag the content may begin with a mark.
        let seen = if self.expected().is_empty() {
            self.content.starts_with(spelt)
        } else {
            self.expected().starts_with(spelt)
        };
        (start == self.at && !seen).then_some((length, mark))
    }

    fn take(&mut self, length: usize, kind: Kind) {
        self.kinds[self.at..self.at + length].fill(kind);
        self.at += length;
    }

    /// A mark that was taken out.
    fn hides(&mut self) -> bool {
        let Some((length, mark)) = self.hidden_mark() else {
            return false;
        };
        match mark {
            Mark::Call(number) => self.takes_call(length, number),
            Mark::Cause(cause) => self.take(length, Kind::Hidden(cause)),
            Mark::ThinkClose => {
                self.side = Side::Content;
                self.take(length, Kind::Hidden(Cause::Delimiters));
            }
            Mark::ThinkOpen => {
                if !self.reasoning.is_empty() {
                    self.side = Side::Reasoning;
                }
                self.take(length, Kind::Hidden(Cause::Delimiters));
            }
        }
        true
    }

    fn takes_call(&mut self, length: usize, number: usize) {
        let close = &*self.flavour.calls[number].close;
        let inside = &self.rest()[length..];
        let closed = inside.find(close).filter(|_| !close.is_empty());
        let end = closed.map_or_else(
            || self.before_end(),
            |at| self.at + length + at + close.len(),
        );
        self.takes_structure(end);
    }

    /// Where the special token at the end begins, if there is one.
    fn before_end(&self) -> usize {
        let last = self.pieces.special.last();
        let ends = last.filter(|(number, _)| number + 1 == self.pieces.starts.len());
        let start = ends.map_or(self.text.len(), |&(number, _)| self.pieces.starts[number]);
        start.max(self.at)
    }

    /// Tool calls up to a place, their arguments marked as such.
    fn takes_structure(&mut self, end: usize) {
        let start = self.at;
        self.take(end - start, Kind::Hidden(Cause::ToolStructure));
        for arguments in arguments(&self.text[start..end]) {
            let range = start + arguments.start..start + arguments.end;
            self.kinds[range].fill(Kind::Hidden(Cause::ToolArguments));
        }
    }

    /// Text that the client saw.
    fn shows(&mut self) -> bool {
        let (expected, rest) = (self.expected(), self.rest());
        let mut end = rest.len();
        if let Some((start, length, _)) = self.next_mark() {
            // A mark right here was seen, else it would have been taken out.
            end = if start == self.at {
                length
            } else {
                start - self.at
            };
        }
        let same = common_prefix(&rest[..end], expected);
        let (kind, left, laid) = match self.side {
            Side::Content => (Kind::Content, &mut self.content, &mut self.laid.content),
            Side::Reasoning => (
                Kind::Reasoning,
                &mut self.reasoning,
                &mut self.laid.reasoning,
            ),
        };
        *left = &expected[same..];
        laid.push_str(&expected[..same]);
        self.take(same, kind);
        same > 0
    }

    /// White space before or behind what was taken out.
    fn skips_space(&mut self) -> bool {
        let rest = self.rest();
        let length = rest.len() - rest.trim_start().len();
        let before = self.at.checked_sub(1).map(|at| self.kinds[at]);
        let follows_hidden = matches!(before, None | Some(Kind::Hidden(_)));
        let behind = self.at + length;
        let ends = self.is_marked(behind) || behind == self.text.len();
        let is_hidden = length > 0 && (follows_hidden || ends);
        if is_hidden {
            self.take(length, Kind::Hidden(Cause::Whitespace));
        }
        is_hidden
    }

    /// The other side's text goes on here.
    fn turns(&mut self) -> bool {
        let rest = self.rest();
        let space = rest.len() - rest.trim_start().len();
        let (side, other) = match self.side {
            Side::Content => (Side::Reasoning, self.reasoning),
            Side::Reasoning => (Side::Content, self.content),
        };
        // White space before a mark is the mark's.
        let is_space = space > 0 && self.is_marked(self.at + space) && self.expected().is_empty();
        let begins = !is_space && common_prefix(rest, other) > 0;
        let is_due = self.expected().is_empty() || self.side == Side::Content;
        if begins && is_due {
            self.side = side;
        }
        begins && is_due
    }

    fn is_at_stop(&self) -> bool {
        match &self.choice.stop {
            Some(StopReason::Text(stop)) => self.rest().starts_with(&**stop),
            _ => false,
        }
    }

    /// The answer was cut at a stop string, or what matched its pattern.
    fn stops(&mut self) -> bool {
        let Some(StopReason::Text(_)) = self.choice.stop else {
            return false;
        };
        let ends = self.content.is_empty() && self.reasoning.is_empty();
        if ends {
            let length = self.before_end() - self.at;
            self.take(length, Kind::Hidden(Cause::StopString));
            if length == 0 {
                return false;
            }
        }
        ends
    }

    /// Finds where text and tokens are in step again.
    fn regains(&mut self) -> bool {
        self.lost += 1;
        let expected = self.expected();
        if self.lost > MAX_LOST {
            return false;
        }
        let rest = self.rest();
        let probe = first(expected, IN_STEP);
        let found = rest.find(probe).filter(|_| !probe.is_empty());
        let next = self.marks.partition_point(|mark| mark.0 <= self.at);
        let next = self.marks.get(next).map(|mark| mark.0 - self.at);
        if let Some(found) = found {
            let skipped = next.map_or(found, |next| next.min(found));
            self.at += skipped;
            return skipped > 0;
        }
        let probe = first(rest, IN_STEP);
        if let Some(skipped) = expected.find(probe).filter(|&skipped| skipped > 0) {
            match self.side {
                Side::Content => self.content = &expected[skipped..],
                Side::Reasoning => self.reasoning = &expected[skipped..],
            }
            return true;
        }
        self.at += next.unwrap_or(0);
        next.is_some()
    }

    /// Says what is in stretches that are not in step: reasoning that was left out, or tool calls.
    fn settle(&mut self) {
        let mut at = 0;
        while let Some(start) = self.kinds[at..]
            .iter()
            .position(|kind| *kind == Kind::Unaligned)
        {
            let start = at + start;
            let length = self.kinds[start..]
                .iter()
                .position(|kind| *kind != Kind::Unaligned);
            let end = length.map_or(self.kinds.len(), |length| start + length);
            let text = &self.text[start..end];
            let is_call = |call: &super::Call| {
                let told = [&call.arguments, &call.name];
                told.iter()
                    .any(|told| !told.is_empty() && text.contains(&***told))
            };
            if self.choice.calls.iter().any(is_call) {
                self.at = start;
                self.takes_structure(end);
            } else if self.choice.reasoning.is_empty() && self.is_thought(start..end) {
                self.kinds[start..end].fill(Kind::Hidden(Cause::HiddenReasoning));
            }
            at = end;
        }
    }

    fn is_thought(&self, stretch: Range<usize>) -> bool {
        let think = &self.flavour.think;
        let before = self.text[..stretch.start].trim_end();
        let opened = before.ends_with(&*think.open);
        opened || self.text[stretch.end..].starts_with(&*think.close)
    }

    /// What each token is: what the client saw of it, else what its first byte is.
    fn of_tokens(&self) -> Vec<Kind> {
        let numbers = 0..self.pieces.starts.len();
        numbers.map(|number| self.of_token(number)).collect()
    }

    fn of_token(&self, number: usize) -> Kind {
        let range = self.pieces.range(number);
        if let Some(&here) = self.kinds.get(range.start).filter(|_| range.is_empty()) {
            return here;
        }
        if range.is_empty() {
            // Some servers send a sign for the character in place of it.
            let shown = [self.content, self.reasoning];
            let is_shown = shown.iter().any(|left| !signs(left).is_empty());
            return match self.pieces.partial.contains(&number) {
                true if is_shown => Kind::Content,
                true => Kind::Hidden(Cause::SplitCharacters),
                false => Kind::Unaligned,
            };
        }
        let kinds = &self.kinds[range];
        let shown = |kind: &&Kind| matches!(kind, Kind::Content | Kind::Reasoning);
        *kinds.iter().find(shown).unwrap_or(&kinds[0])
    }
}
