//! Which shards this node leads, and giving the lead away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use athanor_catalog::ShardId;
use athanor_chassis::{Code, Status};
use futures::stream::{self, StreamExt};

use crate::group::Group;
use crate::ingester::Ingester;

/// Leads that are handed over at a time.
const AT_ONCE: usize = 8;
/// What one member may take to take over, where others could be asked.
const TRY: Duration = Duration::from_secs(3);

impl Ingester {
    /// The shards that this node leads.
    pub fn leads(&self) -> Vec<ShardId> {
        self.groups().iter().filter(|group| group.led().is_some()).map(|group| group.id).collect()
    }

    /// Who leads a shard, as this node knows; none where that is not known, or no such shard is here.
    pub fn leader(&self, shard: ShardId) -> Option<u64> {
        self.group(shard)?.log.leadership().now().node
    }

    /// Has another member lead a shard that this node leads. Meanwhile it takes no profiles.
    pub async fn hand_over(&self, shard: ShardId, to: u64, limit: Duration) -> Result<(), Status> {
        let group = self.group(shard).ok_or_else(|| {
            Status::new(
                Code::NotFound,
                format!("this node is no member of shard {shard}, or has not opened it"),
            )
        })?;
        group.hand_over(to, limit).await
    }

    /// Hands over all that this node leads and another member could. Which shards it leads still, and why, is in the error.
    pub async fn drain(&self, limit: Duration) -> Result<(), Status> {
        self.give_away(|_| true, limit).await
    }

    /// Hands over all that this node leads to members that are able to lead, where there are any. Which shards it leads
    /// still, and why, is in the error.
    pub async fn give_away(
        &self,
        able: impl Fn(u64) -> bool + Send + Sync,
        limit: Duration,
    ) -> Result<(), Status> {
        let until = self.clock().monotonic() + limit;
        let led = self.groups().into_iter().filter(|group| !group.is_alone() && group.leads());
        let able = &able;
        let drained = stream::iter(led).map(|group| async move { self.give_up(&group, able, until).await });
        let drained: Vec<Result<(), String>> = drained.buffered(AT_ONCE).collect().await;
        let left: Vec<String> = drained.into_iter().filter_map(Result::err).collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(Status::new(Code::Deadline, left.join("; "))),
        }
    }

    /// Tries the other members in turn: first who lacks least of the log.
    async fn give_up(
        &self,
        group: &Arc<Group>,
        able: &(impl Fn(u64) -> bool + Sync),
        until: Duration,
    ) -> Result<(), String> {
        let mut why = "no other member is left to be tried".to_owned();
        let mut tried = BTreeSet::from([self.node()]);
        loop {
            let left = until.saturating_sub(self.clock().monotonic());
            let progress = group.log.progress();
            let voters = group.log.members().voters.into_iter();
            let others = voters.filter(|node| able(*node) && !tried.contains(node));
            let best = others.max_by_key(|node| progress.get(node).copied().flatten());
            let Some(best) = best.filter(|_| !left.is_zero()) else {
                return match group.leads() {
                    true => Err(format!("shard {} is led by this node still: {why}", group.id)),
                    false => Ok(()),
                };
            };
            match group.hand_over(best, left.min(TRY)).await {
                Ok(()) => return Ok(()),
                Err(status) => why = status.message,
            }
            tried.insert(best);
        }
    }
}

impl Group {
    /// Whether raft says that this node leads.
    pub(crate) fn leads(&self) -> bool {
        self.log.leadership().now().here
    }

    /// Has another member lead. What it takes until then it must have before it can lead, so this node takes nothing.
    pub(crate) async fn hand_over(&self, to: u64, limit: Duration) -> Result<(), Status> {
        let _leaving = Leaving::of(self);
        self.log.hand_over(to, limit).await.map_err(|error| Status::of(&error))
    }
}

/// A member that hands over its lead, until this is dropped.
struct Leaving<'g>(&'g Group);

impl<'g> Leaving<'g> {
    fn of(group: &'g Group) -> Self {
        group.leaving.fetch_add(1, Ordering::SeqCst);
        Self(group)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leaving.fetch_sub(1, Ordering::SeqCst);
    }
}
