//! The parsers against what SGLang sent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use serde_json::Value;
use vocab::Tokenizer;
use wire::chunk::{Delta, ToolCall};
use wire::finish::FinishReason;

use super::Voice;
use super::sglang::{Manner, Tools};
use crate::reasoning::{self, ReasoningParser};
use crate::tools::{self, ToolParser};

static CORPUS: LazyLock<PathBuf> = LazyLock::new(|| {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/wire/sglang-0.5.23")
});

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let read = |file: &str| std::fs::read_to_string(CORPUS.join("stub-model").join(file)).ok();
    Tokenizer::from_files(read).unwrap()
});

static CONFIGURATIONS: LazyLock<Value> = LazyLock::new(|| {
    let mut cases = read("cases.json");
    cases["configurations"].take()
});

fn read(file: &str) -> Value {
    let text = std::fs::read_to_string(CORPUS.join(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// What a chunk or a message says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Said {
    content: Option<String>,
    reasoning: Option<String>,
    calls: Vec<(bool, u64, Option<String>, Option<String>)>,
    is_parsed: bool,
}

impl From<&Delta<'_>> for Said {
    fn from(delta: &Delta<'_>) -> Self {
        let call = |call: &ToolCall<'_>| {
            let [name, arguments] =
                [&call.name, &call.arguments].map(|text| text.as_deref().map(str::to_owned));
            (call.id.is_some(), call.index.into(), name, arguments)
        };
        Self {
            content: delta.content.as_deref().map(str::to_owned),
            reasoning: delta.reasoning.as_deref().map(str::to_owned),
            calls: delta.tool_calls.iter().map(call).collect(),
            is_parsed: delta.nulls.tool_parser,
        }
    }
}

impl Said {
    fn recorded(delta: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let call = |(index, call): (usize, &Value)| {
            let function = &call["function"];
            (
                call["id"].is_string(),
                call["index"].as_u64().unwrap_or(index as u64),
                text(&function["name"]),
                text(&function["arguments"]),
            )
        };
        let calls = delta["tool_calls"]
            .as_array()
            .map_or_else(Vec::new, Clone::clone);
        Self {
            content: text(&delta["content"]),
            reasoning: text(&delta["reasoning_content"]),
            calls: calls.iter().enumerate().map(call).collect(),
            is_parsed: delta.get("role").is_some_and(Value::is_null),
        }
    }
}

/// Of the Rust front end some frames hold two tokens.
fn joined(said: Vec<Said>) -> Vec<Said> {
    fn join(text: &mut Option<String>, more: Option<&String>) {
        if let (Some(text), Some(more)) = (text, more) {
            text.push_str(more);
        }
    }
    let kind = |said: &Said| {
        (
            said.content.is_some(),
            said.reasoning.is_some(),
            said.calls.is_empty(),
        )
    };
    let mut joined: Vec<Said> = Vec::new();
    for said in said {
        match joined.last_mut() {
            Some(last) if kind(last) == kind(&said) && said.calls.is_empty() => {
                join(&mut last.content, said.content.as_ref());
                join(&mut last.reasoning, said.reasoning.as_ref());
            }
            _ => joined.push(said),
        }
    }
    joined
}

/// Each choice's deltas and finish reason.
type Choices = BTreeMap<u64, (Vec<Said>, String)>;

struct Case {
    name: String,
    request: Value,
    response: Vec<Value>,
    reasoning: Option<ReasoningParser>,
    tools: Option<ToolParser>,
    is_rust: bool,
}

