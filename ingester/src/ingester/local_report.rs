//! Report of a node on one shard.

use std::collections::BTreeSet;

use athanor_catalog::ShardId;

use crate::log::entry::InheritSource;

/// Report of this node on a shard of which it is a member [INV-16].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalShardReport {
    /// ID of the reported shard.
    pub shard: ShardId,
    /// Slot that the shard serves.
    pub slot: u32,
    /// Number of the shard in the sequence of its slot.
    pub epoch: u32,
    /// Nodes that have a replica of its log.
    pub members: BTreeSet<u64>,
    /// Log index up to which registered blocks contain all rows, according to the log. None if the log cannot
    /// be opened.
    pub cut: Option<u64>,
    /// Log index of the seal; none if there is no seal, or if the log cannot be opened.
    pub sealed: Option<u64>,
    /// Version of the newest table with a fence in the log.
    pub fenced: u64,
    /// Shard from which all ids were copied, and their source.
    pub inherited: Option<(InheritSource, ShardId)>,
    /// True if the shard has accepted profiles; none if its log cannot be opened.
    pub taken: Option<bool>,
    /// True if this member has all committed entries: a majority confirmed the commit index.
    pub whole: bool,
}
