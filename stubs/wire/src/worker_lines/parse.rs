//! Lines that are no JSON, and what the worker's JSON library says about them.

use serde_json::Value;
use serde_json::error::Category;

use super::LineError;

/// A line as JSON.
pub(super) fn parsed(line: &[u8]) -> Result<Value, LineError> {
    serde_json::from_slice(line).map_err(|error| {
        let (column, what) = complaint(line, &error);
        LineError::new(format!(
            "[json.exception.parse_error.101] parse error at line 1, column {column}: syntax error while parsing {what}"
        ))
    })
}

/// The byte, counted from 1, at which it fails, and how.
fn complaint(line: &[u8], error: &serde_json::Error) -> (usize, String) {
    const ENDED: &str = "value - unexpected end of input; expected '[', '{', or a literal";
    let start = line.iter().position(|byte| !byte.is_ascii_whitespace());
    let Some(start) = start else {
        return (line.len() + 1, ENDED.into());
    };
    if error.classify() == Category::Eof {
        return (line.len() + 1, ENDED.into());
    }
    let (literal, plain): (&[u8], bool) = match line[start] {
        b'f' => (b"false", false),
        b'n' => (b"null", false),
        b't' => (b"true", false),
        first => (b"", first.is_ascii_digit() || b"[{\"-".contains(&first)),
    };
    if plain {
        let what = "value - unexpected character; expected end of input";
        return (error.column().max(1), what.into());
    }
    let same = line[start..].iter().zip(literal);
    let same = same.take_while(|(byte, literal)| byte == literal).count();
    if !literal.is_empty() && same == literal.len() {
        let what = "value - unexpected character; expected end of input";
        return (start + same + 1, what.into());
    }
    let end = (start + same + 1).min(line.len());
    let read = String::from_utf8_lossy(&line[start..end]);
    let what = format!("value - invalid literal; last read: '{read}'");
    (end, what)
}
