//! Client for handoffs between successive shards of a slot. Calls the local ingester directly and remote ones
//! over gRPC.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{ShardEntry, ShardId};
use athanor_chassis::{Clock, ErrorCode, Status};
use athanor_cluster::rpc_client::RpcClient;
use athanor_cluster::{NodeId, status_codec};
use athanor_ingester::{HandoffPeer, HandoffWindowRequest, Ingester, MAX_IDS_PER_PAGE, WindowPage};
use athanor_profile::encoding::hash::ContentHash;
use athanor_proto::athanor::internal::v1 as wire;
use bytes::Bytes;

/// Timeout of a call to one member.
const HANDOFF_CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum attempts over all members, retries included.
const MAX_HANDOFF_ATTEMPTS: usize = 10;
/// Bytes of an id on the wire.
const PROFILE_ID_BYTES: usize = size_of::<ContentHash>();

/// Client that reaches the shards of a slot.
pub struct HandoffClient {
    /// Id of this node.
    pub node: NodeId,
    /// Ingester of this node, once its shards are open.
    pub ingester: OnceLock<Weak<Ingester>>,
    /// RPC client for other nodes; `None` on a single-node server.
    pub remote: Option<RpcClient>,
    /// Clock that measures timeouts.
    pub clock: Clock,
}

impl HandoffClient {
    /// Sets the local ingester once its shards are open.
    pub fn set_ingester(&self, ingester: &Arc<Ingester>) {
        // A node sets its ingester once, at start.
        let _ = self.ingester.set(Arc::downgrade(ingester));
    }

    fn local_ingester(&self) -> Option<Arc<Ingester>> {
        self.ingester.get()?.upgrade()
    }

    fn remote_client(&self) -> Result<&RpcClient, Status> {
        self.remote.as_ref().ok_or_else(|| {
            Status::new(ErrorCode::Unavailable, "no remote nodes configured (single-node mode)")
        })
    }

    async fn read_window_at(
        &self,
        node: NodeId,
        shard: ShardId,
        request: HandoffWindowRequest,
    ) -> Result<WindowPage, MemberFailure> {
        if node == self.node
            && let Some(ingester) = self.local_ingester()
        {
            return ingester.window_page(shard, request).await.map_err(MemberFailure::from);
        }
        let RpcClient { peers, handshake } = self.remote_client()?;
        let request = wire::ReadDedupWindowRequest {
            header: Some(handshake.call_header(node, HANDOFF_CALL_TIMEOUT)),
            shard,
            after_id: request.after.map(|after| encode_id_list(&[after])),
            min_age: request.min_age,
            min_applied_index: request.min_applied,
            incremental: request.incremental,
            delta_state_after: request.delta_state_after,
        };
        let mut client = peers.ingester(node);
        let response = self.clock.timeout(HANDOFF_CALL_TIMEOUT, client.read_dedup_window(request)).await;
        let response = response.map_err(timeout_error(node))?;
        decode_page(response.map_err(|error| status_codec::from_grpc(&error))?.into_inner())
    }

    async fn reconcile_ids_at(
        &self,
        node: NodeId,
        shard: ShardId,
        from_shard: ShardId,
        ids: &[ContentHash],
    ) -> Result<Vec<bool>, MemberFailure> {
        if node == self.node
            && let Some(ingester) = self.local_ingester()
        {
            return ingester
                .reconcile_ids(shard, from_shard, ids.to_vec())
                .await
                .map_err(MemberFailure::from);
        }
        let RpcClient { peers, handshake } = self.remote_client()?;
        let header = Some(handshake.call_header(node, HANDOFF_CALL_TIMEOUT));
        let request = wire::ReconcileIdsRequest { header, shard, from_shard, ids: encode_id_list(ids) };
        let mut client = peers.ingester(node);
        let response = self.clock.timeout(HANDOFF_CALL_TIMEOUT, client.reconcile_ids(request)).await;
        let response = response.map_err(timeout_error(node))?;
        let response = response.map_err(|error| status_codec::from_grpc(&error))?.into_inner();
        if let Some(error) = response.error {
            return Err(MemberFailure::from_wire(&error));
        }
        let stored = &response.stored;
        if stored.len() != ids.len().div_ceil(8) {
            let message = "protocol error: response does not match the request";
            return Err(Status::new(ErrorCode::Unavailable, message).into());
        }
        Ok((0..ids.len()).map(|index| stored[index / 8] >> (index % 8) & 1 == 1).collect())
    }
}

#[async_trait]
impl HandoffPeer for HandoffClient {
    async fn fetch_window_page(
        &self,
        shard: &ShardEntry,
        request: HandoffWindowRequest,
    ) -> Result<WindowPage, Status> {
        let mut attempts = MemberAttempts::for_shard(shard);
        loop {
            match self.read_window_at(attempts.next, shard.id, request).await {
                Ok(page) => return Ok(page),
                Err(failure) => attempts.record_failure(failure)?,
            }
        }
    }

