//! What a client asks for: the fields of a request body that change the answer.

mod each;
mod flat;
mod known;
mod usual;
mod wishes;

pub use known::Known;
pub use wishes::{FlatLogprobs, Names, NativeLogprobs, Wishes};

use std::borrow::Cow;

use crate::json::{Json, Object};
use crate::schema;

/// The kind of answer that a route gives.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// SGLang's own `/generate`.
    Generate,
}

/// `output_mode`: what an answer of `/inference/v1/generate` carries beside token ids.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputMode {
    /// The text too.
    Text,
    /// Nothing.
    #[default]
    Tokens,
}

/// A checked request that borrows its texts from the body.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "the body's own switches")]
pub struct Request<'a> {
    /// Which route it came to.
    pub endpoint: Endpoint,
    /// `model`, if named.
    pub model: Option<Cow<'a, str>>,
    /// What the model is to continue.
    pub prompt: Prompt<'a>,
    /// How the answer is sampled and where it ends.
    pub sampling: Sampling<'a>,
    /// `top_logprobs`
    pub top_logprobs: Option<i128>,
    /// `parallel_tool_calls`
    pub parallel_tool_calls: bool,
    /// `return_tokens_as_token_ids`, if given.
    pub tokens_as_ids: Option<bool>,
    /// `stream`
    pub stream: bool,
    /// `stream_options`
    pub stream_options: StreamOptions,
    /// `stream_interval`: tokens a chunk, at least.
    pub stream_interval: Option<u32>,
    /// What the chat template is told beside the messages.
    pub template: TemplateOptions<'a>,
    /// `echo`: the answer starts with the prompt.
    pub echo: bool,
    /// `include_reasoning`
    pub include_reasoning: bool,
    /// `return_token_ids`
    pub return_token_ids: bool,
    /// `return_prompt_text`
    pub return_prompt_text: bool,
    /// `request_id`
    pub request_id: Option<Cow<'a, str>>,
    /// `suffix`, if given.
    pub suffix: Option<Cow<'a, str>>,
    /// `output_mode` of a completion that came to `/inference/v1/generate`, token ids in and out.
    pub output_mode: Option<OutputMode>,
    /// What only some servers know, where any of it is asked for.
    pub wishes: Option<Box<Wishes<'a>>>,
}

/// The prompt in one of its forms.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt<'a> {
    /// Token ids, a list for each prompt.
    Ids(Vec<Vec<u32>>),
    /// Chat messages.
    Messages(Vec<Message<'a>>),
    /// Texts, one for each prompt.
    Texts(Vec<Cow<'a, str>>),
}

impl Prompt<'_> {
    /// The text that decides the answer: the last user message, or the first prompt.
    pub fn decisive_text(&self) -> Option<&str> {
        match self {
            Self::Ids(_) => None,
            Self::Messages(messages) => {
                let user = messages.iter().rfind(|message| message.role == "user");
                Some(&user.or_else(|| messages.last())?.content)
            }
            Self::Texts(texts) => texts.first().map(AsRef::as_ref),
        }
    }
}

/// A chat message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message<'a> {
    /// `role`, with `developer` read as `system`.
    pub role: Cow<'a, str>,
    /// The text; several text parts are joined with a newline.
    pub content: Cow<'a, str>,
    /// The other members, for the chat template.
    pub rest: Vec<(Cow<'a, str>, Json<'a>)>,
    /// `type` of a content part that is no text.
    pub media: Option<Cow<'a, str>>,
    /// A text with a lone surrogate, which no tokenizer takes.
    pub has_surrogates: bool,
}

/// What a chat template is told beside the messages.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateOptions<'a> {
    /// `add_generation_prompt`
    pub add_generation_prompt: bool,
    /// `continue_final_message`
    pub continue_final_message: bool,
    /// `chat_template_kwargs`, with what `reasoning_effort` adds.
    pub kwargs: Vec<(Cow<'a, str>, Json<'a>)>,
    /// `tool_choice`, unless it is `none`.
    pub tool_choice: Option<ToolChoice<'a>>,
    /// `tools`, if there are any.
    pub tools: Option<Json<'a>>,
    /// The tools as the template sees them, where that is not as they were sent; null if it sees none.
    pub shown_tools: Option<Json<'a>>,
    /// `chat_template`, which a server refuses unless told to trust it.
    pub has_own_template: bool,
}

