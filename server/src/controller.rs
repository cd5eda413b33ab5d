//! Controller of a cluster: chooses shard members, replaces dead nodes and balances leaders.
//!
//! The controller runs on the catalog leader. It reads the catalog and gossip, and proposes commands. The
//! catalog decides: each proposal names the state it expects. Concurrent controllers, or one with a wrong
//! view of the members, therefore do no harm.

pub(crate) mod disk_pressure;
mod failure_detector;
mod leader_balancer;
mod slot_autoscaler;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{
    Catalog, CatalogCommand, CatalogSettings, CommandResult, HandoffSource, ReplicaPlacement, RoutingView,
    ShardEntry, ShardPhase,
};
use athanor_chassis::{Clock, Status, TenantLimits, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::members::{ClusterMember, ClusterMembers, MemberState, RoleName};
use athanor_cluster::placement::{NotEnoughNodesError, ReplicaCandidate, choose_members};
use athanor_http_server::LogThrottle;
use athanor_metastore::RoutingWatch;
use tokio_util::sync::CancellationToken;

use crate::rpc::ingester_client::IngesterClient;
use failure_detector::FailureDetector;
use leader_balancer::LeaderBalancer;
use slot_autoscaler::SlotAutoscaler;

/// Interval of the reconcile loop.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);
/// Time without new ingesters before the first shards open. Ingesters that join later get none of these
/// shards.
const BOOTSTRAP_SETTLE_TIME: Duration = Duration::from_secs(3);
/// Maximum concurrent successions: each interrupts the writes of its slot for a short time.
const MAX_CONCURRENT_SUCCESSIONS: usize = 4;

/// Inputs of the controller.
pub struct ClusterController {
    /// Catalog that accepts or refuses proposals.
    pub catalog: Arc<dyn Catalog>,
    /// Watch of the routing view, the current decisions.
    pub views: RoutingWatch,
    /// Members of the cluster.
    pub members: ClusterMembers,
    /// Client of the ingesters.
    pub ways: IngesterClient,
    /// Clock of the reconcile loop and of table times.
    pub clock: Clock,
    /// Replicas of a shard.
    pub copies: u16,
    /// Slots of a new cluster; the default is two per ingester.
    pub slots: Option<u32>,
    /// Time after which a missing node is replaced.
    pub node_failure_timeout: Duration,
    /// Capacity of one slot for one service, in sent bytes per second.
    pub bytes_per_slot: u64,
    /// Limits of all tenants without overrides.
    pub limits: TenantLimits,
}

/// State that the controller keeps between reconciliations.
#[derive(Default)]
struct ControllerState {
    /// Ingesters that could hold a shard, and the time since when the set is unchanged.
    candidates: (BTreeSet<NodeId>, Duration),
    missing: FailureDetector,
    told: LogThrottle,
}

impl ClusterController {
    /// Runs until the process ends. Pauses while another voter leads the catalog.
    pub async fn run(self, leads: impl Fn() -> bool + Send + Sync, ending: CancellationToken) {
        let mut memory = ControllerState::default();
        let mut leading = LeaderBalancer::default();
        let mut growth = SlotAutoscaler::default();
        loop {
            tokio::select! {
                biased;
                () = ending.cancelled() => return,
                () = self.clock.sleep(RECONCILE_INTERVAL) => {}
            }
            if !leads() {
                (memory, growth) = (ControllerState::default(), SlotAutoscaler::default());
                continue;
            }
            // An error of one step does not stop the others: leaders are balanced even if no node is free for
            // a successor.
            let looked = [
                self.look(&mut memory).await,
                leading.balance_leaders(&self).await,
                growth.run_once(&self).await,
            ];
            if let Some(status) = looked.into_iter().find_map(Result::err)
                && let Some(times) = memory.told.should_log(self.clock.monotonic())
            {
                tracing::warn!(error = %status, times, "failed to reconcile the cluster, will retry");
            }
        }
    }

    async fn look(&self, memory: &mut ControllerState) -> Result<(), Status> {
        let view = self.views.current();
        let members = self.members.current();
        self.configure(&view).await?;
        if view.tables.is_none() {
            return self.begin(&members, memory).await;
        }
        let now = self.clock.monotonic();
        let gone = memory.missing.dead_members(&view, &members, now, self.node_failure_timeout);
        // The pending table is decided even if no node is free for a successor.
        let decided = self.decide_the_table(&view).await;
        self.succeed(&view, &members, &gone).await.and(decided)
    }

    /// Proposes this node's settings if the catalog has different ones.
    async fn configure(&self, view: &RoutingView) -> Result<(), Status> {
        let settings = CatalogSettings {
            replication_factor: self.copies,
            oldest_accepted: self.limits.reject_older_than,
            newest_accepted: self.limits.reject_newer_than,
        };
        if view.settings == settings {
            return Ok(());
        }
        self.propose(CatalogCommand::UpdateSettings { expected: view.settings.clone(), settings }).await
    }

    /// Opens the first shards once there are enough ingesters and their set is stable.
    async fn begin(
        &self,
        members: &BTreeMap<NodeId, ClusterMember>,
        memory: &mut ControllerState,
    ) -> Result<(), Status> {
        let mut candidates = candidates(&RoutingView::default(), members);
        let nodes = candidates.keys().copied().collect::<BTreeSet<_>>();
        let now = self.clock.monotonic();
        if memory.candidates.0 != nodes {
            memory.candidates = (nodes, now);
        }
        let settled = now.saturating_sub(memory.candidates.1) >= BOOTSTRAP_SETTLE_TIME;
        let zones = zones(&candidates);
        let count = self.slots.unwrap_or(2 * candidates.len() as u32).max(1);
        let mut chosen = Vec::new();
        for slot in 0..count {
            let members = self.choose(slot, 1, &candidates)?;
            members.iter().for_each(|node| {
                candidates.entry(*node).and_modify(|candidate| candidate.groups += 1);
            });
            chosen.push(members);
        }
        if !settled {
            return Ok(());
        }
        tracing::info!(
            slots = count,
            ingesters = candidates.len(),
            copies = self.copies,
            "opening the first shards"
        );
        self.propose(CatalogCommand::OpenSlots { count, members: chosen, zones }).await
    }

    fn choose(
        &self,
        slot: u32,
        epoch: u32,
        candidates: &BTreeMap<NodeId, ReplicaCandidate>,
    ) -> Result<BTreeSet<NodeId>, Status> {
        let chosen = choose_members(slot, epoch, usize::from(self.copies), candidates);
        chosen.map_err(|error: NotEnoughNodesError| Status::from_error(&error))
    }

    /// Starts succession of shards with dead members. Shards that lost their majority skip the seal.
    async fn succeed(
        &self,
        view: &RoutingView,
        members: &BTreeMap<NodeId, ClusterMember>,
        gone: &BTreeSet<NodeId>,
    ) -> Result<(), Status> {
        let changing = view.shards.iter().filter(|shard| shard.phase == ShardPhase::Sealing).count();
        let mut more = MAX_CONCURRENT_SUCCESSIONS.saturating_sub(changing);
        let mut candidates = candidates(view, members);
        candidates.retain(|node, _| !gone.contains(node));
        for shard in &view.shards {
            let missing = shard.members.iter().filter(|node| gone.contains(node)).count();
            let lost = 2 * missing >= shard.members.len() && missing > 0;
            let newest = newest_epoch(view, shard.slot);
            let placement = || {
                let members = self.choose(shard.slot, newest + 1, &candidates)?;
                Ok::<_, Status>(ReplicaPlacement { members, zones: zones(&candidates) })
            };
            let command = match &shard.phase {
                ShardPhase::Open | ShardPhase::Opening { .. } if lost => {
                    CatalogCommand::MarkLost { shard: shard.id, placement: placement()? }
                }
                ShardPhase::Open if missing > 0 && more > 0 => {
                    // A sealed shard needs a successor, so check first that there are nodes for one.
                    placement()?;
                    more -= 1;
                    tracing::warn!(
                        shard = shard.id,
                        missing,
                        "sealing shard, members were missing for too long"
                    );
                    CatalogCommand::RequestSeal { shard: shard.id }
                }
                ShardPhase::Sealing if lost => {
                    CatalogCommand::MarkLost { shard: shard.id, placement: placement()? }
                }
                ShardPhase::Sealing if newest == shard.epoch => {
                    CatalogCommand::CreateSuccessor { shard: shard.id, placement: placement()? }
                }
                ShardPhase::Sealed { .. } if lost && is_copied(view, shard) => {
                    CatalogCommand::MarkLost { shard: shard.id, placement: ReplicaPlacement::default() }
                }
                _ => continue,
            };
            self.propose(command).await?;
        }
        Ok(())
    }

    async fn decide_the_table(&self, view: &RoutingView) -> Result<(), Status> {
        match decided(view, self.clock.wall()) {
            Some(command) => self.propose(command).await,
            None => Ok(()),
        }
    }

    /// Proposes a command. The catalog refuses it if the state has changed; the next reconciliation sees the
    /// new state.
    async fn propose(&self, command: CatalogCommand) -> Result<(), Status> {
        match self.catalog.propose(command).await {
            Ok(CommandResult::Refused(refused)) => {
                tracing::info!(%refused, "catalog refused a proposal");
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Status::from_error(&error)),
        }
    }
}

/// Decides on the pending slot table. The table is published once all fences are logged. It is withdrawn if a
/// fence is missing when profiles of its time may arrive: shards with the fence would reject all of these.
fn decided(view: &RoutingView, now: Timestamp) -> Option<CatalogCommand> {
    let pending = view.pending.as_ref()?;
    let version = pending.table.version();
    if pending.unfenced.is_empty() {
        return Some(CatalogCommand::PublishTable { version });
    }
    let latest = now.plus(view.settings.max_future()).nanos();
    if latest < pending.table.from() {
        return None;
    }
    tracing::warn!(
        version,
        missing = pending.unfenced.len(),
        "withdrawing slot table, fences were missing for too long"
    );
    Some(CatalogCommand::WithdrawTable { version })
}

/// Returns the ingesters that could hold one more shard.
fn candidates(
    view: &RoutingView,
    members: &BTreeMap<NodeId, ClusterMember>,
) -> BTreeMap<NodeId, ReplicaCandidate> {
    let ready = |member: &&ClusterMember| {
        member.is_alive() && member.state == MemberState::Ready && member.roles.contains(&RoleName::Ingester)
    };
    let groups = |node: NodeId| {
        let of = |shard: &&ShardEntry| !shard.is_retired() && shard.members.contains(&node);
        view.shards.iter().filter(of).count() as u32
    };
    let candidate =
        |member: &ClusterMember| ReplicaCandidate { zone: member.zone.clone(), groups: groups(member.node) };
    members.values().filter(ready).map(|member| (member.node, candidate(member))).collect()
}

fn zones(candidates: &BTreeMap<NodeId, ReplicaCandidate>) -> BTreeMap<NodeId, String> {
    candidates.iter().map(|(node, candidate)| (*node, candidate.zone.clone())).collect()
}

fn newest_epoch(view: &RoutingView, slot: u32) -> u32 {
    view.shards.iter().filter(|shard| shard.slot == slot).map(|shard| shard.epoch).max().unwrap_or(0)
}

/// Returns whether the successor of a shard still copies its dedup window.
fn is_copied(view: &RoutingView, shard: &ShardEntry) -> bool {
    let copies = |other: &ShardEntry| matches!(other.phase, ShardPhase::Opening { source: HandoffSource::DedupWindow { predecessor, .. } } if predecessor == shard.id);
    view.shards.iter().any(copies)
}

#[cfg(test)]
mod tests {
    use athanor_catalog::PendingTable;
    use athanor_cluster::placement::SlotTable;

    use super::*;

    /// A shard that is away for long may keep no others from taking profiles.
    #[test]
    fn a_table_comes_into_force_or_is_given_up_in_time() {
        let (from, newest) = (Timestamp::from_seconds(10_000), Duration::from_secs(60));
        let table = SlotTable::with_all_slots(2, from.nanos(), vec![0, 1]).unwrap();
        let view = |needs: &[u32]| RoutingView {
            pending: Some(PendingTable {
                table: table.clone(),
                unfenced: needs.iter().copied().collect(),
                proposed_at: Timestamp::UNIX_EPOCH,
            }),
            settings: CatalogSettings { newest_accepted: newest, ..CatalogSettings::default() },
            ..RoutingView::default()
        };
        let just_before = from.minus(newest).minus(Duration::from_nanos(1));
        let publish = Some(CatalogCommand::PublishTable { version: 2 });
        let withdraw = Some(CatalogCommand::WithdrawTable { version: 2 });
        assert_eq!(decided(&RoutingView::default(), from), None);
        assert_eq!((decided(&view(&[]), just_before), decided(&view(&[]), from)), (publish.clone(), publish));
        assert_eq!(decided(&view(&[7]), just_before), None);
        assert_eq!(decided(&view(&[7]), from.minus(newest)), withdraw);
    }

    /// Who has no room, is about to end, is missing or keeps no shards gets none.
    #[test]
    fn shards_are_opened_on_ingesters_that_are_ready() {
        let member = |node: NodeId, state, role| ClusterMember {
            node,
            name: String::new(),
            zone: String::new(),
            roles: [role].into(),
            internal: ([127, 0, 0, 1], 9095).into(),
            boot: 1,
            state,
            missing_since: None,
        };
        let (ingester, querier) = (RoleName::Ingester, RoleName::Querier);
        let mut members = vec![
            member(1, MemberState::Ready, ingester),
            member(2, MemberState::Full, ingester),
            member(3, MemberState::Draining, ingester),
            member(4, MemberState::Ready, querier),
            member(5, MemberState::Ready, ingester),
            member(6, MemberState::Ready, ingester),
        ];
        members[5].missing_since = Some(Duration::ZERO);
        let members = members.into_iter().map(|member| (member.node, member)).collect();
        let candidates = candidates(&RoutingView::default(), &members);
        assert_eq!(candidates.into_keys().collect::<Vec<_>>(), [1, 5]);
    }
}
