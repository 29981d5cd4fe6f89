//! A model's folder: vocabulary, chat template, end tokens.

use std::path::Path;

use serde::Deserialize;

use crate::huggingface::Huggingface;
use crate::{Template, TemplateError, Vocab};

/// What a model's folder says about text and tokens.
#[derive(Debug)]
pub struct Tokenizer {
    /// How text becomes tokens.
    pub vocab: Vocab,
    /// How messages become text.
    pub template: Option<Template>,
    /// Ids that end an answer, the first being the usual one.
    pub eos_token_ids: Vec<u32>,
    /// Tokens with a part of their own.
    pub special_tokens: SpecialTokens,
}

/// Special tokens of `tokenizer_config.json`, in the order in which `transformers` lists them.
#[derive(Clone, Debug, Default)]
pub struct SpecialTokens {
    named: Vec<(&'static str, String)>,
    all: Vec<String>,
}

/// What special tokens are called there.
const NAMES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

impl SpecialTokens {
    fn new(config: &serde_json::Value) -> Self {
        let text = |token: &serde_json::Value| {
            let content = token.get("content").unwrap_or(token);
            content.as_str().map(ToOwned::to_owned)
        };
        let named = NAMES
            .iter()
            .filter_map(|name| Some((*name, text(config.get(*name)?)?)));
        let named: Vec<_> = named.collect();
        let lists = ["extra_special_tokens", "additional_special_tokens"];
        let lists = lists
            .iter()
            .filter_map(|name| config.get(*name)?.as_array());
        let mut all: Vec<String> = Vec::new();
        let listed = lists.flatten().filter_map(text);
        for token in named.iter().map(|(_, token)| token.clone()).chain(listed) {
            if !all.contains(&token) {
                all.push(token);
            }
        }
        Self { named, all }
    }

    /// The one of that name, such as `eos_token`.
    pub fn named(&self, name: &str) -> Option<&str> {
        let mut named = self.names();
        named
            .find(|(known, _)| *known == name)
            .map(|(_, token)| token)
    }

    /// Names with their tokens.
    pub fn names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.named.iter().map(|(name, token)| (*name, &**token))
    }

    /// All, each once.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|token| &**token)
    }
}

/// Why a tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A file is not the JSON that it should be.
    #[error("malformed JSON")]
    Json(#[from] serde_json::Error),
    /// There is no `tokenizer.json`.
    #[error("there is no such tokenizer; use char, byte, word, a tokenizer.json or its folder")]
    Missing,
    /// The chat template does not compile.
    #[error("chat template")]
    Template(#[from] TemplateError),
    /// The tokenizer has a part that is not supported.
    #[error("{0}")]
    Unusable(String),
}

#[derive(Default, Deserialize)]
struct Config {
    #[serde(default)]
    chat_template: Option<serde_json::Value>,
    #[serde(default)]
    eos_token_id: Option<Ids>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Ids {
    Many(Vec<u32>),
    One(u32),
}

impl Tokenizer {
    /// The built-in tokenizer of that name: `byte`, `char` or `word`. It has no template and no end token.
    pub fn named(name: &str) -> Option<Self> {
        Some(Self {
            vocab: Vocab::named(name)?,
            template: None,
            eos_token_ids: Vec::new(),
            special_tokens: SpecialTokens::default(),
        })
    }

    /// A tokenizer by its built-in name, or by the path of its folder or of its `tokenizer.json`;
    /// `read` gives the text of a path, `None` where there is no such file.
    pub fn find(
        spec: &str,
        read: impl Fn(&Path) -> Option<String>,
    ) -> Result<Self, TokenizerError> {
        if let Some(tokenizer) = Self::named(spec) {
            return Ok(tokenizer);
        }
        let path = Path::new(spec);
        match (read(path), path.parent()) {
            (Some(json), Some(folder)) => Self::from_files(|name| match name {
                "tokenizer.json" => Some(json.clone()),
                name => read(&folder.join(name)),
            }),
            _ => Self::from_files(|name| read(&path.join(name))),
        }
    }

    /// A tokenizer from a folder's files, which `read` gives by name, `None` where there is none.
    pub fn from_files(read: impl Fn(&str) -> Option<String>) -> Result<Self, TokenizerError> {
        let json = read("tokenizer.json").ok_or(TokenizerError::Missing)?;
        let config = |name| match read(name) {
            Some(text) => serde_json::from_str(&text),
            None => Ok(Config::default()),
        };
        let tokenizer_config = config("tokenizer_config.json")?;
        let special_tokens = match read("tokenizer_config.json") {
            Some(text) => SpecialTokens::new(&serde_json::from_str(&text)?),
            None => SpecialTokens::default(),
        };
        let eos = config("generation_config.json")?.eos_token_id;
        let eos = match eos {
            Some(ids) => Some(ids),
            None => config("config.json")?.eos_token_id,
        };
        let in_config = tokenizer_config.chat_template.as_ref();
        let template = read("chat_template.jinja")
            .or_else(|| in_config.and_then(|template| Some(template.as_str()?.to_owned())));
        Ok(Self {
            vocab: Vocab::Huggingface(Huggingface::from_json(&json)?.into()),
            template: template.map(Template::new).transpose()?,
            eos_token_ids: match eos {
                None => Vec::new(),
                Some(Ids::Many(ids)) => ids,
                Some(Ids::One(id)) => vec![id],
            },
            special_tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bpe() -> Tokenizer {
        let file = |name: &str| match name {
            "tokenizer.json" => Some(include_str!(
                "../../../fixtures/tokenizers/bpe/tokenizer.json"
            )),
            "chat_template.jinja" => Some(include_str!(
                "../../../fixtures/tokenizers/bpe/chat_template.jinja"
            )),
            "generation_config.json" => Some(include_str!(
                "../../../fixtures/tokenizers/bpe/generation_config.json"
            )),
            _ => None,
        };
        Tokenizer::from_files(|name| file(name).map(Into::into)).unwrap()
    }

    #[test]
    fn a_folder_is_read_whole() {
        let bpe = bpe();
        assert_eq!(bpe.eos_token_ids, [4089, 4087]);
        let context = json!({
            "messages": [{"role": "user", "content": "hi"}],
            "add_generation_prompt": true,
        });
        let text = bpe.template.as_ref().unwrap().render(context).unwrap();
        assert_eq!(
            text,
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        );
        let ids = bpe.vocab.encode(&text, false);
        let recorded = [4088, 2283, 198, 2682, 4089, 198, 4088, 3109, 440, 708, 198];
        assert_eq!(ids, recorded);
    }

    #[test]
    fn a_missing_or_broken_file_is_said() {
        let missing = Tokenizer::from_files(|_| None).unwrap_err();
        assert!(matches!(missing, TokenizerError::Missing));
        assert!(Tokenizer::from_files(|_| Some("{".into())).is_err());
        assert!(Tokenizer::from_files(|_| Some("{}".into())).is_err());
    }
}
