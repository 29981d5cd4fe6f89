//! `/v1/score`: how likely tokens are behind a text.

use serde::Serialize;
use wire::dialect::sglang::bodies::{Items, Labels, Score};
use wire::failure::Failure;
use wire::usage::Usage;

use crate::logprobs;
use crate::reply::Reply;
use crate::route::json;
use crate::stub::{Call, Stub};

#[derive(Serialize)]
struct Scored<'a> {
    scores: Vec<Vec<f64>>,
    pooled_hidden_states: (),
    token_logprobs: Option<Vec<Vec<f64>>>,
    model: &'a str,
    usage: wire::dialect::sglang::FullUsage,
    object: &'static str,
}

pub(super) fn reply(stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    let asked = Score::parse(call.head.content_type(), call.body)?;
    if asked.temperature.to_bits() != 1.0_f64.to_bits() && !asked.applies_softmax {
        return refuse("temperature requires apply_softmax=True");
    }
    let prompts = prompts(stub, &asked)?;
    let labels = labels(stub, &asked, prompts.len())?;
    let vocab = &stub.engine.tokenizer.vocab;
    let mut logprobs = Vec::with_capacity(prompts.len());
    for (prompt, labels) in prompts.iter().zip(&labels) {
        let Some(last) = prompt.last() else {
            return refuse("Prompt cannot be empty");
        };
        let found = logprobs::sglang::after(vocab, *last, labels);
        logprobs.push(found.into_iter().map(f64::from).collect::<Vec<f64>>());
    }
    let tokens = prompts.iter().map(Vec::len).sum::<usize>();
    let score = |logprobs: &Vec<f64>| {
        if asked.applies_softmax {
            softmax(logprobs, asked.temperature)
        } else {
            logprobs.iter().map(|logprob| logprob.exp()).collect()
        }
    };
    Ok(json(&Scored {
        scores: logprobs.iter().map(score).collect(),
        pooled_hidden_states: (),
        token_logprobs: asked.tells_logprobs.then_some(logprobs),
        model: &asked.model,
        usage: Usage::new(tokens as u64, 0).into(),
        object: "scoring",
    }))
}

fn refuse<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::bad_request(message, None))
}

/// The token ids of each query with its item.
fn prompts(stub: &Stub, asked: &Score<'_>) -> Result<Vec<Vec<u32>>, Failure> {
    let vocab = &stub.engine.tokenizer.vocab;
    let prompts: Vec<Vec<u32>> = match &asked.items {
        Items::None => return refuse("items must be provided"),
        Items::Mixed => {
            return refuse("Invalid combination of query/items types for score_request.");
        }
        Items::Ids(query, items) => {
            let join = |item: &Vec<u32>| {
                let mut parts = [&query[..], item];
                if asked.item_first {
                    parts.reverse();
                }
                parts.concat()
            };
            items.iter().map(join).collect()
        }
        Items::Texts(query, items) => {
            let join = |item: &std::borrow::Cow<'_, str>| {
                let mut parts = [&**query, item];
                if asked.item_first {
                    parts.reverse();
                }
                vocab.encode(&parts.concat(), true)
            };
            items.iter().map(join).collect()
        }
    };
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0) as u64;
    match stub.engine.max_model_len {
        Some(context) if longest > context => {
            Err(stub.dialect.prompt_too_long(longest, false, context))
        }
        _ => Ok(prompts),
    }
}

/// The tokens to score behind each item.
fn labels(stub: &Stub, asked: &Score<'_>, items: usize) -> Result<Vec<Vec<u32>>, Failure> {
    let all = match &asked.labels {
        _ if items == 0 => return Ok(Vec::new()),
        None => return refuse("label_token_ids is required for generation (CausalLM) models."),
        Some(Labels::All(labels)) if labels.is_empty() => {
            return refuse("label_token_ids must be a nonempty list");
        }
        Some(Labels::All(labels)) => vec![labels.clone(); items],
        Some(Labels::Each(all)) if all.len() != items => {
            return refuse("label_token_ids must have one list per item");
        }
        Some(Labels::Each(all)) => all.clone(),
    };
    let size = stub.engine.tokenizer.vocab.size();
    let checked = |labels: Vec<i128>| {
        if labels.is_empty() {
            return refuse("each item must have a nonempty candidate list");
        }
        if labels.iter().any(|label| *label < 0) {
            return refuse("label_token_ids must contain nonnegative integers");
        }
        let mut sorted = labels.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != labels.len() {
            return refuse("label_token_ids must not contain duplicate tokens");
        }
        let ids = labels.iter().map(|label| {
            let id = u32::try_from(*label).ok();
            let id = id.filter(|id| (*id as usize) < size);
            id.ok_or_else(|| {
                let message = format!("Token ID {label} is out of vocabulary (vocab size: {size})");
                Failure::bad_request(message, None)
            })
        });
        ids.collect()
    };
    all.into_iter().map(checked).collect()
}

/// Shares of one another, sharper where `temperature` is lower.
fn softmax(logprobs: &[f64], temperature: f64) -> Vec<f64> {
    let most = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights = logprobs.iter();
    let weights: Vec<f64> = weights
        .map(|logprob| ((logprob - most) / temperature).exp())
        .collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        let shares = softmax(&[0.0, 2.0_f64.ln()], 1.0);
        assert!((shares[0] - 1.0 / 3.0).abs() < 1e-12, "{shares:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(softmax(&[-1e9, 0.0], 1e-300), [0.0, 1.0]);
    }
}
