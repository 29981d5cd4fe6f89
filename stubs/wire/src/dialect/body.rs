//! Request bodies as `FastAPI` reads them: what is JSON, and what a model accepts of it.

use crate::failure::{ErrorObject, Failure};
use crate::json::{Json, JsonError, Object};
use crate::schema;

/// Refuses a body that is not said to be JSON.
pub(crate) fn check_content_type(content_type: Option<&str>) -> Result<(), Failure> {
    if content_type.is_some_and(is_json) {
        return Ok(());
    }
    Err(Failure::Error(ErrorObject {
        message:
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
                .into(),
        kind: "Bad Request",
        param: None,
        code: 400,
    }))
}

pub(crate) fn json<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<Option<Json<'a>>, Failure> {
    check_content_type(content_type)?;
    if body.is_empty() {
        return Ok(None);
    }
    Json::parse(body).map(Some).map_err(|error| match error {
        JsonError::Syntax { message, offset } => schema::json_invalid(message, offset),
        JsonError::NotUtf8 | JsonError::TooLarge => Failure::Detail {
            status: 400,
            detail: "There was an error parsing the body",
        },
    })
}

pub(crate) fn is_json(content_type: &str) -> bool {
    if content_type == "application/json" {
        return true;
    }
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

pub(crate) fn checked<'a>(
    body: Option<Json<'a>>,
    fields: &'static [schema::Field],
) -> Result<Object<'a>, Failure> {
    schema::check(body.as_ref(), fields)?;
    match body {
        Some(Json::Object(members)) => Ok(members),
        _ => unreachable!("a model accepts objects alone"),
    }
}
