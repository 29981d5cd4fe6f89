//! Tokenizers and chat templates without IO: what a text counts as, for stubs and for clients.
//!
//! [`Vocab`] turns text into tokens, [`Template`] turns messages into text, [`Tokenizer`] is both as a
//! model's folder holds them.

mod huggingface;
mod printable;
mod template;
mod tokenizer;

pub use huggingface::Huggingface;
pub use template::{Template, TemplateError};
pub use tokenizer::{SpecialTokens, Tokenizer, TokenizerError};

/// A way to cut text into tokens.
#[derive(Debug)]
pub enum Vocab {
    /// A token for each byte; ids are byte values.
    Byte,
    /// A token for each Unicode scalar value; ids are code points.
    Char,
    /// A Hugging Face `tokenizer.json`.
    Huggingface(Box<Huggingface>),
    /// A token for each run of non-spaces with the spaces before it; ids are hashes.
    Word,
}

/// A token's id and the number of bytes of text that become visible with it.
///
/// The bytes of a text's tokens add up to the text; a token that completes no character has 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Bytes of text.
    pub bytes: u32,
}

impl Vocab {
    /// The built-in vocabulary of that name: `byte`, `char` or `word`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "byte" => Some(Self::Byte),
            "char" => Some(Self::Char),
            "word" => Some(Self::Word),
            _ => None,
        }
    }

    /// Number of tokens of a text.
    pub fn count(&self, text: &str) -> usize {
        match self {
            Self::Byte => text.len(),
            Self::Char if is_ascii(text) => text.len(),
            Self::Char => text.chars().count(),
            Self::Huggingface(_) => self.encode(text, false).len(),
            Self::Word => words(text).count(),
        }
    }

    /// Token ids of a text; `add_special_tokens` as the tokenizer's post-processor adds them.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Vec<u32> {
        match self {
            Self::Byte => text.bytes().map(u32::from).collect(),
            Self::Char => text.chars().map(u32::from).collect(),
            Self::Huggingface(tokenizer) => tokenizer.encode(text, add_special_tokens),
            Self::Word => words(text).map(hash).collect(),
        }
    }

    /// Whether each byte of a text is a token, its id being the byte.
    pub fn takes_bytes(&self, text: &str) -> bool {
        matches!(self, Self::Byte | Self::Char) && is_ascii(text)
    }

    /// A text cut into tokens, special tokens read as their text.
    pub fn tokens(&self, text: &str) -> Vec<Token> {
        match self {
            Self::Byte => bytes(text),
            Self::Char => text
                .chars()
                .map(|character| token(character.into(), character.len_utf8()))
                .collect(),
            Self::Huggingface(tokenizer) => tokenizer.tokens(text),
            Self::Word => words(text)
                .map(|word| token(hash(word), word.len()))
                .collect(),
        }
    }

    /// The same as SGLang shows it: of what stands before an unfinished character, all up to the last
    /// space or Chinese character is shown with the token that starts it.
    pub fn printable_tokens(&self, text: &str) -> Vec<Token> {
        let mut tokens = self.tokens(text);
        if let Self::Huggingface(tokenizer) = self {
            printable::show_early(tokenizer, text, &mut tokens);
        }
        tokens
    }

    /// The text of token ids, special tokens left out; unknown ids yield nothing.
    pub fn decode(&self, ids: &[u32]) -> String {
        match self {
            Self::Byte => {
                let bytes: Vec<u8> = ids.iter().filter_map(|&id| u8::try_from(id).ok()).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Self::Char => ids.iter().filter_map(|&id| char::from_u32(id)).collect(),
            Self::Huggingface(tokenizer) => tokenizer.decode(ids),
            Self::Word => String::new(),
        }
    }

    /// What each id adds to the text when ids arrive one by one, special tokens left out.
    pub fn deltas(&self, ids: &[u32]) -> Vec<String> {
        match self {
            Self::Huggingface(tokenizer) => tokenizer.deltas(ids, true),
            _ => ids.iter().map(|&id| self.decode(&[id])).collect(),
        }
    }

    /// The same with special tokens' texts.
    pub fn deltas_with_special(&self, ids: &[u32]) -> Vec<String> {
        match self {
            Self::Huggingface(tokenizer) => tokenizer.deltas(ids, false),
            _ => self.deltas(ids),
        }
    }

    /// The tokens as the vocabulary spells them.
    pub fn spellings(&self, ids: &[u32]) -> Vec<String> {
        match self {
            Self::Huggingface(tokenizer) => tokenizer.spellings(ids),
            _ => ids.iter().map(|&id| self.decode(&[id])).collect(),
        }
    }

    /// The bytes of a token, which may be part of a character.
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        match self {
            Self::Byte => u8::try_from(id).into_iter().collect(),
            Self::Huggingface(tokenizer) => tokenizer.bytes(id),
            _ => self.decode(&[id]).into_bytes(),
        }
    }

    /// The number of tokens, or of ids that may be tokens.
    pub fn size(&self) -> usize {
        match self {
            Self::Byte => 256,
            Self::Char => u32::from(char::MAX) as usize + 1,
            Self::Huggingface(tokenizer) => tokenizer.size(),
            Self::Word => 1 << 31,
        }
    }

    /// The text of a special token, which decoding leaves out.
    pub fn special(&self, id: u32) -> Option<String> {
        match self {
            Self::Huggingface(tokenizer) => tokenizer.special(id),
            _ => None,
        }
    }

    /// The id of a token by its text, if it is one of the added tokens.
    pub fn added(&self, text: &str) -> Option<u32> {
        match self {
            Self::Huggingface(tokenizer) => tokenizer.added(text),
            _ => None,
        }
    }

    /// Tokens of plain readable text, with their ids; there is always one.
    pub fn plain(&self) -> Vec<(String, u32)> {
        match self {
            Self::Byte | Self::Char => (b' '..=b'~')
                .map(|byte| (char::from(byte).to_string(), byte.into()))
                .collect(),
            Self::Huggingface(tokenizer) => tokenizer.plain(),
            Self::Word => ["alpha", "beta", "gamma", "delta"]
                .map(|word| (format!(" {word}"), hash(&format!(" {word}"))))
                .to_vec(),
        }
    }

    /// Whether an id means something here.
    pub fn contains(&self, id: u32) -> bool {
        match self {
            Self::Byte => id < 256,
            Self::Char => char::from_u32(id).is_some(),
            Self::Huggingface(tokenizer) => tokenizer.contains(id),
            Self::Word => true,
        }
    }
}

