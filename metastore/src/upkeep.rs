//! What voters do by themselves: they cut their logs, read each other's clocks, and the one that leads takes in others until there are enough,
//! writes down where voters are found, and puts snapshots into the bucket.

use std::collections::BTreeSet;
use std::time::Duration;

use athanor_catalog::{Catalog, Command};
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{Compute, Tasks, Timestamp};
use athanor_cluster::NodeId;
use athanor_cluster::members::{Member, MemberState, RoleName};
use athanor_proto::athanor::internal::v1 as wire;
use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::client::Others;
use crate::founding::Deciding;
use crate::shelf::Shelf;
use crate::voter::{Metastore, Seat};

/// Between looks.
const LOOK: Duration = Duration::from_secs(1);
/// A snapshot is put into the bucket so often, if there is something new.
const SHELVE: Duration = Duration::from_secs(5 * 60);

/// Clocks of the other voters are read so often.
const READ_CLOCKS_INTERVAL: Duration = Duration::from_secs(10);
/// How long the reading of a clock may take. Its result is wrong by half of that at most.
const READ_CLOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// What upkeep takes.
#[derive(Clone)]
pub struct Upkeep {
    /// The voter.
    pub metastore: Metastore,
    /// Who may vote, and the bucket.
    pub deciding: Deciding,
    /// Packs snapshots.
    pub compute: Compute,
    /// The way to the other voters, whose clocks are read.
    pub others: Others,
}

impl Metastore {
    /// Cuts this voter's log whenever it has grown, until the process ends: all that one does who is alone.
    pub async fn keep_short(self, token: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = self.clock().sleep(LOOK) => self.compact().await,
            }
        }
    }
}

impl Upkeep {
    /// Goes on until the process ends.
    pub fn spawn(self, tasks: &Tasks) -> Result<(), SpawnError> {
        let (growing, token) = (self.clone(), tasks.token());
        tasks.spawn("voters of the catalogue", async move { growing.grow(&token).await })?;
        let (voter, token) = (self.metastore.clone(), tasks.token());
        tasks.spawn("log of the catalogue", async move { voter.keep_short(token).await })?;
        let (reading, token) = (self.clone(), tasks.token());
        tasks.spawn("clocks of the catalog's voters", async move { reading.read_clocks(&token).await })?;
        let token = tasks.token();
        tasks.spawn("snapshots of the catalogue", async move { self.shelve(&token).await })?;
        Ok(())
    }

    /// Waits a moment. False: the process ends.
    async fn goes_on(&self, token: &CancellationToken) -> bool {
        tokio::select! {
            biased;
            () = token.cancelled() => false,
            () = self.deciding.clock.sleep(LOOK) => true,
        }
    }

