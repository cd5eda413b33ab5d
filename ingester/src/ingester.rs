//! The shards of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use athanor_catalog::{Catalog, CatalogError, MAX_SLOTS, ShardEntry, ShardId, decode_shard_id, shard_id};
use athanor_chassis::compute::ComputeError;
use athanor_chassis::disk::DiskError;
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{
    ByteSize, Clock, ComputePool, ErrorCode, ErrorCodeExt, LimitOverrides, Random, Status, TaskGroup,
    TenantId,
};
use athanor_consensus::replicated::{GroupOpenError as LogError, RaftGroupDeps as Consensus};
use athanor_profile::upload::ProfileUpload;
use athanor_storage::Store;
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};

use crate::decode_pool::DecodePool;
use crate::entry::InheritSource;
use crate::flusher::FlushConfig;
use crate::generations::ShardReadError;
use crate::handoff_peer::HandoffPeer;
use crate::head::{HeadSnapshot, read, write};
use crate::membership::MembershipError;
use crate::replica::{LeaderHandle, ReplicaDeps, ShardReplica};
use crate::shard::{StoredUpload, lost};
use crate::state_machine::{ShardStateMachine, lock};
use crate::stats::{FlushSummary, ShardStats};
use crate::tenants::NameAdmission;

/// How many shards a node may be told to open: each has a log, a head and three tasks of its own.
pub const SHARD_COUNT_RANGE: std::ops::RangeInclusive<u32> = 1..=64;

/// How an ingester works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngesterConfig {
    /// When heads become blocks.
    pub cut: FlushConfig,
    /// How many shards a node opens that is alone, 1 to 64. A folder keeps the number that it was begun with. Example:
    /// `4`.
    pub shards: u32,
    /// Bytes of uploads that may wait for one shard. Example: `64MiB`.
    pub waiting: ByteSize,
    /// Bytes that profiles may take, decoded, while they wait for all shards together. Example: `256MiB`.
    pub decoded: ByteSize,
    /// Bytes of memory for profiles of all shards that are in no block yet, names included; beyond that profiles are
    /// refused until the bucket takes some. Example: `4GiB`.
    pub unregistered: ByteSize,
    /// Percent of its disk that the log may take, 1 to 100: it keeps what is in no block yet. Beyond that profiles are refused
    /// until the bucket takes some. Example: `80`.
    pub unregistered_share: u32,
    /// How many ids one shard remembers, by which repeats are known; about two bytes of memory each. Example: `100000000`.
    pub ids: u64,
    /// How many of them it keeps in memory after a cut, rather than in a file; about 27 bytes each. Example: `65536`.
    pub recent_ids: u32,
    /// Bytes of memory for what the series of one shard have counted whose profiles count since a process began, half of them
    /// for one tenant at most; profiles beyond that are refused. Example: `64MiB`.
    pub counters: ByteSize,
    /// How long this is kept of a series that sends nothing, or as long as profiles may be late if that is longer. The next
    /// profile of one that was forgotten is stored whole. Example: `1h`.
    #[serde(with = "athanor_chassis::units::duration_text")]
    pub counters_idle: Duration,
}

impl Default for IngesterConfig {
    fn default() -> Self {
        Self {
            cut: FlushConfig::default(),
            shards: 4,
            waiting: ByteSize::mib(64),
            decoded: ByteSize::mib(256),
            unregistered: ByteSize::mib(4096),
            unregistered_share: 80,
            ids: 100_000_000,
            recent_ids: 1 << 16,
            counters: ByteSize::mib(64),
            counters_idle: Duration::from_secs(3600),
        }
    }
}

