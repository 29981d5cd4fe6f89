//! From a scripted answer to engine outputs: limits, stop strings and end tokens at work.
//!
//! The rules are those of vLLM's engine and detokenizer as recorded: text that could begin a stop
//! string is held back, a stop token's text is dropped, an ignored end token starts the script anew.

use std::borrow::Cow;
use std::sync::Arc;

use regex::Regex;
use vocab::Vocab;
use wire::dialect::Holds;
use wire::finish::{Finish, FinishReason, StopReason};

use crate::script::{Answer, Cut, CutKind, End, Piece, Pieces, Rhythm};
use crate::tools::begun;

/// What ends an answer and what of it shows.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent rules")]
pub(crate) struct Rules<'a> {
    /// The finish names the end token, whichever it is.
    pub(crate) ends_tell_token: bool,
    pub(crate) eos_token_ids: &'a [u32],
    /// An end that is ignored comes again and again; otherwise the answer begins anew.
    pub(crate) end_repeats: bool,
    pub(crate) holds: Holds,
    pub(crate) ignore_eos: bool,
    pub(crate) include_stop: bool,
    /// Somebody looks at the ids.
    pub(crate) keeps_ids: bool,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) min_tokens: u64,
    pub(crate) skip_special_tokens: bool,
    pub(crate) stop: &'a [Cow<'a, str>],
    pub(crate) stop_regex: &'a [Regex],
    pub(crate) stop_token_ids: &'a [u32],
    pub(crate) vocab: &'a Vocab,
}

/// What one choice said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    /// The text that shows.
    pub(crate) text: Arc<str>,
    /// Ids of its tokens, where they have ids and somebody looks at them.
    pub(crate) ids: Vec<u32>,
    /// One for each engine step, the last with the finish; never empty.
    pub(crate) outputs: Vec<Output>,
    /// Tokens of all steps.
    pub(crate) tokens: u64,
    pub(crate) finish: Finish<'static>,
    /// The engine failed at the last step, in place of a finish.
    pub(crate) fault: Option<CutKind>,
}

/// How far an engine step got.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Output {
    /// Bytes of text that show by now.
    text_end: u32,
    /// Ids by now.
    ids_end: u32,
    /// Tokens of this step.
    pub(crate) tokens: u32,
}

impl Output {
    pub(crate) fn text_end(self) -> usize {
        self.text_end as usize
    }

    pub(crate) fn ids_end(self) -> usize {
        self.ids_end as usize
    }
}

/// A place in an answer.
fn place(at: usize) -> u32 {
    u32::try_from(at).expect("an answer is shorter than 4 GiB")
}

impl Said {
    /// Keeps the counts and shows nothing.
    pub(crate) fn hide(&mut self) {
        self.text = "".into();
        self.ids.clear();
        for output in &mut self.outputs {
            output.text_end = 0;
            output.ids_end = 0;
        }
    }

    /// Nothing, in one step.
    pub(crate) fn nothing(finish: Finish<'static>) -> Self {
        Self {
            text: "".into(),
            ids: Vec::new(),
            outputs: vec![Output::default()],
            tokens: 0,
            finish,
            fault: None,
        }
    }

    /// Ends with a step, given up, or with an error in place of the step.
    pub(crate) fn cut(&mut self, step: usize, fails: bool) {
        self.outputs.truncate(step + 1);
        let reached = self.outputs[step];
        self.text = self.text[..reached.text_end()].into();
        self.ids.truncate(reached.ids_end());
        let tokens = self.outputs.iter().map(|output| u64::from(output.tokens));
        self.tokens = tokens.sum();
        self.finish = FinishReason::Abort.into();
        self.fault = fails.then_some(CutKind::GivenUp);
    }

    /// Merges steps as `grouping` says.
    pub(crate) fn grouped(mut self, grouping: &Grouping<'_>) -> Self {
        if grouping.is_single() {
            return self;
        }
        let mut sizes = grouping.sizes();
        let mut merged: Vec<Output> = Vec::with_capacity(self.outputs.len());
        let mut room = 0;
        let last = self.outputs.len() - 1;
        for (index, output) in self.outputs.into_iter().enumerate() {
            let is_fault = self.fault.is_some() && index == last;
            match merged.last_mut() {
                Some(group) if room > 0 && !is_fault => {
                    group.text_end = output.text_end;
                    group.ids_end = output.ids_end;
                    group.tokens += output.tokens;
                }
                _ => {
                    merged.push(output);
                    room = sizes.next().unwrap_or(1).max(1);
                }
            }
            room -= 1;
        }
        self.outputs = merged;
        self
    }
}

