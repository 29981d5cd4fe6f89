//! A request, what came of it, and what both sides know of its tokens.

use serde::Deserialize;
use serde_json::{Value, json};
use vocab::Tokenizer;

use super::scenario::Scenario;
use super::seen::Seen;
use super::trace::{Script, Trace, count};
use crate::count::without_end;

/// What is known of an exchange.
pub(super) struct Exchange<'a> {
    pub(super) scenario: &'a Scenario,
    /// The model's.
    pub(super) tokenizer: &'a Tokenizer,
    /// The client's.
    pub(super) client: &'a Tokenizer,
    /// The request's.
    pub(super) body: &'a Value,
    pub(super) truth: &'a Truth,
    pub(super) seen: &'a Seen,
}

/// What the server knows of an answer.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Truth {
    pub(super) request_id: String,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) completion_tokens: Option<u64>,
    #[serde(default)]
    pub(super) chunks: Vec<TruthChunk>,
}

/// An event as it was sent.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct TruthChunk {
    index: Option<u32>,
    tokens: u64,
}

impl Exchange<'_> {
    /// Where the tokens of all choices went.
    pub(super) fn trace(&self) -> anyhow::Result<Trace> {
        let vocab = &self.tokenizer.vocab;
        let mut all = Trace::default();
        let script = self.scenario.script.as_ref();
        let script = script.map(|script| Script::choices(script, self.tokenizer));
        let script = script.transpose()?;
        for (&index, spoken) in &self.seen.choices {
            let trace = if let Some(choices) = &script {
                let choice = &choices[index as usize % choices.len()];
                choice.trace(self.sent(index, choice), spoken, vocab)
            } else {
                let choice = Script::plain(&spoken.content, vocab);
                choice.trace(choice.len() - 1, spoken, vocab)
            };
            for (what, tokens) in trace.terms {
                all.add(what, tokens);
            }
            all.arrived += trace.arrived;
            all.unfinished += trace.unfinished;
        }
        Ok(all)
    }

    /// Tokens that a choice came to.
    fn sent(&self, index: u32, choice: &Script) -> usize {
        let told = self
            .truth
            .chunks
            .iter()
            .filter(|chunk| chunk.index == Some(index));
        let told: u64 = told.map(|chunk| chunk.tokens).sum();
        let alone = (self.seen.choices.len() == 1).then_some(self.truth.completion_tokens);
        let whole = choice.len() as u64;
        let sent = alone
            .flatten()
            .unwrap_or(if told > 0 { told } else { whole });
        usize::try_from(sent.min(whole)).unwrap_or(usize::MAX)
    }

    /// Whether all ids that were returned decode to the text, where there are any.
    pub(super) fn ids_decode(&self) -> Option<bool> {
        let choices = self.seen.choices.values();
        let gates = choices.filter_map(|spoken| {
            let ids = without_end(spoken.ids.as_deref()?, self.client);
            let text = format!("{}{}", spoken.reasoning, spoken.content);
            Some(self.client.vocab.decode(ids) == text)
        });
        gates.reduce(|one, other| one && other)
    }

    /// Tokens of the only choice as an assistant's turn, those of an empty turn taken away.
    pub(super) fn through_template(&self) -> Option<i64> {
        let template = self.client.template.as_ref()?;
        let (_, spoken) = self.seen.choices.first_key_value()?;
        let calls = spoken.calls.values();
        let calls = calls.map(|call| {
            json!({"type": "function", "function": {"name": call.name, "arguments": call.arguments}})
        });
        let turn = json!({
            "role": "assistant",
            "content": spoken.content,
            "reasoning_content": spoken.reasoning,
            "tool_calls": calls.collect::<Vec<_>>(),
        });
        let empty = json!({"role": "assistant", "content": ""});
        let counted = [turn, empty].map(|turn| {
            let user = json!({"role": "user", "content": ""});
            let text = template.render(json!({"messages": [user, turn]})).ok()?;
            Some(count(&self.client.vocab, &text))
        });
        let [turn, empty] = counted;
        Some(turn? - empty?)
    }

    /// How many tokens a request allows.
    pub(super) fn requested(&self) -> Option<u64> {
        let body = self.body;
        let places = [
            &body["max_tokens"],
            &body["max_completion_tokens"],
            &body["sampling_params"]["max_new_tokens"],
        ];
        places.into_iter().find_map(Value::as_u64)
    }
}
