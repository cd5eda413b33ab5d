//! Client of the metastore for any node.
//!
//! A voter may be down, partitioned or a follower. The client therefore tries voters one after the other, the
//! presumed leader first, until one responds or the timeout elapses. If the response to a proposal is lost,
//! the client retries the proposal. Every command is idempotent.

mod compaction_reads;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{
    AgeReport, BlockEntry, BlockId, BlockListing, Catalog, CatalogCommand, CatalogError, CatalogLogEntry,
    CommandResult, CompactionJob, CompactionStatus, JobRequest, RemovalReport, RetentionPolicy, RoutingView,
    TenantDocuments, Tombstone,
};
use athanor_chassis::{Clock, ComputePool, ErrorCode, Random, Status, TenantId, Timestamp};
use athanor_cluster::members::RoleName;
use athanor_cluster::rpc_client::RpcClient;
use athanor_cluster::{NodeId, status_codec};
use athanor_proto::athanor::internal::v1 as wire;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::compression::decode_compressed;
use crate::retry::{AttemptError, REQUEST_TIMEOUT, VoterAttempts, VoterEndpoint};
use crate::service::decode_propose_response;
use crate::voter::{MetastoreVoter, VoterChange, VoterInfo, check_command_size, to_status};

/// Timeout for a change of the voters, all attempts together.
const VOTER_CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Dependencies of [`MetastoreClient`].
#[derive(Clone)]
pub struct MetastoreClientDeps {
    /// Voter of this node; set only on a node that votes or is about to vote.
    pub local: Option<MetastoreVoter>,
    /// Client of the other nodes; absent on a single node.
    pub remote: Option<RpcClient>,
    /// Clock for timeouts and pauses between attempts.
    pub clock: Clock,
    /// Source of randomness for the order of voters and for jitter.
    pub random: Random,
    /// Pool that decompresses and parses large responses.
    pub compute: ComputePool,
}

/// Client that sends requests to the metastore's voters. Cheap to clone; clones share the cached view.
#[derive(Clone)]
pub struct MetastoreClient {
    shared: Arc<MetastoreClientShared>,
}

pub(crate) struct MetastoreClientShared {
    pub(crate) reach: MetastoreClientDeps,
    pub(crate) known: CachedView,
}

/// Newest routing view and voter hints that this node has received.
#[derive(Default)]
pub(crate) struct CachedView {
    view: Mutex<Arc<RoutingView>>,
    /// Presumed leader, as last reported; 0 if unknown.
    leader: AtomicU64,
    /// Voter that returned the last block listing; 0 if unknown.
    lister: AtomicU64,
    pub(crate) changed: Notify,
}

impl CachedView {
    pub(crate) fn view(&self) -> Arc<RoutingView> {
        Arc::clone(&self.view.lock())
    }

