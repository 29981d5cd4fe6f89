//! Command lines as data: words with names in braces.

use std::collections::BTreeMap;

use crate::error::UsageError;

/// What stands for each name.
pub(crate) type Values = BTreeMap<&'static str, String>;

/// Puts values into words, in the place of each `{name}`; other braces stay.
///
/// # Errors
/// A name has no value.
pub(crate) fn filled(words: &[String], values: &Values) -> Result<Vec<String>, UsageError> {
    words.iter().map(|word| fill(word, values)).collect()
}

/// The same of one text.
pub(crate) fn fill(text: &str, values: &Values) -> Result<String, UsageError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        out.push_str(before);
        let named = behind.split_once('}').filter(|(name, _)| is_name(name));
        let Some((name, after)) = named else {
            out.push('{');
            rest = behind;
            continue;
        };
        let value = values.get(name);
        let value = value.ok_or_else(|| UsageError(format!("{text:?}: say what {name} is")))?;
        out.push_str(value);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(word: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    !word.is_empty() && word.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_json_is_left() {
        let values = Values::from([("url", "http://h:1".to_owned()), ("n", "{url}".to_owned())]);
        for (text, expected) in [
            ("", ""),
            ("{url}", "http://h:1"),
            ("a{url}/{n}b", "ahttp://h:1/{url}b"),
            (r#"{"url":{url}}"#, r#"{"url":http://h:1}"#),
            ("{}{ url}{url", "{}{ url}{url"),
        ] {
            assert_eq!(fill(text, &values).unwrap(), expected, "{text}");
        }
        let error = fill("--x={model}", &values).unwrap_err();
        assert_eq!(error.0, r#""--x={model}": say what model is"#);
    }
}
