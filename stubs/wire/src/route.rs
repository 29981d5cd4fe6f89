//! What a server's paths are for.

use crate::request::Endpoint;

/// A path with a known method.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Route {
    /// `POST /inference/v1/abort_requests`
    AbortRequests,
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `POST /detokenize`
    Detokenize,
    /// `POST /echo`: the raw request.
    Echo,
    /// `POST /inference/v1/generate`
    Generate,
    /// `GET /health`
    Health,
    /// `POST /invocations`
    Invocations,
    /// `GET /is_sleeping`, of the developer's mode.
    IsSleeping,
    /// `GET /load`
    Load,
    /// `POST /v1/messages`
    Messages,
    /// `GET /metrics`
    Metrics,
    /// What answers below `/metrics`: `HEAD` requests and the path with a slash.
    MetricsBelow,
    /// `GET /v1/models`
    Models,
    /// `HEAD /openapi.json`
    OpenApi,
    /// `GET /ping`, `POST /ping`
    Ping,
    /// `POST /v1/chat/completions/render`
    RenderChat,
    /// `POST /v1/completions/render`
    RenderCompletions,
    /// `POST /reset_prefix_cache`, of the developer's mode.
    ResetPrefixCache,
    /// `GET /v1/responses/{response_id}`: none is kept.
    Response,
    /// `POST /v1/responses`
    Responses,
    /// `GET /server_info`, of the developer's mode.
    ServerInfo,
    /// `POST /tokenize`
    Tokenize,
    /// `GET /version`
    Version,
    /// `POST /abort_request`: ends a request, or all.
    AbortRequest,
    /// `POST /v1/embeddings` and the like: there is no embedding model.
    Embeddings,
    /// `POST /encode`, in SGLang's own form.
    Encode,
    /// `GET /flush_cache`, `POST /flush_cache`
    FlushCache,
    /// `GET /server_info` of SGLang: everything that the server was started with.
    FullServerInfo,
    /// `GET /health_generate`: a token is generated to see whether it can be.
    HealthGenerate,
    /// `GET /v1/loads`
    Loads,
    /// `GET /v1/models/{model}`
    Model,
    /// `GET /model_info`
    ModelInfo,
    /// SGLang's `POST /generate`
    Native,
    /// `POST /detokenize` of SGLang.
    NativeDetokenize,
    /// `POST /tokenize` of SGLang.
    NativeTokenize,
    /// `POST /api/chat`, Ollama's.
    OllamaChat,
    /// `POST /api/generate`, Ollama's.
    OllamaGenerate,
    /// `GET /api/tags`, Ollama's.
    OllamaTags,
    /// `POST /parse_function_call`
    ParseFunctionCall,
    /// `GET /`: a sign of life.
    Root,
    /// `POST /v1/score`
    Score,
    /// `POST /separate_reasoning`
    SeparateReasoning,
    /// `POST /set_internal_state`
    SetInternalState,
    /// `POST /vertex_generate`: requests of `/generate` in a wrapping.
    VertexGenerate,
}

impl Route {
    /// Number of routes.
    pub const COUNT: usize = Self::VertexGenerate as usize + 1;

    /// Whether the server's own HTTP counters leave it out.
    pub fn is_uncounted(self) -> bool {
        matches!(
            self,
            Self::Health
                | Self::Load
                | Self::Metrics
                | Self::MetricsBelow
                | Self::Ping
                | Self::ServerInfo
                | Self::Version
        )
    }

    /// The kind of answer that it gives, if it is one that a model says.
    pub fn endpoint(self) -> Option<Endpoint> {
        match self {
            Self::Chat => Some(Endpoint::Chat),
            Self::Completions => Some(Endpoint::Completions),
            Self::Encode | Self::Native | Self::VertexGenerate => Some(Endpoint::Generate),
            _ => None,
        }
    }
}

/// A path with its methods and what it is for.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its methods, as a refusal of others lists them.
    pub methods: &'static [&'static str],
    /// The path; a last part in braces is any name, or with `:path` whatever follows.
    pub path: &'static str,
    /// What it is for.
    pub route: Route,
}

/// An entry of a table of routes.
pub(crate) const fn entry(
    methods: &'static [&'static str],
    path: &'static str,
    route: Route,
) -> Entry {
    Entry {
        methods,
        path,
        route,
    }
}

impl Entry {
    /// Whether a path is this one.
    pub fn fits(&self, path: &str) -> bool {
        if self.path == path {
            return true;
        }
        let named = self
            .path
            .strip_suffix('}')
            .and_then(|known| known.split_once('{'));
        let part = named.and_then(|(before, _)| path.strip_prefix(before));
        let takes_all = self.path.ends_with(":path}");
        part.is_some_and(|part| takes_all || !part.is_empty() && !part.contains('/'))
    }
}

/// The entry of a path and a method; failing that, all methods of the path, none if it is not there.
///
/// # Errors
/// The methods that the path's first entry has.
pub fn find(
    routes: &'static [Entry],
    path: &str,
    method: &str,
) -> Result<Route, Option<&'static [&'static str]>> {
    let fitting = || routes.iter().filter(|entry| entry.fits(path));
    let found = fitting().find(|entry| entry.methods.contains(&method));
    match found {
        Some(entry) => Ok(entry.route),
        None => Err(fitting().next().map(|entry| entry.methods)),
    }
}
