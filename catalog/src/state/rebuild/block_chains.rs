//! Selection of flushed blocks from a bucket that may have been registered. Some were written and never
//! registered, and may overlap others.

use std::collections::BTreeMap;

use crate::block::{BlockEntry, BlockId};

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
