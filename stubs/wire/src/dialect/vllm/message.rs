//! The union of chat message types that vLLM accepts: those of the `OpenAI` package, its own, and
//! `openai_harmony`'s.

use crate::schema::Field;
use crate::schema::{Kind, Presence, nullable, optional, required};

const PARTS: Kind = Kind::Union(&[Kind::Str, Kind::Iterable]);
const LIST: Kind = Kind::List(&Kind::Any, usize::MAX);

/// A chat message.
pub(super) const MESSAGE: Kind = Kind::Union(&[
    Kind::Member(
        "ChatCompletionDeveloperMessageParam",
        &Kind::Record(&[
            required("content", PARTS),
            required("role", Kind::Literal(&["developer"])),
            optional("name", Kind::Str),
        ]),
    ),
    Kind::Member(
        "ChatCompletionSystemMessageParam",
        &Kind::Record(&[
            required("content", PARTS),
            required("role", Kind::Literal(&["system"])),
            optional("name", Kind::Str),
        ]),
    ),
    Kind::Member(
        "ChatCompletionUserMessageParam",
        &Kind::Record(&[
            required("content", PARTS),
            required("role", Kind::Literal(&["user"])),
            optional("name", Kind::Str),
        ]),
    ),
    Kind::Member(
        "ChatCompletionAssistantMessageParam",
        &Kind::Record(&[
            required("role", Kind::Literal(&["assistant"])),
            nullable("content", PARTS),
            optional("name", Kind::Str),
            nullable("refusal", Kind::Str),
            optional("tool_calls", Kind::Iterable),
        ]),
    ),
    Kind::Member(
        "ChatCompletionToolMessageParam",
        &Kind::Record(&[
            required("content", PARTS),
            required("role", Kind::Literal(&["tool"])),
            required("tool_call_id", Kind::Str),
        ]),
    ),
    Kind::Member(
        "ChatCompletionFunctionMessageParam",
        &Kind::Record(&[
            Field {
                name: "content",
                kind: Kind::Str,
                presence: Presence::RequiredNullable,
            },
            required("name", Kind::Str),
            required("role", Kind::Literal(&["function"])),
        ]),
    ),
    Kind::Member(
        "CustomChatCompletionMessageParam",
        &Kind::Record(&[
            required("role", Kind::Str),
            optional("content", Kind::Union(&[Kind::Str, LIST])),
            optional("name", Kind::Str),
            nullable("tool_call_id", Kind::Str),
            nullable("tool_calls", Kind::Iterable),
            nullable("task", Kind::Str),
        ]),
    ),
    Kind::Member(
        "Message",
        &Kind::Model(&[
            required("author", Kind::Model(&[required("role", Kind::Any)])),
            optional("content", LIST),
        ]),
    ),
]);