/// What an ingester needs.
#[derive(Clone)]
pub struct IngesterDeps {
    /// Where blocks are registered.
    pub catalog: Arc<dyn Catalog>,
    /// Where their files go.
    pub store: Store,
    /// The node's log and groups.
    pub consensus: Consensus,
    /// Limits of tenants.
    pub overrides: LimitOverrides,
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub random: Random,
    /// Threads.
    pub compute: ComputePool,
    /// Tasks.
    pub tasks: TaskGroup,
    /// Which cluster this is, for blocks to say.
    pub cluster: u128,
    /// No other node has shards: the first start opens the slots. Otherwise shards are opened as [`Ingester::apply_view`] is told.
    pub alone: bool,
    /// The way to shards on other nodes; none where there are no others.
    pub kin: Option<Arc<dyn HandoffPeer>>,
}

/// The shards of one node.
pub struct Ingester {
    pub(crate) shards: RwLock<BTreeMap<ShardId, Arc<ShardReplica>>>,
    /// The newest revision of what every node must know that was taken. Held while shards are opened and ended.
    pub(crate) taken: tokio::sync::Mutex<u64>,
    /// Shards that should be here and do not open, and why.
    failing: Mutex<BTreeMap<ShardId, String>>,
    pub(crate) parts: ReplicaDeps,
    /// The newest table that is on this disk; 0 for none.
    pub(crate) kept: AtomicU64,
}

/// What this node can say of a shard of which it is a member [INV-16].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalShardReport {
    /// The shard.
    pub shard: ShardId,
    /// The slot that it serves.
    pub slot: u32,
    /// Which of the slot's shards it is.
    pub epoch: u32,
    /// Who has its log.
    pub members: BTreeSet<u64>,
    /// Everything up to here lies in registered blocks, as far as its log says; none if the log cannot be opened.
    pub cut: Option<u64>,
    /// Where its log has ended; none if it has not, or cannot be opened.
    pub sealed: Option<u64>,
    /// The newest table whose fence is in its log.
    pub fenced: u64,
    /// Whose ids its log has as a whole.
    pub inherited: Option<(InheritSource, ShardId)>,
    /// Whether it has taken profiles; none if its log cannot be opened.
    pub taken: Option<bool>,
    /// All that any member has stored for good is known here: a majority has said how much that is.
    pub whole: bool,
}

