//! Index of blocks by log range.

use std::collections::BTreeMap;

use crate::block::{BlockEntry, BlockId, ShardId, ShardLogRange};

/// Blocks by log range. Ranges of similar length share a class, so a search visits only blocks that are near
/// the searched range.
#[derive(Clone, Debug, Default)]
pub(in crate::state) struct LogRangeIndex<'b> {
    by_class: BTreeMap<LengthClass, BTreeMap<RangeStart, IndexedRange<'b>>>,
}

/// Ranges of one shard that are shorter than `1 << bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LengthClass {
    shard: ShardId,
    bits: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RangeStart {
    from: u64,
    block: BlockId,
}

#[derive(Clone, Copy, Debug)]
struct IndexedRange<'b> {
    rows: ShardLogRange,
    block: &'b BlockEntry,
}

impl<'b> LogRangeIndex<'b> {
    /// Inserts a block with all of its log ranges.
    pub(in crate::state) fn insert(&mut self, block: &'b BlockEntry) {
        for rows in block.log_ranges() {
            let bits = u64::BITS - rows.to.saturating_sub(rows.from).leading_zeros();
            let ranges = self.by_class.entry(LengthClass { shard: rows.shard, bits }).or_default();
            ranges.insert(RangeStart { from: rows.from, block: block.id }, IndexedRange { rows, block });
        }
    }

    /// Returns the blocks that have an entry in common with a range, once per common range.
    pub(in crate::state) fn overlapping(&self, rows: &ShardLogRange) -> impl Iterator<Item = &'b BlockEntry> {
        let searched = *rows;
        let first = LengthClass { shard: rows.shard, bits: 0 };
        let last = LengthClass { shard: rows.shard, bits: u64::BITS };
        self.by_class.range(first..=last).flat_map(move |(class, ranges)| {
            let longest = 1_u64.checked_shl(class.bits).unwrap_or(u64::MAX);
            let from = searched.from.saturating_sub(longest);
            let first = RangeStart { from, block: BlockId::from_number(0) };
            let end = RangeStart { from: searched.to.max(from), block: BlockId::from_number(0) };
            let near = ranges.range(first..end).map(|(_, indexed)| indexed);
            near.filter(move |indexed| indexed.rows.overlaps(&searched)).map(|indexed| indexed.block)
        })
    }
}

impl<'b> FromIterator<&'b BlockEntry> for LogRangeIndex<'b> {
    fn from_iter<I: IntoIterator<Item = &'b BlockEntry>>(blocks: I) -> Self {
        let mut index = Self::default();
        blocks.into_iter().for_each(|block| index.insert(block));
        index
    }
}
