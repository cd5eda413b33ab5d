//! Assembly of the agent from its configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use athanor_agent_ebpf::sampler::{Sampler, SamplerError};
use athanor_agent_ebpf::symbols::KernelSymbolFile;
use athanor_chassis::{ByteSize, ErrorCode, Status};
use athanor_http_server::{ConnectionDeps, HttpListener, RequestBudget, RequestLimiter};
use axum::Router;
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::AgentStart;
use super::agent_deps::AgentDeps;
use super::agent_view::{ConfigInForce, RunningAgent};
use super::sender_directory::SenderDirectory;
use super::target_feed::TargetFeed;
use crate::address_policy::{AddressPolicy, AddressPolicySettings};
use crate::config::{AgentConfig, Environment, ServerSettings};
use crate::delivery::{ClientConnection, Delivery, SpoolSet, spool_collector};
use crate::discovery::{DiscoveryManager, DiscoveryStats, StandardDiscovererFactory, discovery_collector};
use crate::operator::metrics::{MetricsRegistry, build_collector, process_collector, reload_collector};
use crate::operator::reload::ReloadStats;
use crate::operator::{operator_router, self_profile_router};
use crate::receive::{ProfileReceiver, ReceiverParams, receive_collector};
use crate::sampling::{
    CollectorParams, HostFacts, LabelSettings, ProcessLabeler, SampleSource, SamplingCollector,
    encode_profile, sampler_collector, sampler_config,
};
use crate::scrape::{BodyBudgets, HttpProfileFetcher, Scraper, ScraperParams, scrape_collector};
use crate::spool::{Spool, SpoolConfig, SpoolDisks, report_abandoned_spools};
use crate::targets::TargetRegistry;
use crate::wall_clock::{WallClockMonitor, wall_clock_collector};

/// Timeout of the lookup of a host.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of open connections and requests of the operator port.
const MAX_OPERATOR_CONNECTIONS: usize = 64;
const MAX_OPERATOR_REQUESTS: u32 = 64;
/// Memory of the requests of the operator port. They have no bodies.
const OPERATOR_MEMORY: ByteSize = ByteSize::mib(1);

/// Bound port.
pub(super) struct AgentPort {
    pub(super) name: &'static str,
    /// Purpose of the port, as the start of a sentence.
    pub(super) purpose: &'static str,
    listener: HttpListener,
    routes: PortRoutes,
}

enum PortRoutes {
    Operator(Router),
    Receiver(ProfileReceiver),
}

impl AgentPort {
    /// Returns the bound address.
    pub(super) fn address(&self) -> std::net::SocketAddr {
        self.listener.address()
    }

    /// Serves until `stop`, and open requests until `abort`.
    pub(super) async fn serve(self, deps: AgentDeps, stop: CancellationToken, abort: CancellationToken) {
        match self.routes {
            PortRoutes::Receiver(receiver) => receiver.serve(self.listener, deps.tasks, stop, abort).await,
            PortRoutes::Operator(router) => {
                let connections = ConnectionDeps {
                    tasks: deps.tasks,
                    clock: deps.clock,
                    enough: abort,
                    room: Arc::new(Semaphore::new(MAX_OPERATOR_CONNECTIONS)),
                    requests: RequestLimiter::for_clients(MAX_OPERATOR_REQUESTS),
                };
                self.listener.serve(router, &connections, stop).await;
            }
        }
    }
}

/// Builds the agent and binds its ports. The ports are bound before the spool is opened, so that a second agent
/// of a host ends with the address that is in use.
pub(super) async fn assemble(
    deps: &AgentDeps,
    start: AgentStart,
) -> Result<(Arc<RunningAgent>, Vec<AgentPort>), Status> {
    let AgentStart { file, environment, mut in_force, privileges } = start;
    let operator = bind(deps, in_force.config.operator_address, "operator.listen_address").await?;
    let receiver_listener = match in_force.config.receive.listen_address {
        Some(address) => Some(bind(deps, address, "receive.listen_address").await?),
        None => None,
    };
    in_force.config.set_operator_address(operator.address());
    let config = in_force.config.clone();
    for warning in &config.warnings {
        tracing::warn!(warning, "configuration");
    }
    let spools = open_spools(deps, &config).await?;
    let senders = Arc::new(SenderDirectory::new(deps.clock.clone()));
    let receiver = ProfileReceiver::new(ReceiverParams {
        settings: config.receive.clone(),
        sink: Arc::new(spools.clone()),
        peers: Arc::clone(&senders) as _,
        clock: deps.clock.clone(),
        random: deps.random.split(),
        compute: deps.compute.clone(),
    });
    let sampler = build_sampler(
        deps,
        &config,
        &environment,
        SamplerParts { spools: &spools, senders: &senders, kernel_symbols: privileges.kernel_symbols },
    );
    sampler.set_phase(privileges.phase);
    let parts = AgentParts { file, environment, in_force, spools, senders, receiver, sampler };
    let agent = build_agent(deps, parts)?;
    agent.apply_jobs(&config);
    let operator_routes = operator_routes(deps, &agent, &operator);
    let mut ports = vec![AgentPort {
        name: "operator port",
        purpose: "operator pages",
        listener: operator,
        routes: PortRoutes::Operator(operator_routes),
    }];
    if let Some(listener) = receiver_listener {
        *agent.receive_address.write() = Some(listener.address().to_string());
        ports.push(AgentPort {
            name: "receive port",
            purpose: "receiving profiles",
            listener,
            routes: PortRoutes::Receiver(agent.receiver.clone()),
        });
    }
    Ok((agent, ports))
}

