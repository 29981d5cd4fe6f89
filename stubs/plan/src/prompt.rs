//! Prompts as the model would see them: rendered, counted, bounded.

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use wire::failure::Failure;
use wire::request::{Endpoint, Message, Prompt, Request};

use crate::stub::Stub;

/// The prompts of a request with their token counts.
#[derive(Debug)]
pub(crate) struct Counted<'r> {
    /// What each prompt says, chat messages being rendered.
    pub(crate) texts: Vec<Cow<'r, str>>,
    /// Tokens of each prompt.
    pub(crate) each: Vec<u64>,
    /// Tokens of all prompts.
    pub(crate) tokens: u64,
    /// Tokens of the longest.
    pub(crate) longest: u64,
    /// Ids, where the request came with them.
    given_ids: Option<&'r [Vec<u32>]>,
    is_completion: bool,
}

impl Counted<'_> {
    /// Token ids of each prompt.
    pub(crate) fn ids(&self, stub: &Stub) -> Vec<Vec<u32>> {
        if let Some(ids) = self.given_ids {
            return ids.to_vec();
        }
        let vocab = &stub.engine.tokenizer.vocab;
        let encode = |text: &Cow<'_, str>| vocab.encode(text, self.is_completion);
        self.texts.iter().map(encode).collect()
    }
}

/// Counts a request's prompts and refuses those that the server refuses.
pub(crate) fn counted<'r>(stub: &Stub, request: &'r Request<'_>) -> Result<Counted<'r>, Failure> {
    let vocab = &stub.engine.tokenizer.vocab;
    let is_completion = request.endpoint == Endpoint::Completions;
    let (texts, each, given_ids) = match &request.prompt {
        Prompt::Messages(_) => {
            let text = text(stub, request)?.unwrap_or_default();
            let tokens = vocab.count(&text);
            (vec![text], vec![tokens], None)
        }
        Prompt::Texts(texts) => {
            let count = |text: &Cow<'_, str>| vocab.encode(text, true).len();
            let each = texts.iter().map(count).collect();
            let texts = texts.iter().map(|text| Cow::Borrowed(&**text)).collect();
            (texts, each, None)
        }
        Prompt::Ids(ids) => {
            let mut all = ids.iter().flatten();
            if let Some(unknown) = all.find(|id| !vocab.contains(**id)) {
                let message = format!("Token id {unknown} is out of vocabulary");
                return Err(Failure::bad_request(message, None));
            }
            let texts = ids.iter().map(|ids| vocab.decode(ids).into()).collect();
            (texts, ids.iter().map(Vec::len).collect(), Some(&ids[..]))
        }
    };
    if texts.is_empty() || (is_completion && texts.len() == 1 && each == [0]) {
        return Err(stub.dialect.no_prompts());
    }
    let each: Vec<u64> = each.into_iter().map(|count| count as u64).collect();
    let longest = each.iter().copied().max().unwrap_or(0);
    if let Some(context) = stub
        .engine
        .max_model_len
        .filter(|context| longest > *context)
    {
        // The real tokenizer stops one token behind the limit; lists of ids are counted whole.
        let seen = given_ids.map_or(context + 1, |_| longest);
        return Err(stub.dialect.prompt_too_long(seen, context));
    }
    Ok(Counted {
        texts,
        tokens: each.iter().sum(),
        each,
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
    if messages.is_empty() {
        let message =
            "Cannot apply chat template to an empty conversation. Provide at least one message.";
        return Err(Failure::bad_request(message, None));
    }
    if messages.iter().any(|message| message.has_media) {
        let message = format!("{} is not a multimodal model", stub.names[0]);
        return Err(Failure::bad_request(message, None));
    }
    if messages.iter().any(|message| message.has_surrogates) {
        let message =
            "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]";
        return Err(Failure::bad_request(message, None));
    }
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
        map.serialize_entry("tools", &options.tools)?;
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
            map.serialize_entry(&**name, value)?;
        }
        map.end()
    }
}