    async fn reconcile_ids(
        &self,
        shard: &ShardEntry,
        from_shard: ShardId,
        ids: Vec<ContentHash>,
    ) -> Result<Vec<bool>, Status> {
        let mut attempts = MemberAttempts::for_shard(shard);
        loop {
            match self.reconcile_ids_at(attempts.next, shard.id, from_shard, &ids).await {
                Ok(stored) => return Ok(stored),
                Err(failure) => attempts.record_failure(failure)?,
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
    fn for_shard(shard: &ShardEntry) -> Self {
        let all: Vec<NodeId> = shard.members.iter().copied().collect();
        let next = all.first().copied().unwrap_or_default();
        Self { all, next, tries: 0 }
    }

    /// Selects the next member. Returns the error if it is permanent or the attempts are used up.
    fn record_failure(&mut self, failure: MemberFailure) -> Result<(), Status> {
        let MemberFailure { status, leader } = failure;
        self.tries += 1;
        let is_transient =
            matches!(status.code, ErrorCode::NotLeader | ErrorCode::Unavailable | ErrorCode::Deadline);
        if !is_transient || self.tries >= MAX_HANDOFF_ATTEMPTS || self.all.is_empty() {
            return Err(status);
        }
        let successor = self.all[self.tries % self.all.len()];
        self.next = leader.filter(|leader| self.all.contains(leader)).unwrap_or(successor);
        Ok(())
    }
}

impl MemberFailure {
    fn from_wire(error: &wire::RpcStatus) -> Self {
        let leader = Some(error.leader_node_id).filter(|leader| *leader != 0);
        Self { status: status_codec::decode_status(error), leader }
    }
}

impl From<Status> for MemberFailure {
    fn from(status: Status) -> Self {
        Self { status, leader: None }
    }
}

fn timeout_error(node: NodeId) -> impl FnOnce(athanor_chassis::time::clock::TimeoutElapsed) -> Status {
    move |elapsed| Status::new(ErrorCode::Deadline, format!("node {node} did not respond: {elapsed}"))
}

/// Encodes ids for the wire, 16 bytes each in big-endian order.
pub fn encode_id_list(ids: &[ContentHash]) -> Bytes {
    ids.iter().flat_map(|id| id.to_be_bytes()).collect::<Vec<u8>>().into()
}

/// Decodes ids from the wire.
pub fn decode_id_list(bytes: &[u8]) -> Result<Vec<ContentHash>, Status> {
    if !bytes.len().is_multiple_of(PROFILE_ID_BYTES) || bytes.len() / PROFILE_ID_BYTES > MAX_IDS_PER_PAGE {
        let message = format!(
            "list of ids has {} bytes, must be {PROFILE_ID_BYTES} for each of at most {MAX_IDS_PER_PAGE} ids",
            bytes.len()
        );
        return Err(Status::new(ErrorCode::Invalid, message));
    }
    let id = |bytes: &[u8]| bytes.iter().fold(0, |id, byte| id << 8 | ContentHash::from(*byte));
    Ok(bytes.chunks_exact(PROFILE_ID_BYTES).map(id).collect())
}

/// Decodes a page of the dedup window.
fn decode_page(response: wire::ReadDedupWindowResponse) -> Result<WindowPage, MemberFailure> {
    if let Some(error) = &response.error {
        return Err(MemberFailure::from_wire(error));
    }
    let wire::ReadDedupWindowResponse { ids, inherited, held_for_shards, delta_state, .. } = response;
    Ok(WindowPage {
        ids: decode_id_list(&ids)?,
        inherited: inherited.into_iter().map(|id| (id.index, id.from_shard)).collect(),
        held_for: held_for_shards,
        has_more: response.has_more,
        log_age: response.log_age_seconds,
        retention_nanos: response.retention_nanos,
        delta_state: delta_state.map(|state| (response.delta_state_index, state)),
    })
}

/// Encodes a page of the dedup window for the wire.
pub fn encode_page(page: WindowPage) -> wire::ReadDedupWindowResponse {
    let WindowPage { ids, inherited, held_for, has_more, log_age, retention_nanos, delta_state } = page;
    let (delta_state_index, delta_state) = delta_state.unzip();
    let inherited =
        inherited.into_iter().map(|(index, from_shard)| wire::InheritedId { index, from_shard }).collect();
    wire::ReadDedupWindowResponse {
        error: None,
        ids: encode_id_list(&ids),
        inherited,
        held_for_shards: held_for,
        has_more,
        log_age_seconds: log_age,
        retention_nanos,
        delta_state,
        delta_state_index: delta_state_index.unwrap_or_default(),
    }
}

/// Encodes booleans as a bit set, the lowest bit of each byte first.
pub fn encode_bits(bits: &[bool]) -> Bytes {
    let byte = |eight: &[bool]| eight.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
    bits.chunks(8).map(byte).collect::<Vec<u8>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoded_page_equals_encoded_page() {
        let sent = WindowPage {
            ids: vec![1, 1 << 127, ContentHash::MAX],
            inherited: vec![(1, 7)],
            held_for: vec![7, 9],
            has_more: true,
            log_age: 3,
            retention_nanos: 1 << 40,
            delta_state: Some((5, Bytes::from_static(&[1, 2]))),
        };
        assert_eq!(decode_page(encode_page(sent.clone())).ok(), Some(sent));
        assert_eq!(decode_id_list(&[0; 17]).unwrap_err().code, ErrorCode::Invalid);
        let bits = [true, false, false, true, false, false, false, false, true];
        assert_eq!(encode_bits(&bits)[..], [0b1001, 1]);
    }
}