/// `tool_choice`, when the model may or must call a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolChoice<'a> {
    /// `auto`
    Auto,
    /// The function of that name.
    Named(Cow<'a, str>),
    /// `required`
    Required,
}

/// `stream_options`
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StreamOptions {
    /// `include_usage`, if given.
    pub include_usage: Option<bool>,
    /// `continuous_usage_stats`
    pub continuous_usage_stats: bool,
}

/// Which chunks of a stream carry usage.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum UsagePolicy {
    /// Every chunk, and one at the end.
    Continuous,
    /// One chunk at the end.
    Final,
    /// None.
    Omit,
    /// Every chunk, and none at the end.
    Running,
}

impl UsagePolicy {
    /// Whether chunks of text carry usage.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Continuous | Self::Running)
    }

    /// Whether the stream ends with a chunk of usage.
    pub fn is_told_at_end(self) -> bool {
        matches!(self, Self::Continuous | Self::Final)
    }
}

impl From<StreamOptions> for UsagePolicy {
    /// What a server does that sends no usage without `include_usage`.
    fn from(options: StreamOptions) -> Self {
        match (options.include_usage, options.continuous_usage_stats) {
            (Some(true), true) => Self::Continuous,
            (Some(true), false) => Self::Final,
            _ => Self::Omit,
        }
    }
}

/// Sampling parameters, as far as they change the answer or are checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling<'a> {
    /// `frequency_penalty`
    pub frequency_penalty: f64,
    /// `ignore_eos`
    pub ignore_eos: bool,
    /// `include_stop_str_in_output`
    pub include_stop_str_in_output: bool,
    /// `logit_bias`: its keys
    pub logit_bias: Vec<Cow<'a, str>>,
    /// `max_completion_tokens`, else `max_tokens`, with the name that was used.
    pub max_tokens: Option<(&'static str, i128)>,
    /// Likeliest tokens to list with each sampled one, if probabilities are asked for.
    pub logprobs: Option<i128>,
    /// `min_p`
    pub min_p: f64,
    /// `min_tokens`
    pub min_tokens: i128,
    /// `n`
    pub n: i128,
    /// `presence_penalty`
    pub presence_penalty: f64,
    /// `prompt_logprobs`
    pub prompt_logprobs: Option<i128>,
    /// `repetition_penalty`
    pub repetition_penalty: f64,
    /// `skip_special_tokens`
    pub skip_special_tokens: bool,
    /// `stop`
    pub stop: Vec<Cow<'a, str>>,
    /// `stop_token_ids`
    pub stop_token_ids: Vec<u32>,
    /// `temperature`
    pub temperature: f64,
    /// `top_k`
    pub top_k: i128,
    /// `top_p`
    pub top_p: f64,
}

impl Default for Sampling<'_> {
    fn default() -> Self {
        Self {
            frequency_penalty: 0.0,
            ignore_eos: false,
            include_stop_str_in_output: false,
            logit_bias: Vec::new(),
            logprobs: None,
            max_tokens: None,
            min_p: 0.0,
            min_tokens: 0,
            n: 1,
            presence_penalty: 0.0,
            prompt_logprobs: None,
            repetition_penalty: 1.0,
            skip_special_tokens: true,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
        }
    }
}

