//! Directory of senders: the labels of pods and containers by their addresses and ids.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "kubernetes")]
use std::sync::Weak;
use std::time::Duration;

use athanor_agent_ebpf::processes::ContainerFacts;
use athanor_chassis::Clock;
use athanor_profile::Labels;
#[cfg(feature = "kubernetes")]
use parking_lot::Mutex;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::agent_deps::AgentDeps;
#[cfg(feature = "kubernetes")]
use crate::discovery::DiscoveryError;
use crate::discovery::kubernetes::logged_pod_peers::{list_logged_pod_labels, list_logged_pod_peers};
#[cfg(feature = "kubernetes")]
use crate::discovery::kubernetes::{
    DEFAULT_API_BACKOFF, KubernetesDiscoverer, KubernetesEnvironment, KubernetesStatus, PodPeers,
};
use crate::discovery::{CreateKubernetesDiscoverer, DiscoveryStats, TargetGroup, TargetGroups};
use crate::receive::PeerLabels;
use crate::sampling::ContainerLabels;

/// Folders of the processes and of the pod logs of the node.
const PROCESSES: &str = "/proc";
pub(super) const POD_LOGS: &str = "/var/log/pods";
/// Interval of checking whether the API denies access, then of reading them.
const FIRST_PODS_INTERVAL: Duration = Duration::from_secs(2);
const LOGGED_PODS_INTERVAL: Duration = Duration::from_secs(15);
const CONTAINER_ADDRESS_LABEL: &str = "__meta_docker_network_ip";
const CONTAINER_NAME_LABEL: &str = "__meta_docker_container_name";
const CONTAINER_ID_LABEL: &str = "__meta_docker_container_id";
/// Prefix of the labels of a container that do not depend on the network or port of a target.
const CONTAINER_LABEL_PREFIX: &str = "__meta_docker_container_";

/// Longest time for which requests wait for the labels of senders to be known.
const MAX_UNREADY_TIME: Duration = Duration::from_secs(30);

/// Labels of all senders that discovery knows.
pub(super) struct SenderDirectory {
    clock: Clock,
    sources: RwLock<LabelSources>,
    #[cfg(feature = "kubernetes")]
    clusters: Mutex<Vec<ClusterSource>>,
    /// Pods of the node, from their log folders and processes.
    logged_pods: RwLock<HashMap<IpAddr, Labels>>,
    /// Pods of the node by uid, from their log folders.
    named_pods: RwLock<HashMap<String, Labels>>,
    /// Containers of Docker by the feed that found them.
    containers: RwLock<BTreeMap<String, FoundContainers>>,
}

/// Containers that a feed found.
#[derive(Default)]
struct FoundContainers {
    by_address: HashMap<IpAddr, Labels>,
    by_id: HashMap<String, Labels>,
}

/// Discovery that the labels come from.
struct LabelSources {
    feeds: Vec<watch::Receiver<TargetGroups>>,
    /// Time since which they run.
    since: Duration,
}

/// Discoverer of a cluster, while it runs.
#[cfg(feature = "kubernetes")]
struct ClusterSource {
    peers: Weak<PodPeers>,
    status: Weak<KubernetesStatus>,
}

