//! Settings of a querier.

use std::sync::Arc;

use athanor_chassis::ByteSize;
use athanor_chassis::room::{Bound, Room};
use serde::{Deserialize, Serialize};

/// Settings of a querier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Memory that one answer may take, and as much again to be shown. Example: `512MiB`.
    pub answer: ByteSize,
    /// Memory that all answers that are under way may take together. Example: `2GiB`.
    pub answers: ByteSize,
    /// Queries of a tenant that may run in the background at once, for clients that ask for that. With 0 they wait for the
    /// answer as for any other. Example: `5`.
    pub background_queries: usize,
    /// Profiles uploaded by hand that are kept of each tenant; the oldest makes room for another one. With 0 none is taken.
    /// Example: `100`.
    pub adhoc_profiles: usize,
    /// The largest of them, decompressed. Example: `16MiB`.
    pub adhoc_profile: ByteSize,
    /// Queries that are answered at once; others wait for their turn, those of tenants that have read less lately go
    /// first. Example: `64`.
    pub concurrent_queries: usize,
    /// Of a hundred calls of store-gateways, those that may be made again, of another gateway, while the first one takes
    /// long. With 0 none is. Example: `10`.
    pub hedged_percent: u8,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            answer: ByteSize::mib(512),
            answers: ByteSize::mib(2048),
            background_queries: 0,
            adhoc_profiles: 100,
            adhoc_profile: ByteSize::mib(16),
            concurrent_queries: 64,
            hedged_percent: 10,
        }
    }
}

impl Config {
    /// The room for answers: what is put together, and what is made of it to be shown, takes memory until it is sent.
    pub(crate) fn room(&self) -> Arc<Room> {
        Room::new(
            Bound { limit: self.answer, setting: "querier.answer" },
            Bound { limit: self.answers, setting: "querier.answers" },
        )
    }
}
