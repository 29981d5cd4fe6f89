//! Prompts as the model would see them: rendered, counted, bounded.

use std::borrow::Cow;
use std::ops::Index;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use wire::failure::Failure;
use wire::json::{Json, Object};
use wire::request::{Endpoint, Message, Prompt, Request};

use crate::stub::Stub;

/// The prompts of a request with their token counts.
#[derive(Debug)]
pub(crate) struct Counted<'r> {
    /// The first prompt, mostly the only one, apart so that it costs no allocation.
    first: One<'r>,
    others: Vec<One<'r>>,
    /// Tokens of all prompts.
    pub(crate) tokens: u64,
    /// Tokens of the longest.
    pub(crate) longest: u64,
    /// Ids, where the request came with them.
    given_ids: Option<&'r [Vec<u32>]>,
    is_completion: bool,
}

/// One prompt.
#[derive(Debug)]
pub(crate) struct One<'r> {
    /// What it says, chat messages being rendered.
    pub(crate) text: Cow<'r, str>,
    pub(crate) tokens: u64,
}

impl<'r> Counted<'r> {
    /// Token ids of each prompt.
    pub(crate) fn ids(&self, stub: &Stub) -> Vec<Vec<u32>> {
        if let Some(ids) = self.given_ids {
            return ids.to_vec();
        }
        let vocab = &stub.engine.tokenizer.vocab;
        let encode = |one: &One<'_>| vocab.encode(&one.text, self.is_completion);
        self.iter().map(encode).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &One<'r>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Number of prompts.
    pub(crate) fn count(&self) -> usize {
        1 + self.others.len()
    }
}

impl<'r> Index<usize> for Counted<'r> {
    type Output = One<'r>;

    fn index(&self, number: usize) -> &One<'r> {
        match number.checked_sub(1) {
            None => &self.first,
            Some(number) => &self.others[number],
        }
    }
}

/// Counts a request's prompts and refuses those that the server refuses.
pub(crate) fn counted<'r>(stub: &Stub, request: &'r Request<'_>) -> Result<Counted<'r>, Failure> {
    let vocab = &stub.engine.tokenizer.vocab;
    let is_completion = request.endpoint != Endpoint::Chat;
    let one = |text: Cow<'r, str>, tokens: usize| One {
        text,
        tokens: tokens as u64,
    };
    let mut given_ids = None;
    let (first, others) = match &request.prompt {
        Prompt::Messages(_) => {
            let text = text(stub, request)?.unwrap_or_default();
            let tokens = vocab.count(&text);
            (Some(one(text, tokens)), Vec::new())
        }
        Prompt::Texts(texts) => {
            let counted = |text: &'r Cow<'_, str>| {
                one(Cow::Borrowed(&**text), vocab.encode(text, true).len())
            };
            let mut prompts = texts.iter().map(counted);
            (prompts.next(), prompts.collect())
        }
        Prompt::Ids(ids) => {
            let mut all = ids.iter().flatten();
            if let Some(unknown) = all.find(|id| !vocab.contains(**id)) {
                return Err(stub.dialect.unknown_id(*unknown, vocab.size()));
            }
            given_ids = Some(&ids[..]);
            let decoded = |ids: &Vec<u32>| one(vocab.decode(ids).into(), ids.len());
            let mut prompts = ids.iter().map(decoded);
            (prompts.next(), prompts.collect())
        }
    };
    let is_empty = |first: &One<'_>| is_completion && others.is_empty() && first.tokens == 0;
    let Some(first) = first.filter(|first| !is_empty(first)) else {
        return Err(stub.dialect.no_prompts(request.endpoint));
    };
    let others: Vec<One<'r>> = others;
    let rest = others.iter().map(|one| one.tokens);
    let (tokens, longest) = (
        first.tokens + rest.clone().sum::<u64>(),
        rest.fold(first.tokens, u64::max),
    );
    if let Some(context) = stub
        .engine
        .max_model_len
        .filter(|context| longest > *context)
    {
        let is_text = given_ids.is_none();
        return Err(stub.dialect.prompt_too_long(longest, is_text, context));
    }
    Ok(Counted {
        first,
        others,
        tokens,
        longest,
        given_ids,
        is_completion,
    })
}

/// The text of the first prompt; chat messages are rendered by the template, or joined with
/// newlines where there is none.
pub(crate) fn text<'r>(
    stub: &Stub,
    request: &'r Request<'_>,
) -> Result<Option<Cow<'r, str>>, Failure> {
    let messages = match &request.prompt {
        Prompt::Ids(_) => return Ok(None),
        Prompt::Texts(texts) => return Ok(texts.first().map(|text| Cow::Borrowed(&**text))),
        Prompt::Messages(messages) => messages,
    };
    stub.dialect.check_messages(messages, &stub.names[0])?;
    let rendered = match &stub.engine.tokenizer.template {
        Some(template) => template
            .render(Context(request, messages))
            .map_err(|error| Failure::bad_request(error.to_string(), None))?
            .into(),
        None if messages.len() == 1 => Cow::Borrowed(&*messages[0].content),
        None => {
            let contents: Vec<&str> = messages.iter().map(|message| &*message.content).collect();
            contents.join("\n").into()
        }
    };
    let last = messages.last().map_or("", |last| &last.content);
    if request.template.continue_final_message {
        return Ok(Some(open_end(&rendered, last).to_owned().into()));
    }
    Ok(Some(rendered))
}

