//! gRPC service of a voter for other nodes.

pub(crate) mod compaction_service;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Catalog, CatalogLogEntry, JobRequest};
use athanor_chassis::{Clock, ComputePool, ErrorCode, Status, TenantId, Timestamp};
use athanor_cluster::peers::MAX_RPC_MESSAGE_BYTES;
use athanor_cluster::rpc_client::RpcClient;
use athanor_cluster::status_codec;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::metastore_service_server::{
    MetastoreService, MetastoreServiceServer,
};
use bytes::Bytes;
use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response};

use crate::compression::{decode_compressed, encode_compressed};
use crate::view_stream::{ViewStream, ViewUpdate};
use crate::voter::{MAX_COMMAND_SIZE, MetastoreVoter, VoterChange, VoterInfo, check_command_size, to_status};

/// Upper bound of concurrent watch streams.
const MAX_WATCHERS: usize = 1024;
/// Upper bound of proposals that are forwarded to the leader and wait for it.
const MAX_FORWARDED_PROPOSALS: usize = 1024;
/// Upper bound of concurrent listings, because each takes memory.
const MAX_CONCURRENT_LISTINGS: usize = 64;
/// Upper bound of a request's duration, whatever timeout the caller sends.
const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper bound of the duration of a change of the voters.
const VOTER_CHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Allowance for the bytes of a request besides its command.
const REQUEST_OVERHEAD_BYTES: usize = 64 << 10;

/// Dependencies of [`MetastoreServer`].
#[derive(Clone)]
#[expect(missing_docs, reason = "each says what it is by its type")]
pub struct MetastoreServerDeps {
    pub metastore: MetastoreVoter,
    /// Client of the leader, for forwarded proposals.
    pub remote: RpcClient,
    pub clock: Clock,
    /// Pool that compresses large responses.
    pub compute: ComputePool,
    /// Token that ends the watch streams.
    pub stop: CancellationToken,
}

/// gRPC service in front of a voter. Cheap to clone.
#[derive(Clone)]
pub struct MetastoreServer {
    deps: MetastoreServerDeps,
    watchers: Arc<Semaphore>,
    forwarded: Arc<Semaphore>,
    listings: Arc<Semaphore>,
}

type MetastoreRpcResult<T> = Result<Response<T>, tonic::Status>;
type ViewResponseStream = Pin<Box<dyn Stream<Item = Result<wire::RoutingUpdate, tonic::Status>> + Send>>;

impl MetastoreServer {
    /// Creates the service for a voter.
    pub fn new(deps: MetastoreServerDeps) -> Self {
        let room = |count| Arc::new(Semaphore::new(count));
        Self {
            deps,
            watchers: room(MAX_WATCHERS),
            forwarded: room(MAX_FORWARDED_PROPOSALS),
            listings: room(MAX_CONCURRENT_LISTINGS),
        }
    }

    /// Returns the gRPC service for the internal port, with limits on message sizes.
    pub fn into_grpc_service(self) -> MetastoreServiceServer<Self> {
        MetastoreServiceServer::new(self)
            .max_decoding_message_size(MAX_COMMAND_SIZE.as_usize() + REQUEST_OVERHEAD_BYTES)
            .max_encoding_message_size(MAX_RPC_MESSAGE_BYTES)
    }

    /// Returns the timeout for a request. Rejects a caller of another cluster or one that addressed another
    /// node.
    fn check_caller(
        &self,
        header: Option<&wire::CallHeader>,
        max_timeout: Duration,
    ) -> Result<Duration, tonic::Status> {
        let checked = self.deps.remote.handshake.check_caller(header);
        checked.map_err(|error| status_codec::to_grpc(&Status::from_error(&error)))?;
        let requested = header.map(|header| u64::from(header.timeout_ms)).filter(|millis| *millis > 0);
        Ok(requested.map_or(max_timeout, |millis| Duration::from_millis(millis).min(max_timeout)))
    }

