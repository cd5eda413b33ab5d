//! Settings of the ingester role.

use std::time::Duration;

use athanor_chassis::ByteSize;
use serde::{Deserialize, Serialize};

use crate::flush::flusher::FlushConfig;

/// Range of the configured number of shards. Each shard costs a log, a head and several tasks.
pub const SHARD_COUNT_RANGE: std::ops::RangeInclusive<u32> = 1..=64;

/// Settings of the ingester role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngesterConfig {
    /// Conditions under which heads are flushed to blocks.
    pub cut: FlushConfig,
    /// Number of shards that a standalone node opens, 1 to 64. A data folder keeps the number that it was
    /// created with. Example: `4`.
    pub shards: u32,
    /// Maximum bytes of uploads in the queue of one shard. Example: `64MiB`.
    pub waiting: ByteSize,
    /// Maximum memory of decoded profiles that wait, for all shards together. Example: `256MiB`.
    pub decoded: ByteSize,
    /// Maximum memory of unflushed profiles of all shards, names included. Beyond it, profiles are rejected
    /// until blocks reach the bucket. Example: `4GiB`.
    pub unregistered: ByteSize,
    /// Maximum share of its disk that the log may use, in percent, 1 to 100. The log holds all unflushed
    /// profiles. Beyond the share, profiles are rejected until blocks reach the bucket. Example: `80`.
    pub unregistered_share: u32,
    /// Maximum number of record ids that one shard keeps to recognize duplicates. Each takes about two bytes
    /// of memory. Example: `100000000`.
    pub ids: u64,
    /// Number of flushed ids from which a shard moves them to a file. Fewer stay in memory, at about 27 bytes
    /// each. Example: `65536`.
    pub recent_ids: u32,
    /// Maximum memory per shard for the values of cumulative series, half of it for one tenant. Beyond it,
    /// cumulative profiles are rejected. Example: `64MiB`.
    pub counters: ByteSize,
    /// Time for which the values of an idle cumulative series are kept, or the length of the id window if
    /// that is longer. The next profile of a forgotten series is stored whole. Example: `1h`.
    #[serde(with = "athanor_chassis::units::duration_text")]
    pub counters_idle: Duration,
}

impl Default for IngesterConfig {
    fn default() -> Self {
        Self {
            cut: FlushConfig::default(),
            shards: 4,
            waiting: ByteSize::mib(64),
            decoded: ByteSize::mib(256),
            unregistered: ByteSize::mib(4096),
            unregistered_share: 80,
            ids: 100_000_000,
            recent_ids: 1 << 16,
            counters: ByteSize::mib(64),
            counters_idle: Duration::from_secs(3600),
        }
    }
}
