//! Registered blocks, with indexes by tenant and time, by log range and by age.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;
use std::sync::Arc;

use athanor_chassis::{TenantId, Tier, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::block::{BlockEntry, BlockId, ShardId, ShardLogRange, TenantSpan};
use crate::state::persistent_map::{PersistentMap, SharedValue};

/// Blocks by id, with indexes. A clone takes constant time. Equal tenant names share one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct BlockSet {
    by_id: PersistentMap<BlockId, SharedValue<BlockEntry>>,
    parts_of_tenant: PersistentMap<TenantId, TierCounts>,
    /// Time of the latest profile of each part.
    parts: PersistentMap<PartTimeKey, i64>,
    /// Flushed blocks by shard and last index. Their ranges are disjoint.
    flushed_by_end: PersistentMap<FlushedEnd, BlockId>,
    by_oldest_part: PersistentMap<BlockAge, ()>,
    sums: BlockSums,
}

/// Key of a part in the index by tenant and time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PartTimeKey {
    tenant: TenantId,
    /// Bits of the duration in nanoseconds. A range of times overlaps a part of class c only if the part begins
    /// less than 2^c nanoseconds before the range.
    duration_class: u8,
    min_time: i64,
    block: BlockId,
}

/// Shard and last index of a flushed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FlushedEnd {
    shard: ShardId,
    to: u64,
}

/// Start of the age of a block's oldest part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::state) struct BlockAge {
    /// Latest of the part's data and their arrival.
    pub(in crate::state) newest: Timestamp,
    /// Id of the block.
    pub(in crate::state) block: BlockId,
}

/// Number of a tenant's parts in each tier, in the order of the tiers.
type TierCounts = [u64; Tier::ALL.len()];

/// Sums over all blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BlockSums {
    bytes: u128,
    lost: u128,
}

/// Class of parts with the longest durations. Their start is not bounded by the range.
const LONGEST_DURATION_CLASS: u8 = 64;

impl BlockSet {
    /// Inserts a block and returns the earlier block of the same id.
    pub(in crate::state) fn insert(&mut self, id: BlockId, mut block: BlockEntry) -> Option<BlockEntry> {
        let replaced = self.remove(&id);
        for span in &mut block.tenants {
            if let Some(name) = self.parts_of_tenant.stored_key(&span.tenant) {
                span.tenant = name.clone();
            }
            self.add_part(id, block.tier, span);
        }
        if let Some(end) = FlushedEnd::from_entry(&block) {
            self.flushed_by_end.insert(end, id);
        }
        self.by_oldest_part.insert(BlockAge::from_entry(&block), ());
        self.sums.add(&block);
        self.by_id.insert(id, block.into());
        replaced
    }

    /// Removes a block.
    pub(in crate::state) fn remove(&mut self, id: &BlockId) -> Option<BlockEntry> {
        let removed = self.by_id.remove(id)?.into_inner();
        for span in &removed.tenants {
            self.forget_part(*id, removed.tier, span);
        }
        if let Some(end) = FlushedEnd::from_entry(&removed) {
            self.flushed_by_end.remove(&end);
        }
        self.by_oldest_part.remove(&BlockAge::from_entry(&removed));
        self.sums.subtract(&removed);
        Some(removed)
    }

