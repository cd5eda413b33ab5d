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
    pub reading: ByteSize,
    /// Cache of block data for later queries: footers, series, profiles, names and rows. Example: `256MiB`.
    pub parts: ByteSize,
    /// Cache of packed results of single blocks. Blocks are immutable, so a repeated query reads its result
    /// from here; 0B disables it. Example: `256MiB`.
    pub answers: ByteSize,
    /// Disk cache for data evicted from memory, which also survives a restart, in a folder of its own below
    /// `data`; 0B disables it. Example: `20GiB`.
    pub disk: ByteSize,
    /// Free space of that disk below which nothing is cached there and cached files are evicted. More than
    /// `log.reserve`, so that no profile is rejected for it. Example: `2GiB`.
    pub disk_spare: ByteSize,
    /// Queries of other nodes that run concurrently. Others wait, and tenants for which less was read go
    /// first. One tenant among others uses at most half of the permits. Example: `32`.
    pub questions: usize,
    /// Blocks of one such query that are open concurrently, at least as many as keep all threads busy: some
    /// are fetched while others are read. Example: `16`.
    pub open_blocks: usize,
    /// Memory that the response to one query of another node may take. Example: `512MiB`.
    pub answer: ByteSize,
    /// Memory that all such responses in flight may take together. Responses to one tenant among others take
    /// at most half of it. Example: `2GiB`.
    pub answers_under_way: ByteSize,
}

impl Default for StoreGatewayConfig {
    fn default() -> Self {
        Self {
            reading: ByteSize::mib(1024),
            parts: ByteSize::mib(256),
            answers: ByteSize::mib(256),
            disk: ByteSize::mib(4096),
            disk_spare: ByteSize::mib(2048),
            questions: 32,
            open_blocks: 16,
            answer: ByteSize::mib(512),
            answers_under_way: ByteSize::mib(2048),
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
            BudgetLimit { limit: self.answer, setting: "store_gateway.answer" },
            BudgetLimit { limit: self.answers_under_way, setting: "store_gateway.answers_under_way" },
        )
    }

    /// Returns the settings that would permit no queries.
    pub fn validate(&self) -> Vec<StoreGatewayConfigError> {
        let checks = [
            (
                self.questions == 0,
                "store_gateway.questions",
                "with 0 every question would wait for ever; write 1 or more",
            ),
            (
                self.questions > MAX_CONCURRENT_QUERIES,
                "store_gateway.questions",
                "no machine answers so many at once; write 65536 or less, others wait their turn",
            ),
            (
                self.open_blocks == 0,
                "store_gateway.open_blocks",
                "with 0 no block would ever be read; write 1 or more",
            ),
            (
                self.reading < ByteSize::mib(1),
                "store_gateway.reading",
                "blocks cannot be read in so little memory; write 1MiB or more",
            ),
            (
                self.answer < ByteSize::kib(64),
                "store_gateway.answer",
                "no answer would fit; write 64KiB or more",
            ),
            (
                self.answers_under_way < self.answer,
                "store_gateway.answers_under_way",
                "not one answer would fit; write store_gateway.answer or more",
            ),
        ];
        let wrong = checks.into_iter().filter(|(is_wrong, ..)| *is_wrong);
        wrong.map(|(_, setting, reason)| StoreGatewayConfigError { setting, reason }).collect()
    }
}
