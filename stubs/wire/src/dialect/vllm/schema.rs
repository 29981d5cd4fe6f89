//! The request models of vLLM 0.32 and 0.33, fields in declaration order.

use super::message::MESSAGE;
use crate::schema::{Field, INT, INT64, Kind, nullable, optional, required};

const ANY_LENGTH: usize = usize::MAX;

const STRINGS: Kind = Kind::List(&Kind::Str, ANY_LENGTH);
const INTS: Kind = Kind::List(&INT, ANY_LENGTH);
const DICT: Kind = Kind::Dict(&Kind::Any);
const NATURAL: Kind = Kind::Int {
    ge: 0,
    le: i128::MAX,
};
const POSITIVE: Kind = Kind::Int {
    ge: 1,
    le: i128::MAX,
};
const NATURALS: Kind = Kind::List(&NATURAL, ANY_LENGTH);
const TRUNCATION: Kind = Kind::Int {
    ge: -1,
    le: i64::MAX as i128,
};
/// `VLLM_MAX_STOP_STRINGS` is 4.
const STOP: Kind = Kind::Union(&[Kind::Str, Kind::List(&Kind::Str, 4)]);
const XARGS: Kind = Kind::Dict(&Kind::Union(&[
    Kind::Str,
    INT,
    Kind::Float,
    Kind::List(&Kind::Union(&[Kind::Str, INT, Kind::Float]), ANY_LENGTH),
]));
const MEDIA: Kind = Kind::Literal(&["tensors", "none"]);
const SIDE: Kind = Kind::Literal(&["left", "right"]);

const STREAM_OPTIONS: Kind = Kind::Model(&[
    nullable("include_usage", Kind::Bool),
    nullable("continuous_usage_stats", Kind::Bool),
]);

const TOOL: Kind = Kind::Model(&[
    optional("type", Kind::Literal(&["function"])),
    required(
        "function",
        Kind::Model(&[
            required("name", Kind::Str),
            nullable("description", Kind::Str),
            nullable("parameters", DICT),
            nullable("strict", Kind::Bool),
            nullable("defer_loading", Kind::Bool),
        ]),
    ),
    nullable("defer_loading", Kind::Bool),
]);

const TOOL_CHOICE: Kind = Kind::Union(&[
    Kind::Literal(&["none"]),
    Kind::Literal(&["auto"]),
    Kind::Literal(&["required"]),
    Kind::Model(&[
        required("function", Kind::Model(&[required("name", Kind::Str)])),
        optional("type", Kind::Literal(&["function"])),
    ]),
]);

const RESPONSE_FORMAT: Kind = Kind::Union(&[
    Kind::Model(&[
        required(
            "type",
            Kind::Literal(&["text", "json_object", "json_schema"]),
        ),
        nullable(
            "json_schema",
            Kind::Model(&[
                required("name", Kind::Str),
                nullable("description", Kind::Str),
                nullable("schema", DICT),
                nullable("strict", Kind::Bool),
            ]),
        ),
    ]),
    Kind::Model(&[
        required("type", Kind::Literal(&["structural_tag"])),
        required("format", Kind::Any),
    ]),
    Kind::Model(&[
        required("type", Kind::Literal(&["structural_tag"])),
        required(
            "structures",
            Kind::List(
                &Kind::Model(&[
                    required("begin", Kind::Str),
                    nullable("schema", DICT),
                    required("end", Kind::Str),
                ]),
                ANY_LENGTH,
            ),
        ),
        required("triggers", STRINGS),
    ]),
]);

const EFFORT: Kind = Kind::Literal(&["none", "minimal", "low", "medium", "high", "xhigh", "max"]);

