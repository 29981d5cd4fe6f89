//! `/server_info` as the front end in Rust tells it.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::dialect::sglang::info::{CAPACITY, Info, MAX_RUNNING, Served, StartupTime};

/// What a server was started with, and the little that is asked of its scheduler.
pub(in crate::dialect::sglang) struct ServerInfo<'a> {
    pub(in crate::dialect::sglang) info: &'a Info,
    pub(in crate::dialect::sglang) served: Served<'a>,
}

impl Serialize for ServerInfo<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.info.begin(self.served, &mut map)?;
        map.serialize_entry("kv_events", &())?;
        map.serialize_entry("max_context_length", &self.served.context)?;
        map.serialize_entry("version", self.served.version)?;
        map.serialize_entry("frontend", "rust")?;
        map.serialize_entry("startup_time", &StartupTime::new(true))?;
        map.serialize_entry("internal_states", &[State::default()])?;
        map.serialize_entry("deployment_info", &Deployment(self.info))?;
        map.end()
    }
}

#[derive(serde::Serialize)]
struct State {
    last_gen_throughput: f64,
    memory_usage: MemoryUsage,
    effective_max_running_requests_per_dp: u64,
    rust_mm_transport: Transport,
}

impl Default for State {
    fn default() -> Self {
        Self {
            last_gen_throughput: 0.0,
            memory_usage: MemoryUsage {
                weight: 0.0,
                kvcache: "0.0",
                startup_available: 0.0,
                token_capacity: CAPACITY,
                token_capacity_swa: (),
                graph: Graph::default(),
            },
            effective_max_running_requests_per_dp: MAX_RUNNING,
            rust_mm_transport: Transport::default(),
        }
    }
}

#[derive(serde::Serialize)]
struct MemoryUsage {
    weight: f64,
    kvcache: &'static str,
    startup_available: f64,
    token_capacity: u64,
    token_capacity_swa: (),
    graph: Graph,
}

/// A number for each kind of CUDA graph, sorted by their names.
#[derive(Default, serde::Serialize)]
struct Graph {
    decode: f64,
    draft_decode: f64,
    draft_extend: f64,
    draft_prefill: f64,
    prefill: f64,
    target_verify: f64,
}

/// How images came, of which there are none.
#[derive(Default, serde::Serialize)]
struct Transport {
    copies: u64,
    inline_bytes: u64,
    inline_features: u64,
    shm_bytes: u64,
    shm_features: u64,
}

/// Where it runs: arguments again, and what follows from them.
struct Deployment<'a>(&'a Info);

/// The arguments before and behind `dp_rank`.
const PLACES: [&str; 4] = [
    "disaggregation_bootstrap_port",
    "node_rank",
    "nnodes",
    "dp_size",
];
const LIMITS: [&str; 12] = [
    "dist_init_addr",
    "base_gpu_id",
    "page_size",
    "dcp_size",
    "max_running_requests",
    "max_prefill_tokens",
    "enable_dp_attention",
    "speculative_algorithm",
    "enable_hierarchical_cache",
    "hicache_ratio",
    "hicache_size",
    "hicache_write_policy",
];

impl Serialize for Deployment<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for name in PLACES {
            map.serialize_entry(name, &self.0.argument(name))?;
        }
        map.serialize_entry("dp_rank", &0)?;
        for name in LIMITS {
            map.serialize_entry(name, &self.0.argument(name))?;
        }
        map.serialize_entry("hicache_host_total_tokens", &())?;
        map.serialize_entry("kv_event_sources", &[(); 0])?;
        map.end()
    }
}
