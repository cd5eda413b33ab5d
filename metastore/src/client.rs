//! The catalogue, as any node asks it.
//!
//! A voter may be away, cut off, or not lead: so voters are asked one after the other, whoever is said to lead first,
//! until one answers or the time is up. A proposal whose answer was lost is proposed again: each does nothing the second
//! time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use athanor_catalog::{
    AgeReport, Answer, BlockEntry, BlockId, Catalog, CatalogError, Command, Listing, Logged, Notes, View,
};
use athanor_chassis::{Clock, Code, Compute, Random, Status, TenantId, Timestamp};
use athanor_cluster::greeting::Introductions;
use athanor_cluster::members::RoleName;
use athanor_cluster::peers::Peers;
use athanor_cluster::{NodeId, failure};
use athanor_proto::athanor::internal::v1 as wire;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::packed::unpack;
use crate::service::answer;
use crate::tries::{ALL, Door, Failed, Tries};
use crate::voter::{Change, Metastore, Seat, fits, status};

/// How long a change of the voters may take.
const CHANGE: Duration = Duration::from_secs(60);

/// How a node reaches the catalogue.
#[derive(Clone)]
pub struct Reach {
    /// Where this node is a voter, or is to be one.
    pub local: Option<Metastore>,
    /// The other nodes; none of one that is alone.
    pub others: Option<Others>,
    /// Measures how long is waited.
    pub clock: Clock,
    /// For whom to ask first, and for pauses.
    pub random: Random,
    /// Reads what is large.
    pub compute: Compute,
}

/// The way to other nodes.
#[derive(Clone)]
pub struct Others {
    /// Connections.
    pub peers: Peers,
    /// Says who asks.
    pub introductions: Arc<Introductions>,
}

/// Asks voters. Cheap to clone; clones know the same.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) reach: Reach,
    pub(crate) known: Known,
}

/// What was heard last.
#[derive(Default)]
pub(crate) struct Known {
    view: Mutex<Arc<View>>,
    /// Who is said to lead; 0 if that is not known.
    leader: AtomicU64,
    /// Who listed last.
    lister: AtomicU64,
    pub(crate) changed: Notify,
}

