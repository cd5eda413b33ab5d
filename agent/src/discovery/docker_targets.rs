//! Targets of containers, with the meta labels of Prometheus.

use std::collections::{BTreeMap, HashMap};

use athanor_profile::Labels;
use serde::Deserialize;

use super::{ADDRESS_LABEL, join_host_port};

const CONTAINER_ID_LABEL: &str = "__meta_docker_container_id";
const CONTAINER_NAME_LABEL: &str = "__meta_docker_container_name";
const CONTAINER_IMAGE_LABEL: &str = "__meta_docker_container_image";
const CONTAINER_IMAGE_ID_LABEL: &str = "__meta_docker_container_image_id";
const CONTAINER_NETWORK_MODE_LABEL: &str = "__meta_docker_container_network_mode";
const CONTAINER_LABEL_PREFIX: &str = "__meta_docker_container_label_";
const NETWORK_ID_LABEL: &str = "__meta_docker_network_id";
const NETWORK_NAME_LABEL: &str = "__meta_docker_network_name";
const NETWORK_SCOPE_LABEL: &str = "__meta_docker_network_scope";
const NETWORK_INTERNAL_LABEL: &str = "__meta_docker_network_internal";
const NETWORK_INGRESS_LABEL: &str = "__meta_docker_network_ingress";
const NETWORK_LABEL_PREFIX: &str = "__meta_docker_network_label_";
const NETWORK_IP_LABEL: &str = "__meta_docker_network_ip";
const PORT_PRIVATE_LABEL: &str = "__meta_docker_port_private";
const PORT_PUBLIC_LABEL: &str = "__meta_docker_port_public";
const PORT_PUBLIC_IP_LABEL: &str = "__meta_docker_port_public_ip";

/// Mode of a container in the network of the host.
const HOST_NETWORK_MODE: &str = "host";
/// Prefix of the mode of a container in the network of another one.
const SHARED_NETWORK_PREFIX: &str = "container:";
/// Maximum containers from one to the owner of its network. Containers that share in a circle have no network.
const MAX_SHARED_NETWORK_HOPS: usize = 16;

/// Responses of a daemon.
pub(super) struct ContainerNetworks {
    /// List of containers.
    pub(super) containers: Vec<Container>,
    /// List of networks.
    pub(super) networks: Vec<Network>,
}

/// Settings of targets.
pub(super) struct TargetOptions<'a> {
    /// Port of containers without a TCP port.
    pub(super) default_port: u16,
    /// Address of containers in the network of the host.
    pub(super) host_networking_host: &'a str,
    /// True if only the first network of a container is used.
    pub(super) match_first_network: bool,
}

