//! Recorded answers: which one a request gets, and when its parts are due.

mod missed;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use wire::http1::{WholeRequest, WholeResponse};
use wire::recording::Times;

pub use missed::NoCase;

/// An exchange as it was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What the case is called.
    pub name: String,
    /// The bytes that the client sent.
    pub request: Vec<u8>,
    /// The bytes that the server sent.
    pub response: Vec<u8>,
    /// When they came, if that was recorded.
    pub times: Option<Times>,
}

/// A folder of recorded exchanges that answers requests.
#[derive(Debug, Default)]
pub struct Replay {
    answers: Vec<Answer>,
    /// Whole requests by all their bytes.
    identical: HashMap<Vec<u8>, Turn>,
    /// The same by method, target and body.
    exact: HashMap<Key, Turn>,
    /// The same by method, target and JSON value, in canonical form.
    equal: HashMap<Key, Turn>,
    /// What was sent and is no HTTP.
    raw: Vec<(Vec<u8>, usize)>,
}

/// Method, target and body.
type Key = (String, String, Vec<u8>);

/// Answers to one request, given in turn.
#[derive(Debug, Default)]
struct Turn {
    whole: Vec<usize>,
    /// Answers that were cut, played where there is no other.
    cut: Vec<usize>,
    next: AtomicUsize,
}

/// A recorded response, ready to be sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// What the case is called.
    pub name: String,
    /// All bytes, interim responses included.
    pub bytes: Vec<u8>,
    /// Bytes of interim responses at the front.
    pub interim: usize,
    /// The connection may serve another request behind it.
    pub keep_alive: bool,
    /// When each part is due, from the moment the request has arrived.
    pub parts: Vec<(Duration, usize)>,
    /// The status, 0 where nothing or not all was answered.
    pub status: u16,
    method: String,
    target: String,
    body: Option<Value>,
}

impl Replay {
    /// Makes exchanges playable; those with several requests on one connection become one answer each.
    pub fn new(recorded: impl IntoIterator<Item = Recorded>) -> Self {
        let mut replay = Self::default();
        for exchange in recorded {
            replay.add(exchange);
        }
        replay
    }

    /// The number of answers.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// There is nothing to play.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// The answer to the request that `bytes` hold: to the same bytes if they were recorded, else to the
    /// same method, target and body, else to an equal JSON body. Several that fit are given in recorded
    /// order, over and over.
    pub fn answer(&self, bytes: &[u8], request: &WholeRequest<'_>) -> Result<&Answer, NoCase> {
        let (method, target) = (request.head.method, request.head.target);
        let key = (method.to_owned(), target.to_owned(), request.body.clone());
        let identical = self.identical.get(&bytes[..request.length]);
        let turn = identical.or_else(|| self.exact.get(&key)).or_else(|| {
            let body = canonical(&request.body)?;
            self.equal.get(&(key.0.clone(), key.1.clone(), body))
        });
        match turn {
            Some(turn) => Ok(&self.answers[turn.take()]),
            None => Err(NoCase::nearest(&self.answers, request)),
        }
    }

    /// The answer to bytes that are no HTTP request.
    pub fn answer_raw(&self, bytes: &[u8]) -> Option<&Answer> {
        let found = self.raw.iter().find(|(sent, _)| bytes == sent)?;
        Some(&self.answers[found.1])
    }

    /// The recorded case with the name.
    pub fn named(&self, name: &str) -> Option<&Answer> {
        self.answers.iter().find(|answer| answer.name == name)
    }

    fn add(&mut self, exchange: Recorded) {
        let whole = |bytes: &[u8]| {
            WholeRequest::parse(bytes)
                .ok()
                .flatten()
                .map(|one| one.length)
        };
        let Some(first) = whole(&exchange.request) else {
            self.raw.push((exchange.request, self.answers.len()));
            self.answers
                .push(Answer::new(exchange.name, None, exchange.response, None));
            return;
        };
        let is_single = first == exchange.request.len();
        let (mut sent, mut received) = (&exchange.request[..], &exchange.response[..]);
        let mut number = 0;
        while let Ok(Some(request)) = WholeRequest::parse(sent) {
            let (bytes, behind) = sent.split_at(request.length);
            sent = behind;
            number += 1;
            let is_last = !matches!(WholeRequest::parse(sent), Ok(Some(_)));
            let to_head = request.head.method == "HEAD";
            let length = match WholeResponse::parse(received, to_head, true) {
                Ok(Some(whole)) if !is_last => whole.length,
                _ => received.len(),
            };
            let (response, rest) = received.split_at(length);
            received = rest;
            let name = if is_single {
                exchange.name.clone()
            } else {
                format!("{}#{number}", exchange.name)
            };
            let times = exchange.times.as_ref().filter(|_| is_single);
            self.put(name, (bytes, &request), response, times);
        }
    }

