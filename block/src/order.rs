//! Putting one profile's rows in the order of their nodes, and adding up those of equal node.
//!
//! Nodes are dense, so the order is a bitmap: each row sets its bit and adds to its place, then the bits are read
//! from low to high. That takes a walk over the bitmap, which pays unless a profile has few of very many stacks;
//! those rows are sorted.

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

    /// Rows of (node, value), each node once, ascending.
    pub(crate) fn arrange(&mut self, rows: &mut Vec<(u32, i64)>) {
        if self.seen.len() > rows.len().saturating_mul(WORDS_PER_ROW) {
            return sort(rows);
        }
        for &(node, value) in rows.iter() {
            let (word, bit) = (node as usize / 64, 1u64 << (node % 64));
            let place = &mut self.values[node as usize];
            *place = if self.seen[word] & bit == 0 { value } else { place.wrapping_add(value) };
            self.seen[word] |= bit;
        }
        rows.clear();
        for (word, bits) in self.seen.iter_mut().enumerate() {
            while *bits != 0 {
                let node = word * 64 + bits.trailing_zeros() as usize;
                rows.push((node as u32, self.values[node]));
                *bits &= *bits - 1;
            }
        }
    }
}

fn sort(rows: &mut Vec<(u32, i64)>) {
    rows.sort_unstable_by_key(|row| row.0);
    rows.dedup_by(|row, kept| {
        let same = row.0 == kept.0;
        if same {
            kept.1 = kept.1.wrapping_add(row.1);
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
            let (mut dense, mut sorted) = (rows.clone(), rows);
            let mut order = Order::new(300);
            order.arrange(&mut dense);
            sort(&mut sorted);
            prop_assert_eq!(&dense, &sorted);
            prop_assert!(order.seen.iter().all(|&word| word == 0));
        }
    }
}
