//! What a voter tells those who watch.
//!
//! It tells what it has at once, since that is better than nothing where no voter has a majority behind it; then, with
//! every change and every few seconds, what there is. Before it has told the same for long it asks whether it is still
//! heard by a majority, and ends if it is not: nobody must hang on a voter that is cut off.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::View;
use athanor_chassis::Status;
use athanor_cluster::NodeId;

use crate::voter::Metastore;

/// Somebody who watches hears something at least so often.
const EVERY: Duration = Duration::from_secs(5);
/// Changes that come together are told together.
const TOGETHER: Duration = Duration::from_millis(100);

/// One telling.
#[derive(Debug)]
pub(crate) struct Sighting {
    pub(crate) revision: u64,
    pub(crate) leader: Option<NodeId>,
    /// None: nothing that the other side does not have.
    pub(crate) view: Option<Arc<View>>,
}

/// All tellings, one after the other.
pub(crate) struct Sightings {
    voter: Metastore,
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

impl Sightings {
    /// For somebody who has a revision.
    pub(crate) fn after(voter: Metastore, known: u64) -> Self {
        Self { voter, known, seen: 0, told: None, confirmed: None, ended: false }
    }

    /// The next one; an error is the last.
    pub(crate) async fn next(&mut self) -> Option<Result<Sighting, Status>> {
        if self.ended {
            return None;
        }
        let step = self.step().await;
        self.ended = step.is_err();
        Some(step)
    }

    async fn step(&mut self) -> Result<Sighting, Status> {
        let clock = self.voter.clock().clone();
        let Some(told) = self.told else { return Ok(self.look()) };
        let now = clock.monotonic();
        let due = self.confirmed.map_or(now, |at| at + EVERY);
        let is_changed = tokio::select! {
            biased;
            () = clock.sleep(due.saturating_sub(now)) => false,
            () = self.voter.told().other_than(self.seen) => true,
        };
        match is_changed {
            true => clock.sleep((told + TOGETHER).saturating_sub(clock.monotonic())).await,
            false => {
                let asked = clock.monotonic();
                self.voter.confirm().await?;
                self.confirmed = Some(asked);
            }
        }
        Ok(self.look())
    }

    fn look(&mut self) -> Sighting {
        self.told = Some(self.voter.clock().monotonic());
        let view = self.voter.view();
        let (revision, leader) = (view.revision, self.voter.leader().node);
        self.seen = revision;
        let is_news = revision > self.known;
        self.known = self.known.max(revision);
        Sighting { revision, leader, view: is_news.then_some(view) }
    }
}
