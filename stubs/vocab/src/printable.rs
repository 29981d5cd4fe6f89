//! When SGLang's detokenizer shows the text of tokens that end inside a character.

use crate::{Huggingface, Token};

/// Moves bytes from tokens that finish a character to those before them, as far as they are shown there.
pub(crate) fn show_early(tokenizer: &Huggingface, text: &str, tokens: &mut [Token]) {
    // Where the tokens start whose text is held back, in tokens and in bytes; what of it is shown.
    let (mut start, mut at, mut shown) = (0, 0, 0);
    for index in 0..tokens.len() {
        if tokens[index].bytes > 0 {
            tokens[index].bytes -= shown;
            at += (shown + tokens[index].bytes) as usize;
            (start, shown) = (index + 1, 0);
            continue;
        }
        let ids: Vec<u32> = tokens[start..=index].iter().map(|token| token.id).collect();
        let held = tokenizer.decode(&ids);
        let printable = printable(&held);
        let Some(early) = printable.len().checked_sub(shown as usize) else {
            continue;
        };
        if text[at..].starts_with(printable) {
            let early = u32::try_from(early).expect("a token is shorter than 4 GiB");
            tokens[index].bytes = early;
            shown += early;
        }
    }
}

/// What is shown of a text that ends in a replacement character.
fn printable(text: &str) -> &str {
    let Some(whole) = text.strip_suffix('\u{fffd}') else {
        return "";
    };
    if whole.ends_with(is_chinese) {
        return whole;
    }
    &whole[..whole.rfind(' ').map_or(0, |space| space + 1)]
}

/// The blocks that `transformers` takes for Chinese.
fn is_chinese(character: char) -> bool {
    matches!(u32::from(character),
        0x3400..=0x4dbf
        | 0x4e00..=0x9fff
        | 0xf900..=0xfaff
        | 0x20000..=0x2a6df
        | 0x2a700..=0x2ceaf
        | 0x2f800..=0x2fa1f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_and_chinese_show_at_once() {
        assert_eq!(printable(" \u{fffd}"), " ");
        assert_eq!(printable("a b\u{fffd}"), "a ");
        assert_eq!(printable("a\u{fffd}"), "");
        assert_eq!(printable("你\u{fffd}"), "你");
        assert_eq!(printable("a"), "");
    }
}
