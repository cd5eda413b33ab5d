//! Meta labels of pods, services and nodes, with the names and values of Prometheus.

use athanor_profile::Labels;

use super::objects::{Container, ContainerPort, Metadata, Node, Pod, Service};

const META_PREFIX: &str = "__meta_kubernetes_";
const ADDRESS_LABEL: &str = "__address__";

/// Types of node addresses, best first.
const NODE_ADDRESS_TYPES: [&str; 6] =
    ["InternalIP", "InternalDNS", "ExternalIP", "ExternalDNS", "LegacyHostIP", "Hostname"];

/// Sets a meta label, given without its prefix.
pub(super) fn set_meta(labels: &mut Labels, name: &str, value: &str) {
    labels.set(&format!("{META_PREFIX}{name}"), value);
}

/// Sets the address of a target.
pub(super) fn set_address(labels: &mut Labels, host: &str, port: Option<i32>) {
    match port {
        Some(port) => labels.set(ADDRESS_LABEL, &join_host_port(host, port)),
        None => labels.set(ADDRESS_LABEL, host),
    }
}

/// Sets name, labels and annotations of an object of a role.
pub(super) fn set_object_labels(labels: &mut Labels, role: &str, metadata: &Metadata) {
    set_meta(labels, &format!("{role}_name"), &metadata.name);
    set_labels_of_metadata(labels, role, metadata);
}

/// Sets labels and annotations of a namespace. Its name is a label of each target anyway.
pub(super) fn set_namespace_labels(labels: &mut Labels, metadata: &Metadata) {
    set_labels_of_metadata(labels, "namespace", metadata);
}

fn set_labels_of_metadata(labels: &mut Labels, role: &str, metadata: &Metadata) {
    for (kind, pairs) in [("label", &metadata.labels), ("annotation", &metadata.annotations)] {
        for (name, value) in pairs.iter() {
            let name = sanitize_label_name(name);
            set_meta(labels, &format!("{role}_{kind}_{name}"), value);
            set_meta(labels, &format!("{role}_{kind}present_{name}"), "true");
        }
    }
}

/// Sets the labels of a pod, without its namespace.
pub(super) fn set_pod_labels(labels: &mut Labels, pod: &Pod) {
    set_meta(labels, "pod_ip", &pod.status.pod_ip);
    let ready = pod.status.ready.as_deref().unwrap_or("unknown").to_lowercase();
    set_meta(labels, "pod_ready", &ready);
    set_meta(labels, "pod_phase", &pod.status.phase);
    set_meta(labels, "pod_node_name", &pod.spec.node_name);
    set_meta(labels, "pod_host_ip", &pod.status.host_ip);
    set_meta(labels, "pod_uid", &pod.metadata.uid);
    set_object_labels(labels, "pod", &pod.metadata);
    if let Some(controller) = &pod.metadata.controller {
        set_meta(labels, "pod_controller_kind", &controller.kind);
        set_meta(labels, "pod_controller_name", &controller.name);
    }
}

/// Sets the labels of a container and, if it has one, of its port.
pub(super) fn set_container_labels(
    labels: &mut Labels,
    container: &Container,
    port: Option<&ContainerPort>,
    is_init: bool,
) {
    set_meta(labels, "pod_container_name", &container.name);
    set_meta(labels, "pod_container_image", &container.image);
    set_meta(labels, "pod_container_init", if is_init { "true" } else { "false" });
    if let Some(port) = port {
        set_meta(labels, "pod_container_port_name", &port.name);
        set_meta(labels, "pod_container_port_number", &port.container_port.to_string());
        set_meta(labels, "pod_container_port_protocol", &port.protocol);
    }
}

/// Sets the labels of a service and its namespace.
pub(super) fn set_service_labels(labels: &mut Labels, service: &Service) {
    set_meta(labels, "namespace", &service.metadata.namespace);
    set_object_labels(labels, "service", &service.metadata);
}