    /// Removes parts of a block, and returns an entry with these parts. Both entries have their share of bytes
    /// and samples. The block keeps its lost entries.
    pub(in crate::state) fn remove_parts(
        &mut self,
        id: &BlockId,
        tenants: &BTreeSet<&TenantId>,
    ) -> Option<BlockEntry> {
        let block = self.by_id.get_mut(id)?;
        let block: &mut BlockEntry = block;
        let age = BlockAge::from_entry(block);
        self.sums.subtract(block);
        let all = profile_sum(&block.tenants);
        let taken: Vec<TenantSpan> =
            block.tenants.extract_if(.., |span| tenants.contains(&span.tenant)).collect();
        let kept = profile_sum(&block.tenants);
        let bytes_before = block.bytes;
        // The result is a share of all bytes, which fit into a `u64`.
        block.bytes =
            (u128::from(block.bytes) * kept).checked_div(all).map_or(block.bytes, |bytes| bytes as u64);
        for span in &taken {
            block.samples = block.samples.saturating_sub(span.samples);
        }
        self.sums.add(block);
        let new_age = BlockAge::from_entry(block);
        let header = BlockEntry { tenants: Vec::new(), ..block.clone() };
        self.by_oldest_part.remove(&age);
        self.by_oldest_part.insert(new_age, ());
        for span in &taken {
            self.forget_part(*id, header.tier, span);
        }
        let samples = taken.iter().map(|span| span.samples).sum();
        Some(BlockEntry { bytes: bytes_before - header.bytes, samples, lost: 0, tenants: taken, ..header })
    }

    fn add_part(&mut self, block: BlockId, tier: Tier, span: &TenantSpan) {
        if self.parts_of_tenant.get(&span.tenant).is_none() {
            self.parts_of_tenant.insert(span.tenant.clone(), TierCounts::default());
        }
        if let Some(counts) = self.parts_of_tenant.get_mut(&span.tenant) {
            counts[tier as usize] += 1;
        }
        self.parts.insert(PartTimeKey::from_span(block, span), span.max_time);
    }

    fn forget_part(&mut self, block: BlockId, tier: Tier, span: &TenantSpan) {
        self.parts.remove(&PartTimeKey::from_span(block, span));
        let Some(counts) = self.parts_of_tenant.get_mut(&span.tenant) else { return };
        counts[tier as usize] -= 1;
        if counts.iter().all(|count| *count == 0) {
            self.parts_of_tenant.remove(&span.tenant);
        }
    }

    /// Returns the number of parts of each tenant and tier that has some.
    pub(in crate::state) fn part_counts(&self) -> impl Iterator<Item = (&TenantId, Tier, u64)> {
        self.parts_of_tenant.iter().flat_map(|(tenant, counts)| {
            let by_tier = Tier::ALL.into_iter().map(move |tier| (tenant, tier, counts[tier as usize]));
            by_tier.filter(|(.., count)| *count > 0)
        })
    }

    /// Returns the number of blocks.
    pub(in crate::state) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the block of an id.
    pub(in crate::state) fn get(&self, id: &BlockId) -> Option<&BlockEntry> {
        self.by_id.get(id).map(|block| &**block)
    }

    /// Returns the ids of the blocks, ascending.
    pub(in crate::state) fn keys(&self) -> impl Iterator<Item = &BlockId> {
        self.by_id.keys()
    }

    /// Returns whether a block is registered.
    pub(in crate::state) fn contains_key(&self, id: &BlockId) -> bool {
        self.by_id.contains_key(id)
    }

    /// Returns the blocks, ordered by id.
    pub(in crate::state) fn values(&self) -> impl Iterator<Item = &BlockEntry> {
        self.shared_values().map(|block| &**block)
    }

    /// Returns the blocks behind their reference counts, ordered by id.
    pub(in crate::state) fn shared_values(&self) -> impl Iterator<Item = &Arc<BlockEntry>> {
        self.by_id.values().map(SharedValue::as_arc)
    }

