//! What a worker says to which prompt, and how it misbehaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use vocab::Tokenizer;
use wire::worker_lines::DoneChanges;

use super::settings::{Bytes, Settings};
use crate::script::{CutKind, Script};
use crate::source::{Ask, ScriptFile, ScriptFileError, Source};

/// The key under which a script file, or a script in it, has what is for workers alone.
const WORKER: &str = "worker";

/// Why a file is nothing that a worker can play.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// It holds no script.
    #[error("no script in it")]
    Empty,
    /// It is not JSON of the known form.
    #[error("not a script file")]
    Json(#[from] serde_json::Error),
    /// There is no such recording.
    #[error("no recording {0}")]
    Missing(String),
    /// A script is none.
    #[error(transparent)]
    Script(#[from] ScriptFileError),
    /// An object `worker` is none.
    #[error("`worker` in {place}: {reason}")]
    Worker {
        /// The script's name, or `the file`.
        place: String,
        /// What is wrong.
        reason: String,
    },
}

/// All that a worker can say.
#[derive(Debug)]
pub(super) enum Talks {
    /// What a source makes of the last message.
    Of(Sourced),
    /// One of these.
    Scripts {
        by_name: BTreeMap<String, Arc<Talk>>,
        default: Arc<Talk>,
    },
}

/// A source, and how many tokens it is to say.
#[derive(Debug)]
pub(super) struct Sourced {
    pub(super) source: Box<dyn Source>,
    pub(super) tokens: Option<u64>,
}

/// What a worker says in a turn.
#[derive(Debug, Default)]
pub(super) struct Talk {
    /// Its name in the file.
    pub(super) name: String,
    /// The texts of its tokens, which need not be whole characters.
    pub(super) pieces: Vec<Vec<u8>>,
    /// Waits before a token, by its number from 0.
    pub(super) pauses: BTreeMap<u64, Duration>,
    /// How it misbehaves.
    pub(super) quirks: Quirks,
}

/// How a turn is other than the text says: the object `worker` of a script.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Quirks {
    /// Members of the last line that are added or replaced.
    done: BTreeMap<String, Value>,
    /// The only keys that the last line keeps.
    done_only: Option<Vec<String>>,
    /// It begins anew after the last piece, with the same ids.
    pub(super) endless: bool,
    /// The worker dies.
    pub(super) exit: Option<Exit>,
    /// The engine fails.
    pub(super) fail: Option<Fail>,
    /// Cancellations are not obeyed.
    pub(super) ignore_cancel: bool,
    /// Stop strings are not looked for.
    pub(super) ignore_stop: bool,
    /// Lines that are written between.
    pub(super) inject: Vec<Inject>,
    /// The texts of the tokens, in place of the script's own.
    pieces: Option<Vec<Bytes>>,
    /// So often are the pieces said, with ids that go on.
    repeat: Option<usize>,
    /// It answers last user messages with this text in them, besides those with its marker.
    when: Option<String>,
}

/// The end of a worker in mid-turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exit {
    /// Tokens before it.
    #[serde(default)]
    pub(super) after: u64,
    /// The code.
    pub(super) code: u8,
}

/// A failure of the engine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fail {
    /// Tokens before it, in decoding.
    #[serde(default)]
    pub(super) after: u64,
    /// Where.
    pub(super) at: FailAt,
    /// So many turns fail, then none; all if left out.
    pub(super) times: Option<u32>,
}

/// What the engine fails in.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum FailAt {
    Decode,
    Prefill,
    Reset,
}

impl FailAt {
    /// The text of the error.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Decode => "decode failed",
            Self::Prefill => "prefill failed",
            Self::Reset => "session reset failed",
        }
    }
}

/// A line that no healthy worker writes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Inject {
    /// Tokens before it.
    #[serde(default)]
    pub(super) after: u64,
    /// The line without its end.
    pub(super) line: Bytes,
}

impl Quirks {
    /// What becomes of the last line.
    pub(super) fn done(&self) -> DoneChanges {
        DoneChanges {
            only: self.done_only.clone(),
            set: self.done.clone(),
        }
    }
}

impl Talk {
    /// The piece of that number from 0 and its token's id.
    pub(super) fn piece(&self, number: u64) -> Option<(&[u8], i64)> {
        let number = usize::try_from(number).ok()?;
        let count = self.pieces.len();
        let index = if self.quirks.endless && count > 0 {
            number % count
        } else {
            number
        };
        let piece = self.pieces.get(index)?;
        Some((piece, FIRST_ID + i64::try_from(index).ok()?))
    }

    fn new(name: &str, mut value: Value, tokenizer: &Tokenizer) -> Result<Self, ModelError> {
        let quirks = value.as_object_mut().and_then(|value| value.remove(WORKER));
        let mut quirks: Quirks = read(name, quirks)?;
        let mut talk = match quirks.pieces.take() {
            Some(pieces) => Self {
                pieces: pieces.into_iter().map(|piece| piece.0).collect(),
                ..Self::default()
            },
            None => Self::scripted(name, value, tokenizer, &mut quirks)?,
        };
        if let Some(times) = quirks.repeat {
            talk.pieces = std::iter::repeat_n(talk.pieces, times).flatten().collect();
        }
        let name = name.to_owned();
        Ok(Self {
            name,
            quirks,
            ..talk
        })
    }

