//! Counters of discovery, and their metric families.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};

use super::DiscoverySettings;

/// Kind of a discoverer, as in `<kind>_sd_configs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryKind {
    /// Groups of the configuration.
    Static,
    /// Files.
    File,
    /// HTTP list.
    Http,
    /// DNS records.
    Dns,
    /// Kubernetes cluster.
    Kubernetes,
    /// Docker daemon.
    Docker,
}

/// Counters of all discoverers, by kind.
#[derive(Debug, Default)]
pub struct DiscoveryStats {
    kinds: [KindStats; DiscoveryKind::ALL.len()],
}

#[derive(Debug, Default)]
struct KindStats {
    errors: AtomicU64,
    updates: AtomicU64,
}

/// Counters of one kind at one scrape.
pub struct DiscoverySnapshot {
    kind: DiscoveryKind,
    errors: u64,
    updates: u64,
}

/// Metrics of discovery.
pub const DISCOVERY_METRICS: &[MetricFamily<DiscoverySnapshot>] = &[
    MetricFamily::counter(
        "athanor_agent_discovery_errors_total",
        "Number of failed refreshes of target sources, after which the targets of before stay in force",
        &["kind"],
        |snapshot, samples| samples.add_labeled(&[snapshot.kind.name()], snapshot.errors),
    ),
    MetricFamily::counter(
        "athanor_agent_discovery_updates_total",
        "Number of changes of discovered targets that discoverers reported",
        &["kind"],
        |snapshot, samples| samples.add_labeled(&[snapshot.kind.name()], snapshot.updates),
    ),
];

impl DiscoveryKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Static, Self::File, Self::Http, Self::Dns, Self::Kubernetes, Self::Docker];

    /// Name of the kind.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::File => "file",
            Self::Http => "http",
            Self::Dns => "dns",
            Self::Kubernetes => "kubernetes",
            Self::Docker => "docker",
        }
    }

    /// Returns the kind of the discoverer with these settings.
    pub const fn from_settings(settings: &DiscoverySettings) -> Self {
        match settings {
            DiscoverySettings::Static(_) => Self::Static,
            DiscoverySettings::File(_) => Self::File,
            DiscoverySettings::Http(_) => Self::Http,
            DiscoverySettings::Dns(_) => Self::Dns,
            DiscoverySettings::Kubernetes(_) => Self::Kubernetes,
            DiscoverySettings::Docker(_) => Self::Docker,
        }
    }
}

impl DiscoveryStats {
    /// Counts a failed refresh.
    pub fn count_error(&self, kind: DiscoveryKind) {
        self.kinds[kind as usize].errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an update of targets.
    pub fn count_update(&self, kind: DiscoveryKind) {
        self.kinds[kind as usize].updates.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of failed refreshes of a kind.
    pub fn errors(&self, kind: DiscoveryKind) -> u64 {
        self.kinds[kind as usize].errors.load(Ordering::Relaxed)
    }

    /// Number of updates of a kind.
    pub fn updates(&self, kind: DiscoveryKind) -> u64 {
        self.kinds[kind as usize].updates.load(Ordering::Relaxed)
    }

    fn snapshots(&self) -> Vec<DiscoverySnapshot> {
        let snapshot =
            |kind| DiscoverySnapshot { kind, errors: self.errors(kind), updates: self.updates(kind) };
        DiscoveryKind::ALL.map(snapshot).into()
    }
}

/// Returns a collector of the metrics of discovery.
pub fn discovery_collector(stats: Arc<DiscoveryStats>) -> MetricCollector {
    metric_collector(DISCOVERY_METRICS, move || stats.snapshots())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_separate_by_kind() {
        let stats = DiscoveryStats::default();
        for (times, kind) in DiscoveryKind::ALL.into_iter().enumerate() {
            (0..times).for_each(|_| stats.count_error(kind));
            stats.count_update(kind);
        }
        let snapshots = stats.snapshots();
        let errors: Vec<_> =
            snapshots.iter().map(|snapshot| (snapshot.kind.name(), snapshot.errors)).collect();
        let expected =
            [("static", 0), ("file", 1), ("http", 2), ("dns", 3), ("kubernetes", 4), ("docker", 5)];
        assert_eq!(errors, expected);
        assert!(snapshots.iter().all(|snapshot| snapshot.updates == 1));
    }
}
