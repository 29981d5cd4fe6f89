//! What the front end in Rust accepts, by the types that refuse it: what they say of a body is what it says.

use std::fmt;

use serde::de::{Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// `/v1/chat/completions`
#[derive(Deserialize)]
#[expect(dead_code, reason = "that they can be read is all that is asked")]
pub(super) struct Chat {
    messages: Vec<Message>,
    model: String,
    frequency_penalty: Option<f32>,
    logprobs: Option<bool>,
    max_completion_tokens: Option<u32>,
    max_tokens: Option<u32>,
    n: Option<u8>,
    parallel_tool_calls: Option<bool>,
    presence_penalty: Option<f32>,
    stream: Option<bool>,
    temperature: Option<f32>,
    top_logprobs: Option<u8>,
    top_p: Option<f32>,
}

#[derive(Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message {
    Developer {},
    System {},
    User {},
    Assistant {},
    Tool {},
    Function {},
}

/// `/v1/completions`, read as a part of more: thus it is refused at its end.
#[derive(Deserialize)]
#[expect(dead_code, reason = "that they can be read is all that is asked")]
pub(super) struct Completion {
    #[serde(flatten)]
    own: OwnCompletion,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "that they can be read is all that is asked")]
struct OwnCompletion {
    model: String,
    prompt: IgnoredAny,
    echo: Option<bool>,
    frequency_penalty: Option<f32>,
    logprobs: Option<u8>,
    max_tokens: Option<u32>,
    n: Option<u8>,
    presence_penalty: Option<f32>,
    stream: Option<bool>,
    temperature: Option<f32>,
    top_p: Option<f32>,
}

/// `/generate`
#[derive(Deserialize)]
#[serde(expecting = "struct GenerateRequest")]
#[expect(dead_code, reason = "that they can be read is all that is asked")]
pub(super) struct Native {
    text: Option<Texts>,
    input_ids: Option<IgnoredAny>,
    stream: Option<bool>,
    return_text_in_logprobs: Option<bool>,
    sampling_params: Option<IgnoredAny>,
    #[serde(flatten)]
    rest: IgnoredAny,
}

/// A text or a list of them.
struct Texts;

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value or an array of values for StringOrList")
    }

    fn visit_str<E: Error>(self, _text: &str) -> Result<Texts, E> {
        Ok(Texts)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Texts, A::Error> {
        while texts.next_element::<String>()?.is_some() {}
        Ok(Texts)
    }
}
