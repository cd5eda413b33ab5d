//! Assembly of one node with all its roles.
//!
//! ```text
//!  folder ─► Log ─► groups: catalog, shards ─► Metastore, Ingester ─► Distributor, Querier ─► Listener
//! ```
//!
//! All dependencies on the machine come in through [`NodeDeps`], so that the same assembly runs in a
//! simulation. Start and stop return boxed futures: they are compiled once here, not in each program that
//! awaits them.

mod assembly;
mod catalog_rebuild;
mod client_roles;
mod compactor_role;
pub(crate) mod data_dir;
pub(crate) mod error;
mod metric_sources;
pub(crate) mod node_deps;
pub(crate) mod node_identity;
mod roles;
mod shutdown_budget;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::tasks::TaskHandle;
use athanor_chassis::{Clock, ComputePool, LimitOverrides, Net, Status, TaskGroup, observability::process};
use athanor_cluster::members::MemberState;
use athanor_compactor::RetentionConfig;
use athanor_http_server::{ConnectionDeps, HttpListener, ListenerError, RequestBudget, RequestLimiter};
use athanor_storage::Store;
use axum::Router;
use futures::future::{BoxFuture, FutureExt};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::config::{OtlpListenerConfig, ServerConfig};
use crate::http::admin::socket::AdminState;
use crate::http::{AdminAuth, HttpServices, WebPolicy, otlp_router, router, startup_router};
use crate::lifecycle::readiness::Readiness;
use crate::membership::cluster_handle::ClusterBootstrap;
use crate::telemetry::metrics::RouteMetrics;
use crate::telemetry::metrics::node::admin_collector;
use crate::telemetry::metrics::routes::route_collector;

pub use catalog_rebuild::rebuild_catalog;
pub use error::StartError;
pub use node_deps::NodeDeps;
pub use roles::NodeRoles;

/// Maximum concurrent tasks of a node; most are connections.
const MAX_TASKS: usize = 100_000;
/// Open files that connections leave to the rest of the server, if the process may open that many.
const RESERVED_FILES: u64 = 48;
/// Maximum connections of a node. The node's other tasks are few.
const MAX_CONNECTIONS: usize = MAX_TASKS / 2;

/// Running node that serves clients.
pub struct ServerNode {
    roles: NodeRoles,
    address: SocketAddr,
    /// Addresses of the ports for OpenTelemetry exports.
    otlp: Vec<SocketAddr>,
    /// Token that stops the listeners and requests that do not end by themselves.
    stop: CancellationToken,
    /// Token that aborts open requests.
    enough: CancellationToken,
    served: TaskHandle<()>,
    haste: Arc<Notify>,
}