/// How many steps make a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouping<'a> {
    /// Steps of the first chunk.
    pub(crate) first: u32,
    /// Steps of each further chunk.
    pub(crate) every: u32,
    /// The script's own rhythm, which goes first.
    pub(crate) rhythm: &'a Rhythm,
}

impl<'a> Grouping<'a> {
    fn is_single(&self) -> bool {
        *self.rhythm == Rhythm::Single && self.first <= 1 && self.every <= 1
    }

    fn sizes(self) -> Box<dyn Iterator<Item = u32> + 'a> {
        match self.rhythm {
            Rhythm::Bursts(sizes) => Box::new(sizes.iter().copied().cycle()),
            Rhythm::Single => {
                Box::new(std::iter::once(self.first).chain(std::iter::repeat(self.every)))
            }
            Rhythm::Steps(sizes) => Box::new(sizes.iter().copied().chain(std::iter::repeat(1))),
        }
    }
}

/// Plays an answer by the rules.
pub(crate) fn say(answer: &Answer, cut: Option<Cut>, rules: &Rules<'_>) -> Said {
    match rules.untouched(answer) {
        Some(plain) if cut.is_none() => plain.said(answer, rules),
        _ => by_rules(answer, cut, rules),
    }
}

/// An answer that the rules leave as it is, but for its length.
#[derive(Clone, Debug)]
pub(crate) struct Plain<'a> {
    pub(crate) pieces: Pieces<'a>,
    /// The text of the pieces.
    pub(crate) text: &'a str,
    /// The end token, unless a limit came first.
    pub(crate) end: Option<End>,
    /// Tokens of the pieces and the end.
    pub(crate) tokens: u64,
    pub(crate) finish: Finish<'static>,
}

impl Rules<'_> {
    /// What is said of an answer that no rule changes but a limit.
    pub(crate) fn untouched<'a>(&self, answer: &'a Answer) -> Option<Plain<'a>> {
        let is_plain = self.stop.is_empty() && self.stop_regex.is_empty();
        if !(is_plain && self.stop_token_ids.is_empty() && self.skip_special_tokens) {
            return None;
        }
        let tokens = answer.tokens();
        if self.max_tokens == Some(0) {
            return Some(Plain::limited(answer, 0));
        }
        if let Some(limit) = self.max_tokens.filter(|limit| tokens >= *limit)
            && answer.pieces().count() > 0
        {
            return Some(Plain::limited(answer, limit));
        }
        let end = answer.end?;
        let goes_on = end.tokens > 0 && (self.ignore_eos || tokens < self.min_tokens);
        (!goes_on).then(|| Plain {
            pieces: answer.pieces(),
            text: &answer.text,
            end: Some(end),
            tokens: tokens + u64::from(end.tokens),
            finish: self.finish(end),
        })
    }

    /// How an end token ends an answer.
    fn finish(&self, end: End) -> Finish<'static> {
        let first = self.eos_token_ids.first().copied();
        Finish {
            reason: FinishReason::Stop,
            stop_reason: end
                .id
                .filter(|&id| self.ends_tell_token || first.is_some_and(|first| first != id))
                .map(StopReason::Token),
        }
    }
}

impl<'a> Plain<'a> {
    /// An answer up to the piece that reaches a limit.
    fn limited(answer: &'a Answer, limit: u64) -> Self {
        let (mut tokens, mut bytes, mut count) = (0, 0, 0);
        for piece in answer.pieces().iter() {
            if tokens >= limit {
                break;
            }
            tokens += u64::from(piece.tokens);
            bytes += piece.bytes as usize;
            count += 1;
        }
        Self {
            pieces: answer.pieces().split_at(count).0,
            text: &answer.text[..bytes],
            end: None,
            tokens,
            finish: FinishReason::Length.into(),
        }
    }

    fn said(self, answer: &Answer, rules: &Rules<'_>) -> Said {
        let steps = self.pieces.count() + 1;
        let mut ids = Vec::new();
        if rules.keeps_ids {
            ids.reserve_exact(steps);
            ids.extend(self.pieces.iter().filter_map(|piece| piece.id));
            ids.extend(self.end.and_then(|end| end.id));
        }
        let mut reached = Output::default();
        let mut outputs = Vec::with_capacity(steps);
        outputs.extend(self.pieces.iter().map(|piece| {
            reached.text_end += piece.bytes;
            reached.ids_end += u32::from(rules.keeps_ids && piece.id.is_some());
            reached.tokens = piece.tokens;
            reached
        }));
        outputs.extend(self.end.map(|end| Output {
            ids_end: place(ids.len()),
            tokens: end.tokens,
            ..reached
        }));
        if outputs.is_empty() {
            // Nothing was asked for, which takes a step all the same.
            outputs.push(Output::default());
        }
        Said {
            text: if self.text.len() == answer.text.len() {
                Arc::clone(&answer.text)
            } else {
                self.text.into()
            },
            ids,
            outputs,
            tokens: self.tokens,
            finish: self.finish,
            fault: None,
        }
    }
}

