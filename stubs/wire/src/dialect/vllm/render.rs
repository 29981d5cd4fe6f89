//! `/v1/chat/completions/render` and `/v1/completions/render`: what would be asked of
//! `/inference/v1/generate`.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::dialect::key::Key;
use crate::json::{Json, Object};
use crate::request::{Endpoint, OutputMode, Request, StreamOptions};
use crate::schema as pydantic;

use super::Profile;

/// A rendered prompt.
#[derive(Clone, Copy, Debug)]
pub struct Render<'a> {
    /// `request_id`
    pub request_id: &'a str,
    /// What was asked.
    pub request: &'a Request<'a>,
    /// The same as it was sent.
    pub members: &'a Object<'a>,
    /// The prompt.
    pub token_ids: &'a [u32],
    /// Longest answer in tokens, if there is a limit.
    pub max_tokens: Option<u64>,
}

/// Appends the JSON of the one prompt of a chat, or the list of those of a completion.
pub(crate) fn encode(profile: &Profile, renders: &[Render<'_>], out: &mut Vec<u8>) {
    let rendered = |render| Rendered::new(profile, render);
    let renders: Vec<Rendered<'_>> = renders.iter().map(rendered).collect();
    match &renders[..] {
        [render] if render.is_chat => serde_json::to_writer(out, render),
        renders => serde_json::to_writer(out, renders),
    }
    .expect("strings and numbers encode");
}

#[derive(Serialize)]
struct Rendered<'a> {
    #[serde(skip)]
    is_chat: bool,
    request_id: &'a str,
    token_ids: &'a [u32],
    token_offsets: (),
    features: (),
    content_parts: (),
    sampling_params: SamplingParams<'a>,
    model: Option<&'a str>,
    reasoning_ended: (),
    reasoning_parser_kwargs: (),
    return_token_ids: (),
    output_mode: OutputMode,
    #[serde(skip_serializing_if = "Key::is_absent")]
    parse_context: Key<ParseContext<'a>>,
    stream: bool,
    stream_options: Option<RenderedStreamOptions>,
    cache_salt: Option<&'a Json<'a>>,
    priority: i128,
    kv_transfer_params: (),
    ec_transfer_params: (),
}

impl<'a> Rendered<'a> {
    fn new(profile: &Profile, render: &Render<'a>) -> Self {
        let Render {
            request, members, ..
        } = *render;
        let is_chat = request.endpoint == Endpoint::Chat;
        let context = is_chat.then(|| ParseContext::new(request, members));
        let options = members.get("stream_options").and_then(Json::as_object);
        Self {
            is_chat,
            request_id: render.request_id,
            token_ids: render.token_ids,
            token_offsets: (),
            features: (),
            content_parts: (),
            sampling_params: SamplingParams::new(render),
            model: request.model.as_deref(),
            reasoning_ended: (),
            reasoning_parser_kwargs: (),
            return_token_ids: (),
            output_mode: OutputMode::Tokens,
            parse_context: Key::when(profile.renders_parse_context, context),
            stream: request.stream,
            stream_options: options
                .filter(|_| request.stream)
                .map(|_| request.stream_options.into()),
            cache_salt: members.get("cache_salt"),
            priority: int(members, "priority").unwrap_or(0),
            kv_transfer_params: (),
            ec_transfer_params: (),
        }
    }
}

fn int(members: &Object<'_>, name: &str) -> Option<i128> {
    pydantic::int(members.get(name)?).ok()
}

#[derive(Serialize)]
struct RenderedStreamOptions {
    include_usage: bool,
    continuous_usage_stats: bool,
}

impl From<StreamOptions> for RenderedStreamOptions {
    fn from(options: StreamOptions) -> Self {
        Self {
            include_usage: options.include_usage.unwrap_or(true),
            continuous_usage_stats: options.continuous_usage_stats,
        }
    }
}

/// `sampling_params`: whole numbers and flags are left out where they are the engine's default.
#[derive(Serialize)]
struct SamplingParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<i128>,
    presence_penalty: f64,
    frequency_penalty: f64,
    repetition_penalty: f64,
    temperature: f64,
    top_p: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<i128>,
    min_p: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i128>,
    stop: Vec<&'a str>,
    stop_token_ids: &'a [u32],
    #[serde(skip_serializing_if = "Option::is_none")]
    ignore_eos: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_tokens: Option<i128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<i128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<i128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_special_tokens: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    include_stop_str_in_output: Option<bool>,
    output_kind: u8,
    skip_clone: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_text_buffer_length: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logit_bias: Option<&'a Json<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_token_ids: Option<&'a Json<'a>>,
    bad_words: BadWords<'a>,
    skip_reading_prefix_cache: bool,
}

/// `RequestOutputKind.DELTA` and `FINAL_ONLY`
const DELTA: u8 = 1;
const FINAL_ONLY: u8 = 2;
/// Below it the likeliest token is taken, and what narrows the choice is reset.
const GREEDY: f64 = 1e-5;
/// The engine's own `max_tokens`.
const MAX_TOKENS: u64 = 16;

