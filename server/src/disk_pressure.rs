//! What a node does whose disk is full: it tells others, and gives its leads to those who have room.
//!
//! Who is full refuses what is new, and only a leader is asked for that. So the shards and the catalogue are led by others
//! while there are any with room, and go on. The node stays a member: it takes what others have committed as long as the
//! reserve lasts, and what frees its disk.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_cluster::NodeId;
use athanor_cluster::gossip::GossipHandle;
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState};
use athanor_consensus::RaftGroup;
use athanor_consensus::log::Log;
use athanor_ingester::Ingester;
use athanor_metastore::CatalogStateMachine;
use tokio_util::sync::CancellationToken;

use crate::http::LogThrottle;

/// How often it looks at the disk.
const DISK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the leads may take to go to others, until it is tried again.
const LEADER_TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);

/// What looks at the disk of a node's log.
pub struct DiskPressureMonitor {
    /// Has the disk.
    pub log: Log,
    /// Shards of this node.
    pub ingester: Option<Arc<Ingester>>,
    /// The catalogue, where this node votes in it.
    pub facts: Option<RaftGroup<CatalogStateMachine>>,
    /// Who else is here.
    pub members: ClusterMembers,
    /// Tells them.
    pub voice: GossipHandle,
    /// Time.
    pub clock: Clock,
}

impl DiskPressureMonitor {
    /// Looks until the process ends.
    pub async fn run(self, ending: CancellationToken) {
        let looking = async {
            let mut told = false;
            let mut warned = LogThrottle::default();
            loop {
                let full = !self.log.has_disk_space();
                if full != told {
                    self.voice.announce_disk_full(full).await;
                    told = full;
                }
                if full {
                    let left = self.give_away().await;
                    if let Some(why) = left.err()
                        && let Some(times) = warned.should_log(self.clock.monotonic())
                    {
                        tracing::warn!(why, times, "the disk is full, and this node leads groups still");
                    }
                }
                self.clock.sleep(DISK_CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            () = ending.cancelled() => {}
            () = looking => {}
        }
    }

    /// Has others lead what this node leads. What none of them takes stays here, and is offered again.
    async fn give_away(&self) -> Result<(), String> {
        let able = able(self.members.current().values());
        // Shards that nobody takes do not keep the catalogue here.
        let shards = match &self.ingester {
            Some(ingester) => {
                ingester.transfer_all(|node| able.contains(&node), LEADER_TRANSFER_TIMEOUT).await
            }
            None => Ok(()),
        };
        self.give_catalogue_away(&able).await?;
        shards.map_err(|status| status.message)
    }

    async fn give_catalogue_away(&self, able: &BTreeSet<NodeId>) -> Result<(), String> {
        let Some(facts) = self.facts.as_ref().filter(|facts| facts.leadership().current().here) else {
            return Ok(());
        };
        let progress = facts.replication_progress();
        let me = facts.leadership().node();
        let voters = facts.members().voters.into_iter();
        let others = voters.filter(|node| *node != me && able.contains(node));
        let best = others.max_by_key(|node| progress.get(node).copied().flatten());
        let best = best.ok_or("no other voter of the catalogue has room")?;
        facts
            .transfer_leadership(best, LEADER_TRANSFER_TIMEOUT)
            .await
            .map_err(|error| format!("the catalogue: {error}"))
    }
}

/// Who could lead.
fn able<'a>(members: impl Iterator<Item = &'a ClusterMember>) -> BTreeSet<NodeId> {
    let able = members.filter(|member| member.is_alive() && member.state == MemberState::Ready);
    able.map(|member| member.node).collect()
}
