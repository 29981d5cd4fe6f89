//! SGLang's request models as far as they refuse anything.

use crate::schema::{Field, INT, Kind, nullable, optional, required};

pub(super) const ANY_LENGTH: usize = usize::MAX;

pub(super) const STRINGS: Kind = Kind::List(&Kind::Str, ANY_LENGTH);
pub(super) const INTS: Kind = Kind::List(&INT, ANY_LENGTH);
pub(super) const TEXTS: Kind = Kind::Union(&[Kind::Str, STRINGS]);
pub(super) const IDS: Kind = Kind::Union(&[INTS, Kind::List(&INTS, ANY_LENGTH)]);
const FLAGS: Kind = Kind::Union(&[Kind::List(&Kind::Bool, ANY_LENGTH), Kind::Bool]);
const NUMBERS: Kind = Kind::Union(&[INTS, INT]);
pub(super) const DICT: Kind = Kind::Dict(&Kind::Any);

const STREAM_OPTIONS: Kind = Kind::Model(&[
    nullable("include_usage", Kind::Bool),
    nullable("continuous_usage_stats", Kind::Bool),
]);

pub(super) const TOOL: Kind = Kind::Model(&[
    optional("type", Kind::Str),
    required(
        "function",
        Kind::Model(&[
            nullable("description", Kind::Str),
            required("name", Kind::Str),
            nullable("parameters", DICT),
            nullable("strict", Kind::Bool),
        ]),
    ),
]);

pub(super) const TOOL_CHOICE: Kind = Kind::Union(&[
    Kind::Model(&[
        required("function", Kind::Model(&[nullable("name", Kind::Str)])),
        optional("type", Kind::Literal(&["function"])),
    ]),
    Kind::Literal(&["auto", "required", "none"]),
]);

/// Whoever may speak, other than the user.
const ROLES: Kind = Kind::Literal(&[
    "user",
    "system",
    "assistant",
    "tool",
    "function",
    "developer",
    "latest_reminder",
    "root",
]);

pub(super) const MESSAGE: Kind = Kind::Model(&[
    required("role", ROLES),
    nullable("content", Kind::Union(&[Kind::Str, Kind::Iterable])),
    nullable("tool_calls", Kind::List(&DICT, ANY_LENGTH)),
    nullable("reasoning_content", Kind::Str),
]);

/// `/v1/chat/completions`
pub(super) const CHAT: &[Field] = &[
    required("messages", Kind::List(&MESSAGE, ANY_LENGTH)),
    optional("model", Kind::Str),
    nullable("frequency_penalty", Kind::Float),
    nullable("logit_bias", Kind::Dict(&Kind::Float)),
    optional("logprobs", Kind::Bool),
    nullable("top_logprobs", INT),
    nullable("max_tokens", INT),
    nullable("max_completion_tokens", INT),
    optional("n", INT),
    nullable("presence_penalty", Kind::Float),
    nullable("response_format", DICT),
    nullable("seed", INT),
    nullable("stop", TEXTS),
    optional("stream", Kind::Bool),
    nullable("stream_options", STREAM_OPTIONS),
    nullable("temperature", Kind::Float),
    nullable("top_p", Kind::Float),
    nullable("user", Kind::Str),
    nullable("tools", Kind::List(&TOOL, ANY_LENGTH)),
    nullable("tool_choice", TOOL_CHOICE),
    nullable("parallel_tool_calls", Kind::Bool),
    optional("return_hidden_states", Kind::Bool),
    nullable("top_k", INT),
    nullable("min_p", Kind::Float),
    optional("min_tokens", INT),
    nullable("regex", Kind::Str),
    nullable("ebnf", Kind::Str),
    nullable("repetition_penalty", Kind::Float),
    nullable("stop_token_ids", INTS),
    nullable("stop_regex", TEXTS),
    optional("no_stop_trim", Kind::Bool),
    optional("ignore_eos", Kind::Bool),
    optional("continue_final_message", Kind::Bool),
    optional("skip_special_tokens", Kind::Bool),
    optional("separate_reasoning", Kind::Bool),
    optional("stream_reasoning", Kind::Bool),
    nullable("chat_template_kwargs", DICT),
    nullable("rid", TEXTS),
    optional("return_token_ids", Kind::Bool),
    optional("return_prompt_token_ids", Kind::Bool),
    optional("return_meta_info", Kind::Bool),
    optional("return_cached_tokens_details", Kind::Bool),
    optional("return_input_ids_in_sglext", Kind::Bool),
    optional("return_output_ids_in_sglext", Kind::Bool),
];

/// `/v1/completions`
pub(super) const COMPLETIONS: &[Field] = &[
    optional("model", Kind::Str),
    required(
        "prompt",
        Kind::Union(&[INTS, Kind::List(&INTS, ANY_LENGTH), Kind::Str, STRINGS]),
    ),
    optional("echo", Kind::Bool),
    nullable("frequency_penalty", Kind::Float),
    nullable("logit_bias", Kind::Dict(&Kind::Float)),
    nullable("logprobs", INT),
    nullable(
        "max_tokens",
        Kind::Int {
            ge: 1,
            le: i128::MAX,
        },
    ),
    optional("n", INT),
    nullable("presence_penalty", Kind::Float),
    nullable("seed", INT),
    nullable("stop", TEXTS),
    optional("stream", Kind::Bool),
    nullable("stream_options", STREAM_OPTIONS),
    nullable("suffix", Kind::Str),
    nullable("temperature", Kind::Float),
    nullable("top_p", Kind::Float),
    nullable("user", Kind::Str),
    nullable("top_k", INT),
    nullable("min_p", Kind::Float),
    optional("min_tokens", INT),
    nullable("repetition_penalty", Kind::Float),
    nullable("stop_token_ids", INTS),
    nullable("stop_regex", TEXTS),
    optional("no_stop_trim", Kind::Bool),
    optional("ignore_eos", Kind::Bool),
    optional("skip_special_tokens", Kind::Bool),
    nullable("rid", TEXTS),
    optional("return_token_ids", Kind::Bool),
    optional("return_prompt_token_ids", Kind::Bool),
];

/// `/generate`, whose sampling parameters are looked at later.
pub(super) const GENERATE: &[Field] = &[
    nullable("rid", TEXTS),
    nullable("text", TEXTS),
    nullable("input_ids", IDS),
    nullable(
        "sampling_params",
        Kind::Union(&[Kind::List(&DICT, ANY_LENGTH), DICT]),
    ),
    nullable("return_logprob", FLAGS),
    nullable("logprob_start_len", NUMBERS),
    nullable("top_logprobs_num", NUMBERS),
    nullable("token_ids_logprob", IDS),
    optional("return_text_in_logprobs", Kind::Bool),
    optional("stream", Kind::Bool),
    optional("return_prompt_token_ids", Kind::Bool),
    optional("return_flat_raw_top_logprobs", Kind::Bool),
    optional("return_flat_raw_output_top_logprobs", Kind::Bool),
    optional("require_reasoning", Kind::Bool),
];

/// `sampling_params` of `/generate`, in the order in which a refusal lists them.
pub(super) const SAMPLING: [&str; 28] = [
    "max_new_tokens",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_new_tokens",
    "n",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "stream_interval",
    "logit_bias",
    "sampling_seed",
    "custom_params",
    "beam_width",
    "watermark",
    "choice",
];
