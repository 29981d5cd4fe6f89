//! Which paths a stub serves, and the small answers.

use std::sync::atomic::Ordering;

use serde::Serialize;
use wire::dialect::Models;
use wire::failure::{ErrorObject, Failure};
use wire::request::Endpoint;

use crate::reply::Reply;
use crate::stub::{Call, Context, Stub};
use crate::{answer, prompt};

/// A path with a known method.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Route {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/completions`
    Completions,
    /// `POST /detokenize`
    Detokenize,
    /// `POST /echo`: the raw request.
    Echo,
    /// `POST /inference/v1/generate`, switched off.
    Generate,
    /// `GET /health`
    Health,
    /// `GET /is_sleeping`, of the developer's mode.
    IsSleeping,
    /// `GET /load`
    Load,
    /// `GET /metrics`
    Metrics,
    /// `GET /v1/models`
    Models,
    /// `GET /ping`, `POST /ping`
    Ping,
    /// `POST /reset_prefix_cache`, of the developer's mode.
    ResetPrefixCache,
    /// `GET /server_info`, of the developer's mode.
    ServerInfo,
    /// `POST /tokenize`
    Tokenize,
    /// `GET /version`
    Version,
}

const ROUTES: [(&str, &[&str], Route); 15] = [
    ("/v1/chat/completions", &["POST"], Route::Chat),
    ("/v1/completions", &["POST"], Route::Completions),
    ("/v1/models", &["GET"], Route::Models),
    ("/health", &["GET"], Route::Health),
    ("/ping", &["GET", "POST"], Route::Ping),
    ("/is_sleeping", &["GET"], Route::IsSleeping),
    ("/reset_prefix_cache", &["POST"], Route::ResetPrefixCache),
    ("/server_info", &["GET"], Route::ServerInfo),
    ("/version", &["GET"], Route::Version),
    ("/load", &["GET"], Route::Load),
    ("/metrics", &["GET", "HEAD"], Route::Metrics),
    ("/tokenize", &["POST"], Route::Tokenize),
    ("/detokenize", &["POST"], Route::Detokenize),
    ("/inference/v1/generate", &["POST"], Route::Generate),
    ("/echo", &["POST"], Route::Echo),
];

impl Route {
    /// The route of a call, or the answer to one that is not there.
    pub(crate) fn find(stub: &Stub, call: &Call<'_>) -> Result<Self, Box<Reply>> {
        let front = &stub.front;
        let is_there = |route| match route {
            Self::Echo => front.serves_echo,
            Self::IsSleeping | Self::ResetPrefixCache | Self::ServerInfo => front.dev_mode,
            Self::Metrics => front.serves_metrics,
            _ => true,
        };
        let find = |path: &str| {
            let mut routes = ROUTES.iter().filter(|(.., route)| is_there(*route));
            routes.find(|(known, ..)| *known == path)
        };
        let (head, path) = (call.head, front.path(call));
        if let Some((_, methods, route)) = find(path) {
            if methods.contains(&head.method) {
                return Ok(*route);
            }
            let mut reply = detail(405, "Method Not Allowed");
            reply.headers.first.push(("allow", methods[0].to_owned()));
            return Err(reply.into());
        }
        let trimmed = path.strip_suffix('/').and_then(find);
        let (Some((path, ..)), Some(host)) = (trimmed, head.header("host")) else {
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
            Self::Chat => answer::reply(stub, Endpoint::Chat, call, context),
            Self::Completions => answer::reply(stub, Endpoint::Completions, call, context),
            Self::Detokenize => detokenize(stub, call),
            Self::Echo | Self::Metrics => return Err(self),
            Self::Generate => Err(generate_is_off()),
            Self::Health if stub.engine.dead.load(Ordering::Relaxed) => Ok(Reply::empty(503)),
            Self::Health | Self::Ping => Ok(Reply::empty(200)),
            Self::IsSleeping => Ok(Reply::json(200, br#"{"is_sleeping":false}"#.to_vec())),
            Self::ResetPrefixCache => {
                if let Some(cache) = &stub.engine.prefix_cache {
                    cache.reset();
                }
                Ok(Reply::json(200, br#"{"success":true}"#.to_vec()))
            }
            Self::ServerInfo => Ok(server_info(stub)),
            Self::Load => Ok(Reply::json(200, br#"{"server_load":0}"#.to_vec())),
            Self::Models => Ok(models(stub, context)),
            Self::Tokenize => tokenize(stub, call),
            Self::Version => Ok(json(&Version {
                version: stub.dialect.version(),
            })),
        };
        Ok(reply.unwrap_or_else(|failure| Reply::refusal(&failure)))
    }
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
        "served_model_name": stub.names,
    }}))
}

fn json(value: &impl Serialize) -> Reply {
    let bytes = serde_json::to_vec(value).expect("strings and numbers encode");
    Reply::json(200, bytes)
}

fn detail(status: u16, detail: &'static str) -> Reply {
    Reply::refusal(&Failure::Detail { status, detail })
}

fn generate_is_off() -> Failure {
    Failure::Error(ErrorObject {
        message: "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.".into(),
        kind: "PermissionDeniedError",
        param: None,
        code: 403,
    })
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
        .parse_tokenize(call.head.header("content-type"), call.body)?;
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
        .parse_detokenize(call.head.header("content-type"), call.body)?;
    stub.check_model(asked.model.as_deref())?;
    Ok(json(&Detokenized {
        prompt: stub.engine.tokenizer.vocab.decode(&asked.tokens),
    }))
}
