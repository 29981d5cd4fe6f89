//! Requests as bytes, all but their id rendered before the run.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use wire::http1::write_number;
use wire::request::Endpoint;

use crate::bench::Config;
use crate::count;
use crate::dataset::{Prompt, Sample};
use crate::error::UsageError;
use crate::http::Target;
use crate::load::tickets::Ticket;

#[derive(Debug)]
pub(super) struct Requests {
    /// Start line and headers up to the request id.
    head: Vec<u8>,
    /// The rest of each sample's request.
    rest: Vec<Vec<u8>>,
}

impl Requests {
    pub(super) fn new(
        config: &Config,
        target: &Target,
        model: &str,
        run_id: &str,
    ) -> Result<Self, UsageError> {
        if config.samples.is_empty() {
            return Err(UsageError("the data set is empty".into()));
        }
        let path = match config.endpoint {
            Endpoint::Chat => "/v1/chat/completions",
            Endpoint::Completions => "/v1/completions",
            Endpoint::Generate => "/generate",
        };
        let bearer = config.api_key.as_ref();
        let bearer = bearer.map(|key| format!("authorization: Bearer {key}\r\n"));
        let head = format!(
            "POST {}{path} HTTP/1.1\r\nhost: {}\r\nuser-agent: stubline\r\n{}\
             content-type: application/json\r\nx-request-id: {run_id}",
            target.prefix,
            target.authority,
            bearer.unwrap_or_default()
        );
        let rest: Result<_, UsageError> = config
            .samples
            .iter()
            .map(|sample| {
                let body = with(body(sample, config, model)?, config)?;
                let mut rest = b"\r\ncontent-length: ".to_vec();
                write_number(body.len(), &mut rest);
                rest.extend_from_slice(b"\r\n\r\n");
                rest.extend_from_slice(&body);
                Ok(rest)
            })
            .collect();
        Ok(Self {
            head: head.into(),
            rest: rest?,
        })
    }

    /// Index of the sample that a request asks.
    pub(super) fn sample(&self, ticket: Ticket) -> usize {
        let samples = self.rest.len() as u64;
        usize::try_from(ticket.number % samples).expect("an index fits")
    }

    /// Puts a request in place of what is in `out`.
    pub(super) fn write(&self, ticket: Ticket, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.head);
        if ticket.warms_up {
            out.extend_from_slice(b"warm-up-");
        }
        write_number(usize::try_from(ticket.number).expect("64 bits"), out);
        out.extend_from_slice(&self.rest[self.sample(ticket)]);
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Messages<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<Ask<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignore_eos: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

/// What SGLang's own benchmark sends, without what it switches off that is off anyway.
#[derive(Serialize)]
struct NativeBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_ids: Option<&'a [u32]>,
    sampling_params: SamplingParams<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

#[derive(Serialize)]
struct SamplingParams<'a> {
    temperature: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_new_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ignore_eos: bool,
    /// The user's own.
    #[serde(flatten)]
    extra: Option<&'a Members>,
}

type Members = serde_json::Map<String, serde_json::Value>;

