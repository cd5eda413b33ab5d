//! Which of the blocks that lie in a bucket may have been registered: some were written and never were, and may overlap
//! others.

use std::collections::BTreeMap;

use crate::block::{BlockEntry, BlockId};

/// How good a choice of blocks is: how much it holds, then how young its oldest block is, since of two that hold the
/// same the older one may have records that were dropped later [INV-13].
type Worth = (u64, BlockId);

fn none() -> Worth {
    (0, BlockId::from_number(u128::MAX))
}

fn with(worth: Worth, block: &BlockEntry) -> Worth {
    (worth.0 + (block.to - block.from), worth.1.min(block.id))
}

/// Of blocks that may overlap, by their ends, those that hold the most.
pub(super) fn fullest<'b>(blocks: &[&'b BlockEntry]) -> Vec<&'b BlockEntry> {
    let mut best = vec![(none(), false)];
    let before = |place: usize| blocks.partition_point(|other| other.to <= blocks[place].from);
    for (place, block) in blocks.iter().enumerate() {
        let (taken, left) = (with(best[before(place)].0, block), best[place].0);
        best.push(if taken > left { (taken, true) } else { (left, false) });
    }
    let (mut chosen, mut count) = (Vec::new(), blocks.len());
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

/// The longest chain of blocks, by their ends, each of which begins where the one before it ends.
pub(super) fn longest<'b>(blocks: &[&'b BlockEntry], begin: u64) -> Vec<&'b BlockEntry> {
    let mut reached: BTreeMap<u64, (Worth, Option<&'b BlockEntry>)> = [(begin, (none(), None))].into();
    for block in blocks {
        let Some((worth, _)) = reached.get(&block.from) else { continue };
        let worth = with(*worth, block);
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
