//! What the catalogue knows of a block.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use athanor_chassis::{Random, TenantId, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::state::ShardId;

/// The name of a block: when it was named, in milliseconds, then chance. Sorts by time; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u128);

/// One block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockEntry {
    /// Its name.
    pub id: BlockId,
    /// The shard that it was cut from; of one that was made of others, the first of them.
    pub shard: ShardId,
    /// The shard's epoch.
    pub epoch: u32,
    /// Where its range of the log begins: the first index that is not in it, going back.
    pub from: u64,
    /// The last index in it.
    pub to: u64,
    /// Its bytes in the bucket.
    pub bytes: u64,
    /// Its samples.
    pub samples: u64,
    /// Entries of its range that were acknowledged and lost to damage before it was cut: whose rows they were is not
    /// known.
    #[serde(default)]
    pub lost: u64,
    /// How often its rows were merged: never, if it was cut. One that was cut holds the rows of all tenants in its range;
    /// of those that were made of others several may hold one range, each for tenants of its own.
    #[serde(default, skip_serializing_if = "is_cut")]
    pub level: u8,
    /// What it holds of logs beside the first range: only of one that was made of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<ShardLogRange>,
    /// Whose rows it holds, by tenant.
    pub tenants: Vec<TenantSpan>,
}

/// Entries of a shard's log after one index and up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardLogRange {
    /// The shard.
    pub shard: ShardId,
    /// Its epoch.
    pub epoch: u32,
    /// The index before the first.
    pub from: u64,
    /// The last.
    pub to: u64,
}

/// One tenant's rows in a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantSpan {
    /// The tenant.
    pub tenant: TenantId,
    /// Time of the earliest profile, Unix nanoseconds.
    pub min_time: i64,
    /// Time of the latest.
    pub max_time: i64,
    /// How many profiles.
    pub profiles: u64,
}

const RANDOM_BITS: u32 = 80;

impl BlockId {
    /// A new name.
    pub fn new(now: Timestamp, random: &Random) -> Self {
        let chance = u128::from(random.next_u64()) << 16 | u128::from(random.next_u64() & 0xffff);
        Self((now.millis().max(0) as u128) << RANDOM_BITS | chance)
    }
    /// From its number.
    pub const fn from_number(number: u128) -> Self {
        Self(number)
    }
    /// The smallest name that may be drawn at a time.
    pub fn earliest_at(at: Timestamp) -> Self {
        Self((at.millis().max(0) as u128) << RANDOM_BITS)
    }
    /// Its number.
    pub const fn number(self) -> u128 {
        self.0
    }
    /// When it was named.
    pub fn named_at(self) -> Timestamp {
        Timestamp::UNIX_EPOCH.plus(Duration::from_millis((self.0 >> RANDOM_BITS) as u64))
    }
}

impl TenantSpan {
    fn overlaps(&self, from: i64, to: i64) -> bool {
        self.max_time >= from && self.min_time <= to
    }
}

/// Whether a block of this level was cut.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands in references")]
fn is_cut(level: &u8) -> bool {
    *level == 0
}

impl ShardLogRange {
    /// Whether both have an entry.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.shard == other.shard && self.from < other.to && other.from < self.to
    }

    /// Whether all entries of another are here.
    pub fn contains(&self, other: &Self) -> bool {
        self.shard == other.shard && self.from <= other.from && other.to <= self.to
    }

    /// Ranges in the order of logs, those that follow each other as one.
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
    /// About how many of its bytes are a tenant's: as large a share as that of its profiles.
    pub fn tenant_bytes(&self, tenant: &TenantId) -> u64 {
        let all: u128 = self.tenants.iter().map(|span| u128::from(span.profiles)).sum();
        let profiles = self.tenant_span(tenant).map_or(0, |span| u128::from(span.profiles));
        // A share of all bytes, which fit.
        (u128::from(self.bytes) * profiles).checked_div(all).map_or(0, |bytes| bytes as u64)
    }

    /// All that it holds of logs.
    pub fn log_ranges(&self) -> impl Iterator<Item = ShardLogRange> {
        let &Self { shard, epoch, from, to, .. } = self;
        std::iter::once(ShardLogRange { shard, epoch, from, to }).chain(self.further.iter().copied())
    }

    /// Whether a row may be in both.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let shares = self.level == 0 || other.level == 0 || self.shares_tenant(other);
        shares && self.overlaps_log_ranges(other)
    }

    /// Whether both have an entry; ranges of each are in order.
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
        self.tenants.iter().any(|span| other.tenant_span(&span.tenant).is_some())
    }

    /// Whether all entries of another are among its own.
    pub fn covers_log_ranges_of(&self, other: &Self) -> bool {
        other.log_ranges().all(|others| self.log_ranges().any(|rows| rows.contains(&others)))
    }

    /// A tenant's rows.
    pub fn tenant_span(&self, tenant: &TenantId) -> Option<&TenantSpan> {
        self.tenants.iter().find(|span| span.tenant == *tenant)
    }

    /// The rows of a tenant, where it has some in a range of time, both ends included.
    pub fn tenant_span_between(&self, tenant: &TenantId, from: i64, to: i64) -> Option<&TenantSpan> {
        self.tenant_span(tenant).filter(|span| span.overlaps(from, to))
    }
    /// Time of its latest profile.
    pub fn max_time(&self) -> i64 {
        self.tenants.iter().map(|span| span.max_time).max().unwrap_or(i64::MIN)
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
