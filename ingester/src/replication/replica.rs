//! Replica of a shard on this node: a member of its raft group and, while this node leads, the leader's
//! workers.
//!
//! ```text
//!  member: log, window ─► leads? ─► Begin ─► log is replayed ─► LeaderHandle: stores, serves, flushes
//!              ▲                                                    │
//!              └── lead is lost, or result of a batch is unknown ◄──┘
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use athanor_catalog::{CatalogError, DataLoss, RoutingView, ShardEntry, ShardId, ShardPhase};
use athanor_chassis::tasks::TaskHandle;
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_consensus::RaftGroup;
use athanor_consensus::replicated::{GroupBootstrap, LeaderInfo, RaftGroupDeps as Consensus};
use futures::future::{BoxFuture, FutureExt};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::admission::tenants::KnownTenants;
use crate::decode::decode_pool::DecodePool;
use crate::delta::cumulative_tracker::DeltaLimits;
use crate::flush::flusher::{FlushDeps, FlushRequests, HeadFlusher};
use crate::head_store::generations::ShardReadError;
use crate::ingester::config::IngesterConfig;
use crate::ingester::deps::IngesterDeps;
use crate::ingester::local_report::LocalShardReport;
use crate::ingester::open_error::IngesterOpenError;
use crate::log::entry::{FIRST_TABLE_VERSION, ShardLogEntry};
use crate::log::state_machine::ShardStateMachine;
use crate::replication::lost_ids::report_lost_ids;
use crate::replication::membership;
use crate::stats::FlushCounters;
use crate::window::{DedupWindow, RunFiles};
use crate::write::leader_term::{LeaderTerm, PendingTerm, TermStart};
use crate::write::shard::{LeaderShard, ShardDeps, lost};
use phase_reconciler::{PhaseReconciler, QUORUM_SILENCE_LIMIT};

mod phase_reconciler;

/// Maximum bytes of an entry, if the log allows as much: a follower has a second to receive one [INV-06].
const MAX_ENTRY_BYTES: usize = 8 << 20;
/// Backoff after a failed start of a leader term.
const TERM_START_RETRY_BACKOFF: Duration = Duration::from_millis(200);

/// Dependencies that the replicas of a node share.
#[derive(Clone)]
pub(crate) struct ReplicaDeps {
    pub(crate) config: IngesterConfig,
    pub(crate) deps: IngesterDeps,
    pub(crate) walkers: Arc<DecodePool>,
    /// Newest view from the catalog.
    pub(crate) view: Arc<RwLock<Option<Arc<RoutingView>>>>,
    pub(crate) tenants: Arc<KnownTenants>,
}

/// Member of a shard's raft group on this node.
pub(crate) struct ShardReplica {
    pub(crate) id: ShardId,
    /// Slot of the shard, which never changes, like epoch and members.
    pub(crate) slot: u32,
    pub(crate) epoch: u32,
    pub(crate) members: BTreeSet<u64>,
    /// Number of lead transfers in progress. No profiles are accepted meanwhile.
    pub(crate) leaving: AtomicU32,
    /// True if a successor has a copy of the dedup window.
    pub(crate) copied: AtomicBool,
    /// True if the log is sealed.
    pub(crate) sealed: AtomicBool,
    /// Last time at which a majority responded while this node led, milliseconds of its monotonic clock.
    heard: AtomicU64,
    /// Notified when there is a new view.
    pub(crate) told: Notify,
    pub(crate) log: RaftGroup<ShardStateMachine>,
    pub(crate) counts: Arc<FlushCounters>,
    parts: ReplicaDeps,
    claim: Arc<PendingTerm>,
    /// Notified when a flush marker is applied, so that the log may be purged.
    cuts: Arc<Notify>,
    led: RwLock<Option<Arc<LeaderHandle>>>,
    watch: Mutex<Option<TaskHandle<()>>>,
}

/// Handle of a shard while this node leads it.
pub(crate) struct LeaderHandle {
    pub(crate) shard: Arc<LeaderShard>,
    pub(crate) asked: Arc<FlushRequests>,
    /// Tasks that prepare, propose, flush and reconcile.
    works: Vec<TaskHandle<()>>,
    /// Cancelled when the leader term ends, which stops its tasks.
    over: CancellationToken,
    /// Raft term in which this node leads.
    term: u64,
}

