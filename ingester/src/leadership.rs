//! Leadership of shards on this node, and its transfer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use athanor_catalog::ShardId;
use athanor_chassis::{ErrorCode, Status};
use futures::stream::{self, StreamExt};

use crate::ingester::Ingester;
use crate::replication::replica::ShardReplica;

/// Maximum concurrent transfers of leadership.
const MAX_CONCURRENT_TRANSFERS: usize = 8;
/// Timeout for one member to take over, while others may be tried.
const TRANSFER_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

impl Ingester {
    /// Returns the shards that this node leads.
    pub fn led_shards(&self) -> Vec<ShardId> {
        self.groups().iter().filter(|group| group.leader_handle().is_some()).map(|group| group.id).collect()
    }

    /// Returns the leader of a shard as this node knows it; none if unknown, or if no such shard is here.
    pub fn shard_leader(&self, shard: ShardId) -> Option<u64> {
        self.find_replica(shard)?.log.leadership().current().node
    }

    /// Transfers the lead of a shard to another member. Meanwhile this node accepts no profiles for it.
    pub async fn transfer_shard(&self, shard: ShardId, to: u64, limit: Duration) -> Result<(), Status> {
        let group = self.find_replica(shard).ok_or_else(|| {
            Status::new(
                ErrorCode::NotFound,
                format!("this node is not a member of shard {shard}, or has not opened it"),
            )
        })?;
        group.transfer_leadership(to, limit).await
    }

    /// Transfers all shards that this node leads and another member could. The error names shards that it
    /// still leads, and why.
    pub async fn drain(&self, limit: Duration) -> Result<(), Status> {
        self.transfer_all(|_| true, limit).await
    }

    /// Transfers all shards that this node leads to members that are able to lead, where there are any. The
    /// error names shards that it still leads, and why.
    pub async fn transfer_all(
        &self,
        able: impl Fn(u64) -> bool + Send + Sync,
        limit: Duration,
    ) -> Result<(), Status> {
        let until = self.clock().monotonic() + limit;
        let led = self.groups().into_iter().filter(|group| !group.is_sole_voter() && group.is_leader());
        let able = &able;
        let drained = stream::iter(led).map(|group| async move { self.give_up(&group, able, until).await });
        let drained: Vec<Result<(), String>> = drained.buffered(MAX_CONCURRENT_TRANSFERS).collect().await;
        let left: Vec<String> = drained.into_iter().filter_map(Result::err).collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(Status::new(ErrorCode::Deadline, left.join("; "))),
        }
    }

    /// Tries the other members in turn, first the one that lacks least of the log.
    async fn give_up(
        &self,
        group: &Arc<ShardReplica>,
        able: &(impl Fn(u64) -> bool + Sync),
        until: Duration,
    ) -> Result<(), String> {
        let mut why = "no other member can lead".to_owned();
        let mut tried = BTreeSet::from([self.node()]);
        loop {
            let left = until.saturating_sub(self.clock().monotonic());
            let progress = group.log.replication_progress();
            let voters = group.log.members().voters.into_iter();
            let others = voters.filter(|node| able(*node) && !tried.contains(node));
            let best = others.max_by_key(|node| progress.get(node).copied().flatten());
            let Some(best) = best.filter(|_| !left.is_zero()) else {
                return match group.is_leader() {
                    true => Err(format!("this node still leads shard {}: {why}", group.id)),
                    false => Ok(()),
                };
            };
            match group.transfer_leadership(best, left.min(TRANSFER_ATTEMPT_TIMEOUT)).await {
                Ok(()) => return Ok(()),
                Err(status) => why = status.message,
            }
            tried.insert(best);
        }
    }
}

impl ShardReplica {
    /// Returns whether raft names this node as leader.
    pub(crate) fn is_leader(&self) -> bool {
        self.log.leadership().current().here
    }

    /// Transfers the lead to another member. That member needs all entries before it can lead, so this node
    /// accepts no more.
    pub(crate) async fn transfer_leadership(&self, to: u64, limit: Duration) -> Result<(), Status> {
        let _leaving = LeadershipTransfer::of(self);
        self.log.transfer_leadership(to, limit).await.map_err(|error| Status::from_error(&error))
    }
}

/// Transfer of leadership in progress, until this is dropped.
struct LeadershipTransfer<'g>(&'g ShardReplica);

impl<'g> LeadershipTransfer<'g> {
    fn of(group: &'g ShardReplica) -> Self {
        group.leaving.fetch_add(1, Ordering::SeqCst);
        Self(group)
    }
}

impl Drop for LeadershipTransfer<'_> {
    fn drop(&mut self) {
        self.0.leaving.fetch_sub(1, Ordering::SeqCst);
    }
}
