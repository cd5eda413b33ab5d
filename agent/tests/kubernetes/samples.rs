//! Objects of a cluster, as tests change them.

use serde_json::{Value, json};

/// Roles of discovery.
pub(crate) const ROLES: [&str; 5] = ["pod", "node", "service", "endpoints", "endpointslice"];
const NAMESPACE: &str = "shop";

/// Returns a running pod with one port. Its label `revision` distinguishes versions.
pub(crate) fn pod(name: &str, node: &str, revision: u64) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"),
            "labels": {"app": "cart", "revision": revision.to_string()},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "cart:1", "ports": [{"containerPort": 6060, "name": "pprof"}]}],
        },
        "status": {"phase": "Running", "podIP": address_of(name), "hostIP": "192.168.1.1"},
    })
}

/// Returns a node with a label that distinguishes versions.
pub(crate) fn node(name: &str, revision: u64) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name, "labels": {"revision": revision.to_string()}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address_of(name)}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        },
    })
}

/// Returns a service with a label that distinguishes versions.
pub(crate) fn service(name: &str, revision: u64) -> Value {
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"revision": revision.to_string()}},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.5", "ports": [{"name": "pprof", "port": 6060}]},
    })
}

/// Returns the endpoints of a service. Each one is a pod.
pub(crate) fn endpoints(service: &str, pods: &[String]) -> Value {
    let addresses: Vec<Value> =
        pods.iter().map(|name| json!({"ip": address_of(name), "targetRef": reference(name)})).collect();
    json!({
        "kind": "Endpoints", "apiVersion": "v1",
        "metadata": {"name": service, "namespace": NAMESPACE},
        "subsets": [{"addresses": addresses, "ports": [{"name": "pprof", "port": 6060, "protocol": "TCP"}]}],
    })
}

/// Returns a slice of the endpoints of a service. Each one is a pod.
pub(crate) fn endpoint_slice(service: &str, pods: &[String]) -> Value {
    let endpoints: Vec<Value> = pods
        .iter()
        .map(|name| json!({"addresses": [address_of(name)], "conditions": {"ready": true}, "targetRef": reference(name)}))
        .collect();
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": format!("{service}-slice"), "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": "pprof", "port": 6060, "protocol": "TCP"}],
    })
}

/// Returns the namespace of all objects, with a label that distinguishes versions.
pub(crate) fn namespace(revision: u64) -> Value {
    json!({
        "kind": "Namespace", "apiVersion": "v1",
        "metadata": {"name": NAMESPACE, "labels": {"revision": revision.to_string()}},
    })
}

fn reference(pod: &str) -> Value {
    json!({"kind": "Pod", "namespace": NAMESPACE, "name": pod})
}

/// Returns an address that only depends on the name.
fn address_of(name: &str) -> String {
    let sum = name.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    format!("10.{}.{}.{}", sum >> 16 & 0xff, sum >> 8 & 0xff, sum & 0xff)
}
