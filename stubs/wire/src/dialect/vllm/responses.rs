//! What `/v1/responses` answers: the response object and the events of its stream.

use serde::Serialize;

use crate::chunk::TokenLogprob;
use crate::dialect::key::Key;
use crate::json::Json;
use crate::request::Sampling;
use crate::usage::Usage;

use super::Profile;
use super::logprobs::ResponseToken;
use super::responses_request::Echoed;

/// What stays the same in all objects of one response.
#[derive(Clone, Debug)]
pub struct Outline<'a> {
    /// `created_at`, in seconds.
    pub created_at: u64,
    /// What the request says and the answer repeats.
    pub echoed: &'a Echoed<'a>,
    /// `id`
    pub id: String,
    /// Tokens that the answer may have, if there is a limit.
    pub max_output_tokens: Option<u64>,
    /// `model`
    pub model: &'a str,
    /// The request's sampling.
    pub sampling: &'a Sampling<'a>,
}

/// How far a response has come.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// `output`
    pub output: &'a [Item],
    /// `status`
    pub status: Status,
    /// `usage`, at the end.
    pub usage: Option<Usage>,
}

/// How far a response or one of its items has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is there.
    Completed,
    /// A limit cut it.
    Incomplete,
    /// More is to come.
    InProgress,
}

/// An item of a response's output.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// `id`
    pub id: String,
    /// What it is.
    pub kind: ItemKind,
    /// Those of a message's tokens, if they are asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// `status`; null for reasoning that was not streamed.
    pub status: Option<Status>,
    /// The text, or the arguments of a call.
    pub text: String,
}

/// What an item is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ItemKind {
    /// `function_call`
    Call {
        /// `call_id`
        call_id: String,
        /// `name`
        name: String,
    },
    /// `message`
    Message,
    /// `reasoning`
    Reasoning,
}

impl ItemKind {
    /// The item's id for 64 random bits.
    pub fn id(&self, random: u64) -> String {
        let prefix = match self {
            Self::Call { .. } => "fc",
            Self::Message => "msg",
            Self::Reasoning => "rs",
        };
        format!("{prefix}_{random:016x}")
    }

    /// Its text stands in a content part.
    pub fn has_parts(&self) -> bool {
        !matches!(self, Self::Call { .. })
    }
}

/// An event of a streamed response as a whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// `response.created`
    Created,
    /// `response.completed` or `response.incomplete`
    Ended,
    /// `response.in_progress`
    InProgress,
}

/// An event of an item of a streamed response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'e> {
    /// The next piece of its text, with the logprobs that belong to a message's.
    Delta(&'e str, &'e [TokenLogprob]),
    /// `response.output_item.added`
    ItemAdded,
    /// `response.output_item.done`
    ItemDone,
    /// `response.content_part.added`
    PartAdded,
    /// `response.content_part.done`
    PartDone,
    /// Its text is there.
    TextDone,
}

/// Where an event stands in its stream.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// `output_index`: the item's number.
    pub output_index: usize,
    /// `sequence_number`: the event's own.
    pub sequence_number: u64,
}

/// The id of a response for 64 random bits.
pub(crate) fn id(random: u64) -> String {
    format!("resp_{random:016x}")
}

/// Appends the JSON of a whole response.
pub(crate) fn encode(
    profile: &Profile,
    outline: &Outline<'_>,
    snapshot: &Snapshot<'_>,
    out: &mut Vec<u8>,
) {
    write(out, &Response::new(profile, outline, snapshot));
}

/// Appends an event of the response as a whole, its name included.
pub(crate) fn encode_progress(
    profile: &Profile,
    outline: &Outline<'_>,
    progress: Progress,
    snapshot: &Snapshot<'_>,
    sequence_number: u64,
    out: &mut Vec<u8>,
) {
    let is_cut = snapshot.status == Status::Incomplete;
    let kind = match progress {
        Progress::Created => "response.created",
        Progress::Ended if is_cut && profile.tells_incomplete => "response.incomplete",
        Progress::Ended => "response.completed",
        Progress::InProgress => "response.in_progress",
    };
    let event = ResponseEvent {
        response: Response::new(profile, outline, snapshot),
        sequence_number,
        kind,
    };
    write_event(kind, &event, out);
}

/// Appends an event of an item, its name included.
pub(crate) fn encode_event(
    profile: &Profile,
    item: &Item,
    event: Event<'_>,
    place: Place,
    out: &mut Vec<u8>,
) {
    let kind = item.kind.event_name(event);
    let Place {
        output_index,
        sequence_number,
    } = place;
    match event {
        Event::ItemAdded | Event::ItemDone => {
            let event = ItemEvent {
                item: OutputItem::new(profile, item),
                output_index,
                sequence_number,
                kind,
            };
            write_event(kind, &event, out);
        }
        Event::PartAdded | Event::PartDone => {
            let event = PartEvent {
                content_index: 0,
                item_id: &item.id,
                output_index,
                part: Part::of(item, event == Event::PartAdded),
                sequence_number,
                kind,
            };
            write_event(kind, &event, out);
        }
        Event::Delta(text, logprobs) => text_event(item, Some(text), logprobs, place, kind, out),
        Event::TextDone => text_event(item, None, &[], place, kind, out),
    }
}

fn write_event(name: &str, event: &impl Serialize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    write(out, event);
    out.extend_from_slice(b"\n\n");
}

