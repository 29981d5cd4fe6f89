//! `usage` of what is typed.

use serde::Serialize;

use crate::usage::Usage;

/// Three counts.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the wire's names")]
pub(super) struct TypedUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl From<Usage> for TypedUsage {
    fn from(usage: Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens.unwrap_or(0),
            completion_tokens: usage.completion_tokens.unwrap_or(0),
            total_tokens: usage.total_tokens().unwrap_or(0),
        }
    }
}