impl Case {
    /// None if it is no chat.
    fn read(folder: &str, name: &str) -> Option<Self> {
        let file = |part: &str| {
            let path = CORPUS.join(folder).join(format!("{name}.{part}.http"));
            std::fs::read_to_string(path).unwrap()
        };
        let (request, response) = (file("request"), file("response"));
        let (head, request) = request.split_once("\r\n\r\n").unwrap();
        if !head.starts_with("POST /v1/chat/completions ") {
            return None;
        }
        let lines = response
            .lines()
            .map(|line| line.strip_prefix("data: ").unwrap_or(line));
        let objects = lines.filter(|line| line.starts_with('{'));
        let flag = |name: &str| {
            let flags = CONFIGURATIONS[folder]["flags"].as_array().unwrap();
            let at = flags.iter().position(|flag| flag == name)?;
            flags[at + 1].as_str()
        };
        let tools = flag("--tool-call-parser").map(ToolParser::sglang);
        Some(Self {
            name: format!("{folder}/{name}"),
            request: serde_json::from_str(request).unwrap(),
            response: objects
                .map(|object| serde_json::from_str(object).unwrap())
                .collect(),
            reasoning: flag("--reasoning-parser")
                .map(ReasoningParser::sglang)
                .transpose()
                .unwrap(),
            tools: tools.transpose().unwrap(),
            is_rust: folder.starts_with("rust"),
        })
    }

    /// Without a parser nothing is told of thinking.
    fn thinks(&self) -> bool {
        self.reasoning.is_some()
            && self.request["chat_template_kwargs"]["enable_thinking"] != false
            && self.request["reasoning_effort"] != "none"
    }

    fn voice(&self) -> Voice {
        let flag = |key: &str| self.request[key] != false;
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
        let tools = self.request["tools"].as_array();
        let tools = tools.filter(|_| self.request["tool_choice"] != "none");
        Voice::sglang(Manner {
            reasoning: self.reasoning,
            separate_reasoning: flag("separate_reasoning"),
            stream_reasoning: flag("stream_reasoning"),
            thinks: self.thinks(),
            tools: tools.zip(self.tools).map(|(tools, parser)| Tools {
                parser,
                names: tools.iter().map(name).collect(),
                parallel: flag("parallel_tool_calls"),
            }),
            whole_calls: self.is_rust,
            seed: 7,
        })
    }

    /// The ids of each choice's tokens.
    fn choices(&self, scripts: &Value) -> Vec<Vec<u32>> {
        let number = |key: &str| {
            self.request[key]
                .as_u64()
                .map(|number| usize::try_from(number).unwrap())
        };
        let messages = self.request["messages"].as_array().unwrap();
        let mut texts = messages
            .iter()
            .filter_map(|message| message["content"].as_str());
        let name = texts
            .find_map(|text| text.split_once("[[")?.1.split_once("]]"))
            .unwrap()
            .0;
        let script = &scripts[name];
        let variants = script["variants"]
            .as_array()
            .map_or_else(|| std::slice::from_ref(script), Vec::as_slice);
        let choices = variants.iter().cycle().take(number("n").unwrap_or(1));
        let ids = choices.map(|text| {
            let mut ids = TOKENIZER.vocab.encode(text.as_str().unwrap(), false);
            ids.truncate(number("max_tokens").unwrap());
            ids
        });
        ids.collect()
    }

    fn said(&self, scripts: &Value) -> Choices {
        let choice = |ids: &Vec<u32>| {
            let mut voice = self.voice();
            let texts = TOKENIZER.vocab.deltas(ids);
            let deltas = if self.request["stream"] == true {
                let steps = texts.iter().enumerate();
                steps
                    .flat_map(|(at, text)| voice.deltas(text, &[], at + 1 == texts.len()))
                    .collect()
            } else {
                vec![voice.whole(&texts.concat())]
            };
            let ended = TOKENIZER.eos_token_ids.contains(ids.last().unwrap());
            let reason = if ended {
                FinishReason::Stop
            } else {
                FinishReason::Length
            };
            let finish = voice.finish(&reason.into()).reason.as_str();
            (deltas.iter().map(Said::from).collect(), finish.to_owned())
        };
        (0..)
            .zip(self.choices(scripts).iter().map(choice))
            .collect()
    }

