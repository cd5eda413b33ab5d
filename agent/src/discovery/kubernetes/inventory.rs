//! Inventory: known objects, and the target groups that are made of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use athanor_profile::Labels;

use super::super::TargetGroup;
use super::endpoint_targets::{
    SERVICE_NAME_LABEL, endpoints_targets, references_of_endpoint, set_labels_of_namespace,
    set_labels_of_node, slice_targets,
};
use super::known_objects::{AttachedMetadata, KnownObjects};
use super::meta_labels::{node_target, pod_targets, service_targets, set_meta};
use super::objects::{Object, Resource, object_key};
use super::pod_peers::PodPeers;

/// Change of the objects of one scope: a resource, in one namespace or all.
#[derive(Debug)]
pub(super) enum InventoryChange {
    /// The scope contains exactly these objects.
    Replace(Vec<Object>),
    /// The object is new or changed.
    Apply(Box<Object>),
    /// The object with this key is deleted.
    Remove(Arc<str>),
}

/// Known objects by resource, with the targets that were sent.
pub(super) struct Inventory {
    role: Resource,
    known: KnownObjects,
    /// Objects of the role by the other objects that their targets depend on.
    dependents: HashMap<(Resource, Arc<str>), HashSet<Arc<str>>>,
    /// Objects of the role with targets that may have changed.
    changed: HashSet<Arc<str>>,
    /// Hashes of the groups that were sent.
    sent: HashMap<Arc<str>, u64>,
    peers: Arc<PodPeers>,
}

impl Inventory {
    /// Creates an empty inventory for a role.
    pub(super) fn new(role: Resource, attached: AttachedMetadata, peers: Arc<PodPeers>) -> Self {
        Self {
            role,
            known: KnownObjects { attached, objects: BTreeMap::new() },
            dependents: HashMap::new(),
            changed: HashSet::new(),
            sent: HashMap::new(),
            peers,
        }
    }

    /// Applies a change of a resource, in one namespace or all.
    pub(super) fn apply(&mut self, resource: Resource, namespace: Option<&str>, change: InventoryChange) {
        match change {
            InventoryChange::Apply(object) => self.insert(resource, object.key(), *object),
            InventoryChange::Remove(key) => self.remove(resource, &key),
            InventoryChange::Replace(objects) => {
                let present: HashSet<Arc<str>> = objects.iter().map(Object::key).collect();
                let known = self.known.objects.get(&resource).into_iter().flatten();
                let in_scope = known.filter(|(_, object)| {
                    namespace.is_none_or(|namespace| &*object.metadata().namespace == namespace)
                });
                let removed: Vec<Arc<str>> = in_scope
                    .filter(|(key, _)| !present.contains(*key))
                    .map(|(key, _)| Arc::clone(key))
                    .collect();
                for key in removed {
                    self.remove(resource, &key);
                }
                for object in objects {
                    self.insert(resource, object.key(), object);
                }
            }
        }
    }

    fn insert(&mut self, resource: Resource, key: Arc<str>, object: Object) {
        if self.known.get(resource, &key) == Some(&object) {
            return;
        }
        self.forget_references(resource, &key);
        if let Object::Pod(pod) = &object {
            self.peers.insert(&key, pod);
        }
        if resource == self.role {
            for reference in self.references_of(&object) {
                self.dependents.entry(reference).or_default().insert(Arc::clone(&key));
            }
        }
        self.mark_changed(resource, &key);
        self.known.objects.entry(resource).or_default().insert(key, object);
    }

    fn remove(&mut self, resource: Resource, key: &Arc<str>) {
        self.forget_references(resource, key);
        let removed = self.known.objects.get_mut(&resource).and_then(|objects| objects.remove(key));
        if removed.is_some() {
            self.mark_changed(resource, key);
        }
        if resource == Resource::Pods {
            self.peers.remove(key);
        }
    }

    fn mark_changed(&mut self, resource: Resource, key: &Arc<str>) {
        if resource == self.role {
            self.changed.insert(Arc::clone(key));
        } else if let Some(dependents) = self.dependents.get(&(resource, Arc::clone(key))) {
            self.changed.extend(dependents.iter().cloned());
        }
    }

    fn forget_references(&mut self, resource: Resource, key: &Arc<str>) {
        if resource != self.role {
            return;
        }
        let Some(object) = self.known.get(resource, key) else { return };
        for reference in self.references_of(object) {
            if let Some(dependents) = self.dependents.get_mut(&reference) {
                dependents.remove(key);
                if dependents.is_empty() {
                    self.dependents.remove(&reference);
                }
            }
        }
    }

