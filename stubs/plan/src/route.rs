//! Which paths a stub serves, and the small answers.

use std::sync::atomic::Ordering;

use serde::Serialize;
use wire::dialect::{Content, Models};
use wire::failure::Failure;
use wire::request::Endpoint;

use crate::reply::Reply;
use crate::stub::{Call, Context, Stub};
use crate::{answer, invocations, messages, prompt, responses, scale_out};

/// A path with a known method.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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
}

const ROUTES: [(&str, &[&str], Route); 25] = [
    ("/v1/chat/completions", &["POST"], Route::Chat),
    ("/v1/completions", &["POST"], Route::Completions),
    ("/v1/messages", &["POST"], Route::Messages),
    ("/v1/messages/count_tokens", &["POST"], Route::CountTokens),
    ("/v1/models", &["GET"], Route::Models),
    ("/v1/responses", &["POST"], Route::Responses),
    ("/v1/responses/{response_id}", &["GET"], Route::Response),
    ("/health", &["GET"], Route::Health),
    ("/ping", &["GET", "POST"], Route::Ping),
    ("/is_sleeping", &["GET"], Route::IsSleeping),
    ("/reset_prefix_cache", &["POST"], Route::ResetPrefixCache),
    ("/server_info", &["GET"], Route::ServerInfo),
    ("/version", &["GET"], Route::Version),
    ("/load", &["GET"], Route::Load),
    ("/metrics", &["GET", "HEAD"], Route::Metrics),
    ("/metrics/", &["GET", "HEAD"], Route::MetricsBelow),
    ("/invocations", &["POST"], Route::Invocations),
    ("/openapi.json", &["GET", "HEAD"], Route::OpenApi),
    ("/tokenize", &["POST"], Route::Tokenize),
    ("/detokenize", &["POST"], Route::Detokenize),
    ("/inference/v1/generate", &["POST"], Route::Generate),
    (
        "/inference/v1/abort_requests",
        &["POST"],
        Route::AbortRequests,
    ),
    ("/v1/chat/completions/render", &["POST"], Route::RenderChat),
    (
        "/v1/completions/render",
        &["POST"],
        Route::RenderCompletions,
    ),
    ("/echo", &["POST"], Route::Echo),
];

impl Route {
    /// Number of routes.
    pub const COUNT: usize = ROUTES.len();

    /// All routes with their paths.
    pub fn all() -> impl Iterator<Item = (Self, &'static str)> {
        ROUTES.iter().map(|(path, _, route)| (*route, *path))
    }

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

    /// The route of a call, or the answer to one that is not there.
    pub(crate) fn find(stub: &Stub, call: &Call<'_>) -> Result<Self, Box<Reply>> {
        let front = &stub.front;
        let is_there = |route| match route {
            Self::Echo => front.serves_echo,
            Self::IsSleeping | Self::ResetPrefixCache | Self::ServerInfo => front.dev_mode,
            Self::Metrics | Self::MetricsBelow => front.serves_metrics,
            _ => true,
        };
        let find = |path: &str| {
            let mut routes = ROUTES.iter().filter(|(.., route)| is_there(*route));
            routes.find(|(known, ..)| fits(known, path))
        };
        let (head, path) = (call.head, front.path(call));
        if let Some((_, methods, route)) = find(path) {
            if methods.contains(&head.method) {
                return Ok(match route {
                    Self::Metrics if head.method == "HEAD" => Self::MetricsBelow,
                    route => *route,
                });
            }
            let mut reply = detail(405, "Method Not Allowed");
            reply.headers.first.push(("allow", methods[0].to_owned()));
            return Err(reply.into());
        }
        let trimmed = path.strip_suffix('/').filter(|path| find(path).is_some());
        let (Some(path), Some(host)) = (trimmed, head.header("host")) else {
            return Err(detail(404, "Not Found").into());
        };
        let query = head.target.find('?').map_or("", |at| &head.target[at..]);
        let mut reply = Reply::empty(307);
        let location = format!("http://{host}{}{path}{query}", front.root_path);
        reply.headers.middle.push(("location", location));
        Err(reply.into())
    }

