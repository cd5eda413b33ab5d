//! What shards of a slot ask each other, when one follows another: by calls, or at once where both are here.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{ShardEntry, ShardId};
use athanor_chassis::{Clock, Code, Status};
use athanor_cluster::{NodeId, failure};
use athanor_ingester::{Ingester, Kin, MOST_IDS, WindowAsk, WindowPage};
use athanor_profile::hash::Hash;
use athanor_proto::athanor::internal::v1 as wire;
use bytes::Bytes;

use crate::ways::Afar;

/// How long one member may take.
const TRY: Duration = Duration::from_secs(10);
/// Members that are asked, one after the other, those that are asked again included.
const TRIES: usize = 10;
/// Bytes of an id.
const ID: usize = size_of::<Hash>();

/// The way to shards of the same slot.
pub struct Kinship {
    /// This node.
    pub me: NodeId,
    /// Its shards, when they are open.
    pub here: OnceLock<Weak<Ingester>>,
    /// The ways to others.
    pub afar: Option<Afar>,
    /// Measures limits.
    pub clock: Clock,
}

impl Kinship {
    /// The shards of this node are open.
    pub fn begin(&self, ingester: &Arc<Ingester>) {
        // A node has one ingester, and begins once.
        let _ = self.here.set(Arc::downgrade(ingester));
    }

    fn here(&self) -> Option<Arc<Ingester>> {
        self.here.get()?.upgrade()
    }

    fn afar(&self) -> Result<&Afar, Status> {
        self.afar.as_ref().ok_or_else(|| Status::new(Code::Unavailable, "there are no other nodes"))
    }

    async fn window_of(&self, node: NodeId, of: ShardId, ask: WindowAsk) -> Result<WindowPage, Told> {
        if node == self.me
            && let Some(ingester) = self.here()
        {
            return ingester.window(of, ask).await.map_err(Told::from);
        }
        let Afar { peers, introductions } = self.afar()?;
        let request = wire::WindowRequest {
            caller: Some(introductions.caller(node, TRY)),
            shard: of,
            after: ask.after.map(|after| packed(&[after])),
            since: ask.since,
            upto: ask.upto,
            again: ask.again,
            counted: ask.counted,
        };
        let mut client = peers.shards(node);
        let answered = self.clock.within(TRY, client.window(request)).await;
        page(answered.map_err(late(node))?.map_err(|error| failure::from_grpc(&error))?.into_inner())
    }

    async fn settle_with(
        &self,
        node: NodeId,
        (with, by): (ShardId, ShardId),
        ids: &[Hash],
    ) -> Result<Vec<bool>, Told> {
        if node == self.me
            && let Some(ingester) = self.here()
        {
            return ingester.settle(with, by, ids.to_vec()).await.map_err(Told::from);
        }
        let Afar { peers, introductions } = self.afar()?;
        let caller = Some(introductions.caller(node, TRY));
        let request = wire::SettleRequest { caller, shard: with, from_shard: by, ids: packed(ids) };
        let mut client = peers.shards(node);
        let answered = self.clock.within(TRY, client.settle(request)).await;
        let answered =
            answered.map_err(late(node))?.map_err(|error| failure::from_grpc(&error))?.into_inner();
        if let Some(failure) = answered.failure {
            return Err(Told::by(&failure));
        }
        let held = &answered.held;
        if held.len() != ids.len().div_ceil(8) {
            return Err(Status::new(Code::Unavailable, "a node's answer is to another question").into());
        }
        Ok((0..ids.len()).map(|place| held[place / 8] >> (place % 8) & 1 == 1).collect())
    }
}

#[async_trait]
impl Kin for Kinship {
    async fn window(&self, of: &ShardEntry, ask: WindowAsk) -> Result<WindowPage, Status> {
        let mut asked = Members::of(of);
        loop {
            match self.window_of(asked.next, of.id, ask).await {
                Ok(page) => return Ok(page),
                Err(told) => asked.again(told)?,
            }
        }
    }

    async fn settle(&self, with: &ShardEntry, by: ShardId, ids: Vec<Hash>) -> Result<Vec<bool>, Status> {
        let mut asked = Members::of(with);
        loop {
            match self.settle_with(asked.next, (with.id, by), &ids).await {
                Ok(held) => return Ok(held),
                Err(told) => asked.again(told)?,
            }
        }
    }
}

