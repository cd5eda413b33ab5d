//! What a voter tells those who watch.
//!
//! It tells what it has at once, since that is better than nothing where no voter has a majority behind it; then, with
//! every change and every few seconds, what there is. Before it has told the same for long it asks whether it is still
//! heard by a majority, and ends if it is not: nobody must hang on a voter that is cut off.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::RoutingView;
use athanor_chassis::Status;
use athanor_cluster::NodeId;

use crate::voter::MetastoreVoter;

/// Somebody who watches hears something at least so often.
const VIEW_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Changes that come together are told together.
const VIEW_COALESCE_DELAY: Duration = Duration::from_millis(100);

/// One telling.
#[derive(Debug)]
pub(crate) struct ViewUpdate {
    pub(crate) revision: u64,
    pub(crate) leader: Option<NodeId>,
    /// None: nothing that the other side does not have.
    pub(crate) view: Option<Arc<RoutingView>>,
}

/// All tellings, one after the other.
pub(crate) struct ViewStream {
    voter: MetastoreVoter,
    /// The youngest revision that the other side has.
    known: u64,
    /// The revision that was looked at.
    seen: u64,
    /// When something was told.
    told: Option<Duration>,
    /// When a majority was heard.
    confirmed: Option<Duration>,
    ended: bool,
}

impl ViewStream {
    /// For somebody who has a revision.
    pub(crate) fn from_revision(voter: MetastoreVoter, known: u64) -> Self {
        Self { voter, known, seen: 0, told: None, confirmed: None, ended: false }
    }

    /// The next one; an error is the last.
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
