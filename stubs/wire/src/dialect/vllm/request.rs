//! What vLLM accepts, and what it says to the rest.

use crate::dialect::body::{check_content_type, checked, json};
use crate::failure::Failure;
use crate::json::Json;
use crate::request::{Endpoint, Known, OutputMode, Request};
use crate::schema as pydantic;

use super::{schema, validators};

/// Reads a body that came with a content type; fails with the server's answer.
pub(crate) fn parse<'a>(
    endpoint: Endpoint,
    content_type: Option<&str>,
    body: &'a [u8],
    known: &mut Known,
) -> Result<Box<Request<'a>>, Failure> {
    check_content_type(content_type)?;
    match known.read(endpoint, body, |_| true) {
        Some(request) => Ok(request),
        None => parse_whole(endpoint, content_type, body),
    }
}

/// Reads any body; fails with the server's answer.
fn parse_whole<'a>(
    endpoint: Endpoint,
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<Box<Request<'a>>, Failure> {
    let mut body = json(content_type, body)?;
    if let Some(Json::Object(members)) = &mut body {
        match endpoint {
            Endpoint::Chat => {
                validators::chat(members)?;
                if validators::is_truthy(members, "tools") && members.get("tool_choice").is_none() {
                    let auto = ("tool_choice".into(), Json::String("auto".into()));
                    members.0.push(auto);
                }
            }
            Endpoint::Completions | Endpoint::Generate => validators::completions(members)?,
        }
    }
    let fields = match endpoint {
        Endpoint::Chat => schema::CHAT,
        Endpoint::Completions | Endpoint::Generate => schema::COMPLETIONS,
    };
    let members = checked(body, fields)?;
    Ok(Request::from_checked(endpoint, members).into())
}

/// The body of `/inference/v1/generate`, whose sampling parameters are an object of their own.
pub(crate) fn parse_generate<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<Request<'a>, Failure> {
    let mut members = checked(json(content_type, body)?, schema::GENERATE)?;
    let mode = match members.get("output_mode").and_then(Json::as_str) {
        Some("text") => OutputMode::Text,
        _ => OutputMode::Tokens,
    };
    let mut names = members.0.iter().map(|(name, _)| &**name);
    let at = names.rposition(|name| name == "sampling_params");
    let sampling = at.map(|at| members.0.remove(at).1);
    // Members of a completion that a generate request does not have would count below.
    let is_of =
        |fields: &[pydantic::Field], name: &str| fields.iter().any(|field| field.name == name);
    members.0.retain(|(name, _)| is_of(schema::GENERATE, name));
    if let Some(Json::Object(sampling)) = sampling {
        let sampling = sampling.0.into_iter();
        members
            .0
            .extend(sampling.filter(|(name, _)| is_of(schema::SAMPLING, name)));
    }
    for (name, _) in &mut members.0 {
        if name == "token_ids" {
            *name = "prompt".into();
        }
    }
    Ok(Request {
        output_mode: Some(mode),
        ..Request::from_checked(Endpoint::Completions, members)
    })
}

/// The body of `/tokenize`, with a prompt or with messages.
pub(crate) fn parse_tokenize<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<TokenizeRequest<'a>, Failure> {
    let body = json(content_type, body)?;
    let of_text = body
        .as_ref()
        .and_then(Json::as_object)
        .is_some_and(|body| body.get("prompt").is_some() || body.get("messages").is_none());
    let (endpoint, fields) = if of_text {
        (Endpoint::Completions, schema::TOKENIZE_TEXT)
    } else {
        (Endpoint::Chat, schema::TOKENIZE_CHAT)
    };
    let members = checked(body, fields)?;
    let flag = |name| members.get(name).and_then(|flag| pydantic::bool(flag).ok());
    Ok(TokenizeRequest {
        return_token_strs: flag("return_token_strs").unwrap_or(false),
        request: Request::from_checked(endpoint, members),
    })
}

/// A request to `/tokenize`.
#[derive(Clone, Debug)]
pub struct TokenizeRequest<'a> {
    /// The prompt, model and template options.
    pub request: Request<'a>,
    /// `return_token_strs`
    pub return_token_strs: bool,
}

/// The body of `/detokenize`.
pub(crate) fn parse_detokenize<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<DetokenizeRequest<'a>, Failure> {
    let mut members = checked(json(content_type, body)?, schema::DETOKENIZE)?;
    for (name, _) in &mut members.0 {
        if name == "tokens" {
            *name = "stop_token_ids".into();
        }
    }
    let request = Request::from_checked(Endpoint::Completions, members);
    Ok(DetokenizeRequest {
        model: request.model,
        tokens: request.sampling.stop_token_ids,
    })
}