    async fn with_timeout<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let late = |elapsed: athanor_chassis::time::clock::TimeoutElapsed| {
            Status::new(ErrorCode::Deadline, format!("metastore did not respond: {elapsed}; retry"))
        };
        self.deps.clock.timeout(limit, work).await.map_err(late)?
    }

    /// Encodes an error as a message. A `NotLeader` error names the leader, so that the caller can retry there.
    fn encode_error(&self, status: &Status) -> wire::RpcStatus {
        let leader = self.deps.metastore.leader();
        status_codec::encode_status(status, leader.node.filter(|_| status.code == ErrorCode::NotLeader))
    }

    async fn propose_locally(&self, logged: CatalogLogEntry) -> Result<Bytes, Status> {
        // The leader stamps the command with the catalog's time [INV-15].
        let answer = self.deps.metastore.propose(logged.command).await.map_err(to_status)?;
        encode_compressed(&answer).map_err(|error| Status::from_error(&error))
    }

    async fn forward_to_leader(
        &self,
        to: u64,
        command: Bytes,
        limit: Duration,
    ) -> Result<wire::ProposeResponse, Status> {
        let Ok(_room) = self.forwarded.try_acquire() else {
            let message =
                format!("{MAX_FORWARDED_PROPOSALS} proposals are waiting for the leader, the limit; retry");
            return Err(Status::new(ErrorCode::Exhausted, message));
        };
        let RpcClient { peers, handshake } = &self.deps.remote;
        let header = Some(handshake.call_header(to, limit));
        let request = wire::ProposeRequest { header, command, hops: 1 };
        let response = peers.metastore(to).propose(request).await;
        response.map(Response::into_inner).map_err(|error| status_codec::from_grpc(&error))
    }

    async fn handle_proposal(
        &self,
        command: Bytes,
        hops: u32,
        limit: Duration,
    ) -> Result<wire::ProposeResponse, Status> {
        check_command_size(command.len())?;
        let logged = CatalogLogEntry::decode(&command)
            .map_err(|error| Status::new(ErrorCode::Invalid, error.to_string()))?;
        let leader = self.deps.metastore.leader();
        match leader.node.filter(|_| !leader.here && hops == 0) {
            Some(to) => self.with_timeout(limit, self.forward_to_leader(to, command, limit)).await,
            None => {
                let result = self.with_timeout(limit, self.propose_locally(logged)).await?;
                let outcome = Some(wire::propose_response::Outcome::Result(result));
                Ok(wire::ProposeResponse { outcome })
            }
        }
    }

    async fn collect_blocks(&self, tenant: &str, from: i64, to: i64) -> Result<Bytes, Status> {
        let _room = self.listings.acquire().await;
        let tenant: TenantId =
            tenant.parse().map_err(|error| Status::new(ErrorCode::Invalid, format!("{error}")))?;
        let listing = self.deps.metastore.list_blocks(&tenant, from, to).await.map_err(to_status)?;
        let packed = self.deps.compute.run(move || encode_compressed(&listing)).await;
        packed.map_err(|error| Status::from_error(&error))?.map_err(|error| Status::from_error(&error))
    }

    async fn collect_slot_blocks(&self, slot: u32, min_created_nanos: i64) -> Result<Bytes, Status> {
        let _room = self.listings.acquire().await;
        let blocks = self.deps.metastore.blocks_of_slot(slot, Timestamp::from_nanos(min_created_nanos)).await;
        let blocks = blocks.map_err(to_status)?;
        let packed = self.deps.compute.run(move || encode_compressed(&blocks)).await;
        packed.map_err(|error| Status::from_error(&error))?.map_err(|error| Status::from_error(&error))
    }

    async fn collect_documents(&self, tenant: &str) -> Result<Bytes, Status> {
        let _room = self.listings.acquire().await;
        let tenant: TenantId =
            tenant.parse().map_err(|error| Status::new(ErrorCode::Invalid, format!("{error}")))?;
        let documents = self.deps.metastore.tenant_documents(&tenant).await.map_err(to_status)?;
        let packed = self.deps.compute.run(move || encode_compressed(&documents)).await;
        packed.map_err(|error| Status::from_error(&error))?.map_err(|error| Status::from_error(&error))
    }

    async fn collect_tenants(&self) -> Result<Bytes, Status> {
        let _permit = self.listings.acquire().await;
        let tenants = self.deps.metastore.tenants().await.map_err(to_status)?;
        let packed = self.deps.compute.run(move || encode_compressed(&tenants)).await;
        packed.map_err(|error| Status::from_error(&error))?.map_err(|error| Status::from_error(&error))
    }

    async fn change_voters(
        &self,
        change: Option<wire::update_voters_request::Change>,
    ) -> Result<Vec<VoterInfo>, Status> {
        use wire::update_voters_request::Change;
        let change = match change {
            None => None,
            Some(Change::Add(wire::Voter { node_id, internal_address })) => {
                check_command_size(internal_address.len())?;
                Some(VoterChange::Add(VoterInfo { node: node_id, address: internal_address }))
            }
            Some(Change::RemoveNodeId(node)) => Some(VoterChange::Remove(node)),
        };
        self.deps.metastore.update_voters(change).await
    }

    async fn encode_view_update(
        &self,
        seen: Result<ViewUpdate, Status>,
    ) -> Result<wire::RoutingUpdate, tonic::Status> {
        let ViewUpdate { revision, leader, view } = seen.map_err(|status| status_codec::to_grpc(&status))?;
        let view = match view {
            None => Bytes::new(),
            Some(view) => {
                let packed = self.deps.compute.run(move || encode_compressed(&*view)).await;
                let packed = packed.map_err(|error| status_codec::to_grpc(&Status::from_error(&error)))?;
                packed.map_err(|error| status_codec::to_grpc(&Status::from_error(&error)))?
            }
        };
        Ok(wire::RoutingUpdate { revision, leader_node_id: leader.unwrap_or_default(), view })
    }

    /// Returns the stream of view updates for one watcher.
    fn view_updates(self, known: u64, room: OwnedSemaphorePermit) -> ViewResponseStream {
        let stop = self.deps.stop.clone();
        let sightings = ViewStream::from_revision(self.deps.metastore.clone(), known);
        Box::pin(futures::stream::unfold((self, sightings, stop, room), |mut all| async {
            let (service, sightings, stop, _room) = &mut all;
            let told = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                seen = sightings.next() => service.encode_view_update(seen?).await,
            };
            Some((told, all))
        }))
    }
}

