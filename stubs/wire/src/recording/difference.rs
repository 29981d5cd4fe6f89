//! Where two normalised responses part.

/// The first place where two texts part, with what stands around it; `None` if they are the same.
///
/// Where a length is different, that is what it follows from, if anything is.
pub fn difference(recorded: &str, ours: &str) -> Option<String> {
    if recorded == ours {
        return None;
    }
    let mut at = [parting(recorded, ours); 2];
    while let (Some(one), Some(other)) =
        (behind_length(recorded, at[0]), behind_length(ours, at[1]))
    {
        let same = parting(&recorded[one..], &ours[other..]);
        if recorded.len() == one + same && ours.len() == other + same {
            at = [parting(recorded, ours); 2];
            break;
        }
        at = [one + same, other + same];
    }
    let around = |text: &str, at: usize| {
        let start = text.floor_char_boundary(at.saturating_sub(60));
        let end = text.floor_char_boundary((at + 160).min(text.len()));
        text[start..end].escape_debug().to_string()
    };
    Some(format!(
        "  recorded {}\n  got      {}",
        around(recorded, at[0]),
        around(ours, at[1])
    ))
}

/// Bytes that two texts have in common at their front.
fn parting(one: &str, other: &str) -> usize {
    let bytes = one.bytes().zip(other.bytes());
    let same = bytes.take_while(|(one, other)| one == other).count();
    one.floor_char_boundary(same)
}

/// The end of the line at `at`, if the line is a chunk size or a content length.
fn behind_length(text: &str, at: usize) -> Option<usize> {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let end = start + text[start..].find("\r\n")?;
    let line = &text[start..end];
    let digits = line.strip_prefix("content-length: ").unwrap_or(line);
    let is_length = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_length && end >= at).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_both_sides_of_the_first_place() {
        assert_eq!(difference("a", "a"), None);
        let told = difference("same\none", "same\ntwo").unwrap();
        assert_eq!(told, "  recorded same\\none\n  got      same\\ntwo");
        let told = difference("a\r\n5\r\nhello\r\n", "a\r\n6\r\nhelloo\r\n").unwrap();
        assert!(
            told.ends_with("got      a\\r\\n6\\r\\nhelloo\\r\\n"),
            "{told}"
        );
        let told = difference("5\r\nhello", "6\r\nhello").unwrap();
        assert_eq!(told, "  recorded 5\\r\\nhello\n  got      6\\r\\nhello");
    }
}
