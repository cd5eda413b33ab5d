//! Targets of endpoints and endpoint slices, with the labels of the pods behind them.

use std::sync::Arc;

use athanor_profile::Labels;

use super::known_objects::KnownObjects;
use super::meta_labels::{
    sanitize_label_name, set_address, set_container_labels, set_meta, set_namespace_labels,
    set_object_labels, set_pod_labels, set_service_labels,
};
use super::objects::{
    EndpointAddress, EndpointSlice, Endpoints, Object, ObjectReference, Pod, Resource, Service, ServicePort,
    SliceEndpoint, SlicePort, object_key,
};

/// Label of a slice that names its service.
pub(super) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// Pods behind the endpoints of one object, with the ports that targets cover.
#[derive(Default)]
struct CoveredPods<'a> {
    pods: Vec<CoveredPod<'a>>,
}

struct CoveredPod<'a> {
    pod: &'a Pod,
    ports: Vec<i32>,
}

/// Port of an endpoint, for the labels of the container that has it.
struct EndpointPort<'a> {
    number: Option<i32>,
    /// Protocol that replaces that of the container's port.
    protocol: Option<&'a str>,
}

/// Returns the targets of endpoints.
pub(super) fn endpoints_targets(endpoints: &Endpoints, known: &KnownObjects) -> Vec<Labels> {
    let metadata = &endpoints.metadata;
    let mut group = Labels::default();
    set_meta(&mut group, "namespace", &metadata.namespace);
    if let Some(service) = find_service(known, &metadata.namespace, &metadata.name) {
        set_service_labels(&mut group, service);
    }
    set_object_labels(&mut group, "endpoints", metadata);
    set_labels_of_namespace(&mut group, &metadata.namespace, known);
    let mut covered = CoveredPods::default();
    let mut targets = Vec::new();
    for subset in &endpoints.subsets {
        for port in &subset.ports {
            let ready = subset.addresses.iter().map(|address| (address, "true"));
            let not_ready = subset.not_ready_addresses.iter().map(|address| (address, "false"));
            for (address, is_ready) in ready.chain(not_ready) {
                let mut target = group.clone();
                set_endpoint_labels(&mut target, address, port, is_ready);
                if known.attaches_node() {
                    let node = address.node_name.as_deref();
                    set_labels_of_node(
                        &mut target,
                        node.or_else(|| node_of_reference(&address.target_ref)),
                        known,
                    );
                }
                let endpoint_port = EndpointPort { number: Some(port.port), protocol: Some(&*port.protocol) };
                covered.set_labels(&mut target, address.target_ref.as_ref(), &endpoint_port, known);
                targets.push(target);
            }
        }
    }
    covered.add_other_ports(&group, &mut targets);
    targets
}

fn set_endpoint_labels(target: &mut Labels, address: &EndpointAddress, port: &ServicePort, is_ready: &str) {
    set_address(target, &address.ip, Some(port.port));
    set_meta(target, "endpoint_port_name", &port.name);
    set_meta(target, "endpoint_port_protocol", &port.protocol);
    set_meta(target, "endpoint_ready", is_ready);
    if let Some(reference) = &address.target_ref {
        set_meta(target, "endpoint_address_target_kind", &reference.kind);
        set_meta(target, "endpoint_address_target_name", &reference.name);
    }
    set_meta(target, "endpoint_node_name", address.node_name.as_deref().unwrap_or_default());
    set_meta(target, "endpoint_hostname", &address.hostname);
}

/// Returns the targets of an endpoint slice.
pub(super) fn slice_targets(slice: &EndpointSlice, known: &KnownObjects) -> Vec<Labels> {
    let metadata = &slice.metadata;
    let mut group = Labels::default();
    set_meta(&mut group, "namespace", &metadata.namespace);
    set_meta(&mut group, "endpointslice_address_type", &slice.address_type);
    set_object_labels(&mut group, "endpointslice", metadata);
    let service = metadata.labels.get(SERVICE_NAME_LABEL);
    let service = service.and_then(|name| find_service(known, &metadata.namespace, name));
    if let Some(service) = service {
        set_service_labels(&mut group, service);
        if is_of_second_family(slice, service) {
            return Vec::new();
        }
    }
    set_labels_of_namespace(&mut group, &metadata.namespace, known);
    let mut covered = CoveredPods::default();
    let mut targets = Vec::new();
    for endpoint in &slice.endpoints {
        for port in &slice.ports {
            for address in &endpoint.addresses {
                let mut target = group.clone();
                set_address(&mut target, address, port.port);
                set_slice_port_labels(&mut target, port);
                set_slice_endpoint_labels(&mut target, endpoint);
                if known.attaches_node() {
                    let node = node_of_reference(&endpoint.target_ref);
                    set_labels_of_node(&mut target, node.or(endpoint.node_name.as_deref()), known);
                }
                let endpoint_port = EndpointPort { number: port.port, protocol: None };
                covered.set_labels(&mut target, endpoint.target_ref.as_ref(), &endpoint_port, known);
                targets.push(target);
            }
        }
    }
    covered.add_other_ports(&group, &mut targets);
    targets
}

/// Returns whether the slice holds the second addresses of a dual-stack service, which would duplicate targets.
fn is_of_second_family(slice: &EndpointSlice, service: &Service) -> bool {
    let policy = service.spec.ip_family_policy.as_deref().unwrap_or_default();
    let first = service.spec.ip_families.first();
    ["PreferDualStack", "RequireDualStack"].contains(&policy)
        && first.is_some_and(|family| *family != slice.address_type)
}

