//! Which paths the server has.

use crate::http1::unescaped;

/// A path with a known method.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Route {
    /// `POST /v1/chat/completions`
    Chat,
    /// `DELETE /v1/sessions/{session_id}`
    Close(String),
    /// `GET /health`
    Health,
    /// `GET /metrics`, which the real server does not have.
    Metrics,
    /// `GET /v1/models`
    Models,
    /// `POST /v1/sessions/{session_id}/reset`
    Reset(String),
}

/// Why there is no route.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unrouted {
    /// The path has this method alone.
    Method(&'static str),
    /// There is no such path.
    Path,
    /// There is one without the slash at its end.
    Slash,
}

/// Finds a request's route.
///
/// # Errors
/// What is wrong with the path or the method.
pub fn route(method: &str, path: &str, has_metrics: bool) -> Result<Route, Unrouted> {
    let path = unescaped(path);
    let Some((known, route)) = found(&path, has_metrics) else {
        let trimmed = path.strip_suffix('/');
        let is_known = trimmed.is_some_and(|path| found(path, has_metrics).is_some());
        return Err(if is_known {
            Unrouted::Slash
        } else {
            Unrouted::Path
        });
    };
    if known == method {
        Ok(route)
    } else {
        Err(Unrouted::Method(known))
    }
}

fn found(path: &str, has_metrics: bool) -> Option<(&'static str, Route)> {
    let plain = match path {
        "/health" => Some(("GET", Route::Health)),
        "/metrics" if has_metrics => Some(("GET", Route::Metrics)),
        "/v1/chat/completions" => Some(("POST", Route::Chat)),
        "/v1/models" => Some(("GET", Route::Models)),
        _ => None,
    };
    plain.or_else(|| {
        let parts: Vec<&str> = path.strip_prefix("/v1/sessions/")?.split('/').collect();
        match parts[..] {
            [id] if !id.is_empty() => Some(("DELETE", Route::Close(id.to_owned()))),
            [id, "reset"] if !id.is_empty() => Some(("POST", Route::Reset(id.to_owned()))),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_one_method_each() {
        let find = |method, path| route(method, path, false);
        assert_eq!(find("GET", "/health"), Ok(Route::Health));
        assert_eq!(find("HEAD", "/health"), Err(Unrouted::Method("GET")));
        assert_eq!(find("GET", "/health/"), Err(Unrouted::Slash));
        assert_eq!(find("GET", "/metrics"), Err(Unrouted::Path));
        assert_eq!(
            find("DELETE", "/v1/sessions/a%20b"),
            Ok(Route::Close("a b".into()))
        );
        assert_eq!(
            find("POST", "/v1/sessions/a/reset"),
            Ok(Route::Reset("a".into()))
        );
        assert_eq!(find("POST", "/v1/sessions/a%2Fb"), Err(Unrouted::Path));
        assert_eq!(
            find("GET", "/v1/sessions/a"),
            Err(Unrouted::Method("DELETE"))
        );
        assert_eq!(find("GET", "/v1/sessions//"), Err(Unrouted::Path));
    }
}
