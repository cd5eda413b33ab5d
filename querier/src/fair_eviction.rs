//! Eviction policy for state that is stored for tenants within a byte limit.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::TenantId;

/// Stored entry that may be evicted.
pub(crate) struct EvictionCandidate<'a, K> {
    pub(crate) key: K,
    /// Owners of the entry. It counts for each of them.
    pub(crate) tenants: &'a [TenantId],
    pub(crate) bytes: usize,
    /// Start of its retention, on the monotonic clock.
    pub(crate) since: Duration,
}

/// Returns the quota of one tenant: half of all bytes, so that other tenants always have capacity.
pub(crate) fn tenant_quota(bytes: usize) -> usize {
    bytes / 2
}

/// Returns the entries to evict so that the newest one stays. While the total or one tenant exceeds its
/// limit, the oldest entry of the largest tenant is evicted.
pub(crate) fn select_victims<K: Copy + PartialEq>(
    mut kept: Vec<EvictionCandidate<'_, K>>,
    newest: K,
    bytes: usize,
) -> Vec<K> {
    let mut total: usize = kept.iter().map(|share| share.bytes).sum();
    let mut sums: BTreeMap<&TenantId, usize> = BTreeMap::new();
    for share in &kept {
        share.tenants.iter().for_each(|tenant| *sums.entry(tenant).or_default() += share.bytes);
    }
    kept.retain(|share| share.key != newest && share.bytes > 0);
    // The oldest entry is last, because `max_by_key` picks the last of equals.
    kept.sort_by_key(|share| std::cmp::Reverse(share.since));
    let mut gone = Vec::new();
    while total > bytes || sums.values().any(|sum| *sum > tenant_quota(bytes)) {
        let heaviest =
            |share: &EvictionCandidate<'_, K>| share.tenants.iter().map(|tenant| sums[tenant]).max();
        let first = (0..kept.len()).max_by_key(|place| heaviest(&kept[*place]));
        let Some(first) = first else { break };
        let EvictionCandidate { key, tenants, bytes, .. } = kept.remove(first);
        total -= bytes;
        for tenant in tenants {
            sums.entry(tenant).and_modify(|sum| *sum -= bytes);
        }
        gone.push(key);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whose, how much; in the order in which they came.
    fn gone(all: &[(&str, usize)], bytes: usize) -> Vec<usize> {
        let tenants: Vec<Vec<TenantId>> = all
            .iter()
            .map(|(names, _)| names.split('|').map(|name| name.parse().unwrap()).collect())
            .collect();
        let share = |key: usize| EvictionCandidate {
            key,
            tenants: &tenants[key],
            bytes: all[key].1,
            since: Duration::from_secs(key as u64),
        };
        select_victims((0..all.len()).map(share).collect(), all.len() - 1, bytes)
    }

    #[test]
    fn whoever_has_most_makes_room() {
        assert_eq!(gone(&[("a", 20), ("b", 30), ("a", 30)], 100), [0; 0]);
        // A tenant's own go first, the oldest before others.
        assert_eq!(gone(&[("a", 20), ("b", 30), ("a", 20), ("a", 30)], 100), [0]);
        // All together are too much: of whoever has most, though another one has the new one.
        assert_eq!(gone(&[("a", 20), ("b", 25), ("b", 25), ("a", 0), ("c", 40)], 100), [1]);
        // The new one stays, though its tenant has most.
        assert_eq!(gone(&[("a", 40), ("b", 30), ("c", 50)], 100), [0]);
        // What is of several counts for each.
        assert_eq!(gone(&[("a|b", 30), ("c", 10), ("b", 30)], 100), [0]);
        assert_eq!(gone(&[("a", 60)], 100), [0; 0], "there is nothing else to go");
    }
}