    /// As a script that any stub can play says it.
    fn scripted(
        name: &str,
        value: Value,
        tokenizer: &Tokenizer,
        quirks: &mut Quirks,
    ) -> Result<Self, ModelError> {
        let file = Value::Object(Map::from_iter([(name.to_owned(), value)]));
        let file = ScriptFile::from_json(&file.to_string(), tokenizer)?;
        let script = file.script(&Ask {
            text: "",
            max_tokens: None,
        });
        Ok(Self::of(&script, quirks))
    }

    /// As a script says it.
    fn of(script: &Script, quirks: &mut Quirks) -> Self {
        let answer = &script.choices[0];
        let mut start = 0;
        let piece = |piece: crate::script::Piece| {
            let end = start + piece.bytes as usize;
            let text = answer.text.as_bytes()[start..end].to_vec();
            start = end;
            text
        };
        let mut pieces: Vec<Vec<u8>> = answer.pieces().iter().map(piece).collect();
        if let Some(cut) = script.cut {
            let after = cut.after;
            match cut.kind {
                CutKind::Abort | CutKind::Repetition => {
                    pieces.truncate(usize::try_from(after).unwrap_or(usize::MAX));
                }
                CutKind::Dead => quirks.exit = Some(Exit { after, code: 1 }),
                CutKind::Error | CutKind::GivenUp | CutKind::Raise => {
                    let at = FailAt::Decode;
                    let times = None;
                    quirks.fail = Some(Fail { after, at, times });
                }
            }
        }
        Self {
            pieces,
            pauses: script.pauses.clone(),
            ..Self::default()
        }
    }
}

impl Sourced {
    fn talk(&self, message: &str) -> Talk {
        let script = self.source.script(&Ask {
            text: message,
            max_tokens: self.tokens,
        });
        let mut quirks = Quirks::default();
        let mut talk = Talk::of(&script, &mut quirks);
        talk.quirks = quirks;
        if let Some(tokens) = self.tokens {
            let count = usize::try_from(tokens).unwrap_or(usize::MAX);
            let pieces = std::mem::take(&mut talk.pieces);
            talk.pieces = pieces.iter().cycle().take(count).cloned().collect();
        }
        talk
    }
}

/// The id of an answer's first token.
const FIRST_ID: i64 = 100_001;

impl Talks {
    /// Reads a script file, and what it says to the worker itself.
    pub(super) fn new(
        mut file: Map<String, Value>,
        tokenizer: &Tokenizer,
    ) -> Result<(Self, Settings), ModelError> {
        let settings: Settings = read("the file", file.remove(WORKER))?;
        settings.check().map_err(|reason| ModelError::Worker {
            place: "the file".into(),
            reason: reason.into(),
        })?;
        let talks = file.into_iter().map(|(name, value)| {
            let talk = Talk::new(&name, value, tokenizer)?;
            Ok((name, Arc::new(talk)))
        });
        let by_name: BTreeMap<_, _> = talks.collect::<Result<_, ModelError>>()?;
        let default = by_name.get("default").or_else(|| by_name.get("hello"));
        let default = default.or_else(|| by_name.values().next());
        let default = Arc::clone(default.ok_or(ModelError::Empty)?);
        Ok((Self::Scripts { by_name, default }, settings))
    }

    /// What is said to a prompt.
    pub(super) fn talk(&self, prompt: &str) -> Arc<Talk> {
        let message = last_message(prompt);
        let (by_name, default) = match self {
            Self::Of(sourced) => return Arc::new(sourced.talk(message)),
            Self::Scripts { by_name, default } => (by_name, default),
        };
        let named = markers(message).filter_map(|name| by_name.get(name));
        let mut named = named;
        let named = if message.len() == prompt.len() {
            // Which message is the last cannot be told, but it is behind the others.
            named.last()
        } else {
            named.next()
        };
        let met = || {
            let length = |talk: &&Arc<Talk>| {
                let when = talk.quirks.when.as_ref()?;
                message.contains(when).then_some(when.len())
            };
            let met = by_name.values().filter(|talk| length(talk).is_some());
            met.max_by_key(length)
        };
        Arc::clone(named.or_else(met).unwrap_or(default))
    }
}

/// The last user message of a prompt in `ChatML`, else all of it.
fn last_message(prompt: &str) -> &str {
    let Some((_, message)) = prompt.rsplit_once("<|im_start|>user\n") else {
        return prompt;
    };
    message
        .split_once("<|im_end|>")
        .map_or(message, |(message, _)| message)
}

/// The names between `[[` and `]]`.
fn markers(text: &str) -> impl Iterator<Item = &str> {
    text.split("[[")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("]]")?.0))
}

fn read<T: Default + for<'d> Deserialize<'d>>(
    place: &str,
    value: Option<Value>,
) -> Result<T, ModelError> {
    let read = value.map(serde_json::from_value).transpose();
    let read = read.map_err(|error| ModelError::Worker {
        place: place.into(),
        reason: error.to_string(),
    })?;
    Ok(read.unwrap_or_default())
}
