//! The paths that the front end in Rust serves.

use crate::route::{Entry, Route, entry};

const GET: &[&str] = &["GET", "HEAD"];

/// All of them.
pub(super) const ROUTES: &[Entry] = &[
    entry(&["POST"], "/v1/chat/completions", Route::Chat),
    entry(&["POST"], "/v1/completions", Route::Completions),
    entry(&["POST"], "/generate", Route::Native),
    entry(GET, "/v1/models", Route::Models),
    entry(GET, "/v1/models/{model}", Route::Model),
    entry(GET, "/health", Route::HealthGenerate),
    entry(GET, "/health_generate", Route::HealthGenerate),
    entry(GET, "/model_info", Route::ModelInfo),
    entry(GET, "/get_model_info", Route::ModelInfo),
    entry(GET, "/server_info", Route::FullServerInfo),
    entry(GET, "/v1/loads", Route::Loads),
    entry(&["GET", "HEAD", "POST"], "/flush_cache", Route::FlushCache),
    entry(&["POST"], "/abort_request", Route::AbortRequest),
    entry(&["POST"], "/tokenize", Route::NativeTokenize),
    entry(&["POST"], "/v1/tokenize", Route::NativeTokenize),
    entry(&["POST"], "/detokenize", Route::NativeDetokenize),
    entry(&["POST"], "/v1/detokenize", Route::NativeDetokenize),
    entry(GET, "/metrics", Route::Metrics),
    entry(&["POST"], "/echo", Route::Echo),
];