impl LeaderHandle {
    /// Flushes all heads. If the lead ends meanwhile, this node has nothing left to flush.
    pub(crate) async fn flush_heads(&self) {
        tokio::select! {
            biased;
            () = self.over.cancelled() => {}
            () = self.asked.request_flush() => {}
        }
    }
}

impl ReplicaDeps {
    /// Returns the bootstrap mode of a member, which is durable before the member begins.
    async fn founding(&self, entry: &ShardEntry) -> Result<GroupBootstrap, IngesterOpenError> {
        let Consensus { disk, log, compute, .. } = self.deps.consensus.clone();
        let (entry, shard) = (entry.clone(), entry.id);
        let found = move || membership::read_bootstrap_mode(&*disk, &entry, log.groups().contains(&entry.id));
        compute.run(found).await?.map_err(|source| IngesterOpenError::Membership { shard, source })
    }

    /// Records that a member has begun here.
    async fn founded(&self, entry: &ShardEntry) -> Result<(), IngesterOpenError> {
        let Consensus { disk, compute, .. } = self.deps.consensus.clone();
        let (entry, shard) = (entry.clone(), entry.id);
        compute
            .run(move || membership::mark_bootstrapped(&*disk, &entry))
            .await?
            .map_err(|source| IngesterOpenError::Membership { shard, source })
    }
}

