//! Sorting one profile's rows by stack, and summing rows with equal stack and span context.
//!
//! Stack numbers are dense, so the order is a bitmap: each row sets its bit and adds to its sum. Then the
//! bits are read from low to high. The walk over the bitmap pays off unless a profile has few of very many
//! stacks. Such rows are sorted by comparison, and so are rows with span contexts or timestamps.

use athanor_profile::{SampleTimestamps, SpanContext};

use crate::format::sample_rows::{ProfileRows, SampleRow};

/// Sums of one profile's values by stack.
pub(crate) struct StackSums {
    /// Bit of each stack with a sum.
    seen: Vec<u64>,
    /// Bit of each word of `seen` with a bit, so that few of very many stacks are found soon.
    words: Vec<u64>,
    values: Vec<i64>,
}

/// Scratch buffers, reused for every profile of a part.
pub(crate) struct RowSorter {
    sums: StackSums,
    /// Input rows with timestamps, with their original index.
    came: Vec<(SampleRow, usize)>,
    times: Vec<i64>,
    moments: SampleTimestamps,
}

/// Upper bound of bitmap words walked per row.
const MAX_BITMAP_WORDS_PER_ROW: usize = 4;

impl StackSums {
    pub(crate) fn new(stacks: usize) -> Self {
        let words = stacks.div_ceil(64);
        StackSums { seen: vec![0; words], words: vec![0; words.div_ceil(64)], values: vec![0; stacks] }
    }

    /// Adds a value. Returns none for an unknown stack.
    #[inline(always)]
    pub(crate) fn add(&mut self, stack: u32, value: i64) -> Option<()> {
        let sum = self.values.get_mut(stack as usize)?;
        let place = stack as usize / 64;
        let word = &mut self.seen[place];
        let bit = 1u64 << (stack % 64);
        if *word == 0 {
            self.words[place / 64] |= 1 << (place % 64);
        }
        *sum = if *word & bit == 0 { value } else { sum.wrapping_add(value) };
        *word |= bit;
        Some(())
    }

    /// Visits stacks and sums by stack, and removes them.
    #[inline(always)]
    pub(crate) fn drain(&mut self, mut visit: impl FnMut(u32, i64)) {
        for (first, words) in self.words.iter_mut().enumerate() {
            while *words != 0 {
                let place = first * 64 + words.trailing_zeros() as usize;
                *words &= *words - 1;
                let mut bits = std::mem::take(&mut self.seen[place]);
                while bits != 0 {
                    let stack = place * 64 + bits.trailing_zeros() as usize;
                    visit(stack as u32, self.values[stack]);
                    bits &= bits - 1;
                }
            }
        }
    }

    /// Returns whether visiting the bits of all stacks takes longer than sorting this many rows.
    fn is_sparse(&self, rows: usize) -> bool {
        self.seen.len() > rows.saturating_mul(MAX_BITMAP_WORDS_PER_ROW)
    }
}

impl RowSorter {
    pub(crate) fn new(nodes: usize) -> Self {
        RowSorter {
            sums: StackSums::new(nodes),
            came: Vec::new(),
            times: Vec::new(),
            moments: SampleTimestamps::default(),
        }
    }

    /// Sorts rows by (stack, span context) and sums equal ones.
    pub(crate) fn sort_rows(&mut self, of_profile: &mut ProfileRows) {
        if !of_profile.moments.is_empty() {
            return self.sort_with_timestamps(of_profile);
        }
        let ProfileRows { rows, requests, .. } = of_profile;
        let requests = requests.all();
        if self.sums.is_sparse(rows.len()) || rows.iter().any(|row| row.request != 0) {
            return sort(rows, requests);
        }
        for row in rows.drain(..) {
            self.sums.add(row.stack, row.value).expect("stacks are below the number of nodes");
        }
        self.sums.drain(|stack, value| rows.push(SampleRow { stack, request: 0, value }));
    }

    /// Returns the sums for a profile with some rows, if adding them up is the fastest way to sort them.
    pub(crate) fn sums_for(&mut self, rows: usize) -> Option<&mut StackSums> {
        (!self.sums.is_sparse(rows)).then_some(&mut self.sums)
    }

    /// Variant of [`sort`] for rows with timestamps. Summed rows keep the timestamps of all their inputs,
    /// ascending.
    fn sort_with_timestamps(&mut self, of_profile: &mut ProfileRows) {
        let ProfileRows { rows, requests, moments } = of_profile;
        let requests = requests.all();
        self.came.clear();
        self.came.extend(rows.drain(..).zip(0..));
        self.came.sort_unstable_by_key(|(row, _)| key(row, requests));
        self.moments.clear();
        for same in self.came.chunk_by(|(a, _), (b, _)| key(a, requests) == key(b, requests)) {
            let value = same.iter().fold(0, |sum: i64, (row, _)| sum.wrapping_add(row.value));
            self.times.clear();
            same.iter().for_each(|&(_, place)| self.times.extend_from_slice(moments.row_timestamps(place)));
            self.times.sort_unstable();
            self.moments.add(rows.len(), self.times.iter().copied());
            rows.push(SampleRow { value, ..same[0].0 });
        }
        std::mem::swap(moments, &mut self.moments);
    }
}

/// Key of rows that are summed.
fn key(row: &SampleRow, requests: &[SpanContext]) -> (u32, SpanContext) {
    (row.stack, requests[row.request as usize])
}

fn sort(rows: &mut Vec<SampleRow>, requests: &[SpanContext]) {
    let key = |row: &SampleRow| key(row, requests);
    rows.sort_unstable_by_key(key);
    rows.dedup_by(|row, kept| {
        let same = key(row) == key(kept);
        if same {
            kept.value = kept.value.wrapping_add(row.value);
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_bitmap_and_the_sort_agree(rows in prop::collection::vec((0u32..300, any::<i64>()), 0..200)) {
            let row = |(stack, value)| SampleRow { stack, request: 0, value };
            let mut dense: Vec<SampleRow> = rows.into_iter().map(row).collect();
            let mut sorted = dense.clone();
            let mut order = RowSorter::new(300);
            let mut timed = ProfileRows { rows: dense.clone(), ..ProfileRows::default() };
            (0..dense.len()).for_each(|row| timed.moments.add(row, [-(row as i64), 3]));
            let mut plain = ProfileRows { rows: std::mem::take(&mut dense), ..ProfileRows::default() };
            order.sort_rows(&mut plain);
            order.sort_rows(&mut timed);
            sort(&mut sorted, &[SpanContext::default()]);
            prop_assert_eq!(&plain.rows, &sorted);
            prop_assert_eq!(&timed.rows, &sorted);
            prop_assert!((0..sorted.len()).all(|row| timed.moments.row_timestamps(row).is_sorted()));
            prop_assert!(order.sums.seen.iter().chain(&order.sums.words).all(|&word| word == 0));
        }
    }
}
