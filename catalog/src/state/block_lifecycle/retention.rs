//! Removal of rows by age. A part expires on its own, so a block stays listed for its other tenants.
//!
//! ```text
//!  listed ──Expire──► expired ──Purge──► purged: its objects are removed, listings name the time range
//!     ▲                  │
//!     └─────Restore──────┘
//! ```
//! Age is measured with the catalog's own time, which no single clock decides. An expired part is in no
//! listing. Its entry is kept, so an operator can restore it until it is purged. The objects of a block without
//! listed parts are removed after that.
//!
//! Each tenant and tier has its own retention. Raw rows that no tier holds stay while a longer-lived tier lacks them.

use std::collections::{BTreeMap, BTreeSet};

use athanor_chassis::{TenantId, Tier, Timestamp};
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, BlockId, TenantSpan};
use crate::state::block_lifecycle::block_set::BlockSet;
use crate::state::block_lifecycle::expiration_budget::{ExpiredParts, PartsByRetention};
use crate::state::block_lifecycle::removed_times::{ProfileTimeRange, RemovedTimes};
use crate::state::block_lifecycle::retention_policy::RetentionPolicy;
use crate::state::persistent_map::PersistentMap;
use crate::state::{CatalogState, CommandError, CommandOutcome};

/// Limit of blocks that one command expires.
pub const MAX_EXPIRED_PER_COMMAND: usize = 256;
/// Limit of expired blocks that one report names.
pub const MAX_EXPIRED_PER_REPORT: usize = 1_000;
/// Limit of tenants with purged time ranges of their own. Above it the tenants that sort first share one range
/// per tier.
pub const MAX_PURGED_TENANTS: usize = 65_536;
/// State of the removal of blocks by age.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::state) struct Retention {
    /// Expired parts that can be restored. Their blocks have tombstones, or are listed with other parts.
    expired: BlockSet,
    /// Time at which the last of these parts expired, by block. Absent for blocks that expired in an older
    /// version.
    #[serde(default)]
    expired_at: PersistentMap<BlockId, Timestamp>,
    /// Restoration times of blocks, as older versions wrote them. Empty after decoding.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    restored: BTreeMap<BlockId, Timestamp>,
    /// Times of purged profiles by tenant.
    purged: PersistentMap<TenantId, RemovedTimes>,
    /// Times of purged profiles of all tenants that have no entry in `purged`.
    purged_of_others: RemovedTimes,
    /// Start of the current budget period.
    period_start: Timestamp,
    /// Parts that expired in the current budget period.
    expired_in_period: ExpiredParts,
}

/// Ages of all blocks at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgeReport {
    /// Time of the catalog.
    pub time: Timestamp,
    /// Number of listed blocks.
    pub blocks: usize,
    /// Number of listed blocks with parts past their retention that may expire.
    pub overdue: usize,
    /// Number of raw blocks with parts past their retention that stay, because a longer-lived tier lacks their
    /// rows.
    pub kept_for_tiers: usize,
    /// Newest time of the oldest of these parts.
    pub oldest_kept_for_tiers: Option<Timestamp>,
    /// Number of blocks with expired parts that can be restored.
    pub restorable: usize,
    /// The first of these blocks to expire, at most [`MAX_EXPIRED_PER_REPORT`].
    pub expired: Vec<ExpiredBlock>,
}

/// Block with expired parts that can be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpiredBlock {
    /// Time at which the last of them expired.
    pub since: Timestamp,
    /// Id of the block.
    pub block: BlockId,
}

/// Listed block with parts past their retention.
#[derive(Debug)]
struct OverdueBlock {
    block: BlockId,
    tier: Tier,
    /// Tenants whose parts may expire.
    expirable: Vec<TenantId>,
    /// Newest time of the oldest raw part that stays, because a longer-lived tier lacks its rows.
    oldest_kept_for_tiers: Option<Timestamp>,
}

impl Retention {
    pub(in crate::state) fn is_expired(&self, block: &BlockId) -> bool {
        self.expired.contains_key(block)
    }

    /// Adds parts that left the listing because of their age.
    fn insert_expired(&mut self, parts: BlockEntry, now: Timestamp) {
        let id = parts.id;
        let parts = match self.expired.remove(&id) {
            Some(earlier) => earlier.join_parts(parts),
            None => parts,
        };
        self.expired.insert(id, parts);
        self.expired_at.insert(id, now);
    }

