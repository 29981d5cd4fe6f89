//! Text up to the first of some stops, as it comes.

/// Stop strings, and how many characters may begin one.
#[derive(Clone, Debug, Default)]
pub(super) struct Stops {
    texts: Vec<String>,
    /// Characters of the longest, less one.
    held: usize,
    /// Bytes of the longest.
    longest: usize,
}

impl Stops {
    pub(super) fn new(texts: Vec<String>) -> Self {
        let characters = texts.iter().map(|text| text.chars().count());
        Self {
            held: characters.max().unwrap_or(1).saturating_sub(1),
            longest: texts.iter().map(String::len).max().unwrap_or(0),
            texts,
        }
    }

    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Where the first begins of those that end behind `known` bytes.
    fn earliest_behind(&self, text: &str, known: usize) -> Option<usize> {
        let from = text.floor_char_boundary((known + 1).saturating_sub(self.longest));
        let found = |stop: &String| text[from..].find(&**stop);
        let first = self.texts.iter().filter_map(found).min()?;
        Some(from + first)
    }

    /// A text up to the first stop.
    pub(super) fn cut<'t>(&self, text: &'t str) -> &'t str {
        let end = self.earliest_behind(text, 0);
        &text[..end.unwrap_or(text.len())]
    }
}

/// A text that is gathered whole.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) text: String,
    pub(super) has_stopped: bool,
}

impl Gathered {
    /// Adds some; true if a stop has come, behind which nothing is taken.
    pub(super) fn add(&mut self, stops: &Stops, more: &str) -> bool {
        if self.has_stopped {
            return false;
        }
        let known = self.text.len();
        self.text.push_str(more);
        self.has_stopped = stops.earliest_behind(&self.text, known).is_some();
        self.has_stopped
    }
}

/// A text that is shown as it comes, but for what may begin a stop.
#[derive(Debug, Default)]
pub(super) struct Cleaned {
    held: String,
    pub(super) has_stopped: bool,
}

impl Cleaned {
    /// Adds some; what can be shown now, and whether a stop has come, behind which nothing is shown.
    pub(super) fn add(&mut self, stops: &Stops, more: &str) -> (Option<String>, bool) {
        if self.has_stopped {
            return (None, false);
        }
        let known = self.held.len();
        self.held.push_str(more);
        if let Some(end) = stops.earliest_behind(&self.held, known) {
            self.held.truncate(end);
            self.has_stopped = true;
            let shown = std::mem::take(&mut self.held);
            return ((!shown.is_empty()).then_some(shown), true);
        }
        if stops.held == 0 {
            // An empty text is shown too.
            return (Some(std::mem::take(&mut self.held)), false);
        }
        let kept = self.held.char_indices().rev().nth(stops.held - 1);
        let shown = match kept {
            Some((at, _)) if at > 0 => {
                let kept = self.held.split_off(at);
                Some(std::mem::replace(&mut self.held, kept))
            }
            _ => None,
        };
        (shown, false)
    }

    /// What is left at the end.
    pub(super) fn rest(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.held);
        (!rest.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_held_back_by_characters() {
        let stops = Stops::new(vec!["STOP".into()]);
        let mut cleaned = Cleaned::default();
        let mut shown = |text: &str| cleaned.add(&stops, text);
        assert_eq!(shown("é"), (None, false));
        assert_eq!(shown("abc"), (Some("é".into()), false));
        assert_eq!(shown("dST"), (Some("abc".into()), false));
        assert_eq!(shown("OP and more"), (Some("d".into()), true));
        assert_eq!(shown("STOP"), (None, false));
        assert_eq!(cleaned.rest(), None);
    }

    proptest! {
        /// However the text comes, it is shown up to the first stop, and a stop is seen once it is there.
        #[test]
        fn any_cut_shows_the_same(
            parts in prop::collection::vec("[abé]{0,4}", 0..12),
            stops in prop::collection::vec("[abé]{1,4}", 0..4),
        ) {
            let stops = Stops::new(stops);
            let all = parts.concat();
            let expected = stops.cut(&all);
            let (mut cleaned, mut gathered) = (Cleaned::default(), Gathered::default());
            let (mut shown, mut so_far) = (String::new(), String::new());
            for part in &parts {
                so_far.push_str(part);
                let (more, _) = cleaned.add(&stops, part);
                shown.push_str(&more.unwrap_or_default());
                gathered.add(&stops, part);
                let is_there = stops.texts().iter().any(|stop| so_far.contains(&**stop));
                prop_assert_eq!(cleaned.has_stopped, is_there);
                prop_assert_eq!(gathered.has_stopped, is_there);
            }
            // A short stop that is whole goes before a longer one that began before it.
            shown.push_str(&cleaned.rest().unwrap_or_default());
            prop_assert!(shown.starts_with(expected) || expected.starts_with(&shown));
            if !cleaned.has_stopped {
                prop_assert_eq!(&shown, &all);
            }
            let gathered = stops.cut(&gathered.text);
            prop_assert!(gathered.starts_with(expected));
        }
    }
}
