//! Memberships of a node in shards, stored beside the shards' logs.
//!
//! A membership is written before the log begins. So a member with a lost log is known as one that may have
//! voted, and does not vote as a new one [INV-08]. A shard without blocks is also known somewhere if the
//! catalog is lost [INV-16].

use std::collections::BTreeSet;

use athanor_catalog::{ShardEntry, ShardId, ShardPhase};
use athanor_chassis::disk::DiskError;
use athanor_chassis::{Disk, ErrorCode, ErrorCodeExt, Timestamp};
use athanor_consensus::replicated::GroupBootstrap;
use serde::{Deserialize, Serialize};

use crate::ingester::local_report::LocalShardReport;

/// Membership of this node in a shard, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShardMembership {
    /// Slot that the shard serves.
    pub(crate) slot: u32,
    /// Number of the shard in the sequence of its slot.
    pub(crate) epoch: u32,
    /// Nodes that have a replica of its log.
    pub(crate) members: BTreeSet<u64>,
    /// True if the log has begun. Before that, a crash leaves no log, and this member has sent no response.
    founded: bool,
}

/// Reason why a membership is unknown.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// The file cannot be read or written.
    #[error("cannot store the shard memberships of this node")]
    Disk(#[from] DiskError),
    /// The file cannot be decoded.
    #[error(
        "cannot decode {file} in the folder `state` ({why}); restore the file, or start with an empty folder as a new node"
    )]
    Unreadable {
        /// Name of the file.
        file: String,
        /// Error of the decoder.
        why: String,
    },
}

impl ErrorCodeExt for MembershipError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Disk(error) => error.code(),
            Self::Unreadable { .. } => ErrorCode::DataLoss,
        }
    }
}

impl ShardMembership {
    /// Returns the report of a shard without an open log.
    pub(crate) fn into_report(self, shard: ShardId) -> LocalShardReport {
        let Self { slot, epoch, members, .. } = self;
        LocalShardReport {
            shard,
            slot,
            epoch,
            members,
            cut: None,
            sealed: None,
            fenced: 0,
            inherited: None,
            taken: None,
            whole: false,
        }
    }

    /// Returns a placeholder of the shard's catalog entry: its log counts, not this.
    pub(crate) fn entry(self, id: ShardId) -> ShardEntry {
        let Self { slot, epoch, members, .. } = self;
        let phase = ShardPhase::Sealing;
        let since = Timestamp::UNIX_EPOCH;
        ShardEntry { id, slot, epoch, watermark: 0, members, phase, fenced: 0, since }
    }

    /// Returns whether its log has begun here.
    pub(crate) fn has_log(&self) -> bool {
        self.founded
    }
}

fn file(shard: ShardId) -> String {
    format!("shard-{shard}.json")
}

/// Returns the bootstrap mode of a member, with or without a log here. The membership is durable on return.
pub(crate) fn read_bootstrap_mode(
    disk: &dyn Disk,
    entry: &ShardEntry,
    has_log: bool,
) -> Result<GroupBootstrap, MembershipError> {
    let known = read(disk, entry.id)?;
    if known.is_none() {
        write(disk, entry, has_log)?;
    }
    Ok(match has_log || known.is_some_and(|known| known.founded) {
        true => GroupBootstrap::Kept,
        false => GroupBootstrap::Members(entry.members.clone()),
    })
}

/// Records that the member's log has begun.
pub(crate) fn mark_bootstrapped(disk: &dyn Disk, entry: &ShardEntry) -> Result<(), MembershipError> {
    match read(disk, entry.id)? {
        Some(known) if known.founded => Ok(()),
        _ => write(disk, entry, true),
    }
}

/// Returns the shards of which this node is a member.
pub(crate) fn read_all(disk: &dyn Disk) -> Result<Vec<(ShardId, ShardMembership)>, MembershipError> {
    let number = |name: &String| name.strip_prefix("shard-")?.strip_suffix(".json")?.parse().ok();
    let shards: Vec<ShardId> = disk.list()?.iter().filter_map(number).collect();
    let known = shards.into_iter().filter_map(|shard| match read(disk, shard) {
        Ok(known) => Some(Ok((shard, known?))),
        Err(error) => Some(Err(error)),
    });
    known.collect()
}

fn read(disk: &dyn Disk, shard: ShardId) -> Result<Option<ShardMembership>, MembershipError> {
    let file = file(shard);
    if !disk.list()?.contains(&file) {
        return Ok(None);
    }
    let read = serde_json::from_slice(&disk.read(&file)?);
    read.map(Some).map_err(|error| MembershipError::Unreadable { file, why: error.to_string() })
}

fn write(disk: &dyn Disk, entry: &ShardEntry, founded: bool) -> Result<(), MembershipError> {
    let file = file(entry.id);
    let known =
        ShardMembership { slot: entry.slot, epoch: entry.epoch, members: entry.members.clone(), founded };
    let bytes = serde_json::to_vec(&known)
        .map_err(|error| MembershipError::Unreadable { file: file.clone(), why: error.to_string() })?;
    Ok(disk.write(&file, &bytes)?)
}

#[cfg(test)]
mod tests {
    use athanor_catalog::shard_id;
    use athanor_chassis::disk::MemoryDisk;

    use super::*;

    fn entry(slot: u32) -> ShardEntry {
        let (id, members, phase) = (shard_id(slot, 1), [1, 2, 3].into(), ShardPhase::Open);
        ShardEntry {
            id,
            slot,
            epoch: 1,
            watermark: 0,
            members,
            phase,
            fenced: 1,
            since: Timestamp::UNIX_EPOCH,
        }
    }

    /// INV-08: it may have voted, and what for is gone.
    #[test]
    fn a_member_whose_log_is_gone_does_not_begin_anew() {
        let (disk, entry) = (MemoryDisk::new(), entry(4));
        let anew = GroupBootstrap::Members(entry.members.clone());
        assert_eq!(read_bootstrap_mode(&disk, &entry, false).unwrap(), anew);
        // It was not opened: nobody has heard of it.
        assert_eq!(read_bootstrap_mode(&disk, &entry, false).unwrap(), anew);
        mark_bootstrapped(&disk, &entry).unwrap();
        assert_eq!(read_bootstrap_mode(&disk, &entry, true).unwrap(), GroupBootstrap::Kept);
        assert_eq!(read_bootstrap_mode(&disk, &entry, false).unwrap(), GroupBootstrap::Kept);
    }

    #[test]
    fn a_log_that_was_there_before_is_known_from_then_on() {
        let disk = MemoryDisk::new();
        assert_eq!(read_bootstrap_mode(&disk, &entry(0), true).unwrap(), GroupBootstrap::Kept);
        assert_eq!(read_bootstrap_mode(&disk, &entry(0), false).unwrap(), GroupBootstrap::Kept);
        read_bootstrap_mode(&disk, &entry(7), false).unwrap();
        disk.write("shard-x.json", b"?").unwrap();
        let slots = read_all(&disk).unwrap().into_iter().map(|(shard, known)| (shard, known.slot));
        assert_eq!(slots.collect::<Vec<_>>(), [(1, 0), (8, 7)]);
        disk.write("shard-1.json", b"{}").unwrap();
        assert!(matches!(
            read_bootstrap_mode(&disk, &entry(0), true),
            Err(MembershipError::Unreadable { .. })
        ));
    }
}
