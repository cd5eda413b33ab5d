//! Messages between the members of a group.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::{Compute, Disk};
use bytes::Bytes;
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{AnyError, EmptyNode, OptionalSend, Snapshot, SnapshotMeta, Vote};

use super::files::{self, Arrivals};
use super::raft::{Raft, Types};
use super::reads::Rounds;
use super::wire::{Ask, Reply};
use crate::log::Log;

/// Bytes of a snapshot in one message.
const PART: usize = 1 << 20;
/// A snapshot that is received, at most.
const MAX_SNAPSHOT: u64 = 1 << 30;

/// How the members of groups reach each other. A single voter needs none.
#[async_trait]
pub trait Network: Send + Sync + 'static {
    /// Takes a request to the same group on another node, whose [`answer`](super::Replicated::answer) it brings
    /// back.
    async fn call(&self, to: u64, group: u32, request: Bytes) -> Result<Bytes, CallError>;
}

/// A message did not arrive, or its answer did not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {to} was not reached: {reason}")]
pub struct CallError {
    /// Who was called.
    pub to: u64,
    /// What went wrong.
    pub reason: String,
}

/// Makes links to members.
#[derive(Clone)]
pub(crate) struct Links {
    pub(crate) network: Option<Arc<dyn Network>>,
    pub(crate) group: u32,
    /// Where the files of snapshots lie.
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) compute: Compute,
    /// Which files a snapshot names.
    pub(crate) files: Arc<Files>,
}

type Files = dyn Fn(&[u8]) -> Result<Vec<String>, String> + Send + Sync;

pub(crate) struct Link {
    links: Links,
    to: u64,
}

type Failed<E = RaftError<u64>> = RPCError<u64, EmptyNode, E>;

impl RaftNetworkFactory<Types> for Links {
    type Network = Link;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> Link {
        self.to(target)
    }
}

impl Links {
    pub(crate) fn to(&self, target: u64) -> Link {
        Link { links: self.clone(), to: target }
    }
}

impl Link {
    pub(crate) fn to(&self) -> u64 {
        self.to
    }

    #[expect(clippy::disallowed_methods, reason = "on raft's time, as the limit is")]
    pub(crate) async fn call(&self, ask: Ask, limit: Duration) -> Result<Reply, CallError> {
        let fail = |reason: String| CallError { to: self.to, reason };
        let Some(network) = &self.links.network else {
            return Err(fail("this node has no network".to_owned()));
        };
        let called = network.call(self.to, self.links.group, ask.encode());
        let answer = tokio::time::timeout(limit, called).await;
        let answer = answer.map_err(|_| fail("no answer in time".to_owned()))??;
        match Reply::decode(&answer) {
            Some(Reply::Failed(reason)) => Err(fail(reason)),
            Some(reply) => Ok(reply),
            None => Err(fail("an answer that is none".to_owned())),
        }
    }

    fn odd<E: std::error::Error>(&self) -> Failed<E> {
        RPCError::Network(NetworkError::new(&AnyError::error(format!(
            "node {} answered something else",
            self.to
        ))))
    }
}

fn unreachable<E: std::error::Error>(error: &CallError) -> Failed<E> {
    RPCError::Unreachable(Unreachable::new(error))
}

