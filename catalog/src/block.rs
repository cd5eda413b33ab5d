//! Entries of blocks in the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use athanor_chassis::{Random, TenantId, Tier, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Id of a shard, derived from slot and epoch and never reused.
pub type ShardId = u32;

/// Id of a block: creation time in milliseconds, then 80 random bits. Ids sort by time and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u128);

/// Catalog entry of one block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockEntry {
    /// Id of the block.
    pub id: BlockId,
    /// Shard that flushed the block. For a merged block: the first shard of its inputs.
    pub shard: ShardId,
    /// Epoch of that shard.
    pub epoch: u32,
    /// Start of the log range, exclusive: the last index before the block.
    pub from: u64,
    /// Last log index in the block.
    pub to: u64,
    /// Size in the bucket, in bytes.
    pub bytes: u64,
    /// Number of samples in the block.
    pub samples: u64,
    /// Number of acknowledged entries of the range that were lost to damage before the flush. Their tenants
    /// are unknown.
    pub lost: u64,
    /// Level of the windows that the block was merged for, 0 for a flushed block. A flushed block is written
    /// with the rows of all tenants in its range. Several merged blocks can cover one range, each with other
    /// tenants or times.
    #[serde(default, skip_serializing_if = "is_flushed_level")]
    pub level: u8,
    /// Log ranges of a merged block after the first one. Empty for a flushed block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_ranges: Vec<ShardLogRange>,
    /// Token of the job that merged the block. Absent for a flushed block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// Tier of the rows. Blocks of several tenants are raw.
    #[serde(default, skip_serializing_if = "Tier::is_raw")]
    pub tier: Tier,
    /// True if all downsampled tiers hold the rows of a raw block. Such a block has one tenant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_covered: bool,
    /// Listed parts of the block, one per tenant. A part that was merged into another block is removed here,
    /// although its rows stay in the block's files.
    pub tenants: Vec<TenantSpan>,
}

/// Range of a shard's log: the entries after one index and up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardLogRange {
    /// Id of the shard.
    pub shard: ShardId,
    /// Epoch of the shard.
    pub epoch: u32,
    /// Index before the first entry.
    pub from: u64,
    /// Index of the last entry.
    pub to: u64,
}

/// Rows of one tenant in a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantSpan {
    /// Tenant that owns the rows.
    pub tenant: TenantId,
    /// Time of the earliest profile, Unix nanoseconds.
    pub min_time: i64,
    /// Time of the latest profile, Unix nanoseconds.
    pub max_time: i64,
    /// Number of the tenant's profiles.
    pub profiles: u64,
    /// Number of the tenant's samples.
    pub samples: u64,
    /// Sum of all sample values, modulo 2^64. Absent in blocks of format 1, which do not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<u64>,
    /// Newest arrival of the rows, or their restoration after they expired. The epoch for a flushed block, whose
    /// id has the time of the flush.
    #[serde(default, skip_serializing_if = "is_epoch")]
    pub newest_arrival: Timestamp,
}

/// Part of a block: the rows of one tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartId {
    /// Block that holds the rows.
    pub block: BlockId,
    /// Tenant that owns the rows.
    pub tenant: TenantId,
}

/// Rows that a job read and did not write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DroppedRows {
    /// Tenant that owns the rows.
    pub tenant: TenantId,
    /// Reason for dropping them.
    pub reason: DropReason,
    /// Number of profiles.
    pub profiles: u64,
    /// Number of samples.
    pub samples: u64,
    /// Sum of the sample values, modulo 2^64.
    pub sum: u64,
    /// True if the rows are of covered parts, so that the tiers keep holding them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_covered: bool,
}

/// Reason for which a job drops rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// Another row of the job has the same id.
    Duplicate,
    /// The rows are past their retention.
    Expired,
    /// The rows were deleted on request.
    Deleted,
}

/// Lowest level of which each block holds one tenant and lies in that tenant's folder.
pub const TENANT_FOLDER_LEVEL: u8 = 2;

const RANDOM_BITS: u32 = 80;

