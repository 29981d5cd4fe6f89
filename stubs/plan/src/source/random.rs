//! Says seeded tokens.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use vocab::Tokenizer;

use crate::script::{Answer, End, Piece, Script};
use crate::source::{Ask, Source};

/// Tokens to say when neither the request nor the server limits them.
const DEFAULT_TOKENS: u64 = 128;

/// Random plain tokens of the vocabulary, the same for the same seed and prompt.
#[derive(Debug)]
pub struct RandomTokens {
    /// Every token's text, and the tokens.
    choices: Vec<(String, u32)>,
    end: End,
    seed: u64,
}

impl RandomTokens {
    /// A source that draws from a tokenizer's plain tokens.
    pub fn new(tokenizer: &Tokenizer, seed: u64) -> Self {
        Self {
            choices: tokenizer.vocab.plain(),
            end: End::of(tokenizer),
            seed,
        }
    }
}

impl Source for RandomTokens {
    fn script(&self, ask: &Ask<'_>) -> Arc<Script> {
        let mut hasher = DefaultHasher::new();
        (self.seed, ask.text).hash(&mut hasher);
        let mut random = fastrand::Rng::with_seed(hasher.finish());
        let mut text = String::new();
        let mut pieces = Vec::new();
        for _ in 0..ask.max_tokens.unwrap_or(DEFAULT_TOKENS) {
            let (piece, id) = &self.choices[random.usize(..self.choices.len())];
            text.push_str(piece);
            pieces.push(Piece {
                bytes: u32::try_from(piece.len()).expect("tokens are short"),
                tokens: 1,
                id: Some(*id),
            });
        }
        let answer = Answer::of_pieces(text.into(), pieces, Some(self.end));
        Arc::new(answer.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_prompt_draws_the_same_tokens() {
        let tokenizer = Tokenizer::named("char").unwrap();
        let source = |seed| RandomTokens::new(&tokenizer, seed);
        let said = |source: &RandomTokens, text| {
            let max_tokens = Some(40);
            let script = source.script(&Ask { text, max_tokens });
            script.choices[0].text.to_string()
        };
        assert_eq!(said(&source(1), "a"), said(&source(1), "a"));
        assert_ne!(said(&source(1), "a"), said(&source(1), "b"));
        assert_ne!(said(&source(1), "a"), said(&source(2), "a"));
        assert_eq!(said(&source(1), "a").chars().count(), 40);
    }
}
