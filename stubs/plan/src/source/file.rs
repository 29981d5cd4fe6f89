//! Says what a script file says, picked by the marker `[[name]]` in the prompt.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use vocab::Tokenizer;

use crate::script::{Answer, Cut, CutKind, End, Piece, Rhythm, Script};
use crate::source::{Ask, Source};

/// The scripts of a `scripts.json`, as the recordings have them: each an object with `choices`, or a text
/// that ends in its end token, or such texts in a list `variants`.
#[derive(Debug)]
pub struct ScriptFile {
    scripts: HashMap<String, Arc<Script>>,
    default: Arc<Script>,
}

/// Why a script file cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScriptFileError {
    /// It holds no script.
    #[error("no script in it")]
    Empty,
    /// It is not JSON of the known form.
    #[error("not a script file")]
    Json(#[from] serde_json::Error),
    /// A script's parts do not fit each other.
    #[error("script `{name}`: {reason}")]
    Mismatch {
        /// Which script.
        name: String,
        /// What does not fit.
        reason: &'static str,
    },
}

#[derive(Deserialize)]
struct RawScript {
    choices: Vec<RawChoice>,
    #[serde(default)]
    burst: Vec<u32>,
    #[serde(default)]
    cached: Option<u64>,
    #[serde(default)]
    fault: Option<RawFault>,
    #[serde(default)]
    pause: BTreeMap<String, f64>,
    #[serde(default)]
    steps: Vec<u32>,
}

#[derive(Deserialize)]
struct RawVariants {
    variants: Vec<String>,
}

#[derive(Deserialize)]
struct RawChoice {
    text: String,
    #[serde(default)]
    token_ids: Vec<u32>,
    #[serde(default)]
    deltas: Vec<String>,
}

#[derive(Deserialize)]
struct RawFault {
    kind: String,
    after: u64,
}

impl ScriptFile {
    /// Reads a script file; `tokenizer` cuts texts that come without tokens.
    pub fn from_json(json: &str, tokenizer: &Tokenizer) -> Result<Self, ScriptFileError> {
        let raw: serde_json::Map<String, Value> = serde_json::from_str(json)?;
        let mut scripts = HashMap::new();
        let mut first = None;
        for (name, value) in raw {
            let script = script(value, tokenizer)?.map_err(|reason| {
                let name = name.clone();
                ScriptFileError::Mismatch { name, reason }
            })?;
            let script = Arc::new(script);
            first.get_or_insert_with(|| Arc::clone(&script));
            scripts.insert(name, script);
        }
        let named = scripts.get("default").or_else(|| scripts.get("hello"));
        let default = named.cloned().or(first).ok_or(ScriptFileError::Empty)?;
        Ok(Self { scripts, default })
    }
}

impl Source for ScriptFile {
    fn script(&self, ask: &Ask<'_>) -> Arc<Script> {
        let named = markers(ask.text).find_map(|name| self.scripts.get(name));
        Arc::clone(named.unwrap_or(&self.default))
    }
}

/// The names between `[[` and `]]`.
fn markers(text: &str) -> impl Iterator<Item = &str> {
    text.split("[[")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("]]")?.0))
}

/// A script in any of its forms, or why its parts do not fit each other.
fn script(
    value: Value,
    tokenizer: &Tokenizer,
) -> Result<Result<Script, &'static str>, serde_json::Error> {
    let texts = match value {
        Value::String(text) => vec![text],
        Value::Object(ref members) if members.contains_key("variants") => {
            serde_json::from_value::<RawVariants>(value)?.variants
        }
        value => return Ok(serde_json::from_value::<RawScript>(value)?.script(tokenizer)),
    };
    if texts.is_empty() {
        return Ok(Err("has no variants"));
    }
    let choices = texts.iter().map(|text| ended(text, tokenizer)).collect();
    Ok(Ok(Script {
        choices,
        ..Script::default()
    }))
}

/// A text that ends in the spelling of its end token.
fn ended(text: &str, tokenizer: &Tokenizer) -> Answer {
    let vocab = &tokenizer.vocab;
    let spelt = |&id: &u32| Some((text.strip_suffix(&*vocab.special(id)?)?, id));
    let Some((text, id)) = tokenizer.eos_token_ids.iter().find_map(spelt) else {
        return Answer::new(text.into(), vocab, Some(End::of(tokenizer)));
    };
    let end = End {
        id: Some(id),
        tokens: 1,
    };
    let pieces = vocab.printable_tokens(text).into_iter().map(Piece::from);
    Answer::of_pieces(text.into(), pieces.collect(), Some(end))
}

impl RawScript {
    fn script(self, tokenizer: &Tokenizer) -> Result<Script, &'static str> {
        if self.choices.is_empty() {
            return Err("has no choices");
        }
        let rhythm = match (self.steps.is_empty(), self.burst.is_empty()) {
            (false, _) => Rhythm::Steps(self.steps),
            (_, false) => Rhythm::Bursts(self.burst),
            _ => Rhythm::Single,
        };
        Ok(Script {
            cached_tokens: self.cached,
            choices: self
                .choices
                .into_iter()
                .map(|choice| choice.answer(tokenizer))
                .collect::<Result<_, _>>()?,
            cut: self.fault.map(RawFault::cut).transpose()?,
            pauses: self
                .pause
                .into_iter()
                .map(pause)
                .collect::<Result<_, _>>()?,
            rhythm,
        })
    }
}

