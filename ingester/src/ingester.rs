//! Ingester role of one node: opens shards, serves appends and reads, and reports on them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use athanor_catalog::{MAX_SLOTS, ShardEntry, ShardId, decode_shard_id, shard_id};
use athanor_chassis::{Clock, ComputePool, ErrorCode, Status, TenantId};
use athanor_profile::store_interface::upload::ProfileUpload;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use parking_lot::{Mutex, RwLock};

use crate::admission::tenants::NameAdmission;
use crate::decode::decode_pool::DecodePool;
use crate::head_store::generations::ShardReadError;
use crate::head_store::head::HeadSnapshot;
use crate::ingester::config::IngesterConfig;
use crate::log::state_machine::ShardStateMachine;
use crate::replication::replica::{LeaderHandle, ReplicaDeps, ShardReplica};
use crate::stats::{FlushSummary, ShardStats};
use crate::write::shard::{StoredUpload, lost};
use deps::IngesterDeps;
use open_error::IngesterOpenError;

pub(crate) mod config;
pub(crate) mod deps;
pub(crate) mod local_report;
pub(crate) mod open_error;

/// Ingester role of one node: its shard replicas.
pub struct Ingester {
    pub(crate) shards: RwLock<BTreeMap<ShardId, Arc<ShardReplica>>>,
    /// Revision of the newest applied view. The lock is held while shards are opened and ended.
    pub(crate) taken: tokio::sync::Mutex<u64>,
    /// Shards that this node is a member of and failed to open, with the error.
    failing: Mutex<BTreeMap<ShardId, String>>,
    pub(crate) parts: ReplicaDeps,
    /// Version of the newest slot table on this disk; 0 for none.
    pub(crate) kept: AtomicU64,
}

impl Ingester {
    /// Opens the ingester. A standalone node opens the shards in the catalog, or the first ones, replays
    /// their logs and leads them. A cluster node has no shards before [`Ingester::apply_view`].
    pub async fn open(config: &IngesterConfig, deps: IngesterDeps) -> Result<Self, IngesterOpenError> {
        let walkers = Arc::new(DecodePool::new(deps.compute.clone(), config.max_decoded_bytes));
        let known = if deps.alone { load_initial_shards(config, &deps).await? } else { Vec::new() };
        let parts = ReplicaDeps {
            config: config.clone(),
            deps,
            walkers,
            view: Arc::default(),
            tenants: Arc::default(),
        };
        let node = parts.deps.consensus.node;
        let mut shards = BTreeMap::new();
        for entry in
            known.into_iter().filter(|entry| entry.members.is_empty() || entry.members.contains(&node))
        {
            let group = ShardReplica::open(parts.clone(), entry).await?;
            shards.insert(group.id, group);
        }
        let shards = RwLock::new(shards);
        Ok(Self {
            shards,
            taken: tokio::sync::Mutex::default(),
            failing: Mutex::default(),
            parts,
            kept: AtomicU64::default(),
        })
    }

    /// Opens the shards of which this node is a member, and ends those that retired. If a shard fails to
    /// open, the ingester logs the error, opens the others, and retries with the next view. A view older than
    /// the last applied one changes nothing.
    pub async fn apply_view(&self, view: &athanor_catalog::RoutingView) {
        let mut taken = self.taken.lock().await;
        if view.revision < *taken {
            return;
        }
        *taken = view.revision;
        *self.parts.view.write() = Some(Arc::new(view.clone()));
        self.persist_tables(view).await;
        for entry in &view.shards {
            let here = self.find_replica(entry.id);
            match here {
                Some(group) if entry.is_retired() => {
                    self.shards.write().remove(&entry.id);
                    group.end().await;
                    tracing::info!(shard = entry.id, "shard is retired, closed its local replica");
                }
                None if !entry.is_retired() && entry.members.contains(&self.node()) => {
                    self.join(entry.clone()).await;
                }
                Some(_) | None => {}
            }
        }
        self.groups().iter().for_each(|group| group.told.notify_one());
        let is_over = |shard: &ShardId| {
            view.shards.iter().find(|entry| entry.id == *shard).is_none_or(ShardEntry::is_retired)
        };
        self.failing.lock().retain(|shard, _| !is_over(shard));
    }