impl Known {
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a younger view.
    pub(crate) fn see(&self, view: Arc<View>) {
        let mut known = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        if view.revision > known.revision {
            *known = view;
            drop(known);
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn leads(&self, leader: Option<NodeId>) {
        self.leader.store(leader.unwrap_or_default(), Ordering::Relaxed);
    }

    fn leader(&self) -> Option<NodeId> {
        Some(self.leader.load(Ordering::Relaxed)).filter(|node| *node != 0)
    }
}

impl Reach {
    fn node(&self) -> Option<NodeId> {
        let local = self.local.as_ref().map(|local| local.leadership().node());
        local.or_else(|| self.others.as_ref().map(|others| others.introductions.me().node))
    }

    pub(crate) fn door(&self, node: NodeId) -> Door {
        match self.local.is_some() && self.node() == Some(node) {
            true => Door::Here,
            false => Door::Node(node),
        }
    }
}

impl Client {
    /// Nothing is asked yet.
    pub fn new(reach: Reach) -> Self {
        Self { shared: Arc::new(Shared { reach, known: Known::default() }) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Who votes.
    pub async fn voters(&self) -> Result<Vec<Seat>, CatalogError> {
        self.vote(None, ALL).await
    }

    /// Adds a voter, which was started to join; gives who votes then.
    pub async fn add_voter(&self, seat: Seat) -> Result<Vec<Seat>, CatalogError> {
        self.vote(Some(Change::Add(seat)), CHANGE).await
    }

    /// Takes a voter out; gives who votes then.
    pub async fn remove_voter(&self, node: NodeId) -> Result<Vec<Seat>, CatalogError> {
        self.vote(Some(Change::Remove(node)), CHANGE).await
    }

    async fn vote(&self, change: Option<Change>, limit: Duration) -> Result<Vec<Seat>, CatalogError> {
        let mut tries = self.tries(limit);
        loop {
            let (door, each) = tries.next(|| self.shared.doors(self.shared.known.leader())).await?;
            match self.shared.vote_at(door, change.clone(), each).await {
                Ok(seats) => return Ok(seats),
                Err(failed) => self.go_on(&mut tries, door, failed)?,
            }
        }
    }

    /// Has the catalog's time catch up with this machine's clock at once, on an operator's word.
    pub fn confirm_clock(&self) -> Result<Timestamp, Status> {
        self.here().map_err(status)?.confirm_clock()
    }

    fn tries(&self, limit: Duration) -> Tries<'_> {
        let Reach { clock, random, .. } = &self.shared.reach;
        Tries::within(limit, clock, random)
    }

    fn go_on(&self, tries: &mut Tries<'_>, door: Door, failed: Failed) -> Result<(), CatalogError> {
        let leader = match failed.leader {
            Some(Door::Node(node)) => Some(node),
            Some(Door::Here) => self.shared.reach.node(),
            None => None,
        };
        self.shared.known.leads(leader);
        tries.failed(door, failed)
    }

    fn here(&self) -> Result<&Metastore, CatalogError> {
        self.shared.reach.local.as_ref().ok_or_else(|| {
            let message = "only a node that votes in the catalogue lists all of its blocks; do this on one with the \
                           role metastore";
            CatalogError::Unavailable(Status::new(Code::Unimplemented, message))
        })
    }
}

impl Shared {
    /// Who may answer: `first`, then this node, then the others, another one first each time.
    pub(crate) fn doors(&self, first: Option<NodeId>) -> Vec<Door> {
        let mut nodes = BTreeSet::new();
        if let Some(Others { peers, .. }) = &self.reach.others {
            let members = peers.members().now();
            let votes = |node: &NodeId| {
                members.get(node).is_some_and(|member| member.roles.contains(&RoleName::Metastore))
            };
            nodes.extend(members.values().filter(|member| member.is_alive()).map(|member| member.node));
            nodes.retain(votes);
            // Gossip may miss one that can be reached.
            nodes.extend(self.known.view().voters.keys().filter(|node| members.contains_key(node)));
        }
        let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
        if !nodes.is_empty() {
            let begin = self.reach.random.below(nodes.len() as u64) as usize;
            nodes.rotate_left(begin);
        }
        let here = self.reach.local.is_some().then_some(Door::Here);
        let me = self.reach.node();
        let others = nodes.into_iter().filter(|node| Some(*node) != me).map(Door::Node);
        let first = first.map(|node| self.reach.door(node));
        let mut doors: Vec<Door> = first.into_iter().chain(here).chain(others).collect();
        let mut seen = BTreeSet::new();
        doors.retain(|door| seen.insert(*door));
        doors
    }

    fn to(&self, node: NodeId) -> Result<(Peers, &Introductions), Failed> {
        match &self.reach.others {
            Some(Others { peers, introductions }) => Ok((peers.clone(), introductions)),
            None => {
                Err(Status::new(Code::Unavailable, format!("this node is alone, and is not node {node}"))
                    .into())
            }
        }
    }

    /// Waits for an answer, of this node or of another.
    async fn answer<T>(
        &self,
        limit: Duration,
        answering: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        match self.reach.clock.within(limit, answering).await {
            Ok(answered) => answered,
            Err(elapsed) => Err(Status::new(Code::Deadline, elapsed.to_string()).into()),
        }
    }

    /// What this node's own voter said.
    fn here_failed(&self, status: Status) -> Failed {
        let leader = self.reach.local.as_ref().and_then(|local| local.leader().node);
        Failed { status, leader: leader.map(|node| self.reach.door(node)) }
    }

    fn there_failed(&self, told: &wire::Failure) -> Failed {
        let leader = Some(told.leader).filter(|node| *node != 0);
        Failed { status: failure::unpack(told), leader: leader.map(|node| self.reach.door(node)) }
    }

    async fn propose_at(&self, door: Door, logged: &Logged, limit: Duration) -> Result<Answer, Failed> {
        match (door, &self.reach.local) {
            (Door::Here, Some(local)) => {
                let proposed = local.propose(logged.command.clone());
                let answered = async { proposed.await.map_err(|error| self.here_failed(status(error))) };
                self.answer(limit, answered).await
            }
            (Door::Here, None) => Err(no_voter()),
            (Door::Node(node), _) => {
                let (peers, introductions) = self.to(node)?;
                let (caller, command) = (Some(introductions.caller(node, limit)), logged.encode().into());
                let request = wire::ProposeRequest { caller, command, hops: 0 };
                let called = async { peers.catalogue(node).propose(request).await.map_err(unheard) };
                let response = self.answer(limit, called).await?.into_inner();
                answer(response).map_err(|told| self.there_failed(&told))
            }
        }
    }

    async fn list_at(
        &self,
        door: Door,
        (tenant, from, to): (&TenantId, i64, i64),
        limit: Duration,
    ) -> Result<Listing, Failed> {
        use wire::listing_response::Of;
        match (door, &self.reach.local) {
            (Door::Here, Some(local)) => {
                let listed = local.listing(tenant, from, to);
                self.answer(limit, async { listed.await.map_err(|error| Failed::from(status(error))) }).await
            }
            (Door::Here, None) => Err(no_voter()),
            (Door::Node(node), _) => {
                let (peers, introductions) = self.to(node)?;
                let request = wire::ListingRequest {
                    caller: Some(introductions.caller(node, limit)),
                    tenant: tenant.to_string(),
                    from_nanos: from,
                    until_nanos: to,
                };
                let called = async { peers.catalogue(node).listing(request).await.map_err(unheard) };
                match self.answer(limit, called).await?.into_inner().of {
                    Some(Of::Listing(packed)) => self.read(packed).await,
                    Some(Of::Failure(told)) => Err(self.there_failed(&told)),
                    None => Err(said_nothing()),
                }
            }
        }
    }

    async fn slot_at(
        &self,
        door: Door,
        (slot, since): (u32, Timestamp),
        limit: Duration,
    ) -> Result<Vec<BlockEntry>, Failed> {
        use wire::slot_response::Of;
        match (door, &self.reach.local) {
            (Door::Here, Some(local)) => {
                let listed = local.blocks_of_slot(slot, since);
                self.answer(limit, async { listed.await.map_err(|error| Failed::from(status(error))) }).await
            }
            (Door::Here, None) => Err(no_voter()),
            (Door::Node(node), _) => {
                let (peers, introductions) = self.to(node)?;
                let caller = Some(introductions.caller(node, limit));
                let request = wire::SlotRequest { caller, slot, since_nanos: since.nanos() };
                let called = async { peers.catalogue(node).slot(request).await.map_err(unheard) };
                match self.answer(limit, called).await?.into_inner().of {
                    Some(Of::Blocks(packed)) => self.read(packed).await,
                    Some(Of::Failure(told)) => Err(self.there_failed(&told)),
                    None => Err(said_nothing()),
                }
            }
        }
    }

    async fn notes_at(&self, door: Door, tenant: &TenantId, limit: Duration) -> Result<Notes, Failed> {
        use wire::notes_response::Of;
        match (door, &self.reach.local) {
            (Door::Here, Some(local)) => {
                let noted = local.notes(tenant);
                self.answer(limit, async { noted.await.map_err(|error| Failed::from(status(error))) }).await
            }
            (Door::Here, None) => Err(no_voter()),
            (Door::Node(node), _) => {
                let (peers, introductions) = self.to(node)?;
                let caller = Some(introductions.caller(node, limit));
                let request = wire::NotesRequest { caller, tenant: tenant.to_string() };
                let called = async { peers.catalogue(node).notes(request).await.map_err(unheard) };
                match self.answer(limit, called).await?.into_inner().of {
                    Some(Of::Notes(packed)) => self.read(packed).await,
                    Some(Of::Failure(told)) => Err(self.there_failed(&told)),
                    None => Err(said_nothing()),
                }
            }
        }
    }

    async fn tenants_at(&self, door: Door, limit: Duration) -> Result<Vec<TenantId>, Failed> {
        use wire::tenants_response::Of;
        match (door, &self.reach.local) {
            (Door::Here, Some(local)) => {
                let listed = local.tenants();
                self.answer(limit, async { listed.await.map_err(|error| Failed::from(status(error))) }).await
            }
            (Door::Here, None) => Err(no_voter()),
            (Door::Node(node), _) => {
                let (peers, introductions) = self.to(node)?;
                let request = wire::TenantsRequest { caller: Some(introductions.caller(node, limit)) };
                let called = async { peers.catalogue(node).tenants(request).await.map_err(unheard) };
                match self.answer(limit, called).await?.into_inner().of {
                    Some(Of::Tenants(packed)) => self.read(packed).await,
                    Some(Of::Failure(told)) => Err(self.there_failed(&told)),
                    None => Err(said_nothing()),
                }
            }
        }
    }

    /// What another node packed.
    async fn read<T: DeserializeOwned + Send + 'static>(&self, packed: Bytes) -> Result<T, Failed> {
        let read = self.reach.compute.run(move || unpack(&packed)).await;
        let read = read.map_err(|error| Status::of(&error))?;
        read.map_err(|error| Status::of(&error).into())
    }

    async fn vote_at(
        &self,
        door: Door,
        change: Option<Change>,
        limit: Duration,
    ) -> Result<Vec<Seat>, Failed> {
        use wire::voters_request::Change as Asked;
        match (door, &self.reach.local) {
            (Door::Here, Some(local)) => {
                let voted = local.vote(change);
                self.answer(limit, async { voted.await.map_err(|why| self.here_failed(why)) }).await
            }
            (Door::Here, None) => Err(no_voter()),
            (Door::Node(node), _) => {
                let (peers, introductions) = self.to(node)?;
                let change = change.map(|change| match change {
                    Change::Add(Seat { node, address }) => Asked::Add(wire::Voter { node, address }),
                    Change::Remove(node) => Asked::Remove(node),
                });
                let request = wire::VotersRequest { caller: Some(introductions.caller(node, limit)), change };
                let called = async { peers.catalogue(node).voters(request).await.map_err(unheard) };
                let wire::VotersResponse { voters, failure } = self.answer(limit, called).await?.into_inner();
                match failure {
                    Some(told) => Err(self.there_failed(&told)),
                    None => {
                        let seat = |wire::Voter { node, address }| Seat { node, address };
                        Ok(voters.into_iter().map(seat).collect())
                    }
                }
            }
        }
    }
}

fn no_voter() -> Failed {
    Status::new(Code::NotFound, "this node does not vote").into()
}

fn said_nothing() -> Failed {
    Status::new(Code::Internal, "it answered nothing").into()
}

/// A call that came to nothing.
fn unheard(error: tonic::Status) -> Failed {
    failure::from_grpc(&error).into()
}

#[async_trait]
impl Catalog for Client {
    async fn propose(&self, command: Command) -> Result<Answer, CatalogError> {
        let shared = &*self.shared;
        // The leader says when; what stands here says it if nobody does.
        let logged = Logged { at: shared.reach.clock.wall(), command };
        fits(logged.encode().len()).map_err(CatalogError::Unavailable)?;
        let mut tries = self.tries(ALL);
        loop {
            let (door, each) = tries.next(|| shared.doors(shared.known.leader())).await?;
            match shared.propose_at(door, &logged, each).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => self.go_on(&mut tries, door, failed)?,
            }
        }
    }

    async fn listing(&self, tenant: &TenantId, from: i64, to: i64) -> Result<Listing, CatalogError> {
        let shared = &*self.shared;
        let lister = &shared.known.lister;
        let mut tries = self.tries(ALL);
        loop {
            let first = || {
                Some(lister.load(Ordering::Relaxed)).filter(|node| *node != 0 && shared.reach.local.is_none())
            };
            let (door, each) = tries.next(|| shared.doors(first())).await?;
            match shared.list_at(door, (tenant, from, to), each).await {
                Ok(listing) => {
                    if let Door::Node(node) = door {
                        lister.store(node, Ordering::Relaxed);
                    }
                    return Ok(listing);
                }
                Err(failed) => {
                    lister.store(0, Ordering::Relaxed);
                    tries.failed(door, Failed { leader: None, ..failed })?;
                }
            }
        }
    }

    async fn blocks_of_slot(&self, slot: u32, since: Timestamp) -> Result<Vec<BlockEntry>, CatalogError> {
        let mut tries = self.tries(ALL);
        loop {
            let (door, each) = tries.next(|| self.shared.doors(None)).await?;
            match self.shared.slot_at(door, (slot, since), each).await {
                Ok(blocks) => return Ok(blocks),
                Err(failed) => tries.failed(door, Failed { leader: None, ..failed })?,
            }
        }
    }

    async fn notes(&self, tenant: &TenantId) -> Result<Notes, CatalogError> {
        let mut tries = self.tries(ALL);
        loop {
            let (door, each) = tries.next(|| self.shared.doors(None)).await?;
            match self.shared.notes_at(door, tenant, each).await {
                Ok(notes) => return Ok(notes),
                Err(failed) => tries.failed(door, Failed { leader: None, ..failed })?,
            }
        }
    }

    async fn tenants(&self) -> Result<Vec<TenantId>, CatalogError> {
        let mut tries = self.tries(ALL);
        loop {
            let (door, each) = tries.next(|| self.shared.doors(None)).await?;
            match self.shared.tenants_at(door, each).await {
                Ok(tenants) => return Ok(tenants),
                Err(failed) => tries.failed(door, Failed { leader: None, ..failed })?,
            }
        }
    }

    async fn blocks(&self) -> Result<Vec<BlockEntry>, CatalogError> {
        self.here()?.blocks().await
    }

    async fn condemned(&self) -> Result<Vec<(BlockId, Timestamp)>, CatalogError> {
        self.here()?.condemned().await
    }

    async fn ages(&self, retention: Duration) -> Result<AgeReport, CatalogError> {
        self.here()?.ages(retention).await
    }
}
