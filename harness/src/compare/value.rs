//! A quantity's value, as one side has it.

use serde::Serialize;

/// A number, a yes or no, a word, or nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Value {
    Flag(bool),
    /// A number, and by how much its spelling may be off.
    Number {
        value: f64,
        #[serde(skip_serializing_if = "is_exact")]
        resolution: f64,
    },
    Text(String),
    None,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_exact(resolution: &f64) -> bool {
    *resolution == 0.0
}

impl Value {
    /// A number that is what it says.
    pub(super) fn number(value: f64) -> Self {
        Self::Number {
            value,
            resolution: 0.0,
        }
    }

    /// A number, or nothing.
    pub(super) fn of(value: Option<f64>) -> Self {
        value.map_or(Self::None, Self::number)
    }
}
