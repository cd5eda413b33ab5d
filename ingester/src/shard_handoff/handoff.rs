//! Handoff: start of a shard that succeeds another, and return of a lost shard [INV-12, INV-13].
//!
//! ```text
//!  successor  copy all ids ─► copy later ids, repeatedly ─► (the other seals) ─► the rest
//!             ─► cumulative values ─► fences ─► Opened; or ids in the slot's blocks, if the other is lost
//!  returned   Seal ─► reconcile with the serving shard ─► read blocks ─► Drop ─► Settled
//! ```
//! An interrupted handoff starts over: the first ids of a copy discard those that were copied before.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use athanor_catalog::{CatalogCommand, HandoffSource, ShardEntry, ShardId, ShardPhase};
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_profile::encoding::hash::ContentHash;

use crate::delta::cumulative_tracker::CumulativeTracker;
use crate::log::entry::{FIRST_TABLE_VERSION, InheritEntry, InheritSource, ShardLogEntry};
use crate::log::state_machine::{ShardApplyResult, ShardStateMachine};
use crate::replication::replica::ShardReplica;
use crate::shard_handoff::block_ids;
use crate::shard_handoff::handoff_peer::{HandoffPeer, HandoffWindowRequest, MAX_IDS_PER_PAGE, WindowPage};
use crate::write::batcher::longest_id_retention;
use crate::write::shard::CHUNKS_PER_ENTRY;

/// Interval of checks whether the previous shard has sealed.
const SEAL_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Margin by which blocks may be named before the id window and are still read. Clocks differ, and a block is
/// named before it is registered.
const BLOCK_LOOKBACK_MARGIN: Duration = Duration::from_secs(2 * 3600);

impl ShardReplica {
    /// Opens a successor for records: it copies the required state, logs the fences, and reports to the
    /// catalog.
    pub(crate) async fn open_successor(&self, entry: &ShardEntry) -> Result<(), Status> {
        let ShardPhase::Opening { source } = entry.phase else { return Ok(()) };
        let inherited = match source {
            HandoffSource::None => source,
            HandoffSource::DedupWindow { predecessor, up_to } => {
                let seal = self.copy(predecessor, up_to).await?;
                self.copy_counted(predecessor, seal).await?;
                HandoffSource::DedupWindow { predecessor, up_to: Some(seal) }
            }
            HandoffSource::RegisteredBlocks { predecessor, .. } => {
                self.copy_blocks(entry, predecessor).await?;
                source
            }
        };
        let fenced = self.fence_all().await?;
        let opened = CatalogCommand::Opened { shard: self.id, inherited, fenced };
        self.deps().catalog.apply_command(opened).await.map_err(|error| Status::from_error(&error))
    }

    fn kin(&self) -> Result<&dyn HandoffPeer, Status> {
        let none = || Status::new(ErrorCode::Unavailable, "no remote nodes configured (single-node mode)");
        self.deps().kin.as_deref().ok_or_else(none)
    }

    /// Returns the current catalog entry of a shard.
    pub(crate) async fn read_catalog_entry(&self, shard: ShardId) -> Result<ShardEntry, Status> {
        let listing = self.deps().catalog.list_blocks(&TenantId::anonymous(), 0, 0).await;
        let shards = listing.map_err(|error| Status::from_error(&error))?.shards;
        let gone = || {
            Status::new(ErrorCode::NotFound, format!("shard {shard} is unknown to the catalog, or retired"))
        };
        shards.into_iter().find(|entry| entry.id == shard).ok_or_else(gone)
    }

    /// Copies the ids of the previous shard, until that has sealed. Returns the index of the seal.
    async fn copy(&self, predecessor: ShardId, mut up_to: Option<u64>) -> Result<u64, Status> {
        let whole = self.log.with_state_machine(|machine| {
            machine.log_status().inherited == Some((InheritSource::DedupWindow, predecessor))
        });
        if let Some(at) = up_to.filter(|_| whole) {
            return Ok(at);
        }
        let mut since = None;
        loop {
            let before = self.read_catalog_entry(predecessor).await?;
            since = Some(self.copy_pages(&before, since, up_to).await?);
            if let Some(at) = up_to {
                return Ok(at);
            }
            self.deps().clock.sleep(SEAL_POLL_INTERVAL).await;
            match self.read_catalog_entry(self.id).await?.phase {
                ShardPhase::Opening {
                    source: HandoffSource::DedupWindow { predecessor: current, up_to: seal },
                } if current == predecessor => up_to = seal,
                phase => {
                    let message = format!("the shard is {phase}; another shard copies the ids now");
                    return Err(Status::new(ErrorCode::Unavailable, message));
                }
            }
        }
    }

