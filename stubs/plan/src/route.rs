//! Which paths a stub serves, and the small answers.

use serde::Serialize;
use wire::dialect::Models;
use wire::failure::{ErrorObject, Failure};
use wire::request::Endpoint;

use crate::answer;
use crate::reply::Reply;
use crate::stub::{Call, Context, Stub};

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
    /// `GET /health`, `/ping`
    Health,
    /// `GET /load`
    Load,
    /// `GET /metrics`
    Metrics,
    /// `GET /v1/models`
    Models,
    /// `POST /tokenize`
    Tokenize,
    /// `GET /version`
    Version,
}

const ROUTES: [(&str, &[&str], Route); 12] = [
    ("/v1/chat/completions", &["POST"], Route::Chat),
    ("/v1/completions", &["POST"], Route::Completions),
    ("/v1/models", &["GET"], Route::Models),
    ("/health", &["GET"], Route::Health),
    ("/ping", &["GET", "POST"], Route::Health),
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
        let is_there = |route| match route {
            Self::Echo => stub.serves_echo,
            Self::Metrics => stub.serves_metrics,
            _ => true,
        };
        let find = |path: &str| {
            let mut routes = ROUTES.iter().filter(|(.., route)| is_there(*route));
            routes.find(|(known, ..)| *known == path)
        };
        if let Some((_, methods, route)) = find(call.path) {
            if methods.contains(&call.method) {
                return Ok(*route);
            }
            let mut reply = detail(405, "Method Not Allowed");
            reply.extra = Some(("allow", methods[0].to_owned()));
            return Err(reply.into());
        }
        let trimmed = call.path.strip_suffix('/').and_then(find);
        let (Some((path, ..)), Some(host)) = (trimmed, call.host) else {
            return Err(detail(404, "Not Found").into());
        };
        let query = call.target.find('?').map_or("", |at| &call.target[at..]);
        let mut reply = Reply::empty(307);
        reply.extra = Some(("location", format!("http://{host}{path}{query}")));
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
            Self::Health => Ok(Reply::empty(200)),
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
        max_model_len: stub.max_model_len,
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
    let asked = stub.dialect.parse_tokenize(call.content_type, call.body)?;
    stub.check_model(asked.request.model.as_deref())?;
    let text = answer::prompt_text(stub, &asked.request)?.unwrap_or_default();
    let is_text = asked.request.endpoint == Endpoint::Completions;
    let vocab = &stub.tokenizer.vocab;
    let tokens = vocab.encode(&text, is_text);
    Ok(json(&Tokenized {
        count: tokens.len(),
        max_model_len: stub.max_model_len,
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
        .parse_detokenize(call.content_type, call.body)?;
    stub.check_model(asked.model.as_deref())?;
    Ok(json(&Detokenized {
        prompt: stub.tokenizer.vocab.decode(&asked.tokens),
    }))
}
