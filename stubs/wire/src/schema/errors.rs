//! Walks a body along its schema and collects what pydantic would say.

use std::fmt::Write as _;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::failure::{ErrorObject, Failure};
use crate::json::Json;
use crate::python;

use super::coerce::{self, Coercion, float, int};
use super::shown::{hide_paths, is_shown};
use super::{Field, Kind, Presence};

/// Errors listed in full; the rest are counted.
const MAX_REPORTED: usize = 10;
/// Characters of an input that are shown.
const MAX_INPUT: usize = 200;

#[derive(Default)]
pub(super) struct Errors {
    /// Errors are counted alone.
    quiet: bool,
    pub(super) path: Vec<Segment>,
    /// Each error as pydantic's own list has it.
    details: Vec<String>,
    /// An input of them is a number that JSON does not have.
    is_unencodable: bool,
    lines: Vec<String>,
    /// Each error in a few words: where, and what.
    digest: Vec<String>,
    first_path: Option<String>,
    count: usize,
}

/// A step on the way to a value.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Segment {
    Index(usize),
    Name(String),
}

impl std::fmt::Display for Segment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => index.fmt(formatter),
            Self::Name(name) => name.fmt(formatter),
        }
    }
}

/// What an error tells beside its text: names and values.
pub(super) type Context<'c> = &'c [(&'static str, Told<'c>)];

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Told<'c> {
    Number(i128),
    Text(&'c str),
}

/// As Python prints the dictionary.
fn printed(context: Context<'_>) -> String {
    let member = |(name, told): &(&str, Told<'_>)| match told {
        Told::Number(number) => format!("'{name}': {number}"),
        Told::Text(text) => format!("'{name}': {}", python::repr(text)),
    };
    let members: Vec<String> = context.iter().map(member).collect();
    format!("{{{}}}", members.join(", "))
}

/// An error as `FastAPI` lists it.
struct Detail<'d> {
    kind: &'d str,
    path: &'d [Segment],
    msg: &'d str,
    input: &'d RawValue,
    context: Context<'d>,
}

impl Serialize for Detail<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let body = Segment::Name("body".into());
        let place: Vec<&Segment> = std::iter::once(&body).chain(self.path).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.kind)?;
        map.serialize_entry("loc", &place)?;
        map.serialize_entry("msg", self.msg)?;
        map.serialize_entry("input", self.input)?;
        if !self.context.is_empty() {
            let context: Members<'_> = Members(self.context);
            map.serialize_entry("ctx", &context)?;
        }
        map.end()
    }
}

struct Members<'m>(Context<'m>);

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, told)| (name, told)))
    }
}

impl Errors {
    /// `FastAPI`'s own answer, status 422; none if it fails over an input that it cannot encode.
    pub(super) fn into_details(self) -> Option<Failure> {
        (!self.is_unencodable).then(|| Failure::Body {
            status: 422,
            json: format!("{{\"detail\":[{}]}}", self.details.join(",")),
        })
    }

    pub(super) fn into_failure(self) -> Failure {
        let noun = if self.count == 1 { "error" } else { "errors" };
        let mut message = format!("{} validation {noun}:", self.count);
        for line in &self.lines {
            write!(message, "\n  {line}").expect("a String takes all");
        }
        if self.count > MAX_REPORTED {
            let more = self.count - MAX_REPORTED;
            write!(message, "\n  ...and {more} more {noun}").expect("a String takes all");
        }
        Failure::Error(ErrorObject {
            message: hide_paths(&message),
            kind: "Bad Request",
            param: self.first_path,
            code: 400,
        })
    }

    /// All errors in one line.
    pub(super) fn into_digest(self) -> String {
        self.digest.join("; ")
    }