/// Returns the targets of a pod: one for each port of its containers, and one for each container without
/// ports. A pod without address has no targets. `group` are labels of all targets besides those of the pod.
pub(super) fn pod_targets(pod: &Pod, group: &Labels) -> Vec<Labels> {
    if pod.status.pod_ip.is_empty() {
        return Vec::new();
    }
    let mut pod_labels = group.clone();
    set_pod_labels(&mut pod_labels, pod);
    let mut targets = Vec::new();
    for (container, is_init) in pod.all_containers() {
        let statuses =
            if is_init { &pod.status.init_container_statuses } else { &pod.status.container_statuses };
        let status = statuses.iter().find(|status| status.name == container.name);
        let mut container_labels = pod_labels.clone();
        let id = status.map_or("", |status| &*status.container_id);
        set_meta(&mut container_labels, "pod_container_id", id);
        if container.ports.is_empty() {
            set_address(&mut container_labels, &pod.status.pod_ip, None);
            set_container_labels(&mut container_labels, container, None, is_init);
            targets.push(container_labels);
            continue;
        }
        for port in &container.ports {
            let mut labels = container_labels.clone();
            set_address(&mut labels, &pod.status.pod_ip, Some(port.container_port));
            set_container_labels(&mut labels, container, Some(port), is_init);
            targets.push(labels);
        }
    }
    targets
}

/// Returns the targets of a service: one for each port.
pub(super) fn service_targets(service: &Service, group: &Labels) -> Vec<Labels> {
    let spec = &service.spec;
    let host = format!("{}.{}.svc", service.metadata.name, service.metadata.namespace);
    let mut service_labels = group.clone();
    set_service_labels(&mut service_labels, service);
    set_meta(&mut service_labels, "service_type", &spec.kind);
    if &*spec.kind == "ExternalName" {
        set_meta(&mut service_labels, "service_external_name", &spec.external_name);
    } else {
        set_meta(&mut service_labels, "service_cluster_ip", &spec.cluster_ip);
    }
    if &*spec.kind == "LoadBalancer" {
        set_meta(&mut service_labels, "service_loadbalancer_ip", &load_balancer_addresses(service));
    }
    let target = |port: &super::objects::ServicePort| {
        let mut labels = service_labels.clone();
        set_address(&mut labels, &host, Some(port.port));
        set_meta(&mut labels, "service_port_name", &port.name);
        set_meta(&mut labels, "service_port_number", &port.port.to_string());
        set_meta(&mut labels, "service_port_protocol", &port.protocol);
        labels
    };
    spec.ports.iter().map(target).collect()
}

fn load_balancer_addresses(service: &Service) -> String {
    let ingress = service.status.load_balancer.ingress.iter();
    let addresses: Vec<&str> = ingress.map(|ingress| &*ingress.ip).filter(|ip| !ip.is_empty()).collect();
    if addresses.is_empty() { service.spec.load_balancer_ip.to_string() } else { addresses.join(",") }
}

/// Returns the target of a node: its kubelet. None if the node has no address.
pub(super) fn node_target(node: &Node) -> Option<Labels> {
    let addresses = &node.status.addresses;
    let first_of_type = |kind: &str| addresses.iter().find(|address| &*address.kind == kind);
    let best = NODE_ADDRESS_TYPES.into_iter().find_map(first_of_type)?;
    let mut labels = Labels::default();
    set_meta(&mut labels, "node_provider_id", &node.spec.provider_id);
    for condition in &node.status.conditions {
        let kind = sanitize_label_name(&condition.kind.to_lowercase());
        set_meta(&mut labels, &format!("node_condition_{kind}"), &condition.status.to_lowercase());
    }
    set_object_labels(&mut labels, "node", &node.metadata);
    // The first address of each type counts.
    for address in addresses.iter().rev() {
        let kind = sanitize_label_name(&address.kind);
        set_meta(&mut labels, &format!("node_address_{kind}"), &address.address);
    }
    let port = node.status.daemon_endpoints.kubelet_endpoint.port;
    set_address(&mut labels, &best.address, Some(port));
    labels.set("instance", &node.metadata.name);
    Some(labels)
}

/// Replaces each character that a label name must not contain.
pub(super) fn sanitize_label_name(name: &str) -> String {
    let allowed = |character: char| character.is_ascii_alphanumeric() || character == '_';
    name.chars().map(|character| if allowed(character) { character } else { '_' }).collect()
}

/// Joins host and port. IPv6 addresses get brackets.
fn join_host_port(host: &str, port: i32) -> String {
    if host.contains([':', '%']) { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