fn set_slice_port_labels(target: &mut Labels, port: &SlicePort) {
    set_meta(target, "endpointslice_port_name", port.name.as_deref().unwrap_or_default());
    set_meta(target, "endpointslice_port_protocol", port.protocol.as_deref().unwrap_or_default());
    let number = port.port.map(|port| port.to_string()).unwrap_or_default();
    set_meta(target, "endpointslice_port", &number);
    set_meta(target, "endpointslice_port_app_protocol", port.app_protocol.as_deref().unwrap_or_default());
}

fn set_slice_endpoint_labels(target: &mut Labels, endpoint: &SliceEndpoint) {
    let conditions = [
        ("ready", endpoint.conditions.ready),
        ("serving", endpoint.conditions.serving),
        ("terminating", endpoint.conditions.terminating),
    ];
    for (name, value) in conditions {
        let value = value.map(|value| value.to_string()).unwrap_or_default();
        set_meta(target, &format!("endpointslice_endpoint_conditions_{name}"), &value);
    }
    set_meta(target, "endpointslice_endpoint_hostname", endpoint.hostname.as_deref().unwrap_or_default());
    set_meta(target, "endpointslice_endpoint_node_name", endpoint.node_name.as_deref().unwrap_or_default());
    set_meta(target, "endpointslice_endpoint_zone", endpoint.zone.as_deref().unwrap_or_default());
    if let Some(reference) = &endpoint.target_ref {
        set_meta(target, "endpointslice_address_target_kind", &reference.kind);
        set_meta(target, "endpointslice_address_target_name", &reference.name);
    }
    for (name, value) in endpoint.deprecated_topology.iter() {
        let name = sanitize_label_name(name);
        set_meta(target, &format!("endpointslice_endpoint_topology_{name}"), value);
        set_meta(target, &format!("endpointslice_endpoint_topology_present_{name}"), "true");
    }
}

fn find_service<'a>(known: &'a KnownObjects, namespace: &str, name: &str) -> Option<&'a Service> {
    match known.get(Resource::Services, &object_key(namespace, name)) {
        Some(Object::Service(service)) => Some(service),
        _ => None,
    }
}

/// Sets the labels of a namespace, if they are attached and it is known.
pub(super) fn set_labels_of_namespace(labels: &mut Labels, namespace: &str, known: &KnownObjects) {
    if let Some(Object::Namespace(namespace)) = known.get(Resource::Namespaces, namespace) {
        set_namespace_labels(labels, &namespace.metadata);
    }
}

/// Sets name, labels and annotations of a node, if it is known.
pub(super) fn set_labels_of_node(labels: &mut Labels, node: Option<&str>, known: &KnownObjects) {
    if let Some(Object::Node(node)) = node.and_then(|name| known.get(Resource::Nodes, name)) {
        set_object_labels(labels, "node", &node.metadata);
    }
}

fn node_of_reference(reference: &Option<ObjectReference>) -> Option<&str> {
    reference.as_ref().filter(|reference| &*reference.kind == "Node").map(|reference| &*reference.name)
}

/// Returns the keys of pods and nodes that the targets of an object depend on.
pub(super) fn references_of_endpoint(
    reference: Option<&ObjectReference>,
    node_name: Option<&str>,
) -> Vec<(Resource, Arc<str>)> {
    let mut references = Vec::new();
    references.extend(node_name.map(|name| (Resource::Nodes, Arc::from(name))));
    match reference {
        Some(reference) if &*reference.kind == "Pod" => {
            references.push((Resource::Pods, object_key(&reference.namespace, &reference.name).into()));
        }
        Some(reference) if &*reference.kind == "Node" => {
            references.push((Resource::Nodes, Arc::from(&*reference.name)));
        }
        _ => {}
    }
    references
}

impl<'a> CoveredPods<'a> {
    /// Sets the labels of the pod behind an endpoint, if it is one, and of the container with the port.
    fn set_labels(
        &mut self,
        target: &mut Labels,
        reference: Option<&ObjectReference>,
        port: &EndpointPort<'_>,
        known: &'a KnownObjects,
    ) {
        let Some(reference) = reference.filter(|reference| &*reference.kind == "Pod") else { return };
        let key = object_key(&reference.namespace, &reference.name);
        let Some(Object::Pod(pod)) = known.get(Resource::Pods, &key) else { return };
        let pod: &Pod = pod;
        set_pod_labels(target, pod);
        let containers = pod.all_containers();
        for (container, is_init) in containers {
            let container_port =
                container.ports.iter().find(|candidate| Some(candidate.container_port) == port.number);
            let Some(container_port) = container_port else { continue };
            set_container_labels(target, container, Some(container_port), is_init);
            if let Some(protocol) = port.protocol {
                set_meta(target, "pod_container_port_protocol", protocol);
            }
        }
        let index = self.pods.iter().position(|covered| std::ptr::eq(covered.pod, pod));
        let index = index.unwrap_or_else(|| {
            self.pods.push(CoveredPod { pod, ports: Vec::new() });
            self.pods.len() - 1
        });
        self.pods[index].ports.extend(port.number);
    }

    /// Adds a target for each port of the pods that no endpoint covers.
    fn add_other_ports(&self, group: &Labels, targets: &mut Vec<Labels>) {
        for covered in self.pods.iter().filter(|covered| !covered.pod.status.pod_ip.is_empty()) {
            for (container, is_init) in covered.pod.all_containers() {
                let ports = container.ports.iter();
                for port in ports.filter(|port| !covered.ports.contains(&port.container_port)) {
                    let mut target = group.clone();
                    set_address(&mut target, &covered.pod.status.pod_ip, Some(port.container_port));
                    set_pod_labels(&mut target, covered.pod);
                    set_container_labels(&mut target, container, Some(port), is_init);
                    targets.push(target);
                }
            }
        }
    }
}
