//! What a voter does for other nodes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{Catalog, Logged};
use athanor_chassis::{Clock, Code, Compute, Status, TenantId, Timestamp};
use athanor_cluster::failure;
use athanor_cluster::greeting::Introductions;
use athanor_cluster::peers::{MESSAGE, Peers};
use athanor_proto::athanor::internal::v1 as wire;
use athanor_proto::athanor::internal::v1::catalogue_server::{Catalogue, CatalogueServer};
use bytes::Bytes;
use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response};

use crate::packed::{pack, unpack};
use crate::sightings::{Sighting, Sightings};
use crate::voter::{Change, MAX_COMMAND, Metastore, Seat, fits, status};

/// Who watches.
const WATCHERS: usize = 1024;
/// Proposals that were sent on and wait.
const FORWARDED: usize = 1024;
/// Listings that are made at the same time: each may take some memory.
const LISTINGS: usize = 64;
/// How long a call takes at the most, whatever the caller's patience.
const CALL: Duration = Duration::from_secs(5);
/// And one that changes voters.
const CHANGE: Duration = Duration::from_secs(60);
/// Bytes of a request besides its command.
const AROUND: usize = 64 << 10;

/// What a service takes from its node.
#[derive(Clone)]
#[expect(missing_docs, reason = "each says what it is by its type")]
pub struct ServiceDeps {
    pub metastore: Metastore,
    pub peers: Peers,
    pub introductions: Arc<Introductions>,
    pub clock: Clock,
    /// Packs what is large.
    pub compute: Compute,
    /// Ends the streams of those who watch.
    pub stop: CancellationToken,
}

/// Answers for a voter. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    deps: ServiceDeps,
    watchers: Arc<Semaphore>,
    forwarded: Arc<Semaphore>,
    listings: Arc<Semaphore>,
}

type Answered<T> = Result<Response<T>, tonic::Status>;
type Views = Pin<Box<dyn Stream<Item = Result<wire::View, tonic::Status>> + Send>>;

impl Service {
    /// For a voter.
    pub fn new(deps: ServiceDeps) -> Self {
        let room = |count| Arc::new(Semaphore::new(count));
        Self { deps, watchers: room(WATCHERS), forwarded: room(FORWARDED), listings: room(LISTINGS) }
    }

    /// As the port for other nodes takes it.
    pub fn offered(self) -> CatalogueServer<Self> {
        CatalogueServer::new(self)
            .max_decoding_message_size(MAX_COMMAND.as_usize() + AROUND)
            .max_encoding_message_size(MESSAGE)
    }

    /// How long a caller may be served, if it is one of the cluster and means this node.
    fn admit(&self, caller: Option<&wire::Caller>, most: Duration) -> Result<Duration, tonic::Status> {
        let checked = self.deps.introductions.check(caller);
        checked.map_err(|stranger| failure::to_grpc(&Status::of(&stranger)))?;
        let asked = caller.map(|caller| u64::from(caller.deadline_ms)).filter(|millis| *millis > 0);
        Ok(asked.map_or(most, |millis| Duration::from_millis(millis).min(most)))
    }

