//! Discoverer that reads a source again in intervals, or when the source reports a change.
//!
//! ```text
//!  interval or change ─► refresh ─► parts ─► groups that differ from those sent before ─► update
//! ```
//!
//! A source has parts that fail on their own: files, DNS names. The groups of a part that failed stay in force.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use athanor_chassis::Clock;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Discoverer, DiscoveryError, DiscoveryKind, DiscoveryStats, TargetGroup};

/// Shortest interval between two refreshes, whatever the settings say.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(100);

/// Result of reading one part of a source.
pub(super) struct PartResult {
    /// Name of the part, unique in the source.
    pub(super) part: String,
    /// Groups of the part.
    pub(super) groups: Result<Vec<TargetGroup>, DiscoveryError>,
}

/// Source of groups that is read again and again.
#[async_trait]
pub(super) trait GroupSource: Send + Sync + 'static {
    /// Kind of the source, for counters.
    fn kind(&self) -> DiscoveryKind;

    /// Interval between two refreshes.
    fn refresh_interval(&self) -> Duration;

    /// Reads all parts. A part that is not in the result does not exist any more.
    async fn refresh(&self) -> Vec<PartResult>;

    /// Waits until the source changed, before the interval ends.
    async fn wait_for_change(&self) {
        std::future::pending().await
    }
}

/// Discoverer of a [`GroupSource`].
pub(super) struct PollingDiscoverer<S> {
    source: S,
    clock: Clock,
    stats: Arc<DiscoveryStats>,
}

/// Groups and failures of a source.
#[derive(Default)]
struct SourceState {
    parts: BTreeMap<String, Vec<TargetGroup>>,
    /// Messages of parts that failed, so that a message is logged once.
    failures: BTreeMap<String, String>,
    sent: HashMap<String, TargetGroup>,
    is_sent: bool,
}

impl<S: GroupSource> PollingDiscoverer<S> {
    /// Creates a discoverer.
    pub(super) fn new(source: S, clock: Clock, stats: Arc<DiscoveryStats>) -> Self {
        Self { source, clock, stats }
    }
}

#[async_trait]
impl<S: GroupSource> Discoverer for PollingDiscoverer<S> {
    async fn run(&self, updates: mpsc::Sender<Vec<TargetGroup>>, stop: CancellationToken) {
        let run = self.refresh_and_send(&updates);
        tokio::select! {
            () = stop.cancelled() => {}
            () = run => {}
        }
    }
}

impl<S: GroupSource> PollingDiscoverer<S> {
    /// Refreshes until the receiver of updates is gone.
    async fn refresh_and_send(&self, updates: &mpsc::Sender<Vec<TargetGroup>>) {
        let mut state = SourceState::default();
        let interval = self.source.refresh_interval().max(MIN_REFRESH_INTERVAL);
        loop {
            let parts = self.source.refresh().await;
            if let Some(update) = state.apply(parts, self.source.kind(), &self.stats)
                && updates.send(update).await.is_err()
            {
                return;
            }
            tokio::select! {
                () = self.clock.sleep(interval) => {}
                () = self.source.wait_for_change() => {}
            }
        }
    }
}

impl SourceState {
    /// Replaces the parts that were read. Returns the update to send, if there is one.
    fn apply(
        &mut self,
        results: Vec<PartResult>,
        kind: DiscoveryKind,
        stats: &DiscoveryStats,
    ) -> Option<Vec<TargetGroup>> {
        let mut before = std::mem::take(&mut self.parts);
        let mut failures_before = std::mem::take(&mut self.failures);
        let mut is_available = results.is_empty();
        for PartResult { part, groups } in results {
            match groups {
                Ok(groups) => {
                    is_available = true;
                    if failures_before.remove(&part).is_some() {
                        tracing::info!(kind = kind.name(), part, "discovery works again");
                    }
                    self.parts.insert(part, groups);
                }
                Err(error) => {
                    stats.count_error(kind);
                    let message = error.to_string();
                    if failures_before.remove(&part).as_ref() == Some(&message) {
                        tracing::debug!(kind = kind.name(), error = message, "discovery still fails");
                    } else {
                        tracing::warn!(
                            kind = kind.name(),
                            error = message,
                            "discovery fails, keeping its targets"
                        );
                    }
                    if let Some(groups) = before.remove(&part) {
                        self.parts.insert(part.clone(), groups);
                    }
                    self.failures.insert(part, message);
                }
            }
        }
        let update = self.changed_groups();
        let is_first = !self.is_sent && is_available;
        if update.is_empty() && !is_first {
            return None;
        }
        self.is_sent = true;
        Some(update)
    }

    /// Returns the groups that are new, changed or removed, and remembers the groups as sent.
    fn changed_groups(&mut self) -> Vec<TargetGroup> {
        let mut before = std::mem::take(&mut self.sent);
        let mut update = Vec::new();
        for group in self.parts.values().flatten() {
            if before.remove(&group.source).as_ref() != Some(group) {
                update.push(group.clone());
            }
            self.sent.insert(group.source.clone(), group.clone());
        }
        let mut removed: Vec<String> =
            before.into_keys().filter(|source| !self.sent.contains_key(source)).collect();
        removed.sort_unstable();
        update.extend(removed.into_iter().map(|source| TargetGroup { source, ..TargetGroup::default() }));
        update
    }
}
