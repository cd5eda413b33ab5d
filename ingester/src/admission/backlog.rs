//! Bounds of unflushed profiles for all shards of a node together, which share its memory and its disk.
//!
//! While the bucket accepts nothing, profiles stay in heads and in the log. They are accepted until a bound
//! is reached, and then rejected until blocks are written again. No acknowledged profile is lost by this.

use athanor_chassis::{ByteSize, ErrorCode, Status};
use athanor_consensus::log::LogDiskUsage;

use crate::admission::SHARD_BUSY_RETRY_AFTER;
use crate::ingester::Ingester;
use crate::ingester::config::IngesterConfig;

impl Ingester {
    /// Returns whether there are unflushed profiles.
    pub fn has_unflushed(&self) -> bool {
        self.leader_handles().flat_map(|led| led.shard.heads().unflushed_heads()).any(|head| !head.is_empty())
    }

    /// Returns the bytes of unflushed profiles in memory.
    pub fn unflushed_bytes(&self) -> u64 {
        self.leader_handles().map(|led| led.shard.heads().unflushed_bytes() as u64).sum()
    }

    /// Rejects profiles if too many are unflushed.
    pub(crate) fn check_backlog(&self) -> Result<(), Status> {
        let IngesterConfig { max_unflushed_bytes, max_wal_disk_percent, .. } = &self.parts.config;
        let refused = |bound: String| {
            let message = format!("{bound}; the bucket is too slow, retry later");
            Err(Status::new(ErrorCode::Exhausted, message)
                .with_reason("unflushed_limit")
                .with_retry_after(SHARD_BUSY_RETRY_AFTER))
        };
        let held = self.unflushed_bytes();
        if held > max_unflushed_bytes.get() {
            let held = ByteSize::bytes(held).to_approximate_string();
            return refused(format!(
                "unflushed profiles use {held} of memory, the limit is {max_unflushed_bytes} \
                 (ingester.max_unflushed_bytes)"
            ));
        }
        match self.parts.deps.consensus.log.disk_usage() {
            Some(LogDiskUsage { taken, disk }) if exceeds(taken, disk, *max_wal_disk_percent) => {
                refused(format!(
                    "the log with unflushed profiles uses {} of a disk of {}, the limit is \
                     {max_wal_disk_percent} percent (ingester.max_wal_disk_percent)",
                    taken.to_approximate_string(),
                    disk.to_approximate_string()
                ))
            }
            // If a disk does not report its size, the log checks again, and rejects then.
            Some(_) | None => Ok(()),
        }
    }
}

fn exceeds(taken: ByteSize, disk: ByteSize, percent: u32) -> bool {
    u128::from(taken.get()) * 100 > u128::from(disk.get()) * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_whole_disk() {
        let exceeds = |taken, disk, percent| exceeds(ByteSize::bytes(taken), ByteSize::bytes(disk), percent);
        assert!(!exceeds(80, 100, 80) && exceeds(81, 100, 80));
        assert!(!exceeds(u64::MAX, u64::MAX, 100) && exceeds(u64::MAX, u64::MAX, 99));
        assert!(!exceeds(0, 0, 80) && exceeds(1, 0, 80));
    }
}