    fn put(
        &mut self,
        name: String,
        (bytes, request): (&[u8], &WholeRequest<'_>),
        response: &[u8],
        times: Option<&Times>,
    ) {
        let number = self.answers.len();
        let answer = Answer::new(name, Some(request), response.to_vec(), times);
        let is_whole = answer.status != 0;
        let (method, target) = (request.head.method, request.head.target);
        let key = |body| (method.to_owned(), target.to_owned(), body);
        let exact = self.exact.entry(key(request.body.clone())).or_default();
        exact.put(number, is_whole);
        let identical = self.identical.entry(bytes.to_vec()).or_default();
        identical.put(number, is_whole);
        if let Some(body) = canonical(&request.body) {
            self.equal
                .entry(key(body))
                .or_default()
                .put(number, is_whole);
        }
        self.answers.push(answer);
    }
}

impl Turn {
    fn put(&mut self, number: usize, is_whole: bool) {
        let list = if is_whole {
            &mut self.whole
        } else {
            &mut self.cut
        };
        list.push(number);
    }

    fn take(&self) -> usize {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let list = if self.whole.is_empty() {
            &self.cut
        } else {
            &self.whole
        };
        list[turn % list.len()]
    }
}

impl Answer {
    fn new(
        name: String,
        request: Option<&WholeRequest<'_>>,
        bytes: Vec<u8>,
        times: Option<&Times>,
    ) -> Self {
        let to_head = request.is_some_and(|request| request.head.method == "HEAD");
        let whole = WholeResponse::parse(&bytes, to_head, true).ok().flatten();
        // A response that ends with its connection or was cut ends the connection again.
        let is_framed = matches!(WholeResponse::parse(&bytes, to_head, false), Ok(Some(_)));
        let all = Times::default().schedule(bytes.len());
        Self {
            name,
            interim: whole.as_ref().map_or(0, |whole| whole.interim),
            keep_alive: is_framed
                && whole.as_ref().is_some_and(|whole| whole.keep_alive)
                && request.is_some_and(|request| request.head.keep_alive),
            parts: times.map_or(all, |times| times.schedule(bytes.len())),
            status: whole.map_or(0, |whole| whole.status),
            method: request.map_or_else(String::new, |request| request.head.method.to_owned()),
            target: request.map_or_else(String::new, |request| request.head.target.to_owned()),
            body: request.and_then(|request| serde_json::from_slice(&request.body).ok()),
            bytes,
        }
    }
}

/// A JSON body with its keys sorted; `None` for what is no JSON.
fn canonical(body: &[u8]) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(body).ok()?;
    value.sort_all_objects();
    serde_json::to_vec(&value).ok()
}

#[cfg(test)]
mod tests {
    use wire::recording::Arrival;

    use super::*;

    fn post(target: &str, body: &str) -> Vec<u8> {
        let length = body.len();
        format!("POST {target} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    }

    fn ok(body: &str) -> Vec<u8> {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
    }

    fn recorded(name: &str, request: Vec<u8>, response: Vec<u8>) -> Recorded {
        Recorded {
            name: name.into(),
            request,
            response,
            times: None,
        }
    }

    fn ask<'r>(replay: &'r Replay, request: &[u8]) -> Result<&'r Answer, NoCase> {
        replay.answer(request, &WholeRequest::parse(request).unwrap().unwrap())
    }