/// `ChatCompletionRequest`
pub(super) const CHAT: &[Field] = &[
    required("messages", Kind::List(&MESSAGE, ANY_LENGTH)),
    nullable("model", Kind::Str),
    nullable("frequency_penalty", Kind::Float),
    nullable("logit_bias", Kind::Dict(&Kind::Float)),
    nullable("logprobs", Kind::Bool),
    nullable("top_logprobs", INT),
    nullable("max_tokens", INT),
    nullable("max_completion_tokens", INT),
    nullable("n", INT),
    nullable("presence_penalty", Kind::Float),
    nullable("response_format", RESPONSE_FORMAT),
    nullable("seed", INT64),
    nullable("stop", STOP),
    nullable("stream", Kind::Bool),
    nullable("stream_options", STREAM_OPTIONS),
    nullable("temperature", Kind::Float),
    nullable("top_p", Kind::Float),
    nullable("tools", Kind::List(&TOOL, ANY_LENGTH)),
    nullable("tool_choice", TOOL_CHOICE),
    nullable("reasoning_effort", EFFORT),
    optional("include_reasoning", Kind::Bool),
    nullable("parallel_tool_calls", Kind::Bool),
    nullable("user", Kind::Str),
    optional("use_beam_search", Kind::Bool),
    nullable("top_k", INT),
    nullable("min_p", Kind::Float),
    nullable("repetition_penalty", Kind::Float),
    nullable("watermarking", Kind::Bool),
    optional("length_penalty", Kind::Float),
    nullable("stop_token_ids", INTS),
    optional("include_stop_str_in_output", Kind::Bool),
    optional("ignore_eos", Kind::Bool),
    optional("min_tokens", INT),
    nullable("skip_special_tokens", Kind::Bool),
    optional("spaces_between_special_tokens", Kind::Bool),
    nullable("truncate_prompt_tokens", TRUNCATION),
    nullable("truncation_side", SIDE),
    nullable("prompt_logprobs", INT),
    nullable("logprob_token_ids", INTS),
    nullable("allowed_token_ids", INTS),
    optional("bad_words", STRINGS),
    optional("echo", Kind::Bool),
    optional("add_generation_prompt", Kind::Bool),
    optional("continue_final_message", Kind::Bool),
    optional("add_special_tokens", Kind::Bool),
    nullable("documents", Kind::List(&Kind::Dict(&Kind::Str), ANY_LENGTH)),
    nullable("chat_template", Kind::Str),
    nullable("chat_template_kwargs", DICT),
    nullable("media_io_kwargs", Kind::Dict(&DICT)),
    nullable("mm_processor_kwargs", DICT),
    nullable(
        "structured_outputs",
        Kind::Dataclass("StructuredOutputsParams"),
    ),
    optional("priority", INT64),
    optional("request_id", Kind::Str),
    nullable("session_id", Kind::Str),
    nullable("return_tokens_as_token_ids", Kind::Bool),
    nullable("return_token_ids", Kind::Bool),
    optional("return_weight_versions", Kind::Bool),
    optional("routed_experts_prompt_start", NATURAL),
    nullable("return_token_offsets", Kind::Bool),
    nullable("return_prompt_text", Kind::Bool),
    optional("mm_payload", MEDIA),
    nullable("return_mm_kwargs", Kind::Bool),
    nullable("cache_salt", Kind::Str),
    nullable("kv_transfer_params", DICT),
    nullable("ec_transfer_params", DICT),
    nullable("vllm_xargs", XARGS),
    nullable(
        "repetition_detection",
        Kind::Dataclass("RepetitionDetectionParams"),
    ),
    nullable("stream_interval", POSITIVE),
];

/// `CompletionRequest`
pub(super) const COMPLETIONS: &[Field] = &[
    nullable("model", Kind::Str),
    nullable(
        "prompt",
        Kind::Union(&[
            NATURALS,
            Kind::List(&NATURALS, ANY_LENGTH),
            Kind::Str,
            STRINGS,
        ]),
    ),
    nullable("echo", Kind::Bool),
    nullable("frequency_penalty", Kind::Float),
    nullable("logit_bias", Kind::Dict(&Kind::Float)),
    nullable("logprobs", INT),
    nullable("max_tokens", INT),
    optional("n", INT),
    nullable("presence_penalty", Kind::Float),
    nullable("seed", INT64),
    nullable("stop", STOP),
    nullable("stream", Kind::Bool),
    nullable("stream_options", STREAM_OPTIONS),
    nullable("suffix", Kind::Str),
    nullable("temperature", Kind::Float),
    nullable("top_p", Kind::Float),
    nullable("user", Kind::Str),
    optional("use_beam_search", Kind::Bool),
    nullable("top_k", INT),
    nullable("min_p", Kind::Float),
    nullable("repetition_penalty", Kind::Float),
    nullable("watermarking", Kind::Bool),
    optional("length_penalty", Kind::Float),
    nullable("stop_token_ids", INTS),
    optional("include_stop_str_in_output", Kind::Bool),
    optional("ignore_eos", Kind::Bool),
    optional("min_tokens", INT),
    nullable("skip_special_tokens", Kind::Bool),
    optional("spaces_between_special_tokens", Kind::Bool),
    nullable("truncate_prompt_tokens", TRUNCATION),
    nullable("truncation_side", SIDE),
    nullable("allowed_token_ids", INTS),
    nullable("prompt_logprobs", INT),
    nullable("logprob_token_ids", INTS),
    optional("bad_words", STRINGS),
    nullable(
        "prompt_embeds",
        Kind::Union(&[Kind::Bytes, Kind::List(&Kind::Bytes, ANY_LENGTH)]),
    ),
    optional("add_special_tokens", Kind::Bool),
    nullable("response_format", RESPONSE_FORMAT),
    nullable(
        "structured_outputs",
        Kind::Dataclass("StructuredOutputsParams"),
    ),
    optional("priority", INT64),
    optional("request_id", Kind::Str),
    nullable("session_id", Kind::Str),
    nullable("return_tokens_as_token_ids", Kind::Bool),
    nullable("return_token_ids", Kind::Bool),
    optional("return_weight_versions", Kind::Bool),
    optional("routed_experts_prompt_start", NATURAL),
    nullable("return_token_offsets", Kind::Bool),
    optional("mm_payload", MEDIA),
    nullable("return_mm_kwargs", Kind::Bool),
    nullable("cache_salt", Kind::Str),
    nullable("kv_transfer_params", DICT),
    nullable("ec_transfer_params", DICT),
    nullable("vllm_xargs", XARGS),
    nullable(
        "repetition_detection",
        Kind::Dataclass("RepetitionDetectionParams"),
    ),
    nullable("stream_interval", POSITIVE),
];

