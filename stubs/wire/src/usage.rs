//! Token counts as servers report them.

use serde_json::value::RawValue;

/// Largest count that is believed; more is a fault of the sender.
pub const MAX_COUNT: u64 = 1 << 40;

/// The `usage` object: each count by itself, `None` where the sender gave no usable number.
///
/// A count is usable if it is a JSON integer, not a bool, from 0 to 2^40.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// `prompt_tokens`
    pub prompt_tokens: Option<u64>,
    /// `completion_tokens`
    pub completion_tokens: Option<u64>,
    /// `completion_tokens_details.reasoning_tokens`, or `reasoning_tokens` beside the other counts.
    pub reasoning_tokens: Option<u64>,
    /// `prompt_tokens_details`, where the server tells of its cache.
    pub cache: Option<CachedTokens>,
}

/// Prompt tokens that a prefix cache had or took up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CachedTokens {
    /// `cached_tokens`
    pub cached: u64,
    /// `created_cache_tokens`
    pub created: Option<u64>,
}

impl Usage {
    /// Usage with both counts.
    pub fn new(prompt_tokens: u64, completion_tokens: u64) -> Self {
        Self {
            prompt_tokens: Some(prompt_tokens),
            completion_tokens: Some(completion_tokens),
            reasoning_tokens: None,
            cache: None,
        }
    }

    /// `total_tokens`
    pub fn total_tokens(&self) -> Option<u64> {
        Some(self.prompt_tokens? + self.completion_tokens?)
    }

    /// Reads a `usage` value of any shape; what is not a usable count is left out.
    pub fn read(value: &RawValue) -> Option<Self> {
        // serde reads structs from arrays too.
        let object = Some(value.get()).filter(|text| text.starts_with('{'))?;
        let members: Members<'_> = serde_json::from_str(object).ok()?;
        let details: Option<Details<'_>> = members
            .completion_tokens_details
            .and_then(|details| serde_json::from_str(details.get()).ok());
        let cache: Option<Cache<'_>> = members
            .prompt_tokens_details
            .and_then(|details| serde_json::from_str(details.get()).ok());
        Some(Self {
            cache: cache.and_then(|cache| {
                Some(CachedTokens {
                    cached: cache.cached_tokens.and_then(count)?,
                    created: cache.created_cache_tokens.and_then(count),
                })
            }),
            prompt_tokens: members.prompt_tokens.and_then(count),
            completion_tokens: members.completion_tokens.and_then(count),
            reasoning_tokens: details
                .and_then(|details| details.reasoning_tokens)
                .or(members.reasoning_tokens)
                .and_then(count),
        })
    }
}

#[derive(serde::Deserialize)]
struct Members<'a> {
    #[serde(borrow, default)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    completion_tokens_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt_tokens_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_tokens: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct Cache<'a> {
    #[serde(borrow, default)]
    cached_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    created_cache_tokens: Option<&'a RawValue>,
}

#[derive(serde::Deserialize)]
struct Details<'a> {
    #[serde(borrow, default)]
    reasoning_tokens: Option<&'a RawValue>,
}

/// A usable count.
pub(crate) fn count(value: &RawValue) -> Option<u64> {
    let number: u64 = value.get().parse().ok()?;
    (number <= MAX_COUNT).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Usage> {
        Usage::read(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn each_count_is_kept_or_dropped_by_itself() {
        let expected = Usage {
            prompt_tokens: Some(3),
            ..Usage::default()
        };
        for odd in [
            "null",
            "true",
            "1.0",
            "1e3",
            "-1",
            "\"5\"",
            "1099511627777",
            "[]",
            "{}",
        ] {
            let text = format!(r#"{{"prompt_tokens":3,"completion_tokens":{odd}}}"#);
            assert_eq!(read(&text), Some(expected), "{odd}");
        }
        assert_eq!(
            read(r#"{"prompt_tokens":3,"completion_tokens":0}"#),
            Some(Usage::new(3, 0))
        );
        assert_eq!(
            read(r#"{"completion_tokens":1099511627776}"#)
                .unwrap()
                .completion_tokens,
            Some(MAX_COUNT)
        );
    }

    #[test]
    fn usage_of_another_shape_is_no_usage() {
        for odd in ["null", "3", "\"x\"", "[1]", "true"] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }

    #[test]
    fn details_of_another_shape_do_not_spoil_the_counts() {
        let text = r#"{"prompt_tokens":3,"completion_tokens":4,"completion_tokens_details":7}"#;
        assert_eq!(read(text), Some(Usage::new(3, 4)));
        let text = r#"{"completion_tokens_details":{"reasoning_tokens":2}}"#;
        assert_eq!(read(text).unwrap().reasoning_tokens, Some(2));
        let text =
            r#"{"completion_tokens":7,"reasoning_tokens":3,"completion_tokens_details":null}"#;
        assert_eq!(read(text).unwrap().reasoning_tokens, Some(3));
    }
}