fn by_rules(answer: &Answer, cut: Option<Cut>, rules: &Rules<'_>) -> Said {
    let mut speaker = Speaker::new(answer, rules);
    if rules.max_tokens == Some(0) {
        let finish = speaker.last(FinishReason::Length.into());
        return speaker.said(finish);
    }
    loop {
        let before = speaker.tokens;
        let mut start = 0;
        for piece in answer.pieces().iter() {
            let end = start + piece.bytes as usize;
            let text = &answer.text[start..end];
            start = end;
            if let Some(finish) = speaker.cut(cut).or_else(|| speaker.piece(piece, text)) {
                return speaker.said(finish);
            }
        }
        let ended = match answer.end {
            Some(end) => speaker.cut(cut).or_else(|| speaker.end(end)),
            None => Some(speaker.last(FinishReason::Stop.into())),
        };
        if let Some(finish) = ended {
            return speaker.said(finish);
        }
        if speaker.tokens == before {
            let finish = speaker.last(FinishReason::Stop.into());
            return speaker.said(finish);
        }
    }
}

struct Speaker<'a> {
    rules: &'a Rules<'a>,
    /// Characters that are held back while a stop string may follow.
    held: usize,
    /// Tokens of steps that are held back whole.
    held_tokens: u32,
    text: String,
    ids: Vec<u32>,
    outputs: Vec<Output>,
    tokens: u64,
    fault: Option<CutKind>,
}

impl<'a> Speaker<'a> {
    fn new(answer: &Answer, rules: &'a Rules<'a>) -> Self {
        let longest = rules.stop.iter().map(|stop| stop.chars().count()).max();
        let held = match longest {
            Some(longest) if !rules.include_stop && rules.holds == Holds::Characters => {
                longest.saturating_sub(1)
            }
            _ => 0,
        };
        Self {
            rules,
            held,
            held_tokens: 0,
            text: String::with_capacity(answer.text.len()),
            ids: Vec::with_capacity(answer.pieces().count() + 1),
            outputs: Vec::with_capacity(answer.pieces().count() + 1),
            tokens: 0,
            fault: None,
        }
    }

    fn said(self, finish: Finish<'static>) -> Said {
        Said {
            text: self.text.into(),
            ids: self.ids,
            outputs: self.outputs,
            tokens: self.tokens,
            finish,
            fault: self.fault,
        }
    }

