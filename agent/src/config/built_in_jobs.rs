//! Jobs that need no `scrape_configs`: the agent itself, and annotated pods.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use athanor_profile::Labels;
use serde_json::json;

use super::http_client::default_client;
use super::job::{JobConfig, MAX_BODY_BYTES};
use super::profiling::ProfilingSettings;
use super::relabel_rules::RelabelRules;
use crate::discovery::{DiscoverySettings, KubernetesDiscoverySettings, TargetGroup};
use crate::scrape_target::ScrapeJob;

/// Name of the job that scrapes the agent itself.
pub(super) const SELF_JOB_NAME: &str = "athanor-agent";
/// Name of the job that scrapes annotated pods.
const ANNOTATED_PODS_JOB_NAME: &str = "annotated-pods";
const BUILT_IN_INTERVAL: Duration = Duration::from_secs(15);
const BUILT_IN_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the job that scrapes the agent itself: processor time.
pub(super) fn self_job(operator_address: SocketAddr) -> JobConfig {
    let mut target = Labels::default();
    target.set("__address__", &loopback_address(operator_address).to_string());
    let mut profiling = ProfilingSettings::default();
    for (name, kind) in &mut profiling.kinds {
        kind.enabled = name == "process_cpu";
    }
    let group = TargetGroup { source: "0".to_owned(), targets: vec![target], is_address_untrusted: false };
    JobConfig {
        discovery: vec![DiscoverySettings::Static(vec![group])],
        profiling,
        ..built_in_job(SELF_JOB_NAME, RelabelRules::default())
    }
}

/// Returns an address at which this host reaches its own listener.
fn loopback_address(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// Returns the job that scrapes pods with the annotations `profiles.grafana.com/<kind>.scrape`.
pub(super) fn annotated_pods_job() -> JobConfig {
    let rules = RelabelRules::from_json(&[
        json!({
            "source_labels": ["__meta_kubernetes_pod_phase"],
            "regex": "Pending|Succeeded|Failed|Completed",
            "action": "drop",
        }),
        json!({"source_labels": ["__meta_kubernetes_pod_container_init"], "regex": "true", "action": "drop"}),
        json!({"action": "labelmap", "regex": "__meta_kubernetes_pod_label_(.+)"}),
        json!({"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"}),
        json!({"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"}),
        json!({"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"}),
        json!({"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "node"}),
    ])
    .unwrap_or_default();
    JobConfig {
        discovery: vec![pod_discovery()],
        reads_annotations: true,
        ..built_in_job(ANNOTATED_PODS_JOB_NAME, rules)
    }
}

/// Returns the discovery of all pods with the account of the agent's own pod.
pub fn pod_discovery() -> DiscoverySettings {
    DiscoverySettings::Kubernetes(KubernetesDiscoverySettings {
        role: "pod".to_owned(),
        api_server: None,
        kubeconfig_file: None,
        namespaces: Vec::new(),
        own_namespace: false,
        selectors: Vec::new(),
        attach_node_metadata: false,
        attach_namespace_metadata: false,
        http: default_client(),
    })
}

fn built_in_job(name: &str, rules: RelabelRules) -> JobConfig {
    JobConfig {
        job: Arc::new(ScrapeJob {
            name: name.to_owned(),
            interval: BUILT_IN_INTERVAL,
            timeout: BUILT_IN_TIMEOUT,
            tenant: None,
            http: default_client(),
            max_body_bytes: MAX_BODY_BYTES,
        }),
        scheme: "http".to_owned(),
        metrics_path: "/metrics".to_owned(),
        params: BTreeMap::new(),
        rules,
        profiling: ProfilingSettings::default(),
        discovery: Vec::new(),
        target_limit: 0,
        keep_dropped_targets: 0,
        reads_annotations: false,
    }
}