/// A request to `/detokenize`.
#[derive(Clone, Debug)]
pub struct DetokenizeRequest<'a> {
    /// `model`, if named.
    pub model: Option<std::borrow::Cow<'a, str>>,
    /// `tokens`
    pub tokens: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::request::Prompt;

    const USUAL: &[(Endpoint, &str)] = &[
        (
            Endpoint::Chat,
            r#"{"model":"m","messages":[{"role":"user","content":"a\n\"b\" \u00e9é"}],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":false}}"#,
        ),
        (
            Endpoint::Chat,
            r#" { "messages" : [ {"content":"","role":"system"} , {"role":"assistant","content":"x"} ] , "max_tokens" : 7, "max_completion_tokens":10, "temperature": 0.70 , "top_p":1 } "#,
        ),
        (
            Endpoint::Chat,
            r#"{"messages":[{"role":"user","content":"a"}],"stream":false,"stream_options":{},"seed":12345,"n":2,"ignore_eos":true,"min_tokens":0}"#,
        ),
        (
            Endpoint::Completions,
            r#"{"prompt":"a b","max_tokens":160,"temperature":0.0,"stream":true,"seed":0}"#,
        ),
    ];

    /// Pieces of bodies that are put where something else stood.
    const PIECES: &[&str] = &[
        "",
        " ",
        "0",
        "1e3",
        "-1",
        "01",
        ".5",
        "null",
        "true",
        "\"a\"",
        "\\ud800",
        "\t",
        ",",
        "{",
        "}",
        "[",
        "]",
        "\"stream\":true,",
        "\"stop\":[\"a\"],",
        "\"model\":\"m\",",
        "\"tools\":[],",
        "9999999999999999",
    ];

    const TEXTS: &[&str] = &[
        "",
        "a",
        "other words",
        "é",
        "\\n",
        "\"",
        "\",\"n\":2,\"x\":\"",
        "\t",
    ];

    proptest! {
        #[test]
        fn a_known_body_is_read_as_an_unknown_one(
            bodies in prop::collection::vec(
                (select(USUAL), select(TEXTS), any::<bool>(), any::<bool>()), 1..6),
        ) {
            let mut known = Known::default();
            for ((endpoint, body), text, other_route, cut) in bodies {
                let body = body.replace("\"a b\"", &format!("\"{text}\"")).replace("\"a\"", &format!("\"{text}\""));
                let body = &body[..body.len() - usize::from(cut)];
                let endpoint = match endpoint {
                    Endpoint::Chat if other_route => Endpoint::Completions,
                    _ => endpoint,
                };
                let json = Some("application/json");
                let read = parse(endpoint, json, body.as_bytes(), &mut known);
                prop_assert_eq!(read.ok(), parse_whole(endpoint, json, body.as_bytes()).ok());
            }
        }
    }

    fn usual_and_whole(endpoint: Endpoint, body: &[u8]) -> Option<bool> {
        let usual = Request::usual(endpoint, body)?;
        let whole = parse_whole(endpoint, Some("application/json"), body);
        Some(whole.is_ok_and(|whole| whole == usual))
    }

    #[test]
    fn usual_bodies_are_read_the_quick_way() {
        for (endpoint, body) in USUAL {
            assert_eq!(
                usual_and_whole(*endpoint, body.as_bytes()),
                Some(true),
                "{body}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_quick_way_reads_what_the_schema_reads(
            (endpoint, body) in select(USUAL),
            edits in prop::collection::vec((any::<Index>(), any::<Index>(), select(PIECES)), 1..4),
        ) {
            let mut bytes = body.as_bytes().to_vec();
            for (from, length, piece) in edits {
                let from = from.index(bytes.len() + 1);
                let length = length.index(8).min(bytes.len() - from);
                bytes.splice(from..from + length, piece.bytes());
            }
            prop_assert_ne!(usual_and_whole(endpoint, &bytes), Some(false));
        }
    }

    fn generate(body: &str) -> Result<Request<'_>, Failure> {
        parse_generate(Some("application/json"), body.as_bytes())
    }

    #[test]
    fn sampling_parameters_of_a_generate_request_are_its_own() {
        let body = r#"{"token_ids":[1,2],"echo":true,"output_mode":"text",
            "sampling_params":{"max_tokens":3,"stream":true,"logprobs":2}}"#;
        let request = generate(body).unwrap();
        assert_eq!(request.output_mode, Some(OutputMode::Text));
        assert!(matches!(&request.prompt, Prompt::Ids(ids) if ids[..] == [vec![1, 2]]));
        assert_eq!(request.sampling.max_tokens, Some(("max_tokens", 3)));
        assert_eq!(request.sampling.logprobs, Some(2));
        assert!(
            !request.echo && !request.stream,
            "not members of this kind of request"
        );
    }

    #[test]
    fn wrong_sampling_parameters_are_told_with_both_readings() {
        let body = r#"{"token_ids":[1],"sampling_params":{"n":"x"}}"#;
        let Err(Failure::Error(error)) = generate(body) else {
            panic!("`n` is no integer");
        };
        let lines: Vec<&str> = error.message.lines().collect();
        assert_eq!(lines[0], "2 validation errors:");
        assert!(lines[1].contains(
            "'loc': 'body.sampling_params', 'msg': 'Input should be an instance of SamplingParams'"
        ));
        assert!(lines[2].contains("'loc': 'body.sampling_params.n'"));
    }
}
