//! Labels that the receiver adds: those of the sender, and configured ones.

use std::net::IpAddr;

use athanor_profile::Labels;

use crate::config::ReceiveSettings;
use crate::targets::infer_service_name;

/// Label with the name of the service.
pub(super) const SERVICE_LABEL: &str = "service_name";

/// Source of labels by address: the pod or container that owns it.
pub trait PeerLabels: Send + Sync + 'static {
    /// Returns the labels of the owner of an address. Meta labels are allowed: `service_name` is inferred from
    /// them.
    fn labels(&self, peer: IpAddr) -> Option<Labels>;

    /// Returns whether the owners of addresses are known. Until then, a profile could get other labels than its
    /// retry.
    fn is_ready(&self) -> bool {
        true
    }
}

#[cfg(feature = "kubernetes")]
impl PeerLabels for crate::discovery::kubernetes::PodPeers {
    fn labels(&self, peer: IpAddr) -> Option<Labels> {
        self.labels(peer)
    }
}

/// Returns the labels that profiles of a sender get where they have none of that name. Labels of the sender have
/// precedence over configured ones.
pub(super) fn added_labels(
    settings: &ReceiveSettings,
    peers: &dyn PeerLabels,
    peer: Option<IpAddr>,
) -> Labels {
    let mut added = settings.labels.clone();
    let peer = peer.filter(|_| settings.adds_sender_labels);
    let Some(sender) = peer.and_then(|peer| peers.labels(peer.to_canonical())) else { return added };
    let service = infer_service_name(&sender, "");
    if !service.is_empty() {
        added.set(SERVICE_LABEL, &service);
    }
    for (name, value) in sender.iter().filter(|(name, _)| !name.starts_with("__")) {
        added.set(name, value);
    }
    added
}

/// Returns the name of a label as servers store it. Two labels with equal results are the same label.
pub(super) fn canonical_label_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
