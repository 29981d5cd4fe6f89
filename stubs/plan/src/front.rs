//! What stands before the routes: keys, origins, request ids, a path prefix.

use std::time::Duration;

use wire::dialect::Manner;

use crate::reply::Reply;
use crate::stub::{Call, Context};

/// The layers that a request passes before it reaches a route.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a server"
)]
pub struct Front {
    /// `--allowed-origins`; `*` is all.
    pub allowed_origins: Vec<String>,
    /// `--api-key`, of which one must be given.
    pub api_keys: Vec<String>,
    /// `VLLM_SERVER_DEV_MODE`
    pub dev_mode: bool,
    /// How long SGLang takes to see whether it is well.
    pub health_takes: Duration,
    /// `--enable-request-id-headers`
    pub request_id_headers: bool,
    /// `--root-path`
    pub root_path: String,
    /// `POST /echo` is there.
    pub serves_echo: bool,
    /// `/inference/v1/generate` is there: `--enable-scale-out`.
    pub serves_generate: bool,
    /// `GET /server_info` is there, whatever the mode.
    pub serves_info: bool,
    /// `GET /metrics` is there.
    pub serves_metrics: bool,
    /// Nothing but token routes generates: `--tokens-only`.
    pub tokens_only: bool,
}

const ALLOW_CREDENTIALS: &str = "access-control-allow-credentials";
const ALLOW_ORIGIN: &str = "access-control-allow-origin";

/// What a preflight is told.
const METHODS: &str = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY";
const PREFLIGHT_VARY: &str = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, Access-Control-Request-Private-Network";

impl Front {
    /// The path without the root path.
    pub(crate) fn path<'c>(&self, call: &Call<'c>) -> &'c str {
        let path = call.head.path();
        match path.strip_prefix(&*self.root_path) {
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }

    /// The answer to a call that does not reach a route.
    pub(crate) fn refuses(&self, manner: &Manner, call: &Call<'_>) -> Option<Reply> {
        if call.head.method == "OPTIONS" && manner.knows_origins {
            return self.preflight(manner, call);
        }
        if self.api_keys.is_empty() {
            return None;
        }
        let path = self.path(call);
        if !manner.keyed.needs(path) {
            return None;
        }
        let given = call.head.header("authorization").unwrap_or_default();
        let key = given
            .split_once(' ')
            .and_then(|(scheme, key)| scheme.eq_ignore_ascii_case("bearer").then(|| key.trim()));
        if key.is_some_and(|key| self.api_keys.iter().any(|known| known == key)) {
            return None;
        }
        let mut reply = Reply::json(401, br#"{"error":"Unauthorized"}"#.to_vec());
        reply.headers.without_vary = true;
        Some(reply)
    }

    fn allows(&self, origin: &str) -> bool {
        let allowed = |known: &String| known == "*" || known == origin;
        self.allowed_origins.iter().any(allowed)
    }

    fn preflight(&self, manner: &Manner, call: &Call<'_>) -> Option<Reply> {
        let head = call.head;
        let origin = head.header("origin")?;
        head.header("access-control-request-method")?;
        let allowed = self.allows(origin);
        let (status, text) = if allowed {
            (200, "OK")
        } else {
            (400, "Disallowed CORS origin")
        };
        let mut reply = Reply::text(text.as_bytes().to_vec());
        reply.status = status;
        let headers = &mut reply.headers;
        headers.without_vary = true;
        headers.first.push(("vary", PREFLIGHT_VARY.into()));
        let with_credentials = manner.allows_credentials;
        if allowed && !with_credentials {
            headers.first.push(self.allow_origin(origin));
        }
        headers
            .first
            .push(("access-control-allow-methods", METHODS.into()));
        headers.first.push(("access-control-max-age", "600".into()));
        if with_credentials {
            headers.first.push((ALLOW_CREDENTIALS, "true".into()));
            headers
                .first
                .extend(allowed.then(|| (ALLOW_ORIGIN, origin.into())));
        }
        if let Some(asked) = head.header("access-control-request-headers") {
            headers
                .first
                .push(("access-control-allow-headers", asked.into()));
        }
        Some(reply)
    }

    fn allow_origin(&self, origin: &str) -> (&'static str, String) {
        let all = self.allowed_origins.iter().any(|known| known == "*");
        let value = if all { "*" } else { origin };
        (ALLOW_ORIGIN, value.into())
    }

    /// Adds the headers that every answer gets.
    pub(crate) fn decorate(
        &self,
        manner: &Manner,
        call: &Call<'_>,
        context: &mut Context,
        reply: &mut Reply,
    ) {
        let headers = &mut reply.headers;
        if let Some(origin) = call.head.header("origin")
            && !headers.without_vary
            && manner.knows_origins
            && self.allows(origin)
        {
            if manner.allows_credentials {
                headers.middle.push((ALLOW_ORIGIN, origin.into()));
                headers.middle.push((ALLOW_CREDENTIALS, "true".into()));
            } else {
                headers.middle.push(self.allow_origin(origin));
            }
        }
        if self.request_id_headers {
            let id = match call.head.header("x-request-id") {
                Some(id) => id.to_owned(),
                None => format!("{:032x}", context.random.u128(..)),
            };
            headers.last.push(("x-request-id", id));
        }
    }

    /// The engine's load as ORCA reports it, where the client asks for it.
    pub(crate) fn load_metrics(call: &Call<'_>) -> Option<(&'static str, String)> {
        let format = call.head.header("endpoint-load-metrics-format")?;
        let value = match format.to_ascii_lowercase().as_str() {
            "text" => {
                "TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0"
            }
            "json" => {
                r#"JSON {"named_metrics": {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}}"#
            }
            _ => return None,
        };
        Some(("endpoint-load-metrics", value.into()))
    }
}