/// Parts of an agent that are ready before the others.
struct AgentParts {
    file: Option<PathBuf>,
    environment: Environment,
    in_force: ConfigInForce,
    spools: SpoolSet,
    senders: Arc<SenderDirectory>,
    receiver: ProfileReceiver,
    sampler: SamplingCollector,
}

/// Parts of the agent that a sampler uses.
struct SamplerParts<'a> {
    spools: &'a SpoolSet,
    senders: &'a Arc<SenderDirectory>,
    kernel_symbols: Option<KernelSymbolFile>,
}

fn build_sampler(
    deps: &AgentDeps,
    config: &AgentConfig,
    environment: &Environment,
    parts: SamplerParts<'_>,
) -> SamplingCollector {
    let SamplerParts { spools, senders, kernel_symbols } = parts;
    let symbolize = config.sampler.symbolize;
    let library_config = sampler_config(&config.sampler);
    let clock = deps.clock.clone();
    let random = deps.random.split();
    let start = move || -> Result<Box<dyn SampleSource>, SamplerError> {
        let mut sampler = Sampler::start(library_config.clone(), clock.clone(), random.split())?;
        if let Some(file) = kernel_symbols.clone() {
            sampler.set_kernel_symbols(file);
        }
        Ok(Box::new(sampler))
    };
    let host = HostFacts::read(Path::new("/"), environment.node_name.as_deref());
    let labeler = ProcessLabeler::new(host, Arc::clone(senders) as _, label_settings(config));
    SamplingCollector::new(CollectorParams {
        clock: deps.clock.clone(),
        random: deps.random.split(),
        compute: deps.compute.clone(),
        sink: Arc::new(spools.clone()),
        start: Arc::new(start),
        encode: Arc::new(move |window, stacks| encode_profile(window, stacks, symbolize)),
        labeler,
        settings: config.sampler.clone(),
    })
}

/// Returns the settings of the labels of sampled profiles.
pub(super) fn label_settings(config: &AgentConfig) -> LabelSettings {
    LabelSettings {
        rules: config.sampler.rules.clone(),
        tenant: config.sampler.tenant.clone(),
        external_labels: config.external_labels.clone(),
    }
}

fn build_agent(deps: &AgentDeps, parts: AgentParts) -> Result<Arc<RunningAgent>, Status> {
    let AgentParts { file, environment, in_force, spools, senders, receiver, sampler } = parts;
    let policy = address_policy(deps, &in_force.config)?;
    let wall_clock = WallClockMonitor::new(deps.clock.clone());
    let net = Arc::clone(&deps.net);
    let fetcher = HttpProfileFetcher::new(net, deps.clock.clone(), policy.clone(), BodyBudgets::default());
    let scraper = Scraper::new(ScraperParams {
        clock: deps.clock.clone(),
        random: deps.random.split(),
        fetcher: Arc::new(fetcher),
        sink: Arc::new(spools.clone()),
        wall_clock: Arc::clone(&wall_clock),
    });
    let discovery_stats = Arc::new(DiscoveryStats::default());
    let factory = StandardDiscovererFactory {
        net: Arc::clone(&deps.net),
        clock: deps.clock.clone(),
        policy,
        stats: Arc::clone(&discovery_stats),
        dns_servers: StandardDiscovererFactory::system_dns_servers(),
        kubernetes: senders.cluster_discovery(
            deps,
            environment.node_name.clone(),
            Arc::clone(&discovery_stats),
        ),
    };
    let stats = Arc::clone(&discovery_stats);
    let manager = DiscoveryManager::new(deps.tasks.clone(), deps.clock.clone(), Arc::new(factory), stats);
    let registry = Arc::new(TargetRegistry::default());
    let feed = TargetFeed::new(manager, Arc::clone(&registry), Arc::clone(&senders), deps.tasks.clone());
    let reloads = Arc::new(ReloadStats::new(deps.clock.monotonic()));
    let metrics = MetricsRegistry::default();
    metrics.register(build_collector());
    metrics.register(process_collector());
    metrics.register(reload_collector(Arc::clone(&reloads)));
    metrics.register(scrape_collector(scraper.clone()));
    metrics.register(discovery_collector(discovery_stats));
    metrics.register(wall_clock_collector(wall_clock));
    metrics.register(spool_collector(spools.clone()));
    metrics.register(receive_collector(receiver.clone()));
    metrics.register(sampler_collector(sampler.clone()));
    Ok(Arc::new(RunningAgent {
        clock: deps.clock.clone(),
        started: deps.clock.monotonic(),
        file,
        environment,
        config: RwLock::new(in_force),
        registry,
        feed,
        senders,
        scraper,
        receiver,
        sampler,
        spools,
        metrics,
        reloads,
        receive_address: RwLock::new(None),
    }))
}

