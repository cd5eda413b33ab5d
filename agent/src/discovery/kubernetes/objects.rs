//! Objects of the Kubernetes API, reduced to the fields that targets and labels are made of.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::packed_pairs::PackedPairs;

/// Resource of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Pods.
    Pods,
    /// Services.
    Services,
    /// Endpoints of services.
    Endpoints,
    /// Slices of the endpoints of services.
    EndpointSlices,
    /// Nodes of the cluster.
    Nodes,
    /// Namespaces of the cluster.
    Namespaces,
}

/// Object of one of the resources.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// Pod. The sampler shares it.
    Pod(Arc<Pod>),
    /// Service.
    Service(Service),
    /// Endpoints of a service.
    Endpoints(Endpoints),
    /// Slice of the endpoints of a service.
    EndpointSlice(EndpointSlice),
    /// Node.
    Node(Node),
    /// Namespace.
    Namespace(Namespace),
}

/// Name and labels of an object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub(super) name: Box<str>,
    pub(super) namespace: Box<str>,
    pub(super) uid: Box<str>,
    /// Version that the API gave the object. The reflector takes it out.
    pub(super) resource_version: Box<str>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) labels: PackedPairs,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) annotations: PackedPairs,
    #[serde(rename = "ownerReferences", deserialize_with = "controller")]
    pub(super) controller: Option<Box<Controller>>,
}

/// Owner that manages an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Controller {
    pub(super) kind: Box<str>,
    pub(super) name: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OwnerReference {
    kind: Box<str>,
    name: Box<str>,
    controller: Option<bool>,
}

/// Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub(super) metadata: Metadata,
    pub(super) spec: PodSpec,
    pub(super) status: PodStatus,
}

/// Specification of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub(super) node_name: Box<str>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) host_network: bool,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) containers: Box<[Container]>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) init_containers: Box<[Container]>,
}

/// Container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Container {
    pub(super) name: Box<str>,
    pub(super) image: Box<str>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) ports: Box<[ContainerPort]>,
}

/// Port of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    pub(super) name: Box<str>,
    pub(super) container_port: i32,
    pub(super) protocol: Box<str>,
}

/// Status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Box<str>,
    #[serde(rename = "hostIP")]
    pub(super) host_ip: Box<str>,
    #[serde(rename = "podIPs", deserialize_with = "null_as_default")]
    pub(super) pod_ips: Box<[PodIp]>,
    pub(super) phase: Box<str>,
    #[serde(rename = "conditions", deserialize_with = "ready_condition")]
    pub(super) ready: Option<Box<str>>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) container_statuses: Box<[ContainerStatus]>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) init_container_statuses: Box<[ContainerStatus]>,
}

/// Address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodIp {
    pub(super) ip: Box<str>,
}

/// Status of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    pub(super) name: Box<str>,
    #[serde(rename = "containerID")]
    pub(super) container_id: Box<str>,
}

/// Condition of a pod or node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: Box<str>,
    pub(super) status: Box<str>,
}

/// Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Service {
    pub(super) metadata: Metadata,
    pub(super) spec: ServiceSpec,
    pub(super) status: ServiceStatus,
}

/// Specification of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub(super) kind: Box<str>,
    #[serde(rename = "clusterIP")]
    pub(super) cluster_ip: Box<str>,
    pub(super) external_name: Box<str>,
    #[serde(rename = "loadBalancerIP")]
    pub(super) load_balancer_ip: Box<str>,
    pub(super) ip_family_policy: Option<Box<str>>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) ip_families: Box<[Box<str>]>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) ports: Box<[ServicePort]>,
}

/// Port of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServicePort {
    pub(super) name: Box<str>,
    pub(super) port: i32,
    pub(super) protocol: Box<str>,
}

/// Status of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) load_balancer: LoadBalancer,
}

/// Load balancer of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LoadBalancer {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) ingress: Box<[PodIp]>,
}

/// Endpoints of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    pub(super) metadata: Metadata,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) subsets: Box<[EndpointSubset]>,
}

/// Addresses with common ports.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSubset {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) addresses: Box<[EndpointAddress]>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) not_ready_addresses: Box<[EndpointAddress]>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) ports: Box<[ServicePort]>,
}

/// Address of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointAddress {
    pub(super) ip: Box<str>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) hostname: Box<str>,
    pub(super) node_name: Option<Box<str>>,
    pub(super) target_ref: Option<ObjectReference>,
}

/// Reference to the object behind an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ObjectReference {
    pub(super) kind: Box<str>,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

/// Slice of the endpoints of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    pub(super) metadata: Metadata,
    pub(super) address_type: Box<str>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) endpoints: Box<[SliceEndpoint]>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) ports: Box<[SlicePort]>,
}

/// Endpoint of a slice.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceEndpoint {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) addresses: Box<[Box<str>]>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) conditions: SliceConditions,
    pub(super) hostname: Option<Box<str>>,
    pub(super) node_name: Option<Box<str>>,
    pub(super) zone: Option<Box<str>>,
    pub(super) target_ref: Option<ObjectReference>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) deprecated_topology: PackedPairs,
}

/// Conditions of an endpoint of a slice.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SliceConditions {
    pub(super) ready: Option<bool>,
    pub(super) serving: Option<bool>,
    pub(super) terminating: Option<bool>,
}