impl<'a> Request<'a> {
    /// A request that says nothing.
    fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            model: None,
            prompt: Prompt::Texts(Vec::new()),
            sampling: Sampling::default(),
            top_logprobs: None,
            parallel_tool_calls: true,
            tokens_as_ids: None,
            stream: false,
            stream_options: StreamOptions::default(),
            stream_interval: None,
            template: TemplateOptions {
                add_generation_prompt: true,
                continue_final_message: false,
                kwargs: Vec::new(),
                tool_choice: None,
                tools: None,
                shown_tools: None,
                has_own_template: false,
            },
            echo: false,
            include_reasoning: true,
            return_token_ids: false,
            return_prompt_text: false,
            request_id: None,
            suffix: None,
            output_mode: None,
            wishes: None,
        }
    }

    /// The answer length asked for, where there is none the endpoint's own. An echo without an answer
    /// generates a token that does not show.
    pub fn max_tokens(&self) -> Option<i128> {
        let asked = self.sampling.max_tokens.map(|(_, asked)| asked);
        match self.endpoint {
            Endpoint::Chat => asked,
            Endpoint::Completions if self.output_mode.is_some() => asked,
            Endpoint::Completions if self.echoes_alone() => Some(1),
            Endpoint::Completions => asked.or(Some(16)),
            Endpoint::Generate => asked.or(Some(128)),
        }
    }

    /// A completion that says the prompt again and nothing else.
    pub fn echoes_alone(&self) -> bool {
        let asked = self.sampling.max_tokens.map(|(_, asked)| asked);
        self.endpoint == Endpoint::Completions && self.echo && asked == Some(0)
    }

    /// Takes a request out of a body that its dialect's schema has accepted.
    pub fn from_checked(endpoint: Endpoint, members: Object<'a>) -> Self {
        let mut request = Self::new(endpoint);
        for (name, value) in members.0 {
            if !matches!(value, Json::Null) {
                request.take(&name, value);
            }
        }
        let sampling = &mut request.sampling;
        sampling.logprobs = sampling
            .logprobs
            .map(|own| request.top_logprobs.unwrap_or(own));
        if request.echo && sampling.prompt_logprobs.is_none() {
            // An echoed prompt has probabilities: of a chat always, of a completion if asked for.
            sampling.prompt_logprobs = match endpoint {
                Endpoint::Chat => Some(request.top_logprobs.unwrap_or(0)),
                Endpoint::Completions | Endpoint::Generate => sampling.logprobs,
            };
        }
        request
    }

    fn take(&mut self, name: &str, value: Json<'a>) {
        let flag = |value| schema::bool(&value).unwrap_or_default();
        match (self.endpoint, name) {
            (Endpoint::Chat, "logprobs") => {
                if flag(value) {
                    self.sampling.logprobs.get_or_insert(0);
                } else {
                    self.sampling.logprobs = None;
                }
            }
            (Endpoint::Chat, "top_logprobs") => self.top_logprobs = schema::int(&value).ok(),
            (Endpoint::Completions, "logprobs") => {
                self.sampling.logprobs = schema::int(&value).ok();
            }
            (Endpoint::Chat, "messages") => self.prompt = Prompt::Messages(messages(value)),
            (Endpoint::Completions | Endpoint::Generate, "prompt") => self.prompt = prompt(value),
            (_, "model") => self.model = text(value),
            (_, "request_id") => self.request_id = text(value),
            (_, "stream") => self.stream = flag(value),
            (_, "stream_options") => self.stream_options = stream_options(&value),
            (_, "stream_interval") => {
                let interval = schema::int(&value).ok().map(u32::try_from);
                self.stream_interval = interval.and_then(Result::ok);
            }
            (_, "echo") => self.echo = flag(value),
            (Endpoint::Completions, "suffix") => self.suffix = text(value),
            (Endpoint::Chat, "parallel_tool_calls") => self.parallel_tool_calls = flag(value),
            (_, "return_tokens_as_token_ids") => self.tokens_as_ids = Some(flag(value)),
            (_, "return_token_ids") => self.return_token_ids = flag(value),
            (Endpoint::Chat, "return_prompt_text") => self.return_prompt_text = flag(value),
            (Endpoint::Chat, "include_reasoning") => self.include_reasoning = flag(value),
            (Endpoint::Chat, _) if self.template.take(name, &value) => {}
            _ => self.sampling.take(name, value),
        }
    }
}

impl<'a> TemplateOptions<'a> {
    /// Names of the functions that may be called.
    pub fn tool_names(&self) -> Vec<&str> {
        let Some(Json::Array(tools)) = &self.tools else {
            return Vec::new();
        };
        let names = tools.iter().filter_map(|tool| {
            let function = tool.as_object()?.get("function")?.as_object()?;
            function.get("name")?.as_str()
        });
        names.collect()
    }

    /// Takes a member if it is for the template.
    fn take(&mut self, name: &str, value: &Json<'a>) -> bool {
        match name {
            "add_generation_prompt" => {
                self.add_generation_prompt = schema::bool(value).unwrap_or(true);
            }
            "continue_final_message" => {
                self.continue_final_message = schema::bool(value).unwrap_or(false);
            }
            "chat_template" => self.has_own_template = true,
            "chat_template_kwargs" => {
                let members = value.as_object().cloned().unwrap_or_default();
                self.has_own_template |= members.get("chat_template").is_some();
                self.kwargs.extend(members.0);
            }
            "reasoning_effort" => {
                if value.as_str() == Some("none") {
                    let disabled = ("enable_thinking".into(), Json::Bool(false));
                    self.kwargs.insert(0, disabled);
                }
                self.kwargs
                    .insert(0, ("reasoning_effort".into(), value.clone()));
            }
            "tool_choice" => self.tool_choice = tool_choice(value),
            "tools" => self.tools = Some(value.clone()),
            _ => return false,
        }
        true
    }
}

