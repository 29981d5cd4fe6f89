//! Wrong arguments and inputs, as opposed to runs that fail.

/// A wrong argument or input, in one line that says what to do; the command ends with exit code 2.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);
