//! Runs the discovery of a job until it has found its targets or reported why it finds none.

use std::sync::Arc;
use std::time::Duration;

use athanor_agent::address_policy::{AddressPolicy, AddressPolicySettings};
use athanor_agent::config::JobConfig;
use athanor_agent::discovery::kubernetes::{DEFAULT_API_BACKOFF, KubernetesEnvironment, create_discoverer};
use athanor_agent::discovery::{
    DiscovererFactory, DiscoveryError, DiscoveryKind, DiscoverySettings, DiscoveryStats, DnsServers,
    KubernetesDiscoverySettings, StandardDiscovererFactory, TargetGroup,
};
use athanor_chassis::net::LocalNet;
use athanor_chassis::{Clock, ComputePool, Random, TaskGroup};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Time between two looks at the counter of errors.
const ERROR_CHECK_INTERVAL: Duration = Duration::from_millis(5);
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the groups that the mechanisms of a job find. Static ones are last, as the oracle orders them: of equal
/// targets, the first one counts.
pub(crate) async fn discover(job: &JobConfig) -> Vec<TargetGroup> {
    let mut groups = Vec::new();
    let mut mechanisms: Vec<&DiscoverySettings> = job.discovery.iter().collect();
    mechanisms.sort_by_key(|settings| matches!(settings, DiscoverySettings::Static(_)));
    for settings in mechanisms {
        groups.extend(discover_once(settings).await);
    }
    groups
}

async fn discover_once(settings: &DiscoverySettings) -> Vec<TargetGroup> {
    let clock = Clock::system();
    let net = Arc::new(LocalNet::new(clock.clone()));
    let stats = Arc::new(DiscoveryStats::default());
    let factory = StandardDiscovererFactory {
        policy: AddressPolicy::new(Arc::clone(&net) as _, clock.clone(), AddressPolicySettings::default()),
        net,
        clock: clock.clone(),
        stats: Arc::clone(&stats),
        dns_servers: DnsServers::ResolvConf("/dev/null".into()),
        kubernetes: Some(Box::new(create_kubernetes)),
    };
    let discoverer = factory.create(settings).unwrap();
    let (sender, mut updates) = mpsc::channel(8);
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let tasks = TaskGroup::new(clock.clone(), 1);
    tasks.spawn("discoverer", async move { discoverer.run(sender, stopped).await }).unwrap();
    let kind = DiscoveryKind::from_settings(settings);
    let first_update = async {
        loop {
            tokio::select! {
                biased;
                update = updates.recv() => return update.unwrap(),
                () = clock.sleep(ERROR_CHECK_INTERVAL) => {}
            }
            if stats.errors(kind) > 0 {
                // An error without an update: no part of the source is readable.
                return updates.try_recv().unwrap_or_default();
            }
        }
    };
    let groups = clock.timeout(DISCOVERY_TIMEOUT, first_update).await;
    stop.cancel();
    groups.unwrap_or_else(|_| panic!("no targets of {settings:?}"))
}

fn create_kubernetes(
    settings: &KubernetesDiscoverySettings,
) -> Result<Arc<dyn athanor_agent::discovery::Discoverer>, DiscoveryError> {
    let environment = KubernetesEnvironment {
        clock: Clock::system(),
        random: Random::from_seed(1),
        pool: ComputePool::with_threads(1.try_into().unwrap(), 8).unwrap(),
        backoff: DEFAULT_API_BACKOFF,
        node_name: None,
        stats: std::sync::Arc::default(),
    };
    let created = create_discoverer(settings.clone(), environment);
    created.map_err(|error| DiscoveryError::Settings { reason: error.to_string() })
}
