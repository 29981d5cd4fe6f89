//! The rule of SGLang's recordings: of an answer, the scripted token is likeliest and four more stand
//! below it; of a prompt, the dummy model's own logits count.
#![expect(
    clippy::cast_possible_truncation,
    reason = "the server computes in 32-bit floats"
)]

use std::collections::HashMap;

use vocab::Vocab;
use wire::chunk::{TokenLogprob, TopLogprob};

use super::dummy::{self, Ids, Row};
use super::likeliest::likeliest;

/// Logits below the scripted token's, of the ids that follow it at distances of 37.
const STEPS: [f32; 5] = [0.0, -1.5, -2.0, -2.5, -3.0];
const DISTANCE: usize = 37;
/// The logit of all others.
const FLOOR: f32 = -12.0;
/// Sums that are kept apart until the end, as the recorded server's vectors have it.
const LANES: usize = 8;
/// What its logarithm is short of the true one where these sums lie.
const LOG_ERROR: f64 = 1.9e-9;

/// Where tokens stand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// In an answer, by a script.
    Answer,
    /// In a prompt, each after the one before it.
    Prompt,
}

/// Logprobs of tokens with the likeliest at each place; the first of a prompt has no probability to
/// speak of.
pub(super) fn listed(
    vocab: &Vocab,
    ids: &[u32],
    place: Place,
    top: usize,
    latin: bool,
) -> Vec<TokenLogprob> {
    let mut rows = Rows::new(vocab, place);
    let mut before = None;
    let mut token = |&id: &u32| {
        let row = rows.row(id, before.replace(id));
        let bytes = vocab.bytes(id);
        TokenLogprob {
            asked: Vec::new(),
            id,
            logprob: row.logprobs.get(Ids::of(vocab).index(id)).copied(),
            text_offset: 0,
            token: name(&bytes, latin),
            top: likeliest(&row.logits, top)
                .into_iter()
                .map(|id| named(vocab, id, row, latin))
                .collect(),
            bytes,
        }
    };
    ids.iter().map(&mut token).collect()
}

/// Logprobs of some ids at the place of each token; none at the first of a prompt.
pub(crate) fn of_ids(
    vocab: &Vocab,
    ids: &[u32],
    place: Place,
    wanted: &[u32],
) -> Vec<Option<Vec<TopLogprob>>> {
    let mut rows = Rows::new(vocab, place);
    let mut before = None;
    let mut list = |&id: &u32| {
        let row = rows.row(id, before.replace(id));
        let named = |id: &u32| named(vocab, *id, row, false);
        (!row.logits.is_empty()).then(|| wanted.iter().map(named).collect())
    };
    ids.iter().map(&mut list).collect()
}

/// Natural logarithms of the probability that each of some ids follows a prompt's last token.
pub(crate) fn after(vocab: &Vocab, last: u32, wanted: &[u32]) -> Vec<f32> {
    let ids = Ids::of(vocab);
    let row = dummy::after(last, ids);
    let of = |id: &u32| row.logprobs[ids.index(*id)];
    wanted.iter().map(of).collect()
}

/// The probabilities at each place, made once for each token that they depend on.
struct Rows {
    ids: Ids,
    made: HashMap<usize, Row>,
    none: Row,
    place: Place,
}

impl Rows {
    fn new(vocab: &Vocab, place: Place) -> Self {
        Self {
            ids: Ids::of(vocab),
            made: HashMap::new(),
            none: Row::default(),
            place,
        }
    }

    /// Those at a token that stands after another; empty at the first of a prompt.
    fn row(&mut self, id: u32, before: Option<u32>) -> &Row {
        let ids = self.ids;
        match (self.place, before) {
            (Place::Answer, _) => self
                .made
                .entry(ids.index(id))
                .or_insert_with(|| scripted(id, ids)),
            (Place::Prompt, Some(before)) => self
                .made
                .entry(ids.index(before))
                .or_insert_with(|| dummy::after(before, ids)),
            (Place::Prompt, None) => &self.none,
        }
    }
}

/// What is likely where a script's token is next.
fn scripted(id: u32, ids: Ids) -> Row {
    let mut logits = vec![FLOOR; ids.count];
    let weight = |logit: f32| f64::from(logit).exp() as f32;
    let mut weights = vec![weight(FLOOR); ids.count];
    for (number, step) in STEPS.iter().enumerate().rev() {
        let at = (ids.index(id) + DISTANCE * number) % ids.count;
        logits[at] = *step;
        weights[at] = weight(*step);
    }
    let mut sums = [0.0_f32; LANES];
    for (index, weight) in weights.iter().enumerate() {
        sums[index % LANES] += weight;
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for index in 0..width {
            sums[index] += sums[index + width];
        }
    }
    let sum = (f64::from(sums[0]).ln() - LOG_ERROR) as f32;
    let logprobs = logits.iter().map(|logit| logit - sum).collect();
    Row { logits, logprobs }
}

fn named(vocab: &Vocab, id: u32, row: &Row, latin: bool) -> TopLogprob {
    let bytes = vocab.bytes(id);
    TopLogprob {
        id,
        logprob: row.logprobs[Ids::of(vocab).index(id)],
        token: name(&bytes, latin),
        bytes,
    }
}

