//! The response object of `/v1/responses`.

use serde::Serialize;

use crate::dialect::key::Key;
use crate::dialect::responses::{Outline, OutputItem, Snapshot, Status};
use crate::json::Json;
use crate::usage::Usage;

use super::Profile;

/// The whole of it.
#[derive(Serialize)]
pub(crate) struct Response<'a> {
    id: &'a str,
    created_at: u64,
    incomplete_details: Option<IncompleteDetails>,
    instructions: Option<&'a Json<'a>>,
    metadata: Option<&'a Json<'a>>,
    model: &'a str,
    object: &'static str,
    output: Vec<OutputItem<'a>>,
    parallel_tool_calls: bool,
    temperature: f64,
    tool_choice: Option<&'a Json<'a>>,
    tools: Vec<Tool<'a>>,
    top_p: f64,
    background: bool,
    max_output_tokens: Option<u64>,
    max_tool_calls: Option<&'a Json<'a>>,
    previous_response_id: Option<&'a Json<'a>>,
    prompt: (),
    #[serde(skip_serializing_if = "Key::is_absent")]
    prompt_cache_options: Key<&'a Json<'a>>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    prompt_cache_key: Key<&'a Json<'a>>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    prompt_cache_retention: Key<&'a Json<'a>>,
    reasoning: Option<&'a Json<'a>>,
    #[serde(skip_serializing_if = "Key::is_absent")]
    safety_identifier: Key<&'a Json<'a>>,
    service_tier: Word<'a>,
    status: Status,
    text: Option<&'a Json<'a>>,
    top_logprobs: Option<i128>,
    truncation: Word<'a>,
    usage: Option<ResponseUsage>,
    user: Option<&'a Json<'a>>,
    presence_penalty: f64,
    frequency_penalty: f64,
    kv_transfer_params: (),
    ec_transfer_params: (),
    input_messages: (),
    output_messages: (),
}

/// A word of the request, or what stands where it has none.
#[derive(Serialize)]
#[serde(untagged)]
enum Word<'a> {
    Default(&'static str),
    Given(&'a Json<'a>),
}

#[derive(Serialize)]
struct IncompleteDetails {
    reason: &'static str,
}

impl<'a> Response<'a> {
    pub(crate) fn new(
        profile: &Profile,
        outline: &'a Outline<'_>,
        snapshot: &Snapshot<'a>,
    ) -> Self {
        let echoed = outline.echoed;
        let given = |name| echoed.get(name);
        let cache_key = |name| Key::when(profile.has_prompt_cache_keys, given(name));
        let word = |name, default| given(name).map_or(Word::Default(default), Word::Given);
        let items = snapshot.output.iter();
        let spelling = profile.responses();
        Self {
            id: &outline.id,
            created_at: outline.created_at,
            incomplete_details: (snapshot.status == Status::Incomplete).then_some(
                IncompleteDetails {
                    reason: "max_output_tokens",
                },
            ),
            instructions: given("instructions"),
            metadata: given("metadata"),
            model: outline.model,
            object: "response",
            output: items.map(|item| OutputItem::new(spelling, item)).collect(),
            parallel_tool_calls: echoed.flag("parallel_tool_calls", true),
            temperature: outline.sampling.temperature,
            tool_choice: given("tool_choice"),
            tools: echoed.items("tools").iter().map(Tool::new).collect(),
            top_p: outline.sampling.top_p,
            background: echoed.flag("background", false),
            max_output_tokens: outline.max_output_tokens,
            max_tool_calls: given("max_tool_calls"),
            previous_response_id: given("previous_response_id"),
            prompt: (),
            prompt_cache_options: cache_key("prompt_cache_options"),
            prompt_cache_key: cache_key("prompt_cache_key"),
            prompt_cache_retention: cache_key("prompt_cache_retention"),
            reasoning: given("reasoning"),
            safety_identifier: cache_key("safety_identifier"),
            service_tier: word("service_tier", "auto"),
            status: snapshot.status,
            text: given("text"),
            top_logprobs: outline.sampling.logprobs,
            truncation: word("truncation", "disabled"),
            usage: snapshot.usage.map(ResponseUsage::from),
            user: given("user"),
            presence_penalty: outline.sampling.presence_penalty,
            frequency_penalty: outline.sampling.frequency_penalty,
            kv_transfer_params: (),
            ec_transfer_params: (),
            input_messages: (),
            output_messages: (),
        }
    }
}

/// A tool of the request: of a function every key, the others as they came.
#[derive(Serialize)]
#[serde(untagged)]
enum Tool<'a> {
    Function(FunctionTool<'a>),
    Other(&'a Json<'a>),
}

#[derive(Serialize)]
struct FunctionTool<'a> {
    name: Option<&'a Json<'a>>,
    parameters: Option<&'a Json<'a>>,
    strict: Option<&'a Json<'a>>,
    #[serde(rename = "type")]
    kind: &'static str,
    allowed_callers: Option<&'a Json<'a>>,
    r#async: Option<&'a Json<'a>>,
    defer_loading: Option<&'a Json<'a>>,
    description: Option<&'a Json<'a>>,
    output_schema: Option<&'a Json<'a>>,
}

impl<'a> Tool<'a> {
    fn new(tool: &'a Json<'a>) -> Self {
        let get = |name| tool.as_object().and_then(|tool| tool.get(name));
        if get("type").and_then(Json::as_str) != Some("function") {
            return Self::Other(tool);
        }
        Self::Function(FunctionTool {
            name: get("name"),
            parameters: get("parameters"),
            strict: get("strict"),
            kind: "function",
            allowed_callers: get("allowed_callers"),
            r#async: get("async"),
            defer_loading: get("defer_loading"),
            description: get("description"),
            output_schema: get("output_schema"),
        })
    }
}

#[derive(Serialize)]
struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: InputTokensDetails,
    output_tokens: u64,
    output_tokens_details: OutputTokensDetails,
    total_tokens: u64,
}

#[derive(Serialize)]
struct InputTokensDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
    input_tokens_per_turn: [(); 0],
    cached_tokens_per_turn: [(); 0],
}

#[derive(Serialize)]
struct OutputTokensDetails {
    reasoning_tokens: u64,
    tool_output_tokens: u64,
    output_tokens_per_turn: [(); 0],
    tool_output_tokens_per_turn: [(); 0],
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        let cache = usage.cache.unwrap_or_default();
        Self {
            input_tokens: usage.prompt_tokens.unwrap_or(0),
            input_tokens_details: InputTokensDetails {
                cached_tokens: cache.cached,
                cache_write_tokens: cache.created.unwrap_or(0),
                input_tokens_per_turn: [],
                cached_tokens_per_turn: [],
            },
            output_tokens: usage.completion_tokens.unwrap_or(0),
            output_tokens_details: OutputTokensDetails {
                reasoning_tokens: usage.reasoning_tokens.unwrap_or(0),
                tool_output_tokens: 0,
                output_tokens_per_turn: [],
                tool_output_tokens_per_turn: [],
            },
            total_tokens: usage.total_tokens().unwrap_or(0),
        }
    }
}