    /// Reads the clocks of the other voters until the process ends, so that a majority decides the catalog's time
    /// wherever it is led next.
    async fn read_clocks(&self, token: &CancellationToken) {
        let reading = async {
            loop {
                let others =
                    self.metastore.voters().into_iter().filter(|node| *node != self.metastore.node());
                join_all(others.map(|voter| self.read_clock(voter))).await;
                self.metastore.time();
                self.deciding.clock.sleep(READ_CLOCKS_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            () = reading => {}
        }
    }

    async fn read_clock(&self, voter: NodeId) {
        let clock = &self.deciding.clock;
        let caller = self.others.introductions.caller(voter, READ_CLOCK_TIMEOUT);
        let begun = clock.monotonic();
        let request = wire::ClockRequest { caller: Some(caller) };
        let mut catalogue = self.others.peers.catalogue(voter);
        // A voter that is away, or of a version that has no such call, is not counted.
        if let Ok(Ok(response)) = clock.within(READ_CLOCK_TIMEOUT, catalogue.clock(request)).await {
            let wall = Timestamp::from_nanos(response.into_inner().wall_nanos);
            let read_at = begun + clock.monotonic().saturating_sub(begun) / 2;
            self.metastore.catalog_clock().record(voter, wall, read_at);
        }
    }

    fn leads(&self) -> bool {
        self.metastore.leader().here
    }

    async fn grow(&self, token: &CancellationToken) {
        let (mut is_noted, mut passed_over) = (false, BTreeSet::new());
        while self.goes_on(token).await {
            if !self.leads() {
                continue;
            }
            let round = async {
                is_noted = is_noted || self.deciding.note().await;
                self.metastore.finish_change().await;
                self.take_in(&mut passed_over).await;
                self.write_down().await;
            };
            tokio::select! {
                biased;
                () = token.cancelled() => return,
                () = round => {}
            }
        }
    }

    /// Makes one more node vote, where too few do. Nobody is taken out for that: whoever is missing may come back, and
    /// people know which one will not.
    async fn take_in(&self, passed_over: &mut BTreeSet<NodeId>) {
        let voters = self.metastore.voters();
        if voters.len() >= usize::from(self.deciding.wanted) {
            return;
        }
        let members = self.deciding.members.now();
        let may_vote = |member: &&Member| {
            member.is_alive()
                && member.roles.contains(&RoleName::Metastore)
                && matches!(member.state, MemberState::Starting | MemberState::Ready)
                && !voters.contains(&member.node)
        };
        let next = members.values().filter(may_vote).filter(|member| !passed_over.contains(&member.node));
        // One that is ready before one that may not answer yet.
        let Some(next) = next.min_by_key(|member| (member.state != MemberState::Ready, member.node)) else {
            passed_over.clear();
            return;
        };
        let (node, address) = (next.node, next.internal.to_string());
        match self.metastore.add_voter(Seat { node, address }).await {
            Ok(()) => tracing::info!(node, "votes in the catalogue from now on"),
            Err(why) => {
                tracing::warn!(node, %why, "does not vote in the catalogue yet");
                passed_over.insert(node);
            }
        }
    }

    /// Has the catalogue say who votes, and where they are found, as it is.
    async fn write_down(&self) {
        let (voters, view) = (self.metastore.voters(), self.metastore.view());
        let members = self.deciding.members.now();
        let mut changes = Vec::new();
        for node in &voters {
            let found = members.get(node).filter(|member| member.is_alive());
            let Some(address) = found.map(|member| member.internal.to_string()) else { continue };
            if view.voters.get(node).is_none_or(|voter| voter.address != address) {
                changes.push(Command::AddVoter { node: *node, address });
            }
        }
        let gone = view.voters.keys().filter(|node| !voters.contains(node));
        changes.extend(gone.map(|node| Command::RemoveVoter { node: *node }));
        for change in changes {
            if let Err(error) = self.metastore.change(change).await {
                tracing::warn!(%error, "it is not written down where the catalogue's voters are found");
                return;
            }
        }
    }

    async fn shelve(&self, token: &CancellationToken) {
        let Deciding { store, cluster, clock, .. } = &self.deciding;
        let shelf = Shelf::new(store.clone(), *cluster);
        let (mut shelved, mut tried, mut last) = (None, None, clock.monotonic());
        while self.goes_on(token).await {
            let (cut, applied) = (self.metastore.compacted(), self.metastore.applied());
            let is_due = tried != Some(cut) || clock.monotonic() >= last + SHELVE;
            if !is_due || Some(applied) == shelved || !self.leads() {
                continue;
            }
            (tried, last) = (Some(cut), clock.monotonic());
            let copy = self.metastore.copy();
            let put = async {
                let packed =
                    self.compute.run(move || copy.pack()).await.map_err(|error| error.to_string())??;
                shelf.put(packed).await.map_err(|error| error.to_string())
            };
            let put = tokio::select! {
                biased;
                () = token.cancelled() => return,
                put = put => put,
            };
            match put {
                Ok(()) => shelved = Some(applied),
                Err(error) => {
                    tracing::warn!(error, "a snapshot of the catalogue was not put into the bucket")
                }
            }
        }
    }
}
