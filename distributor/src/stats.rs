//! What came through the door and what became of it, by tenant, for whoever runs the server.
//!
//! Plain numbers that only grow. A tenant that is known costs a look-up and some additions; names of refusals are
//! written down where something was refused, which is off the path of those who are not.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use athanor_chassis::{Status, TenantId};
use athanor_profile::otlp::OtlpViolations;
use athanor_profile::upload::DroppedCounts;

use crate::distributor::{ProfileOutcome, StoredProfile};

/// Tenants that are counted by name. Whoever comes later is counted with all others.
const MAX_COUNTED_TENANTS: usize = 1000;
/// Reasons that are counted by name for one tenant; there are fewer.
const MAX_COUNTED_REASONS: usize = 64;

/// The counters of a distributor.
#[derive(Debug, Default)]
pub struct DistributorStats {
    tenants: RwLock<HashMap<TenantId, Arc<TenantCounters>>>,
    others: Arc<TenantCounters>,
}

/// The counters of one tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantCounters {
    profiles: AtomicU64,
    bytes: AtomicU64,
    new: AtomicU64,
    repeats: AtomicU64,
    empty: AtomicU64,
    raw_bytes: AtomicU64,
    samples: AtomicU64,
    dropped: Mutex<DroppedCounts>,
    oddities: Mutex<OtlpViolations>,
    refused: Mutex<BTreeMap<&'static str, RefusalCounts>>,
}

/// What was refused for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalCounts {
    /// Requests of which nothing is known but that they came.
    pub requests: u64,
    /// Profiles.
    pub profiles: u64,
    /// Their bytes, as sent.
    pub bytes: u64,
}

/// One tenant's numbers at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantCounts {
    /// Profiles that came.
    pub profiles: u64,
    /// Their bytes, as sent.
    pub bytes: u64,
    /// Profiles that were stored.
    pub new: u64,
    /// Profiles that had been stored before.
    pub repeats: u64,
    /// Profiles with nothing in them to store.
    pub empty: u64,
    /// Uncompressed bytes of these three.
    pub raw_bytes: u64,
    /// Samples in them.
    pub samples: u64,
    /// What was left out of those that were stored.
    pub dropped: DroppedCounts,
    /// What was odd in exports of OpenTelemetry, and taken.
    pub oddities: OtlpViolations,
    /// What was refused, by reason.
    pub refused: BTreeMap<&'static str, RefusalCounts>,
}

impl DistributorStats {
    /// Every tenant's numbers; those of all that are not counted by name stand under `None`.
    pub fn snapshot(&self) -> Vec<(Option<TenantId>, TenantCounts)> {
        let tenants = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        let mut named: Vec<_> =
            tenants.iter().map(|(tenant, counted)| (Some(tenant.clone()), counted.snapshot())).collect();
        named.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let others = self.others.snapshot();
        if others != TenantCounts::default() {
            named.push((None, others));
        }
        named
    }

    /// Counts a request that was refused before anybody looked for profiles in it.
    pub fn record_request_refusal(&self, tenant: &TenantId, status: &Status) {
        self.tenant_counters(tenant).update_refusals(status, |refusals| refusals.requests += 1);
    }

    pub(crate) fn tenant_counters(&self, tenant: &TenantId) -> Arc<TenantCounters> {
        if let Some(counted) = self.tenants.read().unwrap_or_else(PoisonError::into_inner).get(tenant) {
            return Arc::clone(counted);
        }
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= MAX_COUNTED_TENANTS && !tenants.contains_key(tenant) {
            return Arc::clone(&self.others);
        }
        Arc::clone(tenants.entry(tenant.clone()).or_default())
    }
}

impl TenantCounters {
    /// Profiles came.
    pub(crate) fn record_received(&self, profiles: usize, bytes: usize) {
        add_relaxed(&self.profiles, profiles as u64);
        add_relaxed(&self.bytes, bytes as u64);
    }

    /// A profile's fate is known.
    pub(crate) fn record_outcome(&self, outcome: &Result<StoredProfile, Status>, bytes: usize) {
        match outcome {
            Ok(stored) => self.record_stored(stored),
            Err(status) => self.record_refusal(status, 1, bytes),
        }
    }

    /// Profiles were refused.
    pub(crate) fn record_refusal(&self, status: &Status, profiles: usize, bytes: usize) {
        self.update_refusals(status, |refusals| {
            refusals.profiles += profiles as u64;
            refusals.bytes += bytes as u64;
        });
    }

