//! Times of expired rows in a catalog that is rebuilt without a snapshot.
//!
//! A query reads a time from the finest tier that is complete there. Only a snapshot names the times that
//! retention removed from each tier. Without one, the tiers themselves show that rows are gone: all of them hold
//! the rows of all covered blocks, until they expire.

use std::collections::BTreeMap;

use athanor_chassis::{TenantId, Tier};

use crate::block::{BlockEntry, TenantSpan};
use crate::state::{CatalogState, ProfileTimeRange};

/// Rows of one tenant that a tier holds.
#[derive(Clone, Copy, Debug)]
struct TierRows {
    profiles: u64,
    times: ProfileTimeRange,
}

/// Rows of one tenant by tier. Raw rows count if the tiers hold them.
type RowsByTier = BTreeMap<Tier, TierRows>;

impl CatalogState {
    /// Records times of expired rows for each tier that holds fewer profiles than another one. The exact times are
    /// unknown, so all times of the other tier count as expired. Queries read them from it.
    pub(in crate::state) fn derive_expired_times(&mut self) {
        let mut tenants: BTreeMap<TenantId, RowsByTier> = BTreeMap::new();
        for block in self.blocks().filter(|block| !block.is_uncovered()) {
            for span in &block.tenants {
                add_rows(tenants.entry(span.tenant.clone()).or_default(), block, span);
            }
        }
        for (tenant, tiers) in tenants {
            for tier in Tier::ALL {
                if let Some(times) = expired_times(&tiers, tier) {
                    self.retention.record_removed_times(&tenant, tier, times);
                }
            }
        }
    }
}

fn add_rows(tiers: &mut RowsByTier, block: &BlockEntry, span: &TenantSpan) {
    let times = ProfileTimeRange { first: span.min_time, last: span.max_time };
    let rows = tiers.entry(block.tier).or_insert(TierRows { profiles: 0, times });
    rows.profiles = rows.profiles.saturating_add(span.profiles);
    rows.times.first = rows.times.first.min(times.first);
    rows.times.last = rows.times.last.max(times.last);
}

/// Returns the times of the most complete tier, if it holds more profiles than this one.
fn expired_times(tiers: &RowsByTier, tier: Tier) -> Option<ProfileTimeRange> {
    let profiles = tiers.get(&tier).map_or(0, |rows| rows.profiles);
    let fuller = tiers.iter().filter(|(_, rows)| rows.profiles > profiles);
    // The finest of the most complete ones.
    let (_, rows) = fuller.max_by_key(|(other, rows)| (rows.profiles, std::cmp::Reverse(**other)))?;
    Some(rows.times)
}
