//! Client for handoffs between successive shards of a slot. Calls the local ingester directly and remote ones
//! over gRPC.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{ShardEntry, ShardId};
use athanor_chassis::{Clock, ErrorCode, Status};
use athanor_cluster::{NodeId, status_codec};
use athanor_ingester::{HandoffPeer, HandoffWindowRequest, Ingester, MAX_IDS_PER_PAGE, WindowPage};
use athanor_profile::encoding::hash::ContentHash;
use athanor_proto::athanor::internal::v1 as wire;
use bytes::Bytes;

use crate::rpc::ingester_client::InternalRpcClient;

/// Timeout of a call to one member.
const HANDOFF_CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum attempts over all members, retries included.
const MAX_HANDOFF_ATTEMPTS: usize = 10;
/// Bytes of an id on the wire.
const PROFILE_ID_BYTES: usize = size_of::<ContentHash>();

/// Client that reaches the shards of a slot.
pub struct HandoffClient {
    /// Id of this node.
    pub me: NodeId,
    /// Ingester of this node, once its shards are open.
    pub here: OnceLock<Weak<Ingester>>,
    /// RPC client for other nodes; `None` on a single-node server.
    pub afar: Option<InternalRpcClient>,
    /// Clock that measures timeouts.
    pub clock: Clock,
}

impl HandoffClient {
    /// Sets the local ingester once its shards are open.
    pub fn set_ingester(&self, ingester: &Arc<Ingester>) {
        // A node sets its ingester once, at start.
        let _ = self.here.set(Arc::downgrade(ingester));
    }

    fn here(&self) -> Option<Arc<Ingester>> {
        self.here.get()?.upgrade()
    }

    fn afar(&self) -> Result<&InternalRpcClient, Status> {
        self.afar.as_ref().ok_or_else(|| Status::new(ErrorCode::Unavailable, "there are no other nodes"))
    }

    async fn window_of(
        &self,
        node: NodeId,
        of: ShardId,
        ask: HandoffWindowRequest,
    ) -> Result<WindowPage, MemberFailure> {
        if node == self.me
            && let Some(ingester) = self.here()
        {
            return ingester.window_page(of, ask).await.map_err(MemberFailure::from);
        }
        let InternalRpcClient { peers, introductions } = self.afar()?;
        let request = wire::WindowRequest {
            caller: Some(introductions.caller(node, HANDOFF_CALL_TIMEOUT)),
            shard: of,
            after: ask.after.map(|after| encode_id_list(&[after])),
            since: ask.since,
            upto: ask.upto,
            again: ask.again,
            counted: ask.counted,
        };
        let mut client = peers.ingester(node);
        let answered = self.clock.timeout(HANDOFF_CALL_TIMEOUT, client.window(request)).await;
        page(answered.map_err(late(node))?.map_err(|error| status_codec::from_grpc(&error))?.into_inner())
    }

    async fn settle_with(
        &self,
        node: NodeId,
        with: ShardId,
        by: ShardId,
        ids: &[ContentHash],
    ) -> Result<Vec<bool>, MemberFailure> {
        if node == self.me
            && let Some(ingester) = self.here()
        {
            return ingester.reconcile_ids(with, by, ids.to_vec()).await.map_err(MemberFailure::from);
        }
        let InternalRpcClient { peers, introductions } = self.afar()?;
        let caller = Some(introductions.caller(node, HANDOFF_CALL_TIMEOUT));
        let request = wire::SettleRequest { caller, shard: with, from_shard: by, ids: encode_id_list(ids) };
        let mut client = peers.ingester(node);
        let answered = self.clock.timeout(HANDOFF_CALL_TIMEOUT, client.settle(request)).await;
        let answered =
            answered.map_err(late(node))?.map_err(|error| status_codec::from_grpc(&error))?.into_inner();
        if let Some(failure) = answered.failure {
            return Err(MemberFailure::by(&failure));
        }
        let held = &answered.held;
        if held.len() != ids.len().div_ceil(8) {
            return Err(Status::new(ErrorCode::Unavailable, "a node's answer is to another question").into());
        }
        Ok((0..ids.len()).map(|place| held[place / 8] >> (place % 8) & 1 == 1).collect())
    }
}

#[async_trait]
impl HandoffPeer for HandoffClient {
    async fn fetch_window_page(
        &self,
        of: &ShardEntry,
        ask: HandoffWindowRequest,
    ) -> Result<WindowPage, Status> {
        let mut asked = MemberAttempts::of(of);
        loop {
            match self.window_of(asked.next, of.id, ask).await {
                Ok(page) => return Ok(page),
                Err(told) => asked.again(told)?,
            }
        }
    }

    async fn reconcile_ids(
        &self,
        with: &ShardEntry,
        by: ShardId,
        ids: Vec<ContentHash>,
    ) -> Result<Vec<bool>, Status> {
        let mut asked = MemberAttempts::of(with);
        loop {
            match self.settle_with(asked.next, with.id, by, &ids).await {
                Ok(held) => return Ok(held),
                Err(told) => asked.again(told)?,
            }
        }
    }
}

