//! Discovery of targets: groups of addresses with labels, from files, lists and APIs.
//!
//! ```text
//!  settings of jobs ─► DiscoveryManager ─► discoverers (one per distinct settings)
//!                                              │ groups that changed
//!                      targets of each job ◄───┴─ merged by discoverer and source
//! ```

mod discovery_error;
mod dns;
mod docker;
mod docker_targets;
mod factory;
mod file;
mod file_pattern;
mod file_watch;
mod http;
mod manager;
mod metrics;
mod polling;
mod static_groups;
pub mod target_list;
#[cfg(test)]
mod test_run;

pub use discovery_error::DiscoveryError;
pub use dns::DnsServers;
pub(crate) use docker::check_docker_host;
pub use factory::{CreateKubernetesDiscoverer, DiscovererFactory, StandardDiscovererFactory};
pub(crate) use http::{URL_LABEL, mask_url};
pub use manager::{DiscoveryManager, JobDiscovery, TargetGroups};
pub use metrics::{DISCOVERY_METRICS, DiscoveryKind, DiscoverySnapshot, DiscoveryStats, discovery_collector};

pub mod kubernetes;

use std::time::Duration;

use async_trait::async_trait;
use athanor_profile::Labels;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::scrape_target::HttpClientSettings;

/// Label with host and port of a target.
pub const ADDRESS_LABEL: &str = "__address__";

/// Targets with a common source. A later group of the same source replaces an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetGroup {
    /// Name of the source, unique in its discoverer: a file and index, a URL, a pod.
    pub source: String,
    /// Labels of each target, with those of the group: `__address__`, `__meta_*` and others. Empty removes
    /// the source.
    pub targets: Vec<Labels>,
    /// True if others than the operator may have written the addresses.
    pub is_address_untrusted: bool,
}

/// Source of target groups.
#[async_trait]
pub trait Discoverer: Send + Sync + 'static {
    /// Sends groups that are new, changed or removed until `stop`. The first update contains all groups. If the
    /// source is unavailable, the groups that were sent before stay in force and no update is sent.
    async fn run(&self, updates: mpsc::Sender<Vec<TargetGroup>>, stop: CancellationToken);
}

/// Settings of a discoverer, as in a scrape job of Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoverySettings {
    /// `static_configs`: the groups themselves.
    Static(Vec<TargetGroup>),
    /// `file_sd_configs`.
    File(FileDiscoverySettings),
    /// `http_sd_configs`.
    Http(HttpDiscoverySettings),
    /// `dns_sd_configs`.
    Dns(DnsDiscoverySettings),
    /// `kubernetes_sd_configs`.
    Kubernetes(KubernetesDiscoverySettings),
    /// `docker_sd_configs`.
    Docker(DockerDiscoverySettings),
}

/// Files that contain target groups in YAML or JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiscoverySettings {
    /// Paths, with `*` in the file name. Relative ones are relative to the folder of the configuration file.
    pub files: Vec<String>,
    /// Interval of reading all files again, besides notifications of changes.
    pub refresh_interval: Duration,
}

/// URL of a JSON list of target groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpDiscoverySettings {
    /// URL of the list.
    pub url: String,
    /// Interval between requests.
    pub refresh_interval: Duration,
    /// Settings of the HTTP client.
    pub http: HttpClientSettings,
}

/// DNS names whose records are targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsDiscoverySettings {
    /// Names to look up.
    pub names: Vec<String>,
    /// Record type: `SRV`, `A`, `AAAA`, `MX` or `NS`.
    pub record_type: String,
    /// Port of targets, for records without a port.
    pub port: u16,
    /// Interval between lookups.
    pub refresh_interval: Duration,
}

/// Objects of a Kubernetes cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesDiscoverySettings {
    /// Role: `pod`, `endpoints`, `endpointslice`, `service` or `node`.
    pub role: String,
    /// URL of the API server. None uses `kubeconfig_file` or the account of the pod.
    pub api_server: Option<String>,
    /// File with the connection to the API server.
    pub kubeconfig_file: Option<String>,
    /// Namespaces to watch. Empty means all, or the own one.
    pub namespaces: Vec<String>,
    /// True if the namespace of the agent is watched.
    pub own_namespace: bool,
    /// Selectors by role.
    pub selectors: Vec<KubernetesSelector>,
    /// True if metadata of the node is attached to pods.
    pub attach_node_metadata: bool,
    /// True if metadata of the namespace is attached.
    pub attach_namespace_metadata: bool,
    /// Settings of the HTTP client.
    pub http: HttpClientSettings,
}

/// Selector of Kubernetes objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesSelector {
    /// Role of the objects.
    pub role: String,
    /// Label selector.
    pub label: String,
    /// Field selector.
    pub field: String,
}

/// Containers of a Docker daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerDiscoverySettings {
    /// Address of the daemon, such as `unix:///var/run/docker.sock`.
    pub host: String,
    /// Port of containers without published ports.
    pub port: u16,
    /// Host of containers in the network of the host.
    pub host_networking_host: String,
    /// True if only the first network of a container is a target.
    pub match_first_network: bool,
    /// Filters of the list of containers: names with their values.
    pub filters: Vec<(String, Vec<String>)>,
    /// Interval between requests.
    pub refresh_interval: Duration,
    /// Settings of the HTTP client.
    pub http: HttpClientSettings,
}

/// Joins a host and a port. An IPv6 address gets brackets.
fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
