//! Watch on the routing view that each node keeps in memory.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::RoutingView;
use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{Backoff, ErrorCode, Status, TaskGroup};
use athanor_cluster::status_codec;
use athanor_proto::athanor::internal::v1 as wire;

use crate::client::{MetastoreClient, MetastoreClientDeps, MetastoreClientShared};
use crate::compression::decode_compressed;
use crate::retry::VoterEndpoint;
use crate::view_stream::{ViewStream, ViewUpdate};

/// Silence after which a watcher leaves a voter.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause between leaving one voter and trying the next.
const VOTER_SWITCH_BACKOFF: Backoff = Backoff::constant(Duration::from_millis(200));

/// Watch on slot tables, shards and voters. The view never goes back; its age is unbounded while no voter is
/// reachable. Cheap to clone; each clone waits for changes of its own.
#[derive(Clone)]
pub struct RoutingWatch {
    shared: Arc<MetastoreClientShared>,
    /// Revision that [`changed`](Self::changed) or [`wait_until`](Self::wait_until) returned last.
    seen: u64,
}

impl RoutingWatch {
    /// Starts the task that follows the client's voters until the process ends.
    pub fn follow(client: &MetastoreClient, tasks: &TaskGroup) -> Result<Self, SpawnError> {
        let shared = Arc::clone(client.shared());
        let token = tasks.shutdown_token();
        let following = Arc::clone(&shared);
        tasks.spawn("catalog routing watch", async move {
            tokio::select! {
                biased;
                () = token.cancelled() => {}
                () = following.follow_voters() => {}
            }
        })?;
        Ok(Self { shared, seen: 0 })
    }

    /// Returns the cached view; empty before the first update.
    pub fn current(&self) -> Arc<RoutingView> {
        self.shared.known.view()
    }

    /// Adopts the view of a voter on this node ahead of the stream's next update.
    pub fn update_view(&self, view: Arc<RoutingView>) {
        self.shared.known.update_view(view);
    }

    /// Waits for a view newer than the one that this watch returned last. Without changes it waits forever.
    pub async fn changed(&mut self) -> Arc<RoutingView> {
        let seen = self.seen;
        self.wait_until(|view| view.revision > seen).await
    }

    /// Waits until the view satisfies a condition.
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
        let MetastoreClientDeps { clock, random, .. } = &self.reach;
        let mut last = None;
        loop {
            for door in self.voter_endpoints(None) {
                // The loop tries the other voters before it returns to one that it left.
                let why = match door {
                    VoterEndpoint::Here => self.follow_local().await,
                    VoterEndpoint::Node(node) => self.follow_remote(node).await,
                };
                if last != Some(why.code) {
                    tracing::debug!(%door, why = %why, "stopped watching a metastore voter");
                }
                last = Some(why.code);
                VOTER_SWITCH_BACKOFF.wait(0, clock, random).await;
            }
            VOTER_SWITCH_BACKOFF.wait(0, clock, random).await;
        }
    }

    async fn follow_local(&self) -> Status {
        let Some(local) = &self.reach.local else {
            return Status::new(ErrorCode::NotFound, "this node is not a metastore voter");
        };
        let mut sightings = ViewStream::from_revision(local.clone(), self.known.view().revision);
        loop {
            match sightings.next().await {
                Some(Ok(ViewUpdate { leader, view, .. })) => {
                    self.known.set_leader(leader);
                    view.into_iter().for_each(|view| self.known.update_view(view));
                }
                Some(Err(why)) => return why,
                None => return Status::new(ErrorCode::Unavailable, "voter ended the stream"),
            }
        }
    }

    /// Follows another node until that node is silent or its stream ends. Returns the reason.
    async fn follow_remote(&self, node: u64) -> Status {
        let Some(remote) = &self.reach.remote else {
            return Status::new(ErrorCode::NotFound, "no remote nodes configured (single-node mode)");
        };
        let clock = &self.reach.clock;
        let late = |elapsed: athanor_chassis::time::clock::TimeoutElapsed| {
            Status::new(ErrorCode::Deadline, format!("voter sent no routing update: {elapsed}"))
        };
        let header = Some(remote.handshake.call_header(node, WATCH_IDLE_TIMEOUT));
        let known_revision = self.known.view().revision;
        let request = wire::WatchRoutingRequest { header, known_revision };
        let mut client = remote.peers.metastore(node);
        let mut updates = match clock.timeout(WATCH_IDLE_TIMEOUT, client.watch_routing(request)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(error)) => return status_codec::from_grpc(&error),
            Err(elapsed) => return late(elapsed),
        };
        loop {
            let update = match clock.timeout(WATCH_IDLE_TIMEOUT, updates.message()).await {
                Ok(Ok(Some(update))) => update,
                Ok(Ok(None)) => return Status::new(ErrorCode::Unavailable, "voter ended the stream"),
                Ok(Err(error)) => return status_codec::from_grpc(&error),
                Err(elapsed) => return late(elapsed),
            };
            if let Err(why) = self.apply_remote_view(update).await {
                tracing::warn!(node, %why, "failed to decode a routing update of a voter");
                return why;
            }
        }
    }

    async fn apply_remote_view(&self, update: wire::RoutingUpdate) -> Result<(), Status> {
        let wire::RoutingUpdate { leader_node_id, view, .. } = update;
        self.known.set_leader(Some(leader_node_id).filter(|node| *node != 0));
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
