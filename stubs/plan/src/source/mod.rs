//! Where an answer's text comes from.

mod echo;
mod file;
mod fixed;
mod random;

use std::fmt::Debug;
use std::sync::Arc;

pub use echo::Echo;
pub use file::{ScriptFile, ScriptFileError};
pub use fixed::Fixed;
pub use random::RandomTokens;

use crate::script::Script;

/// Decides what the model says.
pub trait Source: Debug + Send + Sync {
    /// The script for a request.
    fn script(&self, ask: &Ask<'_>) -> Arc<Script>;
}

/// The part of a request that a source looks at.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The last user message or the prompt.
    pub text: &'a str,
    /// The longest answer that was asked for, in tokens.
    pub max_tokens: Option<u64>,
}
