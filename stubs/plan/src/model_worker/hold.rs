//! Text that is held back until it is whole and can be no part of a stop string.

/// What of an answer's bytes may not be shown yet.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Whole characters that may begin a stop string.
    held: Vec<u8>,
    /// Bytes of a character that is not whole.
    partial: Vec<u8>,
    stops: Vec<Vec<u8>>,
}

/// What a piece lets out.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Released {
    /// Text to show.
    pub(super) text: Vec<u8>,
    /// A stop string was found behind it.
    pub(super) stopped: bool,
}

impl Hold {
    /// Empty stop strings stop nothing.
    pub(super) fn new(stops: Vec<String>) -> Self {
        let stops = stops.into_iter().map(String::into_bytes);
        Self {
            stops: stops.filter(|stop| !stop.is_empty()).collect(),
            ..Self::default()
        }
    }

    /// Adds a piece.
    pub(super) fn push(&mut self, piece: &[u8]) -> Released {
        self.partial.extend_from_slice(piece);
        let whole = whole(&self.partial);
        self.held.extend(self.partial.drain(..whole));
        let found = self.stops.iter().filter_map(|stop| find(&self.held, stop));
        if let Some(position) = found.min() {
            self.held.truncate(position);
            self.partial.clear();
            let text = std::mem::take(&mut self.held);
            return Released {
                text,
                stopped: true,
            };
        }
        let longest = self.stops.iter().map(Vec::len).max().unwrap_or(1);
        let mut cut = self.held.len().saturating_sub(longest - 1);
        while self.held.get(cut).is_some_and(|byte| is_inner(*byte)) && cut > 0 {
            cut -= 1;
        }
        Released {
            text: self.held.drain(..cut).collect(),
            stopped: false,
        }
    }

    /// All that is left, when the answer ends.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.held);
        rest.append(&mut self.partial);
        rest
    }
}

/// Length of the whole characters at the start; a byte that can start none is one.
fn whole(bytes: &[u8]) -> usize {
    let mut end = 0;
    while let Some(first) = bytes.get(end) {
        let length = match first {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => 1,
        };
        if end + length > bytes.len() {
            break;
        }
        end += length;
    }
    end
}

fn is_inner(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

fn find(text: &[u8], stop: &[u8]) -> Option<usize> {
    text.windows(stop.len()).position(|window| window == stop)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(hold: &mut Hold, piece: &str) -> String {
        String::from_utf8(hold.push(piece.as_bytes()).text).unwrap()
    }

    #[test]
    fn a_stop_string_in_two_pieces_is_found() {
        let mut hold = Hold::new(vec![String::new(), "STOP".into()]);
        assert_eq!(shown(&mut hold, "alpha S"), "alph");
        assert_eq!(shown(&mut hold, "TO"), "a ");
        let last = hold.push(b"P and more");
        assert_eq!((&*last.text, last.stopped), (&b""[..], true));
        assert_eq!(hold.rest(), b"");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_shown_twice(
            text in "[ab\u{e9}\u{1f30d}]{0,20}",
            cuts in prop::collection::vec(0_usize..30, 0..6),
            stops in prop::collection::vec("[ab\u{e9}]{0,3}", 0..3),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut hold = Hold::new(stops.clone());
            let (mut seen, mut stopped) = (Vec::new(), false);
            for pair in cuts.windows(2) {
                let released = hold.push(&text.as_bytes()[pair[0]..pair[1]]);
                prop_assert!(std::str::from_utf8(&released.text).is_ok());
                seen.extend(released.text);
                stopped |= released.stopped;
                if stopped {
                    break;
                }
            }
            seen.extend(hold.rest());
            let first = stops.iter().filter(|stop| !stop.is_empty());
            let first = first.filter_map(|stop| text.find(stop.as_str())).min();
            prop_assert_eq!(stopped, first.is_some());
            let expected = &text[..first.unwrap_or(text.len())];
            let kept = if stopped { text.as_bytes().starts_with(&seen) } else { seen == expected.as_bytes() };
            // The end of a shorter stop string may come before that of an earlier, longer one.
            prop_assert!(kept);
        }
    }
}
