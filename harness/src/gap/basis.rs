//! How tokens are counted, and why one count has some that another has not.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A number of tokens, or `"none"`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Count(pub(super) Option<i64>);

/// Tokens with one reason.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Term {
    pub(super) what: What,
    pub(super) tokens: i64,
}

/// How a count is reached.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Basis {
    /// `completion_tokens`, as far as it is a count.
    Usage,
    /// Content, reasoning and tool calls, each whole.
    Retokenized,
    /// Each chunk by itself.
    PerChunk,
    /// Chunks that say something.
    Chunks,
    /// Ids that the server returned.
    TokenIds,
    /// What the model said.
    Scripted,
    /// Every event but `[DONE]`.
    Events,
    /// The first choice's text alone.
    FirstChoice,
    /// The texts of all choices as they came, read as one.
    JoinedChoices,
    /// Content alone.
    ContentOnly,
    /// `completion_tokens` of all events together.
    UsageSummed,
    /// That of the last event that has choices too.
    UsageWithChoices,
    /// That of events without choices.
    UsageWithoutChoices,
    /// That of the last event that says something.
    UsageWithText,
    /// `completion_tokens` less `reasoning_tokens`.
    UsageLessReasoning,
    /// The reasoning of both its fields.
    ReasoningTwice,
    /// Content, tool calls, and the reasoning of chunks that have no content.
    ContentFirst,
    /// The answer as the template renders an assistant's turn, less an empty one.
    ThroughTemplate,
    /// Every frame's whole text taken for what is new.
    FramesJoined,
    /// The number of tokens that was asked for.
    Requested,
    /// `prompt_tokens`
    PromptUsage,
    /// That of the first event that has any.
    PromptUsageFirst,
    /// The prompt as the model gets it.
    PromptRetokenized,
    /// The same with the special tokens that the tokenizer adds to plain text.
    PromptWithSpecial,
    /// Messages through the template, tools and arguments left out.
    PromptMessages,
    /// The text alone.
    PromptText,
    /// `prompt_tokens` less those that were cached.
    PromptUncached,
    /// What the model was asked with.
    PromptScripted,
}

impl Basis {
    /// Those that every scenario tells of.
    pub(super) const ALWAYS: [Self; 6] = [
        Self::Usage,
        Self::Retokenized,
        Self::PerChunk,
        Self::Chunks,
        Self::TokenIds,
        Self::Scripted,
    ];

    /// It counts the prompt.
    pub(super) fn is_of_prompt(self) -> bool {
        self >= Self::PromptUsage
    }
}

/// Why tokens are in one count and not in another.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    /// The end token has no text.
    EndToken,
    /// The token that stopped the answer has none either.
    StopToken,
    /// The stop string is cut off.
    StopString,
    /// Special tokens inside are left out of the text.
    SpecialTokens,
    /// `<think>` and `</think>`
    Delimiters,
    /// White space that a parser eats.
    Whitespace,
    /// Tags, braces and keys around a call's name and arguments.
    ToolStructure,
    /// Arguments that are written anew.
    Arguments,
    /// A call that a parser drops.
    DroppedCall,
    /// Reasoning that is counted and not sent.
    HiddenReasoning,
    /// Text that never arrived.
    NotReceived,
    /// The text's own tokens are others than those that were said.
    Retokenization,
    /// The client's tokenizer cuts the text otherwise.
    OtherTokenizer,
    /// Tokens that a chunk's border cuts.
    ChunkBorders,
    /// Chunks of several tokens.
    Merged,
    /// Tokens of a character that is not whole yet.
    SplitCharacters,
    /// Chunks with a role and no text.
    RoleChunks,
    /// Chunks with a finish reason and no text.
    FinishChunks,
    /// Chunks with usage and no choices.
    UsageChunks,
    /// Chunks with neither.
    EmptyChunks,
    /// Choices behind the first.
    OtherChoices,
    /// Borders between choices that are joined.
    JoinedChoices,
    /// Reasoning that a client does not read.
    ReasoningUnread,
    /// Tool calls that a client does not read.
    ToolsUnread,
    /// Reasoning that stands in two fields.
    RepeatedReasoning,
    /// Usage that is there more than once.
    RepeatedUsage,
    /// Text that is there more than once.
    RepeatedText,
    /// Usage that is not the answer's.
    WrongUsage,
    /// Usage of what has come so far, or of one choice.
    PartialUsage,
    /// A length that was asked for and not reached.
    RequestedLength,
    /// Ids that are not the model's.
    OtherIds,
    /// The chat template's own text.
    Template,
    /// Tools and template arguments.
    ToolsInPrompt,
    /// Tools that the server writes otherwise than they were sent.
    ToolsRewritten,
    /// Special tokens that the tokenizer puts around a prompt.
    SpecialInPrompt,
    /// Prompt tokens that a cache had.
    CachedPrompt,
    /// Nothing known.
    Unexplained,
}

/// A key of the wire or of a scenario, as it is written there.
pub(super) fn word(key: impl Serialize) -> String {
    let word = serde_json::to_value(key).expect("a unit variant is a string");
    word.as_str().unwrap_or_default().to_owned()
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Number(number) if number.is_i64() => Ok(Self(number.as_i64())),
            Value::String(word) if word == "none" => Ok(Self(None)),
            other => Err(serde::de::Error::custom(format!(
                "expected a number or \"none\", not {other}"
            ))),
        }
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => formatter.pad("none"),
            Some(tokens) => formatter.pad(&tokens.to_string()),
        }
    }
}

/// Terms in a line.
pub(super) fn list(terms: &[Term]) -> String {
    let told = terms.iter().map(|Term { what, tokens }| {
        let what = match what {
            What::Unexplained => "UNEXPLAINED".to_owned(),
            what => word(what).replace('_', " "),
        };
        format!("{what} {tokens:+}")
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() {
        return "no gap".to_owned();
    }
    told.join(", ")
}
