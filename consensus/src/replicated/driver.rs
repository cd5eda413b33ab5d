//! Raft, begun on a state machine of whatever type: so all of raft is compiled here, once, and not again in each crate that
//! has a state machine of its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use openraft::error::Fatal;
use openraft::storage::RaftStateMachine;
use openraft::{Config, EmptyNode, OptionalSend, RaftSnapshotBuilder, SnapshotMeta};

use super::network::Links;
use super::raft::{Answer, Entry, Id, Membership, Raft, StorageError, Types};
use super::store::Store;

pub(super) type Meta = SnapshotMeta<u64, EmptyNode>;
pub(super) type Snapshot = openraft::Snapshot<Types>;

/// What raft drives.
#[async_trait]
pub(super) trait Driven: Send + Sync {
    fn applied_state(&self) -> (Option<Id>, Membership);
    async fn apply(&self, entries: Vec<Entry>) -> Result<Vec<Answer>, StorageError>;
    async fn build_snapshot(&self) -> Result<Snapshot, StorageError>;
    async fn install_snapshot(&self, meta: &Meta, data: Bytes) -> Result<(), StorageError>;
    async fn current_snapshot(&self) -> Result<Option<Snapshot>, StorageError>;
}

#[derive(Clone)]
struct Driver(Arc<dyn Driven>);

type Started = Pin<Box<dyn Future<Output = Result<Raft, Fatal<u64>>> + Send>>;

/// Starts raft.
pub(super) fn start(
    node: u64,
    config: Arc<Config>,
    links: Links,
    store: Store,
    machine: Arc<dyn Driven>,
) -> Started {
    Box::pin(Raft::new(node, config, links, store, Driver(machine)))
}

impl RaftSnapshotBuilder<Types> for Driver {
    async fn build_snapshot(&mut self) -> Result<Snapshot, StorageError> {
        self.0.build_snapshot().await
    }
}

impl RaftStateMachine<Types> for Driver {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<Id>, Membership), StorageError> {
        Ok(self.0.applied_state())
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Answer>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.0.apply(entries.into_iter().collect()).await
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Bytes>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(&mut self, meta: &Meta, snapshot: Box<Bytes>) -> Result<(), StorageError> {
        self.0.install_snapshot(meta, *snapshot).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, StorageError> {
        self.0.current_snapshot().await
    }
}
