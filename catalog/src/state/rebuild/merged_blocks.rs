//! Selection of merged blocks from a bucket, when no record of the replacements exists.
//!
//! The inputs of a merge exist while it runs, and their objects stay until the replacement. So a merged block
//! can be registered whether or not it ever replaced its inputs. The exception is a loss of rows: the inputs
//! are still there, and rows of other tenants in them would be in no block.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::block::{BlockEntry, BlockId, ShardLogRange};
use crate::state::rebuild::recovery_input::BucketBlock;

/// Blocks in the bucket, and the blocks of the known catalog state.
struct BlockInventory<'l, 'k, F> {
    in_bucket: BTreeMap<BlockId, &'l BlockEntry>,
    listed: &'k BTreeMap<BlockId, BlockEntry>,
    is_present: F,
}

/// Returns the merged blocks of a bucket that replace their inputs. `listed` contains the blocks that are
/// known to be registered. `is_present` returns whether such a block is still in the bucket.
pub fn find_merged_blocks<'l>(
    bucket_blocks: &'l [BucketBlock],
    listed: &BTreeMap<BlockId, BlockEntry>,
    is_present: impl Fn(BlockId) -> bool,
) -> Vec<&'l BlockEntry> {
    let in_bucket = bucket_blocks.iter().map(|found| (found.block.id, &found.block)).collect();
    let inventory = BlockInventory { in_bucket, listed, is_present };
    let mut candidates: Vec<&BucketBlock> =
        bucket_blocks.iter().filter(|found| is_unlisted_merge(found, listed)).collect();
    // Larger blocks come first, because the inputs of a merge may be merged blocks in the bucket as well.
    // Among equal sizes the youngest comes first.
    let entries = |one: &BucketBlock| one.block.log_ranges().map(|rows| rows.to - rows.from).sum::<u64>();
    candidates.sort_by_cached_key(|one| Reverse((entries(one), one.block.id)));
    let mut preferred = BTreeSet::new();
    loop {
        let taken = inventory.select_candidates(candidates.clone());
        // A block that never replaced its inputs may be larger than one that did, without holding all of its
        // rows.
        let is_needed = |one: &&BucketBlock| {
            !preferred.contains(&one.block.id) && inventory.has_uncovered_rows(&one.block, &taken)
        };
        let Some(position) = candidates.iter().position(is_needed) else { return taken };
        let needed = candidates.remove(position);
        preferred.insert(needed.block.id);
        candidates.insert(0, needed);
    }
}

impl<'l, 'k, F: Fn(BlockId) -> bool> BlockInventory<'l, 'k, F> {
    /// Selects candidates that do not conflict, in order of preference. Leaves out those that conflict with a
    /// block that has to stay.
    fn select_candidates(&self, mut candidates: Vec<&'l BucketBlock>) -> Vec<&'l BlockEntry> {
        loop {
            let taken = without_conflicts(&candidates);
            let stands = |other: &BlockEntry, one: &BucketBlock| {
                other.id != one.block.id && other.conflicts_with(&one.block) && !is_covered(other, &taken)
            };
            let loses = |one: &&BucketBlock| {
                let inputs = one.inputs.iter().filter_map(|input| self.in_bucket.get(input).copied());
                self.present_listed_blocks().chain(inputs).any(|other| stands(other, one))
            };
            let is_taken = |one: &BucketBlock| taken.iter().any(|taken| taken.id == one.block.id);
            let losing: BTreeSet<BlockId> =
                candidates.iter().filter(|one| is_taken(one) && loses(one)).map(|one| one.block.id).collect();
            if losing.is_empty() {
                return taken;
            }
            candidates.retain(|one| !losing.contains(&one.block.id));
        }
    }

    fn present_listed_blocks(&self) -> impl Iterator<Item = &'k BlockEntry> {
        self.listed.values().filter(|other| (self.is_present)(other.id))
    }

    /// Returns whether rows of a block are neither in the selected blocks nor in compatible blocks of the
    /// bucket.
    fn has_uncovered_rows(&self, block: &BlockEntry, taken: &[&BlockEntry]) -> bool {
        let is_beside = |other: &&BlockEntry| !taken.iter().any(|taken| taken.conflicts_with(other));
        let flushed_blocks = self.in_bucket.values().copied().filter(|other| other.level == 0);
        let beside: Vec<&BlockEntry> =
            flushed_blocks.chain(self.present_listed_blocks()).filter(is_beside).collect();
        block.tenants.iter().any(|span| {
            let has = |other: &&&BlockEntry| other.level == 0 || other.tenant_span(&span.tenant).is_some();
            let holders = taken.iter().chain(&beside).filter(has);
            let held = ShardLogRange::join_adjacent(holders.flat_map(|other| other.log_ranges()));
            !block.log_ranges().all(|rows| held.iter().any(|held| held.contains(&rows)))
        })
    }
}

fn is_unlisted_merge(found: &BucketBlock, listed: &BTreeMap<BlockId, BlockEntry>) -> bool {
    !found.inputs.is_empty() && !listed.contains_key(&found.block.id)
}

fn without_conflicts<'l>(candidates: &[&'l BucketBlock]) -> Vec<&'l BlockEntry> {
    let mut taken: Vec<&BlockEntry> = Vec::new();
    for BucketBlock { block, .. } in candidates {
        if !taken.iter().any(|other| other.conflicts_with(block)) {
            taken.push(block);
        }
    }
    taken
}

/// Returns whether younger merged blocks hold all rows of a block.
pub(in crate::state) fn is_covered(block: &BlockEntry, by: &[&BlockEntry]) -> bool {
    let holds = |other: &&&BlockEntry| other.id > block.id && other.covers_log_ranges_of(block);
    let by: Vec<&&BlockEntry> = by.iter().filter(holds).collect();
    !by.is_empty()
        && block.tenants.iter().all(|span| by.iter().any(|other| other.tenant_span(&span.tenant).is_some()))
}
