//! Dedup of profiles that exist in two places: hints before a query, and observations from its results.
//!
//! Sources that may hold the same profiles report the ids of selected ones. If a result counted a profile in
//! two places, the querier retries the query, and all places but one exclude the profile. The exclusions are
//! remembered for the next query, and its results are checked in the same way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::{TenantId, Timestamp};
use athanor_profile::ProfileSource;
use athanor_query::{
    BudgetedPartial, DedupSource, DuplicateExclusions, ExcludedIds, PartialResult, ProfileQuery,
    ProfileQueryError, SourceId,
};
use parking_lot::Mutex;

pub(crate) mod check;

/// Age of profiles that remote heads are assumed to have, until a peer reports older ones.
const RECENT_HEADS_WINDOW: Duration = Duration::from_hours(1);
/// Maximum number of profiles that one query excludes. Each request to a source names them.
const MAX_EXCLUDED_PROFILES: usize = 1 << 16;
/// Maximum number of tenants with remembered duplicates, and of profiles of all tenants together.
const MAX_TRACKED_TENANTS: usize = 1 << 12;
const MAX_TRACKED_PROFILES: usize = 1 << 20;

/// Known duplicates and assumptions when a plan is made.
#[derive(Clone, Debug)]
pub struct DedupHints {
    /// Profiles that some places exclude.
    pub doubles: Arc<DuplicateExclusions>,
    /// Remote heads are assumed to hold nothing older than this: Unix nanoseconds.
    pub since: i64,
    /// Number of attempts of the query.
    asked: u32,
}

/// Profile source in memory.
#[derive(Clone)]
pub struct InMemorySource {
    /// Profiles of the source.
    pub source: Arc<dyn ProfileSource>,
    /// Location that the source reports with its ids, if other places may hold the same profiles.
    pub tells: Option<SourceId>,
    /// Ids of its profiles that another place counts.
    pub without: ExcludedIds,
}

/// Observations while a query runs.
#[derive(Debug, Default)]
pub(crate) struct DedupObservations(Mutex<ObservedTimes>);

#[derive(Clone, Copy, Debug, Default)]
struct ObservedTimes {
    /// First timestamp of profiles in the memory of peers.
    afar: Option<i64>,
    /// Last timestamp of profiles that a place did not report by id.
    untold: Option<i64>,
}

/// Result of the check that each profile counted once.
pub(crate) enum DedupOutcome {
    /// Final result. None if no source returned anything.
    Counted(Option<BudgetedPartial>),
    /// The query must be retried.
    Again,
}

/// Duplicates found so far, by tenant.
#[derive(Default)]
pub(crate) struct DuplicateIndex {
    known: Mutex<BTreeMap<TenantId, TenantDuplicates>>,
    again: AtomicU64,
}

#[derive(Clone, Default)]
struct TenantDuplicates {
    doubles: Arc<DuplicateExclusions>,
    /// Number of profiles in `doubles`.
    profiles: usize,
    /// First timestamp observed in remote heads, if it is not recent.
    since: Option<i64>,
}

impl Default for DedupHints {
    fn default() -> Self {
        DedupHints { doubles: Arc::default(), since: i64::MIN, asked: 0 }
    }
}

impl DedupHints {
    /// Returns true before the first check of the query.
    pub(crate) fn is_first(&self) -> bool {
        self.asked == 0
    }
}

impl From<Arc<dyn ProfileSource>> for InMemorySource {
    /// Wraps a source that shares no profiles with other places.
    fn from(source: Arc<dyn ProfileSource>) -> Self {
        InMemorySource { source, tells: None, without: ExcludedIds::default() }
    }
}

impl TenantDuplicates {
    /// Returns known and new exclusions together. If those are too many, returns only the new ones.
    fn merged_with(&self, found: &DuplicateExclusions) -> Self {
        let mut doubles = DuplicateExclusions::clone(&self.doubles);
        doubles.merge_newer(found);
        if doubles.count_excluded() > MAX_EXCLUDED_PROFILES {
            doubles = found.clone();
        }
        TenantDuplicates { profiles: doubles.count_excluded(), doubles: Arc::new(doubles), since: self.since }
    }
}

impl InMemorySource {
    pub(crate) fn query_source(&self, ask: &ProfileQuery) -> Result<PartialResult, ProfileQueryError> {
        let InMemorySource { source, tells, without } = self;
        DedupSource { source: source.as_ref(), tells: *tells, without }.query_source(ask)
    }
}

impl DedupObservations {
    /// Records that a peer has profiles in memory, with their first timestamp.
    pub(crate) fn observe_remote(&self, first: i64) {
        let mut seen = self.0.lock();
        seen.afar = Some(seen.afar.map_or(first, |before| before.min(first)));
    }

    /// Records that a place did not report ids of profiles, with their last timestamp.
    pub(crate) fn observe_unreported(&self, last: Option<i64>) {
        let mut seen = self.0.lock();
        seen.untold = seen.untold.max(last);
    }

    /// Returns true if peers have nothing older than this in memory.
    fn is_recent(&self, since: i64) -> bool {
        let seen = *self.0.lock();
        seen.afar.is_none_or(|first| first >= since)
    }