impl ShardReplica {
    /// Opens the log of a shard's member. If this node is standalone and the sole voter, it leads on return.
    pub(crate) fn open(
        parts: ReplicaDeps,
        entry: ShardEntry,
    ) -> BoxFuture<'static, Result<Arc<Self>, IngesterOpenError>> {
        // A member's whole work begins here: boxed, it is compiled in this crate and not in its callers.
        Self::opened(parts, entry).boxed()
    }

    async fn opened(parts: ReplicaDeps, entry: ShardEntry) -> Result<Arc<Self>, IngesterOpenError> {
        let ReplicaDeps { config, deps, .. } = &parts;
        let claim = Arc::new(PendingTerm::default());
        let cuts = Arc::new(Notify::new());
        let shard = entry.id;
        let disk = Arc::clone(&deps.consensus.disk);
        let node = deps.consensus.node;
        let shelf = RunFiles::open(disk, shard, node, config.dedup.max_memory_ids as usize)?;
        let machine = ShardStateMachine::new(
            Arc::clone(&claim),
            Arc::clone(&cuts),
            deps.clock.clone(),
            DedupWindow::new(shelf),
        );
        let mut members = entry.members.clone();
        if members.is_empty() {
            // A rebuilt catalog may not know the members: then the node that has the log is the member.
            members.insert(node);
        }
        let founding = match deps.alone {
            true => GroupBootstrap::Members(members.clone()),
            false => parts.founding(&entry).await?,
        };
        let log = RaftGroup::open(&deps.consensus, shard, founding, machine)
            .await
            .map_err(|source| IngesterOpenError::Log { shard, source })?;
        let counts = Arc::new(FlushCounters::new(deps.clock.monotonic()));
        let led = RwLock::default();
        let watch = Mutex::default();
        let tasks = deps.tasks.clone();
        let group = Self {
            id: shard,
            slot: entry.slot,
            epoch: entry.epoch,
            members,
            leaving: AtomicU32::new(0),
            copied: AtomicBool::new(false),
            sealed: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            told: Notify::new(),
            log,
            counts,
            parts,
            claim,
            cuts,
            led,
            watch,
        };
        let group = Arc::new(group);
        if !group.parts.deps.alone
            && let Err(error) = group.parts.founded(&entry).await
        {
            // The shard may be opened again, and two members must not share one log.
            group.log.shutdown().await;
            return Err(error);
        }
        // A member of a cluster may lead by its own log alone, while others know a later leader.
        if group.parts.deps.alone && group.is_sole_voter() {
            let led = group.begin(entry).await.map_err(|source| IngesterOpenError::Lead { shard, source })?;
            *group.led.write() = Some(led);
        }
        let watching = Arc::clone(&group);
        let token = tasks.shutdown_token();
        let watch = tasks.spawn(format!("shard {shard} leadership watch"), async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = watching.watch() => {}
            }
        })?;
        *group.watch.lock() = Some(watch);
        Ok(group)
    }

    /// Returns whether no other node votes, so that no other can lead.
    pub(crate) fn is_sole_voter(&self) -> bool {
        self.log.members().voters == [self.parts.deps.consensus.node].into()
    }

    /// Returns the state of the shard on this member. Waits while entries are applied.
    pub(crate) fn shard_report(&self) -> LocalShardReport {
        let shard = self.id;
        let slot = self.slot;
        let epoch = self.epoch;
        let members = self.members.clone();
        self.log.with_state_machine(|machine| {
            let cut = Some(machine.flushed_index());
            let standing = machine.log_status();
            let fenced =
                standing.fences().map(|(version, _)| version).next_back().unwrap_or(FIRST_TABLE_VERSION);
            let sealed = standing.sealed;
            let inherited = standing.inherited;
            let taken = standing.latest.is_some();
            let taken = Some(taken);
            LocalShardReport {
                shard,
                slot,
                epoch,
                members,
                cut,
                sealed,
                fenced,
                inherited,
                taken,
                whole: false,
            }
        })
    }

    /// Returns the leader handle, if this node leads.
    pub(crate) fn leader_handle(&self) -> Option<Arc<LeaderHandle>> {
        self.led.read().clone()
    }

    /// Returns the leader handle, or an error with the known leader.
    pub(crate) fn require_leader(&self) -> Result<Arc<LeaderHandle>, ShardReadError> {
        self.leader_handle().ok_or_else(|| self.moved())
    }

    /// Returns the leader handle while the shard accepts profiles, or an error with the known leader.
    pub(crate) fn require_writable(&self) -> Result<Arc<LeaderHandle>, ShardReadError> {
        // A leader without responses from others would keep its callers waiting, and most likely another
        // leads by now.
        let is_over =
            self.sealed.load(Ordering::SeqCst) || self.log.is_partitioned() || self.has_lost_quorum();
        let stays = self.leaving.load(Ordering::SeqCst) == 0 && !is_over;
        self.leader_handle().filter(|_| stays).ok_or_else(|| self.moved())
    }

    /// Returns whether no majority responded to this node for so long that others may have abandoned the
    /// shard.
    pub(crate) fn has_lost_quorum(&self) -> bool {
        if self.parts.deps.alone || self.is_sole_voter() {
            return false;
        }
        let now = self.parts.deps.clock.monotonic();
        let silent = now.saturating_sub(Duration::from_millis(self.heard.load(Ordering::SeqCst)))
            > QUORUM_SILENCE_LIMIT;
        if !silent && !self.log.is_partitioned() {
            self.hear();
        }
        silent
    }

    fn hear(&self) {
        let now = self.parts.deps.clock.monotonic();
        self.heard.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Returns the newest view from the catalog, if there is one.
    pub(crate) fn view(&self) -> Option<Arc<RoutingView>> {
        self.parts.view.read().clone()
    }

    pub(crate) fn deps(&self) -> &IngesterDeps {
        &self.parts.deps
    }

    /// Returns the bounds of the values of cumulative series.
    pub(crate) fn delta_limits(&self) -> DeltaLimits {
        let config = &self.parts.config;
        DeltaLimits { bytes: config.delta.max_state_bytes_per_shard, idle: config.delta.idle_timeout }
    }

    /// Returns the maximum bytes of an entry.
    pub(crate) fn entry_bytes(&self) -> usize {
        usize::try_from(self.parts.deps.consensus.log.max_entry_bytes())
            .unwrap_or(MAX_ENTRY_BYTES)
            .min(MAX_ENTRY_BYTES)
    }

    fn moved(&self) -> ShardReadError {
        let node = self.parts.deps.consensus.node;
        ShardReadError::Lead {
            shard: self.id,
            leader: self.log.leadership().current().node.filter(|&leader| leader != node),
        }
    }

    /// Ends this member. Acknowledged profiles are kept.
    pub(crate) async fn end(&self) {
        // The watch ends with the raft group, and no leader term starts after it.
        self.log.shutdown().await;
        let watch = self.watch.lock().take();
        if let Some(watch) = watch
            && let Err(error) = watch.await
        {
            tracing::error!(shard = self.id, %error, "leadership watch of shard failed");
        }
        if let Some(led) = self.led.write().take() {
            led.over.cancel();
        }
    }

    /// Returns why the shard accepts or flushes nothing more until a restart.
    pub(crate) fn failed(&self) -> Option<String> {
        let led = self.leader_handle();
        let works = led.iter().filter(|led| !led.over.is_cancelled()).flat_map(|led| &led.works);
        let ended =
            |work: &TaskHandle<()>| work.is_finished().then(|| format!("task {} has ended", work.name()));
        let failed = self.log.failure().or_else(|| works.filter_map(ended).next());
        failed.or_else(|| self.watch.lock().as_ref().and_then(ended))
    }

    /// Leads whenever raft elects this node, and follows in between, until the member ends.
    async fn watch(self: &Arc<Self>) {
        let mut leadership = self.log.leadership();
        loop {
            let led = self.leader_handle();
            let LeaderInfo { here, term, .. } = leadership.current();
            if here && led.is_none() {
                tokio::select! {
                    biased;
                    leader = leadership.changed() => if leader.is_none() { return },
                    () = self.try_start_term() => {}
                }
                continue;
            }
            // A leader that was deposed and elected again does not know the entries in between.
            if let Some(led) = led.filter(|led| !here || led.term != term || led.over.is_cancelled()) {
                tracing::info!(shard = self.id, here, "lost leadership of shard");
                led.over.cancel();
                self.led.write().take();
                continue;
            }
            let led = self.leader_handle();
            let over = async {
                match &led {
                    Some(led) => led.over.cancelled().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                leader = leadership.changed() => if leader.is_none() { return },
                () = over => {}
                () = self.cuts.notified(), if !here => self.purge_flushed().await,
            }
        }
    }

    async fn try_start_term(self: &Arc<Self>) {
        let begun = async {
            let listing = self.parts.deps.catalog.list_blocks(&TenantId::anonymous(), 0, 0).await;
            let listing = listing.map_err(|error| Status::from_error(&error))?;
            let entry = listing.shards.into_iter().find(|entry| entry.id == self.id);
            let unknown = || Status::new(ErrorCode::NotFound, "the shard is unknown to the catalog");
            self.begin(entry.ok_or_else(unknown)?).await
        };
        match begun.await {
            Ok(led) => *self.led.write() = Some(led),
            Err(error) => {
                tracing::warn!(shard = self.id, %error, "failed to start leader term of shard, will retry");
                self.parts.deps.clock.sleep(TERM_START_RETRY_BACKOFF).await;
            }
        }
    }

    /// Purges flushed entries from the log of a follower. A leader does so as part of each flush.
    async fn purge_flushed(&self) {
        if let Err(error) =
            self.log.compact(self.log.with_state_machine(ShardStateMachine::flushed_index)).await
        {
            tracing::warn!(shard = self.id, %error, "failed to purge raft log after flush, will retry on next flush");
        }
    }

    /// Logs the start of a leader term, replays unflushed entries, and starts the workers.
    async fn begin(self: &Arc<Self>, mut entry: ShardEntry) -> Result<Arc<LeaderHandle>, Status> {
        let ReplicaDeps { config, deps, .. } = &self.parts;
        if !matches!(entry.phase, ShardPhase::Lost { .. }) {
            report_to_catalog(deps, &mut entry, &self.log)
                .await
                .map_err(|error| Status::from_error(&error))?;
        }
        let reign = Arc::new(LeaderTerm::new(deps.clock.clone(), self.delta_limits()));
        let term = self.log.leadership().current().term;
        let begun = self.claim(&reign).await?;
        // All entries of earlier leaders are applied: the handoffs with predecessor and successor are known.
        self.open_successor(&entry).await?;
        self.rejoin_after_loss(&entry).await?;
        self.sealed.store(
            self.log.with_state_machine(|machine| machine.log_status().sealed.is_some()),
            Ordering::SeqCst,
        );
        self.hear();
        reign.replay_log(&self.log, &deps.compute).await?;
        let heads = reign.heads().unflushed_heads().into_iter();
        self.parts.tenants.add_stored(heads.flat_map(|head| head.tenants()));
        let over = CancellationToken::new();
        let (shard, works) =
            LeaderShard::new(self.shard_deps(), reign, begun, self.log.clone(), over.clone());
        let shard = Arc::new(shard);
        let asked = Arc::new(FlushRequests::default());
        let cut_deps = FlushDeps {
            cluster: deps.cluster,
            catalog: Arc::clone(&deps.catalog),
            store: deps.store.clone(),
            clock: deps.clock.clone(),
            random: deps.random.clone(),
            compute: deps.compute.clone(),
            counts: Arc::clone(&self.counts),
        };
        let cutter =
            HeadFlusher::new(config.flush.clone(), cut_deps, Arc::clone(&shard), entry, Arc::clone(&asked));
        let spawn = |what: &str, work: BoxFuture<'static, ()>| {
            let spawned = deps.tasks.spawn(format!("shard {} {what}", self.id), work);
            spawned.map_err(|error| Status::from_error(&error))
        };
        let ends = |work: BoxFuture<'static, ()>| {
            let token = deps.tasks.shutdown_token();
            let over = over.clone();
            Box::pin(async move {
                tokio::select! {
                    biased;
                    () = token.cancelled() => {}
                    () = over.cancelled() => {}
                    () = work => {}
                }
            })
        };
        // The proposer ends with the preparer, after it has proposed all prepared batches.
        let mut works = vec![
            spawn("batch preparer", ends(Box::pin(works.preparer.run())))?,
            spawn("batch proposer", Box::pin(works.proposer.run()))?,
            spawn("head flusher", ends(Box::pin(cutter.run())))?,
        ];
        if !deps.alone {
            let steward =
                PhaseReconciler { group: Arc::clone(self), shard: Arc::clone(&shard), over: over.clone() };
            works.push(spawn("phase reconciler", ends(Box::pin(steward.run())))?);
        }
        Ok(Arc::new(LeaderHandle { shard, asked, works, over, term }))
    }

    fn shard_deps(&self) -> ShardDeps {
        let ReplicaDeps { config, deps, walkers, .. } = &self.parts;
        ShardDeps {
            overrides: deps.overrides.clone(),
            clock: deps.clock.clone(),
            random: deps.random.clone(),
            compute: deps.compute.clone(),
            walkers: Arc::clone(walkers),
            entry: self.entry_bytes(),
            waiting: config.max_queued_bytes_per_shard,
            ids: config.dedup.max_ids_per_shard,
        }
    }

    /// Logs the start of a leader term, and returns it once applied.
    async fn claim(&self, reign: &Arc<LeaderTerm>) -> Result<TermStart, Status> {
        let deps = &self.parts.deps;
        let token = deps.random.next_u64();
        self.claim.put(token, Arc::clone(reign));
        let (window, stored) =
            self.log.with_state_machine(|machine| (machine.window(), machine.last_stored_at()));
        // Time since the last entry came to this node; zero after a start, so that ids are kept a little
        // longer [INV-10].
        let since = stored.map_or(Duration::ZERO, |stored| deps.clock.monotonic().saturating_sub(stored));
        let stamp = window.lock().stamp() + u64::try_from(since.as_nanos()).unwrap_or_default();
        let begin = ShardLogEntry::encode_term_start(token, deps.consensus.node, stamp).into();
        self.log.propose_essential(begin).await.map_err(|error| Status::from_error(&error))?;
        reign
            .term_start()
            .ok_or_else(|| Status::new(ErrorCode::Internal, "no leader term after its log entry was applied"))
    }
}

impl Drop for LeaderHandle {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

/// Reports to the catalog the registered rows and the damage that only the shard's log knows.
async fn report_to_catalog(
    deps: &IngesterDeps,
    entry: &mut ShardEntry,
    log: &RaftGroup<ShardStateMachine>,
) -> Result<(), CatalogError> {
    let shard = entry.id;
    let cut = log.with_state_machine(ShardStateMachine::flushed_index);
    report_lost_ids(&*deps.catalog, shard, log).await?;
    // Rows of these entries are in blocks and are not lost. Their ids are in the log alone.
    if lost(log, cut..entry.watermark) > 0 {
        let to = entry.watermark;
        tracing::error!(shard, to, "lost dedup ids of records up to this entry to log damage");
        deps.catalog.record_data_loss(DataLoss::ForgottenIds { shard, to }).await?;
    }
    if cut > entry.watermark {
        tracing::error!(
            shard,
            from = entry.watermark,
            to = cut,
            "blocks of these entries are missing from the catalog, searching the bucket for these blocks"
        );
        deps.catalog.advance_watermark(shard, cut).await?;
        entry.watermark = cut;
    }
    Ok(())
}