#[derive(Serialize)]
#[serde(untagged)]
enum Messages<'a> {
    Given(&'a RawValue),
    User([Message<'a>; 1]),
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Ask<'a> {
    Ids(&'a [u32]),
    Text(&'a str),
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    continuous_usage_stats: bool,
}

fn body(sample: &Sample, config: &Config, model: &str) -> Result<Vec<u8>, UsageError> {
    let (messages, prompt) = match (&sample.prompt, config.endpoint) {
        (_, Endpoint::Generate) => return native_body(sample, config),
        (Prompt::Messages(raw), Endpoint::Chat) => (Some(Messages::Given(raw)), None),
        (Prompt::Text(content), Endpoint::Chat) => {
            let role = "user";
            (Some(Messages::User([Message { role, content }])), None)
        }
        (Prompt::Text(text), Endpoint::Completions) => (None, Some(Ask::Text(text))),
        (Prompt::InputIds(ids), Endpoint::Completions) => (None, Some(Ask::Ids(ids))),
        (Prompt::Messages(_), Endpoint::Completions) => {
            return Err(refused(sample, "messages need --endpoint chat"));
        }
        (Prompt::InputIds(_), Endpoint::Chat) => {
            return Err(refused(
                sample,
                "input_ids need --endpoint completions or generate",
            ));
        }
    };
    let max_tokens = sample.max_tokens.or(config.max_tokens);
    let chat = config.endpoint == Endpoint::Chat;
    let body = Body {
        model,
        messages,
        prompt,
        max_completion_tokens: max_tokens.filter(|_| chat),
        max_tokens: max_tokens.filter(|_| !chat),
        n: several(config),
        ignore_eos: config.ignore_eos,
        stream: config.stream,
        stream_options: config.asks_for_usage().then_some(StreamOptions {
            include_usage: true,
            continuous_usage_stats: config.continuous_usage,
        }),
    };
    Ok(serde_json::to_vec(&body).expect("strings and numbers encode"))
}

/// A body with the members that the configuration adds behind the client's own.
fn with(mut body: Vec<u8>, config: &Config) -> Result<Vec<u8>, UsageError> {
    if config.extra_body.is_empty() {
        return Ok(body);
    }
    let own: Members = serde_json::from_slice(&body).expect("it was encoded from an object");
    let mut extra = config.extra_body.clone();
    let mut taken = None;
    if let Some(params) = sampling_params(config) {
        extra.remove(SAMPLING_PARAMS);
        let n = several(config).map(|_| "n");
        let mut own = OWN_PARAMS.into_iter().chain(n);
        taken = own.find(|name| params.contains_key(*name));
    }
    let named = extra.keys().find(|name| own.contains_key(*name));
    if let Some(name) = taken.or_else(|| named.map(String::as_str)) {
        let reason = format!("--extra-body: {name} is the client's own");
        return Err(UsageError(reason));
    }
    if extra.is_empty() {
        return Ok(body);
    }
    let extra = serde_json::to_vec(&extra).expect("JSON encodes");
    body.pop();
    body.push(b',');
    body.extend_from_slice(&extra[1..]);
    Ok(body)
}

const SAMPLING_PARAMS: &str = "sampling_params";
/// Those that the client sets.
const OWN_PARAMS: [&str; 3] = ["temperature", "max_new_tokens", "ignore_eos"];

/// What the user adds to the sampling parameters of a native request.
fn sampling_params(config: &Config) -> Option<&Members> {
    let params = config.extra_body.get(SAMPLING_PARAMS)?.as_object();
    params.filter(|_| config.endpoint == Endpoint::Generate)
}

fn native_body(sample: &Sample, config: &Config) -> Result<Vec<u8>, UsageError> {
    let (text, input_ids) = match &sample.prompt {
        Prompt::InputIds(ids) => (None, Some(&**ids)),
        Prompt::Text(text) => (Some(Cow::from(text)), None),
        Prompt::Messages(messages) => {
            let template = config.tokenizer.template.as_ref();
            let template = template.ok_or_else(|| {
                let reason = "messages need --tokenizer with a chat template, or --endpoint chat";
                refused(sample, reason)
            })?;
            let rendered = count::render(messages, template);
            let text = rendered.map_err(|error| refused(sample, &error.to_string()))?;
            (Some(text.into()), None)
        }
    };
    let body = NativeBody {
        text,
        input_ids,
        sampling_params: SamplingParams {
            temperature: 0,
            max_new_tokens: sample.max_tokens.or(config.max_tokens),
            n: several(config),
            ignore_eos: config.ignore_eos,
            extra: sampling_params(config),
        },
        stream: config.stream,
    };
    Ok(serde_json::to_vec(&body).expect("strings and numbers encode"))
}

/// The number of answers where it is not the usual one.
fn several(config: &Config) -> Option<u32> {
    Some(config.n).filter(|&n| n > 1)
}

fn refused(sample: &Sample, reason: &str) -> UsageError {
    UsageError(format!("--dataset: sample {:?}: {reason}", sample.id))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use vocab::Tokenizer;

    use super::*;

    fn config(samples: Vec<Sample>) -> Config {
        let tokenizer = Tokenizer::named("char").unwrap();
        Config::new(String::new(), samples.into(), Arc::new(tokenizer))
    }

    fn sample(prompt: Prompt) -> Sample {
        Sample {
            id: "s".into(),
            prompt,
            max_tokens: None,
        }
    }

    fn text(sample: &Sample, config: &Config) -> String {
        String::from_utf8(body(sample, config, "m").unwrap()).unwrap()
    }

    #[test]
    fn members_of_the_users_come_behind_the_clients_own() {
        let mut config = config(Vec::new());
        config.extra_body.insert("stop".into(), json!(["E"]));
        let body = |config: &Config| with(b"{\"model\":\"m\"}".to_vec(), config);
        let extended = String::from_utf8(body(&config).unwrap()).unwrap();
        assert_eq!(extended, r#"{"model":"m","stop":["E"]}"#);
        config.extra_body.insert("model".into(), json!(1));
        assert!(body(&config).is_err());

        config.endpoint = Endpoint::Generate;
        config.extra_body.clear();
        let params = json!({"stop": ["E"]});
        config.extra_body.insert(SAMPLING_PARAMS.into(), params);
        let native = native_body(&sample(Prompt::InputIds(vec![1])), &config).unwrap();
        let native = String::from_utf8(with(native, &config).unwrap()).unwrap();
        assert_eq!(
            native,
            r#"{"input_ids":[1],"sampling_params":{"temperature":0,"stop":["E"]},"stream":true}"#
        );
        let params = json!({"temperature": 1});
        config.extra_body.insert(SAMPLING_PARAMS.into(), params);
        assert!(body(&config).is_err());
    }

    #[test]
    fn bodies_hold_what_was_asked_for_and_no_more() {
        let mut config = config(Vec::new());
        let hello = sample(Prompt::Text("hé\n".into()));
        assert_eq!(
            text(&hello, &config),
            r#"{"model":"m","messages":[{"role":"user","content":"hé\n"}],"stream":true,"stream_options":{"include_usage":true}}"#
        );
        config.continuous_usage = true;
        let options = r#""stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#;
        assert!(text(&hello, &config).ends_with(options));
        config.include_usage = false;
        config.max_tokens = Some(8);
        let given = serde_json::from_str(r#"[{"role": "user"}]"#).unwrap();
        assert_eq!(
            text(&sample(Prompt::Messages(given)), &config),
            r#"{"model":"m","messages":[{"role": "user"}],"max_completion_tokens":8,"stream":true}"#
        );
        config.endpoint = Endpoint::Completions;
        config.include_usage = true;
        config.stream = false;
        assert_eq!(
            text(&hello, &config),
            r#"{"model":"m","prompt":"hé\n","max_tokens":8}"#
        );
        let ids = Sample {
            max_tokens: Some(2),
            ..sample(Prompt::InputIds(vec![1, 2]))
        };
        assert_eq!(
            text(&ids, &config),
            r#"{"model":"m","prompt":[1,2],"max_tokens":2}"#
        );
    }

    #[test]
    fn native_bodies_are_those_of_sglangs_own_benchmark() {
        let mut config = config(Vec::new());
        config.endpoint = Endpoint::Generate;
        config.ignore_eos = true;
        config.max_tokens = Some(16);
        assert_eq!(
            text(&sample(Prompt::Text("hé".into())), &config),
            r#"{"text":"hé","sampling_params":{"temperature":0,"max_new_tokens":16,"ignore_eos":true},"stream":true}"#
        );
        config.ignore_eos = false;
        config.max_tokens = None;
        config.stream = false;
        assert_eq!(
            text(&sample(Prompt::InputIds(vec![1, 2])), &config),
            r#"{"input_ids":[1,2],"sampling_params":{"temperature":0}}"#
        );
        let messages = serde_json::from_str(r#"[{"role":"user","content":"hi"}]"#).unwrap();
        let messages = sample(Prompt::Messages(messages));
        let error = body(&messages, &config, "m").unwrap_err();
        assert_eq!(
            error.to_string(),
            "--dataset: sample \"s\": messages need --tokenizer with a chat template, or --endpoint chat"
        );
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/tokenizers/bpe");
        let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).ok();
        config.tokenizer = Arc::new(Tokenizer::from_files(read).unwrap());
        let rendered = text(&messages, &config);
        assert!(
            rendered.starts_with(r#"{"text":"<|im_start|>"#),
            "{rendered}"
        );
    }

    #[test]
    fn prompts_of_the_other_route_are_refused() {
        let mut config = config(Vec::new());
        assert!(body(&sample(Prompt::InputIds(vec![1])), &config, "m").is_err());
        config.endpoint = Endpoint::Completions;
        let messages = serde_json::from_str("[{}]").unwrap();
        let error = body(&sample(Prompt::Messages(messages)), &config, "m").unwrap_err();
        assert_eq!(
            error.to_string(),
            "--dataset: sample \"s\": messages need --endpoint chat"
        );
    }

    #[test]
    fn samples_are_asked_in_turn_with_the_requests_id() {
        let samples = ["a", "b"].map(|text| sample(Prompt::Text(text.into())));
        let mut config = config(samples.into());
        config.api_key = Some("k".into());
        let target = Target::parse("http://127.0.0.1:1/p/").unwrap();
        let requests = Requests::new(&config, &target, "m", "run-").unwrap();
        let mut out = Vec::new();
        let mut ticket = Ticket {
            number: 3,
            warms_up: true,
            intended_ns: None,
        };
        requests.write(ticket, &mut out);
        assert!(out.windows(13).any(|window| window == b"run-warm-up-3"));
        ticket.warms_up = false;
        requests.write(ticket, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let expected = format!(
            "POST /p/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:1\r\nuser-agent: stubline\r\n\
             authorization: Bearer k\r\ncontent-type: application/json\r\nx-request-id: run-3\r\n\
             content-length: {}",
            body.len()
        );
        assert_eq!(head, expected);
        assert!(body.contains(r#""content":"b""#));
    }
}
