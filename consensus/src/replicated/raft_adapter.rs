//! Adapter between raft and state machines of any type. It erases the type, so raft is compiled once in this
//! crate, and not in each crate with a state machine.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use openraft::error::Fatal;
use openraft::storage::RaftStateMachine;
use openraft::{Config, EmptyNode, OptionalSend, RaftSnapshotBuilder, SnapshotMeta};

use super::peer_link::PeerLinks;
use super::store::RaftLogStore;
use super::type_config::{
    ProposalResult, RaftEntry, RaftHandle, RaftLogId, RaftMembership, RaftStorageError, Types,
};

pub(super) type RaftSnapshotMeta = SnapshotMeta<u64, EmptyNode>;
pub(super) type RaftSnapshot = openraft::Snapshot<Types>;

/// State machine with an erased type, as raft drives it.
#[async_trait]
pub(super) trait ErasedStateMachine: Send + Sync {
    fn applied_state(&self) -> (Option<RaftLogId>, RaftMembership);
    async fn apply(&self, entries: Vec<RaftEntry>) -> Result<Vec<ProposalResult>, RaftStorageError>;
    async fn build_snapshot(&self) -> Result<RaftSnapshot, RaftStorageError>;
    async fn install_snapshot(&self, meta: &RaftSnapshotMeta, data: Bytes) -> Result<(), RaftStorageError>;
    async fn current_snapshot(&self) -> Result<Option<RaftSnapshot>, RaftStorageError>;
}

#[derive(Clone)]
struct StateMachineAdapter(Arc<dyn ErasedStateMachine>);

type RaftStartFuture = Pin<Box<dyn Future<Output = Result<RaftHandle, Fatal<u64>>> + Send>>;

/// Starts raft on a state machine with an erased type.
pub(super) fn start_raft(
    node: u64,
    config: Arc<Config>,
    links: PeerLinks,
    store: RaftLogStore,
    machine: Arc<dyn ErasedStateMachine>,
) -> RaftStartFuture {
    Box::pin(RaftHandle::new(node, config, links, store, StateMachineAdapter(machine)))
}

impl RaftSnapshotBuilder<Types> for StateMachineAdapter {
    async fn build_snapshot(&mut self) -> Result<RaftSnapshot, RaftStorageError> {
        self.0.build_snapshot().await
    }
}

impl RaftStateMachine<Types> for StateMachineAdapter {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<RaftLogId>, RaftMembership), RaftStorageError> {
        Ok(self.0.applied_state())
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<ProposalResult>, RaftStorageError>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.0.apply(entries.into_iter().collect()).await
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Bytes>, RaftStorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &RaftSnapshotMeta,
        snapshot: Box<Bytes>,
    ) -> Result<(), RaftStorageError> {
        self.0.install_snapshot(meta, *snapshot).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<RaftSnapshot>, RaftStorageError> {
        self.0.current_snapshot().await
    }
}
