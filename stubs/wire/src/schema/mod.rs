//! Request bodies checked as pydantic checks them in lax mode, with its error types and texts.
//!
//! A schema is a table of fields in declaration order, which is the order of the errors. Coercions
//! and texts are those of pydantic 2.14; the listing of errors is vLLM's `handlers/validation.py`.

mod coerce;
mod errors;
mod shown;

pub use coerce::{Coercion, bool, float, int};

use crate::failure::Failure;
use crate::json::{Json, Object};

use errors::{Errors, Segment, Told, accepts};

/// A field of a model.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// What an absent or null value does.
    pub presence: Presence,
}

/// What a field says about being left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Presence {
    /// May be absent or null.
    Nullable,
    /// May be absent, must not be null.
    Optional,
    /// Must be there, not null.
    Required,
    /// Must be there, may be null.
    RequiredNullable,
}

/// What a value must be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Anything.
    Any,
    /// A bool, or what pydantic takes for one.
    Bool,
    /// A string that is taken for bytes.
    Bytes,
    /// A pydantic data class of that name, its members unchecked.
    Dataclass(&'static str),
    /// An object whose values are of one kind.
    Dict(&'static Self),
    /// A number.
    Float,
    /// An integer from `ge` to `le`.
    Int {
        /// Smallest.
        ge: i128,
        /// Largest.
        le: i128,
    },
    /// An object of that Python class, which no JSON is.
    Instance(&'static str),
    /// A list of one kind, with a largest length.
    List(&'static Self, usize),
    /// One of these strings.
    Literal(&'static [&'static str]),
    /// Anything that Python iterates over: a list or an object.
    Iterable,
    /// A member of a union whose name stands in the location of its errors.
    Member(&'static str, &'static Self),
    /// An object with these fields.
    Model(&'static [Field]),
    /// A list of one kind with at least one item.
    NonEmptyList(&'static Self),
    /// An object with these fields, a typed dictionary.
    Record(&'static [Field]),
    /// A string.
    Str,
    /// Any of these; all of their errors count.
    Union(&'static [Self]),
}

/// An integer without bounds.
pub const INT: Kind = Kind::Int {
    ge: i128::MIN,
    le: i128::MAX,
};

/// An integer of 64 bits.
pub const INT64: Kind = Kind::Int {
    ge: i64::MIN as i128,
    le: i64::MAX as i128,
};

/// A field that may be absent or null.
pub const fn nullable(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        presence: Presence::Nullable,
    }
}

/// A field that may be absent but not null.
pub const fn optional(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        presence: Presence::Optional,
    }
}

/// A field that must be there.
pub const fn required(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        presence: Presence::Required,
    }
}

/// Checks a body against a model.
///
/// # Errors
/// The answer of vLLM's handler for schema errors, status 400.
pub fn check(body: Option<&Json<'_>>, fields: &'static [Field]) -> Result<(), Failure> {
    found(body, fields).map_or(Ok(()), |errors| Err(errors.into_failure()))
}

/// What is wrong with a body in one line of `place: what`, if anything is.
pub fn digest(body: Option<&Json<'_>>, fields: &'static [Field]) -> Option<String> {
    found(body, fields).map(Errors::into_digest)
}

fn found(body: Option<&Json<'_>>, fields: &'static [Field]) -> Option<Errors> {
    let kind = Kind::Model(fields);
    let body = body.unwrap_or(&Json::Null);
    if accepts(body, &kind) {
        return None;
    }
    let mut errors = Errors::default();
    match body {
        Json::Null => errors.plain("missing", "Field required", body),
        body => errors.check(body, &kind),
    }
    Some(errors)
}

/// Checks a body against a model.
///
/// # Errors
/// `FastAPI`'s own list of all that is wrong, status 422; none if it fails over that.
pub fn check_plainly(
    body: Option<&Json<'_>>,
    fields: &'static [Field],
) -> Result<(), Option<Failure>> {
    let errors = match body {
        // Unlike vLLM's handler it tells a body of `null` from none.
        Some(Json::Null) => {
            let mut errors = Errors::default();
            errors.check(&Json::Null, &Kind::Model(fields));
            Some(errors)
        }
        body => found(body, fields),
    };
    errors.map_or(Ok(()), |errors| Err(errors.into_details()))
}

/// vLLM's answer to a body that is not JSON.
pub fn json_invalid(message: &str, offset: usize) -> Failure {
    not_json(message, offset).into_failure()
}

/// `FastAPI`'s own answer to a body that is not JSON.
pub fn json_invalid_plainly(message: &str, offset: usize) -> Option<Failure> {
    not_json(message, offset).into_details()
}

fn not_json(message: &str, offset: usize) -> Errors {
    let mut errors = Errors::default();
    errors.path.push(Segment::Index(offset));
    let context = [("error", Told::Text(message))];
    let empty = Json::Object(Object::default());
    errors.push("json_invalid", "JSON decode error", &empty, &context);
    errors
}
