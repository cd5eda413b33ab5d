//! Requests of other shards of a slot to this node, and the entries that they lead to.

use std::sync::atomic::Ordering;

use athanor_catalog::{ShardId, decode_shard_id};
use athanor_chassis::{ErrorCode, Status};
use athanor_consensus::RaftGroup;
use athanor_profile::encoding::hash::ContentHash;
use bytes::Bytes;

use crate::ingester::Ingester;
use crate::log::entry::{InheritEntry, InheritSource, ShardLogEntry};
use crate::log::state_machine::{ShardApplyResult, ShardStateMachine};
use crate::replication::replica::ShardReplica;
use crate::shard_handoff::handoff_peer::{HandoffWindowRequest, MAX_IDS_PER_PAGE, WindowPage};
use crate::window::DedupWindow;

impl Ingester {
    /// Handles [`HandoffPeer::fetch_window_page`]. Any member returns a page, with all ids acknowledged
    /// before the request. If the successor has a copy and requests later ids, only the leader returns them,
    /// and then seals the shard.
    pub async fn window_page(
        &self,
        shard: ShardId,
        request: HandoffWindowRequest,
    ) -> Result<WindowPage, Status> {
        let group = self.member(shard)?;
        group.log.read_index().await.map_err(|error| Status::from_error(&error))?;
        let min_applied = request.min_applied;
        if group.log.applied_index() < Some(min_applied) {
            let message =
                format!("this member of shard {shard} has not applied entry {min_applied} yet; retry");
            return Err(Status::new(ErrorCode::Unavailable, message));
        }
        if request.incremental && min_applied == 0 {
            let not_leader =
                |error: crate::ShardReadError| Status::new(ErrorCode::NotLeader, error.to_string());
            group.require_leader().map_err(not_leader)?;
            group.copied.store(true, Ordering::SeqCst);
        }
        let log = group.log.clone();
        let read = move || {
            if let Some(after) = request.delta_state_after {
                let delta_state = delta_state_after(&log, after)?;
                return Ok(WindowPage { delta_state, ..WindowPage::default() });
            }
            let window = log.with_state_machine(crate::ShardStateMachine::window);
            let page = DedupWindow::page(&window, request.after, request.min_age, MAX_IDS_PER_PAGE);
            let page = page.map_err(|error| Status::new(ErrorCode::Unavailable, error.to_string()))?;
            let (inherited, held_for) = log.with_state_machine(|machine| {
                (machine.inherited_owners(&page.ids), machine.log_status().holds.iter().copied().collect())
            });
            Ok(WindowPage {
                ids: page.ids,
                inherited,
                held_for,
                has_more: page.more,
                log_age: page.age,
                retention_nanos: page.span,
                delta_state: None,
            })
        };
        self.compute().run(read).await.map_err(|error| Status::from_error(&error))?
    }

    /// Handles [`HandoffPeer::reconcile_ids`]: takes over the ids of a lost shard. Returns for each whether
    /// this shard has a record of it.
    pub async fn reconcile_ids(
        &self,
        shard: ShardId,
        from_shard: ShardId,
        ids: Vec<ContentHash>,
    ) -> Result<Vec<bool>, Status> {
        if ids.len() > MAX_IDS_PER_PAGE {
            let message =
                format!("request has {} ids, the limit is {MAX_IDS_PER_PAGE}; send fewer", ids.len());
            return Err(Status::new(ErrorCode::TooLarge, message));
        }
        let slot = |shard| decode_shard_id(shard).map(|(slot, _)| slot);
        if slot(from_shard).is_none() || slot(from_shard) != slot(shard) {
            let message = format!("shards {from_shard} and {shard} belong to different slots");
            return Err(Status::new(ErrorCode::Invalid, message));
        }
        let group = self.member(shard)?;
        group.require_writable().map_err(|error| Status::new(ErrorCode::NotLeader, error.to_string()))?;
        let mut held = Vec::with_capacity(ids.len());
        for ids in ids.chunks(group.max_ids_per_entry()) {
            let (stamp, retention) = group.log_time();
            let source = InheritSource::Reconciliation;
            let first = false;
            let last = false;
            let ids = ids.to_vec();
            let inherited = Vec::new();
            let held_for = Vec::new();
            let inherit = InheritEntry {
                source,
                shard: from_shard,
                first,
                last,
                stamp,
                retention,
                ids,
                inherited,
                held_for,
            };
            held.append(&mut group.propose_inherit(inherit).await?);
        }
        Ok(held)
    }

    fn member(&self, shard: ShardId) -> Result<std::sync::Arc<ShardReplica>, Status> {
        let unknown = || format!("this node is not a member of shard {shard}, or has not opened it");
        self.find_replica(shard).ok_or_else(|| Status::new(ErrorCode::NotLeader, unknown()))
    }
}

impl ShardReplica {
    /// Returns the number of ids that fit into an entry, with all fields of each.
    pub(crate) fn max_ids_per_entry(&self) -> usize {
        ((self.entry_bytes() - 1024) / 28).clamp(1, MAX_IDS_PER_PAGE)
    }

    /// Returns the log time of the last entry, and the time for which ids are kept.
    pub(crate) fn log_time(&self) -> (u64, u64) {
        let window = self.log.with_state_machine(crate::ShardStateMachine::window);
        let window = window.lock();
        (window.stamp(), window.span())
    }

    /// Logs ids that are taken over. Returns for each whether it was known.
    pub(crate) async fn propose_inherit(&self, inherit: InheritEntry) -> Result<Vec<bool>, Status> {
        match self.propose_entry(inherit.encode()).await? {
            ShardApplyResult::Inherited(held) => Ok(held),
            ShardApplyResult::Refused(why) => Err(Status::new(ErrorCode::NotLeader, why)),
            other => Err(Status::new(
                ErrorCode::Internal,
                format!("unexpected result of an inherit entry: {other:?}"),
            )),
        }
    }

    /// Logs an entry about the shard as a whole.
    pub(crate) async fn propose_entry(&self, entry: Vec<u8>) -> Result<ShardApplyResult, Status> {
        let proposed = self.log.propose_essential(entry.into()).await;
        proposed.map(|(_, applied)| applied).map_err(|error| Status::from_error(&error))
    }
}

/// Returns the first delta state after an index, with the index of its entry.
fn delta_state_after(log: &RaftGroup<ShardStateMachine>, after: u64) -> Result<Option<(u64, Bytes)>, Status> {
    let Some(index) = log
        .with_state_machine(ShardStateMachine::delta_state_indexes)
        .into_iter()
        .find(|&index| index > after)
    else {
        return Ok(None);
    };
    let entry = log.read_proposal(index).map_err(|error| Status::from_error(&error))?;
    match entry.map(|entry| ShardLogEntry::decode(&entry)) {
        Some(Ok(ShardLogEntry::DeltaState(piece))) => Ok(Some((index, piece.into()))),
        _ => Err(Status::new(ErrorCode::Unavailable, "delta state is unreadable on this replica")),
    }
}
