//! Groups that are part of the configuration.

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Discoverer, TargetGroup};

/// Discoverer that sends the groups of the configuration once.
pub(super) struct StaticDiscoverer {
    groups: Vec<TargetGroup>,
}

impl StaticDiscoverer {
    /// Creates a discoverer. A group without a source has its index as source.
    pub(super) fn new(groups: &[TargetGroup]) -> Self {
        let with_source = |(index, group): (usize, &TargetGroup)| {
            let source = if group.source.is_empty() { index.to_string() } else { group.source.clone() };
            TargetGroup { source, ..group.clone() }
        };
        Self { groups: groups.iter().enumerate().map(with_source).collect() }
    }
}

#[async_trait]
impl Discoverer for StaticDiscoverer {
    async fn run(&self, updates: mpsc::Sender<Vec<TargetGroup>>, stop: CancellationToken) {
        // If nobody receives, the discoverer is about to be stopped.
        let _ = updates.send(self.groups.clone()).await;
        stop.cancelled().await;
    }
}