impl BlockId {
    /// Generates a new id that begins with the current time.
    pub fn new(now: Timestamp, random: &Random) -> Self {
        let randomness = u128::from(random.next_u64()) << 16 | u128::from(random.next_u64() & 0xffff);
        Self((now.millis().max(0) as u128) << RANDOM_BITS | randomness)
    }
    /// Creates an id from its 128-bit number.
    pub const fn from_number(number: u128) -> Self {
        Self(number)
    }
    /// Returns the smallest id that can be generated at a time.
    pub fn earliest_at(at: Timestamp) -> Self {
        Self((at.millis().max(0) as u128) << RANDOM_BITS)
    }
    /// Returns the id as a 128-bit number.
    pub const fn number(self) -> u128 {
        self.0
    }
    /// Returns the time at which the id was generated, in whole milliseconds.
    pub fn named_at(self) -> Timestamp {
        Timestamp::UNIX_EPOCH.plus(Duration::from_millis((self.0 >> RANDOM_BITS) as u64))
    }
}

/// Returns whether a time is the epoch, which stands for an absent time.
fn is_epoch(time: &Timestamp) -> bool {
    *time == Timestamp::UNIX_EPOCH
}

impl TenantSpan {
    /// Returns whether the rows overlap a time range, both ends included.
    fn overlaps(&self, from: i64, to: i64) -> bool {
        self.max_time >= from && self.min_time <= to
    }
}

/// Returns whether a block of this level was flushed, not merged.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in references")]
fn is_flushed_level(level: &u8) -> bool {
    *level == 0
}

impl ShardLogRange {
    /// Returns whether both ranges contain a common entry.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.shard == other.shard && self.from < other.to && other.from < self.to
    }

    /// Returns whether this range contains all entries of another.
    pub fn contains(&self, other: &Self) -> bool {
        self.shard == other.shard && self.from <= other.from && other.to <= self.to
    }

    /// Sorts ranges by shard and index, and joins those that touch or overlap.
    pub fn join_adjacent(rows: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut rows: Vec<Self> = rows.into_iter().collect();
        rows.sort_unstable();
        let mut joined: Vec<Self> = Vec::new();
        for next in rows {
            match joined.last_mut().filter(|last| last.shard == next.shard && next.from <= last.to) {
                Some(last) => last.to = last.to.max(next.to),
                None => joined.push(next),
            }
        }
        joined
    }
}

impl BlockEntry {
    /// Estimates a tenant's share of the block in bytes, by its share of the profiles.
    pub fn tenant_bytes(&self, tenant: &TenantId) -> u64 {
        let all: u128 = self.tenants.iter().map(|span| u128::from(span.profiles)).sum();
        let profiles = self.tenant_span(tenant).map_or(0, |span| u128::from(span.profiles));
        // The result is a share of all bytes, which fit into a `u64`.
        (u128::from(self.bytes) * profiles).checked_div(all).map_or(0, |bytes| bytes as u64)
    }

    /// Returns whether tier and coverage fit the level: only merged blocks of one tenant are downsampled, and
    /// only raw ones of them are covered.
    pub fn has_valid_tier(&self) -> bool {
        match self.tier.is_raw() {
            true => !self.is_covered || self.level >= TENANT_FOLDER_LEVEL,
            false => !self.is_covered && self.level >= TENANT_FOLDER_LEVEL,
        }
    }

    /// Returns whether the tiers lack the rows of a raw block.
    pub fn is_uncovered(&self) -> bool {
        self.tier.is_raw() && !self.is_covered
    }

    /// Returns all log ranges of the block, the first one included.
    pub fn log_ranges(&self) -> impl Iterator<Item = ShardLogRange> {
        let &Self { shard, epoch, from, to, .. } = self;
        std::iter::once(ShardLogRange { shard, epoch, from, to })
            .chain(self.additional_ranges.iter().copied())
    }

    /// Returns the tenant whose folder in the bucket holds the block's objects. Absent for the shared folder.
    pub fn folder_tenant(&self) -> Option<&TenantId> {
        let owner = self.tenants.first().filter(|_| self.level >= TENANT_FOLDER_LEVEL);
        owner.map(|span| &span.tenant)
    }

    /// Returns the newest arrival of a part's rows. The rows of a flushed block arrived before its id was
    /// generated.
    pub fn newest_arrival(&self, span: &TenantSpan) -> Timestamp {
        match self.level {
            0 => span.newest_arrival.max(self.id.named_at()),
            _ => span.newest_arrival,
        }
    }

    /// Returns the start of a part's age: the latest of its data and their arrival. A merge does not restart it.
    pub fn part_newest_time(&self, span: &TenantSpan) -> Timestamp {
        Timestamp::from_nanos(span.max_time).max(self.newest_arrival(span))
    }

    /// Returns the start of the block's age, that of its newest part. A flushed block without parts arrived
    /// before its id was generated.
    pub fn newest_time(&self) -> Timestamp {
        let newest = self.tenants.iter().map(|span| self.part_newest_time(span)).max();
        newest.unwrap_or_else(|| self.id.named_at())
    }