    fn recorded(&self) -> Choices {
        let mut choices = Choices::new();
        for chunk in &self.response {
            for choice in chunk["choices"].as_array().unwrap() {
                let (said, finish) = choices
                    .entry(choice["index"].as_u64().unwrap())
                    .or_default();
                let delta = &choice["delta"];
                let recorded = Said::recorded(if delta.is_null() {
                    &choice["message"]
                } else {
                    delta
                });
                let is_role = delta["role"].is_string() && recorded.calls.is_empty();
                let says_nothing = recorded == Said::default();
                let is_left_out = match choice["finish_reason"].as_str() {
                    // A chunk for logprobs alone is no parser's.
                    None => is_role || (says_nothing && !choice["logprobs"].is_null()),
                    Some(reason) => {
                        reason.clone_into(finish);
                        says_nothing && !delta.is_null()
                    }
                };
                said.extend((!is_left_out).then_some(recorded));
            }
        }
        choices
    }

    fn reasoning_tokens(&self, scripts: &Value) -> u64 {
        let close = TOKENIZER.vocab.encode(ReasoningParser::CLOSE, false);
        let choices = self.choices(scripts).into_iter();
        let tokens = choices.map(|ids| {
            let all = std::iter::once(ids.len());
            reasoning::sglang::tokens(&ids, all, &close, self.thinks())[0]
        });
        tokens.sum()
    }

    /// What differs from the recording.
    fn difference(&self, scripts: &Value) -> Option<String> {
        let (mut said, mut recorded) = (self.said(scripts), self.recorded());
        if self.is_rust {
            // All of its deltas are of one encoder.
            for (said, _) in said.values_mut().chain(recorded.values_mut()) {
                *said = joined(std::mem::take(said));
                for said in said {
                    said.is_parsed = false;
                }
            }
        }
        if said != recorded {
            return Some(format!("{}: {said:?}\n{recorded:?}", self.name));
        }
        let tokens = self.reasoning_tokens(scripts);
        let usage = self
            .response
            .iter()
            .rev()
            .find_map(|chunk| chunk["usage"]["reasoning_tokens"].as_u64());
        let differs = usage.is_some_and(|usage| usage != tokens);
        differs.then(|| format!("{}: {tokens} tokens of reasoning, not {usage:?}", self.name))
    }
}

#[test]
fn every_recorded_chat_is_parsed_alike() {
    let scripts = read("scripts.json");
    let folders = [
        "parsers-deepseek-r1",
        "parsers-qwen3",
        "rust-server-parsers-qwen3",
        "tools-hermes",
    ];
    let mut cases = Vec::new();
    for folder in folders {
        for entry in std::fs::read_dir(CORPUS.join(folder)).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            let name = file.strip_suffix(".request.http");
            cases.extend(name.and_then(|name| Case::read(folder, name)));
        }
    }
    assert_eq!(cases.len(), 150);
    let differing: Vec<String> = cases
        .iter()
        .filter_map(|case| case.difference(&scripts))
        .collect();
    assert!(
        differing.is_empty(),
        "{} cases differ\n{}",
        differing.len(),
        differing.join("\n")
    );
}

#[test]
fn the_parsing_routes_say_the_same() {
    let body = |name: &str, part: &str| -> Value {
        let text =
            std::fs::read_to_string(CORPUS.join(format!("default/{name}.{part}.http"))).unwrap();
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let asked = body("route-parse-function-call", "request");
    let parser = ToolParser::sglang(asked["tool_call_parser"].as_str().unwrap()).unwrap();
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
    let names: Arc<[String]> = asked["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(name)
        .collect();
    let whole = tools::find(parser, asked["text"].as_str().unwrap(), &names);
    let calls: Vec<Value> = whole.calls.iter().map(|call| {
        serde_json::json!({"tool_index": call.tool, "name": call.name, "parameters": call.arguments})
    }).collect();
    let answer = serde_json::json!({"normal_text": whole.content, "calls": calls});
    assert_eq!(answer, body("route-parse-function-call", "response"));

    let asked = body("route-separate-reasoning", "request");
    let parser = ReasoningParser::sglang(asked["reasoning_parser"].as_str().unwrap()).unwrap();
    let split = reasoning::sglang::Detector::new(parser, false, false)
        .whole(asked["text"].as_str().unwrap());
    let answer = serde_json::json!({"reasoning_text": split.reasoning.unwrap_or_default(), "text": split.content.unwrap_or_default()});
    assert_eq!(answer, body("route-separate-reasoning", "response"));
}