#[async_trait::async_trait]
impl MetastoreService for MetastoreServer {
    type WatchRoutingStream = ViewResponseStream;

    async fn propose(
        &self,
        request: Request<wire::ProposeRequest>,
    ) -> MetastoreRpcResult<wire::ProposeResponse> {
        let wire::ProposeRequest { header, command, hops } = request.into_inner();
        let limit = self.check_caller(header.as_ref(), MAX_CALL_TIMEOUT)?;
        let failed = |status: Status| wire::ProposeResponse {
            outcome: Some(wire::propose_response::Outcome::Error(self.encode_error(&status))),
        };
        Ok(Response::new(self.handle_proposal(command, hops, limit).await.unwrap_or_else(failed)))
    }

    async fn list_blocks(
        &self,
        request: Request<wire::ListBlocksRequest>,
    ) -> MetastoreRpcResult<wire::ListBlocksResponse> {
        use wire::list_blocks_response::Outcome;
        let wire::ListBlocksRequest { header, tenant, from_nanos, until_nanos } = request.into_inner();
        let limit = self.check_caller(header.as_ref(), MAX_CALL_TIMEOUT)?;
        let listed = self.with_timeout(limit, self.collect_blocks(&tenant, from_nanos, until_nanos)).await;
        let outcome = match listed {
            Ok(packed) => Outcome::Listing(packed),
            Err(status) => Outcome::Error(self.encode_error(&status)),
        };
        Ok(Response::new(wire::ListBlocksResponse { outcome: Some(outcome) }))
    }

