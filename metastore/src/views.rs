//! What every node must know, as it changes.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::View;
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{Code, Status, Tasks};
use athanor_cluster::failure;
use athanor_proto::athanor::internal::v1 as wire;

use crate::client::{Client, Shared};
use crate::packed::unpack;
use crate::sightings::{Sighting, Sightings};
use crate::tries::Door;

/// A voter that says nothing for so long is left.
const SILENT: Duration = Duration::from_secs(15);
/// Between one voter and the next.
const PAUSE: Duration = Duration::from_millis(200);

/// Tables, shards and voters. Never older than before; how old, nobody knows while no voter is reached. Cheap to clone;
/// each clone waits for changes of its own.
#[derive(Clone)]
pub struct Views {
    shared: Arc<Shared>,
    /// What [`changed`](Self::changed) gave last.
    seen: u64,
}

impl Views {
    /// Follows the voters that a client reaches, until the process ends.
    pub fn follow(client: &Client, tasks: &Tasks) -> Result<Self, SpawnError> {
        let (shared, token) = (Arc::clone(client.shared()), tasks.token());
        let following = Arc::clone(&shared);
        tasks.spawn("views of the catalogue", async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = following.follow() => {}
            }
        })?;
        Ok(Self { shared, seen: 0 })
    }

    /// What is known; empty before anything was heard.
    pub fn now(&self) -> Arc<View> {
        self.shared.known.view()
    }

    /// Takes what a voter on this node knows, before it is told.
    pub fn see(&self, view: Arc<View>) {
        self.shared.known.see(view);
    }

    /// Waits until something else is known than this gave last. There may be no end to that.
    pub async fn changed(&mut self) -> Arc<View> {
        let seen = self.seen;
        self.until(|view| view.revision > seen).await
    }

    /// Waits until what is known is as wanted.
    pub async fn until(&mut self, wanted: impl Fn(&View) -> bool) -> Arc<View> {
        loop {
            let mut changed = std::pin::pin!(self.shared.known.changed.notified());
            changed.as_mut().enable();
            let view = self.now();
            if wanted(&view) {
                self.seen = view.revision;
                return view;
            }
            changed.await;
        }
    }
}

impl Shared {
    async fn follow(&self) {
        let mut last = None;
        loop {
            for door in self.doors(None) {
                // A voter that was left is not the next one, unless there is no other.
                let why = match door {
                    Door::Here => self.follow_here().await,
                    Door::Node(node) => self.follow_there(node).await,
                };
                if last != Some(why.code) {
                    tracing::debug!(%door, why = %why, "left a voter of the catalogue");
                }
                last = Some(why.code);
                self.reach.clock.sleep(self.reach.random.jitter(PAUSE)).await;
            }
            self.reach.clock.sleep(self.reach.random.jitter(PAUSE)).await;
        }
    }

    async fn follow_here(&self) -> Status {
        let Some(local) = &self.reach.local else {
            return Status::new(Code::NotFound, "this node does not vote");
        };
        let mut sightings = Sightings::after(local.clone(), self.known.view().revision);
        loop {
            match sightings.next().await {
                Some(Ok(Sighting { leader, view, .. })) => {
                    self.known.leads(leader);
                    view.into_iter().for_each(|view| self.known.see(view));
                }
                Some(Err(why)) => return why,
                None => return Status::new(Code::Unavailable, "it tells nothing more"),
            }
        }
    }

    /// Follows another node until it is silent, or says that it is cut off; gives why.
    async fn follow_there(&self, node: u64) -> Status {
        let Some(others) = &self.reach.others else {
            return Status::new(Code::NotFound, "this node is alone");
        };
        let clock = &self.reach.clock;
        let late = |elapsed: athanor_chassis::clock::Elapsed| {
            Status::new(Code::Deadline, format!("it said nothing: {elapsed}"))
        };
        let caller = Some(others.introductions.caller(node, SILENT));
        let revision = self.known.view().revision;
        let request = wire::WatchRequest { caller, revision, rates: Vec::new() };
        let mut client = others.peers.catalogue(node);
        let mut told = match clock.within(SILENT, client.watch(request)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(error)) => return failure::from_grpc(&error),
            Err(elapsed) => return late(elapsed),
        };
        loop {
            let view = match clock.within(SILENT, told.message()).await {
                Ok(Ok(Some(view))) => view,
                Ok(Ok(None)) => return Status::new(Code::Unavailable, "it tells nothing more"),
                Ok(Err(error)) => return failure::from_grpc(&error),
                Err(elapsed) => return late(elapsed),
            };
            if let Err(why) = self.take(view).await {
                tracing::warn!(node, %why, "what a voter of the catalogue told was not understood");
                return why;
            }
        }
    }

    async fn take(&self, told: wire::View) -> Result<(), Status> {
        let wire::View { leader, view, .. } = told;
        self.known.leads(Some(leader).filter(|node| *node != 0));
        if view.is_empty() {
            return Ok(());
        }
        let read = self.reach.compute.run(move || unpack::<View>(&view)).await;
        let view = read.map_err(|error| Status::of(&error))?.map_err(|error| Status::of(&error))?;
        self.known.see(Arc::new(view));
        Ok(())
    }
}
