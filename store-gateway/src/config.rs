//! Settings of nodes that read blocks.

use std::sync::Arc;

use athanor_chassis::ByteSize;
use athanor_chassis::memory_budget::BudgetLimit;
use athanor_chassis::requests::result_budget::ResultBudget;
use serde::{Deserialize, Serialize};

/// Upper bound of concurrent queries. No machine runs more.
const MAX_CONCURRENT_QUERIES: usize = 65_536;

/// Settings of a store-gateway, and of a querier that reads blocks itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreGatewayConfig {
    /// Memory for blocks while queries read them. Queries that need more wait. Example: `1GiB`.
    pub max_inflight_block_bytes: ByteSize,
    /// Cache of block data for later queries: footers, series, profiles, names and rows. Example: `256MiB`.
    pub block_cache_bytes: ByteSize,
    /// Cache of packed results of single blocks. Blocks are immutable, so a repeated query reads its result
    /// from here; 0B disables it. Example: `256MiB`.
    pub partial_cache_bytes: ByteSize,
    /// Disk cache for data evicted from memory, which also survives a restart, in a folder of its own below
    /// `data_dir`; 0B disables it. Example: `20GiB`.
    pub disk_cache_bytes: ByteSize,
    /// Free space of that disk below which nothing is cached there and cached files are evicted. More than
    /// `wal.min_free_bytes`, so that no profile is rejected for it. Example: `2GiB`.
    pub disk_cache_min_free_bytes: ByteSize,
    /// Queries of other nodes that run concurrently. Others wait, and tenants for which less was read go
    /// first. One tenant among others uses at most half of the permits. Example: `32`.
    pub max_concurrent: usize,
    /// Blocks of one such query that are open concurrently, at least as many as keep all threads busy: some
    /// are fetched while others are read. Example: `16`.
    pub max_open_blocks_per_query: usize,
    /// Memory that the response to one query of another node may take. Example: `512MiB`.
    pub max_result_bytes: ByteSize,
    /// Memory that all such responses in flight may take together. Responses to one tenant among others take
    /// at most half of it. Example: `2GiB`.
    pub max_inflight_result_bytes: ByteSize,
}

impl Default for StoreGatewayConfig {
    fn default() -> Self {
        Self {
            max_inflight_block_bytes: ByteSize::mib(1024),
            block_cache_bytes: ByteSize::mib(256),
            partial_cache_bytes: ByteSize::mib(256),
            disk_cache_bytes: ByteSize::mib(4096),
            disk_cache_min_free_bytes: ByteSize::mib(2048),
            max_concurrent: 32,
            max_open_blocks_per_query: 16,
            max_result_bytes: ByteSize::mib(512),
            max_inflight_result_bytes: ByteSize::mib(2048),
        }
    }
}

/// Setting with a value that permits no queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct StoreGatewayConfigError {
    /// Name of the setting as written in the file.
    pub setting: &'static str,
    reason: &'static str,
}

impl StoreGatewayConfig {
    /// Returns the memory budget of responses to other nodes.
    pub(crate) fn response_budget(&self) -> Arc<ResultBudget> {
        ResultBudget::new(
            BudgetLimit { limit: self.max_result_bytes, setting: "store_gateway.max_result_bytes" },
            BudgetLimit {
                limit: self.max_inflight_result_bytes,
                setting: "store_gateway.max_inflight_result_bytes",
            },
        )
    }

    /// Returns the settings that would permit no queries.
    pub fn validate(&self) -> Vec<StoreGatewayConfigError> {
        let checks = [
            (
                self.max_concurrent == 0,
                "store_gateway.max_concurrent",
                "with 0 every query would wait forever; write 1 or more",
            ),
            (
                self.max_concurrent > MAX_CONCURRENT_QUERIES,
                "store_gateway.max_concurrent",
                "no machine can run so many queries at the same time; write 65536 or less, other queries wait in the queue",
            ),
            (
                self.max_open_blocks_per_query == 0,
                "store_gateway.max_open_blocks_per_query",
                "with 0 no block could be read; write 1 or more",
            ),
            (
                self.max_inflight_block_bytes < ByteSize::mib(1),
                "store_gateway.max_inflight_block_bytes",
                "blocks cannot be read with so little memory; write 1MiB or more",
            ),
            (
                self.max_result_bytes < ByteSize::kib(64),
                "store_gateway.max_result_bytes",
                "no result would fit; write 64KiB or more",
            ),
            (
                self.max_inflight_result_bytes < self.max_result_bytes,
                "store_gateway.max_inflight_result_bytes",
                "not a single result would fit; write store_gateway.max_result_bytes or more",
            ),
        ];
        let wrong = checks.into_iter().filter(|(is_wrong, ..)| *is_wrong);
        wrong.map(|(_, setting, reason)| StoreGatewayConfigError { setting, reason }).collect()
    }
}
