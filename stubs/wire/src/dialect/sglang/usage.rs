//! `usage` as SGLang writes it.

use serde::Serialize;

use crate::usage::Usage;

/// `usage` with all of its keys.
#[derive(Serialize)]
pub struct FullUsage {
    prompt_tokens: u64,
    total_tokens: u64,
    completion_tokens: u64,
    prompt_tokens_details: Option<CachedTokens>,
    reasoning_tokens: u64,
    completion_tokens_details: Option<ReasoningTokens>,
}

/// `prompt_tokens_details`
#[derive(Serialize)]
struct CachedTokens {
    cached_tokens: u64,
}

/// `completion_tokens_details`
#[derive(Serialize)]
struct ReasoningTokens {
    reasoning_tokens: u64,
}

/// `usage` at the end of a streamed completion, without what is null.
#[derive(Serialize)]
pub(super) struct ShortUsage {
    prompt_tokens: u64,
    total_tokens: u64,
    completion_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<CachedTokens>,
    reasoning_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_tokens_details: Option<ReasoningTokens>,
}

impl From<Usage> for FullUsage {
    fn from(usage: Usage) -> Self {
        let reasoning_tokens = usage.reasoning_tokens.unwrap_or(0);
        Self {
            prompt_tokens: usage.prompt_tokens.unwrap_or(0),
            total_tokens: usage.total_tokens().unwrap_or(0),
            completion_tokens: usage.completion_tokens.unwrap_or(0),
            prompt_tokens_details: usage.cache.map(|cache| CachedTokens {
                cached_tokens: cache.cached,
            }),
            reasoning_tokens,
            completion_tokens_details: (reasoning_tokens > 0)
                .then_some(ReasoningTokens { reasoning_tokens }),
        }
    }
}

impl From<Usage> for ShortUsage {
    fn from(usage: Usage) -> Self {
        let full = FullUsage::from(usage);
        Self {
            prompt_tokens: full.prompt_tokens,
            total_tokens: full.total_tokens,
            completion_tokens: full.completion_tokens,
            prompt_tokens_details: full.prompt_tokens_details,
            reasoning_tokens: full.reasoning_tokens,
            completion_tokens_details: full.completion_tokens_details,
        }
    }
}