/// Port of a slice.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlicePort {
    pub(super) name: Option<Box<str>>,
    pub(super) port: Option<i32>,
    pub(super) protocol: Option<Box<str>>,
    pub(super) app_protocol: Option<Box<str>>,
}

/// Node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Node {
    pub(super) metadata: Metadata,
    pub(super) spec: NodeSpec,
    pub(super) status: NodeStatus,
}

/// Specification of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    #[serde(rename = "providerID")]
    pub(super) provider_id: Box<str>,
}

/// Status of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) addresses: Box<[NodeAddress]>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) conditions: Box<[Condition]>,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) daemon_endpoints: DaemonEndpoints,
}

/// Address of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    #[serde(rename = "type")]
    pub(super) kind: Box<str>,
    pub(super) address: Box<str>,
}

/// Ports of the daemons of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonEndpoints {
    #[serde(deserialize_with = "null_as_default")]
    pub(super) kubelet_endpoint: DaemonEndpoint,
}

/// Port of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct DaemonEndpoint {
    #[serde(rename = "Port", default)]
    pub(super) port: i32,
}

/// Namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub(super) metadata: Metadata,
}

impl Resource {
    /// Name of the resource in paths and RBAC rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Services => "services",
            Self::Endpoints => "endpoints",
            Self::EndpointSlices => "endpointslices",
            Self::Nodes => "nodes",
            Self::Namespaces => "namespaces",
        }
    }

    /// API group of the resource. Empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Self::EndpointSlices => "discovery.k8s.io",
            _ => "",
        }
    }

    /// Returns whether objects of the resource belong to a namespace.
    pub fn is_namespaced(self) -> bool {
        !matches!(self, Self::Nodes | Self::Namespaces)
    }

    /// Decodes an object of the resource from JSON.
    ///
    /// # Errors
    ///
    /// If the text is no such object.
    pub fn decode(self, json: &str) -> Result<Object, serde_json::Error> {
        Ok(match self {
            Self::Pods => Object::Pod(Arc::new(serde_json::from_str(json)?)),
            Self::Services => Object::Service(serde_json::from_str(json)?),
            Self::Endpoints => Object::Endpoints(serde_json::from_str(json)?),
            Self::EndpointSlices => Object::EndpointSlice(serde_json::from_str(json)?),
            Self::Nodes => Object::Node(serde_json::from_str(json)?),
            Self::Namespaces => Object::Namespace(serde_json::from_str(json)?),
        })
    }
}

impl Object {
    /// Resource of the object.
    pub fn resource(&self) -> Resource {
        match self {
            Self::Pod(_) => Resource::Pods,
            Self::Service(_) => Resource::Services,
            Self::Endpoints(_) => Resource::Endpoints,
            Self::EndpointSlice(_) => Resource::EndpointSlices,
            Self::Node(_) => Resource::Nodes,
            Self::Namespace(_) => Resource::Namespaces,
        }
    }

    /// Key of the object among those of its resource: namespace and name.
    pub fn key(&self) -> Arc<str> {
        let metadata = self.metadata();
        if self.resource().is_namespaced() {
            object_key(&metadata.namespace, &metadata.name).into()
        } else {
            Arc::from(&*metadata.name)
        }
    }

    pub(super) fn metadata(&self) -> &Metadata {
        match self {
            Self::Pod(pod) => &pod.metadata,
            Self::Service(service) => &service.metadata,
            Self::Endpoints(endpoints) => &endpoints.metadata,
            Self::EndpointSlice(slice) => &slice.metadata,
            Self::Node(node) => &node.metadata,
            Self::Namespace(namespace) => &namespace.metadata,
        }
    }

    /// Takes the version out of the object.
    pub(super) fn take_version(&mut self) -> Box<str> {
        let metadata = match self {
            Self::Pod(pod) => &mut Arc::make_mut(pod).metadata,
            Self::Service(service) => &mut service.metadata,
            Self::Endpoints(endpoints) => &mut endpoints.metadata,
            Self::EndpointSlice(slice) => &mut slice.metadata,
            Self::Node(node) => &mut node.metadata,
            Self::Namespace(namespace) => &mut namespace.metadata,
        };
        std::mem::take(&mut metadata.resource_version)
    }
}

impl Pod {
    /// Containers, then init containers, each with whether it is one.
    pub(super) fn all_containers(&self) -> impl Iterator<Item = (&Container, bool)> {
        let plain = self.spec.containers.iter().map(|container| (container, false));
        plain.chain(self.spec.init_containers.iter().map(|container| (container, true)))
    }
}

/// Returns the key of an object of a namespace.
pub(super) fn object_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Decodes a value that may be null. Go encodes empty lists so.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

fn controller<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<Controller>>, D::Error> {
    let owners: Vec<OwnerReference> = null_as_default(deserializer)?;
    let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
    Ok(owner.map(|owner| Box::new(Controller { kind: owner.kind, name: owner.name })))
}

fn ready_condition<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<str>>, D::Error> {
    let conditions: Vec<Condition> = null_as_default(deserializer)?;
    let ready = conditions.into_iter().find(|condition| &*condition.kind == "Ready");
    Ok(ready.map(|condition| condition.status))
}