    /// The engine gives up here: a step without a token.
    fn cut(&mut self, cut: Option<Cut>) -> Option<Finish<'static>> {
        let cut = cut.filter(|cut| cut.after <= self.tokens)?;
        let finish = match cut.kind {
            CutKind::Abort => FinishReason::Abort.into(),
            CutKind::Repetition => Finish {
                reason: FinishReason::Repetition,
                stop_reason: Some(StopReason::Text("repetition_detected".into())),
            },
            CutKind::Dead | CutKind::Error | CutKind::GivenUp | CutKind::Raise => {
                self.fault = Some(cut.kind);
                FinishReason::Error.into()
            }
        };
        Some(self.last(finish))
    }

    /// Ends with a step that adds nothing.
    fn last(&mut self, finish: Finish<'static>) -> Finish<'static> {
        self.step(0, true);
        finish
    }

    /// One piece; gives the finish if it ends the answer.
    fn piece(&mut self, piece: Piece, text: &str) -> Option<Finish<'static>> {
        self.take(piece.tokens, piece.id);
        if let Some(id) = piece.id.filter(|id| self.rules.stop_token_ids.contains(id)) {
            if self.rules.include_stop {
                self.show(piece.id, text);
            }
            self.step(piece.tokens, true);
            return Some(Finish {
                reason: FinishReason::Stop,
                stop_reason: Some(StopReason::Token(id)),
            });
        }
        self.text_step(piece.tokens, piece.id, text)
    }

    /// The end token, which ends the answer unless a rule says otherwise.
    fn end(&mut self, end: End) -> Option<Finish<'static>> {
        if self.rules.ignore_eos && end.tokens > 0 {
            loop {
                self.take(end.tokens, end.id);
                let finish = self.text_step(end.tokens, end.id, "");
                if finish.is_some() || !self.rules.end_repeats {
                    return finish;
                }
            }
        }
        if self.tokens < self.rules.min_tokens && end.tokens > 0 {
            return None;
        }
        self.take(end.tokens, end.id);
        if self.rules.include_stop && self.rules.ends_tell_token {
            self.show(end.id, "");
        }
        self.step(end.tokens, true);
        Some(self.rules.finish(end))
    }

    fn take(&mut self, tokens: u32, id: Option<u32>) {
        self.tokens += u64::from(tokens);
        self.ids.extend(id.filter(|_| self.rules.keeps_ids));
    }

    fn show(&mut self, id: Option<u32>, text: &str) {
        self.text.push_str(text);
        if text.is_empty() && !self.rules.skip_special_tokens {
            let special = id.and_then(|id| self.rules.vocab.special(id));
            self.text.extend(special);
        }
    }

    fn text_step(&mut self, tokens: u32, id: Option<u32>, text: &str) -> Option<Finish<'static>> {
        let before = self.text.len();
        self.show(id, text);
        let finish = self.stopped(before).or_else(|| {
            let limit = self.rules.max_tokens?;
            (self.tokens >= limit).then(|| FinishReason::Length.into())
        });
        self.step(tokens, finish.is_some());
        finish
    }

    /// Looks for a stop string that the text from `before` on completes, and cuts the text there.
    fn stopped(&mut self, before: usize) -> Option<Finish<'static>> {
        let unchecked = self.rules.min_tokens > 0 && self.tokens <= self.rules.min_tokens;
        if unchecked || before == self.text.len() {
            return None;
        }
        for stop in self.rules.stop {
            let from = (before + 1).saturating_sub(stop.len());
            let from = self.text.floor_char_boundary(from);
            let Some(at) = self.text[from..].find(&**stop) else {
                continue;
            };
            let shown = if self.rules.include_stop {
                stop.len()
            } else {
                0
            };
            self.text.truncate(from + at + shown);
            return Some(Finish {
                reason: FinishReason::Stop,
                stop_reason: Some(StopReason::Text(stop.to_string().into())),
            });
        }
        let mut patterns = self.rules.stop_regex.iter();
        let pattern = patterns.find(|pattern| pattern.is_match(&self.text))?;
        Some(Finish {
            reason: FinishReason::Stop,
            stop_reason: Some(StopReason::Text(pattern.as_str().to_owned().into())),
        })
    }

    /// The text's end may begin a stop string, so that nothing is told yet.
    fn holds_step(&self) -> bool {
        let begins = |stop: &Cow<'_, str>| begun(&self.text, stop) > 0;
        self.rules.holds == Holds::Steps && self.rules.stop.iter().any(begins)
    }

    fn step(&mut self, tokens: u32, is_last: bool) {
        if !is_last && self.holds_step() {
            self.held_tokens += tokens;
            return;
        }
        let tokens = tokens + std::mem::take(&mut self.held_tokens);
        let shown = self.outputs.last().map_or(0, |output| output.text_end());
        let text_end = if is_last || self.held == 0 {
            self.text.len()
        } else {
            let mut ends = self.text.char_indices().rev();
            ends.nth(self.held - 1).map_or(0, |(end, _)| end)
        };
        self.outputs.push(Output {
            text_end: place(text_end.max(shown.min(self.text.len()))),
            ids_end: place(self.ids.len()),
            tokens,
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(text: &str) -> Answer {
        let end = End {
            id: Some(7),
            tokens: 1,
        };
        Answer::new(text.into(), &Vocab::Char, Some(end))
    }

    fn rules<'a>(stop: &'a [Cow<'a, str>]) -> Rules<'a> {
        Rules {
            ends_tell_token: false,
            eos_token_ids: &[7, 8],
            ignore_eos: false,
            end_repeats: false,
            holds: Holds::Characters,
            include_stop: false,
            keeps_ids: true,
            max_tokens: None,
            min_tokens: 0,
            skip_special_tokens: true,
            stop,
            stop_regex: &[],
            stop_token_ids: &[],
            vocab: &Vocab::Char,
        }
    }

    fn deltas(said: &Said) -> Vec<&str> {
        let mut start = 0;
        let delta = |output: &Output| {
            let delta = &said.text[start..output.text_end()];
            start = output.text_end();
            delta
        };
        said.outputs.iter().map(delta).collect()
    }

    #[test]
    fn text_before_a_stop_string_is_held_back() {
        let stop = ["cde".into()];
        let said = say(&answer("abcdef"), None, &rules(&stop));
        assert_eq!(deltas(&said), ["", "", "a", "b", ""]);
        assert_eq!(said.tokens, 5);
        assert_eq!(
            said.finish.stop_reason,
            Some(StopReason::Text("cde".into()))
        );
    }

    #[test]
    fn limits_and_ends_are_kept() {
        let limited = Rules {
            max_tokens: Some(2),
            ..rules(&[])
        };
        let said = say(&answer("abc"), None, &limited);
        assert_eq!(
            (deltas(&said), said.finish.reason),
            (vec!["a", "b"], FinishReason::Length)
        );

        let whole = say(&answer("abc"), None, &rules(&[]));
        assert_eq!((deltas(&whole), whole.tokens), (vec!["a", "b", "c", ""], 4));

        let ignoring = Rules {
            ignore_eos: true,
            max_tokens: Some(6),
            ..rules(&[])
        };
        assert_eq!(
            deltas(&say(&answer("ab"), None, &ignoring)),
            ["a", "b", "", "a", "b", ""]
        );

        let longer = Rules {
            min_tokens: 4,
            ..rules(&[])
        };
        assert_eq!(
            deltas(&say(&answer("ab"), None, &longer)),
            ["a", "b", "a", "b", ""]
        );
    }

    #[test]
    fn nothing_to_say_ends_even_if_the_end_is_ignored() {
        let end = End {
            id: None,
            tokens: 0,
        };
        let silent = Answer::new("".into(), &Vocab::Char, Some(end));
        let ignoring = Rules {
            ignore_eos: true,
            ..rules(&[])
        };
        assert_eq!(say(&silent, None, &ignoring).outputs.len(), 1);
    }

    #[test]
    fn groups_keep_text_and_tokens() {
        let grouping = Grouping {
            first: 1,
            every: 3,
            rhythm: &Rhythm::Single,
        };
        let said = say(&answer("abcdef"), None, &rules(&[])).grouped(&grouping);
        assert_eq!(deltas(&said), ["a", "bcd", "ef"]);
        assert_eq!(said.tokens, 7);
    }

    proptest! {
        #[test]
        fn an_answer_that_is_left_alone_is_what_the_rules_make_of_it(
            pieces in prop::collection::vec(("[ab]{0,3}", 0_u32..3, prop::option::of(5_u32..10)), 0..6),
            end in (prop::option::of(5_u32..10), 0_u32..2),
            limits in (0_u64..4, prop::option::of(0_u64..12)),
            flags in any::<(bool, bool, bool)>(),
        ) {
            let text: String = pieces.iter().map(|(text, ..)| &**text).collect();
            let piece = |(text, tokens, id): &(String, u32, Option<u32>)| Piece {
                bytes: u32::try_from(text.len()).unwrap(),
                tokens: *tokens,
                id: *id,
            };
            let end = End { id: end.0, tokens: end.1 };
            let pieces = pieces.iter().map(piece).collect();
            let answer = Answer::of_pieces(text.into(), pieces, Some(end));
            let rules = Rules {
                ignore_eos: flags.0 && limits.1.is_some(),
                keeps_ids: flags.2,
                max_tokens: limits.1,
                min_tokens: limits.0.min(limits.1.unwrap_or(0)),
                skip_special_tokens: flags.1,
                ..rules(&[])
            };
            if let Some(plain) = rules.untouched(&answer) {
                prop_assert_eq!(plain.said(&answer, &rules), by_rules(&answer, None, &rules));
            }
        }

        #[test]
        fn deltas_add_up_to_the_text_before_the_first_stop(
            text in "[abc]{0,30}",
            stop in prop::collection::vec("[abc]{1,4}", 0..3),
            every in 1_u32..5,
        ) {
            let stops: Vec<Cow<'_, str>> = stop.iter().map(|stop| stop.as_str().into()).collect();
            let said = say(&answer(&text), None, &rules(&stops)).grouped(&Grouping { first: every, every, rhythm: &Rhythm::Single });
            prop_assert_eq!(deltas(&said).concat(), &*said.text);
            prop_assert!(text.starts_with(&*said.text));
            let whole = stop.iter().all(|stop| !text.contains(stop.as_str()));
            prop_assert_eq!(*said.text == *text, whole || *said.text == *text);
            if whole {
                prop_assert_eq!(&*said.text, &*text);
            } else {
                prop_assert!(stop.iter().all(|stop| !said.text.contains(stop.as_str())));
            }
        }
    }
}