impl<'a> Sampling<'a> {
    /// Choices of each prompt, at least 1.
    pub fn choices(&self) -> usize {
        usize::try_from(self.n).unwrap_or(1).max(1)
    }

    fn take(&mut self, name: &str, value: Json<'a>) {
        let flag = || schema::bool(&value).unwrap_or_default();
        let float = || schema::float(&value).unwrap_or_default();
        let int = || schema::int(&value).unwrap_or_default();
        match name {
            "frequency_penalty" => self.frequency_penalty = float(),
            "ignore_eos" => self.ignore_eos = flag(),
            "include_stop_str_in_output" => self.include_stop_str_in_output = flag(),
            "logit_bias" => {
                if let Json::Object(members) = value {
                    self.logit_bias = members.0.into_iter().map(|(key, _)| key).collect();
                }
            }
            "max_completion_tokens" => self.max_tokens = Some(("max_completion_tokens", int())),
            "max_tokens" => {
                self.max_tokens.get_or_insert_with(|| ("max_tokens", int()));
            }
            "min_p" => self.min_p = float(),
            "min_tokens" => self.min_tokens = int(),
            "n" => self.n = int(),
            "presence_penalty" => self.presence_penalty = float(),
            "prompt_logprobs" => self.prompt_logprobs = Some(int()),
            "repetition_penalty" => self.repetition_penalty = float(),
            "skip_special_tokens" => self.skip_special_tokens = flag(),
            "stop" => self.stop = texts(value),
            "stop_token_ids" => self.stop_token_ids = ids(&value),
            "temperature" => self.temperature = float(),
            "top_k" => self.top_k = int(),
            "top_p" => self.top_p = float(),
            _ => {}
        }
    }
}

fn tool_choice<'a>(value: &Json<'a>) -> Option<ToolChoice<'a>> {
    match value {
        Json::Object(choice) => {
            let name = choice.get("function")?.as_object()?.get("name")?;
            Some(ToolChoice::Named(text(name.clone())?))
        }
        value => match value.as_str()? {
            "auto" => Some(ToolChoice::Auto),
            "required" => Some(ToolChoice::Required),
            _ => None,
        },
    }
}

fn stream_options(value: &Json<'_>) -> StreamOptions {
    let flag = |name| {
        let value = value.as_object()?.get(name)?;
        schema::bool(value).ok()
    };
    StreamOptions {
        include_usage: flag("include_usage"),
        continuous_usage_stats: flag("continuous_usage_stats").unwrap_or(false),
    }
}

