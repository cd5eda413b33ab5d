//! Stream of routing views from a voter to its watchers.
//!
//! The stream sends the voter's current view at once, even without a quorum, because an old view is better
//! than none. It then sends an update after every change and at every heartbeat. Before each heartbeat the
//! stream checks the quorum. If the check fails, the stream ends, so that no watcher stays with a partitioned
//! voter.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::RoutingView;
use athanor_chassis::Status;
use athanor_cluster::NodeId;

use crate::voter::MetastoreVoter;

/// Maximum interval between two updates of a stream.
const VIEW_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Delay within which several changes become one update.
const VIEW_COALESCE_DELAY: Duration = Duration::from_millis(100);

/// Update that the stream sends to a watcher.
#[derive(Debug)]
pub(crate) struct ViewUpdate {
    pub(crate) revision: u64,
    pub(crate) leader: Option<NodeId>,
    /// Routing view; absent if the watcher already has this revision.
    pub(crate) view: Option<Arc<RoutingView>>,
}

/// Stream of updates for one watcher.
pub(crate) struct ViewStream {
    voter: MetastoreVoter,
    /// Newest revision that the watcher has.
    known: u64,
    /// Revision of the last update.
    seen: u64,
    /// Monotonic time of the last update; absent before the first.
    told: Option<Duration>,
    /// Monotonic time at which the last successful quorum check began.
    confirmed: Option<Duration>,
    ended: bool,
}

impl ViewStream {
    /// Creates the stream for a watcher that already has a revision.
    pub(crate) fn from_revision(voter: MetastoreVoter, known: u64) -> Self {
        Self { voter, known, seen: 0, told: None, confirmed: None, ended: false }
    }

    /// Returns the next update. The stream ends after an error.
    pub(crate) async fn next(&mut self) -> Option<Result<ViewUpdate, Status>> {
        if self.ended {
            return None;
        }
        let step = self.wait_for_update().await;
        self.ended = step.is_err();
        Some(step)
    }

    async fn wait_for_update(&mut self) -> Result<ViewUpdate, Status> {
        let clock = self.voter.clock().clone();
        let Some(told) = self.told else { return Ok(self.take_update()) };
        let now = clock.monotonic();
        let due = self.confirmed.map_or(now, |at| at + VIEW_HEARTBEAT_INTERVAL);
        let is_changed = tokio::select! {
            biased;
            () = clock.sleep(due.saturating_sub(now)) => false,
            () = self.voter.revision_watch().wait_until_not(self.seen) => true,
        };
        match is_changed {
            true => clock.sleep((told + VIEW_COALESCE_DELAY).saturating_sub(clock.monotonic())).await,
            false => {
                let asked = clock.monotonic();
                self.voter.confirm_quorum().await?;
                self.confirmed = Some(asked);
            }
        }
        Ok(self.take_update())
    }

    fn take_update(&mut self) -> ViewUpdate {
        self.told = Some(self.voter.clock().monotonic());
        let view = self.voter.routing_view();
        let revision = view.revision;
        let leader = self.voter.leader().node;
        self.seen = revision;
        let is_news = revision > self.known;
        self.known = self.known.max(revision);
        ViewUpdate { revision, leader, view: is_news.then_some(view) }
    }
}