    #[test]
    fn bytes_match_before_json_and_nothing_else_does() {
        let replay = Replay::new([
            recorded("spaced", post("/a", r#"{"x": 1, "y": [2]}"#), ok("1")),
            recorded("tight", post("/a", r#"{"y":[2],"x":1}"#), ok("2")),
            recorded("other", post("/b", "no json"), ok("3")),
        ]);
        let name = |target: &str, body: &str| {
            ask(&replay, &post(target, body)).map(|answer| answer.name.clone())
        };
        assert_eq!(name("/a", r#"{"y":[2],"x":1}"#), Ok("tight".into()));
        assert_eq!(name("/a", r#"{"x": 1, "y": [2]}"#), Ok("spaced".into()));
        assert_eq!(name("/a", r#"{ "x":1,"y":[2] }"#), Ok("spaced".into()));
        assert_eq!(name("/b", "no json"), Ok("other".into()));
        for (target, body) in [("/a?q", "{}"), ("/b", "no  json"), ("/a", r#"{"x":1}"#)] {
            assert!(name(target, body).is_err(), "{target} {body}");
        }
        let missed = name("/a", r#"{"x":1,"y":[3],"z":0}"#).unwrap_err();
        assert_eq!(missed.nearest.as_deref(), Some("spaced"));
        let text = String::from_utf8(missed.response("D")).unwrap();
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\ndate: D\r\n"));
        assert!(text.ends_with(
            r#"{"error":{"message":"no recorded case fits POST /a: the nearest with this target is `spaced`","type":"NoRecordedCase","nearest":"spaced","code":404}}"#
        ));
    }

    #[test]
    fn several_answers_to_one_request_are_given_in_turn() {
        let request = post("/a", "{}");
        let replay = Replay::new(["1", "2"].map(|body| recorded(body, request.clone(), ok(body))));
        let names: Vec<_> = (0..3)
            .map(|_| &*ask(&replay, &request).unwrap().name)
            .collect();
        assert_eq!(names, ["1", "2", "1"]);
    }

    #[test]
    fn the_same_bytes_come_first_and_cut_answers_last() {
        let with_id = b"POST /a HTTP/1.1\r\nX-Id: 1\r\nContent-Length: 2\r\n\r\n{}".to_vec();
        let replay = Replay::new([
            recorded("cut", post("/a", "{}"), Vec::new()),
            recorded("plain", post("/a", "{}"), ok("1")),
            recorded("with id", with_id.clone(), ok("2")),
        ]);
        for _ in 0..3 {
            assert_eq!(ask(&replay, &with_id).unwrap().name, "with id");
            assert_eq!(ask(&replay, &post("/a", "{}")).unwrap().name, "plain");
        }
    }

    #[test]
    fn a_session_is_played_request_by_request() {
        let sent = [post("/a", "{}"), post("/b", "{}")].concat();
        let replay = Replay::new([recorded("s", sent, [ok("1"), ok("2")].concat())]);
        let second = ask(&replay, &post("/b", "{}")).unwrap();
        assert_eq!((&*second.name, &second.bytes), ("s#2", &ok("2")));
        assert!(second.keep_alive);
    }

    #[test]
    fn what_was_cut_or_no_http_ends_the_connection() {
        let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".to_vec();
        let replay = Replay::new([
            recorded("cut", post("/a", "{}"), cut.clone()),
            recorded("none", post("/b", "{}"), Vec::new()),
            recorded("raw", b"GARBAGE\r\n\r\n".to_vec(), ok("x")),
        ]);
        let answer = ask(&replay, &post("/a", "{}")).unwrap();
        assert_eq!((answer.keep_alive, &answer.bytes), (false, &cut));
        let answer = ask(&replay, &post("/b", "{}")).unwrap();
        assert_eq!(
            (answer.keep_alive, answer.status, answer.parts.len()),
            (false, 0, 0)
        );
        let answer = replay.answer_raw(b"GARBAGE\r\n\r\n").unwrap();
        assert_eq!((answer.keep_alive, &*answer.name), (false, "raw"));
        assert!(replay.answer_raw(b"OTHER\r\n\r\n").is_none());
    }

    #[test]
    fn parts_are_due_as_they_came() {
        let response = ok("0123456789");
        let head = response.len() - 10;
        let times = Times(vec![Arrival(2_000_000, head), Arrival(7_000_000, 10)]);
        let mut exchange = recorded("t", post("/a", "{}"), response);
        exchange.times = Some(times);
        let replay = Replay::new([exchange]);
        let parts = &ask(&replay, &post("/a", "{}")).unwrap().parts;
        let due: Vec<_> = parts
            .iter()
            .map(|(due, bytes)| (due.as_millis(), *bytes))
            .collect();
        assert_eq!(due, [(2, head), (7, 10)]);
    }
}