/// A wait before a token.
fn pause((number, seconds): (String, f64)) -> Result<(u64, Duration), &'static str> {
    let number = number
        .parse()
        .map_err(|_| "a key of `pause` is no number")?;
    let wait = Duration::try_from_secs_f64(seconds).map_err(|_| "a `pause` is no time")?;
    Ok((number, wait))
}

impl RawFault {
    fn cut(self) -> Result<Cut, &'static str> {
        let kind = match self.kind.as_str() {
            "abort" => CutKind::Abort,
            "dead" => CutKind::Dead,
            "error" => CutKind::Error,
            "raise" => CutKind::Raise,
            "repetition" => CutKind::Repetition,
            _ => return Err("its fault is none of abort, dead, error, raise, repetition"),
        };
        Ok(Cut {
            after: self.after,
            kind,
        })
    }
}

impl RawChoice {
    fn answer(self, tokenizer: &Tokenizer) -> Result<Answer, &'static str> {
        let Some((&end, ids)) = self.token_ids.split_last() else {
            let end = Some(End::of(tokenizer));
            return Ok(Answer::new(self.text.into(), &tokenizer.vocab, end));
        };
        let deltas = if self.deltas.is_empty() {
            tokenizer.vocab.deltas(&self.token_ids)
        } else {
            self.deltas
        };
        if deltas.len() != self.token_ids.len() {
            return Err("`deltas` and `token_ids` differ in length");
        }
        let piece = |(&id, delta): (&u32, &String)| Piece {
            bytes: u32::try_from(delta.len()).expect("deltas are short"),
            tokens: 1,
            id: Some(id),
        };
        let text = deltas[..ids.len()].concat();
        let pieces = ids.iter().zip(&deltas).map(piece).collect();
        let end = End {
            id: Some(end),
            tokens: 1,
        };
        Ok(Answer::of_pieces(text.into(), pieces, Some(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus;

    fn file(json: &str) -> Result<ScriptFile, ScriptFileError> {
        ScriptFile::from_json(json, &Tokenizer::named("char").unwrap())
    }

    fn said(file: &ScriptFile, text: &str) -> String {
        let script = file.script(&Ask {
            text,
            max_tokens: None,
        });
        script.choices[0].text.to_string()
    }

    #[test]
    fn the_first_known_marker_picks() {
        let json = r#"{"a":{"choices":[{"text":"A"}]},"hello":{"choices":[{"text":"H"}]}}"#;
        let file = file(json).unwrap();
        assert_eq!(said(&file, "x [[a]]"), "A");
        assert_eq!(said(&file, "[[b]] [[[a]]"), "H");
        assert_eq!(said(&file, "[[b]] [[a]]"), "A");
        assert_eq!(said(&file, "[[a"), "H");
    }

    #[test]
    fn unusable_files_say_why() {
        for (json, expected) in [
            ("{}", "no script in it"),
            (r#"{"a":{"variants":[]}}"#, "script `a`: has no variants"),
            (r#"{"a":{"choices":[]}}"#, "script `a`: has no choices"),
            (
                r#"{"a":{"choices":[{"text":"x","token_ids":[1,2],"deltas":["x"]}]}}"#,
                "script `a`: `deltas` and `token_ids` differ in length",
            ),
        ] {
            assert_eq!(file(json).unwrap_err().to_string(), expected);
        }
        assert!(file("[]").is_err());
        assert!(file(r#"{"a":7}"#).is_err());
    }

    #[test]
    fn both_forms_stand_in_one_file() {
        let json = r#"{"a":"A","b":{"variants":["B","C"]},"hello":{"choices":[{"text":"H"}]}}"#;
        let file = file(json).unwrap();
        assert_eq!(said(&file, "[[a]]"), "A");
        assert_eq!(said(&file, "[[b]]"), "B");
        assert_eq!(file.scripts["b"].choices.len(), 2);
        assert_eq!(said(&file, ""), "H");
    }

    #[test]
    fn every_recorded_answer_has_the_scripts_ids() {
        let tokenizer = corpus::tokenizer();
        let file = ScriptFile::from_json(&corpus::file("scripts.json"), &tokenizer).unwrap();
        let mut answers = 0;
        for case in corpus::cases().filter(|case| case.path == "/generate") {
            for (prompt, sample, ids) in case.generated(&tokenizer.vocab) {
                let script = file.script(&Ask {
                    text: &prompt,
                    max_tokens: None,
                });
                let answer = &script.choices[sample % script.choices.len()];
                let scripted = answer.pieces().iter().map(|piece| piece.id.unwrap());
                let scripted: Vec<u32> = scripted.chain(answer.end.unwrap().id).collect();
                let compared = ids.len().min(scripted.len());
                assert_eq!(ids[..compared], scripted[..compared], "{case:?}");
                answers += 1;
            }
        }
        assert!(answers > 100, "{answers}");
    }

    #[test]
    fn a_split_character_shows_when_it_is_whole() {
        let tokenizer = corpus::tokenizer();
        let file = ScriptFile::from_json(&corpus::file("scripts.json"), &tokenizer).unwrap();
        let case = corpus::cases().find(|case| case.name == "gen-unicode-stream");
        let recorded: Vec<usize> = case
            .unwrap()
            .answers
            .iter()
            .map(|frame| frame["text"].as_str().unwrap().len())
            .collect();
        let answer = &file.scripts["unicode"].choices[0];
        let mut shown = 0;
        let lengths = answer.pieces().iter().map(|piece| {
            shown += piece.bytes as usize;
            shown
        });
        let mut lengths: Vec<usize> = lengths.collect();
        lengths.push(answer.text.len());
        assert_eq!(lengths, recorded);
    }
}