    /// Returns the time from which places should have reported ids, if one did not.
    fn unreported_since(&self) -> Option<i64> {
        let seen = *self.0.lock();
        seen.afar.filter(|first| seen.untold.is_some_and(|last| *first <= last))
    }
}

impl DuplicateIndex {
    /// Returns the number of retried queries.
    pub(crate) fn retry_count(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }

    /// Returns the hints for the first plan of a query.
    pub(crate) fn hints_for(&self, tenants: &[TenantId], now: Timestamp) -> DedupHints {
        let known: Vec<TenantDuplicates> = {
            let all = self.known.lock();
            tenants.iter().filter_map(|tenant| all.get(tenant).cloned()).collect()
        };
        let since = known.iter().filter_map(|of| of.since).min().unwrap_or(i64::MAX);
        let since = since.min(now.minus(RECENT_HEADS_WINDOW).nanos());
        let doubles = match <[TenantDuplicates; 1]>::try_from(known) {
            Ok([of_one]) => of_one.doubles,
            // A merge of several tenants' exclusions takes longer than finding them in a retry.
            Err(_) => Arc::default(),
        };
        DedupHints { doubles, since, asked: 0 }
    }

    /// Counts a retry and remembers its findings, if the query reads only one tenant.
    fn record_duplicates(&self, tenants: &[TenantId], find: impl FnOnce(&mut TenantDuplicates)) {
        self.again.fetch_add(1, Ordering::Relaxed);
        // Findings over several tenants would expose profiles of one tenant to the others.
        let [tenant] = tenants else { return };
        let mut known = self.known.lock();
        find(known.entry(tenant.clone()).or_default());
        // A later query can rediscover dropped entries.
        let all: usize = known.values().map(|of| of.profiles).sum();
        if known.len() > MAX_TRACKED_TENANTS || all > MAX_TRACKED_PROFILES {
            known.retain(|of, _| of == tenant);
        }
    }

    /// Forgets older remote heads if the query covered their time and found only recent ones.
    fn mark_all_recent(&self, tenants: &[TenantId], from: i64) {
        let mut known = self.known.lock();
        for tenant in tenants {
            if let Some(of_tenant) = known.get_mut(tenant)
                && of_tenant.since.is_some_and(|since| from <= since)
            {
                of_tenant.since = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn doubles(block: u128, ids: impl IntoIterator<Item = u128>) -> DuplicateExclusions {
        [(SourceId::Block(block), ExcludedIds::new(BTreeSet::from_iter(ids)))].into_iter().collect()
    }

    #[test]
    fn what_was_found_is_remembered_of_each_tenant_within_bounds() {
        let (twice, now) = (DuplicateIndex::default(), Timestamp::UNIX_EPOCH.plus(RECENT_HEADS_WINDOW));
        let [shop, other]: [TenantId; 2] = ["shop", "other"].map(|name| name.parse().unwrap());
        let known = |tenant: &TenantId| {
            DuplicateExclusions::clone(&twice.hints_for(std::slice::from_ref(tenant), now).doubles)
        };
        let learn = |tenants: &[TenantId], found: DuplicateExclusions| {
            twice.record_duplicates(tenants, |known| *known = known.merged_with(&found))
        };
        learn(std::slice::from_ref(&shop), doubles(1, [7]));
        learn(std::slice::from_ref(&shop), doubles(1, [8]));
        assert_eq!((known(&shop), known(&other)), (doubles(1, [7, 8]), DuplicateExclusions::default()));
        learn(&[shop.clone(), other.clone()], doubles(2, [9]));
        assert_eq!(known(&other), DuplicateExclusions::default(), "whose it is was not said");
        // More than one question may name: what is newest is kept.
        learn(std::slice::from_ref(&shop), doubles(3, 0..MAX_EXCLUDED_PROFILES as u128));
        assert_eq!(known(&shop).count_excluded(), MAX_EXCLUDED_PROFILES);
        let since = || twice.hints_for(std::slice::from_ref(&shop), now).since;
        assert_eq!(since(), 0);
        twice.record_duplicates(std::slice::from_ref(&shop), |known| known.since = Some(-5));
        assert_eq!(since(), -5);
        twice.mark_all_recent(std::slice::from_ref(&shop), -4);
        assert_eq!(since(), -5, "nobody has looked so far back");
        twice.mark_all_recent(std::slice::from_ref(&shop), -5);
        assert_eq!(since(), 0);
        for tenant in 0..MAX_TRACKED_TENANTS {
            learn(&[format!("t{tenant}").parse().unwrap()], doubles(1, [1]));
        }
        assert_eq!(twice.known.lock().len(), 1);
    }

    #[test]
    fn a_peer_with_older_profiles_than_others_have_told_of_is_late() {
        let met = DedupObservations::default();
        met.observe_unreported(Some(10));
        assert_eq!(met.unreported_since(), None);
        met.observe_remote(11);
        assert_eq!(met.unreported_since(), None);
        met.observe_unreported(None);
        met.observe_remote(4);
        met.observe_remote(20);
        assert_eq!(met.unreported_since(), Some(4));
    }
}