    async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let late = |elapsed: athanor_chassis::clock::Elapsed| {
            Status::new(Code::Deadline, format!("the catalogue has not answered: {elapsed}; try again"))
        };
        self.deps.clock.within(limit, work).await.map_err(late)?
    }

    /// A failure as a message. Who leads is said with each: it is what a caller needs next.
    fn failure(&self, status: &Status) -> wire::Failure {
        let leader = self.deps.metastore.leader();
        failure::pack(status, leader.node.filter(|_| status.code == Code::NotLeader))
    }

    async fn propose_here(&self, logged: Logged) -> Result<Bytes, Status> {
        // The leader stamps it with the catalog's time [INV-15].
        let answer = self.deps.metastore.propose(logged.command).await.map_err(status)?;
        pack(&answer).map_err(|error| Status::of(&error))
    }

    async fn forward(
        &self,
        to: u64,
        command: Bytes,
        limit: Duration,
    ) -> Result<wire::ProposeResponse, Status> {
        let Ok(_room) = self.forwarded.try_acquire() else {
            let message = format!("{FORWARDED} proposals wait for the leader, the limit; try again");
            return Err(Status::new(Code::Exhausted, message));
        };
        let caller = Some(self.deps.introductions.caller(to, limit));
        let request = wire::ProposeRequest { caller, command, hops: 1 };
        let answered = self.deps.peers.catalogue(to).propose(request).await;
        answered.map(Response::into_inner).map_err(|error| failure::from_grpc(&error))
    }

    async fn proposed(
        &self,
        command: Bytes,
        hops: u32,
        limit: Duration,
    ) -> Result<wire::ProposeResponse, Status> {
        fits(command.len())?;
        let logged =
            Logged::decode(&command).map_err(|error| Status::new(Code::Invalid, error.to_string()))?;
        let leader = self.deps.metastore.leader();
        match leader.node.filter(|_| !leader.here && hops == 0) {
            Some(to) => self.within(limit, self.forward(to, command, limit)).await,
            None => {
                let answer = self.within(limit, self.propose_here(logged)).await?;
                Ok(wire::ProposeResponse { of: Some(wire::propose_response::Of::Answer(answer)) })
            }
        }
    }

    async fn listed(&self, tenant: &str, from: i64, to: i64) -> Result<Bytes, Status> {
        let _room = self.listings.acquire().await;
        let tenant: TenantId =
            tenant.parse().map_err(|error| Status::new(Code::Invalid, format!("{error}")))?;
        let listing = self.deps.metastore.listing(&tenant, from, to).await.map_err(status)?;
        let packed = self.deps.compute.run(move || pack(&listing)).await;
        packed.map_err(|error| Status::of(&error))?.map_err(|error| Status::of(&error))
    }

    async fn blocks_of(&self, slot: u32, since: i64) -> Result<Bytes, Status> {
        let _room = self.listings.acquire().await;
        let blocks = self.deps.metastore.blocks_of_slot(slot, Timestamp::from_nanos(since)).await;
        let blocks = blocks.map_err(status)?;
        let packed = self.deps.compute.run(move || pack(&blocks)).await;
        packed.map_err(|error| Status::of(&error))?.map_err(|error| Status::of(&error))
    }

    async fn noted(&self, tenant: &str) -> Result<Bytes, Status> {
        let _room = self.listings.acquire().await;
        let tenant: TenantId =
            tenant.parse().map_err(|error| Status::new(Code::Invalid, format!("{error}")))?;
        let notes = self.deps.metastore.notes(&tenant).await.map_err(status)?;
        let packed = self.deps.compute.run(move || pack(&notes)).await;
        packed.map_err(|error| Status::of(&error))?.map_err(|error| Status::of(&error))
    }

    async fn list_tenants(&self) -> Result<Bytes, Status> {
        let _permit = self.listings.acquire().await;
        let tenants = self.deps.metastore.tenants().await.map_err(status)?;
        let packed = self.deps.compute.run(move || pack(&tenants)).await;
        packed.map_err(|error| Status::of(&error))?.map_err(|error| Status::of(&error))
    }

    async fn voted(&self, change: Option<wire::voters_request::Change>) -> Result<Vec<Seat>, Status> {
        use wire::voters_request::Change as Asked;
        let change = match change {
            None => None,
            Some(Asked::Add(wire::Voter { node, address })) => {
                fits(address.len())?;
                Some(Change::Add(Seat { node, address }))
            }
            Some(Asked::Remove(node)) => Some(Change::Remove(node)),
        };
        self.deps.metastore.vote(change).await
    }

    async fn tell(&self, seen: Result<Sighting, Status>) -> Result<wire::View, tonic::Status> {
        let Sighting { revision, leader, view } = seen.map_err(|status| failure::to_grpc(&status))?;
        let view = match view {
            None => Bytes::new(),
            Some(view) => {
                let packed = self.deps.compute.run(move || pack(&*view)).await;
                let packed = packed.map_err(|error| failure::to_grpc(&Status::of(&error)))?;
                packed.map_err(|error| failure::to_grpc(&Status::of(&error)))?
            }
        };
        Ok(wire::View { revision, leader: leader.unwrap_or_default(), view })
    }

    /// All that somebody who watches is told.
    fn tellings(self, known: u64, room: OwnedSemaphorePermit) -> Views {
        let stop = self.deps.stop.clone();
        let sightings = Sightings::after(self.deps.metastore.clone(), known);
        Box::pin(futures::stream::unfold((self, sightings, stop, room), |mut all| async {
            let (service, sightings, stop, _room) = &mut all;
            let told = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                seen = sightings.next() => service.tell(seen?).await,
            };
            Some((told, all))
        }))
    }
}

#[async_trait::async_trait]
impl Catalogue for Service {
    type WatchStream = Views;

    async fn propose(&self, request: Request<wire::ProposeRequest>) -> Answered<wire::ProposeResponse> {
        let wire::ProposeRequest { caller, command, hops } = request.into_inner();
        let limit = self.admit(caller.as_ref(), CALL)?;
        let failed = |status: Status| wire::ProposeResponse {
            of: Some(wire::propose_response::Of::Failure(self.failure(&status))),
        };
        Ok(Response::new(self.proposed(command, hops, limit).await.unwrap_or_else(failed)))
    }

