//! `POST /invocations`, the one route that `SageMaker` asks: a chat or a completion, by its body.

use wire::failure::Failure;
use wire::json::{Json, JsonError};
use wire::request::Endpoint;

use crate::answer;
use crate::reply::Reply;
use crate::stub::{Call, Context, Stub};

/// Answers as the first endpoint whose schema takes the body.
pub(crate) fn reply(stub: &Stub, call: &Call<'_>, context: &mut Context) -> Result<Reply, Failure> {
    let content_type = call.head.content_type();
    let takes = |endpoint: &Endpoint| {
        let request = stub.dialect.parse(*endpoint, content_type, call.body);
        request.is_ok()
    };
    let endpoints = [Endpoint::Chat, Endpoint::Completions];
    if let Some(endpoint) = endpoints.into_iter().find(takes) {
        return answer::reply(stub, endpoint, call, context);
    }
    stub.dialect.check_content_type(content_type)?;
    if let Err(refusal) = read_json(call.body) {
        return Ok(*refusal);
    }
    let message = "Cannot find suitable handler for request. Expected one of: ['ChatCompletionRequest', 'CompletionRequest']";
    Err(Failure::bad_request(message, None))
}

/// Reads a body as a route does that has no schema, or gives its answer.
pub(crate) fn read_json(body: &[u8]) -> Result<Json<'_>, Box<Reply>> {
    Json::parse(body).map_err(|error| {
        let refusal = match error {
            JsonError::Syntax { message, offset } => {
                let place = place(body, offset);
                refusal(&format!("JSON decode error: {message}: {place}"))
            }
            JsonError::NotUtf8 | JsonError::TooLarge => {
                let mut out = Vec::new();
                Failure::internal("").encode(&mut out);
                Reply::json(500, out)
            }
        };
        refusal.into()
    })
}

/// The web framework's own answer to a bad request.
pub(crate) fn refusal(detail: &str) -> Reply {
    let body = serde_json::to_vec(&Detail { detail }).expect("a string encodes");
    Reply::json(400, body)
}

#[derive(serde::Serialize)]
struct Detail<'a> {
    detail: &'a str,
}

/// A character offset as Python shows it.
fn place(body: &[u8], offset: usize) -> String {
    let text = String::from_utf8_lossy(body);
    let before = text.chars().take(offset);
    let (mut line, mut column) = (1, 1);
    for character in before {
        (line, column) = match character {
            '\n' => (line + 1, 1),
            _ => (line, column + 1),
        };
    }
    format!("line {line} column {column} (char {offset})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Body;

    #[test]
    fn the_place_of_a_json_error_is_told_as_python_tells_it() {
        let refusal = read_json("{\"ä\":1,\n \"b\" 2}".as_bytes()).unwrap_err();
        let Body::Whole(whole) = refusal.body else {
            panic!("a refusal is not streamed");
        };
        assert_eq!(
            std::str::from_utf8(&whole.bytes).unwrap(),
            r#"{"detail":"JSON decode error: Expecting ':' delimiter: line 2 column 6 (char 13)"}"#
        );
    }
}