/// Container, as the daemon lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Container {
    #[serde(default)]
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    #[serde(default)]
    image: String,
    #[serde(default, rename = "ImageID")]
    image_id: String,
    #[serde(default)]
    ports: Option<Vec<Port>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    host_config: Option<HostConfig>,
    #[serde(default)]
    network_settings: Option<NetworkSettings>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Port {
    #[serde(rename = "IP", default)]
    ip: String,
    #[serde(default)]
    private_port: u16,
    #[serde(default)]
    public_port: u16,
    #[serde(default)]
    r#type: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    #[serde(default)]
    network_mode: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NetworkSettings {
    #[serde(default)]
    networks: Option<BTreeMap<String, Option<Endpoint>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Endpoint {
    #[serde(rename = "NetworkID", default)]
    network_id: String,
    #[serde(rename = "IPAddress", default)]
    ip_address: String,
}

/// Network, as the daemon lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Network {
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    internal: bool,
    #[serde(default)]
    ingress: bool,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

/// Returns a target for each container, network and TCP port.
pub(super) fn container_targets(listed: &ContainerNetworks, options: &TargetOptions<'_>) -> Vec<Labels> {
    let by_id: HashMap<&str, &Container> =
        listed.containers.iter().map(|container| (container.id.as_str(), container)).collect();
    let networks: HashMap<&str, &Network> =
        listed.networks.iter().map(|network| (network.id.as_str(), network)).collect();
    let mut targets = Vec::new();
    for container in &listed.containers {
        let Some(name) = container.names.as_ref().and_then(|names| names.first()) else { continue };
        let common = common_labels(container, name);
        let mut endpoints = container_endpoints(container, &by_id);
        if options.match_first_network {
            endpoints.truncate(1);
        }
        for endpoint in endpoints {
            let mut labels = common.clone();
            labels.set(NETWORK_IP_LABEL, &endpoint.ip_address);
            if let Some(network) = networks.get(endpoint.network_id.as_str()) {
                set_network_labels(&mut labels, network);
            }
            add_endpoint_targets(&mut targets, container, endpoint, &labels, options);
        }
    }
    targets
}

/// Adds a target for each TCP port, or one with the default port.
fn add_endpoint_targets(
    targets: &mut Vec<Labels>,
    container: &Container,
    endpoint: &Endpoint,
    labels: &Labels,
    options: &TargetOptions<'_>,
) {
    let ports = container.ports.iter().flatten().filter(|port| port.r#type == "tcp");
    let before = targets.len();
    for port in ports {
        let mut labels = labels.clone();
        labels.set(PORT_PRIVATE_LABEL, &port.private_port.to_string());
        if port.public_port > 0 {
            labels.set(PORT_PUBLIC_LABEL, &port.public_port.to_string());
            labels.set(PORT_PUBLIC_IP_LABEL, &port.ip);
        }
        labels.set(ADDRESS_LABEL, &join_host_port(&endpoint.ip_address, port.private_port));
        targets.push(labels);
    }
    if targets.len() == before {
        let mut labels = labels.clone();
        let address = match network_mode(container) {
            HOST_NETWORK_MODE => options.host_networking_host.to_owned(),
            _ => join_host_port(&endpoint.ip_address, options.default_port),
        };
        labels.set(ADDRESS_LABEL, &address);
        targets.push(labels);
    }
}

fn common_labels(container: &Container, name: &str) -> Labels {
    let mut labels = Labels::default();
    labels.set(CONTAINER_ID_LABEL, &container.id);
    labels.set(CONTAINER_NAME_LABEL, name);
    labels.set(CONTAINER_IMAGE_LABEL, &container.image);
    labels.set(CONTAINER_IMAGE_ID_LABEL, &container.image_id);
    labels.set(CONTAINER_NETWORK_MODE_LABEL, network_mode(container));
    for (name, value) in container.labels.iter().flatten() {
        labels.set(&format!("{CONTAINER_LABEL_PREFIX}{}", sanitize_label_name(name)), value);
    }
    labels
}

fn set_network_labels(labels: &mut Labels, network: &Network) {
    labels.set(NETWORK_ID_LABEL, &network.id);
    labels.set(NETWORK_NAME_LABEL, &network.name);
    labels.set(NETWORK_SCOPE_LABEL, &network.scope);
    labels.set(NETWORK_INTERNAL_LABEL, if network.internal { "true" } else { "false" });
    labels.set(NETWORK_INGRESS_LABEL, if network.ingress { "true" } else { "false" });
    for (name, value) in network.labels.iter().flatten() {
        labels.set(&format!("{NETWORK_LABEL_PREFIX}{}", sanitize_label_name(name)), value);
    }
}

/// Returns the endpoints of a container by network name, or those of the container whose network it shares.
fn container_endpoints<'a>(
    container: &'a Container,
    by_id: &HashMap<&str, &'a Container>,
) -> Vec<&'a Endpoint> {
    let mut owner = container;
    for _ in 0..MAX_SHARED_NETWORK_HOPS {
        let networks = owner.network_settings.as_ref().and_then(|settings| settings.networks.as_ref());
        if let Some(networks) = networks.filter(|networks| !networks.is_empty()) {
            return networks.values().flatten().collect();
        }
        let shared = network_mode(owner).strip_prefix(SHARED_NETWORK_PREFIX);
        match shared.and_then(|id| by_id.get(id)) {
            Some(next) => owner = next,
            None => break,
        }
    }
    Vec::new()
}

fn network_mode(container: &Container) -> &str {
    container.host_config.as_ref().map_or("", |config| config.network_mode.as_str())
}

/// Replaces each character that Prometheus replaces in names of labels.
fn sanitize_label_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}