    /// Replaces the cached view if the given one has a newer revision, and wakes the waiters.
    pub(crate) fn update_view(&self, view: Arc<RoutingView>) {
        let mut known = self.view.lock();
        if view.revision > known.revision {
            *known = view;
            drop(known);
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn set_leader(&self, leader: Option<NodeId>) {
        self.leader.store(leader.unwrap_or_default(), Ordering::Relaxed);
    }

    fn leader(&self) -> Option<NodeId> {
        Some(self.leader.load(Ordering::Relaxed)).filter(|node| *node != 0)
    }
}

impl MetastoreClientDeps {
    fn node(&self) -> Option<NodeId> {
        let local = self.local.as_ref().map(|local| local.leader_watch().node());
        local.or_else(|| self.remote.as_ref().map(|remote| remote.handshake.identity().node))
    }

    pub(crate) fn endpoint(&self, node: NodeId) -> VoterEndpoint {
        match self.local.is_some() && self.node() == Some(node) {
            true => VoterEndpoint::Here,
            false => VoterEndpoint::Node(node),
        }
    }
}

impl MetastoreClient {
    /// Creates the client without sending a request.
    pub fn new(reach: MetastoreClientDeps) -> Self {
        Self { shared: Arc::new(MetastoreClientShared { reach, known: CachedView::default() }) }
    }

    pub(crate) fn shared(&self) -> &Arc<MetastoreClientShared> {
        &self.shared
    }

    /// Returns the current voters.
    pub async fn voters(&self) -> Result<Vec<VoterInfo>, CatalogError> {
        self.update_voters(None, REQUEST_TIMEOUT).await
    }

    /// Adds a voter that was started in joining mode. Returns the voters after the change.
    pub async fn add_voter(&self, seat: VoterInfo) -> Result<Vec<VoterInfo>, CatalogError> {
        self.update_voters(Some(VoterChange::Add(seat)), VOTER_CHANGE_TIMEOUT).await
    }

    /// Removes a voter. Returns the voters after the change.
    pub async fn remove_voter(&self, node: NodeId) -> Result<Vec<VoterInfo>, CatalogError> {
        self.update_voters(Some(VoterChange::Remove(node)), VOTER_CHANGE_TIMEOUT).await
    }

    async fn update_voters(
        &self,
        change: Option<VoterChange>,
        limit: Duration,
    ) -> Result<Vec<VoterInfo>, CatalogError> {
        let mut tries = self.voter_attempts(limit);
        loop {
            let (door, each) =
                tries.next_endpoint(|| self.shared.voter_endpoints(self.shared.known.leader())).await?;
            match self.shared.update_voters_via(door, change.clone(), each).await {
                Ok(seats) => return Ok(seats),
                Err(failed) => self.retry_after(&mut tries, door, failed)?,
            }
        }
    }

    /// Sets the catalog's time to this machine's clock at once, after an operator confirmed that clock.
    pub fn confirm_clock(&self) -> Result<Timestamp, Status> {
        self.local_voter().map_err(to_status)?.confirm_clock()
    }

    fn voter_attempts(&self, limit: Duration) -> VoterAttempts<'_> {
        let MetastoreClientDeps { clock, random, .. } = &self.shared.reach;
        VoterAttempts::with_timeout(limit, clock, random)
    }

    fn retry_after(
        &self,
        tries: &mut VoterAttempts<'_>,
        door: VoterEndpoint,
        failed: AttemptError,
    ) -> Result<(), CatalogError> {
        let leader = match failed.leader {
            Some(VoterEndpoint::Node(node)) => Some(node),
            Some(VoterEndpoint::Here) => self.shared.reach.node(),
            None => None,
        };
        self.shared.known.set_leader(leader);
        tries.record_failure(door, failed)
    }

    fn local_voter(&self) -> Result<&MetastoreVoter, CatalogError> {
        self.shared.reach.local.as_ref().ok_or_else(|| {
            let message = "only a metastore voter lists all blocks of the catalog; run this on a node with the \
                           role metastore";
            CatalogError::Unavailable(Status::new(ErrorCode::Unimplemented, message))
        })
    }
}

impl MetastoreClientShared {
    /// Returns the voters in the order in which to try them: `first`, then this node, then the others. The
    /// rotation of the others is random, to spread the load.
    pub(crate) fn voter_endpoints(&self, first: Option<NodeId>) -> Vec<VoterEndpoint> {
        let mut nodes = BTreeSet::new();
        if let Some(RpcClient { peers, .. }) = &self.reach.remote {
            let members = peers.members().current();
            let votes = |node: &NodeId| {
                members.get(node).is_some_and(|member| member.roles.contains(&RoleName::Metastore))
            };
            nodes.extend(members.values().filter(|member| member.is_alive()).map(|member| member.node));
            nodes.retain(votes);
            // Gossip may consider a voter dead although it is reachable.
            nodes.extend(self.known.view().voters.keys().filter(|node| members.contains_key(node)));
        }
        let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
        if !nodes.is_empty() {
            let begin = self.reach.random.next_below(nodes.len() as u64) as usize;
            nodes.rotate_left(begin);
        }
        let here = self.reach.local.is_some().then_some(VoterEndpoint::Here);
        let me = self.reach.node();
        let others = nodes.into_iter().filter(|node| Some(*node) != me).map(VoterEndpoint::Node);
        let first = first.map(|node| self.reach.endpoint(node));
        let mut doors: Vec<VoterEndpoint> = first.into_iter().chain(here).chain(others).collect();
        let mut seen = BTreeSet::new();
        doors.retain(|door| seen.insert(*door));
        doors
    }

    fn rpc_client(&self) -> Result<&RpcClient, AttemptError> {
        self.reach.remote.as_ref().ok_or_else(|| {
            let message = "no remote nodes configured (single-node mode)";
            Status::new(ErrorCode::Unavailable, message).into()
        })
    }

    /// Waits for a response of the local voter or of a remote one, up to `limit`.
    async fn await_response<T>(
        &self,
        limit: Duration,
        answering: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        match self.reach.clock.timeout(limit, answering).await {
            Ok(answered) => answered,
            Err(elapsed) => Err(Status::new(ErrorCode::Deadline, elapsed.to_string()).into()),
        }
    }