    async fn list_slot_blocks(
        &self,
        request: Request<wire::ListSlotBlocksRequest>,
    ) -> MetastoreRpcResult<wire::ListSlotBlocksResponse> {
        use wire::list_slot_blocks_response::Outcome;
        let wire::ListSlotBlocksRequest { header, slot, min_created_nanos } = request.into_inner();
        let limit = self.check_caller(header.as_ref(), MAX_CALL_TIMEOUT)?;
        let outcome = match self.with_timeout(limit, self.collect_slot_blocks(slot, min_created_nanos)).await
        {
            Ok(packed) => Outcome::Blocks(packed),
            Err(status) => Outcome::Error(self.encode_error(&status)),
        };
        Ok(Response::new(wire::ListSlotBlocksResponse { outcome: Some(outcome) }))
    }

    async fn get_tenant_documents(
        &self,
        request: Request<wire::GetTenantDocumentsRequest>,
    ) -> MetastoreRpcResult<wire::GetTenantDocumentsResponse> {
        use wire::get_tenant_documents_response::Outcome;
        let wire::GetTenantDocumentsRequest { header, tenant } = request.into_inner();
        let limit = self.check_caller(header.as_ref(), MAX_CALL_TIMEOUT)?;
        let outcome = match self.with_timeout(limit, self.collect_documents(&tenant)).await {
            Ok(packed) => Outcome::Documents(packed),
            Err(status) => Outcome::Error(self.encode_error(&status)),
        };
        Ok(Response::new(wire::GetTenantDocumentsResponse { outcome: Some(outcome) }))
    }

    async fn list_tenants(
        &self,
        request: Request<wire::ListTenantsRequest>,
    ) -> MetastoreRpcResult<wire::ListTenantsResponse> {
        use wire::list_tenants_response::Outcome;
        let limit = self.check_caller(request.into_inner().header.as_ref(), MAX_CALL_TIMEOUT)?;
        let outcome = match self.with_timeout(limit, self.collect_tenants()).await {
            Ok(packed) => Outcome::Tenants(packed),
            Err(status) => Outcome::Error(self.encode_error(&status)),
        };
        Ok(Response::new(wire::ListTenantsResponse { outcome: Some(outcome) }))
    }

    async fn plan_compaction_jobs(
        &self,
        request: Request<wire::PlanCompactionJobsRequest>,
    ) -> MetastoreRpcResult<wire::PackedResponse> {
        let wire::PlanCompactionJobsRequest { header, worker_node_id, max_job_bytes, max_jobs } =
            request.into_inner();
        let limit = self.check_caller(header.as_ref(), MAX_CALL_TIMEOUT)?;
        let request = JobRequest { worker: worker_node_id, max_bytes: max_job_bytes, limit: max_jobs };
        Ok(Response::new(self.pack_jobs(limit, request).await))
    }

    async fn get_compaction_status(
        &self,
        request: Request<wire::GetCompactionStatusRequest>,
    ) -> MetastoreRpcResult<wire::PackedResponse> {
        let limit = self.check_caller(request.into_inner().header.as_ref(), MAX_CALL_TIMEOUT)?;
        Ok(Response::new(self.pack_status(limit).await))
    }

    async fn list_tombstones(
        &self,
        request: Request<wire::ListTombstonesRequest>,
    ) -> MetastoreRpcResult<wire::PackedResponse> {
        let wire::ListTombstonesRequest { header, after_block_id } = request.into_inner();
        let limit = self.check_caller(header.as_ref(), MAX_CALL_TIMEOUT)?;
        Ok(Response::new(self.pack_tombstones(limit, &after_block_id).await))
    }