    /// Copies the ids of another shard, or those since an age. Returns the age at which the copy began.
    async fn copy_pages(
        &self,
        before: &ShardEntry,
        since: Option<u32>,
        upto: Option<u64>,
    ) -> Result<u32, Status> {
        let mut request = HandoffWindowRequest {
            after: None,
            min_age: since.unwrap_or_default(),
            min_applied: upto.unwrap_or_default(),
            incremental: since.is_some(),
            delta_state_after: None,
        };
        let mut first = since.is_none();
        let mut age = None;
        loop {
            let page = self.kin()?.fetch_window_page(before, request).await?;
            if !page.advances_from(request.after) {
                return Err(Status::new(
                    ErrorCode::Internal,
                    "protocol error: page of a dedup window does not advance",
                ));
            }
            let WindowPage { ids, inherited, held_for, has_more, log_age, retention_nanos: span, .. } = page;
            age.get_or_insert(log_age);
            request.after = ids.last().copied().or(request.after);
            let size = self.max_ids_per_entry();
            let chunks = ids.len().div_ceil(size).max(1);
            for (number, begin) in (1..=chunks).zip((0..).step_by(size)) {
                let ids = ids[begin..ids.len().min(begin + size)].to_vec();
                let here = |(place, of): &(u32, ShardId)| {
                    let place = (*place as usize).checked_sub(begin).filter(|place| *place < ids.len())?;
                    Some((place as u32, *of))
                };
                let taken = inherited.iter().filter_map(here).collect();
                let last = number == chunks && !has_more && upto.is_some();
                let stamp = self.log_time().0;
                let source = InheritSource::DedupWindow;
                let holds = held_for.clone();
                let inherit = InheritEntry {
                    source,
                    shard: before.id,
                    first,
                    last,
                    stamp,
                    retention: span,
                    ids,
                    inherited: taken,
                    held_for: holds,
                };
                self.propose_inherit(inherit).await?;
                first = false;
            }
            if !has_more {
                return Ok(age.unwrap_or(log_age));
            }
        }
    }

    /// Copies the cumulative values that the previous shard logged after its seal. In this log they precede
    /// all batches.
    async fn copy_counted(&self, of: ShardId, at: u64) -> Result<(), Status> {
        let before = self.read_catalog_entry(of).await?;
        let now = self.deps().clock.monotonic();
        let counters = CumulativeTracker::new(self.delta_limits());
        let mut after = at;
        loop {
            let request = HandoffWindowRequest {
                min_applied: at,
                delta_state_after: Some(after),
                ..HandoffWindowRequest::default()
            };
            let page = self.kin()?.fetch_window_page(&before, request).await?;
            let Some((index, piece)) = page.delta_state else { break };
            if index <= after {
                return Err(Status::new(
                    ErrorCode::Internal,
                    "protocol error: delta state of a shard does not advance",
                ));
            }
            after = index;
            if let Err(error) = counters.read(&piece, now) {
                tracing::error!(shard = self.id, %error, "failed to decode delta state, resetting its series");
            }
        }
        counters.reset_entry_indexes();
        for piece in counters.write(self.entry_bytes() / CHUNKS_PER_ENTRY) {
            self.propose_entry(ShardLogEntry::encode_delta_state(&piece)).await?;
        }
        Ok(())
    }

    /// Inherits the ids in the slot's blocks, and no others.
    async fn copy_blocks(&self, entry: &ShardEntry, predecessor: ShardId) -> Result<(), Status> {
        if self.log.with_state_machine(|machine| {
            machine.log_status().inherited == Some((InheritSource::RegisteredBlocks, predecessor))
        }) {
            return Ok(());
        }
        let deps = self.deps();
        let remembered = self.remembered();
        // A clock that is ahead must leave no block out, and the catalog knows when the shard opened.
        let since = deps.clock.wall().min(entry.since).minus(remembered + BLOCK_LOOKBACK_MARGIN);
        let blocks = block_ids::list_slot_blocks(deps, entry.slot, since, None).await?;
        let retention = u64::try_from(remembered.as_nanos()).unwrap_or(u64::MAX);
        let inherit = |first, last, ids| {
            let stamp = self.log_time().0;
            let source = InheritSource::RegisteredBlocks;
            InheritEntry {
                source,
                shard: predecessor,
                first,
                last,
                stamp,
                retention,
                ids,
                inherited: Vec::new(),
                held_for: Vec::new(),
            }
        };
        self.propose_inherit(inherit(true, false, Vec::new())).await?;
        for block in &blocks {
            let ids: Vec<ContentHash> = block_ids::read_block_ids(deps, block).await?.into_iter().collect();
            for ids in ids.chunks(self.max_ids_per_entry()) {
                self.propose_inherit(inherit(false, false, ids.to_vec())).await?;
            }
        }
        self.propose_inherit(inherit(false, true, Vec::new())).await?;
        Ok(())
    }

    /// Returns the longest time for which any shard keeps ids, by the settings of the catalog.
    fn remembered(&self) -> Duration {
        let settings = self.view().map(|view| view.settings.clone()).unwrap_or_default();
        longest_id_retention(settings.oldest_accepted, settings.max_future())
    }