impl RaftNetwork<Types> for Link {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failed> {
        match self.call(Ask::Append(request), option.hard_ttl()).await {
            Ok(Reply::Append(reply)) => Ok(reply),
            Ok(_) => Err(self.odd()),
            Err(error) => Err(unreachable(&error)),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, Failed> {
        match self.call(Ask::Vote(request), option.hard_ttl()).await {
            Ok(Reply::Vote(reply)) => Ok(reply),
            Ok(_) => Err(self.odd()),
            Err(error) => Err(unreachable(&error)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let (meta, data) = (snapshot.meta, *snapshot.snapshot);
        let total = data.len() as u64;
        let mut cancel = std::pin::pin!(cancel);
        let unreachable = |error: &CallError| StreamingError::Unreachable(Unreachable::new(error));
        let Links { disk, compute, files, .. } = &self.links;
        let names = files(&data).map_err(|reason| unreachable(&CallError { to: self.to, reason }))?;
        tokio::select! {
            biased;
            closed = &mut cancel => return Err(StreamingError::Closed(closed)),
            sent = files::send(self, disk, compute, names, option.hard_ttl()) => {
                sent.map_err(|error| unreachable(&error))?;
            }
        }
        let mut offset = 0;
        loop {
            let end = (offset + PART).min(data.len());
            let part = data.slice(offset..end);
            let ask = Ask::Snapshot { vote, meta: meta.clone(), total, offset: offset as u64, part };
            let reply = tokio::select! {
                biased;
                closed = &mut cancel => return Err(StreamingError::Closed(closed)),
                reply = self.call(ask, option.hard_ttl()) => reply,
            };
            match reply {
                Ok(Reply::Snapshot(reply)) => return Ok(reply),
                Ok(Reply::More) if end < data.len() => offset = end,
                Ok(_) => {
                    let error = AnyError::error(format!("node {} answered something else", self.to));
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

/// A snapshot that is being received, as far as it is.
type Part = (SnapshotMeta<u64, EmptyNode>, Vec<u8>);

/// The side that answers.
pub(crate) struct Answers {
    pub(crate) group: u32,
    pub(crate) raft: Raft,
    pub(crate) log: Log,
    pub(crate) compute: Compute,
    /// Files of snapshots, as far as they came.
    pub(crate) arrivals: Arc<Arrivals>,
    /// The snapshot that is being received.
    pub(crate) part: Mutex<Option<Part>>,
    pub(crate) rounds: Rounds,
}

impl Answers {
    pub(crate) async fn answer(&self, request: &Bytes) -> Bytes {
        let reply = match Ask::decode(request) {
            None => Err("not a message of raft".to_owned()),
            Some(Ask::Append(append)) => {
                // The disk is never filled: the leader keeps what this member cannot take. It is asked for less room than
                // the leader is: where the disks of all are full, what frees space must reach a majority.
                let bytes = request.len() as u64;
                let room = if append.entries.is_empty() { Ok(()) } else { self.log.admit_relief(bytes) };
                match room {
                    Ok(()) => {
                        self.raft.append_entries(append).await.map(Reply::Append).map_err(|e| e.to_string())
                    }
                    Err(error) => Err(error.to_string()),
                }
            }
            Some(Ask::Vote(vote)) => self.raft.vote(vote).await.map(Reply::Vote).map_err(|e| e.to_string()),
            Some(Ask::Snapshot { vote, meta, total, offset, part }) => {
                match self.collect(&meta, total, offset, &part) {
                    Ok(None) => Ok(Reply::More),
                    Ok(Some(data)) => {
                        let snapshot = Snapshot { meta, snapshot: Box::new(data.into()) };
                        let installed = self.raft.install_full_snapshot(vote, snapshot).await;
                        installed.map(Reply::Snapshot).map_err(|e| e.to_string())
                    }
                    Err(reason) => Err(reason),
                }
            }
            Some(Ask::File(part)) => self.file(part).await.map(Reply::Index),
            Some(Ask::ReadIndex) => {
                let index = self.rounds.index(&self.raft).await;
                index.map(Reply::Index).map_err(|why| format!("it cannot say what is read: {why:?}"))
            }
            Some(Ask::TakeOver { term, last }) => self.take_over(term, last).await.map(|()| Reply::More),
        };
        reply.unwrap_or_else(Reply::Failed).encode()
    }

    /// Stands for election, if that was asked by who leads now, and if it would be voted for.
    async fn take_over(&self, term: u64, last: u64) -> Result<(), String> {
        let (voted, is_voter) = {
            let seen = self.raft.server_metrics();
            let seen = seen.borrow();
            (
                seen.vote.leader_id().term,
                seen.membership_config.membership().voter_ids().any(|voter| voter == seen.id),
            )
        };
        let held = self.log.held(self.group).last;
        if voted != term || held != Some((last, term)) || !is_voter {
            return Err(format!(
                "it would not be voted for: it has {held:?} of the log in term {voted}, not ({last}, {term})"
            ));
        }
        // A disk that takes nothing could not take the lead either.
        self.log.admit().map_err(|error| error.to_string())?;
        self.raft.trigger().elect().await.map_err(|error| error.to_string())
    }

    /// Adds a part of a file that a snapshot will name.
    async fn file(&self, part: files::Part) -> Result<u64, String> {
        // With the snapshot that names it the log lets go of more.
        self.log.admit_relief(0).map_err(|error| error.to_string())?;
        let arrivals = Arc::clone(&self.arrivals);
        let taken = self.compute.run(move || arrivals.take(&part)).await;
        taken.map_err(|error| error.to_string())?
    }

    /// Adds a part; gives the whole when it is complete.
    fn collect(
        &self,
        meta: &SnapshotMeta<u64, EmptyNode>,
        total: u64,
        offset: u64,
        part: &[u8],
    ) -> Result<Option<Vec<u8>>, String> {
        if total > MAX_SNAPSHOT {
            return Err(format!("a snapshot of {total} bytes, the limit is {MAX_SNAPSHOT}"));
        }
        let mut held = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            *held = Some((meta.clone(), Vec::new()));
        }
        let fits = |(of, data): &&mut Part| {
            of == meta && data.len() as u64 == offset && offset + part.len() as u64 <= total
        };
        let Some((_, data)) = held.as_mut().filter(fits) else {
            *held = None;
            return Err("a part of a snapshot that does not follow the one before; begin again".to_owned());
        };
        data.extend_from_slice(part);
        if (data.len() as u64) < total {
            return Ok(None);
        }
        Ok(held.take().map(|(_, data)| data))
    }
}
