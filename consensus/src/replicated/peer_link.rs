//! Links to the other members of a group, over the transport of the node.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{ComputePool, Disk};
use bytes::Bytes;

use super::codec::{RaftRequest, RaftResponse};

/// Transport between the members of groups. A single voter needs none.
#[async_trait]
pub trait Network: Send + Sync + 'static {
    /// Sends a request to the same group on another node. Returns the result of its
    /// [`handle_request`](super::RaftGroup::handle_request).
    async fn call(&self, to: u64, group: u32, request: Bytes) -> Result<Bytes, RaftCallError>;
}

/// Error of a message that did not arrive, or of a response that did not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {to} was not reached: {reason}")]
pub struct RaftCallError {
    /// Node id of the receiver.
    pub to: u64,
    /// Cause of the failure.
    pub reason: String,
}

/// Factory of links to members.
#[derive(Clone)]
pub(crate) struct PeerLinks {
    pub(crate) network: Option<Arc<dyn Network>>,
    pub(crate) group: u32,
    /// Disk with the files of snapshots.
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) compute: ComputePool,
    /// Function that lists the files of a snapshot.
    pub(crate) files: Arc<SnapshotFileLister>,
}

type SnapshotFileLister = dyn Fn(&[u8]) -> Result<Vec<String>, String> + Send + Sync;

pub(crate) struct PeerLink {
    pub(super) links: PeerLinks,
    pub(super) to: u64,
}

impl PeerLinks {
    pub(crate) fn to(&self, target: u64) -> PeerLink {
        PeerLink { links: self.clone(), to: target }
    }
}

impl PeerLink {
    pub(crate) fn to(&self) -> u64 {
        self.to
    }

    #[expect(clippy::disallowed_methods, reason = "on raft's time, as the limit is")]
    pub(crate) async fn call(
        &self,
        ask: RaftRequest,
        limit: Duration,
    ) -> Result<RaftResponse, RaftCallError> {
        let fail = |reason: String| RaftCallError { to: self.to, reason };
        let Some(network) = &self.links.network else {
            return Err(fail("this node has no network".to_owned()));
        };
        let called = network.call(self.to, self.links.group, ask.encode());
        let answer = tokio::time::timeout(limit, called).await;
        let answer = answer.map_err(|_| fail("timed out".to_owned()))??;
        match RaftResponse::decode(&answer) {
            Some(RaftResponse::Failed(reason)) => Err(fail(reason)),
            Some(reply) => Ok(reply),
            None => Err(fail("protocol error: response is not a raft message".to_owned())),
        }
    }
}
