//! Objects of a cluster with their versions, as the API server of Kubernetes keeps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

/// Resources: plural, kind, API version.
const RESOURCES: [(&str, &str, &str); 6] = [
    ("pods", "Pod", "v1"),
    ("nodes", "Node", "v1"),
    ("services", "Service", "v1"),
    ("endpoints", "Endpoints", "v1"),
    ("namespaces", "Namespace", "v1"),
    ("endpointslices", "EndpointSlice", "discovery.k8s.io/v1"),
];

/// Plural, namespace and name.
type ObjectKey = (String, String, String);
type ObjectMap = BTreeMap<ObjectKey, Arc<Value>>;

/// Objects, and the changes since the oldest version that a watch may start from.
pub(crate) struct Cluster {
    version: u64,
    oldest_version: u64,
    objects: ObjectMap,
    events: Vec<ClusterEvent>,
    /// Objects at the versions of lists with several pages.
    snapshots: BTreeMap<u64, ObjectMap>,
}

struct ClusterEvent {
    version: u64,
    plural: String,
    before: Option<Arc<Value>>,
    after: Option<Arc<Value>>,
}

/// Objects that a request selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) plural: String,
    /// Namespace. None for all.
    pub(crate) namespace: Option<String>,
    /// Labels that objects must have.
    pub(crate) labels: Vec<(String, String)>,
    /// Fields that objects must have, by path.
    pub(crate) fields: Vec<(String, String)>,
}

/// Version that is older than the oldest one.
#[derive(Debug)]
pub(crate) struct VersionExpired;

impl Cluster {
    pub(crate) fn new() -> Self {
        Self {
            version: 1000,
            oldest_version: 1000,
            objects: BTreeMap::new(),
            events: Vec::new(),
            snapshots: BTreeMap::new(),
        }
    }

    /// Current version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Adds or replaces an object. Its kind determines the resource.
    pub(crate) fn apply(&mut self, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let key = key_of(&object);
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        self.events.push(ClusterEvent { version: self.version, plural: key.0, before, after: Some(object) });
    }

    /// Deletes an object.
    pub(crate) fn delete(&mut self, plural: &str, namespace: &str, name: &str) {
        let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        let object = self.objects.remove(&key).expect("the object exists");
        self.version += 1;
        let mut last = (*object).clone();
        last["metadata"]["resourceVersion"] = self.version.to_string().into();
        let before = Some(Arc::new(last));
        self.events.push(ClusterEvent {
            version: self.version,
            plural: plural.to_owned(),
            before,
            after: None,
        });
    }

    /// Forgets all versions before the current one, and the lists that are under way.
    pub(crate) fn compact(&mut self) {
        self.oldest_version = self.version;
        self.events.clear();
        self.snapshots.clear();
    }

    /// Returns a page of a list. The token of the next page is in its metadata.
    pub(crate) fn list(
        &mut self,
        selection: &Selection,
        limit: usize,
        page_token: &str,
    ) -> Result<Value, VersionExpired> {
        let (version, offset) = match page_token.split_once('.') {
            Some((version, offset)) => (version.parse().unwrap(), offset.parse().unwrap()),
            None => (self.version, 0),
        };
        let objects = match self.snapshots.get(&version) {
            Some(snapshot) => snapshot,
            None if page_token.is_empty() => &self.objects,
            None => return Err(VersionExpired),
        };
        let selected: Vec<&Arc<Value>> =
            objects.values().filter(|object| selection.contains(&plural_of(object), object)).collect();
        let items: Vec<Value> =
            selected.iter().skip(offset).take(limit).map(|object| without_kind(object)).collect();
        let mut metadata = json!({"resourceVersion": version.to_string()});
        let end = offset + items.len();
        let remaining = selected.len() - end;
        if remaining > 0 {
            metadata["continue"] = format!("{version}.{end}").into();
            metadata["remainingItemCount"] = remaining.into();
            let snapshot = objects.clone();
            self.snapshots.insert(version, snapshot);
        }
        let (kind, api_version) = resource(&selection.plural);
        Ok(json!({
            "kind": format!("{kind}List"), "apiVersion": api_version, "metadata": metadata, "items": items,
        }))
    }

    /// Returns the current version, and an event for each object as a watch without a version begins with.
    pub(crate) fn added_events(&self, selection: &Selection) -> (u64, Vec<String>) {
        let selected = self.objects.values().filter(|object| selection.contains(&plural_of(object), object));
        let events = selected.map(|object| json!({"type": "ADDED", "object": **object}).to_string());
        (self.version, events.collect())
    }

    /// Returns the events of a watch after a version: type and object.
    pub(crate) fn events_after(
        &self,
        selection: &Selection,
        version: u64,
    ) -> Result<Vec<Value>, VersionExpired> {
        if version < self.oldest_version {
            return Err(VersionExpired);
        }
        let later =
            self.events.iter().filter(|event| event.version > version && event.plural == selection.plural);
        Ok(later.filter_map(|event| event.describe(selection)).collect())
    }
}

impl ClusterEvent {
    /// Returns the event as a watch of the selection sees it.
    fn describe(&self, selection: &Selection) -> Option<Value> {
        let selected = |object: &Option<Arc<Value>>| {
            object.clone().filter(|object| selection.contains(&self.plural, object))
        };
        let before = selected(&self.before);
        let (kind, object) = match (before, selected(&self.after)) {
            (None, None) => return None,
            (None, Some(after)) => ("ADDED", after),
            (Some(_), Some(after)) => ("MODIFIED", after),
            // An object that is selected no more is sent as it is now.
            (Some(before), None) => ("DELETED", self.after.clone().unwrap_or(before)),
        };
        Some(json!({"type": kind, "object": *object}))
    }
}

impl Selection {
    fn contains(&self, plural: &str, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let has_field = |(path, value): &(String, String)| {
            let found = path.split('.').fold(object, |found, name| &found[name]);
            found.as_str().unwrap_or_default() == value
        };
        plural == self.plural
            && self.namespace.as_ref().is_none_or(|namespace| metadata["namespace"] == **namespace)
            && self.labels.iter().all(|(name, value)| metadata["labels"][name] == **value)
            && self.fields.iter().all(has_field)
    }
}

/// Returns kind and API version of a resource.
pub(crate) fn resource(plural: &str) -> (&'static str, &'static str) {
    let (_, kind, api_version) =
        RESOURCES.iter().find(|(known, ..)| *known == plural).expect("the resource is known");
    (kind, api_version)
}

/// Returns whether the API has the resource.
pub(crate) fn is_resource(plural: &str, api_version: &str) -> bool {
    RESOURCES.iter().any(|(known, _, version)| *known == plural && *version == api_version)
}

fn plural_of(object: &Value) -> String {
    let kind = object["kind"].as_str().expect("the object has a kind");
    let (plural, ..) = RESOURCES.iter().find(|(_, known, _)| *known == kind).expect("the kind is known");
    (*plural).to_owned()
}

fn key_of(object: &Value) -> ObjectKey {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    (plural_of(object), text("namespace"), text("name"))
}

/// Returns the object as an item of a list, which has no kind of its own.
fn without_kind(object: &Value) -> Value {
    let mut item = object.clone();
    if let Some(fields) = item.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    item
}
