//! Limit of the parts that expire per hour.
//!
//! Parts of equal retention share one limit. A tenant with a short retention needs many expirations per hour,
//! and raises no limit but that of its own retention. The sum over all retentions is limited too, because a changed
//! setting gives the listed parts another retention.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::Timestamp;
use serde::{Deserialize, Serialize};

/// Period in which expired parts are counted.
const BUDGET_PERIOD: Duration = Duration::from_secs(3600);

/// Retention of parts that never expire. Blocks that an older version expired count for it, and so for no limit.
const KEPT_FOREVER: u64 = 0;

/// Number of parts by their retention in whole seconds.
pub(super) type PartsByRetention = BTreeMap<u64, u64>;

/// Parts that expired in one period, by retention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EncodedCounts", into = "Vec<(u64, u64)>")]
pub(super) struct ExpiredParts {
    by_retention: PartsByRetention,
}

/// Counts as snapshots state them.
#[derive(Deserialize)]
#[serde(untagged)]
enum EncodedCounts {
    /// Retention in seconds and number of parts.
    Table(Vec<(u64, u64)>),
    /// One number for all blocks, as older versions wrote it.
    Total(u64),
}

/// Parts that may still expire in the current period.
#[derive(Debug)]
pub(super) struct ExpirationBudget<'e> {
    expired: &'e mut ExpiredParts,
    remaining: PartsByRetention,
    /// Parts of any retention that may still expire.
    total_remaining: u64,
}

impl From<EncodedCounts> for ExpiredParts {
    fn from(encoded: EncodedCounts) -> Self {
        match encoded {
            EncodedCounts::Table(counts) => Self { by_retention: counts.into_iter().collect() },
            EncodedCounts::Total(blocks) => Self { by_retention: [(KEPT_FOREVER, blocks)].into() },
        }
    }
}

impl From<ExpiredParts> for Vec<(u64, u64)> {
    fn from(expired: ExpiredParts) -> Self {
        expired.by_retention.into_iter().collect()
    }
}

impl ExpiredParts {
    /// Returns the remaining budget at a time, given the listed parts. Begins a new period if the current one
    /// ended.
    pub(super) fn budget(
        &mut self,
        now: Timestamp,
        period_start: &mut Timestamp,
        listed: &PartsByRetention,
        max_percent: u8,
    ) -> ExpirationBudget<'_> {
        if now.since(*period_start) >= BUDGET_PERIOD {
            *period_start = now;
            self.by_retention.clear();
        }
        let mut remaining = PartsByRetention::new();
        let mut allowed_sum = 0u64;
        for (retention, parts) in listed.iter().filter(|(retention, _)| **retention != KEPT_FOREVER) {
            let expired = self.by_retention.get(retention).copied().unwrap_or_default();
            let allowed = allowed_parts(parts.saturating_add(expired), *retention, max_percent);
            remaining.insert(*retention, allowed.saturating_sub(expired));
            allowed_sum = allowed_sum.saturating_add(allowed);
        }
        let total_expired = sum_of_limited(&self.by_retention);
        let all = sum_of_limited(listed).saturating_add(total_expired);
        let total_allowed = percent_of_parts(all, max_percent).max(allowed_sum);
        let total_remaining = total_allowed.saturating_sub(total_expired);
        ExpirationBudget { remaining, total_remaining, expired: self }
    }
}

/// Returns the number of parts, without those that never expire.
fn sum_of_limited(parts: &PartsByRetention) -> u64 {
    let limited = parts.iter().filter(|(retention, _)| **retention != KEPT_FOREVER);
    limited.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

/// Returns a share of parts, rounded up.
fn percent_of_parts(parts: u64, percent: u8) -> u64 {
    let share = (u128::from(parts) * u128::from(percent.min(100))).div_ceil(100);
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Returns the number of parts of one retention that may expire in a period. It is at least twice the number
/// that becomes overdue at an even pace. So a short retention does not fall behind.
fn allowed_parts(parts: u64, retention_seconds: u64, max_percent: u8) -> u64 {
    let all = u128::from(parts);
    let even_pace =
        (all * 2 * u128::from(BUDGET_PERIOD.as_secs())).div_ceil(u128::from(retention_seconds.max(1)));
    let even_pace = u64::try_from(even_pace).unwrap_or(u64::MAX);
    percent_of_parts(parts, max_percent).max(even_pace).min(parts)
}

impl ExpirationBudget<'_> {
    /// Takes one part of a retention from the budget. Returns false if nothing of it or in total remains.
    pub(super) fn take(&mut self, retention: Duration) -> bool {
        let retention = retention.as_secs();
        if self.total_remaining == 0 {
            return false;
        }
        let Some(remaining) = self.remaining.get_mut(&retention).filter(|remaining| **remaining > 0) else {
            return false;
        };
        *remaining -= 1;
        self.total_remaining -= 1;
        *self.expired.by_retention.entry(retention).or_default() += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_older_versions_limit_nothing() {
        let mut older: ExpiredParts = serde_json::from_str("7").unwrap();
        let mut begin = Timestamp::UNIX_EPOCH;
        let budget = older.budget(begin, &mut begin, &[(3600 * 1000, 100)].into(), 5);
        assert_eq!((budget.remaining, budget.total_remaining), ([(3600 * 1000, 5)].into(), 5));
        let counts = ExpiredParts { by_retention: [(3600, 7)].into() };
        let encoded = serde_json::to_string(&counts).unwrap();
        assert_eq!(serde_json::from_str::<ExpiredParts>(&encoded).unwrap(), counts);
    }

    #[test]
    fn parts_that_never_expire_raise_no_limit() {
        let mut expired = ExpiredParts { by_retention: [(3600 * 1000, 5)].into() };
        let mut begin = Timestamp::UNIX_EPOCH;
        let listed = [(KEPT_FOREVER, 10_000), (3600 * 1001, 95)].into();
        let budget = expired.budget(begin, &mut begin, &listed, 5);
        assert_eq!((budget.remaining, budget.total_remaining), ([(3600 * 1001, 5)].into(), 0));
    }

    #[test]
    fn allowed_parts_are_a_share_or_twice_the_even_pace() {
        const DAY_SECONDS: u64 = 86_400;
        assert_eq!(allowed_parts(1000, 30 * DAY_SECONDS, 5), 50);
        assert_eq!(allowed_parts(1000, 30 * DAY_SECONDS, 0), 3);
        assert_eq!(allowed_parts(1000, 10 * 3600, 5), 200);
        assert_eq!(allowed_parts(1000, 3600, 5), 1000);
        assert_eq!(allowed_parts(1, 3600 * 1000, 1), 1, "one part is never stuck");
    }
}