/// `SamplingParams`, a typed dictionary of the engine's own.
pub(super) const SAMPLING: &[Field] = &[
    optional("n", INT),
    optional("presence_penalty", Kind::Float),
    optional("frequency_penalty", Kind::Float),
    optional("repetition_penalty", Kind::Float),
    optional("temperature", Kind::Float),
    nullable("watermarking", Kind::Bool),
    optional("top_p", Kind::Float),
    optional("top_k", INT),
    optional("min_p", Kind::Float),
    nullable("seed", INT),
    nullable(
        "stop",
        Kind::Union(&[Kind::Str, Kind::List(&Kind::Str, ANY_LENGTH)]),
    ),
    nullable("stop_token_ids", INTS),
    optional("ignore_eos", Kind::Bool),
    nullable("max_tokens", INT),
    optional("min_tokens", INT),
    nullable("logprobs", INT),
    nullable("prompt_logprobs", INT),
    nullable("logprob_token_ids", INTS),
    optional("detokenize", Kind::Bool),
    optional("skip_special_tokens", Kind::Bool),
    optional("spaces_between_special_tokens", Kind::Bool),
    optional("include_stop_str_in_output", Kind::Bool),
    nullable("stream_interval", INT),
    nullable("logit_bias", Kind::Dict(&Kind::Float)),
    nullable("allowed_token_ids", INTS),
    nullable("bad_words", STRINGS),
];

/// `GenerateRequest`
pub(super) const GENERATE: &[Field] = &[
    optional("request_id", Kind::Str),
    required("token_ids", Kind::NonEmptyList(&INT)),
    required(
        "sampling_params",
        Kind::Union(&[Kind::Instance("SamplingParams"), Kind::Record(SAMPLING)]),
    ),
    nullable("model", Kind::Str),
    nullable("reasoning_ended", Kind::Bool),
    nullable("return_token_ids", Kind::Bool),
    optional("output_mode", Kind::Literal(&["tokens", "text"])),
    nullable("stream", Kind::Bool),
    nullable("stream_options", STREAM_OPTIONS),
    nullable("cache_salt", Kind::Str),
    optional("priority", INT64),
    nullable("kv_transfer_params", DICT),
    nullable("ec_transfer_params", DICT),
];

/// `TokenizeCompletionRequest`
pub(super) const TOKENIZE_TEXT: &[Field] = &[
    nullable("model", Kind::Str),
    required("prompt", Kind::Str),
    optional("add_special_tokens", Kind::Bool),
    nullable("return_token_strs", Kind::Bool),
];

/// `TokenizeChatRequest`
pub(super) const TOKENIZE_CHAT: &[Field] = &[
    nullable("model", Kind::Str),
    required("messages", Kind::List(&MESSAGE, ANY_LENGTH)),
    optional("add_generation_prompt", Kind::Bool),
    nullable("return_token_strs", Kind::Bool),
    optional("continue_final_message", Kind::Bool),
    optional("add_special_tokens", Kind::Bool),
    nullable("chat_template", Kind::Str),
    nullable("chat_template_kwargs", DICT),
    nullable("media_io_kwargs", Kind::Dict(&DICT)),
    nullable("mm_processor_kwargs", DICT),
    nullable("tools", Kind::List(&TOOL, ANY_LENGTH)),
];

/// `DetokenizeRequest`
pub(super) const DETOKENIZE: &[Field] = &[
    nullable("model", Kind::Str),
    required(
        "tokens",
        Kind::List(
            &Kind::Int {
                ge: 0,
                le: i64::MAX as i128,
            },
            ANY_LENGTH,
        ),
    ),
];
