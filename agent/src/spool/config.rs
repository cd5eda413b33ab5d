//! Settings of a spool.

use std::time::Duration;

use athanor_chassis::ByteSize;
use athanor_chassis::units::duration_text;
use serde::{Deserialize, Serialize};

/// Settings of the spool of one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpoolConfig {
    /// Maximum bytes of all files of one server. Example: `1GiB`.
    pub max_bytes: ByteSize,
    /// Maximum bytes of a spool in memory, which replaces a folder that is not writable. Example: `64MiB`.
    pub max_memory_bytes: ByteSize,
    /// Share of the disk that stays free, in percent. Example: `10`.
    pub min_free_disk_percent: u8,
    /// Size at which a file is closed. A larger upload gets a file of its own. Example: `4MiB`.
    pub max_file_bytes: ByteSize,
    /// Time after which a file with scraped profiles is closed. Example: `1s`.
    #[serde(with = "duration_text")]
    pub close_after: Duration,
    /// Time after which a file is closed for whose acknowledgement a client waits. Its sum with the time of a
    /// write is the latency of a received upload. Example: `40ms`.
    #[serde(with = "duration_text")]
    pub close_received_after: Duration,
    /// Maximum bytes of uploads in memory that are not yet on disk. Further uploads wait. Example: `32MiB`.
    pub max_pending_bytes: ByteSize,
    /// Maximum bytes of rejected profiles that stay for inspection. Example: `64MiB`.
    pub max_refused_bytes: ByteSize,
    /// Maximum bytes of damaged files that stay for inspection. Example: `64MiB`.
    pub max_damaged_bytes: ByteSize,
}

impl Default for SpoolConfig {
    fn default() -> Self {
        Self {
            max_bytes: ByteSize::mib(1024),
            max_memory_bytes: ByteSize::mib(64),
            min_free_disk_percent: 10,
            max_file_bytes: ByteSize::mib(4),
            close_after: Duration::from_secs(1),
            close_received_after: Duration::from_millis(40),
            max_pending_bytes: ByteSize::mib(32),
            max_refused_bytes: ByteSize::mib(64),
            max_damaged_bytes: ByteSize::mib(64),
        }
    }
}