    /// The route's answer; `Err` is for the server to give.
    pub(crate) fn reply(
        self,
        stub: &Stub,
        call: &Call<'_>,
        context: &mut Context,
    ) -> Result<Reply, Self> {
        let reply = match self {
            Self::AbortRequests => scale_out::abort(stub, call),
            Self::Chat => answer::reply(stub, Endpoint::Chat, call, context),
            Self::Completions => answer::reply(stub, Endpoint::Completions, call, context),
            Self::CountTokens => messages::count_tokens(stub, call),
            Self::Detokenize => detokenize(stub, call),
            Self::Echo | Self::Metrics | Self::MetricsBelow => return Err(self),
            Self::Generate => {
                scale_out::check_on(stub).and_then(|()| answer::generate(stub, call, context))
            }
            Self::Health if stub.engine.dead.load(Ordering::Relaxed) => Ok(Reply::empty(503)),
            Self::Health | Self::Ping => Ok(Reply::empty(200)),
            Self::Invocations => invocations::reply(stub, call, context),
            // Only how long the document is was recorded, so there is none to send.
            Self::OpenApi if call.head.method == "HEAD" => Ok(Reply::head_alone(Content::Json(
                stub.dialect.openapi_bytes(),
            ))),
            Self::OpenApi => Ok(detail(404, "Not Found")),
            Self::IsSleeping => Ok(Reply::json(200, br#"{"is_sleeping":false}"#.to_vec())),
            Self::RenderChat => scale_out::render(stub, Endpoint::Chat, call, context),
            Self::RenderCompletions => {
                scale_out::render(stub, Endpoint::Completions, call, context)
            }
            Self::ResetPrefixCache => {
                if let Some(cache) = &stub.engine.prefix_cache {
                    cache.reset();
                }
                Ok(Reply::json(200, br#"{"success":true}"#.to_vec()))
            }
            Self::ServerInfo => Ok(server_info(stub)),
            Self::Load => Ok(Reply::json(200, br#"{"server_load":0}"#.to_vec())),
            Self::Messages => messages::reply(stub, call, context),
            Self::Models => Ok(models(stub, context)),
            Self::Response => Err(responses::unknown(stub.front.path(call))),
            Self::Responses => responses::reply(stub, call, context),
            Self::Tokenize => tokenize(stub, call),
            Self::Version => Ok(json(&Version {
                version: stub.dialect.version(),
            })),
        };
        Ok(reply.unwrap_or_else(|failure| {
            let mut reply = Reply::refusal(&failure);
            // Without a tokenizer chats end in an exception, which passes the layer that adds `vary`.
            reply.headers.without_vary = stub.front.tokens_only && failure == Failure::internal("");
            reply
        }))
    }
}

/// Whether a path is a known one, whose last part may be a name in braces for any.
fn fits(known: &str, path: &str) -> bool {
    if known == path {
        return true;
    }
    let named = known
        .strip_suffix('}')
        .and_then(|known| known.split_once('{'));
    let part = named.and_then(|(before, _)| path.strip_prefix(before));
    part.is_some_and(|part| !part.is_empty() && !part.contains('/'))
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
}

/// The little of the engine's configuration that a stub has.
fn server_info(stub: &Stub) -> Reply {
    json(&serde_json::json!({"vllm_config": {
        "model": stub.root,
        "max_model_len": stub.engine.max_model_len,
        "served_model_name": stub.names.iter().map(|name| &**name).collect::<Vec<_>>(),
    }}))
}

fn json(value: &impl Serialize) -> Reply {
    let bytes = serde_json::to_vec(value).expect("strings and numbers encode");
    Reply::json(200, bytes)
}

fn detail(status: u16, detail: &'static str) -> Reply {
    Reply::refusal(&Failure::Detail { status, detail })
}

fn models(stub: &Stub, context: &mut Context) -> Reply {
    let models = Models {
        created: context.created,
        max_model_len: stub.engine.max_model_len,
        names: &stub.names,
        root: &stub.root,
    };
    let mut out = Vec::new();
    let random = &mut context.random;
    stub.dialect
        .encode_models(&models, || random.u64(..), &mut out);
    Reply::json(200, out)
}

#[derive(Serialize)]
struct Tokenized {
    count: usize,
    max_model_len: Option<u64>,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

fn tokenize(stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    let asked = stub
        .dialect
        .parse_tokenize(call.head.content_type(), call.body)?;
    stub.check_model(asked.request.model.as_deref())?;
    let text = prompt::text(stub, &asked.request)?.unwrap_or_default();
    let is_text = asked.request.endpoint == Endpoint::Completions;
    let vocab = &stub.engine.tokenizer.vocab;
    let tokens = vocab.encode(&text, is_text);
    Ok(json(&Tokenized {
        count: tokens.len(),
        max_model_len: stub.engine.max_model_len,
        token_strs: asked.return_token_strs.then(|| vocab.spellings(&tokens)),
        tokens,
    }))
}

#[derive(Serialize)]
struct Detokenized {
    prompt: String,
}

fn detokenize(stub: &Stub, call: &Call<'_>) -> Result<Reply, Failure> {
    let asked = stub
        .dialect
        .parse_detokenize(call.head.content_type(), call.body)?;
    stub.check_model(asked.model.as_deref())?;
    Ok(json(&Detokenized {
        prompt: stub.engine.tokenizer.vocab.decode(&asked.tokens),
    }))
}