    /// Converts an error of the local voter and adds that voter's leader.
    fn local_error(&self, status: Status) -> AttemptError {
        let leader = self.reach.local.as_ref().and_then(|local| local.leader().node);
        AttemptError { status, leader: leader.map(|node| self.reach.endpoint(node)) }
    }

    fn remote_error(&self, error: &wire::RpcStatus) -> AttemptError {
        let leader = Some(error.leader_node_id).filter(|node| *node != 0);
        AttemptError {
            status: status_codec::decode_status(error),
            leader: leader.map(|node| self.reach.endpoint(node)),
        }
    }

    async fn propose_via(
        &self,
        door: VoterEndpoint,
        logged: &CatalogLogEntry,
        limit: Duration,
    ) -> Result<CommandResult, AttemptError> {
        match (door, &self.reach.local) {
            (VoterEndpoint::Here, Some(local)) => {
                let proposed = local.propose(logged.command.clone());
                let answered = async { proposed.await.map_err(|error| self.local_error(to_status(error))) };
                self.await_response(limit, answered).await
            }
            (VoterEndpoint::Here, None) => Err(not_a_voter_error()),
            (VoterEndpoint::Node(node), _) => {
                let RpcClient { peers, handshake } = self.rpc_client()?;
                let header = Some(handshake.call_header(node, limit));
                let command = logged.encode().into();
                let request = wire::ProposeRequest { header, command, hops: 0 };
                let called = async { peers.metastore(node).propose(request).await.map_err(grpc_error) };
                let response = self.await_response(limit, called).await?.into_inner();
                decode_propose_response(response).map_err(|error| self.remote_error(&error))
            }
        }
    }

    async fn list_blocks_via(
        &self,
        door: VoterEndpoint,
        tenant: &TenantId,
        from: i64,
        to: i64,
        limit: Duration,
    ) -> Result<BlockListing, AttemptError> {
        use wire::list_blocks_response::Outcome;
        match (door, &self.reach.local) {
            (VoterEndpoint::Here, Some(local)) => {
                let listed = local.list_blocks(tenant, from, to);
                self.await_response(limit, async {
                    listed.await.map_err(|error| AttemptError::from(to_status(error)))
                })
                .await
            }
            (VoterEndpoint::Here, None) => Err(not_a_voter_error()),
            (VoterEndpoint::Node(node), _) => {
                let RpcClient { peers, handshake } = self.rpc_client()?;
                let request = wire::ListBlocksRequest {
                    header: Some(handshake.call_header(node, limit)),
                    tenant: tenant.to_string(),
                    from_nanos: from,
                    until_nanos: to,
                };
                let called = async { peers.metastore(node).list_blocks(request).await.map_err(grpc_error) };
                match self.await_response(limit, called).await?.into_inner().outcome {
                    Some(Outcome::Listing(packed)) => self.decompress_response(packed).await,
                    Some(Outcome::Error(error)) => Err(self.remote_error(&error)),
                    None => Err(empty_response_error()),
                }
            }
        }
    }

    async fn list_slot_blocks_via(
        &self,
        door: VoterEndpoint,
        slot: u32,
        since: Timestamp,
        limit: Duration,
    ) -> Result<Vec<BlockEntry>, AttemptError> {
        use wire::list_slot_blocks_response::Outcome;
        match (door, &self.reach.local) {
            (VoterEndpoint::Here, Some(local)) => {
                let listed = local.blocks_of_slot(slot, since);
                self.await_response(limit, async {
                    listed.await.map_err(|error| AttemptError::from(to_status(error)))
                })
                .await
            }
            (VoterEndpoint::Here, None) => Err(not_a_voter_error()),
            (VoterEndpoint::Node(node), _) => {
                let RpcClient { peers, handshake } = self.rpc_client()?;
                let header = Some(handshake.call_header(node, limit));
                let request = wire::ListSlotBlocksRequest { header, slot, min_created_nanos: since.nanos() };
                let called =
                    async { peers.metastore(node).list_slot_blocks(request).await.map_err(grpc_error) };
                match self.await_response(limit, called).await?.into_inner().outcome {
                    Some(Outcome::Blocks(packed)) => self.decompress_response(packed).await,
                    Some(Outcome::Error(error)) => Err(self.remote_error(&error)),
                    None => Err(empty_response_error()),
                }
            }
        }
    }