impl ServerNode {
    /// Binds the port, starts all roles and serves.
    pub fn start(
        config: &ServerConfig,
        system: NodeDeps,
        overrides: LimitOverrides,
        settings: Arc<str>,
    ) -> BoxFuture<'_, Result<Self, StartError>> {
        let started = async move {
            let listener = HttpListener::bind(&*system.net, &config.http_listen_address).await?;
            Self::start_on(listener, config, system, overrides, settings).await
        };
        started.boxed()
    }

    /// Starts like [`start`](Self::start) on a bound listener. A port conflict thus fails before anything
    /// starts.
    pub fn start_on(
        listener: HttpListener,
        config: &ServerConfig,
        system: NodeDeps,
        overrides: LimitOverrides,
        settings: Arc<str>,
    ) -> BoxFuture<'_, Result<Self, StartError>> {
        Self::starting(listener, config, system, overrides, settings).boxed()
    }

    async fn starting(
        listener: HttpListener,
        config: &ServerConfig,
        system: NodeDeps,
        overrides: LimitOverrides,
        settings: Arc<str>,
    ) -> Result<Self, StartError> {
        let address = listener.address();
        crate::secrets::warn_of_readable_files(config);
        if let Some(path) = &config.admin_token_file {
            crate::http::read_token(path).map_err(StartError::Token)?;
        }
        let clock = system.clock.clone();
        let compute = system.compute.clone();
        let store = system.store.clone();
        let tasks = TaskGroup::new(clock.clone(), MAX_TASKS);
        let readiness = Arc::<Readiness>::default();
        let stop = CancellationToken::new();
        let enough = CancellationToken::new();
        let entry = ClusterBootstrap::from_config(config, &system.net, &clock).await?;
        let (begin, begun) = watch::channel(None);
        let (begin_otlp, begun_otlp) = watch::channel(None);
        let otlp = listeners(&config.otlp, &*system.net).await?;
        let otlp_addresses: Vec<SocketAddr> = otlp.iter().map(HttpListener::address).collect();
        let served = {
            let first = startup_router(Arc::clone(&readiness), clock.clone(), begun.clone());
            let lasting = connection_deps(config, &tasks, &clock, &enough);
            let first_otlp =
                startup_router(Arc::clone(&readiness), lasting.clock.clone(), begun_otlp.clone());
            let stop = stop.clone();
            tasks.spawn("listener", async move {
                let otlp = otlp.into_iter().map(|listener| {
                    serve(listener, first_otlp.clone(), begun_otlp.clone(), &lasting, stop.clone())
                });
                let all = serve(listener, first, begun, &lasting, stop.clone());
                tokio::join!(all, futures::future::join_all(otlp));
            })?
        };
        let limits = overrides.clone();
        let retention = config.retention(overrides.clone());
        let opened =
            NodeRoles::open_on(config, system, overrides, tasks, entry, Arc::clone(&readiness)).await;
        let roles = opened.inspect_err(|_| stop.cancel())?;
        let door = request_budget(config, &clock, compute);
        let guard = AdminAuth::new(address, config.admin_token_file.clone(), clock.clone());
        let route_metrics = register_http_metrics(&roles, &guard);
        let services = HttpServices {
            distributor: roles.distributor.clone(),
            querier: roles.querier.clone(),
            tenants: roles.tenant_directory(),
            companion: roles.tenant_settings(limits),
            adhoc: roles.adhoc.clone(),
            debuginfo: roles.debuginfo.clone(),
            metrics: Arc::clone(&roles.metrics),
            route_metrics,
            readiness,
            stop: stop.clone(),
            settings,
            guard,
            web: WebPolicy::new(&[address], &config.allowed_hosts),
            overview: roles.overview.clone(),
            responses: roles.response_budget(config),
        };
        open_admin_socket(admin_state(&roles, retention, store), config, clock, &roles.tasks);
        let web = WebPolicy::new(&otlp_addresses, &config.allowed_hosts);
        begin_otlp.send_replace(Some(otlp_router(door.clone(), HttpServices { web, ..services.clone() })));
        begin.send_replace(Some(router(door, services)));
        tracing::info!(%address, data = %config.data_dir.display(), "serving");
        Ok(Self { roles, address, otlp: otlp_addresses, stop, enough, served, haste: Arc::default() })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the addresses of the OpenTelemetry ports: first gRPC, then HTTP.
    pub fn otlp_addresses(&self) -> &[SocketAddr] {
        &self.otlp
    }

    /// Returns the roles of the node.
    pub fn roles(&self) -> &NodeRoles {
        &self.roles
    }

    /// Returns a handle that, when notified, ends the current step of [`ServerNode::stop_after`].
    pub fn force_stop(&self) -> Arc<Notify> {
        Arc::clone(&self.haste)
    }

    /// Stops the node in order: reports not ready, finishes requests, flushes, and ends.
    pub fn stop(self) -> BoxFuture<'static, Result<(), Status>> {
        self.stop_after(Duration::ZERO)
    }

    /// Stops like [`ServerNode::stop`], but serves for `delay` after it reports not ready. The whole stop
    /// takes at most `shutdown_timeout`, even if a step hangs.
    pub fn stop_after(self, delay: Duration) -> BoxFuture<'static, Result<(), Status>> {
        self.stopping(delay).boxed()
    }

    async fn stopping(mut self, delay: Duration) -> Result<(), Status> {
        let ending = self.roles.begin_shutdown();
        self.roles.readiness.stop();
        if let Some(others) = &self.roles.others {
            others.announce_state(MemberState::Draining).await;
        }
        if !delay.is_zero() {
            tracing::info!(
                ?delay,
                "draining: not ready, but serving requests until the delay ends; another signal skips the delay"
            );
            tokio::select! {
                () = self.roles.clock.sleep(delay.min(ending.for_requests())) => {}
                () = self.haste.notified() => {}
            }
        }
        // Other nodes then lead the shards and accept new profiles.
        self.roles.transfer_leaderships(&ending).await;
        tracing::info!("stopping");
        self.stop.cancel();
        let finished = tokio::select! {
            biased;
            served = &mut self.served => Some(served),
            () = self.roles.clock.sleep(ending.for_requests()) => None,
            () = self.haste.notified() => None,
        };
        let served = match finished {
            Some(served) => served,
            None => {
                self.enough.cancel();
                self.served.await
            }
        };
        if let Err(error) = served {
            tracing::warn!(%error, "listener ended with an error");
        }
        if let Some(querier) = &self.roles.querier {
            querier.close();
        }
        let kept = self.roles.end(&ending, &self.haste).await;
        tracing::info!("stopped");
        kept
    }
}

