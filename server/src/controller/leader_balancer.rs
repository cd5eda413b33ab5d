//! Leader balancing: evenly over nodes, then over zones, never to a node that drains or has a full disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use athanor_chassis::Status;
use athanor_cluster::NodeId;
use athanor_cluster::members::{ClusterMember, MemberState, RoleName};
use athanor_cluster::placement::{LeaderCandidate, ShardLeaderView, better_leader};
use athanor_proto::athanor::internal::v1::LeadershipTransfer;

use super::ClusterController;

/// Interval between two balancing rounds.
const BALANCE_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum transfers per round: the leader counts become staler with each transfer.
const MAX_TRANSFERS_PER_ROUND: usize = 8;

/// Periodic balancer of shard leaders.
#[derive(Default)]
pub struct LeaderBalancer {
    next: Duration,
}

impl LeaderBalancer {
    /// Transfers shard leaders to nodes that lead fewer shards.
    pub async fn balance_leaders(&mut self, controller: &ClusterController) -> Result<(), Status> {
        let now = controller.clock.monotonic();
        if now < self.next {
            return Ok(());
        }
        self.next = now + BALANCE_INTERVAL;
        let members = controller.members.current();
        let keeps = |member: &&ClusterMember| member.is_alive() && member.roles.contains(&RoleName::Ingester);
        let draining: BTreeSet<NodeId> = members
            .values()
            .filter(|member| member.state != MemberState::Ready)
            .map(|member| member.node)
            .collect();
        let nodes: Vec<NodeId> = members.values().filter(keeps).map(|member| member.node).collect();
        let calls = nodes.iter().map(|node| async { (*node, controller.ways.led_shards(*node, None).await) });
        let mut leads = BTreeMap::new();
        let mut leaders = BTreeMap::new();
        for (node, led) in futures::future::join_all(calls).await {
            // A node that does not respond receives no leaders.
            let Ok(led) = led else { continue };
            let zone = members.get(&node).map(|member| member.zone.clone()).unwrap_or_default();
            leads.insert(node, LeaderCandidate { zone, shards: led.len() as u16 });
            leaders.extend(led.into_iter().map(|shard| (shard, node)));
        }
        let view = controller.views.current();
        let mut moves = 0;
        for shard in view.shards.iter().filter(|shard| !shard.is_retired() && shard.members.len() > 1) {
            let Some(&leader) = leaders.get(&shard.id) else { continue };
            let seen = ShardLeaderView { shard: shard.id, leader, members: &shard.members };
            let Some(to) = better_leader(&seen, &leads, &draining) else { continue };
            tracing::info!(shard = shard.id, from = leader, to, "transferring shard leadership");
            let transfer = LeadershipTransfer { shard: shard.id, target_node_id: to };
            match controller.ways.led_shards(leader, Some(transfer)).await {
                Ok(_) => {
                    leads.entry(leader).and_modify(|lead| lead.shards = lead.shards.saturating_sub(1));
                    leads.entry(to).and_modify(|lead| lead.shards += 1);
                }
                Err(error) => tracing::info!(shard = shard.id, to, %error, "leadership transfer failed"),
            }
            moves += 1;
            if moves >= MAX_TRANSFERS_PER_ROUND {
                break;
            }
        }
        Ok(())
    }
}
