//! gRPC service of a voter for other nodes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Catalog, CatalogLogEntry};
use athanor_chassis::{Clock, ComputePool, ErrorCode, Status, TenantId, Timestamp};
use athanor_cluster::handshake::PeerHandshake;
use athanor_cluster::peers::{MAX_RPC_MESSAGE_BYTES, PeerPool};
use athanor_cluster::status_codec;
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::catalogue_server::{Catalogue, CatalogueServer};
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
    pub peers: PeerPool,
    pub introductions: Arc<PeerHandshake>,
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
type ViewResponseStream = Pin<Box<dyn Stream<Item = Result<wire::View, tonic::Status>> + Send>>;

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
    pub fn into_grpc_service(self) -> CatalogueServer<Self> {
        CatalogueServer::new(self)
            .max_decoding_message_size(MAX_COMMAND_SIZE.as_usize() + REQUEST_OVERHEAD_BYTES)
            .max_encoding_message_size(MAX_RPC_MESSAGE_BYTES)
    }

    /// Returns the timeout for a request. Rejects a caller of another cluster or one that addressed another
    /// node.
    fn check_caller(&self, caller: Option<&wire::Caller>, most: Duration) -> Result<Duration, tonic::Status> {
        let checked = self.deps.introductions.check_caller(caller);
        checked.map_err(|stranger| status_codec::to_grpc(&Status::from_error(&stranger)))?;
        let asked = caller.map(|caller| u64::from(caller.deadline_ms)).filter(|millis| *millis > 0);
        Ok(asked.map_or(most, |millis| Duration::from_millis(millis).min(most)))
    }

    async fn with_timeout<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let late = |elapsed: athanor_chassis::time::clock::TimeoutElapsed| {
            Status::new(ErrorCode::Deadline, format!("the catalog has not responded: {elapsed}; retry"))
        };
        self.deps.clock.timeout(limit, work).await.map_err(late)?
    }

    /// Encodes a failure as a message. A `NotLeader` failure names the leader, so that the caller can retry
    /// there.
    fn to_wire_failure(&self, status: &Status) -> wire::Failure {
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
                format!("{MAX_FORWARDED_PROPOSALS} proposals wait for the leader, the limit; try again");
            return Err(Status::new(ErrorCode::Exhausted, message));
        };
        let caller = Some(self.deps.introductions.caller(to, limit));
        let request = wire::ProposeRequest { caller, command, hops: 1 };
        let answered = self.deps.peers.metastore(to).propose(request).await;
        answered.map(Response::into_inner).map_err(|error| status_codec::from_grpc(&error))
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
                let answer = self.with_timeout(limit, self.propose_locally(logged)).await?;
                Ok(wire::ProposeResponse { of: Some(wire::propose_response::Of::Answer(answer)) })
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

    async fn collect_slot_blocks(&self, slot: u32, since: i64) -> Result<Bytes, Status> {
        let _room = self.listings.acquire().await;
        let blocks = self.deps.metastore.blocks_of_slot(slot, Timestamp::from_nanos(since)).await;
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

    async fn list_tenants(&self) -> Result<Bytes, Status> {
        let _permit = self.listings.acquire().await;
        let tenants = self.deps.metastore.tenants().await.map_err(to_status)?;
        let packed = self.deps.compute.run(move || encode_compressed(&tenants)).await;
        packed.map_err(|error| Status::from_error(&error))?.map_err(|error| Status::from_error(&error))
    }

    async fn update_voters(
        &self,
        change: Option<wire::voters_request::Change>,
    ) -> Result<Vec<VoterInfo>, Status> {
        use wire::voters_request::Change as Asked;
        let change = match change {
            None => None,
            Some(Asked::Add(wire::Voter { node, address })) => {
                check_command_size(address.len())?;
                Some(VoterChange::Add(VoterInfo { node, address }))
            }
            Some(Asked::Remove(node)) => Some(VoterChange::Remove(node)),
        };
        self.deps.metastore.update_voters(change).await
    }

    async fn encode_view_update(
        &self,
        seen: Result<ViewUpdate, Status>,
    ) -> Result<wire::View, tonic::Status> {
        let ViewUpdate { revision, leader, view } = seen.map_err(|status| status_codec::to_grpc(&status))?;
        let view = match view {
            None => Bytes::new(),
            Some(view) => {
                let packed = self.deps.compute.run(move || encode_compressed(&*view)).await;
                let packed = packed.map_err(|error| status_codec::to_grpc(&Status::from_error(&error)))?;
                packed.map_err(|error| status_codec::to_grpc(&Status::from_error(&error)))?
            }
        };
        Ok(wire::View { revision, leader: leader.unwrap_or_default(), view })
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
impl Catalogue for MetastoreServer {
    type WatchStream = ViewResponseStream;

    async fn propose(
        &self,
        request: Request<wire::ProposeRequest>,
    ) -> MetastoreRpcResult<wire::ProposeResponse> {
        let wire::ProposeRequest { caller, command, hops } = request.into_inner();
        let limit = self.check_caller(caller.as_ref(), MAX_CALL_TIMEOUT)?;
        let failed = |status: Status| wire::ProposeResponse {
            of: Some(wire::propose_response::Of::Failure(self.to_wire_failure(&status))),
        };
        Ok(Response::new(self.handle_proposal(command, hops, limit).await.unwrap_or_else(failed)))
    }

    async fn listing(
        &self,
        request: Request<wire::ListingRequest>,
    ) -> MetastoreRpcResult<wire::ListingResponse> {
        use wire::listing_response::Of;
        let wire::ListingRequest { caller, tenant, from_nanos, until_nanos } = request.into_inner();
        let limit = self.check_caller(caller.as_ref(), MAX_CALL_TIMEOUT)?;
        let listed = self.with_timeout(limit, self.collect_blocks(&tenant, from_nanos, until_nanos)).await;
        let of = match listed {
            Ok(packed) => Of::Listing(packed),
            Err(status) => Of::Failure(self.to_wire_failure(&status)),
        };
        Ok(Response::new(wire::ListingResponse { of: Some(of) }))
    }

    async fn slot(&self, request: Request<wire::SlotRequest>) -> MetastoreRpcResult<wire::SlotResponse> {
        use wire::slot_response::Of;
        let wire::SlotRequest { caller, slot, since_nanos } = request.into_inner();
        let limit = self.check_caller(caller.as_ref(), MAX_CALL_TIMEOUT)?;
        let of = match self.with_timeout(limit, self.collect_slot_blocks(slot, since_nanos)).await {
            Ok(packed) => Of::Blocks(packed),
            Err(status) => Of::Failure(self.to_wire_failure(&status)),
        };
        Ok(Response::new(wire::SlotResponse { of: Some(of) }))
    }

    async fn notes(&self, request: Request<wire::NotesRequest>) -> MetastoreRpcResult<wire::NotesResponse> {
        use wire::notes_response::Of;
        let wire::NotesRequest { caller, tenant } = request.into_inner();
        let limit = self.check_caller(caller.as_ref(), MAX_CALL_TIMEOUT)?;
        let of = match self.with_timeout(limit, self.collect_documents(&tenant)).await {
            Ok(packed) => Of::Notes(packed),
            Err(status) => Of::Failure(self.to_wire_failure(&status)),
        };
        Ok(Response::new(wire::NotesResponse { of: Some(of) }))
    }

    async fn tenants(
        &self,
        request: Request<wire::TenantsRequest>,
    ) -> MetastoreRpcResult<wire::TenantsResponse> {
        use wire::tenants_response::Of;
        let limit = self.check_caller(request.into_inner().caller.as_ref(), MAX_CALL_TIMEOUT)?;
        let of = match self.with_timeout(limit, self.list_tenants()).await {
            Ok(packed) => Of::Tenants(packed),
            Err(status) => Of::Failure(self.to_wire_failure(&status)),
        };
        Ok(Response::new(wire::TenantsResponse { of: Some(of) }))
    }

    async fn watch(&self, request: Request<wire::WatchRequest>) -> MetastoreRpcResult<ViewResponseStream> {
        let wire::WatchRequest { caller, revision, .. } = request.into_inner();
        self.check_caller(caller.as_ref(), MAX_CALL_TIMEOUT)?;
        let room = Arc::clone(&self.watchers).try_acquire_owned().map_err(|_| {
            let message = format!("{MAX_WATCHERS} nodes watch this voter, the limit; watch another");
            status_codec::to_grpc(&Status::new(ErrorCode::Exhausted, message))
        })?;
        Ok(Response::new(self.clone().view_updates(revision, room)))
    }

    async fn clock(&self, request: Request<wire::ClockRequest>) -> MetastoreRpcResult<wire::ClockResponse> {
        let wire::ClockRequest { caller } = request.into_inner();
        self.check_caller(caller.as_ref(), MAX_CALL_TIMEOUT)?;
        Ok(Response::new(wire::ClockResponse { wall_nanos: self.deps.clock.wall().nanos() }))
    }

    async fn voters(
        &self,
        request: Request<wire::VotersRequest>,
    ) -> MetastoreRpcResult<wire::VotersResponse> {
        let wire::VotersRequest { caller, change } = request.into_inner();
        let limit = self.check_caller(caller.as_ref(), VOTER_CHANGE_TIMEOUT)?;
        let answer = match self.with_timeout(limit, self.update_voters(change)).await {
            Ok(seats) => {
                let voter = |VoterInfo { node, address }| wire::Voter { node, address };
                let voters = seats.into_iter().map(voter).collect();
                wire::VotersResponse { voters, failure: None }
            }
            Err(status) => {
                wire::VotersResponse { voters: Vec::new(), failure: Some(self.to_wire_failure(&status)) }
            }
        };
        Ok(Response::new(answer))
    }
}

/// Decodes the response to a proposal.
pub(crate) fn decode_propose_response(
    response: wire::ProposeResponse,
) -> Result<athanor_catalog::CommandResult, wire::Failure> {
    use wire::propose_response::Of;
    match response.of {
        Some(Of::Answer(packed)) => decode_compressed(&packed)
            .map_err(|error| status_codec::encode_status(&Status::from_error(&error), None)),
        Some(Of::Failure(failure)) => Err(failure),
        None => {
            Err(status_codec::encode_status(&Status::new(ErrorCode::Internal, "it answered nothing"), None))
        }
    }
}
