//! Pod peers: labels of pods by the addresses that they connect from, and of containers by their ids.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use athanor_profile::Labels;
use parking_lot::RwLock;

use self::pod_index::PodIndex;
use super::meta_labels::{sanitize_label_name, set_meta};
use super::objects::Pod;

mod pod_index;

/// Annotation of a pod with the name of its service.
const SERVICE_NAME_ANNOTATION: &str = "pyroscope.io/service_name";

/// Labels of pods by address. Pods in the network of their node share its address and are left out, as are
/// pods that ended, because their addresses are reused.
#[derive(Default)]
pub struct PodPeers {
    addresses: RwLock<PeerTable>,
    pods: RwLock<PodIndex>,
}

#[derive(Default)]
struct PeerTable {
    pods: HashMap<IpAddr, PeerPod>,
    addresses: HashMap<Arc<str>, Box<[IpAddr]>>,
}

/// Pod with an address. Its labels are made when they are needed, because most pods send nothing.
#[derive(Clone)]
struct PeerPod {
    /// Namespace and name.
    key: Arc<str>,
    /// Name of the only container. Empty if there are several.
    container: Box<str>,
    /// Value of [`SERVICE_NAME_ANNOTATION`]. Empty without it.
    service_name: Box<str>,
}

impl PodPeers {
    /// Returns the labels of the pod with an address: `namespace`, `pod`, `container` if it has only one, and
    /// the meta labels that `service_name` is inferred from. None if no pod has the address.
    pub fn labels(&self, peer: IpAddr) -> Option<Labels> {
        let table = self.addresses.read();
        table.pods.get(&peer.to_canonical()).map(PeerPod::labels)
    }

    /// Returns the meta labels of a container, by its id and the uid of its pod. Labels of the pod alone are those of
    /// a container that the API does not show yet. None if no pod has the uid.
    pub fn container_labels(&self, pod_uid: Option<&str>, container_id: &str) -> Option<Labels> {
        self.pods.read().container_labels(pod_uid, container_id)
    }

    pub(super) fn insert(&self, key: &Arc<str>, pod: &Arc<Pod>) {
        self.pods.write().insert(key, pod);
        let mut table = self.addresses.write();
        table.remove(key);
        let is_ended = matches!(&*pod.status.phase, "Succeeded" | "Failed");
        if is_ended || pod.spec.host_network {
            return;
        }
        let texts = pod.status.pod_ips.iter().map(|address| &address.ip).chain([&pod.status.pod_ip]);
        let mut addresses: Vec<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.is_empty() {
            return;
        }
        let peer = PeerPod::new(key, pod);
        for address in &addresses {
            table.pods.insert(*address, peer.clone());
        }
        table.addresses.insert(Arc::clone(key), addresses.into());
    }

    pub(super) fn remove(&self, key: &Arc<str>) {
        self.pods.write().remove(key);
        self.addresses.write().remove(key);
    }
}

impl PeerTable {
    fn remove(&mut self, key: &Arc<str>) {
        for address in self.addresses.remove(key).unwrap_or_default() {
            // Another pod may have the address by now.
            if self.pods.get(&address).is_some_and(|pod| pod.key == *key) {
                self.pods.remove(&address);
            }
        }
    }
}

impl PeerPod {
    fn new(key: &Arc<str>, pod: &Pod) -> Self {
        let annotations = &pod.metadata.annotations;
        let container = match &*pod.spec.containers {
            [container] => container.name.clone(),
            _ => Box::default(),
        };
        let service_name = annotations.get(SERVICE_NAME_ANNOTATION).unwrap_or_default().into();
        Self { key: Arc::clone(key), container, service_name }
    }

    fn labels(&self) -> Labels {
        let (namespace, name) = self.key.split_once('/').unwrap_or(("", &self.key));
        let mut labels = Labels::default();
        labels.set("namespace", namespace);
        labels.set("pod", name);
        labels.set("container", &self.container);
        set_meta(&mut labels, "namespace", namespace);
        set_meta(&mut labels, "pod_name", name);
        set_meta(&mut labels, "pod_container_name", &self.container);
        let name = sanitize_label_name(SERVICE_NAME_ANNOTATION);
        set_meta(&mut labels, &format!("pod_annotation_{name}"), &self.service_name);
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, more: &str, status: &str) -> Arc<Pod> {
        let json = format!(
            r#"{{"metadata": {{"namespace": "shop", "name": "{name}",
                 "annotations": {{"pyroscope.io/service_name": "cart"}}}}, "spec": {{{more}}}, "status": {{{status}}}}}"#
        );
        Arc::new(serde_json::from_str(&json).unwrap())
    }

    fn lookup(peers: &PodPeers, address: &str) -> Option<String> {
        let labels = peers.labels(address.parse().unwrap())?;
        Some(labels.get("pod").unwrap().to_owned())
    }

    #[test]
    fn peer_of_pod_address_has_labels_of_pod() {
        let peers = PodPeers::default();
        let status = r#""podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]"#;
        peers.insert(&"shop/a".into(), &pod("a", r#""containers": [{"name": "main"}]"#, status));
        let labels = peers.labels("::ffff:10.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(labels.get("container"), Some("main"));
        assert_eq!(labels.get("__meta_kubernetes_pod_annotation_pyroscope_io_service_name"), Some("cart"));
        assert_eq!(lookup(&peers, "fd00::1").as_deref(), Some("a"));
        assert_eq!(lookup(&peers, "10.0.0.2"), None);
        peers.remove(&"shop/a".into());
        assert_eq!(lookup(&peers, "fd00::1"), None);
    }

    #[test]
    fn peer_of_several_containers_has_no_container() {
        let peers = PodPeers::default();
        let containers = r#""containers": [{"name": "main"}, {"name": "proxy"}]"#;
        peers.insert(&"shop/a".into(), &pod("a", containers, r#""podIP": "10.0.0.1""#));
        assert_eq!(peers.labels("10.0.0.1".parse().unwrap()).unwrap().get("container"), None);
    }

    #[test]
    fn address_of_ended_or_host_pod_belongs_to_no_peer() {
        let peers = PodPeers::default();
        peers.insert(&"shop/a".into(), &pod("a", r#""hostNetwork": true"#, r#""podIP": "10.0.0.1""#));
        peers.insert(&"shop/b".into(), &pod("b", "", r#""podIP": "10.0.0.2", "phase": "Succeeded""#));
        assert_eq!(lookup(&peers, "10.0.0.1"), None);
        assert_eq!(lookup(&peers, "10.0.0.2"), None);
    }

    #[test]
    fn deletion_of_old_pod_keeps_reused_address() {
        let peers = PodPeers::default();
        peers.insert(&"shop/a".into(), &pod("a", "", r#""podIP": "10.0.0.1""#));
        peers.insert(&"shop/b".into(), &pod("b", "", r#""podIP": "10.0.0.1""#));
        peers.remove(&"shop/a".into());
        assert_eq!(lookup(&peers, "10.0.0.1").as_deref(), Some("b"));
    }
}