    /// Returns the other objects that the targets of an object depend on.
    fn references_of(&self, object: &Object) -> Vec<(Resource, Arc<str>)> {
        let metadata = object.metadata();
        let mut references = Vec::new();
        match object {
            Object::Pod(pod) => {
                references.push((Resource::Nodes, Arc::from(&*pod.spec.node_name)));
            }
            Object::Endpoints(endpoints) => {
                references.push((Resource::Services, object.key()));
                for subset in &endpoints.subsets {
                    for address in subset.addresses.iter().chain(&subset.not_ready_addresses) {
                        let node = address.node_name.as_deref();
                        references.extend(references_of_endpoint(address.target_ref.as_ref(), node));
                    }
                }
            }
            Object::EndpointSlice(slice) => {
                if let Some(name) = metadata.labels.get(SERVICE_NAME_LABEL) {
                    references.push((Resource::Services, object_key(&metadata.namespace, name).into()));
                }
                for endpoint in &slice.endpoints {
                    let node = endpoint.node_name.as_deref();
                    references.extend(references_of_endpoint(endpoint.target_ref.as_ref(), node));
                }
            }
            Object::Service(_) | Object::Node(_) | Object::Namespace(_) => {}
        }
        references.push((Resource::Namespaces, Arc::from(&*metadata.namespace)));
        references.retain(|(resource, _)| self.watches(*resource));
        references
    }

    /// Returns whether objects of the resource are watched beside those of the role.
    fn watches(&self, resource: Resource) -> bool {
        match resource {
            Resource::Nodes => self.known.attached.node,
            Resource::Pods | Resource::Services => {
                matches!(self.role, Resource::Endpoints | Resource::EndpointSlices)
            }
            Resource::Namespaces => self.known.attached.namespace,
            Resource::Endpoints | Resource::EndpointSlices => false,
        }
    }

    /// Returns the groups that differ from those that were sent before.
    pub(super) fn take_changed_groups(&mut self) -> Vec<TargetGroup> {
        let changed = std::mem::take(&mut self.changed);
        let mut groups = Vec::new();
        for key in changed {
            let object = self.known.get(self.role, &key);
            let targets = object.map(|object| self.targets_of(object)).unwrap_or_default();
            let mut hasher = DefaultHasher::new();
            targets.hash(&mut hasher);
            let hash = hasher.finish();
            let is_new = if targets.is_empty() {
                self.sent.remove(&key).is_some()
            } else {
                self.sent.insert(Arc::clone(&key), hash) != Some(hash)
            };
            if is_new {
                let source = format!("{}/{key}", source_prefix(self.role));
                groups.push(TargetGroup { source, targets, is_address_untrusted: true });
            }
        }
        groups.sort_by(|left, right| left.source.cmp(&right.source));
        groups
    }

    fn targets_of(&self, object: &Object) -> Vec<Labels> {
        let mut group = Labels::default();
        match object {
            Object::Pod(pod) => {
                let node = &*pod.spec.node_name;
                if self.known.attached.node && self.known.get(Resource::Nodes, node).is_none() {
                    // The selector of nodes excludes the node.
                    return Vec::new();
                }
                set_meta(&mut group, "namespace", &pod.metadata.namespace);
                if self.known.attached.node {
                    set_labels_of_node(&mut group, Some(node), &self.known);
                }
                set_labels_of_namespace(&mut group, &pod.metadata.namespace, &self.known);
                pod_targets(pod, &group)
            }
            Object::Service(service) => {
                set_labels_of_namespace(&mut group, &service.metadata.namespace, &self.known);
                service_targets(service, &group)
            }
            Object::Node(node) => node_target(node).into_iter().collect(),
            Object::Endpoints(endpoints) => endpoints_targets(endpoints, &self.known),
            Object::EndpointSlice(slice) => slice_targets(slice, &self.known),
            Object::Namespace(_) => Vec::new(),
        }
    }
}

/// Returns the first part of the source of groups, as in Prometheus.
fn source_prefix(role: Resource) -> &'static str {
    match role {
        Resource::Pods => "pod",
        Resource::Services => "svc",
        Resource::Endpoints => "endpoints",
        Resource::EndpointSlices => "endpointslice",
        Resource::Nodes => "node",
        Resource::Namespaces => "namespace",
    }
}
