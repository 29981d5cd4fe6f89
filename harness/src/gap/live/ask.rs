//! What a server can tell of its tokens, found out with single requests before the run.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use wire::http1::WholeResponse;
use wire::request::Endpoint;

use crate::bench::{self, Config, Dialect};
use crate::gap::answer;
use crate::gap::attribution::Tokens;
use crate::gap::seen;
use crate::http::Target;
use crate::load;
use crate::raw;

/// What the requests of a run ask for, and what is known of the server.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Members of each request.
    members: Map<String, Value>,
    /// What was found out.
    pub about: Vec<String>,
    /// What the server does not tell.
    pub unseen: Vec<String>,
}

impl Asked {
    /// The members of each request besides the client's own.
    pub fn extra_body(&self, config: &Config) -> Map<String, Value> {
        let mut members = config.extra_body.clone();
        members.extend(self.members.clone());
        members
    }
}

/// A way to be told the tokens of an answer.
struct Way {
    what: &'static str,
    members: Map<String, Value>,
}

/// The ways that a route may know, best first.
fn ways(config: &Config) -> Vec<Way> {
    let way = |what, members: Value| Way {
        what,
        members: match members {
            Value::Object(members) => members,
            _ => Map::new(),
        },
    };
    let plain = way("nothing", json!({}));
    let logprobs = match config.endpoint {
        Endpoint::Generate => return vec![way("output_ids", json!({}))],
        Endpoint::Chat => way("logprobs", json!({"logprobs": true})),
        Endpoint::Completions => way("logprobs", json!({"logprobs": 1})),
    };
    let ids = match (config.dialect, config.endpoint) {
        (Dialect::Sglang, Endpoint::Chat) => way(
            "return_output_ids_in_sglext",
            json!({"return_output_ids_in_sglext": true}),
        ),
        _ => way("return_token_ids", json!({"return_token_ids": true})),
    };
    vec![ids, logprobs, plain]
}

/// Asks once for each way to be told tokens, and takes the first that works; asks how the server
/// tokenizes too.
///
/// # Errors
/// [`crate::UsageError`] if the configuration does not make sense, others if there is no answer at all.
pub fn ask(config: &Config) -> anyhow::Result<Asked> {
    config.check()?;
    let target = Target::parse(&config.url)?;
    let model = bench::model(config, &target)?;
    let mut asked = Asked::default();
    for way in ways(config) {
        let told = told(config, &target, &model, &way)?;
        let what = way.what;
        match told {
            Told::Refused(status, body) if way.members.is_empty() => {
                anyhow::bail!("{} answered {status}: {body}", config.url);
            }
            Told::Refused(status, _) => {
                asked.unseen.push(format!("{what} is refused ({status})"));
            }
            Told::Nothing if way.members.is_empty() => {}
            Told::Nothing => asked
                .unseen
                .push(format!("{what} is asked for and not given")),
            Told::Tokens => {
                asked.members = way.members;
                asked.about.push(format!("tokens by {what}"));
                break;
            }
        }
    }
    if asked.about.is_empty() {
        let line = "the tokens of answers: causes are inferred from text and counts";
        asked.unseen.push(line.into());
    }
    let (line, is_known) = tokenizes(config, &target, &model);
    let lines = if is_known {
        &mut asked.about
    } else {
        &mut asked.unseen
    };
    lines.push(line);
    Ok(asked)
}

enum Told {
    Nothing,
    /// Status and the beginning of the body.
    Refused(u16, String),
    Tokens,
}

fn told(config: &Config, target: &Target, model: &str, way: &Way) -> anyhow::Result<Told> {
    let mut config = config.clone();
    config.extra_body.extend(way.members.clone());
    let request = load::first_request(&config, target, model, "gap-probe-")?;
    let received = raw::exchange(target.address, &request, config.timeout)?;
    let Some(whole) = WholeResponse::parse(&received.bytes, false, true)? else {
        anyhow::bail!("{} gives no whole answer", config.url);
    };
    if whole.status != 200 {
        let body = String::from_utf8_lossy(&whole.body);
        let body = body.chars().take(200).collect();
        return Ok(Told::Refused(whole.status, body));
    }
    let events = seen::events(&whole.body, config.stream);
    let choices = answer::of_data(events.iter().map(Vec::as_slice)).choices;
    let tells = choices
        .iter()
        .any(|choice| choice.tokens != Tokens::Unknown);
    Ok(if tells { Told::Tokens } else { Told::Nothing })
}

/// A text that tokenizers cut in different ways.
const SPECIMEN: &str =
    "Tokens: 1234567 don't\n\n  été 你好 🦀 <think>x</think> {\"a\": [1, 2]} https://a.b/c_d";

/// Whether the server's tokenizer is the client's, and whether that is known.
fn tokenizes(config: &Config, target: &Target, model: &str) -> (String, bool) {
    let unknown = |why: &str| {
        let line = format!("whether the server's tokenizer is this one: /tokenize {why}");
        (line, false)
    };
    let body = json!({"model": model, "prompt": SPECIMEN, "add_special_tokens": false});
    let request = post(config, target, "/tokenize", &body);
    let Ok(received) = raw::exchange(target.address, request.as_bytes(), config.timeout) else {
        return unknown("gives no answer");
    };
    let Ok(Some(whole)) = WholeResponse::parse(&received.bytes, false, true) else {
        return unknown("gives no whole answer");
    };
    if whole.status != 200 {
        return unknown(&format!("answers {}", whole.status));
    }
    let told: Value = serde_json::from_slice(&whole.body).unwrap_or_default();
    let Some(theirs) = told["tokens"].as_array() else {
        return unknown("names no tokens");
    };
    let ours = config.tokenizer.vocab.encode(SPECIMEN, false);
    let same = ours.iter().map(|&id| Some(u64::from(id)));
    let line = if same.eq(theirs.iter().map(Value::as_u64)) {
        "/tokenize cuts a specimen as this tokenizer does".into()
    } else {
        format!(
            "/tokenize cuts a specimen into {} tokens, this tokenizer into {}: they are not the same",
            theirs.len(),
            ours.len()
        )
    };
    (line, true)
}

fn post(config: &Config, target: &Target, path: &str, body: &Value) -> String {
    let body = body.to_string();
    let mut request = format!(
        "POST {}{path} HTTP/1.1\r\nhost: {}\r\nuser-agent: stubline\r\n",
        target.prefix, target.authority
    );
    if let Some(key) = &config.api_key {
        let _ = write!(request, "authorization: Bearer {key}\r\n");
    }
    let _ = write!(
        request,
        "content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    request
}
