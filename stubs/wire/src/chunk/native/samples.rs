//! What a native answer says, put together from frames that carry all of it or only what is new.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Frame, Known, count_ids};
use crate::chunk::{DecodeError, Gist, Reader};
use crate::usage::Usage;

/// One native answer: its samples as far as they have been read.
///
/// Whether a frame has the whole or what is new is told for each sample apart. Its ids are the whole if
/// there are as many as `completion_tokens` says, and new if they are together with those before; where
/// neither is so, the ids are the whole as long as they begin with those before. The text is what
/// the ids are. A frame without ids has the whole text until one does not begin with the text
/// before. [`Self::settle`] tells of answers that turn out to be otherwise.
#[derive(Debug, Default)]
pub struct Samples {
    /// The memory of those behind the used ones is used again.
    all: Vec<Sample>,
    used: usize,
    /// The one that the last frame was of.
    last: usize,
    abort: Option<String>,
}

#[derive(Debug, Default)]
struct Sample {
    index: u32,
    /// All ids so far, as the server writes them, and their number.
    ids: Vec<u8>,
    n_ids: u64,
    has_ids: bool,
    /// Frames have new ids, once that is known.
    ids_are_new: Option<bool>,
    /// The last text, as it is written.
    text: Vec<u8>,
    /// Frames have new text; none before the first text.
    text_is_new: Option<bool>,
    /// How often a text was the one before with something behind it; none once one began otherwise.
    growths: Option<u32>,
    /// The whole text did not begin with the one before.
    is_rewritten: bool,
    stop_token: Option<u32>,
    usage: Option<Usage>,
}

/// What an answer says if that is not what its frames had added up to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settled {
    /// In UTF-8.
    pub text: Vec<u8>,
    /// Each frame had the whole text, taken for what was new.
    pub was_whole: bool,
}

/// As many texts that grow one from the other are no coincidence.
const MIN_GROWTHS: u32 = 3;

impl Samples {
    /// Forgets the last answer.
    pub fn clear(&mut self) {
        (self.used, self.last) = (0, 0);
        self.abort = None;
    }

    /// Reads a frame, or a whole answer, and tells what it adds; its usage is that of all samples.
    pub fn read<'a>(
        &mut self,
        json: &'a [u8],
        frames: &mut Reader,
    ) -> Result<Gist<'a>, DecodeError> {
        if !json.trim_ascii_start().starts_with(b"[") {
            let frame = frames.frame(json, self.known())?;
            return self.take(frame, 0);
        }
        let all: Vec<&RawValue> = serde_json::from_slice(json)?;
        let mut content = Vec::new();
        let mut gist = Gist::default();
        for (index, one) in (0..).zip(all) {
            let frame = frames.frame(one.get().as_bytes(), Known::default())?;
            gist = self.take(frame, index)?;
            if gist.error.is_some() {
                return Ok(gist);
            }
            content.extend_from_slice(&gist.content);
        }
        gist.content = content.into();
        Ok(gist)
    }

    /// Reads a frame that is like an earlier one and has no line end, as [`Reader::read_known_line`] does.
    pub fn read_known_line<'a>(
        &mut self,
        json: &'a [u8],
        frames: &mut Reader,
    ) -> Option<Result<Gist<'a>, DecodeError>> {
        let frame = frames.known_frame(json, self.known())?;
        Some(self.take(frame, 0))
    }

    /// Why the server gave up on a sample, if it did.
    pub fn abort(&self) -> Option<&str> {
        self.abort.as_deref()
    }

    /// How many ids were returned; none where a sample has none.
    pub fn n_ids(&self) -> Option<u64> {
        let all = &self.all[..self.used];
        let count = |sample: &Sample| sample.has_ids.then_some(sample.n_ids);
        all.iter()
            .map(count)
            .sum::<Option<u64>>()
            .filter(|_| !all.is_empty())
    }

    /// The ids of the only sample, the token that stopped it left out; none if it came without text.
    pub fn said_ids(&self) -> Option<Vec<u32>> {
        let sample = self.only()?;
        let sample =
            Some(sample).filter(|sample| sample.has_ids && sample.text_is_new.is_some())?;
        let ids = str::from_utf8(&sample.ids).ok()?;
        let ids = ids.split(',').filter(|id| !id.is_empty());
        let ids: Result<Vec<u32>, _> = ids.map(str::parse).collect();
        let mut ids = ids.ok()?;
        ids.pop_if(|last| Some(*last) == sample.stop_token);
        Some(ids)
    }

    /// The text of the only sample at its end, if its frames were not what they were taken for.
    ///
    /// Older servers return new ids with the whole text. Where each text begins with the one before,
    /// and some are longer, they were no parts of one.
    pub fn settle(&self) -> Option<Settled> {
        let sample = self.only()?;
        let grew = sample.growths.is_some_and(|growths| growths >= MIN_GROWTHS);
        let was_whole = sample.text_is_new == Some(true) && grew;
        let text = (was_whole || sample.is_rewritten).then(|| unescape(&sample.text));
        let text = text?.ok()?.into_owned();
        Some(Settled { text, was_whole })
    }

    fn only(&self) -> Option<&Sample> {
        self.all.first().filter(|_| self.used == 1)
    }

    fn known(&self) -> Known<'_> {
        let last = self.all[..self.used].get(self.last);
        last.map_or_else(Known::default, |sample| Known {
            ids: &sample.ids,
            text: &sample.text,
        })
    }

    fn take<'a>(&mut self, frame: Frame<'a>, position: u32) -> Result<Gist<'a>, DecodeError> {
        if frame.error.is_some() {
            return Ok(Gist {
                error: frame.error,
                ..Gist::default()
            });
        }
        if let Some(reason) = frame.abort.as_deref() {
            self.abort.get_or_insert_with(|| reason.into());
        }
        let content = self.sample(frame.index.unwrap_or(position)).take(&frame)?;
        let usage = frame.usage.and_then(|_| self.usage());
        Ok(Gist {
            content,
            usage,
            ..Gist::default()
        })
    }

    fn sample(&mut self, index: u32) -> &mut Sample {
        let used = &self.all[..self.used];
        let is_last = used.get(self.last).is_some_and(|last| last.index == index);
        if !is_last {
            let found = used.iter().position(|sample| sample.index == index);
            self.last = found.unwrap_or(self.used);
        }
        if self.last == self.used {
            self.used += 1;
            match self.all.get_mut(self.last) {
                Some(sample) => sample.begin(index),
                None => self.all.push(Sample::new(index)),
            }
        }
        &mut self.all[self.last]
    }

    /// The prompt's counts once, and the samples' together; a count that one lacks is none.
    fn usage(&self) -> Option<Usage> {
        let (first, others) = self.all[..self.used].split_first()?;
        let mut usage = first.usage?;
        for other in others {
            let other = other.usage.unwrap_or_default();
            let add = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
            usage.completion_tokens = add(usage.completion_tokens, other.completion_tokens);
            usage.reasoning_tokens = add(usage.reasoning_tokens, other.reasoning_tokens);
        }
        Some(usage)
    }
}

