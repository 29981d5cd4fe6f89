//! What a live server says of itself, and recorded requests in its words.

use std::time::Duration;

use anyhow::Context as _;
use wire::http1::{self, Framing, WholeRequest, WholeResponse};

use super::corpus::{Corpus, Recorded};
use super::json::Json;
use super::manner::Manner;
use crate::http::Target;
use crate::raw;

/// What a server says of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The name that answers carry.
    pub(super) model: String,
    /// All served names.
    pub(super) names: Vec<String>,
    pub(super) max_model_len: Option<i128>,
    /// It cuts text into the recording's tokens.
    pub(super) has_tokenizer: bool,
    /// What server it should be.
    pub(super) manner: &'static Manner,
}

/// A live server and how to talk to it.
#[derive(Debug)]
pub(super) struct Server<'a> {
    pub(super) target: &'a Target,
    pub(super) api_key: Option<&'a str>,
    pub(super) timeout: Duration,
}

impl Server<'_> {
    /// Asks the server for its models and for the tokens of the recorded `tokenize` case.
    pub(super) fn facts(&self, model: Option<&str>, corpus: &Corpus) -> anyhow::Result<Facts> {
        let manner = corpus.manner;
        let case = |path: &str| corpus.cases.iter().find(|known| known.path() == path);
        let (models, tokenize) = (case(manner.models), case(manner.tokenize));
        let models = models.map(|recorded| self.json(&recorded.request));
        let listed = models.transpose()?.flatten();
        let models = listed
            .as_ref()
            .and_then(|json| json.get("data"))
            .map(Json::items);
        let models = models.unwrap_or_default();
        let names: Vec<String> = models
            .iter()
            .filter_map(|model| model.get("id")?.text().map(str::to_owned))
            .collect();
        let own = model.map(str::to_owned).or_else(|| names.first().cloned());
        let mut facts = Facts {
            model: own.unwrap_or_else(|| manner.model.into()),
            names,
            max_model_len: models
                .first()
                .and_then(|model| model.get("max_model_len")?.integer()),
            has_tokenizer: false,
            manner,
        };
        if let Some(recorded) = tokenize {
            let own = self.json(&self.request(recorded, &facts))?;
            let whole = WholeResponse::parse(&recorded.response, false, true)
                .ok()
                .flatten();
            let wanted = whole.and_then(|whole| Json::parse(&String::from_utf8_lossy(&whole.body)));
            let tokens =
                |json: &Option<Json>| json.as_ref().and_then(|json| json.get("tokens").cloned());
            facts.has_tokenizer = tokens(&own).is_some() && tokens(&own) == tokens(&wanted);
        }
        Ok(facts)
    }

    fn json(&self, request: &[u8]) -> anyhow::Result<Option<Json>> {
        let request = self.addressed(request);
        let received = self.exchange(&request)?;
        let whole = WholeResponse::parse(&received.bytes, false, true)
            .ok()
            .flatten();
        let whole = whole.filter(|whole| whole.status == 200);
        Ok(whole.and_then(|whole| Json::parse(&String::from_utf8_lossy(&whole.body))))
    }

    /// Sends bytes as they are.
    pub(super) fn exchange(&self, request: &[u8]) -> anyhow::Result<raw::Received> {
        raw::exchange(self.target.address, request, self.timeout)
            .with_context(|| format!("failed to connect to http://{}", self.target.authority))
    }

    /// A recorded request with the server's model name, path prefix and key.
    pub(super) fn request(&self, recorded: &Recorded, facts: &Facts) -> Vec<u8> {
        let is_malformed = String::from_utf8_lossy(&recorded.response).contains("'json_invalid'");
        let page = format!("/models/{} ", facts.manner.model);
        if recorded
            .request
            .starts_with(format!("GET /v1{page}").as_bytes())
        {
            let own = format!("/models/{} ", encoded(&facts.model));
            let request = replaced(&recorded.request, page.as_bytes(), own.as_bytes());
            return self.addressed(&request);
        }
        let request = match WholeRequest::parse(&recorded.request) {
            // A message about a place in the body needs the body as it is.
            Ok(Some(whole)) if !is_malformed => facts.renamed(&recorded.request, &whole),
            _ => recorded.request.clone(),
        };
        self.addressed(&request)
    }

    fn addressed(&self, request: &[u8]) -> Vec<u8> {
        if self.target.prefix.is_empty() && self.api_key.is_none() {
            return request.to_vec();
        }
        let text = |bytes: &[u8]| bytes.to_vec();
        let Some(end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            return text(request);
        };
        let Ok(head) = std::str::from_utf8(&request[..end]) else {
            return text(request);
        };
        let mut head = head.replacen(" /", &format!(" {}/", self.target.prefix), 1);
        let has_key = head.to_ascii_lowercase().contains("\r\nauthorization:");
        if let (Some(key), false) = (self.api_key, has_key) {
            head.push_str("\r\nAuthorization: Bearer ");
            head.push_str(key);
        }
        [head.as_bytes(), &request[end..]].concat()
    }
}

