//! Selection of flushed blocks from a bucket that may have been registered. Some were written and never
//! registered, and may overlap others.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::block::{BlockEntry, BlockId, ShardLogRange};

/// Blocks of one shard that the known state of the catalog does not list.
#[derive(Clone, Debug, Default)]
pub(in crate::state) struct ShardCandidates<'b> {
    /// Flushed blocks.
    pub(in crate::state) flushed: Vec<FlushedCandidate<'b>>,
    /// Log ranges of the outputs of finished jobs.
    pub(in crate::state) merged: Vec<ShardLogRange>,
}

/// Flushed block that may have been registered.
#[derive(Clone, Copy, Debug)]
pub(in crate::state) struct FlushedCandidate<'b> {
    /// Entry of the block.
    pub(in crate::state) block: &'b BlockEntry,
    /// Token of the newest job that read the block. Such a block was registered.
    pub(in crate::state) read_by: Option<u64>,
    /// True if a finished job took a part of the block.
    pub(in crate::state) has_taken_parts: bool,
}

/// Part of a shard's log whose blocks are selected.
#[derive(Clone, Copy, Debug)]
pub(in crate::state) struct LogBounds {
    /// Epoch of the shard.
    pub(in crate::state) epoch: u32,
    /// Index before the first entry.
    pub(in crate::state) begin: u64,
    /// Largest possible index of the last entry.
    pub(in crate::state) end: u64,
}

impl<'b> ShardCandidates<'b> {
    /// Returns the blocks that were registered for certain, because jobs read them. Drops the candidates that
    /// cannot have been registered. The range of a registered block is in a merged block as a whole or not at
    /// all, and no two registered blocks overlap.
    pub(in crate::state) fn take_registered(&mut self, bounds: LogBounds) -> Vec<&'b BlockEntry> {
        self.merged.retain(|rows| rows.to > bounds.begin);
        self.merged = ShardLogRange::join_adjacent(std::mem::take(&mut self.merged));
        let merged = &self.merged;
        self.flushed.retain(|candidate| candidate.is_possible(bounds, merged));
        self.flushed.sort_unstable_by_key(|candidate| Reverse((candidate.read_by, candidate.block.id)));
        let count = self.flushed.partition_point(|candidate| candidate.read_by.is_some());
        let others = self.flushed.split_off(count);
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        let mut registered = Vec::new();
        for FlushedCandidate { block, .. } in std::mem::take(&mut self.flushed) {
            if is_free(&ends, block) {
                ends.insert(block.from, block.to);
                registered.push(block);
            }
        }
        self.flushed = others.into_iter().filter(|candidate| is_free(&ends, candidate.block)).collect();
        self.flushed.sort_unstable_by_key(|candidate| {
            let BlockEntry { from, to, id, .. } = candidate.block;
            (*to, *from, *id)
        });
        registered
    }

    /// Returns the remaining flushed blocks between two indexes, in the order of their ends.
    pub(in crate::state) fn flushed_between(&self, begin: u64, end: u64) -> Vec<&'b BlockEntry> {
        let blocks = self.flushed.iter().map(|candidate| candidate.block);
        blocks.filter(|block| begin <= block.from && block.to <= end).collect()
    }
}

impl FlushedCandidate<'_> {
    fn is_possible(&self, bounds: LogBounds, merged: &[ShardLogRange]) -> bool {
        let &BlockEntry { shard, epoch, from, to, .. } = self.block;
        if epoch != bounds.epoch || from < bounds.begin || to <= from || to > bounds.end {
            return false;
        }
        let rows = ShardLogRange { shard, epoch, from, to };
        let place = merged.partition_point(|other| other.to <= from);
        let holder = merged.get(place).filter(|other| other.overlaps(&rows));
        let is_merged = |holder: &ShardLogRange| {
            holder.contains(&rows) && (self.has_taken_parts || self.read_by.is_some())
        };
        holder.is_none_or(is_merged)
    }
}

/// Returns whether a block overlaps none of the disjoint ranges, given by their starts and ends.
fn is_free(ends: &BTreeMap<u64, u64>, block: &BlockEntry) -> bool {
    ends.range(..block.to).next_back().is_none_or(|(_, end)| *end <= block.from)
}

/// Score of a selection: its number of entries, then the age of its oldest block. Of two equal selections the
/// younger one wins, because an older one may hold records that were dropped later [INV-13].
type ChainScore = (u64, BlockId);

fn empty_score() -> ChainScore {
    (0, BlockId::from_number(u128::MAX))
}

fn score_with(worth: ChainScore, block: &BlockEntry) -> ChainScore {
    (worth.0 + (block.to - block.from), worth.1.min(block.id))
}

/// Selects disjoint blocks with the best score. Requires blocks in the order of their ends.
pub(in crate::state) fn best_disjoint_blocks<'b>(blocks: &[&'b BlockEntry]) -> Vec<&'b BlockEntry> {
    let mut best = vec![(empty_score(), false)];
    let before = |place: usize| blocks.partition_point(|other| other.to <= blocks[place].from);
    for (place, block) in blocks.iter().enumerate() {
        let taken = score_with(best[before(place)].0, block);
        let left = best[place].0;
        best.push(if taken > left { (taken, true) } else { (left, false) });
    }
    let mut chosen = Vec::new();
    let mut count = blocks.len();
    while count > 0 {
        count = if best[count].1 {
            chosen.push(blocks[count - 1]);
            before(count - 1)
        } else {
            count - 1
        };
    }
    chosen.reverse();
    chosen
}

/// Selects the longest chain of blocks from `begin`, each starting where the one before it ends. Requires
/// blocks in the order of their ends.
pub(in crate::state) fn best_chain<'b>(blocks: &[&'b BlockEntry], begin: u64) -> Vec<&'b BlockEntry> {
    let mut reached: BTreeMap<u64, (ChainScore, Option<&'b BlockEntry>)> =
        [(begin, (empty_score(), None))].into();
    for block in blocks {
        let Some((worth, _)) = reached.get(&block.from) else { continue };
        let worth = score_with(*worth, block);
        if reached.get(&block.to).is_none_or(|(known, _)| worth > *known) {
            reached.insert(block.to, (worth, Some(block)));
        }
    }
    let mut chosen = Vec::new();
    let mut last = reached.last_key_value().and_then(|(_, (_, block))| *block);
    while let Some(block) = last {
        chosen.push(block);
        last = reached.get(&block.from).and_then(|(_, block)| *block);
    }
    chosen.reverse();
    chosen
}
