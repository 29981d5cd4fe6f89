//! What SGLang's parsers find in a text that is sent to them.

use serde::Serialize;
use wire::dialect::sglang::bodies::{ParseFunctionCall, SeparateReasoning};
use wire::failure::Failure;

use super::internal;
use crate::reasoning::ReasoningParser;
use crate::reasoning::sglang::Detector;
use crate::reply::Reply;
use crate::route::json;
use crate::stub::Call;
use crate::tools::{self, ToolParser};

#[derive(Serialize)]
struct Parsed {
    normal_text: String,
    calls: Vec<ParsedCall>,
}

#[derive(Serialize)]
struct ParsedCall {
    tool_index: usize,
    name: String,
    parameters: String,
}

pub(super) fn function_call(call: &Call<'_>) -> Result<Reply, Failure> {
    let asked = ParseFunctionCall::parse(call.head.content_type(), call.body)?;
    let parser = asked.parser.as_deref().map(ToolParser::sglang);
    // A parser that is not there is one that the server did not foresee.
    let Some(Ok(parser)) = parser else {
        return Ok(internal());
    };
    let found = tools::find(parser, &asked.text, &asked.names);
    let calls = found.calls.into_iter().map(|call| ParsedCall {
        tool_index: call.tool,
        name: call.name,
        parameters: call.arguments,
    });
    Ok(json(&Parsed {
        normal_text: found.content,
        calls: calls.collect(),
    }))
}

#[derive(Serialize)]
struct Separated {
    reasoning_text: String,
    text: String,
    #[serde(flatten)]
    blocks: Option<Blocks>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the wire")]
struct Blocks {
    reasoning_blocks: Vec<String>,
    text_blocks: Vec<String>,
    blocks: Vec<Block>,
}

#[derive(Serialize)]
struct Block {
    #[serde(rename = "type")]
    kind: &'static str,
    text: String,
}

pub(super) fn reasoning(call: &Call<'_>) -> Result<Reply, Failure> {
    let asked = SeparateReasoning::parse(call.head.content_type(), call.body)?;
    let Ok(parser) = ReasoningParser::sglang(&asked.parser) else {
        return Ok(internal());
    };
    let split = Detector::new(parser, false, false).whole(&asked.text);
    let reasoning = split.reasoning.unwrap_or_default();
    let text = split.content.unwrap_or_default();
    let blocks = asked.returns_blocks.then(|| Blocks::new(&reasoning, &text));
    Ok(json(&Separated {
        reasoning_text: reasoning,
        text,
        blocks,
    }))
}

impl Blocks {
    fn new(reasoning: &str, text: &str) -> Self {
        let reasoning = Some(reasoning).filter(|text| !text.is_empty());
        let block = |kind, text: &str| Block {
            kind,
            text: text.to_owned(),
        };
        let thoughts = reasoning.map(|text| block("reasoning", text));
        Self {
            reasoning_blocks: reasoning.into_iter().map(str::to_owned).collect(),
            text_blocks: vec![text.to_owned()],
            blocks: thoughts.into_iter().chain([block("text", text)]).collect(),
        }
    }
}
