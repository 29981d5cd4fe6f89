//! The logits of SGLang's dummy model, of which every weight matrix holds the same random numbers.
//!
//! The recorded server ran a one-layer Qwen2 with `--load-format dummy`: each parameter is filled anew from
//! a generator of seed 1234, uniformly between -0.001 and 0.001. What the layer adds is too little to
//! show, so the logits after a token follow from its embedding, the norm and the output matrix alone.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the server computes in 32-bit floats"
)]

use std::sync::LazyLock;

/// Numbers of an embedding.
const HIDDEN: usize = 64;
/// Most ids that are told apart; others are taken modulo their number.
const MAX_IDS: usize = 1024;

static WEIGHTS: LazyLock<Vec<f32>> = LazyLock::new(|| weights(1234, MAX_IDS * HIDDEN));

/// The ids among which probability is shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    /// How many there are.
    pub(super) count: usize,
}

/// The numbers of each id at one place.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// Of which higher is likelier, also where logarithms are rounded to the same.
    pub(super) logits: Vec<f32>,
    /// Logarithms of probabilities.
    pub(super) logprobs: Vec<f32>,
}

impl Ids {
    pub(super) fn of(vocab: &vocab::Vocab) -> Self {
        Self {
            count: vocab.size().clamp(1, MAX_IDS),
        }
    }

    /// An id's place.
    pub(super) fn index(self, id: u32) -> usize {
        id as usize % self.count
    }
}

/// What follows a token.
pub(super) fn after(id: u32, ids: Ids) -> Row {
    let logits = logits(embedding(ids.index(id)), ids);
    let most = logits.iter().copied().fold(f32::MIN, f32::max);
    let exp = |logit: &f32| f64::from(f64::from(logit - most).exp() as f32);
    let sum = logits.iter().map(exp).sum::<f64>().ln() as f32;
    let logprobs = logits.iter().map(|logit| logit - most - sum).collect();
    Row { logits, logprobs }
}

fn embedding(index: usize) -> &'static [f32] {
    &WEIGHTS[index * HIDDEN..(index + 1) * HIDDEN]
}

fn logits(token: &[f32], ids: Ids) -> Vec<f32> {
    let squares = token.iter().map(|x| f64::from(*x).powi(2));
    let scale = 1.0 / (squares.sum::<f64>() / HIDDEN as f64 + 1e-6).sqrt();
    let norm = token.iter().zip(embedding(0));
    let normed = norm.map(|(x, weight)| (f64::from(*x) * scale) as f32 * weight);
    let normed: Vec<f64> = normed.map(f64::from).collect();
    let logit = |index| {
        let weights = embedding(index).iter().map(|weight| f64::from(*weight));
        weights
            .zip(&normed)
            .map(|(weight, x)| weight * x)
            .sum::<f64>() as f32
    };
    (0..ids.count).map(logit).collect()
}

/// What a Mersenne Twister of a seed draws, as `PyTorch` turns it into numbers.
fn weights(seed: u32, count: usize) -> Vec<f32> {
    let mut state = vec![seed];
    let mut last = seed;
    for index in 1..STATE {
        let mixed = (last ^ last >> 30).wrapping_mul(1_812_433_253);
        last = mixed.wrapping_add(index as u32);
        state.push(last);
    }
    let mut drawn = Vec::with_capacity(count + STATE);
    while drawn.len() < count {
        twist(&mut state);
        drawn.extend(state.iter().map(|word| number(*word)));
    }
    drawn.truncate(count);
    drawn
}

/// Words of a Mersenne Twister.
const STATE: usize = 624;

fn twist(state: &mut [u32]) {
    for index in 0..STATE {
        let joined = state[index] & 0x8000_0000 | state[(index + 1) % STATE] & 0x7fff_ffff;
        let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
        state[index] = state[(index + 397) % STATE] ^ joined >> 1 ^ odd;
    }
}

fn number(mut word: u32) -> f32 {
    word ^= word >> 11;
    word ^= word << 7 & 0x9d2c_5680;
    word ^= word << 15 & 0xefc6_0000;
    word ^= word >> 18;
    let unit = f64::from(word & 0x00ff_ffff) / f64::from(1 << 24);
    (unit * 2e-3 - 1e-3) as f32
}
