//! Removal of blocks by age.
//!
//! ```text
//!  listed ──Expire──► expired ──Purge──► purged: its objects are removed, listings name the time range
//!     ▲                  │
//!     └─────Restore──────┘
//! ```
//! Age is measured with the catalog's own time, which no single clock decides. An expired block is in no
//! listing. Its entry is kept, so an operator can restore it until its objects are removed.
//!
//! Each tier has its own retention. Raw rows that no tier holds stay while a longer-lived tier lacks them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_chassis::{TenantId, Tier, Timestamp};
use serde::{Deserialize, Serialize};

use crate::block::{BlockEntry, BlockId};
use crate::state::block_lifecycle::block_set::{BlockAge, BlockSet};
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
/// Period in which the share of expired blocks is counted.
const BUDGET_PERIOD: Duration = Duration::from_secs(3600);

/// State of the removal of blocks by age.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::state) struct Retention {
    /// Expired blocks that can be restored. All of them have tombstones.
    expired: BlockSet,
    /// Restoration times of listed blocks. The age of a block counts from its restoration.
    restored: PersistentMap<BlockId, Timestamp>,
    /// Times of purged profiles by tenant.
    purged: PersistentMap<TenantId, RemovedTimes>,
    /// Times of purged profiles of all tenants that have no entry in `purged`.
    purged_of_others: RemovedTimes,
    /// Start of the current budget period.
    period_start: Timestamp,
    /// Blocks that expired in the current budget period.
    expired_in_period: usize,
}

/// Ages of all blocks at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgeReport {
    /// Time of the catalog.
    pub time: Timestamp,
    /// Number of listed blocks.
    pub blocks: usize,
    /// Number of listed blocks past their retention that may expire.
    pub overdue: usize,
    /// Number of raw blocks past their retention that stay, because a longer-lived tier lacks their rows.
    pub kept_for_tiers: usize,
    /// Newest time of the oldest of these blocks.
    pub oldest_kept_for_tiers: Option<Timestamp>,
    /// Number of expired blocks that can be restored.
    pub restorable: usize,
    /// The first of these blocks to expire, at most [`MAX_EXPIRED_PER_REPORT`].
    pub expired: Vec<ExpiredBlock>,
}

/// Expired block that can be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpiredBlock {
    /// Time of the expiration.
    pub since: Timestamp,
    /// Id of the block.
    pub block: BlockId,
}

/// Blocks past their retention, oldest first.
#[derive(Debug, Default)]
struct OverdueBlocks {
    /// Blocks that may expire.
    expirable: Vec<BlockId>,
    /// Raw blocks whose rows a longer-lived tier lacks, with their newest times.
    kept_for_tiers: Vec<BlockAge>,
}

impl Retention {
    pub(in crate::state) fn is_expired(&self, block: &BlockId) -> bool {
        self.expired.contains_key(block)
    }

    /// Returns the start of a listed block's age: the latest of its data, their arrival and its restoration.
    pub(in crate::state) fn newest_time(&self, block: &BlockEntry) -> Timestamp {
        let newest = block.newest_time();
        self.restored.get(&block.id).map_or(newest, |restored| newest.max(*restored))
    }

    /// Returns the restoration time of a listed block.
    pub(in crate::state) fn restoration(&self, block: &BlockId) -> Option<Timestamp> {
        self.restored.get(block).copied()
    }

    /// Records the restoration time of a listed block.
    pub(in crate::state) fn record_restoration(&mut self, block: BlockId, time: Timestamp) {
        self.restored.insert(block, time);
    }

    /// Forgets the restoration time of a block that leaves the listing.
    pub(in crate::state) fn forget_restoration(&mut self, block: &BlockId) {
        self.restored.remove(block);
    }

    /// Records the time ranges of a purged block's profiles.
    pub(in crate::state) fn record_purged(&mut self, block: &BlockEntry) {
        for span in &block.tenants {
            let mut known = self.purged.get(&span.tenant).cloned().unwrap_or_default();
            known.add(block, ProfileTimeRange::from_span(span));
            self.purged.insert(span.tenant.clone(), known);
        }
        while self.purged.len() > MAX_PURGED_TENANTS
            && let Some(times) = self.purged.pop_first()
        {
            self.purged_of_others.add_all(&times);
        }
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
            self.expired.remove(id);
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
        let purged: Vec<BlockEntry> = blocks.iter().filter_map(|block| self.expired.remove(block)).collect();
        purged.iter().for_each(|block| self.record_purged(block));
        purged.len()
    }

    /// Returns the number of blocks that may still expire in the current budget period. The budget covers at
    /// least twice the even pace at which blocks become overdue. So a short retention does not fall behind.
    fn remaining_budget(
        &mut self,
        now: Timestamp,
        listed: usize,
        retention: Duration,
        max_percent: u8,
    ) -> usize {
        if now.since(self.period_start) >= BUDGET_PERIOD {
            self.period_start = now;
            self.expired_in_period = 0;
        }
        let all = listed.saturating_add(self.expired_in_period) as u128;
        let by_percent = (all * u128::from(max_percent.min(100))).div_ceil(100);
        let even_pace = (all * 2 * BUDGET_PERIOD.as_nanos()).div_ceil(retention.as_nanos().max(1));
        let allowed = usize::try_from(by_percent.max(even_pace).min(all)).unwrap_or(usize::MAX);
        allowed.saturating_sub(self.expired_in_period)
    }

