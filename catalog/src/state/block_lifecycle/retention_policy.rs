//! Retention by tenant and tier.

use std::collections::BTreeMap;
use std::time::Duration;

use athanor_chassis::{TenantId, Tier};
use serde::{Deserialize, Serialize};

/// Retention of one tenant's rows by tier. Zero keeps them for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierRetention {
    /// Retention of single profiles.
    pub raw: Duration,
    /// Retention of buckets of 5 minutes.
    pub five_minutes: Duration,
    /// Retention of buckets of an hour.
    pub one_hour: Duration,
    /// Retention of buckets of a day.
    pub one_day: Duration,
}

/// Retention by tenant and tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EncodedPolicy")]
pub struct RetentionPolicy {
    /// Retention of all tenants that the table does not name.
    pub default: TierRetention,
    /// Retention of single tenants.
    pub tenants: BTreeMap<TenantId, TierRetention>,
}

/// Policy as log entries state it.
#[derive(Deserialize)]
#[serde(untagged)]
enum EncodedPolicy {
    Table(PolicyTable),
    /// One duration for all tenants and tiers, as older versions wrote it.
    Uniform(Duration),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyTable {
    default: TierRetention,
    tenants: BTreeMap<TenantId, TierRetention>,
}

/// Age after which a part may expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::state) enum PartRetention {
    /// The part expires above this age.
    Until(Duration),
    /// The part never expires.
    Forever,
}

impl TierRetention {
    /// Creates a retention that is equal for all tiers.
    pub const fn uniform(retention: Duration) -> Self {
        Self { raw: retention, five_minutes: retention, one_hour: retention, one_day: retention }
    }

    /// Returns the retention of a tier. Zero keeps blocks for ever.
    pub const fn of_tier(&self, tier: Tier) -> Duration {
        match tier {
            Tier::Raw => self.raw,
            Tier::FiveMinutes => self.five_minutes,
            Tier::OneHour => self.one_hour,
            Tier::OneDay => self.one_day,
        }
    }

    fn part_retention(&self, tier: Tier) -> PartRetention {
        match self.of_tier(tier) {
            Duration::ZERO => PartRetention::Forever,
            retention => PartRetention::Until(retention),
        }
    }

    /// Returns whether some tier is kept longer than single profiles.
    fn keeps_tiers_longer(&self) -> bool {
        let raw = self.part_retention(Tier::Raw);
        Tier::DOWNSAMPLED.into_iter().any(|tier| self.part_retention(tier) > raw)
    }
}

impl RetentionPolicy {
    /// Creates a policy that is equal for all tenants and tiers. Zero keeps all blocks for ever.
    pub const fn uniform(retention: Duration) -> Self {
        Self { default: TierRetention::uniform(retention), tenants: BTreeMap::new() }
    }

    /// Returns the retention of a tenant.
    pub fn of_tenant(&self, tenant: &TenantId) -> &TierRetention {
        self.tenants.get(tenant).unwrap_or(&self.default)
    }

    /// Returns the shortest retention of all tenants and tiers. Absent if all blocks are kept for ever.
    pub fn shortest(&self) -> Option<Duration> {
        let all = self.tenants.values().chain([&self.default]);
        let durations = all.flat_map(|retention| Tier::ALL.map(|tier| retention.of_tier(tier)));
        durations.filter(|retention| !retention.is_zero()).min()
    }

    /// Returns the longest retention of all tenants and tiers. Absent if some blocks are kept for ever.
    pub fn longest(&self) -> Option<Duration> {
        let all = self.tenants.values().chain([&self.default]);
        let durations = all.flat_map(|retention| Tier::ALL.map(|tier| retention.of_tier(tier)));
        let longest_first = durations.max_by_key(|retention| (retention.is_zero(), *retention));
        longest_first.filter(|retention| !retention.is_zero())
    }

    /// Returns the retention of a tenant's parts of a tier.
    pub(in crate::state) fn of_part(&self, tenant: &TenantId, tier: Tier) -> PartRetention {
        self.of_tenant(tenant).part_retention(tier)
    }

    /// Returns whether a tenant keeps some tier longer than single profiles.
    pub(in crate::state) fn keeps_tiers_longer(&self, tenant: &TenantId) -> bool {
        self.of_tenant(tenant).keeps_tiers_longer()
    }
}

impl From<EncodedPolicy> for RetentionPolicy {
    fn from(encoded: EncodedPolicy) -> Self {
        match encoded {
            EncodedPolicy::Table(PolicyTable { default, tenants }) => Self { default, tenants },
            EncodedPolicy::Uniform(retention) => Self::uniform(retention),
        }
    }
}

impl PartRetention {
    /// Returns whether an age is above the retention.
    pub(in crate::state) fn is_exceeded_by(self, age: Duration) -> bool {
        match self {
            Self::Until(retention) => age > retention,
            Self::Forever => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn policy_of_older_version_is_one_duration_for_all() {
        let encoded = r#"{"secs":86400,"nanos":0}"#;
        assert_eq!(serde_json::from_str::<RetentionPolicy>(encoded).unwrap(), RetentionPolicy::uniform(DAY));
        let tenants = [("a".parse().unwrap(), TierRetention { raw: DAY, ..TierRetention::default() })];
        let policy = RetentionPolicy { default: TierRetention::uniform(DAY), tenants: tenants.into() };
        let encoded = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<RetentionPolicy>(&encoded).unwrap(), policy);
        let unknown = encoded.replacen('{', r#"{"moons":1,"#, 1);
        assert!(serde_json::from_str::<RetentionPolicy>(&unknown).is_err(), "{unknown}");
    }

    #[test]
    fn zero_is_the_longest_retention() {
        let keeps = |raw: Duration, one_day: Duration| {
            TierRetention { raw, five_minutes: DAY, one_hour: DAY, one_day }.keeps_tiers_longer()
        };
        assert!(!keeps(DAY, DAY));
        assert!(keeps(DAY, DAY * 2));
        assert!(keeps(DAY, Duration::ZERO));
        assert!(!keeps(Duration::ZERO, Duration::ZERO));
        assert!(!keeps(DAY * 2, DAY));
        let policy =
            RetentionPolicy { default: TierRetention::uniform(Duration::ZERO), ..Default::default() };
        assert_eq!(policy.shortest(), None);
    }
}
