//! Texts cut anywhere.

use proptest::sample::Index;

/// A text in pieces that begin at characters.
pub(crate) fn parts<'t>(text: &'t str, cuts: &[Index]) -> Vec<&'t str> {
    let cut = |cut: &Index| text.floor_char_boundary(cut.index(text.len() + 1));
    let mut cuts: Vec<usize> = cuts.iter().map(cut).collect();
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    let pairs = cuts.windows(2);
    pairs.map(|pair| &text[pair[0]..pair[1]]).collect()
}