    /// Returns the first violated rule.
    pub(in crate::state) fn check(&self, state: &CatalogState) -> Result<(), String> {
        let stray = self
            .expired
            .keys()
            .find(|block| !state.tombstones.contains_key(*block) || state.blocks.contains_key(block));
        if let Some(block) = stray {
            return Err(format!("block {block} is expired, but has no tombstone, or is listed"));
        }
        match self.purged.len() <= MAX_PURGED_TENANTS {
            true => Ok(()),
            false => Err(format!("there are purged times of {} tenants", self.purged.len())),
        }
    }
}

impl CatalogState {
    /// Expires blocks past their retention, at most a share of all blocks per hour. Without a share it
    /// expires up to [`MAX_EXPIRED_PER_COMMAND`] blocks.
    pub(in crate::state) fn expire_blocks(
        &mut self,
        policy: &RetentionPolicy,
        max_percent: Option<u8>,
    ) -> CommandOutcome {
        let OverdueBlocks { expirable: overdue, .. } = self.overdue_blocks(self.now, policy);
        if overdue.is_empty() {
            return CommandOutcome::from_count(0);
        }
        let now = self.now;
        let listed = self.blocks.len();
        let shortest = policy.shortest().unwrap_or(Duration::MAX);
        let allowed = max_percent
            .map_or(usize::MAX, |percent| self.retention.remaining_budget(now, listed, shortest, percent));
        let mut count = 0;
        for id in overdue.into_iter().take(allowed.min(MAX_EXPIRED_PER_COMMAND)) {
            if let Some(block) = self.unlist_block(&id) {
                self.retention.expired.insert(id, block);
                count += 1;
            }
        }
        if max_percent.is_some() {
            self.retention.expired_in_period += count;
        }
        CommandOutcome::from_count(count)
    }

    /// Lists the named expired blocks again, or all expired blocks if none is named.
    pub(in crate::state) fn restore_blocks(
        &mut self,
        blocks: Vec<BlockId>,
    ) -> Result<CommandOutcome, CommandError> {
        let is_listed = |block: &BlockId| self.retention.restored.contains_key(block);
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
            // After a rebuild of the catalog a listed block may hold the same rows.
            let is_free = |block: &BlockEntry| !self.blocks.values().any(|other| other.conflicts_with(block));
            if let Some(block) = self.retention.expired.get(&id).filter(|block| is_free(block)).cloned() {
                self.retention.expired.remove(&id);
                self.tombstones.remove(&id);
                self.blocks.insert(id, block);
                self.retention.restored.insert(id, self.now);
                count += 1;
            }
        }
        Ok(CommandOutcome::from_count(count))
    }

    /// Makes expired blocks unrestorable, before their objects are removed.
    pub(in crate::state) fn purge_blocks(&mut self, blocks: Vec<BlockId>) -> CommandOutcome {
        CommandOutcome::from_count(self.retention.purge_expired(&blocks))
    }

    /// Returns the blocks past their retention. Uncovered raw rows stay for longer tiers [INV-23]. Visits the blocks that are older than the shortest retention.
    fn overdue_blocks(&self, now: Timestamp, policy: &RetentionPolicy) -> OverdueBlocks {
        let mut overdue = OverdueBlocks::default();
        let Some(shortest) = policy.shortest() else { return overdue };
        for age in self.blocks.oldest_first().take_while(|age| now.since(age.newest) > shortest) {
            let Some(block) = self.blocks.get(&age.block) else { continue };
            let newest = self.retention.newest_time(block);
            if !policy.of_block(block).is_exceeded_by(now.since(newest)) {
                continue;
            }
            match policy.keeps_for_tiers(block) {
                true => overdue.kept_for_tiers.push(age),
                false => overdue.expirable.push(age.block),
            }
        }
        overdue
    }

    /// Returns the time of the newest command.
    pub fn time(&self) -> Timestamp {
        self.now
    }

    /// Returns the ages of all blocks at a time of the catalog.
    pub fn block_ages(&self, time: Timestamp, policy: &RetentionPolicy) -> AgeReport {
        let time = time.max(self.now);
        let overdue = self.overdue_blocks(time, policy);
        AgeReport {
            time,
            blocks: self.blocks.len(),
            overdue: overdue.expirable.len(),
            kept_for_tiers: overdue.kept_for_tiers.len(),
            oldest_kept_for_tiers: overdue.kept_for_tiers.first().map(|age| age.newest),
            restorable: self.retention.expired.len(),
            expired: self.first_expired_blocks(),
        }
    }

    /// Returns the expired blocks that can be restored, the first to expire first.
    fn first_expired_blocks(&self) -> Vec<ExpiredBlock> {
        let since =
            |block: &BlockId| self.tombstones.get(block).map_or(self.now, |tombstone| tombstone.since);
        let ids = self.retention.expired.keys();
        let mut expired: Vec<ExpiredBlock> =
            ids.map(|block| ExpiredBlock { since: since(block), block: *block }).collect();
        expired.sort_unstable();
        expired.truncate(MAX_EXPIRED_PER_REPORT);
        expired
    }
}
