//! Messages between the members of a group.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::ComputePool;
use bytes::Bytes;
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{AnyError, EmptyNode, OptionalSend, Snapshot, SnapshotMeta, Vote};
use parking_lot::Mutex;

use super::codec::{RaftRequest, RaftResponse, SnapshotFileChunk};
use super::peer_link::{PeerLink, PeerLinks, RaftCallError};
use super::read_index::ReadIndexRounds;
use super::snapshot_transfer::{self, SnapshotFileReceiver};
use super::type_config::{RaftHandle, Types};
use crate::log::Log;

/// Bytes of a snapshot in one message.
const SNAPSHOT_CHUNK_BYTES: usize = 1 << 20;
/// Limit for the size of a received snapshot.
const MAX_SNAPSHOT_BYTES: u64 = 1 << 30;

type RaftRpcError<E = RaftError<u64>> = RPCError<u64, EmptyNode, E>;

impl RaftNetworkFactory<Types> for PeerLinks {
    type Network = PeerLink;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> PeerLink {
        self.to(target)
    }
}

impl PeerLink {
    fn unexpected_response<E: std::error::Error>(&self) -> RaftRpcError<E> {
        RPCError::Network(NetworkError::new(&AnyError::error(format!(
            "protocol error: unexpected response from node {}",
            self.to
        ))))
    }
}

fn unreachable_error<E: std::error::Error>(error: &RaftCallError) -> RaftRpcError<E> {
    RPCError::Unreachable(Unreachable::new(error))
}

