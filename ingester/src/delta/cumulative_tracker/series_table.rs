//! Table of cumulative series: state, tenant and last arrival of each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::TenantId;
use athanor_profile::encoding::hash::{ContentHash, PrehashedMap};

use super::SeriesState;

/// Cumulative series of a shard.
#[derive(Debug, Default)]
pub struct SeriesTable {
    all: PrehashedMap<ContentHash, TrackedSeries>,
    bytes: usize,
    /// Memory of the series by tenant.
    shares: HashMap<TenantId, usize>,
}

#[derive(Debug)]
struct TrackedSeries {
    count: Arc<SeriesState>,
    /// Arrival of its last profile, by the node's monotonic clock.
    seen: Duration,
    /// Owner of the series. The log does not name it for values that were logged at a flush: the next profile
    /// names it.
    tenant: Option<TenantId>,
}

impl SeriesTable {
    /// Returns the state of a series.
    pub fn get(&self, series: ContentHash) -> Option<&Arc<SeriesState>> {
        self.all.get(&series).map(|held| &held.count)
    }

    /// Records that a profile of a series arrived, whatever its outcome.
    pub fn touch(&mut self, series: ContentHash, tenant: &TenantId, now: Duration) {
        let Some(held) = self.all.get_mut(&series) else { return };
        held.seen = now;
        if held.tenant.is_none() {
            held.tenant = Some(tenant.clone());
            *self.shares.entry(tenant.clone()).or_default() += held.count.memory();
        }
    }

    /// Replaces the state of a series.
    pub fn put(&mut self, series: ContentHash, count: SeriesState, tenant: Option<TenantId>, now: Duration) {
        let tenant = self.remove(series).and_then(|(_, before)| before).or(tenant);
        let memory = count.memory();
        self.bytes += memory;
        if let Some(tenant) = &tenant {
            *self.shares.entry(tenant.clone()).or_default() += memory;
        }
        self.all.insert(series, TrackedSeries { count: Arc::new(count), seen: now, tenant });
    }

    /// Removes a series from the table.
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

    /// Returns the series without a profile for longer than `idle`.
    pub fn idle_series(&self, idle: Duration, now: Duration) -> Vec<ContentHash> {
        let is_idle = |held: &TrackedSeries| now.saturating_sub(held.seen) > idle;
        self.all.iter().filter(|(_, held)| is_idle(held)).map(|(&series, _)| series).collect()
    }

    /// Iterates over all series.
    pub fn iter_series(&self) -> impl Iterator<Item = (ContentHash, &Arc<SeriesState>)> {
        self.all.iter().map(|(&series, held)| (series, &held.count))
    }

    /// Iterates over all series, for changes that take no memory.
    pub fn iter_series_mut(&mut self) -> impl Iterator<Item = &mut SeriesState> {
        self.all.values_mut().map(|held| Arc::make_mut(&mut held.count))
    }

    /// Returns the number of series.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the memory of all series, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory of a tenant's series, bytes.
    pub fn tenant_bytes(&self, tenant: &TenantId) -> usize {
        self.shares.get(tenant).copied().unwrap_or_default()
    }
}