    async fn get_removal_report(
        &self,
        request: Request<wire::GetRemovalReportRequest>,
    ) -> MetastoreRpcResult<wire::PackedResponse> {
        let limit = self.check_caller(request.into_inner().header.as_ref(), MAX_CALL_TIMEOUT)?;
        Ok(Response::new(self.pack_removal_report(limit).await))
    }

    async fn find_unknown_blocks(
        &self,
        request: Request<wire::FindUnknownBlocksRequest>,
    ) -> MetastoreRpcResult<wire::PackedResponse> {
        let wire::FindUnknownBlocksRequest { header, block_ids } = request.into_inner();
        let limit = self.check_caller(header.as_ref(), MAX_CALL_TIMEOUT)?;
        Ok(Response::new(self.pack_unknown_blocks(limit, &block_ids).await))
    }

    async fn get_block_ages(
        &self,
        request: Request<wire::GetBlockAgesRequest>,
    ) -> MetastoreRpcResult<wire::PackedResponse> {
        let wire::GetBlockAgesRequest { header, retention_policy } = request.into_inner();
        let limit = self.check_caller(header.as_ref(), MAX_CALL_TIMEOUT)?;
        Ok(Response::new(self.pack_block_ages(limit, &retention_policy).await))
    }

    async fn watch_routing(
        &self,
        request: Request<wire::WatchRoutingRequest>,
    ) -> MetastoreRpcResult<ViewResponseStream> {
        let wire::WatchRoutingRequest { header, known_revision } = request.into_inner();
        self.check_caller(header.as_ref(), MAX_CALL_TIMEOUT)?;
        let room = Arc::clone(&self.watchers).try_acquire_owned().map_err(|_| {
            let message = format!("{MAX_WATCHERS} nodes watch this voter, the limit; watch another voter");
            status_codec::to_grpc(&Status::new(ErrorCode::Exhausted, message))
        })?;
        Ok(Response::new(self.clone().view_updates(known_revision, room)))
    }

    async fn get_clock(
        &self,
        request: Request<wire::GetClockRequest>,
    ) -> MetastoreRpcResult<wire::GetClockResponse> {
        let wire::GetClockRequest { header } = request.into_inner();
        self.check_caller(header.as_ref(), MAX_CALL_TIMEOUT)?;
        Ok(Response::new(wire::GetClockResponse { wall_nanos: self.deps.clock.wall().nanos() }))
    }

    async fn update_voters(
        &self,
        request: Request<wire::UpdateVotersRequest>,
    ) -> MetastoreRpcResult<wire::UpdateVotersResponse> {
        let wire::UpdateVotersRequest { header, change } = request.into_inner();
        let limit = self.check_caller(header.as_ref(), VOTER_CHANGE_TIMEOUT)?;
        let response = match self.with_timeout(limit, self.change_voters(change)).await {
            Ok(seats) => {
                let voter =
                    |VoterInfo { node, address }| wire::Voter { node_id: node, internal_address: address };
                let voters = seats.into_iter().map(voter).collect();
                wire::UpdateVotersResponse { voters, error: None }
            }
            Err(status) => {
                wire::UpdateVotersResponse { voters: Vec::new(), error: Some(self.encode_error(&status)) }
            }
        };
        Ok(Response::new(response))
    }
}

/// Decodes the response to a proposal.
pub(crate) fn decode_propose_response(
    response: wire::ProposeResponse,
) -> Result<athanor_catalog::CommandResult, wire::RpcStatus> {
    use wire::propose_response::Outcome;
    match response.outcome {
        Some(Outcome::Result(packed)) => decode_compressed(&packed)
            .map_err(|error| status_codec::encode_status(&Status::from_error(&error), None)),
        Some(Outcome::Error(error)) => Err(error),
        None => {
            let message = "protocol error: voter returned an empty response";
            Err(status_codec::encode_status(&Status::new(ErrorCode::Internal, message), None))
        }
    }
}