impl RaftNetwork<Types> for PeerLink {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RaftRpcError> {
        match self.call(RaftRequest::Append(request), option.hard_ttl()).await {
            Ok(RaftResponse::Append(reply)) => Ok(reply),
            Ok(_) => Err(self.unexpected_response()),
            Err(error) => Err(unreachable_error(&error)),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RaftRpcError> {
        match self.call(RaftRequest::Vote(request), option.hard_ttl()).await {
            Ok(RaftResponse::Vote(reply)) => Ok(reply),
            Ok(_) => Err(self.unexpected_response()),
            Err(error) => Err(unreachable_error(&error)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let meta = snapshot.meta;
        let data = *snapshot.snapshot;
        let total = data.len() as u64;
        let mut cancel = std::pin::pin!(cancel);
        let unreachable = |error: &RaftCallError| StreamingError::Unreachable(Unreachable::new(error));
        let PeerLinks { disk, compute, files, .. } = &self.links;
        let names = files(&data).map_err(|reason| unreachable(&RaftCallError { to: self.to, reason }))?;
        tokio::select! {
            biased;
            closed = &mut cancel => return Err(StreamingError::Closed(closed)),
            sent = snapshot_transfer::send_files(self, disk, compute, names, option.hard_ttl()) => {
                sent.map_err(|error| unreachable(&error))?;
            }
        }
        let mut offset = 0;
        loop {
            let end = (offset + SNAPSHOT_CHUNK_BYTES).min(data.len());
            let part = data.slice(offset..end);
            let ask = RaftRequest::Snapshot { vote, meta: meta.clone(), total, offset: offset as u64, part };
            let reply = tokio::select! {
                biased;
                closed = &mut cancel => return Err(StreamingError::Closed(closed)),
                reply = self.call(ask, option.hard_ttl()) => reply,
            };
            match reply {
                Ok(RaftResponse::Snapshot(reply)) => return Ok(reply),
                Ok(RaftResponse::More) if end < data.len() => offset = end,
                Ok(_) => {
                    let error =
                        AnyError::error(format!("protocol error: unexpected response from node {}", self.to));
                    return Err(StreamingError::Network(NetworkError::new(&error)));
                }
                Err(error) => return Err(unreachable(&error)),
            }
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(200)))
    }
}

/// Received part of a snapshot.
type PartialSnapshot = (SnapshotMeta<u64, EmptyNode>, Vec<u8>);

/// Handler of requests from other members.
pub(crate) struct RaftRequestHandler {
    pub(crate) group: u32,
    pub(crate) raft: RaftHandle,
    pub(crate) log: Log,
    pub(crate) compute: ComputePool,
    /// Files of snapshots that were received so far.
    pub(crate) arrivals: Arc<SnapshotFileReceiver>,
    /// Snapshot that is being received.
    pub(crate) part: Mutex<Option<PartialSnapshot>>,
    pub(crate) rounds: ReadIndexRounds,
}

impl RaftRequestHandler {
    pub(crate) async fn handle_request(&self, request: &Bytes) -> Bytes {
        let reply = match RaftRequest::decode(request) {
            None => Err("protocol error: request is not a raft message".to_owned()),
            Some(RaftRequest::Append(append)) => {
                // This member never fills its disk: the leader keeps entries that this member cannot store.
                // The check is weaker than the leader's. If the disks of all members are full, an entry that
                // frees space must still reach a majority.
                let bytes = request.len() as u64;
                let room = if append.entries.is_empty() { Ok(()) } else { self.log.admit_relief(bytes) };
                match room {
                    Ok(()) => self
                        .raft
                        .append_entries(append)
                        .await
                        .map(RaftResponse::Append)
                        .map_err(|e| e.to_string()),
                    Err(error) => Err(error.to_string()),
                }
            }
            Some(RaftRequest::Vote(vote)) => {
                self.raft.vote(vote).await.map(RaftResponse::Vote).map_err(|e| e.to_string())
            }
            Some(RaftRequest::Snapshot { vote, meta, total, offset, part }) => {
                match self.collect_snapshot_chunk(&meta, total, offset, &part) {
                    Ok(None) => Ok(RaftResponse::More),
                    Ok(Some(data)) => {
                        let snapshot = Snapshot { meta, snapshot: Box::new(data.into()) };
                        let installed = self.raft.install_full_snapshot(vote, snapshot).await;
                        installed.map(RaftResponse::Snapshot).map_err(|e| e.to_string())
                    }
                    Err(reason) => Err(reason),
                }
            }
            Some(RaftRequest::File(part)) => self.receive_file_chunk(part).await.map(RaftResponse::Index),
            Some(RaftRequest::ReadIndex) => {
                let index = self.rounds.confirm_read_index(&self.raft).await;
                index.map(RaftResponse::Index).map_err(|why| format!("no read index confirmed: {why:?}"))
            }
            Some(RaftRequest::TakeOver { term, last }) => {
                self.handle_takeover(term, last).await.map(|()| RaftResponse::More)
            }
        };
        reply.unwrap_or_else(RaftResponse::Failed).encode()
    }

    /// Stands for election if the current leader sent the request, and if this member would get the votes.
    async fn handle_takeover(&self, term: u64, last: u64) -> Result<(), String> {
        let (voted, is_voter) = {
            let seen = self.raft.server_metrics();
            let seen = seen.borrow();
            (
                seen.vote.leader_id().term,
                seen.membership_config.membership().voter_ids().any(|voter| voter == seen.id),
            )
        };
        let held = self.log.group_state(self.group).last;
        if voted != term || held != Some((last, term)) || !is_voter {
            return Err(format!(
                "cannot win an election: last entry is {held:?} in term {voted}, not ({last}, {term})"
            ));
        }
        // A member with a full disk could not act as leader.
        self.log.admit().map_err(|error| error.to_string())?;
        self.raft.trigger().elect().await.map_err(|error| error.to_string())
    }

    /// Stores a chunk of a file that a later snapshot names.
    async fn receive_file_chunk(&self, part: SnapshotFileChunk) -> Result<u64, String> {
        // The snapshot that names the file lets the log purge more entries.
        self.log.admit_relief(0).map_err(|error| error.to_string())?;
        let arrivals = Arc::clone(&self.arrivals);
        let taken = self.compute.run(move || arrivals.write_chunk(&part)).await;
        taken.map_err(|error| error.to_string())?
    }

    /// Adds a chunk of a snapshot. Returns the whole snapshot when it is complete.
    fn collect_snapshot_chunk(
        &self,
        meta: &SnapshotMeta<u64, EmptyNode>,
        total: u64,
        offset: u64,
        part: &[u8],
    ) -> Result<Option<Vec<u8>>, String> {
        if total > MAX_SNAPSHOT_BYTES {
            return Err(format!("the snapshot has {total} bytes, the limit is {MAX_SNAPSHOT_BYTES}"));
        }
        let mut held = self.part.lock();
        if offset == 0 {
            *held = Some((meta.clone(), Vec::new()));
        }
        let fits = |(of, data): &&mut PartialSnapshot| {
            of == meta && data.len() as u64 == offset && offset + part.len() as u64 <= total
        };
        let Some((_, data)) = held.as_mut().filter(fits) else {
            *held = None;
            return Err(
                "the snapshot chunk does not follow the previous one; resend from the start".to_owned()
            );
        };
        data.extend_from_slice(part);
        if (data.len() as u64) < total {
            return Ok(None);
        }
        Ok(held.take().map(|(_, data)| data))
    }
}
