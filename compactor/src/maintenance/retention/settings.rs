//! Settings of retention.

use std::time::Duration;

use athanor_catalog::{RetentionPolicy, TierRetention};
use athanor_chassis::{LimitOverrides, TenantLimits};

/// Settings of retention.
#[derive(Clone, Debug)]
pub struct RetentionConfig {
    /// Age after which raw rows expire, for tenants without a limit of their own; zero keeps them for ever.
    pub retention: Duration,
    /// Limits with the retention of tenants and tiers.
    pub limits: LimitOverrides,
    /// The largest share of parts with equal retention that expires per hour, in percent.
    pub max_expired_percent: u8,
    /// Time that objects of expired blocks stay, in which a block is restorable.
    pub deletion_delay: Duration,
}

impl RetentionConfig {
    /// Returns the retention of all tenants and tiers.
    pub fn policy(&self) -> RetentionPolicy {
        let default = self.tier_retention(&self.limits.default_limits());
        let tenants = self.limits.exceptions().into_iter();
        let tenants = tenants.map(|(tenant, limits)| (tenant, self.tier_retention(&limits)));
        RetentionPolicy { default, tenants: tenants.filter(|(_, retention)| *retention != default).collect() }
    }

    /// Returns the retention of a tenant with some limits. Tiers without one are kept as long as raw blocks.
    fn tier_retention(&self, limits: &TenantLimits) -> TierRetention {
        let raw = limits.retention_period.unwrap_or(self.retention);
        TierRetention {
            raw,
            five_minutes: limits.retention_period_5m.unwrap_or(raw),
            one_hour: limits.retention_period_1h.unwrap_or(raw),
            one_day: limits.retention_period_1d.unwrap_or(raw),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_tenants_set_the_retention_of_tiers() {
        let hours = |count: u64| Duration::from_secs(count * 3600);
        let default = TenantLimits { retention_period_1h: Some(hours(300)), ..TenantLimits::default() };
        let limits = LimitOverrides::new(default);
        let yaml = "overrides: {a: {retention_period: 12h, retention_period_1d: 0s}, b: {max_tenants: 7}}";
        limits.replace_exceptions(std::path::Path::new("overrides.yaml"), yaml, |_| Vec::new()).unwrap();
        let config = RetentionConfig {
            retention: hours(24),
            limits: LimitOverrides::new(TenantLimits::default()),
            max_expired_percent: 5,
            deletion_delay: hours(12),
        };
        let policy = RetentionConfig { limits, ..config }.policy();
        let of = |raw, five_minutes, one_hour, one_day| TierRetention {
            raw: hours(raw),
            five_minutes: hours(five_minutes),
            one_hour: hours(one_hour),
            one_day: hours(one_day),
        };
        assert_eq!(policy.default, of(24, 24, 300, 24), "a tier is kept as long as raw blocks by default");
        let tenants = [("a".parse().unwrap(), of(12, 12, 300, 0))];
        assert!(policy.tenants.into_iter().eq(tenants), "b has the retention of all");
    }
}
