//! Discoverer that runs in a test.

use std::sync::Arc;

use athanor_chassis::net::LocalNet;
use athanor_chassis::time::clock::ManualClock;
use athanor_chassis::{Clock, TaskGroup, Timestamp};
use tokio::sync::mpsc;

use super::*;
use crate::address_policy::{AddressPolicy, AddressPolicySettings};

/// Running discoverer with its updates. Its clock stands still.
pub(super) struct DiscoveryRun {
    pub(super) updates: mpsc::Receiver<Vec<TargetGroup>>,
    pub(super) stats: Arc<DiscoveryStats>,
    pub(super) hand: ManualClock,
    stop: CancellationToken,
}

impl DiscoveryRun {
    /// Starts a discoverer on loopback with its own DNS servers.
    pub(super) fn start(settings: &DiscoverySettings, dns_servers: DnsServers) -> Self {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let net = Arc::new(LocalNet::new(Clock::system()));
        let stats = Arc::new(DiscoveryStats::default());
        let policy =
            AddressPolicy::new(Arc::clone(&net) as _, clock.clone(), AddressPolicySettings::default());
        let factory = StandardDiscovererFactory {
            net,
            clock,
            policy,
            stats: Arc::clone(&stats),
            dns_servers,
            kubernetes: None,
        };
        let discoverer = factory.create(settings).unwrap();
        let (sender, updates) = mpsc::channel(8);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let tasks = TaskGroup::new(Clock::system(), 1);
        tasks.spawn("discoverer", async move { discoverer.run(sender, stopped).await }).unwrap();
        Self { updates, stats, hand, stop }
    }

    /// Returns the next update.
    pub(super) async fn next(&mut self) -> Vec<TargetGroup> {
        self.updates.recv().await.unwrap()
    }

    /// Stops the discoverer, which closes its updates.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        assert_eq!(self.updates.recv().await, None);
    }
}

/// Returns the labels of all targets, each as text, with the trust of the groups.
pub(super) fn target_texts(groups: &[TargetGroup]) -> Vec<(String, String, bool)> {
    let text = |group: &TargetGroup, labels: &Labels| {
        (group.source.clone(), labels.to_string(), group.is_address_untrusted)
    };
    groups.iter().flat_map(|group| group.targets.iter().map(|labels| text(group, labels))).collect()
}