/// Returns the number of open files for connections. The rest is for the log, blocks, the bucket and other
/// nodes.
fn files_for_connections(files: u64) -> u64 {
    let quarter = files / 4;
    let reserved = quarter.max(RESERVED_FILES.min(files - quarter));
    files - reserved
}

/// Returns the maximum number of connections.
fn connections(config: &ServerConfig) -> usize {
    let files = process::raise_max_files();
    let most = usize::try_from(files_for_connections(files)).unwrap_or(usize::MAX);
    let most = most.clamp(1, MAX_CONNECTIONS);
    match config.max_connections {
        Some(wanted) if wanted as usize > most => {
            tracing::warn!(
                max_connections = wanted,
                files,
                most,
                "reduced max_connections to fit the limit of open files; raise it with `ulimit -n`"
            );
            most
        }
        Some(wanted) => wanted as usize,
        None => most,
    }
}

fn connection_deps(
    config: &ServerConfig,
    tasks: &TaskGroup,
    clock: &Clock,
    enough: &CancellationToken,
) -> ConnectionDeps {
    ConnectionDeps {
        tasks: tasks.clone(),
        clock: clock.clone(),
        enough: enough.clone(),
        room: Arc::new(Semaphore::new(connections(config))),
        requests: RequestLimiter::for_clients(config.max_requests),
    }
}

fn request_budget(config: &ServerConfig, clock: &Clock, compute: ComputePool) -> RequestBudget {
    let in_flight = config.max_inflight_request_bytes;
    RequestBudget::new(config.multitenancy_enabled, in_flight, clock.clone(), compute)
}

/// Registers the metrics of the public port. Returns those that the routes count.
fn register_http_metrics(roles: &NodeRoles, guard: &AdminAuth) -> Arc<RouteMetrics> {
    let route_metrics = Arc::<RouteMetrics>::default();
    roles.metrics.register(route_collector(Arc::clone(&route_metrics)));
    roles.metrics.register(admin_collector(guard.clone()));
    route_metrics
}

/// Opens the administration socket. A server without it still serves clients.
fn open_admin_socket(state: AdminState, config: &ServerConfig, clock: Clock, tasks: &TaskGroup) {
    if let Err(error) = crate::http::admin::socket::serve(&config.data_dir, state, clock, tasks) {
        tracing::warn!(%error, "failed to open the administration socket");
    }
}

fn admin_state(roles: &NodeRoles, retention: RetentionConfig, store: Store) -> AdminState {
    AdminState {
        ingester: roles.ingester.clone(),
        overview: roles.overview.clone(),
        querier: roles.querier.clone(),
        retention,
        facts: roles.facts().cloned(),
        store,
    }
}

/// Binds the ports for OpenTelemetry exports.
async fn listeners(settings: &OtlpListenerConfig, net: &dyn Net) -> Result<Vec<HttpListener>, ListenerError> {
    let mut listeners = Vec::new();
    for wanted in [&settings.grpc_listen_address, &settings.http_listen_address].into_iter().flatten() {
        listeners.push(HttpListener::bind(net, wanted).await?);
    }
    Ok(listeners)
}

/// Serves `first` until the node has started, then the router that `begun` delivers.
async fn serve(
    mut listener: HttpListener,
    first: Router,
    mut begun: watch::Receiver<Option<Router>>,
    lasting: &ConnectionDeps,
    stop: CancellationToken,
) {
    let begins = CancellationToken::new();
    let router = {
        let early = listener.accept(&first, lasting, &begins);
        let begin = async {
            let router = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                begun = begun.wait_for(Option::is_some) => begun.ok().and_then(|router| router.clone()),
            };
            begins.cancel();
            router
        };
        let (early, router) = tokio::join!(early, begin);
        // Open requests on early connections finish; their clients reconnect for more.
        let ended = lasting.tasks.spawn("early connections", early.shutdown());
        if let Err(error) = ended {
            tracing::warn!(%error, "aborted early connections");
        }
        router
    };
    if let Some(router) = router {
        listener.serve(router, lasting, stop).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_server() {
        for (files, connections) in [(64, 16), (32, 8), (192, 144), (1024, 768)] {
            assert_eq!(files_for_connections(files), connections, "{files}");
        }
    }
}
