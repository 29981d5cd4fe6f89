//! Requests that were not recorded, and what is nearest to them.

use serde::Serialize;
use serde_json::Value;
use wire::http1::WholeRequest;

use super::Answer;

/// A request that was not recorded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoCase {
    /// `POST`
    pub method: String,
    /// The target as sent.
    pub target: String,
    /// The case with the same target that is most like it.
    pub nearest: Option<String>,
}

impl NoCase {
    /// What to say of a request that none of `answers` was recorded for.
    pub(super) fn nearest(answers: &[Answer], request: &WholeRequest<'_>) -> Self {
        let (method, target) = (request.head.method, request.head.target);
        let body: Option<Value> = serde_json::from_slice(&request.body).ok();
        let likeness = |answer: &Answer| {
            let same_method = answer.method == method;
            let likeness = likeness(body.as_ref(), answer.body.as_ref());
            (answer.target == target).then_some((same_method, likeness))
        };
        // The first of the likest, not the last.
        let candidates = answers.iter().rev();
        let liked = candidates.filter_map(|answer| Some((likeness(answer)?, answer)));
        let nearest = liked.max_by_key(|(likeness, _)| *likeness);
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            nearest: nearest.map(|(_, answer)| answer.name.clone()),
        }
    }

    /// The answer that says so: 404, with the connection left open.
    pub fn answer(&self, date: &str) -> Answer {
        let mut answer = Answer::new(String::new(), None, self.response(date), None);
        answer.keep_alive = true;
        answer
    }

    pub(super) fn response(&self, date: &str) -> Vec<u8> {
        #[derive(Serialize)]
        struct Body<'a> {
            error: Error<'a>,
        }
        #[derive(Serialize)]
        struct Error<'a> {
            message: &'a str,
            r#type: &'static str,
            nearest: Option<&'a str>,
            code: u16,
        }
        let near = match &self.nearest {
            Some(name) => format!("the nearest with this target is `{name}`"),
            None => "none has this target".into(),
        };
        let message = format!(
            "no recorded case fits {} {}: {near}",
            self.method, self.target
        );
        let body = Body {
            error: Error {
                message: &message,
                r#type: "NoRecordedCase",
                nearest: self.nearest.as_deref(),
                code: 404,
            },
        };
        let body = serde_json::to_vec(&body).expect("strings encode");
        let length = body.len().to_string();
        let headers = [
            ("date", date),
            ("server", "stubline-replay"),
            ("content-length", &length),
            ("content-type", "application/json"),
        ];
        let mut out = Vec::new();
        wire::http1::write_head(404, headers, &mut out);
        out.extend_from_slice(&body);
        out
    }
}

/// Equal members of two JSON objects; one more for each that is itself the same.
fn likeness(one: Option<&Value>, other: Option<&Value>) -> usize {
    match (one, other) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let same = one
                .iter()
                .filter_map(|(key, value)| Some((value, other.get(key)?)));
            same.map(|(value, other)| 1 + 2 * usize::from(value == other))
                .sum()
        }
        (None, None) => 1,
        _ => 0,
    }
}
