//! Linearizable reads: everything that was acknowledged anywhere before a question is applied here before its answer.
//!
//! The leader asks a majority whether it still leads, once for all who wait; any other member asks the leader up to
//! where it must have applied, and waits until it has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::error::{CheckIsLeaderError, Fatal, RaftError};

use super::codec::{RaftRequest, RaftResponse};
use super::network::PeerLink;
use super::type_config::RaftHandle;

/// How long a leader may take to answer, and a member to apply what it was told.
const READ_INDEX_TIMEOUT: Duration = Duration::from_secs(2);

/// Rounds of asking a majority. A round that begins after a question came answers it, whoever began it.
#[derive(Default)]
pub(crate) struct ReadIndexRounds {
    begun: AtomicU64,
    /// The last round that ended, and what it found.
    ended: tokio::sync::Mutex<(u64, Option<Result<u64, ReadIndexError>>)>,
}

/// Why it is not known up to where to read.
#[derive(Clone, Debug)]
pub(crate) enum ReadIndexError {
    NotLeader(Option<u64>),
    NoQuorum,
    Fatal(Fatal<u64>),
}

impl ReadIndexRounds {
    /// Where this leader must have applied to before it answers; it has.
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

/// As [`ReadIndexRounds::confirm_read_index`], from a member that does not lead.
pub(crate) async fn request_read_index(raft: &RaftHandle, link: &PeerLink) -> Result<u64, ReadIndexError> {
    let leader = Some(link.to());
    match link.call(RaftRequest::ReadIndex, READ_INDEX_TIMEOUT).await {
        Ok(RaftResponse::Index(index)) => {
            let applied =
                raft.wait(Some(READ_INDEX_TIMEOUT)).applied_index_at_least(Some(index), "a read").await;
            applied.map(|_| index).map_err(|_| ReadIndexError::NotLeader(leader))
        }
        // It was deposed, or is not reached: who asks again is told of another.
        Ok(_) | Err(_) => Err(ReadIndexError::NotLeader(leader)),
    }
}