    /// A request was odd, and was taken.
    pub(crate) fn record_oddities(&self, oddities: &OtlpViolations) {
        if *oddities != OtlpViolations::default() {
            *self.oddities.lock().unwrap_or_else(PoisonError::into_inner) += *oddities;
        }
    }

    pub(crate) fn record_stored(&self, stored: &StoredProfile) {
        let outcome = match stored.outcome {
            ProfileOutcome::New => &self.new,
            ProfileOutcome::Repeat => &self.repeats,
            ProfileOutcome::Empty => &self.empty,
        };
        add_relaxed(outcome, 1);
        add_relaxed(&self.raw_bytes, stored.raw_bytes);
        add_relaxed(&self.samples, stored.samples);
        // What a repeat lacks was counted when it came first.
        if stored.outcome != ProfileOutcome::Repeat && stored.dropped != DroppedCounts::default() {
            *self.dropped.lock().unwrap_or_else(PoisonError::into_inner) += stored.dropped;
        }
    }

    fn update_refusals(&self, status: &Status, count: impl FnOnce(&mut RefusalCounts)) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = status.metric_reason();
        let known = refused.len() < MAX_COUNTED_REASONS || refused.contains_key(reason);
        count(refused.entry(if known { reason } else { "other" }).or_default());
    }

    fn snapshot(&self) -> TenantCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TenantCounts {
            profiles: read(&self.profiles),
            bytes: read(&self.bytes),
            new: read(&self.new),
            repeats: read(&self.repeats),
            empty: read(&self.empty),
            raw_bytes: read(&self.raw_bytes),
            samples: read(&self.samples),
            dropped: *self.dropped.lock().unwrap_or_else(PoisonError::into_inner),
            oddities: *self.oddities.lock().unwrap_or_else(PoisonError::into_inner),
            refused: self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

fn add_relaxed(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use athanor_chassis::ErrorCode;

    use super::*;

    #[test]
    fn refusals_are_told_apart_by_reason() {
        let counts = DistributorStats::default();
        let tenant = TenantId::anonymous();
        let status = Status::new(ErrorCode::Exhausted, "slow down").with_reason("rate_limited");
        counts.tenant_counters(&tenant).record_refusal(&status, 3, 300);
        counts.tenant_counters(&tenant).record_outcome(&Err(Status::new(ErrorCode::Internal, "oops")), 5);
        counts.record_request_refusal(&tenant, &status);
        let (_, now) = counts.snapshot().remove(0);
        let expected = [
            ("internal", RefusalCounts { requests: 0, profiles: 1, bytes: 5 }),
            ("rate_limited", RefusalCounts { requests: 1, profiles: 3, bytes: 300 }),
        ];
        assert_eq!(now.refused, BTreeMap::from(expected));
    }

    #[test]
    fn what_a_repeat_lacks_is_counted_once() {
        let counts = DistributorStats::default();
        let counted = counts.tenant_counters(&TenantId::anonymous());
        let dropped = DroppedCounts { samples: 2, deep: 1, ..DroppedCounts::default() };
        for outcome in [ProfileOutcome::New, ProfileOutcome::Repeat] {
            counted.record_outcome(&Ok(StoredProfile { outcome, raw_bytes: 100, samples: 10, dropped }), 50);
        }
        let (_, now) = counts.snapshot().remove(0);
        assert_eq!((now.new, now.repeats, now.raw_bytes, now.samples), (1, 1, 200, 20));
        assert_eq!(now.dropped, dropped);
    }

    #[test]
    fn so_many_tenants_have_a_name() {
        let counts = DistributorStats::default();
        for number in 0..MAX_COUNTED_TENANTS + 10 {
            counts.tenant_counters(&format!("t{number}").parse().unwrap()).record_received(1, 10);
        }
        let now = counts.snapshot();
        assert_eq!(now.len(), MAX_COUNTED_TENANTS + 1);
        assert_eq!(now.last().map(|(tenant, counts)| (tenant.clone(), counts.profiles)), Some((None, 10)));
        assert_eq!(
            now.iter().map(|(_, counts)| counts.bytes).sum::<u64>(),
            10 * (MAX_COUNTED_TENANTS as u64 + 10)
        );
    }
}
