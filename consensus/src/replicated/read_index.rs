//! Linearizable reads: everything acknowledged by any member before a request is applied here before the
//! response.
//!
//! The leader confirms with a majority that it still leads, once for all waiting requests. Any other member
//! requests the read index from the leader, and waits until it has applied up to that index.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::error::{CheckIsLeaderError, Fatal, RaftError};

use super::codec::{RaftRequest, RaftResponse};
use super::peer_link::PeerLink;
use super::type_config::RaftHandle;

/// Limit for the leader's response, and for applying up to its read index.
const READ_INDEX_TIMEOUT: Duration = Duration::from_secs(2);

/// Rounds of confirming the leader with a majority. A round serves every request that arrived before it
/// began.
#[derive(Default)]
pub(crate) struct ReadIndexRounds {
    begun: AtomicU64,
    /// Number of the last finished round, and its result.
    ended: tokio::sync::Mutex<(u64, Option<Result<u64, ReadIndexError>>)>,
}

/// Reason why no read index is known.
#[derive(Clone, Debug)]
pub(crate) enum ReadIndexError {
    NotLeader(Option<u64>),
    NoQuorum,
    Fatal(Fatal<u64>),
}

impl ReadIndexRounds {
    /// Returns the read index of this leader. It has applied up to that index.
    pub(crate) async fn confirm_read_index(&self, raft: &RaftHandle) -> Result<u64, ReadIndexError> {
        let mine = self.begun.load(Ordering::SeqCst) + 1;
        let mut ended = self.ended.lock().await;
        if let (number, Some(found)) = &*ended
            && *number >= mine
        {
            return found.clone();
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let found = match raft.ensure_linearizable().await {
            Ok(read) => Ok(read.map_or(0, |id| id.index)),
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                Err(ReadIndexError::NotLeader(forward.leader_id))
            }
            Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_))) => Err(ReadIndexError::NoQuorum),
            Err(RaftError::Fatal(fatal)) => Err(ReadIndexError::Fatal(fatal)),
        };
        *ended = (number, Some(found.clone()));
        found
    }
}

/// Same as [`ReadIndexRounds::confirm_read_index`], for a member that does not lead.
pub(crate) async fn request_read_index(raft: &RaftHandle, link: &PeerLink) -> Result<u64, ReadIndexError> {
    let leader = Some(link.to());
    match link.call(RaftRequest::ReadIndex, READ_INDEX_TIMEOUT).await {
        Ok(RaftResponse::Index(index)) => {
            let applied = raft
                .wait(Some(READ_INDEX_TIMEOUT))
                .applied_index_at_least(Some(index), "read index applied")
                .await;
            applied.map(|_| index).map_err(|_| ReadIndexError::NotLeader(leader))
        }
        // The leader was deposed, or is unreachable. On a retry the caller learns of another one.
        Ok(_) | Err(_) => Err(ReadIndexError::NotLeader(leader)),
    }
}
