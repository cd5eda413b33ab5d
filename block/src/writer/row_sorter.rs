//! Sorting one profile's rows by stack, and summing rows with equal stack and span context.
//!
//! Stack numbers are dense, so the order is a bitmap: each row sets its bit and adds to its sum. Then the
//! bits are read from low to high. The walk over the bitmap pays off unless a profile has few of very many
//! stacks. Such rows are sorted by comparison, and so are rows with span contexts or timestamps.

use athanor_profile::{SampleTimestamps, SpanContext};

use crate::format::sample_rows::{ProfileRows, SampleRow};

/// Scratch buffers, reused for every profile of a part.
pub(crate) struct RowSorter {
    seen: Vec<u64>,
    values: Vec<i64>,
    /// Input rows with timestamps, with their original index.
    came: Vec<(SampleRow, usize)>,
    times: Vec<i64>,
    moments: SampleTimestamps,
}

/// Upper bound of bitmap words walked per row.
const MAX_BITMAP_WORDS_PER_ROW: usize = 4;

impl RowSorter {
    pub(crate) fn new(nodes: usize) -> Self {
        RowSorter {
            seen: vec![0; nodes.div_ceil(64)],
            values: vec![0; nodes],
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
        let sparse = self.seen.len() > rows.len().saturating_mul(MAX_BITMAP_WORDS_PER_ROW);
        if sparse || rows.iter().any(|row| row.request != 0) {
            return sort(rows, requests);
        }
        for row in rows.iter() {
            let word = row.stack as usize / 64;
            let bit = 1u64 << (row.stack % 64);
            let place = &mut self.values[row.stack as usize];
            *place = if self.seen[word] & bit == 0 { row.value } else { place.wrapping_add(row.value) };
            self.seen[word] |= bit;
        }
        rows.clear();
        for (word, bits) in self.seen.iter_mut().enumerate() {
            while *bits != 0 {
                let node = word * 64 + bits.trailing_zeros() as usize;
                rows.push(SampleRow { stack: node as u32, request: 0, value: self.values[node] });
                *bits &= *bits - 1;
            }
        }
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
            prop_assert!(order.seen.iter().all(|&word| word == 0));
        }
    }
}
