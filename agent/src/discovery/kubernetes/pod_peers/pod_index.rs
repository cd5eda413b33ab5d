//! Index of pods by their uids, for the labels of containers.

use std::collections::HashMap;
use std::sync::Arc;

use athanor_profile::Labels;

use super::super::meta_labels::{set_container_labels, set_meta, set_pod_labels};
use super::super::objects::{Container, Pod};

/// Annotation of the mirror of a static pod. Its value is the uid that the kubelet uses in paths of cgroups.
const CONFIG_HASH_ANNOTATION: &str = "kubernetes.io/config.hash";

/// Pods that run, by uid.
#[derive(Default)]
pub(in crate::discovery::kubernetes) struct PodIndex {
    pods: HashMap<Arc<str>, Arc<Pod>>,
    /// Uids of each pod, by namespace and name.
    uids: HashMap<Arc<str>, Vec<Arc<str>>>,
}

impl PodIndex {
    /// Adds a pod, or replaces it. Pods that ended are left out.
    pub(in crate::discovery::kubernetes) fn insert(&mut self, key: &Arc<str>, pod: &Arc<Pod>) {
        self.remove(key);
        if matches!(&*pod.status.phase, "Succeeded" | "Failed") {
            return;
        }
        let config_hash = pod.metadata.annotations.get(CONFIG_HASH_ANNOTATION);
        let uids = [Some(&*pod.metadata.uid), config_hash].into_iter().flatten();
        let uids: Vec<Arc<str>> = uids.filter(|uid| !uid.is_empty()).map(Arc::from).collect();
        self.pods.extend(uids.iter().map(|uid| (Arc::clone(uid), Arc::clone(pod))));
        self.uids.insert(Arc::clone(key), uids);
    }

    /// Removes a pod.
    pub(in crate::discovery::kubernetes) fn remove(&mut self, key: &Arc<str>) {
        for uid in self.uids.remove(key).unwrap_or_default() {
            self.pods.remove(&uid);
        }
    }

    /// Returns the meta labels of a container. Without a uid, the pod is found by the id of the container.
    pub(in crate::discovery::kubernetes) fn container_labels(
        &self,
        pod_uid: Option<&str>,
        container_id: &str,
    ) -> Option<Labels> {
        let pod = match pod_uid {
            Some(uid) => self.pods.get(uid)?,
            None => self.pods.values().find(|pod| find_container(pod, container_id).is_some())?,
        };
        let mut labels = Labels::default();
        set_meta(&mut labels, "namespace", &pod.metadata.namespace);
        set_pod_labels(&mut labels, pod);
        if let Some(found) = find_container(pod, container_id) {
            set_meta(&mut labels, "pod_container_id", found.full_id);
            set_container_labels(&mut labels, found.container, None, found.is_init);
        }
        Some(labels)
    }
}

/// Container of a pod with its id.
struct FoundContainer<'a> {
    container: &'a Container,
    /// Id with the name of the runtime, such as `containerd://0f0e…`.
    full_id: &'a str,
    is_init: bool,
}

fn find_container<'a>(pod: &'a Pod, container_id: &str) -> Option<FoundContainer<'a>> {
    let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    let mut named = statuses.filter_map(|status| Some((status, status.container_id.split_once("://")?.1)));
    let (status, _) = named.find(|(_, id)| *id == container_id)?;
    let mut containers = pod.all_containers();
    let (container, is_init) = containers.find(|(container, _)| container.name == status.name)?;
    Some(FoundContainer { container, full_id: &status.container_id, is_init })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: &str) -> Arc<Pod> {
        let json = format!(
            r#"{{"metadata": {{"namespace": "shop", "name": "cart-7d9f8c-x2", "uid": "u-1",
                 "labels": {{"app.kubernetes.io/name": "cart"}},
                 "annotations": {{"kubernetes.io/config.hash": "h-1"}},
                 "ownerReferences": [{{"kind": "ReplicaSet", "name": "cart-7d9f8c", "controller": true}}]}},
                 "spec": {{"hostNetwork": true, "containers": [{{"name": "main"}}, {{"name": "proxy"}}],
                           "initContainers": [{{"name": "setup"}}]}},
                 "status": {{{status}}}}}"#
        );
        Arc::new(serde_json::from_str(&json).unwrap())
    }

    fn value(labels: Option<Labels>, name: &str) -> Option<String> {
        labels?.get(&format!("__meta_kubernetes_{name}")).map(str::to_owned)
    }

    #[test]
    fn container_is_found_by_uid_config_hash_or_its_id() {
        let mut index = PodIndex::default();
        let status = r#""containerStatuses": [{"name": "proxy", "containerID": "containerd://cc"}],
                        "initContainerStatuses": [{"name": "setup", "containerID": "containerd://11"}]"#;
        let key = Arc::from("shop/cart-7d9f8c-x2");
        index.insert(&key, &pod(status));
        for uid in [Some("u-1"), Some("h-1"), None] {
            let name = value(index.container_labels(uid, "cc"), "pod_container_name");
            assert_eq!(name.as_deref(), Some("proxy"), "{uid:?}");
        }
        let setup = index.container_labels(Some("u-1"), "11");
        assert_eq!(value(setup.clone(), "pod_container_init").as_deref(), Some("true"));
        assert_eq!(value(setup.clone(), "pod_controller_name").as_deref(), Some("cart-7d9f8c"));
        assert_eq!(value(setup, "pod_label_app_kubernetes_io_name").as_deref(), Some("cart"));
        // The sandbox of a pod is none of its containers.
        let sandbox = index.container_labels(Some("u-1"), "00");
        assert_eq!(value(sandbox.clone(), "pod_name").as_deref(), Some("cart-7d9f8c-x2"));
        assert_eq!(value(sandbox, "pod_container_name"), None);
        assert!(
            index.container_labels(Some("u-2"), "cc").is_none()
                && index.container_labels(None, "00").is_none()
        );
        index.remove(&key);
        assert!(index.container_labels(Some("h-1"), "cc").is_none());
    }

    #[test]
    fn ended_pod_is_left_out() {
        let mut index = PodIndex::default();
        index.insert(&Arc::from("shop/cart-7d9f8c-x2"), &pod(r#""phase": "Failed""#));
        assert!(index.container_labels(Some("u-1"), "cc").is_none());
    }
}
