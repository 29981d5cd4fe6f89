//! Lists of logprobs in `meta_info`, kept as JSON and grown.

use std::fmt::Write as _;

use serde::Serialize;

use crate::chunk::{TokenLogprob, TopLogprob};
use crate::http1::write_number;
use crate::json;
use crate::request::{FlatLogprobs, NativeLogprobs};

/// Lists of logprobs of a prompt and its answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    input: Kinds,
    output: Kinds,
}

#[derive(Clone, Debug, Default)]
struct Kinds {
    tokens: List,
    top: List,
    asked: List,
}

/// A growing JSON list.
#[derive(Clone, Debug, Default)]
struct List {
    json: Vec<u8>,
    items: usize,
    /// The items apart, where the list is told flat: values, ids.
    values: Vec<u8>,
    ids: Vec<u8>,
    /// Items at its start without a value.
    nulls: usize,
}

impl Lists {
    /// Adds a token of the prompt.
    pub(super) fn push_input(&mut self, asked: &NativeLogprobs, token: &TokenLogprob) {
        self.input.push(asked, token);
    }

    /// Adds a token of the answer.
    pub(super) fn push_output(&mut self, asked: &NativeLogprobs, token: &TokenLogprob) {
        self.output.push(asked, token);
    }

    /// Forgets the answer's tokens.
    pub(super) fn forget_output(&mut self) {
        self.output = Kinds::default();
    }

    /// Appends each list of the prompt's tokens before that of the answer's `tokens`.
    pub(super) fn write(&self, asked: &NativeLogprobs, tokens: u64, out: &mut Vec<u8>) {
        self.input.tokens.write("input_token_logprobs", out);
        self.output.tokens.write("output_token_logprobs", out);
        member("output_token_logprobs_length", tokens, out);
        if asked.top > 0 {
            for (is_flat, name, list) in [
                (asked.flat.input, "input_top_logprobs", &self.input.top),
                (asked.flat.output, "output_top_logprobs", &self.output.top),
            ] {
                if is_flat {
                    list.write_flat(name, asked.top, out);
                } else {
                    list.write(name, out);
                }
            }
        }
        if !asked.token_ids.is_empty() {
            self.input.asked.write("input_token_ids_logprobs", out);
            self.output.asked.write("output_token_ids_logprobs", out);
        }
    }

    /// Appends each list of the answer's tokens before that of the prompt's, and of the latter only what there is.
    pub(super) fn write_in_turn(&self, asked: &NativeLogprobs, out: &mut Vec<u8>) {
        let (input, output) = (&self.input, &self.output);
        output.tokens.write("output_token_logprobs", out);
        input.tokens.write("input_token_logprobs", out);
        let tells_input = asked.start >= 0;
        let further = [
            (asked.top > 0, "top", &output.top, &input.top),
            (
                !asked.token_ids.is_empty(),
                "token_ids",
                &output.asked,
                &input.asked,
            ),
        ];
        for (is_asked, name, output, input) in further {
            if is_asked {
                output.write(&format!("output_{name}_logprobs"), out);
            }
            if is_asked && tells_input {
                input.write(&format!("input_{name}_logprobs"), out);
            }
        }
    }
}

impl Kinds {
    fn push(&mut self, asked: &NativeLogprobs, token: &TokenLogprob) {
        self.tokens.start();
        let text = asked.with_text.then_some(&*token.token);
        entry(token.logprob, token.id, text, &mut self.tokens.json);
        let is_known = token.logprob.is_some();
        if asked.top > 0 {
            self.top.push(asked, is_known, &token.top);
        }
        if !asked.token_ids.is_empty() {
            self.asked.push(asked, is_known, &token.asked);
        }
    }
}

impl List {
    fn start(&mut self) {
        if self.items > 0 {
            self.json.push(b',');
        }
        self.items += 1;
    }

    /// Adds a token's list, or null where there is none.
    fn push(&mut self, asked: &NativeLogprobs, is_known: bool, tokens: &[TopLogprob]) {
        self.start();
        if !is_known {
            self.nulls += 1;
            return self.json.extend_from_slice(b"null");
        }
        self.json.push(b'[');
        for (number, token) in tokens.iter().enumerate() {
            if number > 0 {
                self.json.push(b',');
            }
            let text = asked.with_text.then_some(&*token.token);
            entry(Some(token.logprob), token.id, text, &mut self.json);
            if asked.flat == FlatLogprobs::default() {
                continue;
            }
            for flat in [&mut self.values, &mut self.ids] {
                if !flat.is_empty() {
                    flat.push(b',');
                }
            }
            number_into(token.logprob, &mut self.values);
            push_ids(&[token.id], &mut self.ids);
        }
        self.json.push(b']');
    }

    fn write(&self, name: &str, out: &mut Vec<u8>) {
        named(name, "", &self.json, out);
    }

    fn write_flat(&self, name: &str, top: usize, out: &mut Vec<u8>) {
        named(name, "_val_flat", &self.values, out);
        named(name, "_idx_flat", &self.ids, out);
        let mut shape = String::new();
        write!(shape, "{},{top}", self.items - self.nulls).expect("a String takes all");
        named(name, "_shape", shape.as_bytes(), out);
        member(&format!("{name}_null_prefix"), self.nulls, out);
    }
}

/// Appends `,"name":[items]`.
pub(super) fn named(name: &str, suffix: &str, items: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(suffix.as_bytes());
    out.extend_from_slice(b"\":[");
    out.extend_from_slice(items);
    out.push(b']');
}

/// Appends `[logprob,id,text]`.
fn entry(logprob: Option<f32>, id: u32, text: Option<&str>, out: &mut Vec<u8>) {
    out.push(b'[');
    match logprob {
        Some(logprob) => number_into(logprob, out),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b',');
    push_ids(&[id], out);
    match text {
        Some(text) => {
            out.extend_from_slice(b",\"");
            json::escape_into(text, out);
            out.extend_from_slice(b"\"]");
        }
        None => out.extend_from_slice(b",null]"),
    }
}

/// Appends a 32-bit float as the 64-bit one that it is in Python.
fn number_into(number: f32, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &f64::from(number)).expect("numbers encode");
}

/// Appends `,"name":value`.
pub(super) fn member(name: &str, value: impl Serialize, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    serde_json::to_writer(out, &value).expect("strings and numbers encode");
}

/// Appends numbers with commas between them.
pub(super) fn push_ids(ids: &[u32], out: &mut Vec<u8>) {
    for (number, id) in ids.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write_number(*id as usize, out);
    }
}