/// Order of calls to the members of a shard: a known leader first, then one after the other.
struct MemberAttempts {
    all: Vec<NodeId>,
    next: NodeId,
    tries: usize,
}

/// Failed call to one member, with the leader that it reported.
struct MemberFailure {
    status: Status,
    leader: Option<NodeId>,
}

impl MemberAttempts {
    fn of(shard: &ShardEntry) -> Self {
        let all: Vec<NodeId> = shard.members.iter().copied().collect();
        let next = all.first().copied().unwrap_or_default();
        Self { all, next, tries: 0 }
    }

    /// Selects the next member. Returns the error if it is permanent or the attempts are used up.
    fn again(&mut self, MemberFailure { status, leader }: MemberFailure) -> Result<(), Status> {
        self.tries += 1;
        let may_pass =
            matches!(status.code, ErrorCode::NotLeader | ErrorCode::Unavailable | ErrorCode::Deadline);
        if !may_pass || self.tries >= MAX_HANDOFF_ATTEMPTS || self.all.is_empty() {
            return Err(status);
        }
        let in_turn = self.all[self.tries % self.all.len()];
        self.next = leader.filter(|leader| self.all.contains(leader)).unwrap_or(in_turn);
        Ok(())
    }
}

impl MemberFailure {
    fn by(failure: &wire::Failure) -> Self {
        let leader = Some(failure.leader).filter(|leader| *leader != 0);
        Self { status: status_codec::decode_status(failure), leader }
    }
}

impl From<Status> for MemberFailure {
    fn from(status: Status) -> Self {
        Self { status, leader: None }
    }
}

fn late(node: NodeId) -> impl FnOnce(athanor_chassis::time::clock::TimeoutElapsed) -> Status {
    move |late| Status::new(ErrorCode::Deadline, format!("node {node} did not answer {late}"))
}

/// Encodes ids for the wire, 16 bytes each in big-endian order.
pub fn encode_id_list(ids: &[ContentHash]) -> Bytes {
    ids.iter().flat_map(|id| id.to_be_bytes()).collect::<Vec<u8>>().into()
}

/// Decodes ids from the wire.
pub fn decode_id_list(bytes: &[u8]) -> Result<Vec<ContentHash>, Status> {
    if !bytes.len().is_multiple_of(PROFILE_ID_BYTES) || bytes.len() / PROFILE_ID_BYTES > MAX_IDS_PER_PAGE {
        let message = format!(
            "{} bytes are no ids: there are {PROFILE_ID_BYTES} for each of at most {MAX_IDS_PER_PAGE}",
            bytes.len()
        );
        return Err(Status::new(ErrorCode::Invalid, message));
    }
    let id = |bytes: &[u8]| bytes.iter().fold(0, |id, byte| id << 8 | ContentHash::from(*byte));
    Ok(bytes.chunks_exact(PROFILE_ID_BYTES).map(id).collect())
}

fn page(response: wire::WindowResponse) -> Result<WindowPage, MemberFailure> {
    if let Some(failure) = &response.failure {
        return Err(MemberFailure::by(failure));
    }
    let wire::WindowResponse { ids, taken, holds, more, age, span, counted, counted_at, .. } = response;
    let ids = decode_id_list(&ids)?;
    let taken = taken.into_iter().map(|taken| (taken.place, taken.shard)).collect();
    let counted = counted.map(|piece| (counted_at, piece));
    Ok(WindowPage { ids, taken, holds, more, age, span, counted })
}

/// Encodes a page of the dedup window for the wire.
pub fn encode_page(page: WindowPage) -> wire::WindowResponse {
    let WindowPage { ids, taken, holds, more, age, span, counted } = page;
    let (counted_at, counted) = counted.unzip();
    let taken = taken.into_iter().map(|(place, shard)| wire::Taken { place, shard }).collect();
    wire::WindowResponse {
        failure: None,
        ids: encode_id_list(&ids),
        taken,
        holds,
        more,
        age,
        span,
        counted,
        counted_at: counted_at.unwrap_or_default(),
    }
}

/// Encodes booleans as a bit set, the lowest bit of each byte first.
pub fn encode_bits(held: &[bool]) -> Bytes {
    let byte = |eight: &[bool]| eight.iter().rev().fold(0, |byte, held| byte << 1 | u8::from(*held));
    held.chunks(8).map(byte).collect::<Vec<u8>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_travel() {
        let sent = WindowPage {
            ids: vec![1, 1 << 127, ContentHash::MAX],
            taken: vec![(1, 7)],
            holds: vec![7, 9],
            more: true,
            age: 3,
            span: 1 << 40,
            counted: Some((5, Bytes::from_static(&[1, 2]))),
        };
        assert_eq!(page(encode_page(sent.clone())).ok(), Some(sent));
        assert_eq!(decode_id_list(&[0; 17]).unwrap_err().code, ErrorCode::Invalid);
        let held = [true, false, false, true, false, false, false, false, true];
        assert_eq!(encode_bits(&held)[..], [0b1001, 1]);
    }
}
