//! The rule of vLLM's recordings.
//!
//! A token `id` that is number `step` of its answer, counted from 1, has the logarithm
//! `-0.05 - 0.37 * ((step * 7919 + id) mod 11) / 11`, and its alternatives fall off from there, all in
//! 32-bit floats.

use vocab::Vocab;
use wire::chunk::{TokenLogprob, TopLogprob};

use super::Style;

/// Ids that alternatives are taken from.
const VOCABULARY: u32 = 4096;

pub(super) fn listed(
    vocab: &Vocab,
    ids: &[u32],
    style: Style,
    mut offset: usize,
    step: fn(usize) -> usize,
) -> Vec<TokenLogprob> {
    let texts = vocab.deltas_with_special(ids);
    let token = |((index, &id), text): ((usize, &u32), String)| {
        let entry = entry(vocab, id, step(index), &text, style, offset);
        offset += entry.token.chars().count();
        entry
    };
    ids.iter().enumerate().zip(texts).map(token).collect()
}

fn entry(
    vocab: &Vocab,
    id: u32,
    step: usize,
    text: &str,
    style: Style,
    text_offset: usize,
) -> TokenLogprob {
    let base = base(id, step);
    let name = |id: u32, text: String| {
        if style.as_ids {
            format!("token_id:{id}")
        } else {
            text
        }
    };
    let top = |number: u32| {
        let (id, logprob, text) = match number {
            0 => (id, base, text.to_owned()),
            number => {
                let other = (id % VOCABULARY + 17 * (number % VOCABULARY)) % VOCABULARY;
                let text = vocab.deltas_with_special(&[other]).concat();
                (other, alternative(base, number), text)
            }
        };
        let token = name(id, text);
        TopLogprob {
            bytes: token.clone().into_bytes(),
            id,
            logprob,
            token,
        }
    };
    TokenLogprob {
        asked: Vec::new(),
        bytes: text.as_bytes().to_vec(),
        id,
        logprob: Some(base),
        text_offset,
        top: (0..u32::try_from(style.top).unwrap_or(0))
            .map(top)
            .collect(),
        token: name(id, text.to_owned()),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the rule's own arithmetic"
)]
fn base(id: u32, step: usize) -> f32 {
    let remainder = (step as u64 * 7919 + u64::from(id)) % 11;
    (-0.05 - 0.37 * remainder as f64 / 11.0) as f32
}

#[expect(clippy::cast_precision_loss, reason = "a small number")]
fn alternative(base: f32, number: u32) -> f32 {
    base - 1.3_f32 * number as f32 - 0.0625_f32
}