    /// Removes the expired parts of a block.
    fn take_expired(&mut self, id: &BlockId) -> Option<BlockEntry> {
        self.expired_at.remove(id);
        self.expired.remove(id)
    }

    /// Records the time ranges of a purged block's profiles.
    pub(in crate::state) fn record_purged(&mut self, block: &BlockEntry) {
        for span in &block.tenants {
            let mut known = self.purged.get(&span.tenant).cloned().unwrap_or_default();
            known.add(block, ProfileTimeRange::from_span(span));
            self.purged.insert(span.tenant.clone(), known);
        }
        self.limit_purged_tenants();
    }

    /// Joins the times of the tenants that sort first, while there are too many.
    fn limit_purged_tenants(&mut self) {
        while self.purged.len() > MAX_PURGED_TENANTS
            && let Some(times) = self.purged.pop_first()
        {
            self.purged_of_others.add_all(&times);
        }
    }

    /// Records times of a tenant's rows that were removed from a tier.
    pub(in crate::state) fn record_removed_times(
        &mut self,
        tenant: &TenantId,
        tier: Tier,
        times: ProfileTimeRange,
    ) {
        let mut known = self.purged.get(tenant).cloned().unwrap_or_default();
        known.add_tier(tier, times);
        self.purged.insert(tenant.clone(), known);
        self.limit_purged_tenants();
    }

    /// Returns the times of a tenant's profiles that no tier holds any more, if a range overlaps them: rows
    /// that were removed before a tier held them, and rows that every tier lost.
    pub(in crate::state) fn removed_times(
        &self,
        tenant: &TenantId,
        from: i64,
        to: i64,
    ) -> Option<ProfileTimeRange> {
        let blocks = self.expired.blocks_between(tenant, from, to).into_iter();
        let uncovered = blocks.filter(|block| block.is_uncovered());
        let spans = uncovered.filter_map(|block| block.tenant_span(tenant));
        let expired = spans.map(ProfileTimeRange::from_span);
        let purged = self.purged_times(tenant).uncovered_in(from, to);
        let lost = self.all_removed_times(tenant).lost_in_all_tiers();
        let lost = lost.filter(|times| times.overlaps(from, to));
        expired.chain(purged).chain(lost).reduce(ProfileTimeRange::union)
    }

    /// Returns the latest time of a tenant's profiles that were removed by age, for each tier with such ones.
    pub(in crate::state) fn expired_until(&self, tenant: &TenantId) -> BTreeMap<Tier, i64> {
        self.all_removed_times(tenant).latest_by_tier()
    }

    fn purged_times(&self, tenant: &TenantId) -> &RemovedTimes {
        self.purged.get(tenant).unwrap_or(&self.purged_of_others)
    }

    /// Returns the times of a tenant's expired and purged profiles.
    fn all_removed_times(&self, tenant: &TenantId) -> RemovedTimes {
        let mut times = self.purged_times(tenant).clone();
        for block in self.expired.blocks_between(tenant, i64::MIN, i64::MAX) {
            if let Some(span) = block.tenant_span(tenant) {
                times.add(block, ProfileTimeRange::from_span(span));
            }
        }
        times
    }

    /// Forgets parts of an expired block that a job took after the block was restored.
    pub(in crate::state) fn forget_expired_parts(&mut self, id: &BlockId, tenants: &BTreeSet<&TenantId>) {
        self.expired.remove_parts(id, tenants);
        if self.expired.get(id).is_some_and(|block| block.tenants.is_empty()) {
            self.take_expired(id);
        }
    }

    /// Purges expired blocks that have no objects in the bucket any more.
    pub(in crate::state) fn purge_absent(&mut self, bucket: &BTreeSet<BlockId>) {
        let absent: Vec<BlockId> =
            self.expired.keys().filter(|block| !bucket.contains(*block)).copied().collect();
        self.purge_expired(&absent);
    }

    /// Makes expired blocks unrestorable and returns their number. Others are skipped.
    fn purge_expired(&mut self, blocks: &[BlockId]) -> usize {
        let purged: Vec<BlockEntry> = blocks.iter().filter_map(|block| self.take_expired(block)).collect();
        purged.iter().for_each(|block| self.record_purged(block));
        purged.len()
    }

