//! What came through the door and what became of it, by tenant, for whoever runs the server.
//!
//! Plain numbers that only grow. A tenant that is known costs a look-up and some additions; names of refusals are
//! written down where something was refused, which is off the path of those who are not.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use athanor_chassis::{Status, TenantId};
use athanor_profile::otlp::Oddities;
use athanor_profile::upload::Dropped;

use crate::distributor::{Outcome, Stored};

/// Tenants that are counted by name. Whoever comes later is counted with all others.
const TENANTS: usize = 1000;
/// Reasons that are counted by name for one tenant; there are fewer.
const REASONS: usize = 64;

/// The counters of a distributor.
#[derive(Debug, Default)]
pub struct Counts {
    tenants: RwLock<HashMap<TenantId, Arc<Counted>>>,
    others: Arc<Counted>,
}

/// The counters of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    profiles: AtomicU64,
    bytes: AtomicU64,
    new: AtomicU64,
    repeats: AtomicU64,
    empty: AtomicU64,
    raw_bytes: AtomicU64,
    samples: AtomicU64,
    dropped: Mutex<Dropped>,
    oddities: Mutex<Oddities>,
    refused: Mutex<BTreeMap<&'static str, Refusals>>,
}

/// What was refused for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
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
    pub dropped: Dropped,
    /// What was odd in exports of OpenTelemetry, and taken.
    pub oddities: Oddities,
    /// What was refused, by reason.
    pub refused: BTreeMap<&'static str, Refusals>,
}

impl Counts {
    /// Every tenant's numbers; those of all that are not counted by name stand under `None`.
    pub fn now(&self) -> Vec<(Option<TenantId>, TenantCounts)> {
        let tenants = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        let mut named: Vec<_> =
            tenants.iter().map(|(tenant, counted)| (Some(tenant.clone()), counted.now())).collect();
        named.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let others = self.others.now();
        if others != TenantCounts::default() {
            named.push((None, others));
        }
        named
    }

    /// Counts a request that was refused before anybody looked for profiles in it.
    pub fn request_refused(&self, tenant: &TenantId, status: &Status) {
        self.of(tenant).refuse(status, |refusals| refusals.requests += 1);
    }

    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<Counted> {
        if let Some(counted) = self.tenants.read().unwrap_or_else(PoisonError::into_inner).get(tenant) {
            return Arc::clone(counted);
        }
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= TENANTS && !tenants.contains_key(tenant) {
            return Arc::clone(&self.others);
        }
        Arc::clone(tenants.entry(tenant.clone()).or_default())
    }
}

impl Counted {
    /// Profiles came.
    pub(crate) fn came(&self, profiles: usize, bytes: usize) {
        add(&self.profiles, profiles as u64);
        add(&self.bytes, bytes as u64);
    }

    /// A profile's fate is known.
    pub(crate) fn settled(&self, outcome: &Result<Stored, Status>, bytes: usize) {
        match outcome {
            Ok(stored) => self.taken(stored),
            Err(status) => self.refused(status, 1, bytes),
        }
    }

    /// Profiles were refused.
    pub(crate) fn refused(&self, status: &Status, profiles: usize, bytes: usize) {
        self.refuse(status, |refusals| {
            refusals.profiles += profiles as u64;
            refusals.bytes += bytes as u64;
        });
    }

    /// A request was odd, and was taken.
    pub(crate) fn odd(&self, oddities: &Oddities) {
        if *oddities != Oddities::default() {
            *self.oddities.lock().unwrap_or_else(PoisonError::into_inner) += *oddities;
        }
    }

    pub(crate) fn taken(&self, stored: &Stored) {
        let outcome = match stored.outcome {
            Outcome::New => &self.new,
            Outcome::Repeat => &self.repeats,
            Outcome::Empty => &self.empty,
        };
        add(outcome, 1);
        add(&self.raw_bytes, stored.raw_bytes);
        add(&self.samples, stored.samples);
        // What a repeat lacks was counted when it came first.
        if stored.outcome != Outcome::Repeat && stored.dropped != Dropped::default() {
            *self.dropped.lock().unwrap_or_else(PoisonError::into_inner) += stored.dropped;
        }
    }

    fn refuse(&self, status: &Status, count: impl FnOnce(&mut Refusals)) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = status.counted_as();
        let known = refused.len() < REASONS || refused.contains_key(reason);
        count(refused.entry(if known { reason } else { "other" }).or_default());
    }

    fn now(&self) -> TenantCounts {
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

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Code;

    use super::*;

    #[test]
    fn refusals_are_told_apart_by_reason() {
        let counts = Counts::default();
        let tenant = TenantId::anonymous();
        let status = Status::new(Code::Exhausted, "slow down").because("rate_limited");
        counts.of(&tenant).refused(&status, 3, 300);
        counts.of(&tenant).settled(&Err(Status::new(Code::Internal, "oops")), 5);
        counts.request_refused(&tenant, &status);
        let (_, now) = counts.now().remove(0);
        let expected = [
            ("internal", Refusals { requests: 0, profiles: 1, bytes: 5 }),
            ("rate_limited", Refusals { requests: 1, profiles: 3, bytes: 300 }),
        ];
        assert_eq!(now.refused, BTreeMap::from(expected));
    }

    #[test]
    fn what_a_repeat_lacks_is_counted_once() {
        let counts = Counts::default();
        let counted = counts.of(&TenantId::anonymous());
        let dropped = Dropped { samples: 2, deep: 1, ..Dropped::default() };
        for outcome in [Outcome::New, Outcome::Repeat] {
            counted.settled(&Ok(Stored { outcome, raw_bytes: 100, samples: 10, dropped }), 50);
        }
        let (_, now) = counts.now().remove(0);
        assert_eq!((now.new, now.repeats, now.raw_bytes, now.samples), (1, 1, 200, 20));
        assert_eq!(now.dropped, dropped);
    }

    #[test]
    fn so_many_tenants_have_a_name() {
        let counts = Counts::default();
        for number in 0..TENANTS + 10 {
            counts.of(&format!("t{number}").parse().unwrap()).came(1, 10);
        }
        let now = counts.now();
        assert_eq!(now.len(), TENANTS + 1);
        assert_eq!(now.last().map(|(tenant, counts)| (tenant.clone(), counts.profiles)), Some((None, 10)));
        assert_eq!(now.iter().map(|(_, counts)| counts.bytes).sum::<u64>(), 10 * (TENANTS as u64 + 10));
    }
}
