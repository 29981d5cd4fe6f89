//! `/v1/loads`

use std::time::Duration;

use super::{CAPACITY, MAX_RUNNING, write};
use crate::dialect::sglang::moment;
use crate::metrics::{Counter, Series, Snapshot};

#[derive(serde::Serialize)]
struct AllLoads {
    timestamp: String,
    version: &'static str,
    accelerator: (),
    num_accelerators: u64,
    loads: [Load; 1],
}

#[derive(serde::Serialize)]
struct Load {
    timestamp: f64,
    dp_rank: u64,
    num_running_reqs: u64,
    num_waiting_reqs: u64,
    num_waiting_uncached_tokens: u64,
    num_used_tokens: u64,
    num_total_tokens: u64,
    num_active_tokens: u64,
    num_prealloc_ready_tokens: u64,
    max_total_num_tokens: u64,
    max_running_requests: u64,
    token_usage: f64,
    gen_throughput: f64,
    cache_hit_rate: f64,
    utilization: f64,
    total_prefill_uncached_tokens: u64,
    total_prefill_busy_us: u64,
    decode_moments: [f64; 6],
    memory: LoadMemory,
    disaggregation: Disaggregation,
    queues: Queues,
}

#[derive(serde::Serialize)]
struct LoadMemory {
    weight_gb: f64,
    kv_cache_gb: f64,
    graph_gb: f64,
    token_capacity: u64,
}

#[derive(serde::Serialize)]
struct Disaggregation {
    mode: &'static str,
    prefill_bootstrap_queue_reqs: u64,
    prefill_inflight_queue_reqs: u64,
    decode_prealloc_queue_reqs: u64,
    decode_transfer_queue_reqs: u64,
    decode_retracted_queue_reqs: u64,
    kv_transfer_speed_gb_s: f64,
    kv_transfer_latency_ms: f64,
}

#[derive(Default, serde::Serialize)]
struct Queues {
    waiting: u64,
    grammar: u64,
    paused: u64,
    retracted: u64,
    prealloc_ready: u64,
}

/// Appends the JSON of `/v1/loads` at a moment since 1970.
pub fn encode_loads(
    version: &'static str,
    snapshot: &Snapshot<'_>,
    now: Duration,
    out: &mut Vec<u8>,
) {
    let count = |counter: Counter| snapshot.counters[counter as usize];
    let uncached = count(Counter::PromptTokens).saturating_sub(count(Counter::CachedTokens));
    let prefill = &snapshot.distributions[Series::PrefillTime as usize];
    let load = Load {
        timestamp: now.as_secs_f64(),
        dp_rank: 0,
        num_running_reqs: snapshot.running,
        num_waiting_reqs: snapshot.waiting,
        num_waiting_uncached_tokens: 0,
        num_used_tokens: 0,
        num_total_tokens: 0,
        num_active_tokens: 0,
        num_prealloc_ready_tokens: 0,
        max_total_num_tokens: CAPACITY,
        max_running_requests: MAX_RUNNING,
        token_usage: 0.0,
        gen_throughput: 0.0,
        cache_hit_rate: 0.0,
        utilization: 0.0,
        total_prefill_uncached_tokens: uncached,
        total_prefill_busy_us: prefill.sum / 1000,
        decode_moments: [0.0; 6],
        memory: LoadMemory {
            weight_gb: 0.0,
            kv_cache_gb: 0.0,
            graph_gb: 0.0,
            token_capacity: CAPACITY,
        },
        disaggregation: Disaggregation {
            mode: "null",
            prefill_bootstrap_queue_reqs: 0,
            prefill_inflight_queue_reqs: 0,
            decode_prealloc_queue_reqs: 0,
            decode_transfer_queue_reqs: 0,
            decode_retracted_queue_reqs: 0,
            kv_transfer_speed_gb_s: 0.0,
            kv_transfer_latency_ms: 0.0,
        },
        queues: Queues {
            waiting: snapshot.waiting,
            ..Queues::default()
        },
    };
    let answer = AllLoads {
        timestamp: moment::written(now, 6, "+00:00"),
        version,
        accelerator: (),
        num_accelerators: 1,
        loads: [load],
    };
    write(out, &answer);
}
