//! A key of a JSON object that may be absent or null, which are two things on the wire.

use serde::{Serialize, Serializer};

/// What stands behind a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key<T> {
    /// The key is not there.
    Absent,
    /// `null`
    Null,
    /// A value.
    Value(T),
}

impl<T> Key<T> {
    /// For `skip_serializing_if`.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// There if `condition` holds, and then null or a value.
    pub(super) fn when(condition: bool, value: Option<T>) -> Self {
        match value {
            _ if !condition => Self::Absent,
            Some(value) => Self::Value(value),
            None => Self::Null,
        }
    }

    /// There if there is a value.
    pub(super) fn with(value: Option<T>) -> Self {
        Self::when(value.is_some(), value)
    }
}

impl<T: Serialize> Serialize for Key<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Null => serializer.serialize_none(),
            Self::Value(value) => value.serialize(serializer),
        }
    }
}