    async fn documents_via(
        &self,
        door: VoterEndpoint,
        tenant: &TenantId,
        limit: Duration,
    ) -> Result<TenantDocuments, AttemptError> {
        use wire::get_tenant_documents_response::Outcome;
        match (door, &self.reach.local) {
            (VoterEndpoint::Here, Some(local)) => {
                let noted = local.tenant_documents(tenant);
                self.await_response(limit, async {
                    noted.await.map_err(|error| AttemptError::from(to_status(error)))
                })
                .await
            }
            (VoterEndpoint::Here, None) => Err(not_a_voter_error()),
            (VoterEndpoint::Node(node), _) => {
                let RpcClient { peers, handshake } = self.rpc_client()?;
                let header = Some(handshake.call_header(node, limit));
                let request = wire::GetTenantDocumentsRequest { header, tenant: tenant.to_string() };
                let called =
                    async { peers.metastore(node).get_tenant_documents(request).await.map_err(grpc_error) };
                match self.await_response(limit, called).await?.into_inner().outcome {
                    Some(Outcome::Documents(packed)) => self.decompress_response(packed).await,
                    Some(Outcome::Error(error)) => Err(self.remote_error(&error)),
                    None => Err(empty_response_error()),
                }
            }
        }
    }

    async fn tenants_via(&self, door: VoterEndpoint, limit: Duration) -> Result<Vec<TenantId>, AttemptError> {
        use wire::list_tenants_response::Outcome;
        match (door, &self.reach.local) {
            (VoterEndpoint::Here, Some(local)) => {
                let listed = local.tenants();
                self.await_response(limit, async {
                    listed.await.map_err(|error| AttemptError::from(to_status(error)))
                })
                .await
            }
            (VoterEndpoint::Here, None) => Err(not_a_voter_error()),
            (VoterEndpoint::Node(node), _) => {
                let RpcClient { peers, handshake } = self.rpc_client()?;
                let request = wire::ListTenantsRequest { header: Some(handshake.call_header(node, limit)) };
                let called = async { peers.metastore(node).list_tenants(request).await.map_err(grpc_error) };
                match self.await_response(limit, called).await?.into_inner().outcome {
                    Some(Outcome::Tenants(packed)) => self.decompress_response(packed).await,
                    Some(Outcome::Error(error)) => Err(self.remote_error(&error)),
                    None => Err(empty_response_error()),
                }
            }
        }
    }

    /// Decompresses and parses a response of another node on the compute pool.
    async fn decompress_response<T: DeserializeOwned + Send + 'static>(
        &self,
        packed: Bytes,
    ) -> Result<T, AttemptError> {
        let read = self.reach.compute.run(move || decode_compressed(&packed)).await;
        let read = read.map_err(|error| Status::from_error(&error))?;
        read.map_err(|error| Status::from_error(&error).into())
    }

    async fn update_voters_via(
        &self,
        door: VoterEndpoint,
        change: Option<VoterChange>,
        limit: Duration,
    ) -> Result<Vec<VoterInfo>, AttemptError> {
        use wire::update_voters_request::Change;
        match (door, &self.reach.local) {
            (VoterEndpoint::Here, Some(local)) => {
                let voted = local.update_voters(change);
                self.await_response(limit, async { voted.await.map_err(|why| self.local_error(why)) }).await
            }
            (VoterEndpoint::Here, None) => Err(not_a_voter_error()),
            (VoterEndpoint::Node(node), _) => {
                let RpcClient { peers, handshake } = self.rpc_client()?;
                let change = change.map(|change| match change {
                    VoterChange::Add(VoterInfo { node, address }) => {
                        Change::Add(wire::Voter { node_id: node, internal_address: address })
                    }
                    VoterChange::Remove(node) => Change::RemoveNodeId(node),
                });
                let request =
                    wire::UpdateVotersRequest { header: Some(handshake.call_header(node, limit)), change };
                let called = async { peers.metastore(node).update_voters(request).await.map_err(grpc_error) };
                let wire::UpdateVotersResponse { voters, error } =
                    self.await_response(limit, called).await?.into_inner();
                match error {
                    Some(error) => Err(self.remote_error(&error)),
                    None => Ok(voters.into_iter().map(decode_voter).collect()),
                }
            }
        }
    }
}

/// Decodes a voter from the wire.
fn decode_voter(voter: wire::Voter) -> VoterInfo {
    VoterInfo { node: voter.node_id, address: voter.internal_address }
}

fn not_a_voter_error() -> AttemptError {
    Status::new(ErrorCode::NotFound, "this node is not a metastore voter").into()
}

