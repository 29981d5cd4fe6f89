//! What SGLang tells of itself: `/model_info`, `/server_info` and `/v1/loads`.

mod loads; // what it does at a moment

pub use loads::encode_loads;

use std::sync::LazyLock;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use crate::json::{Json, Object};

use super::rust;

/// What a server was started with, and what its model's folder says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Info {
    /// `architectures`, where the model's folder tells.
    pub architectures: Option<Vec<String>>,
    /// Arguments by their names, in place of those of the recorded server.
    pub arguments: Vec<(&'static str, Value)>,
    /// `launch_command`
    pub launch_command: String,
    /// `model_type`, where the model's folder tells.
    pub model_type: Option<String>,
}

/// A server's name for its model, and its limits.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// Longest prompt and answer together, in tokens.
    pub context: Option<u64>,
    /// The name that is served.
    pub model: &'a str,
    /// It tells what the front end in Rust knows.
    pub in_brief: bool,
    /// The server's version.
    pub version: &'static str,
}

/// The arguments of the recorded server, in its order.
static ARGUMENTS: LazyLock<Object<'static>> =
    LazyLock::new(
        || match Json::parse(include_bytes!("info/arguments.json")) {
            Ok(Json::Object(arguments)) => arguments,
            _ => unreachable!("the file holds an object"),
        },
    );
/// `embedding` of a model that makes none.
const EMBEDDING: &str = include_str!("info/embedding.json");
/// Tokens that the recorded server's cache takes.
pub(super) const CAPACITY: u64 = 8192;
/// Requests that it runs at once.
pub(super) const MAX_RUNNING: u64 = 2048;
/// Tokens that a prompt has less than the context.
const HEADROOM: u64 = 6;
/// What the server tells elsewhere, or not at all, of its state.
const NOT_OF_STATE: &str = "custom_sigquit_handler";

impl Info {
    /// An argument's value.
    pub(super) fn argument(&self, name: &str) -> Argument<'_> {
        let recorded = || Argument::Recorded(ARGUMENTS.get(name).unwrap_or(&Json::Null));
        self.given(name).unwrap_or_else(recorded)
    }

    /// All arguments, in the recorded server's order.
    fn all(&self) -> impl Iterator<Item = (&'static str, Argument<'_>)> {
        ARGUMENTS.0.iter().map(|(name, recorded)| {
            let given = self.given(name);
            (&**name, given.unwrap_or(Argument::Recorded(recorded)))
        })
    }

    fn given(&self, name: &str) -> Option<Argument<'_>> {
        let given = self.arguments.iter().find(|(known, _)| *known == name);
        given.map(|(_, value)| Argument::Given(value))
    }

    /// Writes what `/server_info` begins with: the arguments, and what the engine made of them.
    pub(super) fn begin<M: SerializeMap>(
        &self,
        served: Served<'_>,
        map: &mut M,
    ) -> Result<(), M::Error> {
        for (name, value) in self.all() {
            map.serialize_entry(name, &value)?;
        }
        map.serialize_entry("launch_command", &self.launch_command)?;
        map.serialize_entry("status", "ready")?;
        map.serialize_entry("max_total_num_tokens", &CAPACITY)?;
        map.serialize_entry("max_req_input_len", &served.longest())
    }
}

/// An argument's value: this server's, or the recorded one's.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
pub(super) enum Argument<'a> {
    Given(&'a Value),
    Recorded(&'a Json<'a>),
}

#[derive(serde::Serialize)]
struct ModelInfo<'a> {
    model_path: Argument<'a>,
    served_model_name: &'a str,
    tokenizer_path: Argument<'a>,
    is_generation: bool,
    preferred_sampling_params: (),
    weight_version: Argument<'a>,
    load_format: Argument<'a>,
    reasoning_parser: Argument<'a>,
    tool_call_parser: Argument<'a>,
    disaggregation_mode: Argument<'a>,
    #[serde(flatten)]
    of_model: Option<OfModel<'a>>,
}

/// What its folder says of the model.
#[derive(serde::Serialize)]
struct OfModel<'a> {
    has_image_understanding: bool,
    has_audio_understanding: bool,
    model_type: Option<&'a str>,
    architectures: Option<&'a [String]>,
}

/// Appends the JSON of `/model_info`.
pub fn encode_model_info(info: &Info, served: Served<'_>, out: &mut Vec<u8>) {
    let answer = ModelInfo {
        model_path: info.argument("model_path"),
        served_model_name: served.model,
        tokenizer_path: info.argument("tokenizer_path"),
        is_generation: true,
        preferred_sampling_params: (),
        weight_version: info.argument("weight_version"),
        load_format: info.argument("load_format"),
        reasoning_parser: info.argument("reasoning_parser"),
        tool_call_parser: info.argument("tool_call_parser"),
        disaggregation_mode: info.argument("disaggregation_mode"),
        of_model: (!served.in_brief).then_some(OfModel {
            has_image_understanding: false,
            has_audio_understanding: false,
            model_type: info.model_type.as_deref(),
            architectures: info.architectures.as_deref(),
        }),
    };
    write(out, &answer);
    if served.in_brief {
        return;
    }
    // What it says of embeddings is the same of all models that make none.
    out.pop();
    out.extend_from_slice(b",\"embedding\":");
    out.extend_from_slice(EMBEDDING.trim_end().as_bytes());
    out.push(b'}');
}

