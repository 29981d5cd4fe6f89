//! `meta_info` as the front end in Rust writes it.

use crate::chunk::Choice;
use crate::dialect::Meta;
use crate::dialect::sglang::lists::member;
use crate::dialect::sglang::native::{ToldChoice, WeightVersion, finish_reason};
use crate::json;

/// Appends `meta_info`.
pub(in crate::dialect::sglang) fn write_meta(
    id: &str,
    meta: &Meta,
    choice: &Choice<'_>,
    told: &ToldChoice,
    out: &mut Vec<u8>,
) {
    let progress = choice.progress.unwrap_or_default();
    let usage = progress.usage;
    let completion_tokens = usage.completion_tokens.unwrap_or(0);
    let is_last = choice.finish.is_some();
    out.extend_from_slice(br#"{"id":""#);
    json::escape_into(id, out);
    out.push(b'"');
    member("prompt_tokens", usage.prompt_tokens.unwrap_or(0), out);
    member("completion_tokens", completion_tokens, out);
    out.extend_from_slice(br#","finish_reason":"#);
    finish_reason(choice.finish.as_ref(), completion_tokens, out);
    if let (Some(asked), Some(lists)) = (&meta.logprobs, &told.lists) {
        lists.write_in_turn(asked, out);
    }
    if is_last {
        member("e2e_latency", progress.seconds, out);
    }
    let cached = usage.cache.map_or(0, |cache| cache.cached);
    member("cached_tokens", cached, out);
    let reasoning_tokens = usage.reasoning_tokens.unwrap_or(0);
    member("reasoning_tokens", reasoning_tokens, out);
    member("weight_version", WeightVersion::NAME, out);
    if is_last {
        let versions = [WeightVersion::up_to(completion_tokens)];
        member("weight_versions", versions, out);
    }
    out.push(b'}');
}
