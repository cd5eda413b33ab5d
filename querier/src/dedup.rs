//! Profiles that lie in two places: what is known of them before a question is asked, and what its answers tell.
//!
//! Places that may hold the same profiles tell the ids of those that are meant. Where an answer counted one twice, the
//! question is asked again, and all but one place leave it out; what was found is remembered for the next question, whose
//! answers are held to the same.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use athanor_chassis::{CpuActivity, Status, TenantId, Timestamp};
use athanor_profile::ProfileSource;
use athanor_query::{
    BudgetedPartial, DedupSource, DuplicateExclusions, ExcludedIds, PartialResult, ProfileQuery,
    ProfileQueryError, SourceId,
};

use crate::fan_out::QueryExecution;
use crate::{Querier, QueryContext};

/// Of which time heads elsewhere are thought to have profiles, unless it is seen that they have older ones.
const RECENT_HEADS_WINDOW: Duration = Duration::from_hours(1);
/// How often a question is asked again for profiles that counted twice.
const MAX_DEDUP_RETRIES: u32 = 4;
/// Profiles that one question leaves out somewhere: they are named in each.
const MAX_EXCLUDED_PROFILES: usize = 1 << 16;
/// Tenants of which it is remembered what lies in two places, and how much of all of them.
const MAX_TRACKED_TENANTS: usize = 1 << 12;
const MAX_TRACKED_PROFILES: usize = 1 << 20;

/// What is known of profiles that lie in two places, when a plan is made.
#[derive(Clone, Debug)]
pub struct DedupHints {
    /// Those that do not count in some places.
    pub doubles: Arc<DuplicateExclusions>,
    /// Heads of other nodes are thought to hold nothing older: Unix nanoseconds.
    pub since: i64,
    /// How often the question was asked.
    asked: u32,
}

/// A source in memory.
#[derive(Clone)]
pub struct InMemorySource {
    /// It.
    pub source: Arc<dyn ProfileSource>,
    /// Where its profiles lie, if they are to be told: others may hold the same ones.
    pub tells: Option<SourceId>,
    /// Those of its profiles that count elsewhere.
    pub without: ExcludedIds,
}

/// What was seen while a question was answered.
#[derive(Debug, Default)]
pub(crate) struct DedupObservations(Mutex<ObservedTimes>);

#[derive(Clone, Copy, Debug, Default)]
struct ObservedTimes {
    /// The first moment of profiles that peers have in memory.
    afar: Option<i64>,
    /// The last moment of profiles of which a place did not tell.
    untold: Option<i64>,
}

/// Whether each profile counted once.
pub(crate) enum DedupOutcome {
    /// This is the answer; none where nothing came.
    Counted(Option<BudgetedPartial>),
    /// The question is to be asked again.
    Again,
}

/// What was found so far, by tenant.
#[derive(Default)]
pub(crate) struct DuplicateIndex {
    known: Mutex<BTreeMap<TenantId, TenantDuplicates>>,
    again: AtomicU64,
}

#[derive(Clone, Default)]
struct TenantDuplicates {
    doubles: Arc<DuplicateExclusions>,
    /// How many that are.
    profiles: usize,
    /// The first moment of what heads elsewhere were seen to have, if it is not recent.
    since: Option<i64>,
}

impl Default for DedupHints {
    fn default() -> Self {
        DedupHints { doubles: Arc::default(), since: i64::MIN, asked: 0 }
    }
}

impl DedupHints {
    /// Whether the question was not asked before.
    pub(crate) fn is_first(&self) -> bool {
        self.asked == 0
    }
}

impl From<Arc<dyn ProfileSource>> for InMemorySource {
    /// One whose profiles lie nowhere else.
    fn from(source: Arc<dyn ProfileSource>) -> Self {
        InMemorySource { source, tells: None, without: ExcludedIds::default() }
    }
}

impl TenantDuplicates {
    /// What is left out where, by all that is known; where that is too much, by what was just found.
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
    /// A peer has profiles in memory, the first of this moment.
    pub(crate) fn observe_remote(&self, first: i64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.afar = Some(seen.afar.map_or(first, |before| before.min(first)));
    }

    /// A place did not tell of profiles, the last of this moment.
    pub(crate) fn observe_unreported(&self, last: Option<i64>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.untold = seen.untold.max(last);
    }

    /// Whether peers have nothing in memory that is older than this.
    fn is_recent(&self, since: i64) -> bool {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.afar.is_none_or(|first| first >= since)
    }

    /// Since when places should have told of their profiles, where one did not.
    fn unreported_since(&self) -> Option<i64> {
        let seen = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.afar.filter(|first| seen.untold.is_some_and(|last| *first <= last))
    }
}

impl DuplicateIndex {
    /// How often a question was asked again.
    pub(crate) fn retry_count(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }

    /// What is known before any answer.
    pub(crate) fn hints_for(&self, tenants: &[TenantId], now: Timestamp) -> DedupHints {
        let known: Vec<TenantDuplicates> = {
            let all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            tenants.iter().filter_map(|tenant| all.get(tenant).cloned()).collect()
        };
        let since = known.iter().filter_map(|of| of.since).min().unwrap_or(i64::MAX);
        let since = since.min(now.minus(RECENT_HEADS_WINDOW).nanos());
        let doubles = match <[TenantDuplicates; 1]>::try_from(known) {
            Ok([of_one]) => of_one.doubles,
            // What is of several takes a while to put together, longer than to find it.
            Err(_) => Arc::default(),
        };
        DedupHints { doubles, since, asked: 0 }
    }

    /// Remembers what was found.
    fn record_duplicates(&self, tenants: &[TenantId], find: impl FnOnce(&mut TenantDuplicates)) {
        self.again.fetch_add(1, Ordering::Relaxed);
        // What is of several tenants would name profiles of one to the others.
        let [tenant] = tenants else { return };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        find(known.entry(tenant.clone()).or_default());
        // Whatever is forgotten is found again.
        let all: usize = known.values().map(|of| of.profiles).sum();
        if known.len() > MAX_TRACKED_TENANTS || all > MAX_TRACKED_PROFILES {
            known.retain(|of, _| of == tenant);
        }
    }

    /// Heads elsewhere have nothing that is older than what is recent, as far back as was asked.
    fn mark_all_recent(&self, tenants: &[TenantId], from: i64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for tenant in tenants {
            if let Some(of_tenant) = known.get_mut(tenant)
                && of_tenant.since.is_some_and(|since| from <= since)
            {
                of_tenant.since = None;
            }
        }
    }
}

impl Querier {
    /// Whether each profile counted once; else the question is asked again, as doubts say then.
    pub(crate) async fn check_dedup(
        &self,
        reader: &QueryContext,
        merging: &Arc<QueryExecution>,
        doubts: &mut DedupHints,
    ) -> Result<DedupOutcome, Status> {
        if !merging.ask.needs_dedup() {
            return Ok(DedupOutcome::Counted(merging.meeting.take_merged()));
        }
        doubts.asked += 1;
        let may_ask = doubts.asked <= MAX_DEDUP_RETRIES;
        if let Some(since) = merging.met.unreported_since().filter(|_| may_ask) {
            doubts.since = since;
            self.twice.record_duplicates(reader.tenants(), |known| known.since = Some(since));
            return Ok(DedupOutcome::Again);
        }
        if merging.met.is_recent(self.deps.clock.wall().minus(RECENT_HEADS_WINDOW).nanos()) {
            self.twice.mark_all_recent(reader.tenants(), merging.ask.selection.time.from);
        }
        let Some(BudgetedPartial { partial, mut taken }) = merging.meeting.take_merged() else {
            return Ok(DedupOutcome::Counted(None));
        };
        let (partial, ids) = partial.split_ids();
        if ids.by_source().is_empty() && merging.met.unreported_since().is_none() {
            return Ok(DedupOutcome::Counted(Some(BudgetedPartial { partial, taken })));
        }
        // Ids are held until they are compared, and once more in their order.
        let sorted = merging.meeting.memory_budget().reserve(ids.bytes())?;
        let known = Arc::clone(&doubts.doubles);
        let tenants = reader.tenants().to_vec();
        let twice = Arc::clone(&self.twice);
        let job = move || {
            let once = match ids.check_counted_once(&known) {
                Err(found) if may_ask && found.count_excluded_of(&ids) <= MAX_EXCLUDED_PROFILES => {
                    twice.record_duplicates(&tenants, |known| *known = known.merged_with(&found));
                    Err(Some(found))
                }
                Err(_) => Err(None),
                Ok(()) => Ok(()),
            };
            drop((ids, sorted));
            taken.shrink(partial.bytes());
            (once, BudgetedPartial { partial, taken })
        };
        let compared = merging.compute.run_as(CpuActivity::Query, job).await;
        let (once, held) = compared.map_err(|error| Status::from_error(&error))?;
        match once {
            Ok(()) if merging.met.unreported_since().is_none() => {}
            Err(Some(found)) => {
                doubts.doubles = Arc::new(found);
                return Ok(DedupOutcome::Again);
            }
            Ok(()) | Err(None) => merging.add_warnings([format!(
                "more than {MAX_EXCLUDED_PROFILES} profiles that are asked for lie in two places each, or ever others; some may \
                 count twice until blocks are merged: select a shorter time"
            )]),
        }
        Ok(DedupOutcome::Counted(Some(held)))
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
        assert_eq!(twice.known.lock().unwrap().len(), 1);
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