    pub(super) fn push(&mut self, kind: &str, msg: &str, input: &Json<'_>, context: Context<'_>) {
        self.count += 1;
        if self.quiet {
            return;
        }
        match RawValue::from_string(python::compact_dumps(input)) {
            Err(_) => self.is_unencodable = true,
            Ok(input) => {
                let detail = Detail {
                    kind,
                    path: &self.path,
                    msg,
                    input: &input,
                    context,
                };
                let detail = serde_json::to_string(&detail).expect("texts and numbers encode");
                self.details.push(detail);
            }
        }
        let segments: Vec<String> = self.path.iter().map(ToString::to_string).collect();
        let mut location = String::from("body");
        for segment in segments.iter().filter(|segment| is_shown(segment)) {
            location.push('.');
            location.push_str(segment);
        }
        if self.lines.len() < MAX_REPORTED {
            let shown = python::summary(input);
            let shown = match shown.char_indices().nth(MAX_INPUT) {
                Some((cut, _)) if matches!(input, Json::String(_) | Json::Surrogates(_)) => {
                    format!("{}...[truncated]", &shown[..cut])
                }
                Some((cut, _)) => shown[..cut].to_owned(),
                None => shown,
            };
            let mut line = format!(
                "{{'type': '{kind}', 'loc': {}, 'msg': {}, 'input': {}",
                python::repr(&location),
                python::repr(msg),
                python::repr(&shown)
            );
            if !context.is_empty() {
                write!(line, ", 'ctx': {}", printed(context)).expect("a String takes all");
            }
            line.push('}');
            self.lines.push(line);
        }
        if self.digest.len() < MAX_REPORTED {
            let place = segments.join(".");
            let separator = if place.is_empty() { "" } else { ": " };
            self.digest.push([&place, separator, msg].concat());
        }
        self.first_path.get_or_insert(location);
    }

    pub(super) fn plain(&mut self, kind: &str, msg: &str, input: &Json<'_>) {
        self.push(kind, msg, input, &[]);
    }

    fn at(&mut self, name: &str, check: impl FnOnce(&mut Self)) {
        if self.quiet {
            return check(self);
        }
        self.path.push(Segment::Name(name.to_owned()));
        check(self);
        self.path.pop();
    }

    fn at_index(&mut self, index: usize, check: impl FnOnce(&mut Self)) {
        self.path.push(Segment::Index(index));
        check(self);
        self.path.pop();
    }

    pub(super) fn check(&mut self, value: &Json<'_>, kind: &Kind) {
        if self.quiet && self.count > 0 {
            return;
        }
        match *kind {
            Kind::Any => {}
            Kind::Bool => {
                if let Err(error) = coerce::bool(value) {
                    self.coercion(error, value);
                }
            }
            Kind::Bytes => self.check_text(value, "bytes_type", "Input should be a valid bytes"),
            Kind::Dataclass(name) => self.check_dataclass(value, name),
            Kind::Dict(kind) => self.check_dict(value, kind),
            Kind::Float => {
                if let Err(error) = float(value) {
                    self.coercion(error, value);
                }
            }
            Kind::Int { ge, le } => self.check_int(value, ge, le),
            Kind::Instance(name) => {
                let msg = format!("Input should be an instance of {name}");
                let context = [("class", Told::Text(name))];
                self.push("is_instance_of", &msg, value, &context);
            }
            Kind::List(kind, longest) => self.check_list(value, kind, longest),
            Kind::NonEmptyList(kind) => self.check_non_empty_list(value, kind),
            Kind::Iterable => {
                if !matches!(value, Json::Array(_) | Json::Object(_)) {
                    self.plain("iterable_type", "Input should be iterable", value);
                }
            }
            Kind::Literal(words) => self.check_literal(value, words),
            Kind::Member(name, kind) => self.at(name, |errors| errors.check(value, kind)),
            Kind::Model(fields) => {
                let msg = "Input should be a valid dictionary or object to extract fields from";
                self.check_fields(value, fields, "model_attributes_type", msg);
            }
            Kind::Record(fields) => {
                let msg = "Input should be a valid dictionary";
                self.check_fields(value, fields, "dict_type", msg);
            }
            Kind::Str => self.check_text(value, "string_type", "Input should be a valid string"),
            Kind::Union(kinds) => {
                if !kinds.iter().any(|kind| accepts(value, kind)) {
                    for kind in kinds {
                        self.check(value, kind);
                    }
                }
            }
        }
    }

    fn coercion(&mut self, error: Coercion, value: &Json<'_>) {
        let (kind, msg) = error.texts();
        self.plain(kind, msg, value);
    }