/// An event of an item's text: a piece of it, or all at its end.
fn text_event(
    item: &Item,
    delta: Option<&str>,
    logprobs: &[TokenLogprob],
    place: Place,
    kind: &'static str,
    out: &mut Vec<u8>,
) {
    let text = delta.is_none().then_some(&*item.text);
    if let ItemKind::Call { name, .. } = &item.kind {
        let event = ArgumentsEvent {
            arguments: text,
            delta,
            item_id: &item.id,
            output_index: place.output_index,
            sequence_number: place.sequence_number,
            kind,
            name: text.map(|_| &**name),
        };
        return write_event(kind, &event, out);
    }
    let event = TextEvent {
        content_index: 0,
        delta,
        item_id: &item.id,
        logprobs: (item.kind == ItemKind::Message).then(|| ResponseToken::list(logprobs, true)),
        output_index: place.output_index,
        sequence_number: place.sequence_number,
        text,
        kind,
    };
    write_event(kind, &event, out);
}

impl ItemKind {
    fn event_name(&self, event: Event<'_>) -> &'static str {
        match (event, self) {
            (Event::Delta(..), Self::Call { .. }) => "response.function_call_arguments.delta",
            (Event::Delta(..), Self::Message) => "response.output_text.delta",
            (Event::Delta(..), Self::Reasoning) => "response.reasoning_text.delta",
            (Event::ItemAdded, _) => "response.output_item.added",
            (Event::ItemDone, _) => "response.output_item.done",
            (Event::PartAdded, _) => "response.content_part.added",
            (Event::PartDone, _) => "response.content_part.done",
            (Event::TextDone, Self::Call { .. }) => "response.function_call_arguments.done",
            (Event::TextDone, Self::Message) => "response.output_text.done",
            (Event::TextDone, Self::Reasoning) => "response.reasoning_text.done",
        }
    }
}

fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("strings and numbers encode");
}

#[derive(Serialize)]
struct ResponseEvent<'a> {
    response: Response<'a>,
    sequence_number: u64,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct ItemEvent<'a> {
    item: OutputItem<'a>,
    output_index: usize,
    sequence_number: u64,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct PartEvent<'a> {
    content_index: u32,
    item_id: &'a str,
    output_index: usize,
    part: Part<'a>,
    sequence_number: u64,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct TextEvent<'a> {
    content_index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    item_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<ResponseToken<'a>>>,
    output_index: usize,
    sequence_number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct ArgumentsEvent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<&'a str>,
    item_id: &'a str,
    output_index: usize,
    sequence_number: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

#[derive(Serialize)]
struct Response<'a> {
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
    fn new(profile: &Profile, outline: &'a Outline<'_>, snapshot: &Snapshot<'a>) -> Self {
        let echoed = outline.echoed;
        let given = |name| echoed.get(name);
        let cache_key = |name| Key::when(profile.has_prompt_cache_keys, given(name));
        let word = |name, default| given(name).map_or(Word::Default(default), Word::Given);
        let items = snapshot.output.iter();
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
            output: items.map(|item| OutputItem::new(profile, item)).collect(),
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

#[derive(Serialize)]
#[serde(untagged)]
enum OutputItem<'a> {
    Call {
        arguments: &'a str,
        call_id: &'a str,
        name: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
        id: &'a str,
        r#async: (),
        caller: (),
        namespace: (),
        status: Option<Status>,
    },
    Message {
        id: &'a str,
        content: Vec<Part<'a>>,
        role: &'static str,
        status: Option<Status>,
        #[serde(rename = "type")]
        kind: &'static str,
        phase: (),
    },
    Reasoning {
        id: &'a str,
        summary: [(); 0],
        #[serde(rename = "type")]
        kind: &'static str,
        content: Option<[Part<'a>; 1]>,
        encrypted_content: (),
        status: Option<Status>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Output {
        annotations: [(); 0],
        text: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
        logprobs: Option<Vec<ResponseToken<'a>>>,
    },
    Reasoning {
        text: &'a str,
        #[serde(rename = "type")]
        kind: &'static str,
    },
}

impl<'a> OutputItem<'a> {
    fn new(profile: &Profile, item: &'a Item) -> Self {
        let is_new = item.status == Some(Status::InProgress);
        let part = (!is_new).then(|| Part::of(item, false));
        let status = match item.status {
            Some(Status::Incomplete) if !profile.tells_incomplete => Some(Status::Completed),
            status => status,
        };
        match &item.kind {
            ItemKind::Call { call_id, name } => Self::Call {
                arguments: &item.text,
                call_id,
                name,
                kind: "function_call",
                id: &item.id,
                r#async: (),
                caller: (),
                namespace: (),
                status,
            },
            ItemKind::Message => Self::Message {
                id: &item.id,
                content: part.into_iter().collect(),
                role: "assistant",
                status,
                kind: "message",
                phase: (),
            },
            ItemKind::Reasoning => Self::Reasoning {
                id: &item.id,
                summary: [],
                kind: "reasoning",
                content: part.map(|part| [part]),
                encrypted_content: (),
                status,
            },
        }
    }
}

impl<'a> Part<'a> {
    /// The item's one part; a new one says that it will have logprobs, though others may have none.
    fn of(item: &'a Item, is_new: bool) -> Self {
        let text = if is_new { "" } else { &item.text };
        if item.kind == ItemKind::Reasoning {
            return Self::Reasoning {
                text,
                kind: "reasoning_text",
            };
        }
        Self::Output {
            annotations: [],
            text,
            kind: "output_text",
            logprobs: (is_new || !item.logprobs.is_empty())
                .then(|| ResponseToken::list(if is_new { &[] } else { &item.logprobs }, false)),
        }
    }
}
