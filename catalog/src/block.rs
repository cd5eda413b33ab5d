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
    /// The shard that it was cut from.
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
    /// Whose rows it holds, by tenant.
    pub tenants: Vec<TenantSpan>,
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

const CHANCE_BITS: u32 = 80;

impl BlockId {
    /// A new name.
    pub fn new(now: Timestamp, random: &Random) -> Self {
        let chance = u128::from(random.next_u64()) << 16 | u128::from(random.next_u64() & 0xffff);
        Self((now.millis().max(0) as u128) << CHANCE_BITS | chance)
    }
    /// From its number.
    pub const fn from_number(number: u128) -> Self {
        Self(number)
    }
    /// Its number.
    pub const fn number(self) -> u128 {
        self.0
    }
    /// When it was named.
    pub fn named_at(self) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_millis((self.0 >> CHANCE_BITS) as u64))
    }
}

impl TenantSpan {
    fn overlaps(&self, from: i64, to: i64) -> bool {
        self.max_time >= from && self.min_time <= to
    }
}

impl BlockEntry {
    /// About how many of its bytes are a tenant's: as large a share as that of its profiles.
    pub fn bytes_of(&self, tenant: &TenantId) -> u64 {
        let all: u128 = self.tenants.iter().map(|span| u128::from(span.profiles)).sum();
        let of_tenant = self.tenants.iter().find(|span| span.tenant == *tenant);
        let profiles = of_tenant.map_or(0, |span| u128::from(span.profiles));
        // A share of all bytes, which fit.
        (u128::from(self.bytes) * profiles).checked_div(all).map_or(0, |bytes| bytes as u64)
    }

    /// The rows of a tenant, where it has some in a range of time, both ends included.
    pub fn span(&self, tenant: &TenantId, from: i64, to: i64) -> Option<&TenantSpan> {
        let of_tenant = |span: &&TenantSpan| span.tenant == *tenant;
        self.tenants.iter().find(of_tenant).filter(|span| span.overlaps(from, to))
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