/// Members of a shard, asked one after the other, and whoever is said to lead first.
struct Members {
    all: Vec<NodeId>,
    next: NodeId,
    tries: usize,
}

/// Why one member did not answer, and who leads.
struct Told {
    status: Status,
    leader: Option<NodeId>,
}

impl Members {
    fn of(shard: &ShardEntry) -> Self {
        let all: Vec<NodeId> = shard.members.iter().copied().collect();
        let next = all.first().copied().unwrap_or_default();
        Self { all, next, tries: 0 }
    }

    /// Goes on to another, unless enough were asked.
    fn again(&mut self, Told { status, leader }: Told) -> Result<(), Status> {
        self.tries += 1;
        let may_pass = matches!(status.code, Code::NotLeader | Code::Unavailable | Code::Deadline);
        if !may_pass || self.tries >= TRIES || self.all.is_empty() {
            return Err(status);
        }
        let in_turn = self.all[self.tries % self.all.len()];
        self.next = leader.filter(|leader| self.all.contains(leader)).unwrap_or(in_turn);
        Ok(())
    }
}

impl Told {
    fn by(failure: &wire::Failure) -> Self {
        let leader = Some(failure.leader).filter(|leader| *leader != 0);
        Self { status: failure::unpack(failure), leader }
    }
}

impl From<Status> for Told {
    fn from(status: Status) -> Self {
        Self { status, leader: None }
    }
}

fn late(node: NodeId) -> impl FnOnce(athanor_chassis::clock::Elapsed) -> Status {
    move |late| Status::new(Code::Deadline, format!("node {node} did not answer {late}"))
}

/// Ids as they travel, 16 bytes each.
pub fn packed(ids: &[Hash]) -> Bytes {
    ids.iter().flat_map(|id| id.to_be_bytes()).collect::<Vec<u8>>().into()
}

/// Ids that have travelled.
pub fn unpacked(bytes: &[u8]) -> Result<Vec<Hash>, Status> {
    if !bytes.len().is_multiple_of(ID) || bytes.len() / ID > MOST_IDS {
        let message =
            format!("{} bytes are no ids: there are {ID} for each of at most {MOST_IDS}", bytes.len());
        return Err(Status::new(Code::Invalid, message));
    }
    let id = |bytes: &[u8]| bytes.iter().fold(0, |id, byte| id << 8 | Hash::from(*byte));
    Ok(bytes.chunks_exact(ID).map(id).collect())
}

fn page(response: wire::WindowResponse) -> Result<WindowPage, Told> {
    if let Some(failure) = &response.failure {
        return Err(Told::by(failure));
    }
    let wire::WindowResponse { ids, taken, holds, more, age, span, counted, counted_at, .. } = response;
    let ids = unpacked(&ids)?;
    let taken = taken.into_iter().map(|taken| (taken.place, taken.shard)).collect();
    let counted = counted.map(|piece| (counted_at, piece));
    Ok(WindowPage { ids, taken, holds, more, age, span, counted })
}

/// A page as it travels.
pub fn paged(page: WindowPage) -> wire::WindowResponse {
    let WindowPage { ids, taken, holds, more, age, span, counted } = page;
    let (counted_at, counted) = counted.unzip();
    let taken = taken.into_iter().map(|(place, shard)| wire::Taken { place, shard }).collect();
    wire::WindowResponse {
        failure: None,
        ids: packed(&ids),
        taken,
        holds,
        more,
        age,
        span,
        counted,
        counted_at: counted_at.unwrap_or_default(),
    }
}

/// Whether each is so, as it travels: one bit for each, the lowest of each byte first.
pub fn bits(held: &[bool]) -> Bytes {
    let byte = |eight: &[bool]| eight.iter().rev().fold(0, |byte, held| byte << 1 | u8::from(*held));
    held.chunks(8).map(byte).collect::<Vec<u8>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_travel() {
        let sent = WindowPage {
            ids: vec![1, 1 << 127, Hash::MAX],
            taken: vec![(1, 7)],
            holds: vec![7, 9],
            more: true,
            age: 3,
            span: 1 << 40,
            counted: Some((5, Bytes::from_static(&[1, 2]))),
        };
        assert_eq!(page(paged(sent.clone())).ok(), Some(sent));
        assert_eq!(unpacked(&[0; 17]).unwrap_err().code, Code::Invalid);
        let held = [true, false, false, true, false, false, false, false, true];
        assert_eq!(bits(&held)[..], [0b1001, 1]);
    }
}
