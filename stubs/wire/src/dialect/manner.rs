//! How a server behaves where a plan is made: what plans ask instead of which server it is.

use crate::route::Entry;

/// The habits of a server, for those who lay out its answers.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a habit each")]
pub struct Manner {
    /// Browsers may send credentials, so an origin is named even if all are allowed.
    pub allows_credentials: bool,
    /// What is not there is refused without a body, and methods are told without spaces.
    pub bare_refusals: bool,
    /// A chat's role comes without content.
    pub bare_roles: bool,
    /// After an end token that is ignored the model says it again and again.
    pub ends_repeat: bool,
    /// The finish names the end token, whichever it is.
    pub ends_tell_token: bool,
    /// An answer that is given up ends with an error in place of what is left, not with a finish.
    pub fails_given_up: bool,
    /// Where a chat's finish stands.
    pub finishes: Finishes,
    /// What is held back while a stop string may follow.
    pub holds: Holds,
    /// A request is known by its name while it is under way: none of that name runs beside it, and it can be
    /// given up by it.
    pub keeps_names: bool,
    /// A completion's probabilities name a token by its bytes as Latin letters.
    pub latin_names: bool,
    /// Browsers of other origins are told whether they may ask.
    pub knows_origins: bool,
    /// Which paths need a key.
    pub keyed: Keyed,
    /// How it lays out messages.
    pub messages: Messages,
    /// By which rule the probabilities of a scripted answer follow.
    pub probabilities: Probabilities,
    /// A path with a slash too many is sent on to the one without.
    pub redirects_slashes: bool,
    /// The model's name in an answer is the one that was asked for.
    pub repeats_model: bool,
    /// How it lays out responses.
    pub responses: Responses,
    /// When a chat's roles are told.
    pub roles: Roles,
    /// The paths that it serves.
    pub routes: &'static [Entry],
    /// Each choice tells of itself: its own id, its own counts.
    pub tells_choices: bool,
    /// Whose parsers find reasoning and tool calls.
    pub voices: Voices,
    /// Prompts of one request are as many requests: the next finds the last in the cache, and each is refused
    /// by itself.
    pub separates_prompts: bool,
    /// Several requests under way may have one name, by which none of them can then be given up.
    pub shares_names: bool,
    /// Of itself it tells no more than its front end knows.
    pub tells_in_brief: bool,
    /// `continuous_usage_stats` does nothing without `include_usage`.
    pub usage_needs_asking: bool,
    /// The head of an `OpenAI` stream is sent with its first event.
    pub waits_with_head: bool,
    /// A tool call is said in one piece.
    pub whole_calls: bool,
}

/// How a server lays out the answers of `/v1/messages`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Messages {
    /// Thoughts end with a signature.
    pub signs_thoughts: bool,
    /// A refusal that comes of generating is told in the stream, if one is asked for; a stream that fails
    /// is a message all the same, with its start and its end.
    pub streams_failures: bool,
}

/// How a server lays out the answers of `/v1/responses`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "a habit each")]
pub struct Responses {
    /// Whole reasoning has a status.
    pub completes_reasoning: bool,
    /// White space behind a call is between calls, no message.
    pub drops_gaps: bool,
    /// What was given up is a failed response.
    pub has_failed: bool,
    /// The events of a message wait until it is known whether calls follow, if they may.
    pub holds_messages: bool,
    /// A stream is kept from caches, and says that its connection stays.
    pub stays_uncached: bool,
    /// A refusal that comes of generating is told in the stream, if one is asked for.
    pub streams_refusals: bool,
}

/// Where the finish of a chat's choice stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finishes {
    /// In chunks of their own behind all text of all choices.
    Behind,
    /// In the chunk of the choice's last text.
    WithText,
}

/// By which rule the probabilities of a scripted answer follow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Probabilities {
    /// From logits: the scripted token's stand above all others.
    Logits,
    /// From a token's place and id.
    Places,
}

/// Whose parsers find reasoning and tool calls in a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Voices {
    /// SGLang's: a step may make several chunks.
    Sglang,
    /// vLLM's.
    Vllm,
}

/// When a chat's roles are told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Roles {
    /// All of them before anything is said.
    First,
    /// Each before its choice's first text.
    WithText,
}

/// What is held back while a stop string may follow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Holds {
    /// As many characters as the longest stop string lacks one of.
    Characters,
    /// Whole steps, while the text's end may begin a stop string.
    Steps,
}

/// Which paths need a key, by how they begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keyed {
    /// All others.
    AllBut(&'static [&'static str]),
    /// These.
    Only(&'static [&'static str]),
}

impl Keyed {
    /// Whether a path needs a key.
    pub fn needs(self, path: &str) -> bool {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| path.starts_with(prefix));
        match self {
            Self::AllBut(prefixes) => !begins(prefixes),
            Self::Only(prefixes) => begins(prefixes),
        }
    }
}

/// What a server was started with, as far as it decides which requests are refused.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Longest prompt and answer together, in tokens.
    pub context: Option<u64>,
    /// There is a tool parser.
    pub parses_tools: bool,
    /// Nothing but token routes generates.
    pub tokens_only: bool,
}