impl Facts {
    /// A recorded JSON text with the server's model names.
    pub(super) fn own_words(&self, recorded: &str) -> String {
        let names = match &self.names[..] {
            [] => self.model.clone(),
            names => names.join(", "),
        };
        let within = |name: &str| {
            let quoted = serde_json::to_string(name).expect("a string encodes");
            quoted[1..quoted.len() - 1].to_owned()
        };
        let aliases = |names: &str| format!("Valid aliases: {names}.");
        recorded
            .replace(&aliases(self.manner.model), &aliases(&within(&names)))
            .replace(self.manner.model, &within(&self.model))
    }

    fn renamed(&self, bytes: &[u8], whole: &WholeRequest<'_>) -> Vec<u8> {
        let recorded = format!("\"{}\"", self.manner.model);
        let own = serde_json::to_string(&self.model).expect("a string encodes");
        let body = replaced(&whole.body, recorded.as_bytes(), own.as_bytes());
        if body == whole.body {
            return bytes.to_vec();
        }
        let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let head = &bytes[..end.expect("a whole request has a head") + 2];
        let mut out = Vec::with_capacity(bytes.len() + own.len());
        for line in head.split_inclusive(|&byte| byte == b'\n') {
            let is_length = line
                .get(..15)
                .is_some_and(|name| name.eq_ignore_ascii_case(b"content-length:"));
            if is_length {
                out.extend_from_slice(&line[..15]);
                out.extend_from_slice(format!(" {}\r\n", body.len()).as_bytes());
            } else {
                out.extend_from_slice(line);
            }
        }
        out.extend_from_slice(b"\r\n");
        if whole.head.framing == Framing::Chunked {
            http1::write_chunk(&mut out, |out| out.extend_from_slice(&body));
            out.extend_from_slice(http1::LAST_CHUNK);
        } else {
            out.extend_from_slice(&body);
        }
        out
    }
}

/// A name as it stands in a path.
fn encoded(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'/' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(old.len()).position(|part| part == old) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(new);
        rest = &rest[at + old.len()..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_in_the_servers_words() {
        let facts = Facts {
            model: "a \"model\"".into(),
            ..Facts::default()
        };
        let renamed = |text: &str| {
            let whole = WholeRequest::parse(text.as_bytes()).unwrap().unwrap();
            String::from_utf8(facts.renamed(text.as_bytes(), &whole)).unwrap()
        };
        let body = r#"{"model":"tiny-chat"}"#;
        let own = r#"{"model":"a \"model\""}"#;
        let sent = format!(
            "POST / HTTP/1.1\r\ncontent-length: {}\r\nX: 1\r\n\r\n{body}",
            body.len()
        );
        let expected = format!(
            "POST / HTTP/1.1\r\ncontent-length: {}\r\nX: 1\r\n\r\n{own}",
            own.len()
        );
        assert_eq!(renamed(&sent), expected);
        assert_eq!(encoded("a/b c-é"), "a/b%20c-%C3%A9");
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunked = |body: &str| format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        assert_eq!(renamed(&chunked(body)), chunked(own));
        let other = "GET /v1/models HTTP/1.1\r\n\r\n";
        assert_eq!(renamed(other), other);
    }
}
