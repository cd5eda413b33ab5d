//! Putting one profile's rows in the order of their nodes, and adding up those of equal node and request.
//!
//! Nodes are dense, so the order is a bitmap: each row sets its bit and adds to its place, then the bits are read
//! from low to high. That takes a walk over the bitmap, which pays unless a profile has few of very many stacks;
//! those rows are sorted, and so are rows that name requests.

use athanor_profile::Request;

use crate::request::Row;

/// Scratch that is used for every profile of a part.
pub(crate) struct Order {
    seen: Vec<u64>,
    values: Vec<i64>,
}

/// Words of the bitmap that may be walked for each row.
const WORDS_PER_ROW: usize = 4;

impl Order {
    pub(crate) fn new(nodes: usize) -> Self {
        Order { seen: vec![0; nodes.div_ceil(64)], values: vec![0; nodes] }
    }

    /// Rows by (node, request), each pair once. Their stacks are nodes.
    pub(crate) fn arrange(&mut self, rows: &mut Vec<Row>, requests: &[Request]) {
        let sparse = self.seen.len() > rows.len().saturating_mul(WORDS_PER_ROW);
        if sparse || rows.iter().any(|row| row.request != 0) {
            return sort(rows, requests);
        }
        for row in rows.iter() {
            let (word, bit) = (row.stack as usize / 64, 1u64 << (row.stack % 64));
            let place = &mut self.values[row.stack as usize];
            *place = if self.seen[word] & bit == 0 { row.value } else { place.wrapping_add(row.value) };
            self.seen[word] |= bit;
        }
        rows.clear();
        for (word, bits) in self.seen.iter_mut().enumerate() {
            while *bits != 0 {
                let node = word * 64 + bits.trailing_zeros() as usize;
                rows.push(Row { stack: node as u32, request: 0, value: self.values[node] });
                *bits &= *bits - 1;
            }
        }
    }
}

fn sort(rows: &mut Vec<Row>, requests: &[Request]) {
    let key = |row: &Row| (row.stack, requests[row.request as usize]);
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
            let row = |(stack, value)| Row { stack, request: 0, value };
            let mut dense: Vec<Row> = rows.into_iter().map(row).collect();
            let mut sorted = dense.clone();
            let mut order = Order::new(300);
            order.arrange(&mut dense, &[Request::default()]);
            sort(&mut sorted, &[Request::default()]);
            prop_assert_eq!(&dense, &sorted);
            prop_assert!(order.seen.iter().all(|&word| word == 0));
        }
    }
}
