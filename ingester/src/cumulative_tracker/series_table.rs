//! What is kept of series, whose it is, and when they were heard of.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::TenantId;
use athanor_profile::hash::{ContentHash, PrehashedMap};

use super::SeriesState;

/// The series of a shard.
#[derive(Debug, Default)]
pub struct SeriesTable {
    all: PrehashedMap<ContentHash, TrackedSeries>,
    bytes: usize,
    /// What those of a tenant take.
    shares: HashMap<TenantId, usize>,
}

#[derive(Debug)]
struct TrackedSeries {
    count: Arc<SeriesState>,
    /// When a profile of it came last, by the node's monotonic clock.
    seen: Duration,
    /// Whose it is. The log does not say it of what was counted before a cut: then it is known when the next profile comes.
    tenant: Option<TenantId>,
}

impl SeriesTable {
    /// What a series has counted.
    pub fn get(&self, series: ContentHash) -> Option<&Arc<SeriesState>> {
        self.all.get(&series).map(|held| &held.count)
    }

    /// A profile of a series came, whatever becomes of it.
    pub fn touch(&mut self, series: ContentHash, tenant: &TenantId, now: Duration) {
        let Some(held) = self.all.get_mut(&series) else { return };
        held.seen = now;
        if held.tenant.is_none() {
            held.tenant = Some(tenant.clone());
            *self.shares.entry(tenant.clone()).or_default() += held.count.memory();
        }
    }

    /// Puts what a series has counted in the place of what it had before.
    pub fn put(&mut self, series: ContentHash, count: SeriesState, tenant: Option<TenantId>, now: Duration) {
        let tenant = self.remove(series).and_then(|(_, before)| before).or(tenant);
        let memory = count.memory();
        self.bytes += memory;
        if let Some(tenant) = &tenant {
            *self.shares.entry(tenant.clone()).or_default() += memory;
        }
        self.all.insert(series, TrackedSeries { count: Arc::new(count), seen: now, tenant });
    }

    /// Lets go of a series.
    pub fn remove(&mut self, series: ContentHash) -> Option<(Arc<SeriesState>, Option<TenantId>)> {
        let TrackedSeries { count, tenant, .. } = self.all.remove(&series)?;
        let memory = count.memory();
        self.bytes -= memory;
        if let Some(tenant) = &tenant
            && let Some(share) = self.shares.get_mut(tenant)
        {
            *share -= memory;
            if *share == 0 {
                self.shares.remove(tenant);
            }
        }
        Some((count, tenant))
    }

    /// Those of which no profile came for longer than so.
    pub fn idle_series(&self, idle: Duration, now: Duration) -> Vec<ContentHash> {
        let is_idle = |held: &TrackedSeries| now.saturating_sub(held.seen) > idle;
        self.all.iter().filter(|(_, held)| is_idle(held)).map(|(&series, _)| series).collect()
    }

    /// All of them.
    pub fn iter_series(&self) -> impl Iterator<Item = (ContentHash, &Arc<SeriesState>)> {
        self.all.iter().map(|(&series, held)| (series, &held.count))
    }

    /// All of them, to be changed in what takes no memory.
    pub fn iter_series_mut(&mut self) -> impl Iterator<Item = &mut SeriesState> {
        self.all.values_mut().map(|held| Arc::make_mut(&mut held.count))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// What they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What those of a tenant take.
    pub fn tenant_bytes(&self, tenant: &TenantId) -> usize {
        self.shares.get(tenant).copied().unwrap_or_default()
    }
}