/// Appends the JSON of `/server_info`.
pub fn encode_server_info(info: &Info, served: Served<'_>, out: &mut Vec<u8>) {
    if served.in_brief {
        return write(out, &rust::info::ServerInfo { info, served });
    }
    write(out, &ServerInfo { info, served });
}

impl Served<'_> {
    /// Tokens of the longest prompt.
    pub(super) fn longest(&self) -> Option<u64> {
        self.context.map(|tokens| tokens.saturating_sub(HEADROOM))
    }
}

fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("strings and numbers encode");
}

struct ServerInfo<'a> {
    info: &'a Info,
    served: Served<'a>,
}

/// What it took to start: nothing.
#[derive(serde::Serialize)]
pub(super) struct StartupTime {
    load_weight: f64,
    kv_cache_allocation: f64,
    scheduler_e2e: f64,
    cuda_graph: Graph,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer_e2e: Option<f64>,
}

impl StartupTime {
    pub(super) fn new(with_tokenizer: bool) -> Self {
        Self {
            load_weight: 0.0,
            kv_cache_allocation: 0.0,
            scheduler_e2e: 0.0,
            cuda_graph: Graph::default(),
            tokenizer_e2e: with_tokenizer.then_some(0.0),
        }
    }
}

/// A number for each kind of CUDA graph, of which there are none.
#[derive(Default, serde::Serialize)]
struct Graph {
    prefill: f64,
    decode: f64,
    target_verify: f64,
    draft_prefill: f64,
    draft_decode: f64,
    draft_extend: f64,
}

#[derive(serde::Serialize)]
struct CacheLayout {
    enabled: bool,
    backend: (),
    page_size: u64,
    hicache_object_layout: Pools,
    reason: &'static str,
}

#[derive(serde::Serialize)]
struct Pools {
    pools: [(); 0],
}

#[derive(serde::Serialize)]
struct MemoryUsage {
    weight: f64,
    kvcache: f64,
    startup_available: f64,
    token_capacity: u64,
    token_capacity_swa: (),
    graph: Graph,
}

impl Serialize for ServerInfo<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.info.begin(self.served, &mut map)?;
        map.serialize_entry("startup_time", &StartupTime::new(true))?;
        let layout = CacheLayout {
            enabled: false,
            backend: (),
            page_size: 1,
            hicache_object_layout: Pools { pools: [] },
            reason: "Hierarchical cache is disabled",
        };
        map.serialize_entry("hicache_object_layout", &layout)?;
        map.serialize_entry("kv_events", &())?;
        map.serialize_entry("internal_states", &[State(self.info)])?;
        map.serialize_entry("version", self.served.version)?;
        map.serialize_entry("frontend", "python")?;
        map.end()
    }
}

/// The scheduler's own view: the arguments again, and what follows from them.
struct State<'a>(&'a Info);

impl Serialize for State<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.all().filter(|(name, _)| *name != NOT_OF_STATE) {
            map.serialize_entry(name, &value)?;
        }
        map.serialize_entry("world_size", &1)?;
        map.serialize_entry("startup_time", &StartupTime::new(false))?;
        map.serialize_entry("effective_max_running_requests_per_dp", &MAX_RUNNING)?;
        map.serialize_entry("last_gen_throughput", &0.0)?;
        let memory = MemoryUsage {
            weight: 0.0,
            kvcache: 0.0,
            startup_available: 0.0,
            token_capacity: CAPACITY,
            token_capacity_swa: (),
            graph: Graph::default(),
        };
        map.serialize_entry("memory_usage", &memory)?;
        map.serialize_entry("decode_cuda_graph_bs", &[(); 0])?;
        map.serialize_entry("decode_cuda_graph_memory_gb", &0.0)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_arguments_stand_in_place_of_recorded_ones() {
        let info = Info {
            arguments: vec![("reasoning_parser", "qwen3".into()), ("port", 5.into())],
            ..Info::default()
        };
        let served = Served {
            context: Some(100),
            in_brief: false,
            model: "m",
            version: "1",
        };
        let mut out = Vec::new();
        encode_server_info(&info, served, &mut out);
        let json: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["port"], 5);
        assert_eq!(json["internal_states"][0]["port"], 5);
        assert_eq!(json["page_size"], 1);
        assert_eq!(json["max_req_input_len"], 94);
        out.clear();
        encode_model_info(&info, served, &mut out);
        let json: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["reasoning_parser"], "qwen3");
        assert_eq!(json["tool_call_parser"], Value::Null);
        assert_eq!(json["model_type"], Value::Null);
        assert_eq!(json["embedding"]["family"], "none");
    }
}
