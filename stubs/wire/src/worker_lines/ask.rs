//! The lines that a server writes: as Python's `json.dumps` does, keys in the order of their making.

use crate::python;

/// What a server asks of a worker in a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Most tokens to decode, -1 for as many as there is room for.
    pub max_new_tokens: i128,
    /// Sampling temperature.
    pub temperature: f64,
    /// Probability mass to sample from.
    pub top_p: f64,
    /// Likeliest tokens to sample from, 0 for all.
    pub top_k: i128,
    /// Seed, 0 for none.
    pub seed: i128,
    /// Stop strings.
    pub stop: Vec<String>,
    /// The prompt.
    pub prompt: Prompted,
    /// The session, if it has a name.
    pub session_id: Option<String>,
}

/// A prompt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Prompted {
    /// Texts, and tokens of earlier answers, in order.
    Segments(Vec<Part>),
    /// One text.
    Text(String),
}

/// A part of a prompt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Part {
    /// Tokens of an earlier answer.
    Ids(Vec<i64>),
    /// Text to cut into tokens.
    Text(String),
}

impl Ask {
    /// The line, without its end; `cancel_request_id` is told to workers that take cancellations.
    pub fn line(&self, cancel_request_id: Option<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut number = |name: &str, value: &dyn std::fmt::Display| {
            let separator = if out.is_empty() { "{" } else { ", " };
            out.extend_from_slice(format!("{separator}\"{name}\": {value}").as_bytes());
        };
        number("max_new_tokens", &self.max_new_tokens);
        number("temperature", &python::float(self.temperature));
        number("top_p", &python::float(self.top_p));
        number("top_k", &self.top_k);
        number("seed", &self.seed);
        out.extend_from_slice(b", \"stop\": ");
        list(&self.stop, &mut out, |stop, out| {
            python::escape_ascii(stop, out);
        });
        match &self.prompt {
            Prompted::Text(text) => {
                out.extend_from_slice(b", \"prompt\": ");
                python::escape_ascii(text, &mut out);
            }
            Prompted::Segments(parts) => {
                out.extend_from_slice(b", \"prompt_segments\": ");
                list(parts, &mut out, Part::encode);
            }
        }
        if let Some(session_id) = &self.session_id {
            out.extend_from_slice(b", \"session_id\": ");
            python::escape_ascii(session_id, &mut out);
        }
        if let Some(id) = cancel_request_id {
            out.extend_from_slice(format!(", \"cancel_request_id\": {id}").as_bytes());
        }
        out.push(b'}');
        out
    }
}

impl Part {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ids(ids) => {
                out.extend_from_slice(b"{\"ids\": ");
                list(ids, out, |id, out| {
                    out.extend_from_slice(id.to_string().as_bytes());
                });
            }
            Self::Text(text) => {
                out.extend_from_slice(b"{\"text\": ");
                python::escape_ascii(text, out);
            }
        }
        out.push(b'}');
    }
}

fn list<T>(items: &[T], out: &mut Vec<u8>, encode: impl Fn(&T, &mut Vec<u8>)) {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"" } else { b", " });
        encode(item, out);
    }
    out.push(b']');
}

impl super::Operation {
    /// Its name, as a line has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Open => "open",
            Self::Reset => "reset",
        }
    }

    /// The key of the answer that says it is done.
    pub fn done(self) -> &'static str {
        match self {
            Self::Close => "closed",
            Self::Open => "opened",
            Self::Reset => "reset",
        }
    }

    /// The line that asks for it, without its end.
    pub fn line(self, session_id: &str) -> Vec<u8> {
        let mut out = format!("{{\"op\": \"{}\", \"session_id\": ", self.name()).into_bytes();
        python::escape_ascii(session_id, &mut out);
        out.push(b'}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker_lines::Operation;

    #[test]
    fn lines_are_pythons() {
        let mut ask = Ask {
            max_new_tokens: -1,
            temperature: 0.0,
            top_p: 0.5,
            top_k: 0,
            seed: 7,
            stop: vec!["a\"".into(), "é".into()],
            prompt: Prompted::Text("😀\n".into()),
            session_id: None,
        };
        let front = r#"{"max_new_tokens": -1, "temperature": 0.0, "top_p": 0.5, "top_k": 0, "seed": 7, "stop": ["a\"", "\u00e9"], "#;
        let line = String::from_utf8(ask.line(None)).unwrap();
        assert_eq!(line, format!("{front}\"prompt\": \"\\ud83d\\ude00\\n\"}}"));
        ask.prompt = Prompted::Segments(vec![Part::Text("a".into()), Part::Ids(vec![1, 2])]);
        ask.session_id = Some("s".into());
        let line = String::from_utf8(ask.line(Some(3))).unwrap();
        let back = r#""prompt_segments": [{"text": "a"}, {"ids": [1, 2]}], "session_id": "s", "cancel_request_id": 3}"#;
        assert_eq!(line, format!("{front}{back}"));
        let line = String::from_utf8(Operation::Open.line("s")).unwrap();
        assert_eq!(line, r#"{"op": "open", "session_id": "s"}"#);
    }
}
