//! What vLLM leaves out of error texts: pydantic's own location segments, and file paths.

/// Location segments that vLLM leaves out, taking them for pydantic's own.
pub(super) fn is_shown(segment: &str) -> bool {
    const HIDDEN: &[&str] = &[
        "arguments",
        "bool",
        "bytearray",
        "bytes",
        "call",
        "callable",
        "chain",
        "complex",
        "default",
        "dict",
        "float",
        "frozenset",
        "function-after",
        "function-before",
        "function-plain",
        "function-wrap",
        "int",
        "is-instance",
        "is-subclass",
        "json-or-python",
        "lax-or-strict",
        "list",
        "none",
        "nonetype",
        "nullable",
        "set",
        "str",
        "tagged-union",
        "tuple",
        "union",
    ];
    !segment.contains(['[', ']', '{', '}', '(', ')'])
        && !HIDDEN.contains(&segment.to_ascii_lowercase().as_str())
}

/// Replaces what looks like a file path by `<path>`, as vLLM does in every error text.
pub(super) fn hide_paths(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(slash) = rest.find('/') {
        out.push_str(&rest[..slash]);
        let length = path_length(&rest[slash..]);
        if length == 0 {
            out.push('/');
            rest = &rest[slash + 1..];
        } else {
            out.push_str("<path>");
            rest = &rest[slash + length..];
        }
    }
    out + rest
}

/// Length of the file path that `text` starts with, 0 if it starts with none: one below a
/// well-known root, or one of several parts whose last has an ending.
fn path_length(text: &str) -> usize {
    const ROOTS: &[&str] = &[
        "home", "lib", "mnt", "opt", "root", "srv", "tmp", "usr", "var",
    ];
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let is_part = |character: char| is_word(character) || matches!(character, '-' | '.');
    let end = text.find(|character| !is_part(character) && character != '/');
    let path = text[..end.unwrap_or(text.len())].trim_end_matches('/');
    let Some(names) = path.strip_prefix('/') else {
        return 0;
    };
    let mut parts = names.split('/');
    let count = parts.clone().count();
    if count < 2 || parts.clone().any(str::is_empty) {
        return 0;
    }
    let under_root = parts.next().is_some_and(|root| ROOTS.contains(&root));
    let has_ending = parts.next_back().is_some_and(|name| {
        name.split_once('.')
            .is_some_and(|(stem, ending)| !stem.is_empty() && ending.starts_with(is_word))
    });
    if under_root || has_ending {
        path.len()
    } else {
        0
    }
}
