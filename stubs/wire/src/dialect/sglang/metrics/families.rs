//! The families of SGLang's metrics page, in its order.

use super::{Family, Http, Kind, Of, Sample, Value};
use crate::metrics::{Counter, Series};

/// All of them.
pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "sglang:routing_keys_active",
        help: "Number of unique routing keys with active requests",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Server,
    },
    Family {
        name: "sglang:http_requests_active",
        help: "Number of currently active HTTP requests",
        kind: Kind::Http(Http::Active),
        of: Of::Server,
    },
    Family {
        name: "sglang:num_retracted_reqs",
        help: "The number of retracted requests.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Process,
    },
    Family {
        name: "sglang:num_paused_reqs",
        help: "The number of paused requests by async weight sync.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Process,
    },
    Family {
        name: "sglang:prefill_effective_tokens_total",
        help: "Effective prefill tokens with retracted-request re-counts excluded, updated on each log interval. mode: device_hit, host_hit, storage_hit, input. Windowed prefix cache hit rate = rate(sum of *_hit) / rate(sum of all modes); per-tier rate uses a single *_hit mode in the numerator.",
        kind: Kind::Counter(&[
            Sample {
                labels: &[("mode", "input")],
                value: Value::Computed,
            },
            Sample {
                labels: &[("mode", "device_hit")],
                value: Value::Counted(Counter::CachedTokens),
            },
            Sample {
                labels: &[("mode", "host_hit")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("mode", "storage_hit")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:scheduler_idle_seconds_total",
        help: "Total wall time while the scheduler has no runnable or queued work.",
        kind: Kind::Counter(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:scheduler_process_cpu_seconds_total",
        help: "Total CPU time consumed by the scheduler process across all threads.",
        kind: Kind::Counter(&[Sample {
            labels: &[],
            value: Value::Cpu,
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:scheduler_stage_seconds_total",
        help: "Total scheduler-loop wall time exclusively attributed to each stage. forward_overlap (full, partial, none): full=both endpoints active, partial=one, none=no observed overlap (including unavailable timing). Not exact overlapped/exposed seconds.",
        kind: Kind::Counter(&[
            Sample {
                labels: &[("category", "other"), ("forward_overlap", "none")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("category", "recv_requests"), ("forward_overlap", "none")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[
                    ("category", "process_input_requests"),
                    ("forward_overlap", "none"),
                ],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[
                    ("category", "get_next_batch_to_run"),
                    ("forward_overlap", "none"),
                ],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("category", "process_queue"), ("forward_overlap", "none")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("category", "run_batch"), ("forward_overlap", "none")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[
                    ("category", "process_batch_result"),
                    ("forward_overlap", "none"),
                ],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[
                    ("category", "sanity_check_cache"),
                    ("forward_overlap", "none"),
                ],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("category", "idle"), ("forward_overlap", "none")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:dp_attention_tokens_total",
        help: "Tokens of MLP-sync steps on this DP rank. kind=scheduled: tokens this rank ran; kind=imbalance: tokens the busiest rank ran beyond this rank, i.e. capacity lost to DP imbalance on this rank. On speculative-decode steps the unit is batch rows (requests).",
        kind: Kind::Counter(&[
            Sample {
                labels: &[("kind", "scheduled")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("kind", "imbalance")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:dp_attention_steps_total",
        help: "MLP-sync steps on this DP rank. rank_state=idle: this rank had no tokens and only ran to keep the DP collectives in lockstep.",
        kind: Kind::Counter(&[
            Sample {
                labels: &[("rank_state", "active")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("rank_state", "idle")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:dp_attention_pairs_total",
        help: "Causal (query, key) pairs attended by MLP-sync steps on this DP rank, pricing every layer as full attention: a decode row reads its sequence, a prefill chunk its prefix plus the pairs within the chunk. kind=scheduled: this rank; kind=imbalance: the busiest rank's excess over this rank. The context-length counterpart of sglang:dp_attention_tokens_total; like it, speculative-decode steps count one query per row. Sliding-window layers execute fewer pairs than counted, so on hybrid-SWA models long rows are overstated.",
        kind: Kind::Counter(&[
            Sample {
                labels: &[("kind", "scheduled")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("kind", "imbalance")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:cuda_graph_passes_total",
        help: "Total number of forward passes categorized by CUDA graph.",
        kind: Kind::Counter(&[
            Sample {
                labels: &[("mode", "prefill_none")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("mode", "decode_none")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:realtime_tokens_total",
        help: "Total number of tokens processed (updated on each log interval). mode: prefill_compute, prefill_cache, decode.",
        kind: Kind::Counter(&[
            Sample {
                labels: &[("mode", "prefill_compute")],
                value: Value::Computed,
            },
            Sample {
                labels: &[("mode", "decode")],
                value: Value::Counted(Counter::GenerationTokens),
            },
            Sample {
                labels: &[("mode", "prefill_cache")],
                value: Value::Counted(Counter::CachedTokens),
            },
        ]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:time_to_first_token_seconds",
        help: "Histogram of time to first token in seconds.",
        kind: Kind::Histogram(Series::TimeToFirstToken),
        of: Of::Answers,
    },
    Family {
        name: "sglang:e2e_request_latency_seconds",
        help: "Histogram of End-to-end request latency in seconds",
        kind: Kind::Histogram(Series::EndToEnd),
        of: Of::Answers,
    },
    Family {
        name: "sglang:request_time_per_output_token_seconds",
        help: "Per-request TPOT in seconds: (finished_time - first_token_time) / (completion_tokens - 1).",
        kind: Kind::Histogram(Series::TimePerOutputToken),
        of: Of::Answers,
    },
    Family {
        name: "sglang:prompt_tokens_histogram",
        help: "Histogram of prompt token length.",
        kind: Kind::Histogram(Series::PromptTokens),
        of: Of::Model,
    },
    Family {
        name: "sglang:uncached_prompt_tokens_histogram",
        help: "Histogram of uncached (compute) prompt token length.",
        kind: Kind::Histogram(Series::PrefillComputed),
        of: Of::Model,
    },
    Family {
        name: "sglang:generation_tokens_histogram",
        help: "Histogram of generation token length.",
        kind: Kind::Histogram(Series::GenerationTokens),
        of: Of::Model,
    },
    Family {
        name: "sglang:inter_token_latency_seconds",
        help: "Histogram of inter-token latency in seconds.",
        kind: Kind::Histogram(Series::InterToken),
        of: Of::Model,
    },
    Family {
        name: "sglang:process_cpu_seconds_total",
        help: "Total CPU time consumed by this process (user + system)",
        kind: Kind::Counter(&[
            Sample {
                labels: &[("component", "detokenizer")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("component", "tokenizer")],
                value: Value::Cpu,
            },
        ]),
        of: Of::Server,
    },
    Family {
        name: "sglang:dp_attention_token_imbalance_ratio",
        help: "Per MLP-sync step, max tokens over mean tokens across the DP ranks (1.0 = balanced, num_dp_ranks = one busy rank). Reported once per engine, by the scheduler of DP rank 0.",
        kind: Kind::EmptyHistogram,
        of: Of::Rank,
    },
    Family {
        name: "sglang:dp_attention_sync_wait_seconds",
        help: "Wall time of this DP rank's scheduler MLP-sync all-gather per step. On the gloo path (the default with overlap scheduling) this is waiting for the slowest rank; on the device-group paths it also includes the gather's stream sync.",
        kind: Kind::EmptyHistogram,
        of: Of::Rank,
    },
    Family {
        name: "sglang:per_stage_req_latency_seconds",
        help: "The latency of each stage of requests.",
        kind: Kind::EmptyHistogram,
        of: Of::Rank,
    },
    Family {
        name: "sglang:queue_time_seconds",
        help: "Histogram of queueing time in seconds.",
        kind: Kind::Histogram(Series::QueueTime),
        of: Of::Rank,
    },
    Family {
        name: "sglang:http_requests_total",
        help: "Total number of HTTP requests by endpoint and method",
        kind: Kind::Http(Http::Requests),
        of: Of::Server,
    },
    Family {
        name: "sglang:http_responses_total",
        help: "Total number of HTTP responses by endpoint and status code",
        kind: Kind::Http(Http::Responses),
        of: Of::Server,
    },
    Family {
        name: "sglang:prompt_tokens_total",
        help: "Number of prefill tokens processed.",
        kind: Kind::Counter(&[Sample {
            labels: &[],
            value: Value::Counted(Counter::PromptTokens),
        }]),
        of: Of::Answers,
    },
    Family {
        name: "sglang:generation_tokens_total",
        help: "Number of generation tokens processed.",
        kind: Kind::Counter(&[Sample {
            labels: &[],
            value: Value::Counted(Counter::GenerationTokens),
        }]),
        of: Of::Answers,
    },
    Family {
        name: "sglang:num_requests_total",
        help: "Number of requests processed.",
        kind: Kind::Counter(&[Sample {
            labels: &[],
            value: Value::Ended,
        }]),
        of: Of::Answers,
    },
    Family {
        name: "sglang:cached_tokens_total",
        help: "Number of cached prompt tokens by source (device/host/storage).",
        kind: Kind::Counter(&[Sample {
            labels: &[("cache_source", "device")],
            value: Value::Counted(Counter::CachedTokens),
        }]),
        of: Of::Model,
    },
    Family {
        name: "sglang:startup_time_seconds",
        help: "Engine startup duration by phase in seconds.",
        kind: Kind::Gauge(&[
            Sample {
                labels: &[("phase", "load_weight")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "kv_cache_allocation")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "scheduler_e2e")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "tokenizer_e2e")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Model,
    },
    Family {
        name: "sglang:startup_cuda_graph_time_seconds",
        help: "CUDA graph capture duration by phase in seconds.",
        kind: Kind::Gauge(&[
            Sample {
                labels: &[("phase", "prefill")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "decode")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "target_verify")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "draft_prefill")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "draft_decode")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "draft_extend")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Model,
    },
    Family {
        name: "sglang:max_total_num_tokens",
        help: "Maximum total number of tokens in the KV cache pool.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(8192.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:weight_memory_usage_gb",
        help: "Memory used by model weights in GB.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:kv_cache_memory_usage_gb",
        help: "Memory used by the KV cache pools in GB.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:graph_memory_usage_gb",
        help: "Memory used by captured device graphs in GB.",
        kind: Kind::Gauge(&[
            Sample {
                labels: &[("phase", "prefill")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "decode")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "target_verify")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "draft_prefill")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "draft_decode")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("phase", "draft_extend")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:page_size",
        help: "KV cache page size in tokens.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(1.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_pages",
        help: "Number of KV cache pages.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(8192.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:context_len",
        help: "Maximum context length.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Context,
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:startup_available_gpu_memory_gb",
        help: "Available GPU memory in GB at startup.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_running_reqs",
        help: "The number of running requests.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Running,
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_queue_reqs",
        help: "The number of requests in the waiting queue.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Waiting,
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_grammar_queue_reqs",
        help: "The number of requests in the grammar waiting queue.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:gen_throughput",
        help: "The generation throughput (token/s).",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:cache_hit_rate",
        help: "The prefix cache hit rate.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::HitRate,
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:decode_sum_seq_lens",
        help: "The sum of all sequence lengths in decode.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:token_usage",
        help: "The token usage.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:full_token_usage",
        help: "The token usage for full attention layers.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:swa_token_usage",
        help: "The token usage for SWA layers.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:mamba_usage",
        help: "The token usage for Mamba layers.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_used_tokens",
        help: "The number of used tokens.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:kv_available_tokens",
        help: "Number of free token slots in the KV cache pool.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(8192.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:kv_evictable_tokens",
        help: "Number of evictable (radix-cached) token slots in the KV cache pool.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:kv_used_tokens",
        help: "Number of actively used token slots in the KV cache pool.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:swa_available_tokens",
        help: "Number of free token slots in the SWA pool (hybrid-SWA only).",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:swa_evictable_tokens",
        help: "Number of evictable (radix-cached) token slots in the SWA pool.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:swa_used_tokens",
        help: "Number of actively used token slots in the SWA pool.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:mamba_available_tokens",
        help: "Number of free state slots in the mamba SSM pool (hybrid-SSM only).",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:mamba_evictable_tokens",
        help: "Number of evictable (radix-cached) state slots in the mamba SSM pool.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:mamba_used_tokens",
        help: "Number of actively used state slots in the mamba SSM pool.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:spec_accept_length",
        help: "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:spec_accept_rate",
        help: "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch).",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:spec_cap_length",
        help: "Mean DSpark confidence-scheduled verify window per verify step, incl the bonus slot (0 when no cap is scheduled).",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:spec_block_accept_length",
        help: "Mean uncapped full-block accept length per verify step (accept + cap-trimmed drafts; exact only in DSpark cap-accept mode).",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:spec_num_steps",
        help: "Currently active speculative_num_steps.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:spec_num_draft_tokens",
        help: "Currently active speculative_num_draft_tokens (decouples from steps under topk>1).",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_prefill_bootstrap_queue_reqs",
        help: "The number of requests in the prefill bootstrap queue.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_prefill_inflight_queue_reqs",
        help: "The number of requests in the prefill inflight queue.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_decode_prealloc_queue_reqs",
        help: "The number of requests in the decode prealloc queue.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_decode_transfer_queue_reqs",
        help: "The number of requests in the decode transfer queue.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_decode_host_receive_queue_reqs",
        help: "Requests in the decode transfer queue receiving into host memory or waiting for device admission.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_decode_deferred_kv_release_reqs",
        help: "The number of failed decode requests whose KV allocations are held pending transfer drain acknowledgement or timeout.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:pending_prealloc_token_usage",
        help: "The token usage for pending preallocated tokens (not preallocated yet).",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:prealloc_full_token_usage",
        help: "Share of the full-attention KV pool held by decode requests whose KV transfer is pending (preallocated, not yet running); same capacity basis as sglang:full_token_usage.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:prealloc_swa_token_usage",
        help: "Share of the SWA KV pool held by decode requests whose KV transfer is pending; same capacity basis as sglang:swa_token_usage.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:utilization",
        help: "The utilization.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:fwd_occupancy",
        help: "Forward pass GPU occupancy percentage.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(f64::NAN),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:new_token_ratio",
        help: "The new token ratio.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.7),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:is_cuda_graph",
        help: "Whether the batch is using CUDA graph.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:num_unique_running_routing_keys",
        help: "Number of unique routing keys in running batch.",
        kind: Kind::Gauge(&[Sample {
            labels: &[],
            value: Value::Constant(0.0),
        }]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:routing_key_running_req_count",
        help: "Distribution of routing keys by running request count (gt < count <= le).",
        kind: Kind::Gauge(&[
            Sample {
                labels: &[("gt", "0"), ("le", "1")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "1"), ("le", "2")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "2"), ("le", "3")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "3"), ("le", "5")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "5"), ("le", "7")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "7"), ("le", "10")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "10"), ("le", "20")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "20"), ("le", "50")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "50"), ("le", "100")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "100"), ("le", "200")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "200"), ("le", "+Inf")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Rank,
    },
    Family {
        name: "sglang:routing_key_all_req_count",
        help: "Distribution of routing keys by running+waiting request count (gt < count <= le).",
        kind: Kind::Gauge(&[
            Sample {
                labels: &[("gt", "0"), ("le", "1")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "1"), ("le", "2")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "2"), ("le", "3")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "3"), ("le", "5")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "5"), ("le", "7")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "7"), ("le", "10")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "10"), ("le", "20")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "20"), ("le", "50")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "50"), ("le", "100")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "100"), ("le", "200")],
                value: Value::Constant(0.0),
            },
            Sample {
                labels: &[("gt", "200"), ("le", "+Inf")],
                value: Value::Constant(0.0),
            },
        ]),
        of: Of::Rank,
    },
];
