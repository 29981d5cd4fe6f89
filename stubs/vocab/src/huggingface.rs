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

    /// The first id beyond all tokens; those of the model have no gaps.
    pub(crate) fn size(&self) -> usize {
        let model = self.tokenizer.0.get_model();
        let (mut known, mut unknown) = (0_u32, 1 << 31);
        while known < unknown {
            let middle = known.midpoint(unknown);
            if model.id_to_token(middle).is_some() {
                known = middle + 1;
            } else {
                unknown = middle;
            }
        }
        let added = self.added.values().map(|id| id + 1).max();
        added.unwrap_or(0).max(known) as usize
    }

    /// The bytes of a token, also of one that is no whole text, where bytes are spelt as GPT-2 does.
    pub(crate) fn bytes(&self, id: u32) -> Vec<u8> {
        let text = self.tokenizer.0.decode(&[id], false).unwrap_or_default();
        if !text.contains(char::REPLACEMENT_CHARACTER) {
            return text.into_bytes();
        }
        let spelt = self.spellings(&[id]).concat();
        let bytes: Option<Vec<u8>> = spelt.chars().map(spelt_byte).collect();
        bytes.unwrap_or_else(|| text.into_bytes())
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

/// The byte that a character stands for: itself if it is printable Latin-1, else the next free one from
/// U+0100 on.
fn spelt_byte(character: char) -> Option<u8> {
    let is_itself = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let code = u32::from(character);
    match code.checked_sub(0x100) {
        None => u8::try_from(code).ok().filter(is_itself),
        Some(number) => (0..=u8::MAX)
            .filter(|byte| !is_itself(byte))
            .nth(number as usize),
    }
}
