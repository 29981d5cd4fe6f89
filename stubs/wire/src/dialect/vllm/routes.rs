//! The paths that vLLM serves.

use crate::route::{Entry, Route, entry};

/// All of them.
pub(crate) const ROUTES: &[Entry] = &[
    entry(&["POST"], "/v1/chat/completions", Route::Chat),
    entry(&["POST"], "/v1/completions", Route::Completions),
    entry(&["POST"], "/v1/messages", Route::Messages),
    entry(&["POST"], "/v1/messages/count_tokens", Route::CountTokens),
    entry(&["GET"], "/v1/models", Route::Models),
    entry(&["POST"], "/v1/responses", Route::Responses),
    entry(&["GET"], "/v1/responses/{response_id}", Route::Response),
    entry(&["GET"], "/health", Route::Health),
    entry(&["GET"], "/ping", Route::Ping),
    entry(&["POST"], "/ping", Route::Ping),
    entry(&["GET"], "/is_sleeping", Route::IsSleeping),
    entry(&["POST"], "/reset_prefix_cache", Route::ResetPrefixCache),
    entry(&["GET"], "/server_info", Route::ServerInfo),
    entry(&["GET"], "/version", Route::Version),
    entry(&["GET"], "/load", Route::Load),
    entry(&["GET"], "/metrics", Route::Metrics),
    entry(&["HEAD"], "/metrics", Route::Metrics),
    entry(&["GET"], "/metrics/", Route::MetricsBelow),
    entry(&["HEAD"], "/metrics/", Route::MetricsBelow),
    entry(&["POST"], "/invocations", Route::Invocations),
    entry(&["GET"], "/openapi.json", Route::OpenApi),
    entry(&["HEAD"], "/openapi.json", Route::OpenApi),
    entry(&["POST"], "/tokenize", Route::Tokenize),
    entry(&["POST"], "/detokenize", Route::Detokenize),
    entry(&["POST"], "/inference/v1/generate", Route::Generate),
    entry(
        &["POST"],
        "/inference/v1/abort_requests",
        Route::AbortRequests,
    ),
    entry(&["POST"], "/v1/chat/completions/render", Route::RenderChat),
    entry(
        &["POST"],
        "/v1/completions/render",
        Route::RenderCompletions,
    ),
    entry(&["POST"], "/echo", Route::Echo),
];
