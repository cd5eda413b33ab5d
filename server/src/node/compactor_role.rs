//! Construction of the role that merges blocks, expires rows and removes old objects.

use std::sync::Arc;

use athanor_catalog::{Catalog, RemovalReport};
use athanor_chassis::Status;
use athanor_cluster::NodeId;
use athanor_cluster::members::{ClusterMember, ClusterMembers, RoleName};
use athanor_compactor::{
    Compactor, CompactorDeps, MaintenanceWorker, ObjectRemover, OrphanFinder, RemovalFacts, RetentionWorker,
};

use super::assembly::NodeContext;
use super::{NodeDeps, StartError};

/// Running compactor of this node.
pub struct CompactorRole {
    /// Worker of compaction jobs.
    pub compactor: Arc<Compactor>,
    /// Worker that removes objects of tombstoned blocks.
    pub maintenance: Arc<MaintenanceWorker>,
    /// Worker that expires rows past their retention.
    pub retention: Arc<RetentionWorker>,
}

impl NodeContext<'_> {
    /// Starts the compactor, if the process has that role. Its tasks end with the process: a running job is
    /// dropped, and another node merges the parts after the lease.
    pub fn compactor(&self, catalog: &Arc<dyn Catalog>) -> Result<Option<CompactorRole>, StartError> {
        if !self.has(RoleName::Compactor) {
            return Ok(None);
        }
        let NodeDeps { clock, random, compute, store, scratch, .. } = &self.system;
        let deps = CompactorDeps {
            catalog: Arc::clone(catalog),
            store: store.clone(),
            clock: clock.clone(),
            random: random.split(),
            compute: compute.clone(),
            scratch: Arc::clone(scratch),
            node: self.identity.node,
            cluster: self.identity.cluster,
        };
        let compactor = Arc::new(Compactor::new(self.config.compactor.clone(), deps));
        let running = Arc::clone(&compactor);
        let token = self.tasks.shutdown_token();
        self.tasks.spawn("compactor", async move { running.run(token).await })?;
        let maintenance = self.maintenance_worker(catalog);
        let retention = self.retention_worker(catalog);
        let members = self.others.map(|others| others.membership().members.clone());
        let node = self.identity.node;
        let is_active = move || members.as_ref().is_none_or(|members| is_first_compactor(members, node));
        let running = Arc::clone(&retention);
        let expires = is_active.clone();
        let token = self.tasks.shutdown_token();
        self.tasks.spawn("retention worker", async move { running.run(expires, token).await })?;
        let running = Arc::clone(&maintenance);
        let catalog = Arc::clone(catalog);
        let facts = move || removal_facts(Arc::clone(&catalog));
        let token = self.tasks.shutdown_token();
        self.tasks.spawn("object removal", async move { running.run(is_active, facts, token).await })?;
        Ok(Some(CompactorRole { compactor, maintenance, retention }))
    }

    fn retention_worker(&self, catalog: &Arc<dyn Catalog>) -> Arc<RetentionWorker> {
        let settings = self.config.retention(self.overrides.clone());
        Arc::new(RetentionWorker::new(Arc::clone(catalog), self.system.clock.clone(), settings))
    }

    fn maintenance_worker(&self, catalog: &Arc<dyn Catalog>) -> Arc<MaintenanceWorker> {
        let NodeDeps { clock, store, .. } = &self.system;
        let limits = &self.config.limits;
        let id_window =
            athanor_ingester::longest_id_retention(limits.reject_older_than, limits.reject_newer_than);
        let orphans = OrphanFinder::new(Arc::clone(catalog), store.clone());
        let remover = ObjectRemover::new(Arc::clone(catalog), store.clone(), id_window);
        Arc::new(MaintenanceWorker::new(clock.clone(), orphans, remover))
    }
}

/// Returns whether no live compactor has a lower node id. One compactor then expires rows and removes objects,
/// without a vote. While two nodes disagree, both expire and remove the same ones, which does no harm.
fn is_first_compactor(members: &ClusterMembers, node: NodeId) -> bool {
    let is_before = |member: &ClusterMember| {
        member.node < node && member.is_alive() && member.roles.contains(&RoleName::Compactor)
    };
    !members.current().values().any(is_before)
}

async fn removal_facts(catalog: Arc<dyn Catalog>) -> Result<RemovalFacts, Status> {
    let report = catalog.removal_report().await.map_err(|error| Status::from_error(&error))?;
    let RemovalReport { time, snapshot_time, restorable } = report;
    Ok(RemovalFacts { now: time, snapshot_time, restorable })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use athanor_cluster::members::MemberState;

    use super::*;

    #[test]
    fn live_compactor_with_the_lowest_id_removes_objects() {
        let member = |node, role, missing_since| ClusterMember {
            node,
            name: format!("n{node}"),
            zone: String::new(),
            roles: [role].into(),
            internal: ([127, 0, 0, 1], 9095).into(),
            boot: 1,
            state: MemberState::Ready,
            missing_since,
        };
        let members = ClusterMembers::from_static([
            member(1, RoleName::Ingester, None),
            member(2, RoleName::Compactor, Some(Duration::ZERO)),
            member(3, RoleName::Compactor, None),
            member(4, RoleName::Compactor, None),
        ]);
        let active: Vec<NodeId> =
            [2, 3, 4].into_iter().filter(|node| is_first_compactor(&members, *node)).collect();
        assert_eq!(active, [2, 3], "a missing node may think that it is active");
    }
}