    async fn listing(&self, request: Request<wire::ListingRequest>) -> Answered<wire::ListingResponse> {
        use wire::listing_response::Of;
        let wire::ListingRequest { caller, tenant, from_nanos, until_nanos } = request.into_inner();
        let limit = self.admit(caller.as_ref(), CALL)?;
        let listed = self.within(limit, self.listed(&tenant, from_nanos, until_nanos)).await;
        let of = match listed {
            Ok(packed) => Of::Listing(packed),
            Err(status) => Of::Failure(self.failure(&status)),
        };
        Ok(Response::new(wire::ListingResponse { of: Some(of) }))
    }

    async fn slot(&self, request: Request<wire::SlotRequest>) -> Answered<wire::SlotResponse> {
        use wire::slot_response::Of;
        let wire::SlotRequest { caller, slot, since_nanos } = request.into_inner();
        let limit = self.admit(caller.as_ref(), CALL)?;
        let of = match self.within(limit, self.blocks_of(slot, since_nanos)).await {
            Ok(packed) => Of::Blocks(packed),
            Err(status) => Of::Failure(self.failure(&status)),
        };
        Ok(Response::new(wire::SlotResponse { of: Some(of) }))
    }

    async fn notes(&self, request: Request<wire::NotesRequest>) -> Answered<wire::NotesResponse> {
        use wire::notes_response::Of;
        let wire::NotesRequest { caller, tenant } = request.into_inner();
        let limit = self.admit(caller.as_ref(), CALL)?;
        let of = match self.within(limit, self.noted(&tenant)).await {
            Ok(packed) => Of::Notes(packed),
            Err(status) => Of::Failure(self.failure(&status)),
        };
        Ok(Response::new(wire::NotesResponse { of: Some(of) }))
    }

    async fn tenants(&self, request: Request<wire::TenantsRequest>) -> Answered<wire::TenantsResponse> {
        use wire::tenants_response::Of;
        let limit = self.admit(request.into_inner().caller.as_ref(), CALL)?;
        let of = match self.within(limit, self.list_tenants()).await {
            Ok(packed) => Of::Tenants(packed),
            Err(status) => Of::Failure(self.failure(&status)),
        };
        Ok(Response::new(wire::TenantsResponse { of: Some(of) }))
    }

    async fn watch(&self, request: Request<wire::WatchRequest>) -> Answered<Views> {
        let wire::WatchRequest { caller, revision, .. } = request.into_inner();
        self.admit(caller.as_ref(), CALL)?;
        let room = Arc::clone(&self.watchers).try_acquire_owned().map_err(|_| {
            let message = format!("{WATCHERS} nodes watch this voter, the limit; watch another");
            failure::to_grpc(&Status::new(Code::Exhausted, message))
        })?;
        Ok(Response::new(self.clone().tellings(revision, room)))
    }

    async fn clock(&self, request: Request<wire::ClockRequest>) -> Answered<wire::ClockResponse> {
        let wire::ClockRequest { caller } = request.into_inner();
        self.admit(caller.as_ref(), CALL)?;
        Ok(Response::new(wire::ClockResponse { wall_nanos: self.deps.clock.wall().nanos() }))
    }

    async fn voters(&self, request: Request<wire::VotersRequest>) -> Answered<wire::VotersResponse> {
        let wire::VotersRequest { caller, change } = request.into_inner();
        let limit = self.admit(caller.as_ref(), CHANGE)?;
        let answer = match self.within(limit, self.voted(change)).await {
            Ok(seats) => {
                let voter = |Seat { node, address }| wire::Voter { node, address };
                let voters = seats.into_iter().map(voter).collect();
                wire::VotersResponse { voters, failure: None }
            }
            Err(status) => wire::VotersResponse { voters: Vec::new(), failure: Some(self.failure(&status)) },
        };
        Ok(Response::new(answer))
    }
}

/// What came back for a proposal.
pub(crate) fn answer(response: wire::ProposeResponse) -> Result<athanor_catalog::Answer, wire::Failure> {
    use wire::propose_response::Of;
    match response.of {
        Some(Of::Answer(packed)) => unpack(&packed).map_err(|error| failure::pack(&Status::of(&error), None)),
        Some(Of::Failure(failure)) => Err(failure),
        None => Err(failure::pack(&Status::new(Code::Internal, "it answered nothing"), None)),
    }
}