    /// Logs the fences of all tables, and returns the newest version. A shard without profiles rejects none.
    async fn fence_all(&self) -> Result<u64, Status> {
        let Some(view) = self.view() else { return Ok(FIRST_TABLE_VERSION) };
        let published = view.tables.iter().flat_map(|tables| tables.tables_between(i64::MIN, i64::MAX));
        let pending = view.pending.iter().map(|pending| (pending.table.version(), pending.table.from()));
        let all: Vec<(u64, i64)> =
            published.map(|table| (table.version(), table.from())).chain(pending).collect();
        let logged: BTreeSet<u64> = self.log.with_state_machine(|machine| {
            machine.log_status().fences().map(|(version, _)| version).collect()
        });
        let missing =
            all.iter().filter(|(version, _)| *version > FIRST_TABLE_VERSION && !logged.contains(version));
        for (version, from) in missing {
            self.propose_entry(ShardLogEntry::encode_fence(*version, *from, view.revision)).await?;
        }
        Ok(all.iter().map(|(version, _)| *version).max().unwrap_or(FIRST_TABLE_VERSION))
    }

    /// Seals the log of a lost shard, and drops the records that others hold, before it serves or flushes
    /// any.
    pub(crate) async fn rejoin_after_loss(&self, entry: &ShardEntry) -> Result<(), Status> {
        let ShardPhase::Lost { watermark } = entry.phase else { return Ok(()) };
        let last_index = self.log_seal().await?.0;
        let serves = self.deps().catalog.list_blocks(&TenantId::anonymous(), 0, 0).await;
        let serves = serves.map_err(|error| Status::from_error(&error))?.shards;
        let serves = serves.into_iter().find(|other| other.slot == entry.slot && other.serves());
        let nobody = || Status::new(ErrorCode::Unavailable, "no shard serves the slot yet; retry");
        let with = serves.ok_or_else(nobody)?;
        let own = self.own(watermark, last_index).await?;
        let mut held = HashSet::new();
        // The serving shard is called first: ids that it forgets meanwhile are in a block by then.
        for ids in own.chunks(MAX_IDS_PER_PAGE) {
            let answers = self.kin()?.reconcile_ids(&with, self.id, ids.to_vec()).await?;
            if answers.len() != ids.len() {
                return Err(Status::new(
                    ErrorCode::Internal,
                    "protocol error: serving shard did not return a result for each id",
                ));
            }
            held.extend(ids.iter().zip(answers).filter(|(_, held)| *held).map(|(id, _)| *id));
        }
        if !own.is_empty() {
            let since = entry.since.minus(self.remembered() + BLOCK_LOOKBACK_MARGIN);
            let mine: HashSet<ContentHash> = own.iter().copied().collect();
            for block in block_ids::list_slot_blocks(self.deps(), entry.slot, since, Some(self.id)).await? {
                let ids = block_ids::read_block_ids(self.deps(), &block).await?;
                held.extend(ids.intersection(&mine).copied());
            }
        }
        let mut dropped: Vec<ContentHash> = held.into_iter().collect();
        dropped.sort_unstable();
        for ids in dropped.chunks(self.max_ids_per_entry()) {
            self.propose_entry(ShardLogEntry::encode_foreign_ids(ids)).await?;
        }
        let own = own.len();
        let dropped = dropped.len();
        tracing::warn!(shard = self.id, own, dropped, with = with.id, "lost shard reconciled its ids");
        let reconciled = CatalogCommand::Reconciled { shard: self.id, last_index, with: with.id };
        self.deps().catalog.apply_command(reconciled).await.map_err(|error| Status::from_error(&error))
    }

    /// Seals the log. Returns the index of the seal and the time of the latest profile.
    pub(crate) async fn log_seal(&self) -> Result<(u64, i64), Status> {
        match self.propose_entry(ShardLogEntry::encode_seal()).await? {
            ShardApplyResult::Sealed { at, latest } => Ok((at, latest.unwrap_or(i64::MIN))),
            other => {
                Err(Status::new(ErrorCode::Internal, format!("unexpected result of a seal entry: {other:?}")))
            }
        }
    }

    /// Returns the ids of the records that the log has after one index and up to another.
    async fn own(&self, from: u64, to: u64) -> Result<Vec<ContentHash>, Status> {
        let log = self.log.clone();
        let read = move || {
            let (repeats, dropped) = log.with_state_machine(|machine: &ShardStateMachine| {
                (machine.duplicate_records(from + 1..to + 1), machine.foreign_ids())
            });
            let mut ids = Vec::new();
            for (index, repeats) in repeats {
                let entry = log.read_proposal(index).map_err(|error| Status::from_error(&error))?;
                let Some(Ok(Some(head))) = entry.map(|entry| ShardLogEntry::decode_batch_header(&entry))
                else {
                    continue;
                };
                let repeats: BTreeSet<(u32, u32)> = repeats.into_iter().collect();
                for (upload, said) in (0..).zip(head.uploads) {
                    let new = (0..).zip(said.ids).filter(|(place, _)| !repeats.contains(&(upload, *place)));
                    ids.extend(new.map(|(_, id)| id).filter(|id| !dropped.contains(id)));
                }
            }
            Ok(ids)
        };
        self.deps().compute.run(read).await.map_err(|error| Status::from_error(&error))?
    }
}