impl SenderDirectory {
    /// Creates an empty directory.
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            sources: RwLock::new(LabelSources { feeds: Vec::new(), since: clock.monotonic() }),
            clock,
            #[cfg(feature = "kubernetes")]
            clusters: Mutex::default(),
            logged_pods: RwLock::default(),
            named_pods: RwLock::default(),
            containers: RwLock::default(),
        }
    }

    /// Replaces the discovery that the labels come from.
    pub(super) fn set_sources(&self, feeds: Vec<watch::Receiver<TargetGroups>>) {
        *self.sources.write() = LabelSources { feeds, since: self.clock.monotonic() };
    }

    /// Returns the function that creates discoverers of clusters and adds their pods to the directory.
    #[cfg(feature = "kubernetes")]
    pub(super) fn cluster_discovery(
        self: &Arc<Self>,
        deps: &AgentDeps,
        node_name: Option<String>,
        stats: Arc<DiscoveryStats>,
    ) -> Option<Box<CreateKubernetesDiscoverer>> {
        let directory = Arc::clone(self);
        let environment = KubernetesEnvironment {
            clock: deps.clock.clone(),
            random: deps.random.split(),
            pool: deps.compute.clone(),
            backoff: DEFAULT_API_BACKOFF,
            node_name,
            stats,
        };
        Some(Box::new(move |settings| {
            let discoverer = KubernetesDiscoverer::new(settings.clone(), environment.clone())
                .map_err(|error| DiscoveryError::Settings { reason: error.to_string() })?;
            let source = ClusterSource {
                peers: Arc::downgrade(&discoverer.peers()),
                status: Arc::downgrade(&discoverer.status()),
            };
            let mut clusters = directory.clusters.lock();
            clusters.retain(|cluster| cluster.peers.strong_count() > 0);
            clusters.push(source);
            Ok(Arc::new(discoverer))
        }))
    }

    /// Returns None: the agent has no discovery of clusters.
    #[cfg(not(feature = "kubernetes"))]
    pub(super) fn cluster_discovery(
        self: &Arc<Self>,
        _: &AgentDeps,
        _: Option<String>,
        _: Arc<DiscoveryStats>,
    ) -> Option<Box<CreateKubernetesDiscoverer>> {
        None
    }

    /// Returns the problems of the requests to clusters, such as missing permissions.
    pub(super) fn problems(&self) -> Vec<String> {
        #[cfg(feature = "kubernetes")]
        {
            let clusters = self.clusters.lock();
            let running = clusters.iter().filter_map(|cluster| cluster.status.upgrade());
            running.flat_map(|status| status.problems()).collect()
        }
        #[cfg(not(feature = "kubernetes"))]
        Vec::new()
    }

    /// Returns whether a cluster denies access.
    fn is_denied(&self) -> bool {
        #[cfg(feature = "kubernetes")]
        {
            let clusters = self.clusters.lock();
            clusters.iter().filter_map(|cluster| cluster.status.upgrade()).any(|status| status.is_denied())
        }
        #[cfg(not(feature = "kubernetes"))]
        false
    }

    /// Keeps the pods of the node by their log folders and processes, while the API denies access, until `stop`.
    pub(super) async fn watch_logged_pods(self: Arc<Self>, deps: AgentDeps, stop: CancellationToken) {
        loop {
            let interval =
                if self.logged_pods.read().is_empty() { FIRST_PODS_INTERVAL } else { LOGGED_PODS_INTERVAL };
            tokio::select! {
                () = stop.cancelled() => return,
                () = deps.clock.sleep(interval) => {}
            }
            if !self.is_denied() {
                self.logged_pods.write().clear();
                self.named_pods.write().clear();
                continue;
            }
            let list = || {
                let peers = list_logged_pod_peers(Path::new(PROCESSES), Path::new(POD_LOGS))?;
                list_logged_pod_labels(Path::new(POD_LOGS)).map(|pods| (peers, pods))
            };
            match deps.compute.run(list).await {
                Ok(Ok((peers, pods))) => {
                    *self.logged_pods.write() = peers;
                    *self.named_pods.write() = pods;
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, folder = POD_LOGS, "failed to read pods of the node")
                }
                Err(error) => tracing::debug!(%error, "failed to read pods of the node"),
            }
        }
    }

    /// Replaces the containers that a feed found.
    pub(super) fn set_containers(&self, feed: &str, groups: &[TargetGroup]) {
        let mut containers = FoundContainers::default();
        for target in groups.iter().flat_map(|group| &group.targets) {
            containers.by_address.extend(address_labels(target));
            if let Some(id) = target.get(CONTAINER_ID_LABEL) {
                // A container has a target for each of its ports.
                containers.by_id.entry(id.to_owned()).or_insert_with(|| own_labels(target));
            }
        }
        self.containers.write().insert(feed.to_owned(), containers);
    }

    /// Forgets the containers of feeds that are not in use.
    pub(super) fn retain_feeds(&self, is_used: impl Fn(&str) -> bool) {
        self.containers.write().retain(|feed, _| is_used(feed));
    }
}

impl PeerLabels for SenderDirectory {
    fn is_ready(&self) -> bool {
        let sources = self.sources.read();
        let is_known = sources.feeds.iter().all(|feed| feed.borrow().is_some());
        is_known || self.clock.monotonic().saturating_sub(sources.since) > MAX_UNREADY_TIME
    }

