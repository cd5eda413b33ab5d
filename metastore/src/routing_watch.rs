//! What every node must know, as it changes.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::RoutingView;
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{ErrorCode, Status, TaskGroup};
use athanor_cluster::status_codec;
use athanor_proto::athanor::internal::v1 as wire;

use crate::client::{MetastoreClient, MetastoreClientShared};
use crate::compression::decode_compressed;
use crate::retry::VoterEndpoint;
use crate::view_stream::{ViewStream, ViewUpdate};

/// A voter that says nothing for so long is left.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Between one voter and the next.
const VOTER_SWITCH_BACKOFF: Duration = Duration::from_millis(200);

/// Tables, shards and voters. Never older than before; how old, nobody knows while no voter is reached. Cheap to clone;
/// each clone waits for changes of its own.
#[derive(Clone)]
pub struct RoutingWatch {
    shared: Arc<MetastoreClientShared>,
    /// What [`changed`](Self::changed) gave last.
    seen: u64,
}

impl RoutingWatch {
    /// Follows the voters that a client reaches, until the process ends.
    pub fn follow(client: &MetastoreClient, tasks: &TaskGroup) -> Result<Self, SpawnError> {
        let shared = Arc::clone(client.shared());
        let token = tasks.shutdown_token();
        let following = Arc::clone(&shared);
        tasks.spawn("views of the catalogue", async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = following.follow_voters() => {}
            }
        })?;
        Ok(Self { shared, seen: 0 })
    }

    /// What is known; empty before anything was heard.
    pub fn current(&self) -> Arc<RoutingView> {
        self.shared.known.view()
    }

    /// Takes what a voter on this node knows, before it is told.
    pub fn update_view(&self, view: Arc<RoutingView>) {
        self.shared.known.update_view(view);
    }

    /// Waits until something else is known than this gave last. There may be no end to that.
    pub async fn changed(&mut self) -> Arc<RoutingView> {
        let seen = self.seen;
        self.wait_until(|view| view.revision > seen).await
    }

    /// Waits until what is known is as wanted.
    pub async fn wait_until(&mut self, wanted: impl Fn(&RoutingView) -> bool) -> Arc<RoutingView> {
        loop {
            let mut changed = std::pin::pin!(self.shared.known.changed.notified());
            changed.as_mut().enable();
            let view = self.current();
            if wanted(&view) {
                self.seen = view.revision;
                return view;
            }
            changed.await;
        }
    }
}

impl MetastoreClientShared {
    async fn follow_voters(&self) {
        let mut last = None;
        loop {
            for door in self.voter_endpoints(None) {
                // A voter that was left is not the next one, unless there is no other.
                let why = match door {
                    VoterEndpoint::Here => self.follow_local().await,
                    VoterEndpoint::Node(node) => self.follow_remote(node).await,
                };
                if last != Some(why.code) {
                    tracing::debug!(%door, why = %why, "left a voter of the catalogue");
                }
                last = Some(why.code);
                self.reach.clock.sleep(self.reach.random.jitter(VOTER_SWITCH_BACKOFF)).await;
            }
            self.reach.clock.sleep(self.reach.random.jitter(VOTER_SWITCH_BACKOFF)).await;
        }
    }

    async fn follow_local(&self) -> Status {
        let Some(local) = &self.reach.local else {
            return Status::new(ErrorCode::NotFound, "this node does not vote");
        };
        let mut sightings = ViewStream::from_revision(local.clone(), self.known.view().revision);
        loop {
            match sightings.next().await {
                Some(Ok(ViewUpdate { leader, view, .. })) => {
                    self.known.set_leader(leader);
                    view.into_iter().for_each(|view| self.known.update_view(view));
                }
                Some(Err(why)) => return why,
                None => return Status::new(ErrorCode::Unavailable, "it tells nothing more"),
            }
        }
    }

    /// Follows another node until it is silent, or says that it is cut off; gives why.
    async fn follow_remote(&self, node: u64) -> Status {
        let Some(others) = &self.reach.others else {
            return Status::new(ErrorCode::NotFound, "this node is alone");
        };
        let clock = &self.reach.clock;
        let late = |elapsed: athanor_chassis::clock::TimeoutElapsed| {
            Status::new(ErrorCode::Deadline, format!("it said nothing: {elapsed}"))
        };
        let caller = Some(others.introductions.caller(node, WATCH_IDLE_TIMEOUT));
        let revision = self.known.view().revision;
        let request = wire::WatchRequest { caller, revision, rates: Vec::new() };
        let mut client = others.peers.metastore(node);
        let mut told = match clock.timeout(WATCH_IDLE_TIMEOUT, client.watch(request)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(error)) => return status_codec::from_grpc(&error),
            Err(elapsed) => return late(elapsed),
        };
        loop {
            let view = match clock.timeout(WATCH_IDLE_TIMEOUT, told.message()).await {
                Ok(Ok(Some(view))) => view,
                Ok(Ok(None)) => return Status::new(ErrorCode::Unavailable, "it tells nothing more"),
                Ok(Err(error)) => return status_codec::from_grpc(&error),
                Err(elapsed) => return late(elapsed),
            };
            if let Err(why) = self.apply_remote_view(view).await {
                tracing::warn!(node, %why, "what a voter of the catalogue told was not understood");
                return why;
            }
        }
    }

    async fn apply_remote_view(&self, told: wire::View) -> Result<(), Status> {
        let wire::View { leader, view, .. } = told;
        self.known.set_leader(Some(leader).filter(|node| *node != 0));
        if view.is_empty() {
            return Ok(());
        }
        let read = self.reach.compute.run(move || decode_compressed::<RoutingView>(&view)).await;
        let view =
            read.map_err(|error| Status::from_error(&error))?.map_err(|error| Status::from_error(&error))?;
        self.known.update_view(Arc::new(view));
        Ok(())
    }
}