    /// Returns the tenants with rows in some block, ascending.
    pub(in crate::state) fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.parts_of_tenant.keys()
    }

    /// Returns the blocks with rows of a tenant in a time range, both ends included, ordered by id. Visits no
    /// block outside of the range, except those that begin less than twice their duration before it.
    pub(in crate::state) fn blocks_between(&self, tenant: &TenantId, from: i64, to: i64) -> Vec<&BlockEntry> {
        let key = |duration_class: u8, min_time: i64, block: u128| PartTimeKey {
            tenant: tenant.clone(),
            duration_class,
            min_time,
            block: BlockId::from_number(block),
        };
        let mut found = Vec::new();
        let mut after = Some(key(0, i64::MIN, 0));
        while let Some(start) = after
            && let Some((next, _)) =
                self.parts.range(start..).next().filter(|(next, _)| next.tenant == *tenant)
        {
            let class = next.duration_class;
            let earliest = from.saturating_sub_unsigned(longest_duration(class));
            let parts = self.parts.range(key(class, earliest, 0)..=key(class, to, u128::MAX));
            found.extend(parts.filter(|(_, max_time)| **max_time >= from).map(|(part, _)| part.block));
            after = (class < LONGEST_DURATION_CLASS).then(|| key(class + 1, i64::MIN, 0));
        }
        found.sort_unstable();
        found.dedup();
        found.iter().filter_map(|id| self.get(id)).collect()
    }

    /// Returns the flushed blocks that have an entry in one of the ranges.
    pub(in crate::state) fn flushed_in_ranges(
        &self,
        ranges: impl Iterator<Item = ShardLogRange>,
    ) -> impl Iterator<Item = &BlockEntry> {
        ranges.flat_map(|rows| {
            let ShardLogRange { shard, from, .. } = rows;
            let after = FlushedEnd { shard, to: from.saturating_add(1) };
            let blocks = self.flushed_by_end.range(after..).filter_map(|(_, id)| self.get(id));
            blocks.take_while(move |block| block.shard == shard && block.from < rows.to)
        })
    }

    /// Returns the ages of the blocks' oldest parts, oldest first.
    pub(in crate::state) fn oldest_first(&self) -> impl Iterator<Item = BlockAge> {
        self.by_oldest_part.keys().copied()
    }

    /// Returns the sum of the blocks' sizes in bytes.
    pub(in crate::state) fn total_bytes(&self) -> u64 {
        u64::try_from(self.sums.bytes).unwrap_or(u64::MAX)
    }

    /// Returns the number of acknowledged entries that the blocks lack.
    pub(in crate::state) fn total_lost(&self) -> u64 {
        u64::try_from(self.sums.lost).unwrap_or(u64::MAX)
    }

    /// Returns an error if an index does not match the blocks.
    pub(in crate::state) fn check_indexes(&self) -> Result<(), String> {
        match self.values().map(|block| (block.id, block.clone())).collect::<Self>() == *self {
            true => Ok(()),
            false => Err("an index of the blocks differs from the blocks".to_owned()),
        }
    }
}

/// Returns the number of profiles of all tenants.
fn profile_sum(spans: &[TenantSpan]) -> u128 {
    spans.iter().map(|span| u128::from(span.profiles)).sum()
}

/// Returns the longest duration of a class in nanoseconds.
fn longest_duration(class: u8) -> u64 {
    1_u64.checked_shl(class.into()).map_or(u64::MAX, |end| end - 1)
}

impl PartTimeKey {
    fn from_span(block: BlockId, span: &TenantSpan) -> Self {
        let duration = i128::from(span.max_time) - i128::from(span.min_time);
        // A part that ends before it begins can start anywhere.
        let duration_class = u64::try_from(duration)
            .map_or(LONGEST_DURATION_CLASS, |nanos| (u64::BITS - nanos.leading_zeros()) as u8);
        Self { tenant: span.tenant.clone(), duration_class, min_time: span.min_time, block }
    }
}

impl FlushedEnd {
    fn from_entry(block: &BlockEntry) -> Option<Self> {
        (block.level == 0).then_some(Self { shard: block.shard, to: block.to })
    }
}

impl BlockAge {
    fn from_entry(block: &BlockEntry) -> Self {
        Self { newest: block.oldest_part_time(), block: block.id }
    }
}

impl BlockSums {
    fn add(&mut self, block: &BlockEntry) {
        self.bytes += u128::from(block.bytes);
        self.lost += u128::from(block.lost);
    }

    fn subtract(&mut self, block: &BlockEntry) {
        self.bytes -= u128::from(block.bytes);
        self.lost -= u128::from(block.lost);
    }
}

impl Index<&BlockId> for BlockSet {
    type Output = BlockEntry;

    /// Returns the block of an id. Panics if it is not registered.
    fn index(&self, id: &BlockId) -> &BlockEntry {
        &self.by_id[id]
    }
}