    /// Returns the first violated rule.
    pub(in crate::state) fn check(&self, state: &CatalogState) -> Result<(), String> {
        for block in self.expired.values() {
            let id = block.id;
            let listed = state.blocks.get(&id);
            if listed.is_some() == state.tombstones.contains_key(&id) {
                return Err(format!(
                    "block {id} has expired parts, and neither a tombstone nor a listed part"
                ));
            }
            let is_listed =
                |span: &TenantSpan| listed.is_some_and(|block| block.tenant_span(&span.tenant).is_some());
            if block.tenants.is_empty() || block.tenants.iter().any(is_listed) {
                return Err(format!("block {id} has expired parts that are listed, or none"));
            }
        }
        match self.purged.len() <= MAX_PURGED_TENANTS {
            true => Ok(()),
            false => Err(format!("there are purged times of {} tenants", self.purged.len())),
        }
    }
}

impl CatalogState {
    /// Expires parts past their retention, at most a share of them per hour. Without a share it expires the parts
    /// of up to [`MAX_EXPIRED_PER_COMMAND`] blocks. The result is the number of blocks that lost parts.
    pub(in crate::state) fn expire_blocks(
        &mut self,
        policy: &RetentionPolicy,
        max_percent: Option<u8>,
    ) -> CommandOutcome {
        let mut overdue = self.overdue_blocks(self.now, policy);
        overdue.retain(|block| !block.expirable.is_empty());
        if overdue.is_empty() {
            return CommandOutcome::from_count(0);
        }
        let allowed = match max_percent {
            Some(max_percent) => self.take_expiration_budget(overdue, policy, max_percent),
            None => overdue,
        };
        let mut count = 0;
        for OverdueBlock { block, expirable, .. } in allowed.into_iter().take(MAX_EXPIRED_PER_COMMAND) {
            if let Some(parts) = self.unlist_parts(&block, &expirable.iter().collect()) {
                self.retention.insert_expired(parts, self.now);
                count += 1;
            }
        }
        CommandOutcome::from_count(count)
    }

    /// Returns the parts that may expire in the current period, and counts them. Oldest blocks come first.
    fn take_expiration_budget(
        &mut self,
        overdue: Vec<OverdueBlock>,
        policy: &RetentionPolicy,
        max_percent: u8,
    ) -> Vec<OverdueBlock> {
        let mut listed = PartsByRetention::new();
        for (tenant, tier, parts) in self.blocks.part_counts() {
            let retention = policy.of_tenant(tenant).of_tier(tier);
            *listed.entry(retention.as_secs()).or_default() += parts;
        }
        let Retention { expired_in_period, period_start, .. } = &mut self.retention;
        let mut budget = expired_in_period.budget(self.now, period_start, &listed, max_percent);
        let mut allowed = Vec::new();
        for mut block in overdue {
            let tier = block.tier;
            block.expirable.retain(|tenant| budget.take(policy.of_tenant(tenant).of_tier(tier)));
            if !block.expirable.is_empty() {
                allowed.push(block);
            }
            if allowed.len() == MAX_EXPIRED_PER_COMMAND {
                break;
            }
        }
        allowed
    }

    /// Lists the expired parts of the named blocks again, or of all blocks if none is named. Their age counts
    /// from now. Parts stay expired if a listed block may hold their rows.
    pub(in crate::state) fn restore_blocks(
        &mut self,
        blocks: Vec<BlockId>,
    ) -> Result<CommandOutcome, CommandError> {
        // A retry names blocks that are listed already.
        let is_listed = |block: &BlockId| self.blocks.contains_key(block);
        let unknown = |block: &BlockId| !self.retention.is_expired(block) && !is_listed(block);
        if let Some(block) = blocks.iter().copied().find(unknown) {
            return Err(CommandError::NotExpired(block));
        }
        let chosen = match blocks.is_empty() {
            true => self.retention.expired.keys().copied().collect(),
            false => blocks,
        };
        let mut count = 0;
        for id in chosen {
            let is_free = |expired: &BlockEntry| {
                !self.blocks.values().any(|other| other.id != id && other.conflicts_with(expired))
            };
            if !self.retention.expired.get(&id).is_some_and(is_free) {
                continue;
            }
            let Some(mut block) = self.retention.take_expired(&id) else { continue };
            for span in &mut block.tenants {
                span.newest_arrival = self.now;
            }
            if let Some(listed) = self.blocks.remove(&id) {
                block = block.join_parts(listed);
            }
            self.tombstones.remove(&id);
            self.blocks.insert(id, block);
            count += 1;
        }
        Ok(CommandOutcome::from_count(count))
    }

