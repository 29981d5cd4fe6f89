//! The JSON of its answers; members that are null are left out.

use serde::Serialize;

use crate::python;

/// `{"error":{…}}`
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Error {
    /// HTTP status.
    pub status: u16,
    /// `message`
    pub message: String,
    /// `type`
    pub kind: &'static str,
    /// `code`
    pub code: Option<&'static str>,
}

#[derive(Serialize)]
struct ErrorBody<'e> {
    error: ErrorObject<'e>,
}

#[derive(Serialize)]
struct ErrorObject<'e> {
    message: &'e str,
    #[serde(rename = "type")]
    kind: &'static str,
    code: Option<&'static str>,
}

impl Error {
    /// A request that asks for what the server does not do.
    pub fn invalid(status: u16, message: String, code: &'static str) -> Self {
        Self {
            status,
            message,
            kind: "invalid_request_error",
            code: Some(code),
        }
    }

    /// A turn that failed.
    pub fn generation(detail: &str) -> Self {
        Self {
            status: 500,
            message: format!("Generation failed: {detail}"),
            kind: "server_error",
            code: None,
        }
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let error = ErrorObject {
            message: &self.message,
            kind: self.kind,
            code: self.code,
        };
        write(&ErrorBody { error }, out);
    }
}

/// Appends the data of the event that tells of a failure behind the head.
pub fn encode_failure_event(detail: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"error\": {\"message\": ");
    python::escape_ascii(&format!("Generation failed: {detail}"), out);
    out.extend_from_slice(b", \"type\": \"server_error\", \"code\": null}}");
}

/// `usage`
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Usage {
    /// All of the prompt, what was reused included.
    pub prompt_tokens: i128,
    /// Tokens of the answer.
    pub completion_tokens: i128,
    /// Both.
    pub total_tokens: i128,
}

/// A call of a tool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ToolCall {
    /// Its number among the answer's calls.
    pub index: u32,
    /// `call-` and 32 digits.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON.
    pub arguments: String,
}

impl Serialize for ToolCall {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Spelt<'c> {
            index: u32,
            id: &'c str,
            #[serde(rename = "type")]
            kind: &'static str,
            function: Function<'c>,
        }
        #[derive(Serialize)]
        struct Function<'c> {
            name: &'c str,
            arguments: &'c str,
        }
        let function = Function {
            name: &self.name,
            arguments: &self.arguments,
        };
        let spelt = Spelt {
            index: self.index,
            id: &self.id,
            kind: "function",
            function,
        };
        spelt.serialize(serializer)
    }
}

/// An answer that is sent whole.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'c> {
    /// `id`
    pub id: &'c str,
    /// `created`, in seconds.
    pub created: u64,
    /// `model`
    pub model: &'c str,
    /// The text, if there is any.
    pub content: Option<&'c str>,
    /// The calls, if there are any.
    pub tool_calls: Option<&'c [ToolCall]>,
    /// `finish_reason`
    pub finish_reason: &'static str,
    /// `usage`
    pub usage: Usage,
}

impl Completion<'_> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        struct Spelt<'c> {
            id: &'c str,
            object: &'static str,
            created: u64,
            model: &'c str,
            choices: [Choice<'c>; 1],
            usage: Usage,
        }
        #[derive(Serialize)]
        struct Choice<'c> {
            index: u32,
            message: Delta<'c>,
            finish_reason: &'static str,
        }
        let choice = Choice {
            index: 0,
            message: Delta {
                role: Some("assistant"),
                content: self.content,
                tool_calls: self.tool_calls,
            },
            finish_reason: self.finish_reason,
        };
        let spelt = Spelt {
            id: self.id,
            object: "chat.completion",
            created: self.created,
            model: self.model,
            choices: [choice],
            usage: self.usage,
        };
        write(&spelt, out);
    }
}

/// What an event adds to the message.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Delta<'d> {
    /// `role`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// `content`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<&'d str>,
    /// `tool_calls`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<&'d [ToolCall]>,
}

/// An event of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'c> {
    /// `id`
    pub id: &'c str,
    /// `created`, in seconds, taken anew for each event.
    pub created: u64,
    /// `model`
    pub model: &'c str,
}

#[derive(Serialize)]
struct SpeltChunk<'c> {
    id: &'c str,
    object: &'static str,
    created: u64,
    model: &'c str,
    choices: &'c [ChunkChoice<'c>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct ChunkChoice<'c> {
    index: u32,
    delta: Delta<'c>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'static str>,
}

impl Chunk<'_> {
    /// Appends the data of an event that adds something, or ends the answer.
    pub fn encode(&self, delta: Delta<'_>, finish_reason: Option<&'static str>, out: &mut Vec<u8>) {
        let choice = ChunkChoice {
            index: 0,
            delta,
            finish_reason,
        };
        self.write(&[choice], None, out);
    }

    /// Appends the data of the event that tells usage.
    pub fn encode_usage(&self, usage: Usage, out: &mut Vec<u8>) {
        self.write(&[], Some(usage), out);
    }

    fn write(&self, choices: &[ChunkChoice<'_>], usage: Option<Usage>, out: &mut Vec<u8>) {
        let spelt = SpeltChunk {
            id: self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: self.model,
            choices,
            usage,
        };
        write(&spelt, out);
    }
}

/// Appends the list of the one model.
pub fn encode_models(id: &str, created: u64, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Models<'m> {
        object: &'static str,
        data: [Card<'m>; 1],
    }
    #[derive(Serialize)]
    struct Card<'m> {
        id: &'m str,
        object: &'static str,
        created: u64,
        owned_by: &'static str,
    }
    let card = Card {
        id,
        object: "model",
        created,
        owned_by: "executorch",
    };
    let models = Models {
        object: "list",
        data: [card],
    };
    write(&models, out);
}

fn write(value: &impl Serialize, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("texts and numbers encode");
}