impl Extend<(BlockId, BlockEntry)> for BlockSet {
    fn extend<I: IntoIterator<Item = (BlockId, BlockEntry)>>(&mut self, blocks: I) {
        for (id, block) in blocks {
            self.insert(id, block);
        }
    }
}

impl FromIterator<(BlockId, BlockEntry)> for BlockSet {
    fn from_iter<I: IntoIterator<Item = (BlockId, BlockEntry)>>(blocks: I) -> Self {
        let mut set = Self::default();
        set.extend(blocks);
        set
    }
}

impl Serialize for BlockSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.by_id.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for BlockSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let by_id = BTreeMap::deserialize(deserializer)?;
        Ok(by_id.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Tier;
    use proptest::prelude::*;

    use super::*;

    /// Times that include the extremes, so that durations of all classes occur.
    fn any_time() -> impl Strategy<Value = i64> {
        let near = |time: i64| (0..50_i64).prop_map(move |offset| time.saturating_add(offset));
        prop_oneof![
            4 => -60..60_i64,
            2 => (-60..60_i64).prop_map(|minutes| minutes * 60_000_000_000),
            2 => (0..63_u32, -2..=2_i64).prop_map(|(bits, offset)| (1_i64 << bits).saturating_add(offset)),
            1 => near(i64::MIN),
            1 => near(i64::MAX - 49),
            1 => any::<i64>(),
        ]
    }

    fn tenant_name(number: u8) -> TenantId {
        format!("tenant-{number}").parse().unwrap()
    }

    /// Rows of a tenant. Some end before they begin, as those of a wrong `meta.json`.
    fn any_span(tenant: u8) -> impl Strategy<Value = TenantSpan> {
        (any_time(), any_time(), 0..8_u8, 0..1000_u64).prop_map(move |(one, other, inverted, profiles)| {
            let is_inverted = inverted == 0;
            TenantSpan {
                tenant: tenant_name(tenant),
                min_time: if is_inverted { one.max(other) } else { one.min(other) },
                max_time: if is_inverted { one.min(other) } else { one.max(other) },
                profiles,
                samples: profiles * 2,
                sum: None,
                newest_arrival: Timestamp::from_nanos(one),
            }
        })
    }

    fn any_block() -> impl Strategy<Value = BlockEntry> {
        let spans: Vec<_> = (0..4_u8).map(|tenant| prop::option::of(any_span(tenant))).collect();
        (0..200_u64, 0..2_u8, spans, any::<bool>()).prop_map(|(number, level, spans, is_reversed)| {
            let mut tenants: Vec<TenantSpan> = spans.into_iter().flatten().collect();
            if is_reversed {
                tenants.reverse();
            }
            BlockEntry {
                id: BlockId::from_number(u128::from(number) << 90),
                shard: 1,
                epoch: 1,
                from: number,
                to: number + 1,
                bytes: number * 1000,
                samples: tenants.iter().map(|span| span.samples).sum(),
                lost: number % 3,
                level,
                additional_ranges: Vec::new(),
                tier: Tier::Raw,
                is_covered: false,
                job: None,
                tenants,
            }
        })
    }

    /// Change of a block set.
    #[derive(Clone, Debug)]
    enum SetChange {
        Insert(BlockEntry),
        Remove(u64),
        RemoveParts(u64, Vec<u8>),
    }

    fn any_change() -> impl Strategy<Value = SetChange> {
        prop_oneof![
            6 => any_block().prop_map(SetChange::Insert),
            1 => (0..200_u64).prop_map(SetChange::Remove),
            2 => (0..200_u64, prop::collection::vec(0..4_u8, 0..3))
                .prop_map(|(number, tenants)| SetChange::RemoveParts(number, tenants)),
        ]
    }

    /// Applies a change to the set, and to a map that is changed without any index.
    fn apply_change(set: &mut BlockSet, model: &mut BTreeMap<BlockId, BlockEntry>, change: &SetChange) {
        let id_of = |number: u64| BlockId::from_number(u128::from(number) << 90);
        match change {
            SetChange::Insert(block) => {
                assert_eq!(set.insert(block.id, block.clone()), model.insert(block.id, block.clone()));
            }
            SetChange::Remove(number) => {
                assert_eq!(set.remove(&id_of(*number)), model.remove(&id_of(*number)));
            }
            SetChange::RemoveParts(number, tenants) => {
                let names: Vec<TenantId> = tenants.iter().copied().map(tenant_name).collect();
                set.remove_parts(&id_of(*number), &names.iter().collect());
                let Some(block) = model.get_mut(&id_of(*number)) else { return };
                let share: u64 = names
                    .iter()
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .map(|name| block.tenant_bytes(name))
                    .sum();
                block.tenants.retain(|span| !names.contains(&span.tenant));
                block.samples = block.tenants.iter().map(|span| span.samples).sum();
                let kept = set.get(&id_of(*number)).unwrap().bytes;
                assert!(
                    kept <= block.bytes && kept.abs_diff(block.bytes - share) <= 4,
                    "{kept} of {block:?}"
                );
                block.bytes = kept;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn listing_equals_a_scan(
            changes in prop::collection::vec(any_change(), 1..150),
            ranges in prop::collection::vec((any_time(), any_time(), 0..4_u8), 20),
        ) {
            let mut set = BlockSet::default();
            let mut model = BTreeMap::new();
            for change in &changes {
                apply_change(&mut set, &mut model, change);
            }
            prop_assert!(set.values().eq(model.values()));
            for (from, to, tenant) in ranges {
                let tenant = tenant_name(tenant);
                let is_listed = |block: &&BlockEntry| block.tenant_span_between(&tenant, from, to).is_some();
                let expected: Vec<&BlockEntry> = model.values().filter(is_listed).collect();
                prop_assert_eq!(set.blocks_between(&tenant, from, to), expected);
            }
        }

        #[test]
        fn indexes_and_sums_follow_the_blocks(changes in prop::collection::vec(any_change(), 1..100)) {
            let mut set = BlockSet::default();
            let mut model = BTreeMap::new();
            for change in &changes {
                let before = set.clone();
                let blocks: Vec<BlockEntry> = before.values().cloned().collect();
                apply_change(&mut set, &mut model, change);
                prop_assert_eq!(before.check_indexes(), Ok(()));
                prop_assert!(before.values().eq(&blocks), "a clone changed");
                prop_assert_eq!(set.check_indexes(), Ok(()));
            }
            prop_assert_eq!(set.total_bytes(), model.values().map(|block| block.bytes).sum::<u64>());
            prop_assert_eq!(set.total_lost(), model.values().map(|block| block.lost).sum::<u64>());
            let named: BTreeSet<&TenantId> =
                model.values().flat_map(|block| &block.tenants).map(|span| &span.tenant).collect();
            prop_assert!(set.tenants().eq(named));
            let mut ages: Vec<BlockAge> = model.values().map(BlockAge::from_entry).collect();
            ages.sort_unstable();
            prop_assert!(set.oldest_first().eq(ages));
        }
    }

    #[test]
    fn duration_classes_end_at_powers_of_two() {
        let class = |min_time: i64, max_time: i64| {
            let span = TenantSpan {
                tenant: TenantId::anonymous(),
                min_time,
                max_time,
                profiles: 1,
                samples: 1,
                sum: None,
                newest_arrival: Timestamp::UNIX_EPOCH,
            };
            PartTimeKey::from_span(BlockId::from_number(1), &span).duration_class
        };
        assert_eq!([class(7, 7), class(7, 8), class(7, 9), class(7, 10), class(7, 11)], [0, 1, 2, 2, 3]);
        assert_eq!([class(i64::MIN, i64::MAX), class(0, i64::MAX), class(1, 0)], [64, 63, 64]);
        assert_eq!([longest_duration(0), longest_duration(3), longest_duration(64)], [0, 7, u64::MAX]);
    }
}
