//! The tokenizers of the scenarios, in this program and as files for its stubs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use vocab::Tokenizer;

/// A name and its files.
type Folder = (&'static str, &'static [(&'static str, &'static str)]);

const TOKENIZER: &str = "tokenizer.json";

const BPE: &[(&str, &str)] = &[
    (
        TOKENIZER,
        include_str!("../../../fixtures/tokenizers/bpe/tokenizer.json"),
    ),
    (
        "chat_template.jinja",
        include_str!("../../../fixtures/tokenizers/bpe/chat_template.jinja"),
    ),
    (
        "config.json",
        include_str!("../../../fixtures/tokenizers/bpe/config.json"),
    ),
    (
        "tokenizer_config.json",
        include_str!("../../../fixtures/tokenizers/bpe/tokenizer_config.json"),
    ),
    (
        "generation_config.json",
        include_str!("../../../fixtures/tokenizers/bpe/generation_config.json"),
    ),
];

const STUB_MODEL: &[(&str, &str)] = &[
    (
        TOKENIZER,
        include_str!("../../../fixtures/wire/sglang-0.5.23/stub-model/tokenizer.json"),
    ),
    (
        "tokenizer_config.json",
        include_str!("../../../fixtures/wire/sglang-0.5.23/stub-model/tokenizer_config.json"),
    ),
    (
        "generation_config.json",
        include_str!("../../../fixtures/wire/sglang-0.5.23/stub-model/generation_config.json"),
    ),
];

const FOLDERS: [Folder; 3] = [("bpe", BPE), ("bpe-bos", BPE), ("stub-model", STUB_MODEL)];

/// The token that `bpe-bos` puts before a prompt.
const BOS: (&str, u32) = ("<|endoftext|>", 4087);

/// A tokenizer by its name in scenarios: `bpe`, `bpe-bos`, `stub-model`, `char`, `byte` or `word`.
///
/// # Errors
/// There is none of that name.
pub fn tokenizer(name: &str) -> anyhow::Result<Tokenizer> {
    if let Some(tokenizer) = Tokenizer::named(name) {
        return Ok(tokenizer);
    }
    let Some((_, files)) = FOLDERS.iter().find(|(known, _)| *known == name) else {
        bail!("`tokenizer` is none of bpe, bpe-bos, stub-model, char, byte, word: {name}");
    };
    let read = |file: &str| {
        let found = files.iter().find(|(known, _)| *known == file);
        found.map(|(_, text)| content(name, file, text))
    };
    Tokenizer::from_files(read).context("an embedded tokenizer")
}

/// A folder for a run's files; it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Folders {
    root: PathBuf,
}

impl Folders {
    /// Makes the folder and puts the tokenizers into it.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let name = format!("stubline-{}-{:x}", std::process::id(), fastrand::u64(..));
        let root = std::env::temp_dir().join(name);
        let folders = Self { root };
        for (name, files) in FOLDERS {
            let dir = folders.path(name);
            std::fs::create_dir_all(&dir)
                .with_context(|| format!("failed to make {}", dir.display()))?;
            for (file, text) in files {
                std::fs::write(dir.join(file), content(name, file, text))?;
            }
        }
        Ok(folders)
    }

    /// A path in it.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join(name)
    }

    /// What `--tokenizer` takes for a tokenizer of that name.
    pub(crate) fn tokenizer(&self, name: &str) -> String {
        if Tokenizer::named(name).is_some() {
            return name.to_owned();
        }
        self.path(name).display().to_string()
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        // Nothing can be done about files that stay.
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// A file's text, with a token before each prompt where the tokenizer is to have one.
fn content(name: &str, file: &str, text: &str) -> String {
    if (name, file) != ("bpe-bos", TOKENIZER) {
        return text.to_owned();
    }
    let mut tokenizer: Value = serde_json::from_str(text).expect("a fixture is JSON");
    let (token, id) = BOS;
    let special = json!({"SpecialToken": {"id": token, "type_id": 0}});
    let sequence = |id| json!({"Sequence": {"id": id, "type_id": 0}});
    tokenizer["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [special, sequence("A")],
        "pair": [special, sequence("A"), special, sequence("B")],
        "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}},
    });
    tokenizer.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tokenizer_is_read_and_one_puts_a_token_before_prompts() {
        for (name, _) in FOLDERS {
            let tokenizer = tokenizer(name).unwrap();
            assert!(tokenizer.template.is_some() && !tokenizer.eos_token_ids.is_empty());
            let around = tokenizer.vocab.encode("a", true).len();
            assert_eq!(around, 1 + usize::from(name == "bpe-bos"));
        }
        assert!(tokenizer("nobody").is_err());
    }

    #[test]
    fn a_run_leaves_no_files() {
        let folders = Folders::new().unwrap();
        let file = folders.path("bpe").join(TOKENIZER);
        assert!(file.is_file());
        drop(folders);
        assert!(!file.exists());
    }
}