    pub(crate) async fn join(&self, entry: ShardEntry) {
        let shard = entry.id;
        match ShardReplica::open(self.parts.clone(), entry).await {
            Ok(group) => {
                self.shards.write().insert(shard, group);
                self.failing.lock().remove(&shard);
            }
            Err(error) => {
                let why = Status::from_error(&error).message;
                tracing::error!(shard, why, "failed to open local replica of shard");
                self.failing.lock().insert(shard, why);
            }
        }
    }

    /// Returns the slots of which this node has a shard, ascending.
    pub fn slots(&self) -> Vec<u32> {
        let slots: BTreeSet<u32> = self.groups().iter().map(|group| group.slot).collect();
        slots.into_iter().collect()
    }

    /// Returns the latest local shard of a slot, which accepts its new profiles.
    pub fn shard_of_slot(&self, slot: u32) -> Option<ShardId> {
        // Shard ids of a slot ascend with the epoch.
        self.shards.read().values().rev().find(|group| group.slot == slot).map(|group| group.id)
    }

    /// Stores uploads in a shard; `table` is the version of the slot table by which they were placed. If this
    /// node does not lead the shard, the whole call fails and stores nothing.
    pub fn append<'a>(
        &'a self,
        shard: ShardId,
        table: u64,
        tenant: &'a TenantId,
        uploads: Vec<ProfileUpload>,
    ) -> BoxFuture<'a, Result<Vec<Result<StoredUpload, Status>>, ShardReadError>> {
        let appended = async move {
            let group = self.group_of(shard)?;
            let led = group.require_writable()?;
            if let Err(status) = self.check_backlog() {
                return Ok(vec![Err(status); uploads.len()]);
            }
            let max_tenants = self.parts.deps.overrides.for_tenant(tenant).max_tenants;
            let admission = match self.parts.tenants.admit(tenant, max_tenants) {
                Ok(admission) => admission,
                Err(status) => return Ok(vec![Err(status); uploads.len()]),
            };
            let outcomes = led.shard.append(table, tenant, uploads).await;
            if outcomes.iter().flatten().any(|stored| stored.new > 0) {
                admission.into_iter().for_each(NameAdmission::mark_stored);
            }
            Ok(outcomes)
        };
        appended.boxed()
    }

    /// Handles a raft request of another member. Returns none if this node has no replica of the shard.
    pub async fn handle_raft_request(&self, shard: ShardId, request: Bytes) -> Option<Bytes> {
        Some(self.find_replica(shard)?.log.handle_request(request).await)
    }

    /// Confirms that this node leads a shard, so that its heads hold all acknowledged rows [INV-17]. A leader
    /// that was deposed without notice fails here.
    pub async fn confirm_leadership(&self, shard: ShardId) -> Result<(), ShardReadError> {
        let group = self.group_of(shard)?;
        let led = group.require_leader()?;
        if group.is_sole_voter() {
            return Ok(());
        }
        let asked = group.log.leader_read_index().await;
        // All members of the group may have ended, so that no majority confirms.
        asked.map_err(|_| self.no_leader_error(shard))?;
        // The node may have lost and regained the lead, with other rows in between.
        if Arc::ptr_eq(&led, &group.require_leader()?) {
            Ok(())
        } else {
            Err(ShardReadError::Lead { shard, leader: None })
        }
    }

    /// Returns a tenant's rows in a shard that lie after a watermark [INV-17].
    pub fn head_snapshots(
        &self,
        shard: ShardId,
        watermark: u64,
        tenant: &TenantId,
    ) -> Result<Vec<HeadSnapshot>, ShardReadError> {
        let group = self.group_of(shard)?;
        let led = group.require_leader()?;
        let heads = led.shard.heads().heads_after(watermark)?;
        Ok(heads
            .iter()
            .filter_map(|head| Some(head.view(tenant)?.with_compute(&self.parts.deps.compute)))
            .collect())
    }

    /// Counts acknowledged entries of a shard's log after a watermark that were lost to damage [INV-07].
    pub fn count_lost_entries(&self, shard: ShardId, watermark: u64) -> u64 {
        let range = watermark..u64::MAX;
        self.find_replica(shard).map_or(0, |group| match group.leader_handle() {
            Some(led) => led.shard.count_lost(range),
            None => lost(&group.log, range),
        })
    }

    /// Returns shards that lost acknowledged, unflushed entries to damage, with the number of entries
    /// [INV-07].
    pub fn damaged_shards(&self) -> Vec<(ShardId, u64)> {
        let lost = |group: Arc<ShardReplica>| {
            let watermark = group.log.with_state_machine(ShardStateMachine::flushed_index);
            let entries = self.count_lost_entries(group.id, watermark);
            (entries > 0).then_some((group.id, entries))
        };
        self.groups().into_iter().filter_map(lost).collect()
    }

    /// Returns whether ids of a shard were lost to damage and the catalog has not recorded it.
    pub fn has_unreported_lost_ids(&self, shard: ShardId) -> bool {
        self.find_replica(shard)
            .is_some_and(|group| group.log.with_state_machine(ShardStateMachine::lost_ids_index).is_some())
    }

    /// Flushes the heads of all shards that this node leads. Returns when their blocks are registered, or
    /// fails after `patience`. A shard that fails to flush does not stop the others.
    pub async fn flush_all(&self, clock: &Clock, patience: Duration) -> Result<FlushSummary, Status> {
        let groups = self.groups();
        let written = || groups.iter().map(|group| group.counts.written());
        let before: Vec<FlushSummary> = written().collect();
        let cut = |group: &Arc<ShardReplica>| {
            let led = group.leader_handle();
            let counts = Arc::clone(&group.counts);
            let shard = group.id;
            async move {
                let Some(led) = led else { return Ok(()) };
                let cut = clock.timeout(patience, led.flush_heads()).await;
                cut.map_err(|elapsed| match counts.failure() {
                    Some(why) => format!("shard {shard}: {elapsed}: {why}"),
                    None => format!("shard {shard}: {elapsed}"),
                })
            }
        };
        let cuts = futures::future::join_all(groups.iter().map(cut)).await;
        let failed: Vec<String> = cuts.into_iter().filter_map(Result::err).collect();
        if !failed.is_empty() {
            return Err(Status::new(ErrorCode::Deadline, failed.join("; ")));
        }
        Ok(written().zip(before).fold(FlushSummary::default(), |all, (after, before)| FlushSummary {
            blocks: all.blocks + after.blocks - before.blocks,
            samples: all.samples + after.samples - before.samples,
            bytes: all.bytes + after.bytes - before.bytes,
        }))
    }

    /// Ends the raft groups of all shards. Acknowledged profiles are kept.
    pub async fn shutdown(&self) {
        for group in self.groups() {
            group.log.shutdown().await;
        }
    }

    /// Returns the first failure of a shard: it does not open, or it accepts or flushes nothing more until a
    /// restart.
    pub fn failed(&self) -> Option<String> {
        let of = |shard: ShardId, why: &str| format!("shard {shard}: {why}");
        let failing = self.failing.lock().first_key_value().map(|(shard, why)| of(*shard, why));
        let failed = |group: &Arc<ShardReplica>| group.failed().map(|why| of(group.id, &why));
        failing.or_else(|| self.groups().iter().find_map(failed))
    }

    /// Returns statistics of each shard that this node leads.
    pub fn stats(&self, clock: &Clock) -> Vec<ShardStats> {
        let now = clock.monotonic();
        let of = |group: &Arc<ShardReplica>| {
            let led = group.leader_handle()?;
            Some(ShardStats {
                cuts: group.counts.snapshot(),
                since_cut: now.saturating_sub(group.counts.last()),
                ..led.shard.stats(group.id)
            })
        };
        self.groups().iter().filter_map(of).collect()
    }

    pub(crate) fn leader_handles(&self) -> impl Iterator<Item = Arc<LeaderHandle>> {
        self.groups().into_iter().filter_map(|group| group.leader_handle())
    }

    pub(crate) fn groups(&self) -> Vec<Arc<ShardReplica>> {
        self.shards.read().values().cloned().collect()
    }

    pub(crate) fn find_replica(&self, shard: ShardId) -> Option<Arc<ShardReplica>> {
        self.shards.read().get(&shard).cloned()
    }

    fn group_of(&self, shard: ShardId) -> Result<Arc<ShardReplica>, ShardReadError> {
        self.find_replica(shard).ok_or_else(|| self.no_leader_error(shard))
    }

    /// Returns the error for a shard without a known leader: the shard may have retired.
    fn no_leader_error(&self, shard: ShardId) -> ShardReadError {
        let view = self.parts.view.read();
        let is_over = |entry: &ShardEntry| entry.id == shard && entry.is_retired();
        match view.as_ref().is_some_and(|view| view.shards.iter().any(is_over)) {
            true => ShardReadError::Over { shard },
            false => ShardReadError::Lead { shard, leader: None },
        }
    }

    pub(crate) fn node(&self) -> u64 {
        self.parts.deps.consensus.node
    }

    pub(crate) fn compute(&self) -> &ComputePool {
        &self.parts.deps.compute
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.parts.deps.clock
    }

    /// Returns the tenants with profiles in unflushed heads of the shards that this node leads.
    pub fn tenants_in_heads(&self) -> HashSet<TenantId> {
        let heads = self.leader_handles().flat_map(|led| led.shard.heads().unflushed_heads());
        heads.flat_map(|head| head.tenants()).collect()
    }

    /// Reads from the catalog which tenants have blocks. A name that heads and blocks have no more is free
    /// again.
    pub async fn refresh_tenants(&self) -> Result<(), Status> {
        let known = &self.parts.tenants;
        let round = known.begin_refresh();
        // Heads come first: rows that leave them meanwhile are in a block when the catalog is read.
        let in_heads = self.tenants_in_heads();
        let in_blocks =
            self.parts.deps.catalog.tenants().await.map_err(|error| Status::from_error(&error))?;
        known.finish_refresh(round, in_heads, in_blocks.into_iter().collect());
        Ok(())
    }
}

