//! Tokens as stretches of the text that they add up to, special tokens' texts included.

use std::ops::Range;

use vocab::{Tokenizer, Vocab};
use wire::finish::StopReason;

use super::{Basis, Cause, Choice, Flavour, Tokens};

/// The text of all tokens, and where each is in it.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    pub(super) text: String,
    /// Where each token begins; a token that completes no character begins where the next one does.
    pub(super) starts: Vec<usize>,
    /// Tokens that text leaves out, by their number.
    pub(super) special: Vec<(usize, Cause)>,
    /// Tokens without text that are parts of characters, by their number.
    pub(super) partial: Vec<usize>,
    pub(super) basis: Basis,
}

impl Pieces {
    /// Those of a choice; none if the server does not tell, or the tokenizer cannot decode.
    pub(super) fn new(choice: &Choice, tokenizer: &Tokenizer, flavour: &Flavour) -> Option<Self> {
        match &choice.tokens {
            Tokens::Ids(ids) => Self::of_ids(ids, choice, (tokenizer, flavour)),
            Tokens::Texts(texts) => match placeholders(texts) {
                Some(ids) => Self::of_ids(&ids, choice, (tokenizer, flavour)),
                None => Some(Self::of_texts(texts, choice, tokenizer)),
            },
            Tokens::Unknown => None,
        }
    }

    fn of_ids(ids: &[u32], choice: &Choice, how: (&Tokenizer, &Flavour)) -> Option<Self> {
        let (tokenizer, flavour) = how;
        let vocab = &tokenizer.vocab;
        let deltas = match vocab {
            Vocab::Byte => whole_characters(ids, vocab),
            Vocab::Word => return None,
            Vocab::Char | Vocab::Huggingface(_) => deltas(ids, choice, vocab, flavour),
        };
        let mut pieces = Self::laid(deltas, Basis::TokenIds);
        let last = ids.len().checked_sub(1);
        let stop = match choice.stop {
            Some(StopReason::Token(id)) => Some(id),
            _ => None,
        };
        for (number, &id) in ids.iter().enumerate() {
            let ends = ends(tokenizer.eos_token_ids.contains(&id), stop == Some(id));
            let ends = ends.filter(|_| Some(number) == last);
            let is_silent = pieces.range(number).is_empty();
            let is_special = vocab.special(id).is_some() || is_silent && vocab.bytes(id).is_empty();
            if let Some(cause) = ends {
                pieces.special.push((number, cause));
            } else if is_special {
                pieces.special.push((number, Cause::SpecialTokens));
            } else if is_silent {
                pieces.partial.push(number);
            }
        }
        Some(pieces)
    }

    fn of_texts(texts: &[String], choice: &Choice, tokenizer: &Tokenizer) -> Self {
        let mut pieces = Self::laid(texts.to_vec(), Basis::Logprobs);
        let last = texts.len().checked_sub(1);
        for (number, text) in texts.iter().enumerate() {
            let id = tokenizer.vocab.added(text);
            let special = id.filter(|&id| tokenizer.vocab.special(id).is_some());
            let is_stop = match choice.stop {
                Some(StopReason::Token(stop)) => {
                    tokenizer.vocab.spellings(&[stop]).first() == Some(text)
                        || tokenizer.vocab.decode(&[stop]) == *text
                }
                _ => false,
            };
            let is_end = id.is_some_and(|id| tokenizer.eos_token_ids.contains(&id));
            let ends = ends(is_end, is_stop).filter(|_| Some(number) == last);
            if let Some(cause) = ends {
                pieces.special.push((number, cause));
            } else if special.is_some() {
                pieces.special.push((number, Cause::SpecialTokens));
            } else if text.is_empty() {
                pieces.partial.push(number);
            }
        }
        pieces
    }

    /// Those that a vocabulary cuts a text into.
    pub(super) fn of_text(text: &str, vocab: &Vocab) -> Self {
        let mut at = 0;
        let start = |token: vocab::Token| {
            let start = at;
            at += token.bytes as usize;
            start
        };
        Self {
            text: text.into(),
            starts: vocab.tokens(text).into_iter().map(start).collect(),
            special: Vec::new(),
            partial: Vec::new(),
            basis: Basis::Inferred,
        }
    }

    fn laid(texts: Vec<String>, basis: Basis) -> Self {
        let mut text = String::new();
        let mut starts = Vec::with_capacity(texts.len());
        for piece in texts {
            starts.push(text.len());
            text.push_str(&piece);
        }
        Self {
            text,
            starts,
            special: Vec::new(),
            partial: Vec::new(),
            basis,
        }
    }

    /// Where a token is in the text.
    pub(super) fn range(&self, number: usize) -> Range<usize> {
        let end = self.starts.get(number + 1).copied();
        self.starts[number]..end.unwrap_or(self.text.len())
    }
}

/// Why the last token is not text.
fn ends(is_end: bool, is_stop: bool) -> Option<Cause> {
    let stop = is_stop.then_some(Cause::StopToken);
    is_end.then_some(Cause::EndToken).or(stop)
}

/// The ids of `token_id:N`, as vLLM names tokens with `return_tokens_as_token_ids`.
fn placeholders(texts: &[String]) -> Option<Vec<u32>> {
    let id = |text: &String| text.strip_prefix("token_id:")?.parse().ok();
    let ids: Option<Vec<u32>> = texts.iter().map(id).collect();
    ids.filter(|ids| !ids.is_empty())
}

/// What each id adds to the text, with the texts of special tokens that the client saw or that are
/// marks. All others are none of the text: a character may go on behind them.
fn deltas(ids: &[u32], choice: &Choice, vocab: &Vocab, flavour: &Flavour) -> Vec<String> {
    let is_silent = |id: &u32| {
        vocab.special(*id).is_some_and(|text| {
            let told = [&choice.content, &choice.reasoning];
            !flavour.marks().any(|mark| mark == text)
                && !told.iter().any(|told| told.contains(&text))
        })
    };
    let silent: Vec<bool> = ids.iter().map(is_silent).collect();
    let heard = ids.iter().zip(&silent).filter(|(_, silent)| !**silent);
    let heard: Vec<u32> = heard.map(|(&id, _)| id).collect();
    let mut heard = vocab.deltas_with_special(&heard).into_iter();
    let delta = |silent| if silent { None } else { heard.next() };
    let deltas = silent.into_iter().map(delta);
    deltas.map(Option::unwrap_or_default).collect()
}

/// What each byte adds: a character with its last byte.
fn whole_characters(ids: &[u32], vocab: &Vocab) -> Vec<String> {
    let mut deltas = vec![String::new(); ids.len()];
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| vocab.bytes(id)).collect();
    if bytes.len() != ids.len() {
        return vocab.deltas(ids);
    }
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            at += character.len_utf8();
            deltas[at - 1].push(character);
        }
        at += chunk.invalid().len();
        if !chunk.invalid().is_empty() && at < ids.len() {
            deltas[at - 1].push(char::REPLACEMENT_CHARACTER);
        }
    }
    deltas
}