    /// Makes expired blocks unrestorable, before their objects are removed. Skips blocks with parts that expired
    /// after a time.
    pub(in crate::state) fn purge_blocks(
        &mut self,
        mut blocks: Vec<BlockId>,
        expired_before: Timestamp,
    ) -> CommandOutcome {
        blocks.retain(|block| self.last_expired_at(block) <= expired_before);
        CommandOutcome::from_count(self.retention.purge_expired(&blocks))
    }

    /// Returns the blocks with parts past their retention, oldest first. Uncovered raw rows stay for longer tiers
    /// [INV-23]. Visits the blocks with a part that is older than the shortest retention.
    fn overdue_blocks(&self, now: Timestamp, policy: &RetentionPolicy) -> Vec<OverdueBlock> {
        let Some(shortest) = policy.shortest() else { return Vec::new() };
        let ages = self.blocks.oldest_first().take_while(|age| now.since(age.newest) > shortest);
        let blocks = ages.filter_map(|age| self.blocks.get(&age.block));
        blocks.filter_map(|block| overdue_parts(block, now, policy)).collect()
    }

    /// Replaces the restoration times of older versions, from which ages count, by arrivals.
    pub(in crate::state) fn adopt_restorations(&mut self) {
        for (id, time) in std::mem::take(&mut self.retention.restored) {
            let Some(mut block) = self.blocks.remove(&id) else { continue };
            for span in &mut block.tenants {
                span.newest_arrival = span.newest_arrival.max(time);
            }
            self.blocks.insert(id, block);
        }
    }

    /// Returns the time of the newest command.
    pub fn time(&self) -> Timestamp {
        self.now
    }

    /// Returns the ages of all blocks at a time of the catalog.
    pub fn block_ages(&self, time: Timestamp, policy: &RetentionPolicy) -> AgeReport {
        let time = time.max(self.now);
        let overdue = self.overdue_blocks(time, policy);
        let kept_for_tiers = overdue.iter().filter_map(|block| block.oldest_kept_for_tiers);
        AgeReport {
            time,
            blocks: self.blocks.len(),
            overdue: overdue.iter().filter(|block| !block.expirable.is_empty()).count(),
            kept_for_tiers: kept_for_tiers.clone().count(),
            oldest_kept_for_tiers: kept_for_tiers.min(),
            restorable: self.retention.expired.len(),
            expired: self.first_expired_blocks(),
        }
    }

    /// Returns the blocks with expired parts that can be restored, the first to expire first.
    fn first_expired_blocks(&self) -> Vec<ExpiredBlock> {
        let ids = self.retention.expired.keys();
        let mut expired: Vec<ExpiredBlock> =
            ids.map(|block| ExpiredBlock { since: self.last_expired_at(block), block: *block }).collect();
        expired.sort_unstable();
        expired.truncate(MAX_EXPIRED_PER_REPORT);
        expired
    }

    /// Returns the time at which the last expired part of a block expired.
    fn last_expired_at(&self, block: &BlockId) -> Timestamp {
        let known = self.retention.expired_at.get(block).copied();
        let tombstoned_at = || self.tombstones.get(block).map(|tombstone| tombstone.since);
        known.or_else(tombstoned_at).unwrap_or(self.now)
    }
}

/// Returns the parts of a block past their retention. None if there are none.
fn overdue_parts(block: &BlockEntry, now: Timestamp, policy: &RetentionPolicy) -> Option<OverdueBlock> {
    let mut overdue = OverdueBlock {
        block: block.id,
        tier: block.tier,
        expirable: Vec::new(),
        oldest_kept_for_tiers: None,
    };
    for span in &block.tenants {
        let newest = block.part_newest_time(span);
        let retention = policy.of_part(&span.tenant, block.tier);
        if !retention.is_exceeded_by(now.since(newest)) {
            continue;
        }
        if block.is_uncovered() && policy.keeps_tiers_longer(&span.tenant) {
            let oldest = overdue.oldest_kept_for_tiers.get_or_insert(newest);
            *oldest = newest.min(*oldest);
        } else {
            overdue.expirable.push(span.tenant.clone());
        }
    }
    let is_overdue = !overdue.expirable.is_empty() || overdue.oldest_kept_for_tiers.is_some();
    is_overdue.then_some(overdue)
}