    /// Returns the start of the age of the block's oldest part.
    pub(crate) fn oldest_part_time(&self) -> Timestamp {
        let oldest = self.tenants.iter().map(|span| self.part_newest_time(span)).min();
        oldest.unwrap_or_else(|| self.id.named_at())
    }

    /// Returns the block with the parts of another entry of it added.
    pub(crate) fn join_parts(mut self, other: Self) -> Self {
        self.tenants.extend(other.tenants);
        self.tenants.sort_unstable_by(|one, other| one.tenant.cmp(&other.tenant));
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.samples = self.samples.saturating_add(other.samples);
        self.lost = self.lost.saturating_add(other.lost);
        self
    }

    /// Returns whether a flushed block and another block may hold the same row. A merge takes whole parts, so
    /// the log ranges decide. Two merged blocks of one range can hold different times, so only the jobs that
    /// wrote them tell them apart; they never conflict here. Blocks of different tiers share no row.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        match (self.level, other.level) {
            _ if self.tier != other.tier => false,
            (0, 0) => self.overlaps_log_ranges(other),
            (0, _) | (_, 0) => self.overlaps_log_ranges(other) && self.shares_tenant(other),
            _ => false,
        }
    }

    /// Returns whether both blocks may hold the same row, for a block whose inputs are unknown. Merged blocks
    /// hold different rows if one job wrote both, if they are of different tiers, or if no tenant has rows of
    /// one time in both.
    pub fn may_share_rows_with(&self, other: &Self) -> bool {
        let is_of_same_job = self.job.is_some() && self.job == other.job;
        let is_merged = self.level > 0 && other.level > 0 && self.tier == other.tier;
        self.conflicts_with(other)
            || (is_merged && !is_of_same_job && self.overlaps_log_ranges(other) && self.shares_times(other))
    }

    /// Returns whether both blocks have a log entry in common. Requires that the ranges of each are in order.
    fn overlaps_log_ranges(&self, other: &Self) -> bool {
        let mut one = self.log_ranges().peekable();
        let mut two = other.log_ranges().peekable();
        while let (Some(rows), Some(others)) = (one.peek(), two.peek()) {
            if rows.overlaps(others) {
                return true;
            }
            if (rows.shard, rows.to) <= (others.shard, others.to) {
                one.next();
            } else {
                two.next();
            }
        }
        false
    }

    fn shares_tenant(&self, other: &Self) -> bool {
        let tenants: BTreeSet<&TenantId> = self.tenants.iter().map(|span| &span.tenant).collect();
        other.tenants.iter().any(|span| tenants.contains(&span.tenant))
    }

    /// Returns whether a tenant's times in both blocks overlap.
    fn shares_times(&self, other: &Self) -> bool {
        let spans: BTreeMap<&TenantId, &TenantSpan> =
            self.tenants.iter().map(|span| (&span.tenant, span)).collect();
        let overlaps = |span: &TenantSpan| {
            spans.get(&span.tenant).is_some_and(|own| own.overlaps(span.min_time, span.max_time))
        };
        other.tenants.iter().any(overlaps)
    }

    /// Returns whether this block's log ranges contain all entries of another block.
    pub fn covers_log_ranges_of(&self, other: &Self) -> bool {
        other.log_ranges().all(|others| self.log_ranges().any(|rows| rows.contains(&others)))
    }

    /// Returns a tenant's rows in the block. The search is binary if the spans are sorted by tenant.
    pub fn tenant_span(&self, tenant: &TenantId) -> Option<&TenantSpan> {
        match self.tenants.binary_search_by(|span| span.tenant.cmp(tenant)) {
            Ok(index) => self.tenants.get(index),
            Err(_) => self.tenants.iter().find(|span| span.tenant == *tenant),
        }
    }

    /// Returns a tenant's rows if they overlap a time range, both ends included.
    pub fn tenant_span_between(&self, tenant: &TenantId, from: i64, to: i64) -> Option<&TenantSpan> {
        self.tenant_span(tenant).filter(|span| span.overlaps(from, to))
    }
    /// Returns the time of the latest profile, Unix nanoseconds.
    pub fn max_time(&self) -> i64 {
        self.tenants.iter().map(|span| span.max_time).max().unwrap_or(i64::MIN)
    }
}

impl fmt::Display for PartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part of tenant {} in block {}", self.tenant, self.block)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for BlockId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl Serialize for BlockId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlockId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
