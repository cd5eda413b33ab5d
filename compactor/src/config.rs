//! Settings of nodes that merge blocks.

use std::time::Duration;

use athanor_chassis::ByteSize;
use athanor_chassis::units::duration_text;
use serde::{Deserialize, Serialize};

/// Upper bound of concurrent jobs. No machine merges more.
const MAX_CONCURRENT_JOBS: usize = 1_024;
/// Memory without which not even a small merge runs.
const MIN_MERGE_MEMORY: ByteSize = ByteSize::mib(16);

/// Settings of a compactor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompactorConfig {
    /// Jobs that run concurrently. Each takes up to `max_merge_memory_bytes`. Example: `1`.
    pub max_concurrent_jobs: usize,
    /// Size of the largest job that this node prefers. A larger one is taken only if it cannot be divided.
    /// Example: `4GiB`.
    pub max_job_bytes: ByteSize,
    /// Memory of one merge. A job that needs more fails, and is divided until its parts fit. Example: `256MiB`.
    pub max_merge_memory_bytes: ByteSize,
    /// Disk space for inputs and outputs of running jobs, in a folder of its own below `data_dir`. Jobs wait
    /// until enough of it is free. Example: `20GiB`.
    pub max_scratch_bytes: ByteSize,
    /// Pause before an idle node asks for jobs again. Example: `5s`.
    #[serde(with = "duration_text")]
    pub poll_interval: Duration,
}

impl Default for CompactorConfig {
    fn default() -> Self {
        Self {
            max_concurrent_jobs: 1,
            max_job_bytes: ByteSize::mib(4096),
            max_merge_memory_bytes: ByteSize::mib(256),
            max_scratch_bytes: ByteSize::mib(20 * 1024),
            poll_interval: Duration::from_secs(5),
        }
    }
}

/// Setting with a value that permits no jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct CompactorConfigError {
    /// Name of the setting as written in the file.
    pub setting: &'static str,
    reason: &'static str,
}

impl CompactorConfig {
    /// Returns the settings that would permit no jobs.
    pub fn validate(&self) -> Vec<CompactorConfigError> {
        let checks = [
            (
                self.max_concurrent_jobs == 0 || self.max_concurrent_jobs > MAX_CONCURRENT_JOBS,
                "compactor.max_concurrent_jobs",
                "must be 1 to 1024; leave out the role compactor to run no jobs on this node",
            ),
            (
                self.max_merge_memory_bytes < MIN_MERGE_MEMORY,
                "compactor.max_merge_memory_bytes",
                "no merge fits; write 16MiB or more",
            ),
            (
                self.max_scratch_bytes < self.max_merge_memory_bytes,
                "compactor.max_scratch_bytes",
                "few jobs fit; write compactor.max_merge_memory_bytes or more",
            ),
            (
                self.poll_interval.is_zero(),
                "compactor.poll_interval",
                "with 0s an idle node would never pause; write 1s or more",
            ),
        ];
        let wrong = checks.into_iter().filter(|(is_wrong, ..)| *is_wrong);
        wrong.map(|(_, setting, reason)| CompactorConfigError { setting, reason }).collect()
    }
}