impl Sample {
    fn new(index: u32) -> Self {
        let mut sample = Self::default();
        sample.begin(index);
        sample
    }

    fn begin(&mut self, index: u32) {
        let Self { ids, text, .. } = std::mem::take(self);
        *self = Self {
            ids,
            index,
            growths: Some(0),
            text,
            ..Self::default()
        };
        self.ids.clear();
        self.text.clear();
    }

    /// Takes a frame and tells what it adds to the text.
    fn take<'a>(&mut self, frame: &Frame<'a>) -> Result<Cow<'a, [u8]>, DecodeError> {
        if frame.usage.is_some() {
            self.usage = frame.usage;
        }
        self.stop_token = frame.stop_token.or(self.stop_token);
        let ids_are_new = frame.ids.as_deref().and_then(|ids| self.take_ids(ids));
        let Some(text) = frame.text else {
            return Ok(Cow::default());
        };
        let is_new = ids_are_new
            .unwrap_or_else(|| self.text_is_new == Some(true) || !text.starts_with(&self.text));
        self.text_is_new = Some(is_new);
        self.take_text(text)
    }

    /// Takes the ids of a frame and tells whether they are new; both is true of the first.
    fn take_ids(&mut self, ids: &[u8]) -> Option<bool> {
        let seen = self.n_ids;
        let behind = ids.strip_prefix(&*self.ids);
        let behind = behind.filter(|behind| seen == 0 || matches!(behind, [] | [b',', ..]));
        let count = match behind {
            Some(behind) if seen > 0 => seen + count_ids(behind).saturating_sub(1),
            _ => count_ids(ids),
        };
        self.has_ids = true;
        if seen > 0 && self.ids_are_new.is_none() {
            let completion = self.usage.and_then(|usage| usage.completion_tokens);
            self.ids_are_new = match completion {
                Some(all) if all == count => Some(false),
                Some(all) if all == seen + count => Some(true),
                _ => behind.is_none().then_some(true),
            };
        }
        let are_new = seen > 0 && self.ids_are_new.unwrap_or(false);
        match behind {
            _ if are_new => {
                if !ids.is_empty() {
                    self.ids.push(b',');
                }
                self.ids.extend_from_slice(ids);
                self.n_ids += count;
            }
            Some(behind) => {
                self.ids.extend_from_slice(behind);
                self.n_ids = count;
            }
            None => {
                self.ids.clear();
                self.ids.extend_from_slice(ids);
                self.n_ids = count;
            }
        }
        (seen > 0).then_some(are_new)
    }

    fn take_text<'a>(&mut self, text: &'a [u8]) -> Result<Cow<'a, [u8]>, DecodeError> {
        let behind = text.strip_prefix(&*self.text);
        let is_longer = !self.text.is_empty() && text.len() > self.text.len();
        let growths = self.growths.filter(|_| behind.is_some());
        self.growths = growths.map(|growths| growths + u32::from(is_longer));
        let said = match behind {
            _ if self.text_is_new == Some(true) => text,
            Some(behind) => behind,
            None => {
                self.is_rewritten = true;
                b""
            }
        };
        if behind.is_none() {
            self.text.clear();
        }
        self.text.extend_from_slice(behind.unwrap_or(text));
        unescape(said)
    }
}

/// The text that a string means, without its quotes.
fn unescape(string: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    if memchr::memchr(b'\\', string).is_none() {
        return Ok(string.into());
    }
    let mut quoted = Vec::with_capacity(string.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(string);
    quoted.push(b'"');
    let text: String = serde_json::from_slice(&quoted)?;
    Ok(text.into_bytes().into())
}
