//! The families of vLLM's metrics page, in its order.

use crate::metrics::{Counter, Series};

/// What is told under one name.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
}

/// How it is told.
pub(super) enum Kind {
    /// Of the engine.
    Counter(&'static [Sample]),
    /// Of the engine.
    Gauge(&'static [Sample]),
    /// Of the engine.
    Histogram(Series),
    /// Of the server before the engine.
    ServerCounter(&'static [Sample]),
}

/// One line.
pub(super) struct Sample {
    /// A label beside engine and model.
    pub(super) label: Option<(&'static str, &'static str)>,
    pub(super) value: Value,
}

/// Where a line's number comes from.
#[derive(Clone, Copy)]
pub(super) enum Value {
    /// Prompt tokens that were not cached.
    Computed,
    /// Nothing that a stub has.
    Constant(f64),
    /// A counter.
    Counted(Counter),
    /// Choices that are being answered.
    Running,
    /// Choices that wait for their turn.
    Waiting,
}

impl Sample {
    const fn new(value: Value) -> Self {
        Self { label: None, value }
    }

    const fn of(label: &'static str, word: &'static str, value: Value) -> Self {
        Self {
            label: Some((label, word)),
            value,
        }
    }
}

/// The engine's families.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "vllm:estimated_flops_per_gpu",
        help: "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).",
        kind: Kind::Counter(&[Sample::new(Value::Constant(0.0))]),
    },
    Family {
        name: "vllm:estimated_read_bytes_per_gpu",
        help: "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).",
        kind: Kind::Counter(&[Sample::new(Value::Constant(0.0))]),
    },
    Family {
        name: "vllm:estimated_write_bytes_per_gpu",
        help: "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).",
        kind: Kind::Counter(&[Sample::new(Value::Constant(0.0))]),
    },
    Family {
        name: "vllm:num_requests_running",
        help: "Number of requests in model execution batches.",
        kind: Kind::Gauge(&[Sample::new(Value::Running)]),
    },
    Family {
        name: "vllm:num_requests_waiting",
        help: "Number of requests waiting to be processed.",
        kind: Kind::Gauge(&[Sample::new(Value::Waiting)]),
    },
    Family {
        name: "vllm:num_requests_waiting_by_reason",
        help: "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
        kind: Kind::Gauge(&[
            Sample::of("reason", "capacity", Value::Waiting),
            Sample::of("reason", "deferred", Value::Constant(0.0)),
        ]),
    },
    Family {
        name: "vllm:engine_sleep_state",
        help: "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        kind: Kind::Gauge(&[
            Sample::of("sleep_state", "awake", Value::Constant(1.0)),
            Sample::of("sleep_state", "weights_offloaded", Value::Constant(0.0)),
            Sample::of("sleep_state", "discard_all", Value::Constant(0.0)),
        ]),
    },
    Family {
        name: "vllm:kv_cache_usage_perc",
        help: "KV-cache usage. 1 means 100 percent usage.",
        kind: Kind::Gauge(&[Sample::new(Value::Constant(0.0))]),
    },
    Family {
        name: "vllm:prefix_cache_queries",
        help: "Prefix cache queries, in terms of number of queried tokens.",
        kind: Kind::Counter(&[Sample::new(Value::Counted(Counter::PrefixCacheQueries))]),
    },
    Family {
        name: "vllm:prefix_cache_hits",
        help: "Prefix cache hits, in terms of number of cached tokens.",
        kind: Kind::Counter(&[Sample::new(Value::Counted(Counter::CachedTokens))]),
    },
    Family {
        name: "vllm:external_prefix_cache_queries",
        help: "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.",
        kind: Kind::Counter(&[Sample::new(Value::Constant(0.0))]),
    },
    Family {
        name: "vllm:external_prefix_cache_hits",
        help: "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.",
        kind: Kind::Counter(&[Sample::new(Value::Constant(0.0))]),
    },
    Family {
        name: "vllm:mm_cache_queries",
        help: "Multi-modal cache queries, in terms of number of queried items.",
        kind: Kind::Counter(&[Sample::new(Value::Constant(0.0))]),
    },
    Family {
        name: "vllm:mm_cache_hits",
        help: "Multi-modal cache hits, in terms of number of cached items.",
        kind: Kind::Counter(&[Sample::new(Value::Constant(0.0))]),
    },
    Family {
        name: "vllm:num_preemptions",
        help: "Cumulative number of preemption from the engine.",
        kind: Kind::Counter(&[Sample::new(Value::Constant(0.0))]),
    },
    Family {
        name: "vllm:prompt_tokens",
        help: "Number of prefill tokens processed.",
        kind: Kind::Counter(&[Sample::new(Value::Counted(Counter::PromptTokens))]),
    },
    Family {
        name: "vllm:prompt_tokens_by_source",
        help: "Number of prompt tokens by source.",
        kind: Kind::Counter(&[
            Sample::of("source", "local_compute", Value::Computed),
            Sample::of(
                "source",
                "local_cache_hit",
                Value::Counted(Counter::CachedTokens),
            ),
            Sample::of("source", "external_kv_transfer", Value::Constant(0.0)),
        ]),
    },
    Family {
        name: "vllm:prompt_tokens_cached",
        help: "Number of cached prompt tokens (local + external).",
        kind: Kind::Counter(&[Sample::new(Value::Counted(Counter::CachedTokens))]),
    },
    Family {
        name: "vllm:prompt_tokens_cached_by_source",
        help: "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        kind: Kind::Counter(&[
            Sample::of("source", "device", Value::Counted(Counter::CachedTokens)),
            Sample::of("source", "host", Value::Constant(0.0)),
            Sample::of("source", "p2p", Value::Constant(0.0)),
            Sample::of("source", "disk", Value::Constant(0.0)),
            Sample::of("source", "external_unspecified", Value::Constant(0.0)),
        ]),
    },
    Family {
        name: "vllm:generation_tokens",
        help: "Number of generation tokens processed.",
        kind: Kind::Counter(&[Sample::new(Value::Counted(Counter::GenerationTokens))]),
    },
    Family {
        name: "vllm:request_success",
        help: "Count of successfully processed requests.",
        kind: Kind::Counter(&[
            Sample::of(
                "finished_reason",
                "stop",
                Value::Counted(Counter::EndedByStop),
            ),
            Sample::of(
                "finished_reason",
                "length",
                Value::Counted(Counter::EndedByLength),
            ),
            Sample::of(
                "finished_reason",
                "abort",
                Value::Counted(Counter::EndedByAbort),
            ),
            Sample::of(
                "finished_reason",
                "error",
                Value::Counted(Counter::EndedByError),
            ),
            Sample::of(
                "finished_reason",
                "repetition",
                Value::Counted(Counter::EndedByRepetition),
            ),
        ]),
    },
    Family {
        name: "vllm:admission_rejections",
        help: "Number of admission attempts rejected by a queue limit, by reason.",
        kind: Kind::ServerCounter(&[
            Sample::of(
                "reason",
                "max_num_queued_reqs",
                Value::Counted(Counter::AdmissionRejections),
            ),
            Sample::of("reason", "max_num_queued_tokens", Value::Constant(0.0)),
        ]),
    },
    Family {
        name: "vllm:request_prompt_tokens",
        help: "Number of prefill tokens processed.",
        kind: Kind::Histogram(Series::PromptTokens),
    },
    Family {
        name: "vllm:request_generation_tokens",
        help: "Number of generation tokens processed.",
        kind: Kind::Histogram(Series::GenerationTokens),
    },
    Family {
        name: "vllm:iteration_tokens_total",
        help: "Histogram of number of tokens per engine_step.",
        kind: Kind::Histogram(Series::IterationTokens),
    },
    Family {
        name: "vllm:request_max_num_generation_tokens",
        help: "Histogram of maximum number of requested generation tokens.",
        kind: Kind::Histogram(Series::MaxGenerationTokens),
    },
    Family {
        name: "vllm:request_params_n",
        help: "Histogram of the n request parameter.",
        kind: Kind::Histogram(Series::N),
    },
    Family {
        name: "vllm:request_params_max_tokens",
        help: "Histogram of the max_tokens request parameter.",
        kind: Kind::Histogram(Series::MaxTokens),
    },
    Family {
        name: "vllm:time_to_first_token_seconds",
        help: "Histogram of time to first token in seconds.",
        kind: Kind::Histogram(Series::TimeToFirstToken),
    },
    Family {
        name: "vllm:inter_token_latency_seconds",
        help: "Histogram of inter-token latency in seconds.",
        kind: Kind::Histogram(Series::InterToken),
    },
    Family {
        name: "vllm:request_time_per_output_token_seconds",
        help: "Histogram of time_per_output_token_seconds per request.",
        kind: Kind::Histogram(Series::TimePerOutputToken),
    },
    Family {
        name: "vllm:e2e_request_latency_seconds",
        help: "Histogram of e2e request latency in seconds.",
        kind: Kind::Histogram(Series::EndToEnd),
    },
    Family {
        name: "vllm:request_queue_time_seconds",
        help: "Histogram of time spent in WAITING phase for request.",
        kind: Kind::Histogram(Series::QueueTime),
    },
    Family {
        name: "vllm:request_inference_time_seconds",
        help: "Histogram of time spent in RUNNING phase for request.",
        kind: Kind::Histogram(Series::InferenceTime),
    },
    Family {
        name: "vllm:request_prefill_time_seconds",
        help: "Histogram of time spent in PREFILL phase for request.",
        kind: Kind::Histogram(Series::PrefillTime),
    },
    Family {
        name: "vllm:request_decode_time_seconds",
        help: "Histogram of time spent in DECODE phase for request.",
        kind: Kind::Histogram(Series::DecodeTime),
    },
    Family {
        name: "vllm:request_num_preemptions",
        help: "Histogram of the number of times a request was preempted.",
        kind: Kind::Histogram(Series::Preemptions),
    },
    Family {
        name: "vllm:request_prefill_kv_computed_tokens",
        help: "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        kind: Kind::Histogram(Series::PrefillComputed),
    },
];

