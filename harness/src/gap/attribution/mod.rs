//! Why a server counts other than its client: one answer, taken apart token by token.
//!
//! The client counts what it saw, content and reasoning, each through its tokenizer (rule O-3 without
//! a constant); the server says `completion_tokens`. Where the answer's tokens are known, each of them
//! is laid over the text that the client saw (`align`); otherwise what the server may have said is
//! rendered again and counted (`infer`). Whatever comes in, causes and rest add up to the difference.

mod align;
mod infer;
mod marks;
mod pieces;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use vocab::Tokenizer;
use wire::finish::{FinishReason, StopReason};
use wire::usage::Usage;

use align::Kind;
use pieces::Pieces;

/// What a client saw of one answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Its choices by their index.
    pub choices: Vec<Choice>,
    /// The last usage that the server sent.
    pub usage: Option<Usage>,
    /// Events that carried text, reasoning or a tool call.
    pub chunks: u64,
}

/// What a client saw of one choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// All content.
    pub content: String,
    /// All reasoning.
    pub reasoning: String,
    /// Tool calls by their index.
    pub calls: Vec<Call>,
    /// `finish_reason`
    pub finish: Option<FinishReason>,
    /// `stop_reason` or `matched_stop`.
    pub stop: Option<StopReason<'static>>,
    /// What the server tells of its tokens.
    pub tokens: Tokens,
}

/// A tool call as the client was told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// `function.name`
    pub name: String,
    /// `function.arguments`
    pub arguments: String,
}

/// Which tokens an answer is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Tokens {
    /// Their ids.
    Ids(Vec<u32>),
    /// Their texts, from logprobs.
    Texts(Vec<String>),
    /// The server does not tell.
    #[default]
    Unknown,
}

/// Which choices the client's count is of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Counted {
    /// All of them.
    #[default]
    All,
    /// The first alone, as most clients read.
    First,
}

/// How a model marks what a server's parsers take out.
#[derive(Clone, Debug, PartialEq)]
pub struct Flavour {
    /// What is around reasoning.
    pub think: Pair,
    /// What is around tool calls; the first is what calls are rendered with.
    pub calls: Vec<Pair>,
    /// White space that the model puts next to the delimiters of reasoning: behind the first, and
    /// before and behind the second.
    pub spaces: [String; 3],
    /// The end token is among the server's tokens.
    pub counts_end: bool,
}

/// Texts around a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Before it.
    pub open: String,
    /// Behind it; empty if it goes on to the end.
    pub close: String,
}

impl Pair {
    /// A pair of texts.
    pub fn new(open: &str, close: &str) -> Self {
        Self {
            open: open.into(),
            close: close.into(),
        }
    }
}

impl Flavour {
    /// The texts that parsers look for.
    fn marks(&self) -> impl Iterator<Item = &str> {
        let pairs = std::iter::once(&self.think).chain(&self.calls);
        pairs.flat_map(|pair| [&*pair.open, &*pair.close])
    }
}

impl Default for Flavour {
    /// That of Qwen and Hermes, with the marks of some others' calls.
    fn default() -> Self {
        Self {
            think: Pair::new("<think>", "</think>"),
            calls: vec![
                Pair::new("<tool_call>", "</tool_call>"),
                Pair::new("[TOOL_CALLS]", ""),
                Pair::new("<|python_tag|>", ""),
                Pair::new("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
            ],
            spaces: ["\n", "\n", "\n\n"].map(Into::into),
            counts_end: true,
        }
    }
}

/// Why a server counts tokens that a client does not, or the other way round.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Tags around reasoning that a parser took out.
    Delimiters,
    /// White space next to what a parser took out.
    Whitespace,
    /// Reasoning that was counted and not sent.
    HiddenReasoning,
    /// What is around names and arguments of tool calls.
    ToolStructure,
    /// Arguments of tool calls, which the client does not count.
    ToolArguments,
    /// The end token.
    EndToken,
    /// A stop token that the request names.
    StopToken,
    /// A stop string, which was cut off.
    StopString,
    /// Special tokens that the text leaves out.
    SpecialTokens,
    /// Bytes of a character that never became whole.
    SplitCharacters,
    /// The client's tokenizer cuts the same text otherwise.
    Retokenization,
    /// Choices that the client does not count.
    OtherChoices,
    /// The server gave no usable count.
    MissingUsage,
}

impl Cause {
    /// All of them, as reports list them.
    pub const ALL: [Self; 13] = [
        Self::Delimiters,
        Self::Whitespace,
        Self::HiddenReasoning,
        Self::ToolStructure,
        Self::ToolArguments,
        Self::EndToken,
        Self::StopToken,
        Self::StopString,
        Self::SpecialTokens,
        Self::SplitCharacters,
        Self::Retokenization,
        Self::OtherChoices,
        Self::MissingUsage,
    ];

    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delimiters => "delimiters",
            Self::Whitespace => "whitespace",
            Self::HiddenReasoning => "hidden_reasoning",
            Self::ToolStructure => "tool_structure",
            Self::ToolArguments => "tool_arguments",
            Self::EndToken => "end_token",
            Self::StopToken => "stop_token",
            Self::StopString => "stop_string",
            Self::SpecialTokens => "special_tokens",
            Self::SplitCharacters => "split_characters",
            Self::Retokenization => "retokenization",
            Self::OtherChoices => "other_choices",
            Self::MissingUsage => "missing_usage",
        }
    }
}

/// What an attribution rests on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The ids of the answer's tokens.
    TokenIds,
    /// The texts of the answer's tokens.
    Logprobs,
    /// The text alone: what the server left out is a guess.
    Inferred,
    /// Counts alone.
    Counts,
}

