//! Reaction of a node to a full disk: it announces the state and transfers its leaderships to nodes with free
//! disk.
//!
//! A node with a full disk rejects new data, and only leaders receive new data. As long as other nodes have
//! free disk, they lead the shards and the catalog, which stay writable. The full node remains a member. It
//! accepts committed entries while the log's reserve lasts, and commands that free its disk.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_cluster::NodeId;
use athanor_cluster::gossip::GossipHandle;
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState};
use athanor_consensus::RaftGroup;
use athanor_consensus::log::Log;
use athanor_http_server::LogThrottle;
use athanor_ingester::Ingester;
use athanor_metastore::CatalogStateMachine;
use tokio_util::sync::CancellationToken;

/// Interval between two checks of the disk.
const DISK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a transfer round; the next check retries it.
const LEADER_TRANSFER_TIMEOUT: Duration = Duration::from_secs(5);

/// Monitor of the disk that holds the node's log.
pub struct DiskPressureMonitor {
    /// Log that provides the free space of its disk.
    pub log: Log,
    /// Ingester with the shards of this node.
    pub ingester: Option<Arc<Ingester>>,
    /// Raft group of the catalog, if this node votes.
    pub facts: Option<RaftGroup<CatalogStateMachine>>,
    /// Members of the cluster.
    pub members: ClusterMembers,
    /// Handle that announces a full disk by gossip.
    pub voice: GossipHandle,
    /// Clock of the checks.
    pub clock: Clock,
}

impl DiskPressureMonitor {
    /// Checks the disk until the process ends.
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
                        tracing::warn!(
                            why,
                            times,
                            "disk is full, failed to transfer all leaderships, will retry"
                        );
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

    /// Transfers all leaderships of this node. A leadership that no node accepts stays here, and the next
    /// check retries it.
    async fn give_away(&self) -> Result<(), String> {
        let able = able(self.members.current().values());
        // A failed transfer of shards does not prevent the transfer of the catalog.
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
        let best = best.ok_or("no other voter of the catalog is alive and ready")?;
        facts
            .transfer_leadership(best, LEADER_TRANSFER_TIMEOUT)
            .await
            .map_err(|error| format!("catalog: {error}"))
    }
}

/// Returns the nodes that could lead: alive and ready.
fn able<'a>(members: impl Iterator<Item = &'a ClusterMember>) -> BTreeSet<NodeId> {
    let able = members.filter(|member| member.is_alive() && member.state == MemberState::Ready);
    able.map(|member| member.node).collect()
}
