//! The ids of the highest numbers in the order that `torch.topk` gives them on a processor.
//!
//! Equal numbers come out in the order that the C++ library's `nth_element` and `sort` leave them in, so
//! these are done step by step as there.

/// A number with its id.
type Entry = (f32, u32);

/// Longest run that is sorted by insertion alone.
const SHORT: usize = 16;

/// The ids of the `count` highest numbers of a row, the highest first.
pub(super) fn likeliest(row: &[f32], count: usize) -> Vec<u32> {
    let count = count.min(row.len());
    if count == 0 {
        return Vec::new();
    }
    let mut entries: Vec<Entry> = row.iter().copied().zip(0..).collect();
    select(&mut entries, count - 1);
    entries.truncate(count);
    let rest = &mut entries[..count - 1];
    part_long_runs(rest);
    insert_all(rest);
    entries.into_iter().map(|(_, id)| id).collect()
}

fn goes_before(left: Entry, right: Entry) -> bool {
    left.0 > right.0
}

/// `nth_element`: puts the entry at `wanted` where sorting would, and those that go before it before it.
fn select(entries: &mut [Entry], wanted: usize) {
    let (mut start, mut end) = (0, entries.len());
    while end - start > 3 {
        let cut = start + partition(&mut entries[start..end]);
        if cut <= wanted {
            start = cut;
        } else {
            end = cut;
        }
    }
    insert_all(&mut entries[start..end]);
}

/// The first half of `sort`: runs that are in order among each other.
fn part_long_runs(mut entries: &mut [Entry]) {
    while entries.len() > SHORT {
        let cut = partition(entries);
        let (before, behind) = entries.split_at_mut(cut);
        part_long_runs(behind);
        entries = before;
    }
}

/// Parts entries by the middle one of three, which is first then; where the second part starts.
fn partition(entries: &mut [Entry]) -> usize {
    let last = entries.len() - 1;
    let middle = middle_of(entries, 1, entries.len() / 2, last);
    entries.swap(0, middle);
    let pivot = entries[0];
    let (mut left, mut right) = (1, entries.len());
    loop {
        while goes_before(entries[left], pivot) {
            left += 1;
        }
        right -= 1;
        while goes_before(pivot, entries[right]) {
            right -= 1;
        }
        if left >= right {
            return left;
        }
        entries.swap(left, right);
        left += 1;
    }
}

fn middle_of(entries: &[Entry], a: usize, b: usize, c: usize) -> usize {
    let before = |left: usize, right: usize| goes_before(entries[left], entries[right]);
    match (before(a, b), before(b, c), before(a, c)) {
        (true, true, _) | (false, false, false) => b,
        (true, false, true) | (false, true, false) => c,
        _ => a,
    }
}

/// The second half of `sort`, or the whole of it for a short run.
fn insert_all(entries: &mut [Entry]) {
    for index in 1..entries.len() {
        let mut before = entries[..index].iter();
        let place = before.rposition(|entry| !goes_before(entries[index], *entry));
        entries[place.map_or(0, |place| place + 1)..=index].rotate_right(1);
    }
}