/// A token's text; of one that is no text, its bytes as Latin-1 or a replacement character.
fn name(bytes: &[u8], latin: bool) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) if latin => bytes.iter().copied().map(char::from).collect(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::corpus;
    use crate::logprobs::{Rule, Style, of_answer, of_prompt};

    const TOP: usize = 2;

    fn style(latin: bool) -> Style {
        Style {
            as_ids: false,
            rule: Rule::Sglang { latin },
            top: TOP,
        }
    }

    /// A value as the recorded ones are read, which is not always to the last bit.
    fn read(value: &Value) -> Value {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    /// An entry as the native route has it.
    fn native(logprob: Option<f32>, id: u32, token: Option<&str>) -> Value {
        read(&json!([logprob.map(f64::from), id, token]))
    }

    #[test]
    fn every_recorded_entry_of_generate_has_its_number() {
        let vocab = corpus::tokenizer().vocab;
        let mut entries = 0;
        for case in corpus::cases() {
            let prompts = case.prompts(&vocab);
            for (_, answer) in case.numbered() {
                for (place, part) in [(Place::Answer, "output"), (Place::Prompt, "input")] {
                    let of = |kind: &str| {
                        let list = answer["meta_info"][format!("{part}_{kind}")].as_array();
                        list.cloned().unwrap_or_default()
                    };
                    let tokens = of("token_logprobs");
                    let id = |entry: &Value| u32::try_from(entry[1].as_u64().unwrap()).unwrap();
                    let ids: Vec<u32> = tokens.iter().map(id).collect();
                    let ours = match place {
                        Place::Answer => of_answer(&vocab, &ids, style(false), 0),
                        Place::Prompt => of_prompt(&vocab, &ids, style(false)),
                    };
                    if place == Place::Prompt && !ids.is_empty() {
                        assert_eq!(ids, prompts[0]);
                    }
                    let top = of("top_logprobs");
                    for (index, ours) in ours.iter().enumerate() {
                        let text = tokens[index][2].as_str().map(|_| &*ours.token);
                        assert_eq!(native(ours.logprob, ours.id, text), tokens[index]);
                        if let Some(Value::Array(top)) = top.get(index) {
                            let ours = ours.top.iter().take(top.len());
                            let ours = ours.map(|top| {
                                native(Some(top.logprob), top.id, text.map(|_| &*top.token))
                            });
                            assert_eq!(&ours.collect::<Vec<_>>(), top);
                        }
                        entries += 1;
                    }
                    let wanted = of("token_ids_logprobs");
                    for (ours, wanted) in of_ids(&vocab, &ids, place, &[1, 2]).iter().zip(wanted) {
                        let ours = ours.iter().flatten();
                        let ours = ours.map(|top| native(Some(top.logprob), top.id, None));
                        assert_eq!(Value::from(ours.collect::<Vec<_>>()), wanted);
                    }
                }
            }
        }
        assert!(entries > 100, "{entries}");
    }

    #[test]
    fn every_recorded_token_of_a_chat_has_its_number() {
        let vocab = corpus::tokenizer().vocab;
        let size = u32::try_from(vocab.size()).unwrap();
        let ids: HashMap<Vec<u8>, u32> = (0..size).map(|id| (vocab.bytes(id), id)).collect();
        let mut entries = 0;
        for case in corpus::cases() {
            for answer in &case.answers {
                let tokens = answer["choices"][0]["logprobs"]["content"].as_array();
                for token in tokens.into_iter().flatten() {
                    let bytes: Vec<u8> = serde_json::from_value(token["bytes"].clone()).unwrap();
                    let top = token["top_logprobs"].as_array().unwrap().len();
                    let style = Style {
                        top,
                        ..style(false)
                    };
                    let ours = &of_answer(&vocab, &[ids[&bytes]], style, 0)[0];
                    let one = |token: &str, bytes: &[u8], logprob: f32| json!({"token": token, "bytes": bytes, "logprob": f64::from(logprob)});
                    let tops = ours.top.iter();
                    let tops = tops.map(|top| one(&top.token, &top.bytes, top.logprob));
                    let tops: Vec<Value> = tops.collect();
                    let mut ours = one(&ours.token, &ours.bytes, ours.logprob.unwrap());
                    ours["top_logprobs"] = tops.into();
                    assert_eq!(read(&ours), *token, "{}", case.name);
                    entries += 1;
                }
            }
        }
        assert!(entries > 100, "{entries}");
    }

    #[test]
    fn an_echoed_prompt_has_its_recorded_numbers() {
        let vocab = corpus::tokenizer().vocab;
        let mut cases = corpus::cases();
        let case = cases
            .find(|case| case.name == "cmpl-echo-logprobs")
            .unwrap();
        let recorded = &case.answers[0]["choices"][0]["logprobs"];
        let prompt = vocab.encode(case.body["prompt"].as_str().unwrap(), true);
        let one = Style {
            top: 1,
            ..style(true)
        };
        let mut ours = of_prompt(&vocab, &prompt, one);
        ours.extend(of_answer(
            &vocab,
            &vocab.encode("Hi<|im_end|>", false),
            one,
            0,
        ));
        let list =
            |of: fn(&TokenLogprob) -> Value| Value::from(ours.iter().map(of).collect::<Vec<_>>());
        assert_eq!(list(|token| token.token.clone().into()), recorded["tokens"]);
        let number = |token: &TokenLogprob| json!(token.logprob.map(f64::from));
        assert_eq!(read(&list(number)), recorded["token_logprobs"]);
        let top = |token: &TokenLogprob| match token.top.first() {
            Some(top) => json!({ &*top.token: f64::from(top.logprob) }),
            None => Value::Null,
        };
        assert_eq!(read(&list(top)), recorded["top_logprobs"]);
    }

    #[test]
    fn a_score_is_the_probability_after_the_last_token() {
        let vocab = corpus::tokenizer().vocab;
        let b = vocab.encode("b", false)[0];
        let scores: Vec<f64> = after(&vocab, b, &[1, 2])
            .into_iter()
            .map(|l| f64::from(l).exp())
            .collect();
        assert_eq!(
            scores,
            [0.001_540_830_339_380_851_3, 0.001_540_829_604_655_866_2]
        );
    }
}