/// A difference in tokens, and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attribution {
    /// The server's count, if it gave a usable one.
    pub server: Option<u64>,
    /// The client's count.
    pub client: u64,
    /// Server − client, a missing count taken as 0.
    pub difference: i64,
    /// What causes of it are known; none is 0.
    #[serde(serialize_with = "as_object")]
    pub explained: Vec<(Cause, i64)>,
    /// The rest.
    pub unexplained: i64,
    /// The weakest ground of any choice.
    pub basis: Basis,
}

fn as_object<S: Serializer>(causes: &[(Cause, i64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(causes.iter().copied())
}

impl Attribution {
    /// Tokens of a cause.
    pub fn of(&self, cause: Cause) -> i64 {
        let found = self.explained.iter().find(|(known, _)| *known == cause);
        found.map_or(0, |(_, tokens)| *tokens)
    }
}

/// Sums by cause.
#[derive(Clone, Debug, Default)]
struct Sums(BTreeMap<Cause, i64>);

impl Sums {
    fn add(&mut self, cause: Cause, tokens: i64) {
        *self.0.entry(cause).or_default() += tokens;
    }

    fn total(&self) -> i64 {
        self.0.values().sum()
    }
}

/// One choice: what the client counts of it, and what the server counts beyond that.
#[derive(Clone, Debug)]
struct Part {
    client: i64,
    sums: Sums,
    /// Tokens that nothing explains.
    unaligned: i64,
    basis: Basis,
}

/// Takes an answer's difference apart.
pub fn attribute(
    answer: &Answer,
    tokenizer: &Tokenizer,
    flavour: &Flavour,
    counted: Counted,
) -> Attribution {
    let server = answer.usage.and_then(|usage| usage.completion_tokens);
    let said = server.and_then(|count| i64::try_from(count).ok());
    let parts = parts(answer, tokenizer, flavour, said);
    let basis = parts.iter().map(|part| part.basis).max();
    let mut sums = Sums::default();
    let (mut client, mut unaligned) = (0, 0);
    for (index, part) in parts.iter().enumerate() {
        unaligned += part.unaligned;
        if index > 0 && counted == Counted::First {
            sums.add(Cause::OtherChoices, part.client + part.sums.total());
        } else {
            client += part.client;
            for (&cause, &tokens) in &part.sums.0 {
                sums.add(cause, tokens);
            }
        }
    }
    if said.is_none() {
        let would_be = client + sums.total() + unaligned;
        sums.add(Cause::MissingUsage, -would_be);
    }
    let difference = said.unwrap_or(0) - client;
    let unexplained = difference - sums.total();
    let explained = sums.0.into_iter().filter(|(_, tokens)| *tokens != 0);
    Attribution {
        server,
        client: client.unsigned_abs(),
        difference,
        explained: explained.collect(),
        unexplained,
        basis: basis.unwrap_or(Basis::Inferred),
    }
}

fn parts(
    answer: &Answer,
    tokenizer: &Tokenizer,
    flavour: &Flavour,
    said: Option<i64>,
) -> Vec<Part> {
    let thought = answer.usage.and_then(|usage| usage.reasoning_tokens);
    let part = |choice: &Choice| {
        if let Some(pieces) = Pieces::new(choice, tokenizer, flavour) {
            return aligned(choice, &pieces, tokenizer, flavour);
        }
        let server = said.filter(|_| answer.choices.len() == 1);
        inferred(choice, (server, thought), tokenizer, flavour)
    };
    answer.choices.iter().map(part).collect()
}

/// A choice of which the server tells no tokens, but perhaps how many there are, and how many of them
/// are thoughts.
fn inferred(
    choice: &Choice,
    (server, thought): (Option<i64>, Option<u64>),
    tokenizer: &Tokenizer,
    flavour: &Flavour,
) -> Part {
    // Servers without a parser count thoughts that the content has.
    let is_hidden = choice.reasoning.is_empty() && !choice.content.contains(&*flavour.think.close);
    let hidden = thought.filter(|_| is_hidden).unwrap_or(0);
    let hidden = i64::try_from(hidden).unwrap_or(0);
    let wanted = server.map(|server| server - hidden);
    let guessed = infer::guess(choice, wanted, (tokenizer, flavour));
    let pieces = Pieces::of_text(&guessed.text, &tokenizer.vocab);
    let mut part = aligned(choice, &pieces, tokenizer, flavour);
    part.sums.add(Cause::HiddenReasoning, hidden);
    part.sums.add(Cause::EndToken, i64::from(guessed.ends));
    part
}

fn aligned(choice: &Choice, pieces: &Pieces, tokenizer: &Tokenizer, flavour: &Flavour) -> Part {
    let count = |text: &str| signed(tokenizer.vocab.count(text));
    let client = count(&choice.content) + count(&choice.reasoning);
    let laid = align::lay(choice, pieces, flavour);
    let is_whole = laid.content == choice.content && laid.reasoning == choice.reasoning;
    let known = if is_whole {
        client
    } else {
        count(&laid.content) + count(&laid.reasoning)
    };
    // What the client counts and no token says is a gap the other way.
    let (mut sums, mut unaligned, mut told) = (Sums::default(), known - client, 0);
    for kind in laid.kinds {
        match kind {
            Kind::Content | Kind::Reasoning => told += 1,
            Kind::Hidden(cause) => sums.add(cause, 1),
            Kind::Unaligned => unaligned += 1,
        }
    }
    sums.add(Cause::Retokenization, told - known);
    Part {
        client,
        sums,
        unaligned,
        basis: pieces.basis,
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("fewer tokens than 2^63")
}

#[cfg(test)]
mod tests;
