//! A `tokenizer.json`, read by the `tokenizers` crate.

use std::collections::HashMap;

use tokenizers::pipeline::{EncodeOptions, PipelineTokenizer};

use crate::{Token, TokenizerError, token};

/// A Hugging Face tokenizer with what is asked of its added tokens.
#[derive(Debug)]
pub struct Huggingface {
    tokenizer: Pipeline,
    added: HashMap<String, u32>,
    special: HashMap<u32, String>,
}

/// Hides the tables from debug output.
struct Pipeline(PipelineTokenizer);

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PipelineTokenizer")
    }
}

#[derive(serde::Deserialize)]
struct AddedTokens {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(serde::Deserialize)]
struct AddedToken {
    content: String,
    id: u32,
    #[serde(default)]
    special: bool,
}

impl Huggingface {
    pub(crate) fn from_json(json: &str) -> Result<Self, TokenizerError> {
        let AddedTokens { added_tokens } = serde_json::from_str(json)?;
        let unusable = |reason: String| TokenizerError::Unusable(reason);
        let canonical =
            tokenizers::canonicalize_str(json).map_err(|error| unusable(error.to_string()))?;
        let tokenizer =
            tokenizers::from_json(&canonical).map_err(|error| unusable(error.to_string()))?;
        let special = added_tokens.iter().filter(|added| added.special);
        Ok(Self {
            tokenizer: Pipeline(tokenizer),
            special: special
                .map(|added| (added.id, added.content.clone()))
                .collect(),
            added: added_tokens
                .into_iter()
                .map(|added| (added.content, added.id))
                .collect(),
        })
    }

    pub(crate) fn encode(&self, text: &str, add_special_tokens: bool) -> Vec<u32> {
        let mut options = EncodeOptions::no_specials();
        options.add_special_tokens = add_special_tokens;
        let mut ids = Vec::with_capacity(text.len() / 3);
        let encoded = self.tokenizer.0.encode_into(text, &options, &mut ids);
        encoded.expect("text of a loaded tokenizer encodes");
        ids.into_iter().map(u32::from).collect()
    }

    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        self.tokenizer.0.decode(ids, true).unwrap_or_default()
    }

    pub(crate) fn deltas(&self, ids: &[u32], skip_special_tokens: bool) -> Vec<String> {
        let mut stream = self.tokenizer.0.decode_stream(skip_special_tokens);
        ids.iter()
            .map(|&id| stream.step(id).ok().flatten().unwrap_or_default())
            .collect()
    }

    pub(crate) fn spellings(&self, ids: &[u32]) -> Vec<String> {
        self.tokenizer.0.decode_tokens(ids, false)
    }

    pub(crate) fn special(&self, id: u32) -> Option<String> {
        self.special.get(&id).cloned()
    }

    pub(crate) fn added(&self, text: &str) -> Option<u32> {
        self.added.get(text).copied()
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.added.values().any(|&added| added == id)
            || self.tokenizer.0.get_model().id_to_token(id).is_some()
    }

    pub(crate) fn plain(&self) -> Vec<(String, u32)> {
        let model = self.tokenizer.0.get_model();
        let ids = (0..u32::MAX).take_while(|&id| model.id_to_token(id).is_some());
        let text = |id| {
            let text = self.decode(&[id]);
            let readable = !text.is_empty()
                && !self.added.values().any(|&added| added == id)
                && text
                    .chars()
                    .all(|character| !character.is_control() && character != '\u{fffd}');
            readable.then_some((text, id))
        };
        let plain: Vec<_> = ids.filter_map(text).collect();
        if plain.is_empty() {
            vec![(String::new(), 0)]
        } else {
            plain
        }
    }

    /// Tokens whose texts add up to `text`, also where normalisation changed it: then each token
    /// gets as many characters of the original as it has in the normalised text.
    pub(crate) fn tokens(&self, text: &str) -> Vec<Token> {
        let ids = self.encode(text, false);
        let deltas = self.deltas(&ids, false);
        if deltas.concat() == text {
            let pairs = ids.iter().zip(&deltas);
            return pairs.map(|(&id, delta)| token(id, delta.len())).collect();
        }
        let mut rest = text;
        let last = ids.len().saturating_sub(1);
        let cut = |(index, (&id, delta)): (usize, (&u32, &String))| {
            let wanted = delta.chars().count();
            let end = rest
                .char_indices()
                .nth(wanted)
                .map_or(rest.len(), |(end, _)| end);
            let bytes = if index == last { rest.len() } else { end };
            rest = &rest[bytes..];
            token(id, bytes)
        };
        ids.iter().zip(&deltas).enumerate().map(cut).collect()
    }
}
