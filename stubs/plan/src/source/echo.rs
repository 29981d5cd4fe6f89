//! Says again what it was told, byte for byte.

use std::sync::Arc;

use vocab::Tokenizer;

use crate::script::{Answer, End, Script};
use crate::source::{Ask, Source};

/// The prompt's own text, a piece for each of its tokens; the end counts as no token.
#[derive(Debug)]
pub struct Echo {
    /// Cuts the text.
    pub tokenizer: Arc<Tokenizer>,
}

impl Source for Echo {
    fn script(&self, ask: &Ask<'_>) -> Arc<Script> {
        let tokens = self.tokenizer.vocab.tokens(ask.text);
        let mut answer = Answer::from((ask.text.into(), tokens));
        answer.end = Some(End {
            id: None,
            tokens: 0,
        });
        Arc::new(answer.into())
    }
}