fn empty_response_error() -> AttemptError {
    Status::new(ErrorCode::Internal, "protocol error: voter returned an empty response").into()
}

/// Converts a failed RPC to an attempt error without a leader hint.
fn grpc_error(error: tonic::Status) -> AttemptError {
    status_codec::from_grpc(&error).into()
}

#[async_trait]
impl Catalog for MetastoreClient {
    async fn propose(&self, command: CatalogCommand) -> Result<CommandResult, CatalogError> {
        let shared = &*self.shared;
        // The leader replaces this timestamp with the catalog's time.
        let logged = CatalogLogEntry { time: shared.reach.clock.wall(), command };
        check_command_size(logged.encode().len()).map_err(CatalogError::Unavailable)?;
        let mut tries = self.voter_attempts(REQUEST_TIMEOUT);
        loop {
            let (door, each) = tries.next_endpoint(|| shared.voter_endpoints(shared.known.leader())).await?;
            match shared.propose_via(door, &logged, each).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => self.retry_after(&mut tries, door, failed)?,
            }
        }
    }

    async fn list_blocks(&self, tenant: &TenantId, from: i64, to: i64) -> Result<BlockListing, CatalogError> {
        let shared = &*self.shared;
        let lister = &shared.known.lister;
        let mut tries = self.voter_attempts(REQUEST_TIMEOUT);
        loop {
            let first = || {
                Some(lister.load(Ordering::Relaxed)).filter(|node| *node != 0 && shared.reach.local.is_none())
            };
            let (door, each) = tries.next_endpoint(|| shared.voter_endpoints(first())).await?;
            match shared.list_blocks_via(door, tenant, from, to, each).await {
                Ok(listing) => {
                    if let VoterEndpoint::Node(node) = door {
                        lister.store(node, Ordering::Relaxed);
                    }
                    return Ok(listing);
                }
                Err(failed) => {
                    lister.store(0, Ordering::Relaxed);
                    tries.record_failure(door, AttemptError { leader: None, ..failed })?;
                }
            }
        }
    }

    async fn blocks_of_slot(&self, slot: u32, since: Timestamp) -> Result<Vec<BlockEntry>, CatalogError> {
        let mut tries = self.voter_attempts(REQUEST_TIMEOUT);
        loop {
            let (door, each) = tries.next_endpoint(|| self.shared.voter_endpoints(None)).await?;
            match self.shared.list_slot_blocks_via(door, slot, since, each).await {
                Ok(blocks) => return Ok(blocks),
                Err(failed) => tries.record_failure(door, AttemptError { leader: None, ..failed })?,
            }
        }
    }

    async fn tenant_documents(&self, tenant: &TenantId) -> Result<TenantDocuments, CatalogError> {
        let mut tries = self.voter_attempts(REQUEST_TIMEOUT);
        loop {
            let (door, each) = tries.next_endpoint(|| self.shared.voter_endpoints(None)).await?;
            match self.shared.documents_via(door, tenant, each).await {
                Ok(documents) => return Ok(documents),
                Err(failed) => tries.record_failure(door, AttemptError { leader: None, ..failed })?,
            }
        }
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        let mut tries = self.voter_attempts(REQUEST_TIMEOUT);
        loop {
            let (door, each) = tries.next_endpoint(|| self.shared.voter_endpoints(None)).await?;
            match self.shared.tenants_via(door, each).await {
                Ok(tenants) => return Ok(tenants),
                Err(failed) => tries.record_failure(door, AttemptError { leader: None, ..failed })?,
            }
        }
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.local_voter()?.blocks().await
    }

    async fn tombstones(&self) -> Result<Vec<(BlockId, Tombstone)>, CatalogError> {
        self.read_tombstones().await
    }

    async fn block_ages(&self, retention: &RetentionPolicy) -> Result<AgeReport, CatalogError> {
        self.read_block_ages(retention).await
    }

    async fn compaction_jobs(&self, request: &JobRequest) -> Result<Vec<CompactionJob>, CatalogError> {
        self.read_jobs(request).await
    }

    async fn compaction_status(&self) -> Result<CompactionStatus, CatalogError> {
        self.read_status().await
    }

    async fn removal_report(&self) -> Result<RemovalReport, CatalogError> {
        self.read_removal_report().await
    }

    async fn unknown_blocks(&self, blocks: &[BlockId]) -> Result<Vec<BlockId>, CatalogError> {
        self.find_unknown_blocks(blocks).await
    }
}
