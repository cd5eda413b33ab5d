//! Known objects of a cluster, for the labels of other objects.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::objects::{Object, Resource};

/// Metadata of other objects that labels contain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttachedMetadata {
    pub(super) node: bool,
    pub(super) namespace: bool,
}

/// Known objects by resource and key.
pub(super) struct KnownObjects {
    pub(super) attached: AttachedMetadata,
    pub(super) objects: BTreeMap<Resource, HashMap<Arc<str>, Object>>,
}

impl KnownObjects {
    /// Returns whether the labels of nodes are attached.
    pub(super) fn attaches_node(&self) -> bool {
        self.attached.node
    }

    /// Returns a known object.
    pub(super) fn get(&self, resource: Resource, key: &str) -> Option<&Object> {
        self.objects.get(&resource)?.get(key)
    }
}