/// A string's text, as far as it is one.
pub(crate) fn text(value: Json<'_>) -> Option<Cow<'_, str>> {
    match value {
        Json::String(text) => Some(text),
        Json::Surrogates(text) => Some(text.into()),
        _ => None,
    }
}

fn texts(value: Json<'_>) -> Vec<Cow<'_, str>> {
    match value {
        Json::Array(items) => items.into_iter().filter_map(text).collect(),
        value => text(value).into_iter().collect(),
    }
}

fn ids(value: &Json<'_>) -> Vec<u32> {
    let Json::Array(items) = value else {
        return Vec::new();
    };
    // What is below zero is beyond every vocabulary, and is told as it came by servers of signed ids.
    let signed = |id| i32::try_from(id).map(i32::cast_unsigned);
    let id = |item| {
        let id = schema::int(item).ok()?;
        Some(
            u32::try_from(id)
                .or_else(|_| signed(id))
                .unwrap_or(u32::MAX),
        )
    };
    items.iter().filter_map(id).collect()
}

fn prompt(value: Json<'_>) -> Prompt<'_> {
    match &value {
        Json::Array(items) => match items.first() {
            Some(Json::Array(_)) => Prompt::Ids(items.iter().map(ids).collect()),
            Some(Json::Bool(_) | Json::Number(_)) => Prompt::Ids(vec![ids(&value)]),
            _ => Prompt::Texts(texts(value)),
        },
        _ => Prompt::Texts(texts(value)),
    }
}

fn messages(value: Json<'_>) -> Vec<Message<'_>> {
    let Json::Array(items) = value else {
        return Vec::new();
    };
    items.into_iter().filter_map(message).collect()
}

fn message(value: Json<'_>) -> Option<Message<'_>> {
    let Json::Object(members) = value else {
        return None;
    };
    let mut message = Message {
        role: "".into(),
        content: "".into(),
        rest: Vec::new(),
        media: None,
        has_surrogates: false,
    };
    for (name, value) in members.0 {
        match &*name {
            "role" => message.role = text(value).unwrap_or_default(),
            "content" => message.take_content(value),
            "reasoning_content" => message.rest.push(("reasoning".into(), value)),
            _ => message.rest.push((name, value)),
        }
    }
    if message.role == "developer" {
        message.role = "system".into();
    }
    Some(message)
}

impl<'a> Message<'a> {
    fn take_content(&mut self, value: Json<'a>) {
        let Json::Array(parts) = value else {
            self.has_surrogates |= matches!(value, Json::Surrogates(_));
            self.content = text(value).unwrap_or_default();
            return;
        };
        let mut texts = Vec::new();
        for part in parts {
            let mut media = None;
            let kind = |members: &Object<'a>| members.get("type").cloned().and_then(text);
            let found = match part {
                Json::Object(members) => {
                    media = kind(&members);
                    let mut members = members.0.into_iter();
                    members.rfind(|(name, _)| matches!(&**name, "refusal" | "text"))
                }
                part => Some(("text".into(), part)),
            };
            let Some((_, value)) = found else {
                self.media = Some(media.unwrap_or_default());
                continue;
            };
            self.has_surrogates |= matches!(value, Json::Surrogates(_));
            texts.extend(text(value));
        }
        self.content = match texts.len() {
            1 => texts.remove(0),
            _ => texts.join("\n").into(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(endpoint: Endpoint, body: &str) -> Request<'_> {
        let Json::Object(members) = Json::parse(body.as_bytes()).unwrap() else {
            panic!("the body is an object");
        };
        Request::from_checked(endpoint, members)
    }

    #[test]
    fn the_last_user_message_decides() {
        let body = r#"{"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}]},{"role":"assistant","content":"d"}]}"#;
        let request = request(Endpoint::Chat, body);
        assert_eq!(request.prompt.decisive_text(), Some("b\nc"));
    }

    #[test]
    fn max_completion_tokens_wins_in_any_order() {
        for body in [
            r#"{"max_tokens":9,"max_completion_tokens":5}"#,
            r#"{"max_completion_tokens":"5","max_tokens":9}"#,
        ] {
            let request = request(Endpoint::Chat, body);
            assert_eq!(
                request.sampling.max_tokens,
                Some(("max_completion_tokens", 5))
            );
        }
    }

    #[test]
    fn prompts_of_each_form_are_read() {
        let ids = |body| match request(Endpoint::Completions, body).prompt {
            Prompt::Ids(ids) => ids,
            other => panic!("{other:?}"),
        };
        assert_eq!(ids(r#"{"prompt":[1,2]}"#), [vec![1, 2]]);
        assert_eq!(ids(r#"{"prompt":[[1],[2,3]]}"#), [vec![1], vec![2, 3]]);
        let texts = request(Endpoint::Completions, r#"{"prompt":["a","b"]}"#).prompt;
        assert!(matches!(texts, Prompt::Texts(texts) if texts == ["a", "b"]));
    }

    #[test]
    fn usage_policy_follows_include_usage() {
        for (options, expected) in [
            ("null", UsagePolicy::Omit),
            ("{}", UsagePolicy::Omit),
            (r#"{"include_usage":false}"#, UsagePolicy::Omit),
            (r#"{"continuous_usage_stats":true}"#, UsagePolicy::Omit),
            (r#"{"include_usage":true}"#, UsagePolicy::Final),
            (
                r#"{"include_usage":true,"continuous_usage_stats":true}"#,
                UsagePolicy::Continuous,
            ),
        ] {
            let body = format!(r#"{{"stream_options":{options}}}"#);
            let policy = UsagePolicy::from(request(Endpoint::Chat, &body).stream_options);
            assert_eq!(policy, expected, "{options}");
        }
    }
}