    fn check_text(&mut self, value: &Json<'_>, kind: &str, msg: &str) {
        if !matches!(value, Json::String(_) | Json::Surrogates(_)) {
            self.plain(kind, msg, value);
        }
    }

    fn check_dataclass(&mut self, value: &Json<'_>, name: &str) {
        if value.as_object().is_none() {
            let msg = format!("Input should be a dictionary or an instance of {name}");
            let context = [("class_name", Told::Text(name))];
            self.push("dataclass_type", &msg, value, &context);
        }
    }

    fn check_dict(&mut self, value: &Json<'_>, kind: &Kind) {
        let Json::Object(members) = value else {
            return self.plain("dict_type", "Input should be a valid dictionary", value);
        };
        for (name, value) in &members.0 {
            self.at(name, |errors| errors.check(value, kind));
        }
    }

    fn check_int(&mut self, value: &Json<'_>, ge: i128, le: i128) {
        match int(value) {
            Err(error) => self.coercion(error, value),
            Ok(number) if number < ge => {
                let msg = format!("Input should be greater than or equal to {ge}");
                let context = [("ge", Told::Number(ge))];
                self.push("greater_than_equal", &msg, value, &context);
            }
            Ok(number) if number > le => {
                let msg = format!("Input should be less than or equal to {le}");
                let context = [("le", Told::Number(le))];
                self.push("less_than_equal", &msg, value, &context);
            }
            Ok(_) => {}
        }
    }

    fn check_list(&mut self, value: &Json<'_>, kind: &Kind, longest: usize) {
        let Json::Array(items) = value else {
            return self.plain("list_type", "Input should be a valid list", value);
        };
        let length = items.len();
        if length > longest {
            let msg =
                format!("List should have at most {longest} items after validation, not {length}");
            let context = [
                ("field_type", Told::Text("List")),
                ("max_length", told(longest)),
                ("actual_length", told(length)),
            ];
            return self.push("too_long", &msg, value, &context);
        }
        for (index, item) in items.iter().enumerate() {
            self.at_index(index, |errors| errors.check(item, kind));
        }
    }

    fn check_non_empty_list(&mut self, value: &Json<'_>, kind: &Kind) {
        if !matches!(value, Json::Array(items) if items.is_empty()) {
            return self.check_list(value, kind, usize::MAX);
        }
        let msg = "List should have at least 1 item after validation, not 0";
        let context = [
            ("field_type", Told::Text("List")),
            ("min_length", told(1)),
            ("actual_length", told(0)),
        ];
        self.push("too_short", msg, value, &context);
    }

    fn check_literal(&mut self, value: &Json<'_>, words: &[&str]) {
        if value.as_str().is_some_and(|text| words.contains(&text)) {
            return;
        }
        if self.quiet {
            return self.plain("literal_error", "", value);
        }
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let expected = match quoted.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => quoted.concat(),
        };
        let msg = format!("Input should be {expected}");
        let context = [("expected", Told::Text(&expected))];
        self.push("literal_error", &msg, value, &context);
    }

    fn check_fields(&mut self, value: &Json<'_>, fields: &[Field], kind: &str, msg: &str) {
        let Json::Object(members) = value else {
            return self.plain(kind, msg, value);
        };
        for field in fields {
            match (members.get(field.name), field.presence) {
                (None, Presence::Required | Presence::RequiredNullable) => {
                    self.at(field.name, |errors| {
                        errors.plain("missing", "Field required", value);
                    });
                }
                (None, _) | (Some(Json::Null), Presence::Nullable | Presence::RequiredNullable) => {
                }
                (Some(found), _) => self.at(field.name, |errors| errors.check(found, &field.kind)),
            }
        }
    }
}

fn told(number: usize) -> Told<'static> {
    Told::Number(i128::try_from(number).unwrap_or(i128::MAX))
}

pub(super) fn accepts(value: &Json<'_>, kind: &Kind) -> bool {
    let mut errors = Errors {
        quiet: true,
        ..Errors::default()
    };
    errors.check(value, kind);
    errors.count == 0
}