/// The labels of `vllm:cache_config_info`, as recorded.
pub(in crate::dialect::vllm) const CACHE_CONFIG_0_33: &str = r#"_block_size_resolved="True",block_size="16",cache_dtype="auto",cache_hit_alignment_tokens="None",effective_attention_block_size="None",enable_mamba_shared_prefix_checkpoint="False",enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.92",hash_block_size="None",is_attention_free="False",kv_cache_dtype_skip_layers="[]",kv_cache_layout="None",kv_cache_max_concurrency="None",kv_cache_memory_bytes="None",kv_cache_size_tokens="None",kv_offloading_backend="native",kv_offloading_size="None",kv_sharing_fast_prefill="False",mamba_block_size="None",mamba_cache_dtype="auto",mamba_cache_mode="none",mamba_page_size_padded="None",mamba_ssm_cache_dtype="auto",num_cpu_blocks="None",num_gpu_blocks="1024",num_gpu_blocks_override="None",prefix_cache_retention_interval="0",prefix_caching_hash_algo="sha256",prefix_match_unit="None",replayssm_buffer_len="16",simple_cpu_offload_num_blocks="None",skip_page_size_padded="None",sliding_window="None",swa_bounded_replay="True",use_kda_recoverssm="False",use_replayssm="False",user_specified_block_size="False""#;
/// The same of the version before.
pub(in crate::dialect::vllm) const CACHE_CONFIG_0_32: &str = r#"_block_size_resolved="True",block_size="128",cache_dtype="auto",cache_hit_alignment_tokens="None",effective_attention_block_size="None",enable_mamba_shared_prefix_checkpoint="False",enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.92",hash_block_size="None",is_attention_free="False",kv_cache_dtype_skip_layers="[]",kv_cache_layout="None",kv_cache_max_concurrency="None",kv_cache_memory_bytes="1073741824",kv_cache_size_tokens="None",kv_offloading_backend="native",kv_offloading_size="None",kv_sharing_fast_prefill="False",mamba_block_size="None",mamba_cache_dtype="auto",mamba_cache_mode="none",mamba_page_size_padded="None",mamba_ssm_cache_dtype="auto",num_cpu_blocks="None",num_gpu_blocks="1024",num_gpu_blocks_override="None",prefix_cache_retention_interval="0",prefix_caching_hash_algo="sha256",prefix_match_unit="None",replayssm_buffer_len="16",skip_page_size_padded="None",sliding_window="None",swa_bounded_replay="True",use_kda_recoverssm="False",use_replayssm="False",user_specified_block_size="False""#;
