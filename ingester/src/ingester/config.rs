//! Settings of the ingester role.

use std::time::Duration;

use athanor_chassis::ByteSize;
use athanor_chassis::units::duration_text;
use serde::{Deserialize, Serialize};

/// Range of the configured number of shards. Each shard costs a log, a head and several tasks.
pub const SHARD_COUNT_RANGE: std::ops::RangeInclusive<u32> = 1..=64;

/// Settings of the ingester role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngesterConfig {
    /// Conditions under which heads are flushed to blocks.
    pub flush: FlushConfig,
    /// Settings of duplicate detection.
    pub dedup: DedupConfig,
    /// Settings of the delta tracker, which converts cumulative profiles.
    pub delta: DeltaConfig,
    /// Number of shards that a single-node server opens, 1 to 64. A data folder keeps the number that it was
    /// created with. Example: `4`.
    pub single_node_shards: u32,
    /// Maximum bytes of uploads in the queue of one shard. Example: `64MiB`.
    pub max_queued_bytes_per_shard: ByteSize,
    /// Maximum memory of decoded profiles that wait, for all shards together. Example: `256MiB`.
    pub max_decoded_bytes: ByteSize,
    /// Maximum memory of unflushed profiles of all shards, names included. Beyond it, profiles are rejected
    /// until blocks reach the bucket. Example: `4GiB`.
    pub max_unflushed_bytes: ByteSize,
    /// Maximum share of its disk that the log may use, in percent, 1 to 100. The log holds all unflushed
    /// profiles. Beyond the share, profiles are rejected until blocks reach the bucket. Example: `80`.
    pub max_wal_disk_percent: u32,
}

/// Conditions under which a head is flushed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlushConfig {
    /// Maximum age of a head with profiles. Example: `60s`.
    #[serde(with = "duration_text")]
    pub max_head_age: Duration,
    /// Maximum memory of a head. Example: `128MiB`.
    pub max_head_bytes: ByteSize,
    /// Maximum memory per shard for flushed heads that running queries may still read. Freed after 60 s.
    /// Example: `256MiB`.
    pub max_retained_bytes: ByteSize,
}

/// Settings of duplicate detection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DedupConfig {
    /// Maximum number of record ids that one shard keeps to recognize duplicates. Each takes about two bytes
    /// of memory. Example: `100000000`.
    pub max_ids_per_shard: u64,
    /// Number of flushed ids in memory from which a shard moves them to a file. Each takes about 27 bytes of
    /// memory. Example: `65536`.
    pub max_memory_ids: u32,
}

/// Settings of the delta tracker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeltaConfig {
    /// Maximum memory per shard for the values of cumulative series, half of it for one tenant. Beyond it,
    /// cumulative profiles are rejected. Example: `64MiB`.
    pub max_state_bytes_per_shard: ByteSize,
    /// Time for which the values of an idle cumulative series are kept, or the length of the id window if
    /// that is longer. The next profile of a forgotten series is stored whole. Example: `1h`.
    #[serde(with = "duration_text")]
    pub idle_timeout: Duration,
}

impl Default for IngesterConfig {
    fn default() -> Self {
        Self {
            flush: FlushConfig::default(),
            dedup: DedupConfig::default(),
            delta: DeltaConfig::default(),
            single_node_shards: 4,
            max_queued_bytes_per_shard: ByteSize::mib(64),
            max_decoded_bytes: ByteSize::mib(256),
            max_unflushed_bytes: ByteSize::mib(4096),
            max_wal_disk_percent: 80,
        }
    }
}

impl Default for FlushConfig {
    fn default() -> Self {
        Self {
            max_head_age: Duration::from_secs(60),
            max_head_bytes: ByteSize::mib(128),
            max_retained_bytes: ByteSize::mib(256),
        }
    }
}

impl Default for DedupConfig {
    fn default() -> Self {
        Self { max_ids_per_shard: 100_000_000, max_memory_ids: 1 << 16 }
    }
}

impl Default for DeltaConfig {
    fn default() -> Self {
        Self { max_state_bytes_per_shard: ByteSize::mib(64), idle_timeout: Duration::from_secs(3600) }
    }
}