/// Whether each byte is a character; looking at all is quicker than a search that may stop.
fn is_ascii(text: &str) -> bool {
    text.bytes().fold(0, |all, byte| all | byte) < 0x80
}

fn token(id: u32, bytes: usize) -> Token {
    let bytes = u32::try_from(bytes).expect("a token is shorter than 4 GiB");
    Token { id, bytes }
}

fn bytes(text: &str) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(text.len());
    for (start, character) in text.char_indices() {
        let end = start + character.len_utf8();
        for (index, &byte) in text.as_bytes()[start..end].iter().enumerate() {
            let last = index + 1 == end - start;
            tokens.push(token(byte.into(), if last { end - start } else { 0 }));
        }
    }
    tokens
}

/// Runs of non-spaces, each with the spaces before it; spaces at the end are a run of their own.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let start = rest.find(|character: char| !character.is_whitespace());
        let end = start.and_then(|start| {
            rest[start..]
                .find(char::is_whitespace)
                .map(|end| start + end)
        });
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        rest = behind;
        Some(word)
    })
}

/// FNV-1a, cut to 31 bits.
fn hash(word: &str) -> u32 {
    let hash = word.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    const BPE: &str = include_str!("../../../fixtures/tokenizers/bpe/tokenizer.json");

    static ALL: LazyLock<[Vocab; 4]> = LazyLock::new(|| {
        let bpe = Huggingface::from_json(BPE).unwrap();
        [
            Vocab::Byte,
            Vocab::Char,
            Vocab::Huggingface(bpe.into()),
            Vocab::Word,
        ]
    });

    #[test]
    fn tokens_cover_odd_texts() {
        let texts = [
            "",
            " ",
            "\r\n\t ",
            "a\0b",
            "e\u{301}",
            "\u{301}",
            "שלום",
            "👩‍👩‍👧",
            "<|im_end|>x<think>",
            "ﬁ\u{212b}",
        ];
        for vocab in &*ALL {
            for text in texts {
                let tokens = vocab.tokens(text);
                let bytes: u32 = tokens.iter().map(|token| token.bytes).sum();
                assert_eq!(bytes as usize, text.len(), "{text:?}");
                assert_eq!(tokens.len(), vocab.count(text), "{text:?}");
            }
        }
    }

    #[test]
    fn words_keep_their_spaces() {
        let cut: Vec<&str> = words(" a  b\n").collect();
        assert_eq!(cut, [" a", "  b", "\n"]);
    }

    #[test]
    fn special_tokens_are_left_out_of_text_alone() {
        let [.., bpe, _] = &*ALL;
        assert_eq!(bpe.special(4089).as_deref(), Some("<|im_end|>"));
        assert_eq!(bpe.special(4090), None);
        assert_eq!(bpe.added("<think>"), Some(4090));
        assert_eq!(bpe.decode(&[3036, 363, 4089, 4090]), "Hello<think>");
        assert!(bpe.contains(4095) && bpe.contains(0) && !bpe.contains(999_999));
    }

    #[test]
    fn bytes_of_parts_of_characters_are_told() {
        let [byte, char, bpe, _] = &*ALL;
        assert_eq!(byte.bytes(0xe4), [0xe4]);
        assert_eq!(char.bytes(0xe4), "ä".as_bytes());
        assert_eq!(bpe.size(), 4096);
        assert_eq!(bpe.bytes(4089), b"<|im_end|>");
        for text in ["\u{7f}\u{ad}\r", "🦀 né", "a b"] {
            let ids = bpe.encode(text, false);
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| bpe.bytes(id)).collect();
            assert_eq!(bytes, text.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn tokens_cut_at_characters(text in any::<String>()) {
            for vocab in &*ALL {
                let mut at = 0;
                for token in vocab.tokens(&text) {
                    at += token.bytes as usize;
                    prop_assert!(text.is_char_boundary(at));
                }
                prop_assert_eq!(at, text.len());
            }
        }
    }
}