/// Why an ingester does not start.
#[derive(Debug, thiserror::Error)]
pub enum IngesterOpenError {
    /// The catalogue did not name its shards.
    #[error("shards cannot be opened")]
    Catalog(#[from] CatalogError),
    /// A shard's log cannot be read.
    #[error("the log of shard {shard} cannot be opened")]
    Log {
        /// The shard.
        shard: ShardId,
        /// Why.
        source: LogError,
    },
    /// A shard's log does not take that this node leads it, or what it holds cannot be read back.
    #[error("shard {shard} cannot be led: {source}")]
    Lead {
        /// The shard.
        shard: ShardId,
        /// Why.
        source: Status,
    },
    /// The folder of its ids cannot be read.
    #[error("the ids of recent profiles cannot be read")]
    Ids(#[from] DiskError),
    /// It is not known what this node is a member of.
    #[error("what is known of shard {shard} cannot be read")]
    Membership {
        /// The shard.
        shard: ShardId,
        /// Why.
        source: MembershipError,
    },
    /// It is not known of which shards this node is a member.
    #[error("of which shards this node is a member cannot be read")]
    Memberships(#[source] MembershipError),
    /// A thread that should have read or written failed.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// The process is ending.
    #[error(transparent)]
    Ending(#[from] SpawnError),
}

impl ErrorCodeExt for IngesterOpenError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Catalog(error) => error.code(),
            Self::Log { source, .. } => source.code(),
            Self::Lead { source, .. } => source.code,
            Self::Ids(error) => error.code(),
            Self::Membership { source, .. } | Self::Memberships(source) => source.code(),
            Self::Compute(error) => error.code(),
            Self::Ending(error) => error.code(),
        }
    }
}

impl Ingester {
    /// Where no other node has shards, opens those that the catalogue knows, or the first ones; reads their logs and begins
    /// to work. Otherwise nothing is here before [`Ingester::apply_view`].
    pub async fn open(config: &IngesterConfig, deps: IngesterDeps) -> Result<Self, IngesterOpenError> {
        let walkers = Arc::new(DecodePool::new(deps.compute.clone(), config.decoded));
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

    /// Opens the shards of which this node is a member, and ends those that retired. One that does not open is told, is
    /// tried again with the next view, and keeps no other from opening. A view that is older than one that was taken
    /// changes nothing.
    pub async fn apply_view(&self, view: &athanor_catalog::RoutingView) {
        let mut taken = self.taken.lock().await;
        if view.revision < *taken {
            return;
        }
        *taken = view.revision;
        *write(&self.parts.view) = Some(Arc::new(view.clone()));
        self.persist_tables(view).await;
        for entry in &view.shards {
            let here = self.find_replica(entry.id);
            match here {
                Some(group) if entry.is_retired() => {
                    write(&self.shards).remove(&entry.id);
                    group.end().await;
                    tracing::info!(shard = entry.id, "the shard is over; its member here has ended");
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
        lock(&self.failing).retain(|shard, _| !is_over(shard));
    }

    pub(crate) async fn join(&self, entry: ShardEntry) {
        let shard = entry.id;
        match ShardReplica::open(self.parts.clone(), entry).await {
            Ok(group) => {
                write(&self.shards).insert(shard, group);
                lock(&self.failing).remove(&shard);
            }
            Err(error) => {
                let why = Status::from_error(&error).message;
                tracing::error!(shard, why, "a shard of which this node is a member does not open");
                lock(&self.failing).insert(shard, why);
            }
        }
    }

    /// The slots that it has a shard of, ascending.
    pub fn slots(&self) -> Vec<u32> {
        let slots: BTreeSet<u32> = self.groups().iter().map(|group| group.slot).collect();
        slots.into_iter().collect()
    }

    /// The latest shard of a slot that is here: it takes what comes.
    pub fn shard_of_slot(&self, slot: u32) -> Option<ShardId> {
        // Their numbers ascend with the epoch.
        read(&self.shards).values().rev().find(|group| group.slot == slot).map(|group| group.id)
    }

    /// Stores uploads in a shard; `table` is the version of the table by which they were placed. What is refused as a
    /// whole is in no log: this node does not lead the shard.
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

    /// Answers another member of a shard's group; none where no such shard is here.
    pub async fn handle_raft_request(&self, shard: ShardId, request: Bytes) -> Option<Bytes> {
        Some(self.find_replica(shard)?.log.handle_request(request).await)
    }

    /// That this node leads a shard now, so that its rows are all that were acknowledged [INV-17]. One that was
    /// deposed, and does not know it yet, finds out.
    pub async fn confirm_leadership(&self, shard: ShardId) -> Result<(), ShardReadError> {
        let group = self.group_of(shard)?;
        let led = group.require_leader()?;
        if group.is_sole_voter() {
            return Ok(());
        }
        let asked = group.log.leader_read_index().await;
        // Its members may have ended meanwhile, so that none confirms it.
        asked.map_err(|_| self.no_leader_error(shard))?;
        // It may have been deposed and chosen again, with other rows in between.
        if Arc::ptr_eq(&led, &group.require_leader()?) {
            Ok(())
        } else {
            Err(ShardReadError::Lead { shard, leader: None })
        }
    }

    /// A tenant's rows in a shard that lie after a watermark [INV-17].
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

    /// How many entries of a shard's log after a watermark were acknowledged and lost to damage [INV-07].
    pub fn count_lost_entries(&self, shard: ShardId, watermark: u64) -> u64 {
        let range = watermark..u64::MAX;
        self.find_replica(shard).map_or(0, |group| match group.leader_handle() {
            Some(led) => led.shard.count_lost(range),
            None => lost(&group.log, range),
        })
    }

    /// The shards of which acknowledged entries are in no block and were lost to damage, and how many [INV-07].
    pub fn damaged_shards(&self) -> Vec<(ShardId, u64)> {
        let lost = |group: Arc<ShardReplica>| {
            let watermark = group.log.with_state_machine(ShardStateMachine::flushed_index);
            let entries = self.count_lost_entries(group.id, watermark);
            (entries > 0).then_some((group.id, entries))
        };
        self.groups().into_iter().filter_map(lost).collect()
    }

    /// Whether ids of a shard were lost to damage, and the catalogue does not say so yet.
    pub fn has_unreported_lost_ids(&self, shard: ShardId) -> bool {
        self.find_replica(shard)
            .is_some_and(|group| group.log.with_state_machine(ShardStateMachine::lost_ids_index).is_some())
    }

    /// Cuts the heads of all shards that this node leads and returns when their blocks are registered, or the time is up. One that cannot be
    /// cut keeps no other from it.
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

    /// Ends the shards' groups. What was acknowledged is kept.
    pub async fn shutdown(&self) {
        for group in self.groups() {
            group.log.shutdown().await;
        }
    }

    /// Why a shard does not open, takes nothing more, or cuts no more until a restart: the first that has failed.
    pub fn failed(&self) -> Option<String> {
        let of = |shard: ShardId, why: &str| format!("shard {shard}: {why}");
        let failing = lock(&self.failing).first_key_value().map(|(shard, why)| of(*shard, why));
        let failed = |group: &Arc<ShardReplica>| group.failed().map(|why| of(group.id, &why));
        failing.or_else(|| self.groups().iter().find_map(failed))
    }

    /// How each shard fares that this node leads.
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
        read(&self.shards).values().cloned().collect()
    }

    pub(crate) fn find_replica(&self, shard: ShardId) -> Option<Arc<ShardReplica>> {
        read(&self.shards).get(&shard).cloned()
    }

    fn group_of(&self, shard: ShardId) -> Result<Arc<ShardReplica>, ShardReadError> {
        self.find_replica(shard).ok_or_else(|| self.no_leader_error(shard))
    }

    /// Why nobody is known who leads a shard: it may be over.
    fn no_leader_error(&self, shard: ShardId) -> ShardReadError {
        let view = read(&self.parts.view);
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
}

/// The shards of this node: those that the catalogue knows and those that have a log here. The first start opens as
/// many as it is told to.
///
/// INV-04: a service's slot follows from their number, so a folder keeps it, whatever is configured later: else
/// services would move, and a repeat of what another shard has stored would count again.
async fn load_initial_shards(
    config: &IngesterConfig,
    deps: &IngesterDeps,
) -> Result<Vec<ShardEntry>, IngesterOpenError> {
    let listed = async || {
        Ok::<_, IngesterOpenError>(deps.catalog.list_blocks(&TenantId::anonymous(), 0, 0).await?.shards)
    };
    let mut known = listed().await?;
    // A disk that is full takes no new shard, and need not.
    let logs = deps.consensus.log.groups().into_iter().filter_map(decode_shard_id);
    for (slot, _) in logs.filter(|&(slot, epoch)| known.iter().all(|known| known.id != shard_id(slot, epoch)))
    {
        tracing::error!(slot, "the catalogue has lost a shard that has a log here; it learns of it again");
        deps.catalog.open_shard(slot, deps.consensus.node).await?;
    }
    known = listed().await?;
    if known.is_empty() {
        deps.catalog.open_slots(config.shards, deps.consensus.node).await?;
        known = listed().await?;
    }
    let slots = known.iter().map(|known| known.slot + 1).max().unwrap_or_default();
    if slots != config.shards.clamp(1, MAX_SLOTS) {
        tracing::warn!(
            slots,
            configured = config.shards,
            "this folder was begun with another number of shards than ingester.shards says, and keeps it"
        );
    }
    Ok(known)
}