impl<'a> SamplingParams<'a> {
    fn new(render: &Render<'a>) -> Self {
        let Render {
            request, members, ..
        } = *render;
        let sampling = &request.sampling;
        let given = |name| members.get(name).filter(|value| **value != Json::Null);
        let is_greedy = sampling.temperature < GREEDY;
        let longest = sampling.stop.iter().map(|stop| stop.chars().count()).max();
        let held = longest
            .filter(|_| !sampling.include_stop_str_in_output)
            .map_or(0, |longest| longest.saturating_sub(1));
        Self {
            n: unless(sampling.n, 1),
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            repetition_penalty: sampling.repetition_penalty,
            temperature: sampling.temperature,
            top_p: if is_greedy { 1.0 } else { sampling.top_p },
            top_k: unless(sampling.top_k, 0).filter(|_| !is_greedy),
            min_p: if is_greedy { 0.0 } else { sampling.min_p },
            seed: int(members, "seed"),
            stop: sampling.stop.iter().map(AsRef::as_ref).collect(),
            stop_token_ids: &sampling.stop_token_ids,
            ignore_eos: unless(sampling.ignore_eos, false),
            max_tokens: render.max_tokens.filter(|tokens| *tokens != MAX_TOKENS),
            min_tokens: unless(sampling.min_tokens, 0),
            logprobs: sampling.logprobs,
            prompt_logprobs: sampling.prompt_logprobs,
            skip_special_tokens: unless(sampling.skip_special_tokens, true),
            include_stop_str_in_output: unless(sampling.include_stop_str_in_output, false),
            output_kind: if request.stream { DELTA } else { FINAL_ONLY },
            skip_clone: true,
            output_text_buffer_length: unless(held, 0),
            logit_bias: given("logit_bias"),
            allowed_token_ids: given("allowed_token_ids"),
            bad_words: BadWords(members.get("bad_words")),
            skip_reading_prefix_cache: sampling.prompt_logprobs.is_some(),
        }
    }
}

fn unless<T: Copy + PartialEq>(value: T, default: T) -> Option<T> {
    (value != default).then_some(value)
}

/// `bad_words`, empty if there are none.
struct BadWords<'a>(Option<&'a Json<'a>>);

impl Serialize for BadWords<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(words) => words.serialize(serializer),
            None => serializer.collect_seq([(); 0]),
        }
    }
}

/// What a parser of the answer has to know of the chat.
#[derive(Serialize)]
struct ParseContext<'a> {
    tools: Option<&'a Json<'a>>,
    tool_choice: ToolChoice<'a>,
    parallel_tool_calls: bool,
    include_reasoning: bool,
    chat_template_kwargs: TemplateKwargs<'a>,
    history_tool_call_cnt: usize,
}

impl<'a> ParseContext<'a> {
    fn new(request: &'a Request<'a>, members: &'a Object<'a>) -> Self {
        let choice = members.get("tool_choice");
        let given = choice.filter(|choice| **choice != Json::Null);
        let calls = |message: &Json<'_>| match message.as_object()?.get("tool_calls")? {
            Json::Array(calls) => Some(calls.len()),
            _ => None,
        };
        let history = match members.get("messages") {
            Some(Json::Array(messages)) => messages.iter().filter_map(calls).sum(),
            _ => 0,
        };
        Self {
            tools: members.get("tools"),
            tool_choice: match given {
                Some(given) => ToolChoice::Given(given),
                None if request.template.tools.is_some() => ToolChoice::Word("auto"),
                None => ToolChoice::Word("none"),
            },
            parallel_tool_calls: request.parallel_tool_calls,
            include_reasoning: request.include_reasoning,
            chat_template_kwargs: TemplateKwargs(request),
            history_tool_call_cnt: history,
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum ToolChoice<'a> {
    Given(&'a Json<'a>),
    Word(&'static str),
}

/// `chat_template_kwargs` with vLLM's own.
struct TemplateKwargs<'a>(&'a Request<'a>);

impl Serialize for TemplateKwargs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let options = &self.0.template;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("cohere_format", "cmd4")?;
        map.serialize_entry("add_generation_prompt", &options.add_generation_prompt)?;
        map.serialize_entry("continue_final_message", &options.continue_final_message)?;
        for (name, value) in &options.kwargs {
            map.serialize_entry(&**name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::vllm::PROFILES;

    fn sampling_params(body: &str, max_tokens: u64) -> serde_json::Value {
        let Json::Object(members) = Json::parse(body.as_bytes()).unwrap() else {
            panic!("the body is an object");
        };
        let request = Request::from_checked(Endpoint::Completions, members.clone());
        let render = Render {
            request_id: "cmpl-1",
            request: &request,
            members: &members,
            token_ids: &[1],
            max_tokens: Some(max_tokens),
        };
        let mut out = Vec::new();
        encode(&PROFILES[0], &[render], &mut out);
        let rendered: serde_json::Value = serde_json::from_slice(&out).unwrap();
        rendered[0]["sampling_params"].clone()
    }

    #[test]
    fn defaults_that_are_whole_numbers_are_left_out() {
        let params = sampling_params(r#"{"n":1,"top_k":0,"seed":7,"temperature":1}"#, 16);
        for absent in ["n", "top_k", "max_tokens", "ignore_eos"] {
            assert_eq!(params.get(absent), None, "{absent}");
        }
        assert_eq!(
            (&params["seed"], &params["temperature"]),
            (&7.into(), &1.0.into())
        );
    }

    #[test]
    fn greedy_sampling_resets_what_narrows_the_choice() {
        let body = r#"{"temperature":0,"top_p":0.5,"top_k":3,"min_p":0.1,"stop":["END","s"]}"#;
        let params = sampling_params(body, 9);
        assert_eq!(
            (&params["top_p"], &params["min_p"]),
            (&1.0.into(), &0.0.into())
        );
        assert_eq!(params.get("top_k"), None);
        assert_eq!(params["output_text_buffer_length"], 2);
        assert_eq!(params["max_tokens"], 9);
    }
}