    fn labels(&self, peer: IpAddr) -> Option<Labels> {
        #[cfg(feature = "kubernetes")]
        {
            let clusters = self.clusters.lock();
            let found = clusters.iter().find_map(|cluster| cluster.peers.upgrade()?.labels(peer));
            if found.is_some() {
                return found;
            }
        }
        if let Some(labels) = self.logged_pods.read().get(&peer) {
            return Some(labels.clone());
        }
        let containers = self.containers.read();
        containers.values().find_map(|containers| containers.by_address.get(&peer).cloned())
    }
}

impl ContainerLabels for SenderDirectory {
    fn container_labels(&self, container: &ContainerFacts) -> Option<Labels> {
        #[cfg(feature = "kubernetes")]
        {
            let clusters = self.clusters.lock();
            let mut peers = clusters.iter().filter_map(|cluster| cluster.peers.upgrade());
            let uid = container.pod_uid.as_deref();
            let found = peers.find_map(|peers| peers.container_labels(uid, &container.id));
            if found.is_some() {
                return found;
            }
        }
        if let Some(pod) =
            container.pod_uid.as_deref().and_then(|uid| self.named_pods.read().get(uid).cloned())
        {
            return Some(pod);
        }
        let containers = self.containers.read();
        containers.values().find_map(|containers| containers.by_id.get(&*container.id).cloned())
    }
}

/// Returns the labels of a container that all its targets share.
fn own_labels(target: &Labels) -> Labels {
    let own = target.iter().filter(|(name, _)| name.starts_with(CONTAINER_LABEL_PREFIX));
    Labels::new(own.map(|(name, value)| (name.to_owned(), value.to_owned())))
}

/// Returns the address of a container and its labels: its name, and the meta labels that `service_name` is
/// inferred from. None for a container in the network of its host.
fn address_labels(target: &Labels) -> Option<(IpAddr, Labels)> {
    let address = target.get(CONTAINER_ADDRESS_LABEL)?.parse().ok()?;
    let mut labels = target.clone();
    let name = target.get(CONTAINER_NAME_LABEL).unwrap_or_default().trim_start_matches('/');
    labels.set("container", name);
    Some((address, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(address: &str, name: &str) -> Labels {
        let pairs = [(CONTAINER_ADDRESS_LABEL, address), (CONTAINER_NAME_LABEL, name)];
        Labels::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn sender_has_the_name_of_the_container_with_its_address() {
        let directory = SenderDirectory::new(Clock::manual(athanor_chassis::Timestamp::UNIX_EPOCH).0);
        let targets = vec![container("172.17.0.2", "/cart"), container("", "/host")];
        let group = TargetGroup { targets, ..TargetGroup::default() };
        directory.set_containers("docker/0", &[group]);
        let name = |directory: &SenderDirectory, address: &str| {
            let labels = directory.labels(address.parse().unwrap())?;
            labels.get("container").map(str::to_owned)
        };
        assert_eq!(name(&directory, "172.17.0.2").as_deref(), Some("cart"));
        assert_eq!(name(&directory, "172.17.0.3"), None);
        directory.set_containers("docker/0", &[]);
        assert_eq!(name(&directory, "172.17.0.2"), None);
        directory.retain_feeds(|_| false);
        assert!(directory.containers.read().is_empty());
    }

    #[test]
    fn container_has_the_labels_of_its_targets_by_id() {
        let directory = SenderDirectory::new(Clock::manual(athanor_chassis::Timestamp::UNIX_EPOCH).0);
        let mut target = container("", "/cart");
        target.set(CONTAINER_ID_LABEL, "0f0e");
        target.set("__meta_docker_port_private", "80");
        let group = TargetGroup { targets: vec![target.clone(), target], ..TargetGroup::default() };
        directory.set_containers("docker/0", &[group]);
        let facts = |id: &str| ContainerFacts {
            id: id.into(),
            runtime: athanor_agent_ebpf::processes::ContainerRuntime::Docker,
            pod_uid: None,
        };
        let labels = directory.container_labels(&facts("0f0e")).unwrap();
        let pairs: Vec<_> = labels.iter().collect();
        assert_eq!(pairs, [(CONTAINER_ID_LABEL, "0f0e"), (CONTAINER_NAME_LABEL, "/cart")]);
        assert_eq!(directory.container_labels(&facts("0f0f")), None);
    }
}