async fn bind(
    deps: &AgentDeps,
    address: std::net::SocketAddr,
    setting: &str,
) -> Result<HttpListener, Status> {
    let socket = deps.net.listen(address).await.map_err(|error| {
        let message = format!(
            "cannot listen on {address} ({setting}): {error}; stop the other process or set another address"
        );
        Status::new(ErrorCode::Unavailable, message)
    })?;
    Ok(HttpListener::from_socket(socket))
}

fn operator_routes(deps: &AgentDeps, agent: &Arc<RunningAgent>, listener: &HttpListener) -> Router {
    let budget = RequestBudget::new(false, OPERATOR_MEMORY, deps.clock.clone(), deps.compute.clone());
    let profile = self_profile_router(budget, listener.address().ip());
    operator_router(Arc::clone(agent) as _).merge(profile)
}

fn address_policy(deps: &AgentDeps, config: &AgentConfig) -> Result<AddressPolicy, Status> {
    let ranges: Result<Vec<_>, _> = config.allowed_target_ranges.iter().map(|range| range.parse()).collect();
    let allowed_ranges = ranges.map_err(|error: crate::address_policy::IpRangeError| {
        Status::new(ErrorCode::Invalid, format!("allowed_target_ranges: {error}"))
    })?;
    let settings = AddressPolicySettings { allowed_ranges, lookup_timeout: LOOKUP_TIMEOUT };
    Ok(AddressPolicy::new(Arc::clone(&deps.net), deps.clock.clone(), settings))
}

async fn open_spools(deps: &AgentDeps, config: &AgentConfig) -> Result<SpoolSet, Status> {
    let mut deliveries = Vec::with_capacity(config.servers.len());
    for server in &config.servers {
        deliveries.push(open_delivery(deps, config, server).await?);
    }
    let folder = config.spool.folder.clone();
    let names: Vec<_> = config.servers.iter().map(|server| server.name.clone()).collect();
    let searched = deps.compute.run(move || report_abandoned_spools(&folder, &names)).await;
    let warnings = searched.map_err(|error| Status::from_error(&error))?;
    Ok(SpoolSet::new(deliveries).with_warnings(warnings))
}

async fn open_delivery(
    deps: &AgentDeps,
    config: &AgentConfig,
    server: &ServerSettings,
) -> Result<Delivery, Status> {
    let settings = SpoolConfig {
        max_bytes: config.spool.max_bytes,
        min_free_disk_percent: config.spool.min_free_percent,
        ..SpoolConfig::default()
    };
    let (folder, name) = (config.spool.folder.clone(), server.name.clone());
    let opened = deps.compute.run(move || SpoolDisks::open(&folder, &name)).await;
    let disks = opened.map_err(|error| Status::from_error(&error))?;
    let disks = disks.map_err(|error| {
        let folder = config.spool.folder.join(&server.name);
        let message = format!(
            "cannot open the spool folder {}: {error}; stop the other agent or set spool.folder",
            folder.display()
        );
        Status::new(ErrorCode::Precondition, message)
    })?;
    let failed = |error: &dyn std::error::Error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        Status::new(ErrorCode::Unavailable, format!("{error}{cause}"))
    };
    let runtime = deps.spool_runtime();
    let spool = Spool::open(&server.name, disks, settings, runtime.clone()).await.map_err(|e| failed(&e))?;
    let connection = ClientConnection::new(server, deps.clock.clone(), deps.random.split())?;
    Delivery::start(spool, Arc::new(connection), runtime).map_err(|error| failed(&error))
}
