//! Counters of received, stored and refused profiles, by tenant, for operators.
//!
//! The counters only grow. For a known tenant, counting costs one lookup and a few additions. Reasons are
//! kept in a map that only refusals lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use athanor_chassis::{Status, TenantId};
use athanor_profile::data_model::dropped_counts::DroppedCounts;
use athanor_profile::formats::otlp::OtlpViolations;
use parking_lot::{Mutex, RwLock};

use crate::stored_profile::{ProfileOutcome, StoredProfile};

/// Maximum number of tenants counted by name. Tenants past it share one set of counters.
const MAX_COUNTED_TENANTS: usize = 1000;
/// Maximum number of refusal reasons counted by name for one tenant. There are fewer than this.
const MAX_COUNTED_REASONS: usize = 64;

/// Counters of a distributor, by tenant.
#[derive(Debug, Default)]
pub struct DistributorStats {
    tenants: RwLock<HashMap<TenantId, Arc<TenantCounters>>>,
    others: Arc<TenantCounters>,
}

/// Counters of one tenant.
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
    violations: Mutex<OtlpViolations>,
    refused: Mutex<BTreeMap<&'static str, RefusalCounts>>,
}

/// Refusals for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusalCounts {
    /// Requests that were refused before profiles were looked for.
    pub requests: u64,
    /// Refused profiles, where their number is known.
    pub profiles: u64,
    /// Bytes of the refused profiles, as sent.
    pub bytes: u64,
}

/// Snapshot of one tenant's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantCounts {
    /// Profiles received, stored or not.
    pub profiles: u64,
    /// Bytes of the received profiles, as sent.
    pub bytes: u64,
    /// New profiles that were stored.
    pub new: u64,
    /// Profiles that were duplicates of stored ones.
    pub repeats: u64,
    /// Profiles with nothing to store.
    pub empty: u64,
    /// Uncompressed bytes of new, duplicate and empty profiles.
    pub raw_bytes: u64,
    /// Samples in new, duplicate and empty profiles.
    pub samples: u64,
    /// Parts dropped from new and empty profiles.
    pub dropped: DroppedCounts,
    /// Violations of the OTLP format that were accepted.
    pub violations: OtlpViolations,
    /// Counts of refusals, by reason.
    pub refused: BTreeMap<&'static str, RefusalCounts>,
}

impl std::ops::AddAssign for RefusalCounts {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.profiles += other.profiles;
        self.bytes += other.bytes;
    }
}

impl std::ops::AddAssign for TenantCounts {
    fn add_assign(&mut self, other: Self) {
        self.profiles += other.profiles;
        self.bytes += other.bytes;
        self.new += other.new;
        self.repeats += other.repeats;
        self.empty += other.empty;
        self.raw_bytes += other.raw_bytes;
        self.samples += other.samples;
        self.dropped += other.dropped;
        self.violations += other.violations;
        for (reason, refusals) in other.refused {
            *self.refused.entry(reason).or_default() += refusals;
        }
    }
}

impl DistributorStats {
    /// Returns the counters of every tenant. Tenants that are not counted by name are summed under `None`.
    pub fn snapshot(&self) -> Vec<(Option<TenantId>, TenantCounts)> {
        let tenants = self.tenants.read();
        let mut named: Vec<_> =
            tenants.iter().map(|(tenant, counted)| (Some(tenant.clone()), counted.snapshot())).collect();
        named.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let others = self.others.snapshot();
        if others != TenantCounts::default() {
            named.push((None, others));
        }
        named
    }

    /// Counts a request that was refused before its profiles were looked for.
    pub fn record_request_refusal(&self, tenant: &TenantId, status: &Status) {
        self.tenant_counters(tenant).update_refusals(status, |refusals| refusals.requests += 1);
    }

    pub(crate) fn tenant_counters(&self, tenant: &TenantId) -> Arc<TenantCounters> {
        if let Some(counted) = self.tenants.read().get(tenant) {
            return Arc::clone(counted);
        }
        let mut tenants = self.tenants.write();
        if tenants.len() >= MAX_COUNTED_TENANTS && !tenants.contains_key(tenant) {
            return Arc::clone(&self.others);
        }
        Arc::clone(tenants.entry(tenant.clone()).or_default())
    }
}

impl TenantCounters {
    /// Counts received profiles and their bytes as sent.
    pub(crate) fn record_received(&self, profiles: usize, bytes: usize) {
        add_relaxed(&self.profiles, profiles as u64);
        add_relaxed(&self.bytes, bytes as u64);
    }

    /// Counts the outcome of one profile.
    pub(crate) fn record_outcome(&self, outcome: &Result<StoredProfile, Status>, bytes: usize) {
        match outcome {
            Ok(stored) => self.record_stored(stored),
            Err(status) => self.record_refusal(status, 1, bytes),
        }
    }

    /// Counts refused profiles under the reason of `status`.
    pub(crate) fn record_refusal(&self, status: &Status, profiles: usize, bytes: usize) {
        self.update_refusals(status, |refusals| {
            refusals.profiles += profiles as u64;
            refusals.bytes += bytes as u64;
        });
    }

    /// Adds the accepted format violations of one request.
    pub(crate) fn record_violations(&self, violations: &OtlpViolations) {
        if *violations != OtlpViolations::default() {
            *self.violations.lock() += *violations;
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
        // Parts dropped from a duplicate were counted when the profile was first stored.
        if stored.outcome != ProfileOutcome::Repeat && stored.dropped != DroppedCounts::ZERO {
            *self.dropped.lock() += stored.dropped;
        }
    }

    fn update_refusals(&self, status: &Status, count: impl FnOnce(&mut RefusalCounts)) {
        let mut refused = self.refused.lock();
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
            dropped: *self.dropped.lock(),
            violations: *self.violations.lock(),
            refused: self.refused.lock().clone(),
        }
    }
}

fn add_relaxed(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use athanor_chassis::ErrorCode;
    use athanor_profile::data_model::dropped_counts::DropReason;

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
        let dropped = DroppedCounts::from([(DropReason::DanglingSample, 2), (DropReason::DeepStack, 1)]);
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