/// A rendered conversation up to the end of its final message, so that the answer goes on with it.
fn open_end<'t>(rendered: &'t str, message: &str) -> &'t str {
    let trimmed = message.trim();
    let Some(at) = rendered.rfind(trimmed) else {
        return rendered;
    };
    let whole = rendered[at..].starts_with(message);
    let length = if whole {
        message.trim_start().len()
    } else {
        trimmed.len()
    };
    &rendered[..at + length]
}

/// The variables of a chat template.
struct Context<'r>(&'r Request<'r>, &'r [Message<'r>]);

impl Serialize for Context<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let options = &self.0.template;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("messages", &Messages(self.1))?;
        let tools = options.shown_tools.as_ref().or(options.tools.as_ref());
        map.serialize_entry("tools", &tools)?;
        let prompts = options.add_generation_prompt && !options.continue_final_message;
        map.serialize_entry("add_generation_prompt", &prompts)?;
        for (name, value) in &options.kwargs {
            map.serialize_entry(&**name, value)?;
        }
        map.end()
    }
}

struct Messages<'r>(&'r [Message<'r>]);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for message in self.0 {
            list.serialize_element(&OneMessage(message))?;
        }
        list.end()
    }
}

struct OneMessage<'r>(&'r Message<'r>);

impl Serialize for OneMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", &*self.0.role)?;
        map.serialize_entry("content", &*self.0.content)?;
        for (name, value) in &self.0.rest {
            match value {
                Json::Array(calls) if name == "tool_calls" && self.0.role == "assistant" => {
                    let calls: Vec<ReadCall<'_>> = calls.iter().map(ReadCall).collect();
                    map.serialize_entry("tool_calls", &calls)?;
                }
                value => map.serialize_entry(&**name, value)?,
            }
        }
        map.end()
    }
}

/// A call, or a part of it, whose `arguments` are what their text says.
struct ReadCall<'r>(&'r Json<'r>);

impl Serialize for ReadCall<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Json::Object(members) = self.0 else {
            return self.0.serialize(serializer);
        };
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &members.0 {
            let read = match value.as_str().filter(|_| name == "arguments") {
                Some("") => Some(Json::Object(Object::default())),
                Some(text) => Json::parse(text.as_bytes()).ok(),
                None => None,
            };
            match &read {
                Some(read) => map.serialize_entry(name, read)?,
                None => map.serialize_entry(name, &ReadCall(value))?,
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::corpus;

    /// What SGLang's usage says of a case's prompts.
    fn recorded(case: &corpus::Case) -> Option<u64> {
        let of_usage = |answer: &Value| answer["usage"]["prompt_tokens"].as_u64();
        let usage = case.answers.iter().find_map(of_usage);
        // An answer that never ran tells of no prompt.
        usage.filter(|tokens| *tokens > 0)
    }

    #[test]
    fn every_chat_and_completion_of_sglang_counts_as_recorded() {
        let stub = Stub::echo(Arc::new(corpus::tokenizer()));
        let mut counts = 0;
        for case in corpus::cases() {
            let Ok(Json::Object(members)) = Json::parse(&case.bytes) else {
                continue;
            };
            let request = match &*case.path {
                "/v1/chat/completions" => Request::flat(members),
                "/v1/completions" => Request::from_checked(Endpoint::Completions, members),
                _ => continue,
            };
            if let Some(recorded) = recorded(&case) {
                let counted = counted(&stub, &request).unwrap();
                assert_eq!(counted.tokens, recorded, "{case:?}");
                counts += 1;
            }
        }
        assert!(counts > 100, "{counts}");
    }

    #[test]
    fn every_prompt_of_sglang_generate_counts_as_recorded() {
        let vocab = corpus::tokenizer().vocab;
        let mut counts = 0;
        for case in corpus::cases() {
            let prompts = case.prompts(&vocab);
            for (index, answer) in case.numbered() {
                let recorded = answer["meta_info"]["prompt_tokens"].as_u64();
                let prompt = prompts.get(index / case.samples());
                if let (Some(recorded), Some(prompt)) = (recorded, prompt) {
                    assert_eq!(prompt.len() as u64, recorded, "{case:?}");
                    counts += 1;
                }
            }
        }
        assert!(counts > 100, "{counts}");
    }
}