/// Lists the shards of this node: those in the catalog and those that have a log here. The first start opens
/// as many as are configured.
///
/// INV-04: the placement of a service depends on the number of shards. So a folder keeps its number, whatever
/// is configured later. Otherwise services would move, and a duplicate of a profile in another shard would
/// count as new.
async fn load_initial_shards(
    config: &IngesterConfig,
    deps: &IngesterDeps,
) -> Result<Vec<ShardEntry>, IngesterOpenError> {
    let listed = async || {
        Ok::<_, IngesterOpenError>(deps.catalog.list_blocks(&TenantId::anonymous(), 0, 0).await?.shards)
    };
    let mut known = listed().await?;
    // A full disk cannot take a new shard, and none is needed here: these shards have a log.
    let logs = deps.consensus.log.groups().into_iter().filter_map(decode_shard_id);
    for (slot, _) in logs.filter(|&(slot, epoch)| known.iter().all(|known| known.id != shard_id(slot, epoch)))
    {
        tracing::error!(slot, "shard with a local log is missing from the catalog, reopening the shard");
        deps.catalog.open_shard(slot, deps.consensus.node).await?;
    }
    known = listed().await?;
    if known.is_empty() {
        deps.catalog.open_slots(config.single_node_shards, deps.consensus.node).await?;
        known = listed().await?;
    }
    let slots = known.iter().map(|known| known.slot + 1).max().unwrap_or_default();
    if slots != config.single_node_shards.clamp(1, MAX_SLOTS) {
        tracing::warn!(
            slots,
            configured = config.single_node_shards,
            "data directory has another number of shards than ingester.single_node_shards, ignoring the setting"
        );
    }
    Ok(known)
}
