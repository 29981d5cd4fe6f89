//! Probabilities by rule, as the recordings' scripted engines gave them.

mod dummy;
mod likeliest;
pub(crate) mod sglang;
mod vllm;

use vocab::Vocab;
use wire::chunk::TokenLogprob;
use wire::request::NativeLogprobs;

use sglang::Place;

/// How tokens are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Named `token_id:N` rather than by their text.
    pub(crate) as_ids: bool,
    /// Where probabilities come from.
    pub(crate) rule: Rule,
    /// Likeliest tokens to list.
    pub(crate) top: usize,
}

/// Whose engine it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rule {
    /// SGLang's.
    Sglang {
        /// A token that is part of a character is named by its bytes, read as Latin-1.
        latin: bool,
    },
    /// vLLM's.
    Vllm,
}

/// Logprobs of an answer's tokens; `offset` characters of text stand before them.
pub(crate) fn of_answer(
    vocab: &Vocab,
    ids: &[u32],
    style: Style,
    offset: usize,
) -> Vec<TokenLogprob> {
    match style.rule {
        Rule::Sglang { latin } => sglang::listed(vocab, ids, Place::Answer, style.top, latin),
        Rule::Vllm => vllm::listed(vocab, ids, style, offset, |index| index + 1),
    }
}

/// Logprobs of a prompt's tokens; the first has none.
pub(crate) fn of_prompt(vocab: &Vocab, ids: &[u32], style: Style) -> Vec<TokenLogprob> {
    let mut tokens = match style.rule {
        Rule::Sglang { latin } => sglang::listed(vocab, ids, Place::Prompt, style.top, latin),
        // The second token is number 0.
        Rule::Vllm => vllm::listed(vocab, ids, style, 0, |index| index.saturating_sub(1)),
    };
    if let Some(first) = tokens.first_mut() {
        first.logprob = None;
    }
    tokens
}

/// Adds to each token of an answer the probabilities of the ids that a request names.
pub(crate) fn name_asked(
    vocab: &Vocab,
    asked: &NativeLogprobs,
    ids: &[u32],
    tokens: &mut [TokenLogprob],
) {
    name(vocab, &asked.token_ids, Place::Answer, ids, tokens);
}

/// The same for the tokens of a prompt.
pub(crate) fn name_asked_of_prompt(
    vocab: &Vocab,
    asked: &NativeLogprobs,
    ids: &[u32],
    tokens: &mut [TokenLogprob],
) {
    name(vocab, &asked.token_ids, Place::Prompt, ids, tokens);
}

fn name(vocab: &Vocab, wanted: &[u32], place: Place, ids: &[u32], tokens: &mut [TokenLogprob]) {
    if wanted.is_empty() {
        return;
    }
    let lists = sglang::of_ids(vocab, ids, place, wanted);
    for (token, list) in tokens.iter_mut().zip(lists) {
        token.asked = list.unwrap_or_default();
    }
}
