//! The response object of `/v1/responses`.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::dialect::responses::{Item, ItemKind, Outline, OutputItem, Snapshot, Status};
use crate::json::Json;
use crate::python;
use crate::schema as pydantic;
use crate::usage::Usage;

use super::RESPONSES;
use super::responses_request::Choice;

/// The whole of it.
#[derive(serde::Serialize)]
pub(crate) struct Response<'a> {
    id: &'a str,
    object: &'static str,
    created_at: u64,
    model: &'a str,
    output: Vec<OutputItem<'a>>,
    status: Status,
    usage: Option<ResponseUsage>,
    parallel_tool_calls: bool,
    tool_choice: ToolChoice<'a>,
    tools: Vec<Tool<'a>>,
    error: Option<ResponseError<'a>>,
    incomplete_details: Option<IncompleteDetails>,
    instructions: Option<&'a Json<'a>>,
    max_output_tokens: Option<i128>,
    previous_response_id: (),
    reasoning: Reasoning<'a>,
    store: Option<bool>,
    temperature: Option<f64>,
    text: Text<'a>,
    top_p: Option<f64>,
    truncation: Option<&'a str>,
    user: Option<&'a Json<'a>>,
    metadata: Given<'a>,
}

/// An object of the request, or one without members.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Given<'a> {
    Empty {},
    Whole(&'a Json<'a>),
}

#[derive(serde::Serialize)]
struct IncompleteDetails {
    reason: &'static str,
}

#[derive(serde::Serialize)]
struct Reasoning<'a> {
    effort: Option<&'a str>,
    summary: (),
}

#[derive(serde::Serialize)]
struct ResponseError<'a> {
    code: &'static str,
    message: &'a str,
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum ToolChoice<'a> {
    Tool {
        #[serde(rename = "type")]
        kind: &'a str,
        name: &'a str,
    },
    Word(&'a str),
}

impl<'a> Response<'a> {
    pub(crate) fn new(outline: &'a Outline<'_>, snapshot: &Snapshot<'a>) -> Self {
        let echoed = outline.echoed;
        let given = |name| echoed.get(name);
        let float = |name| pydantic::float(given(name)?).ok();
        let is_cut = snapshot.status == Status::Incomplete;
        let reasoning = given("reasoning").and_then(Json::as_object);
        let effort = reasoning.map(|reasoning| {
            let effort = reasoning.get("effort");
            effort.map_or(Some("medium"), Json::as_str)
        });
        let is_told = |effort: &&str| matches!(*effort, "minimal" | "low" | "medium" | "high");
        let items = snapshot.output.iter();
        Self {
            id: &outline.id,
            object: "response",
            created_at: outline.created_at,
            model: outline.model,
            output: items.map(|item| OutputItem::new(RESPONSES, item)).collect(),
            status: snapshot.status,
            usage: snapshot.usage.map(ResponseUsage::from),
            parallel_tool_calls: echoed.flag("parallel_tool_calls", true),
            tool_choice: match echoed.tool_choice() {
                Choice::Tool { kind, name } => ToolChoice::Tool { kind, name },
                Choice::Word(word) => ToolChoice::Word(word),
            },
            tools: echoed.items("tools").iter().map(Tool).collect(),
            error: snapshot.error.map(|message| ResponseError {
                code: "server_error",
                message,
            }),
            incomplete_details: is_cut.then_some(IncompleteDetails {
                reason: "max_output_tokens",
            }),
            instructions: given("instructions"),
            max_output_tokens: given("max_output_tokens").and_then(|most| pydantic::int(most).ok()),
            previous_response_id: (),
            reasoning: Reasoning {
                effort: effort.flatten().filter(is_told),
                summary: (),
            },
            store: (!echoed.is_null("store")).then(|| echoed.flag("store", true)),
            temperature: float("temperature"),
            text: Text::new(given("text"), snapshot.output),
            top_p: float("top_p"),
            truncation: (!echoed.is_null("truncation")).then(|| {
                given("truncation")
                    .and_then(Json::as_str)
                    .unwrap_or("disabled")
            }),
            user: given("user"),
            metadata: given("metadata")
                .filter(|metadata| python::truthy(metadata))
                .map_or(Given::Empty {}, Given::Whole),
        }
    }
}

/// `text`: the request's, or that of an answer which is nothing but text.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Text<'a> {
    Asked(WithoutNulls<'a>),
    None(()),
    Plain { format: Format },
}

#[derive(serde::Serialize)]
struct Format {
    #[serde(rename = "type")]
    kind: &'static str,
}

impl<'a> Text<'a> {
    fn new(asked: Option<&'a Json<'a>>, output: &[Item]) -> Self {
        let is_plain = |item: &Item| item.kind == ItemKind::Message;
        match asked {
            Some(asked) => Self::Asked(WithoutNulls(asked)),
            None if !output.is_empty() && output.iter().all(is_plain) => Self::Plain {
                format: Format { kind: "text" },
            },
            None => Self::None(()),
        }
    }
}

/// An object without the members that are null.
struct WithoutNulls<'a>(&'a Json<'a>);

impl Serialize for WithoutNulls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Json::Object(members) = self.0 else {
            return self.0.serialize(serializer);
        };
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &members.0 {
            if *value != Json::Null {
                map.serialize_entry(&**name, &Self(value))?;
            }
        }
        map.end()
    }
}

/// A tool of the request, with all keys of the server's own type; what else it has comes behind.
struct Tool<'a>(&'a Json<'a>);

/// The keys of a tool, in their order.
const TOOL_KEYS: [&str; 8] = [
    "type",
    "name",
    "description",
    "parameters",
    "strict",
    "tools",
    "defer_loading",
    "format",
];

impl Serialize for Tool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Json::Object(members) = self.0 else {
            return self.0.serialize(serializer);
        };
        let mut map = serializer.serialize_map(None)?;
        for name in TOOL_KEYS {
            match members.get(name) {
                None if name == "strict" => map.serialize_entry(name, &false)?,
                value => map.serialize_entry(name, &value)?,
            }
        }
        for (name, value) in &members.0 {
            if !TOOL_KEYS.contains(&&**name) {
                map.serialize_entry(&**name, value)?;
            }
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: InputTokensDetails,
    output_tokens: u64,
    output_tokens_details: OutputTokensDetails,
    total_tokens: u64,
}

#[derive(serde::Serialize)]
struct InputTokensDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(serde::Serialize)]
struct OutputTokensDetails {
    reasoning_tokens: u64,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens.unwrap_or(0),
            input_tokens_details: InputTokensDetails {
                cached_tokens: usage.cache.map_or(0, |cache| cache.cached),
                cache_write_tokens: 0,
            },
            output_tokens: usage.completion_tokens.unwrap_or(0),
            output_tokens_details: OutputTokensDetails {
                reasoning_tokens: usage.reasoning_tokens.unwrap_or(0),
            },
            total_tokens: usage.total_tokens().unwrap_or(0),
        }
    }
}
