//! Metrics of received, stored and rejected profiles, by tenant.

use athanor_chassis::TenantId;
use athanor_chassis::observability::metric_family::{
    MetricCollector, MetricFamily, MetricSamples, metric_collector,
};

use crate::{Distributor, RefusalCounts, TenantCounts};

/// Label value for tenants that are not counted by name. No valid tenant name equals it.
const OTHER_TENANTS: &str = "<others>";

/// Counters of one tenant at one scrape.
pub struct TenantSnapshot {
    /// Name of the tenant. Empty for the sum over all tenants.
    tenant: String,
    counts: TenantCounts,
}

/// Visibility of tenant names in the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantNameDisplay {
    /// Samples of each tenant, with the name in the label `tenant`.
    Shown,
    /// Sums over all tenants, without the label `tenant`.
    Hidden,
}

/// Metrics of the distributor.
pub const DISTRIBUTOR_METRICS: &[MetricFamily<TenantSnapshot>] = &[
    MetricFamily::counter(
        "athanor_distributor_received_profiles_total",
        "Number of profiles that clients sent",
        &["tenant"],
        |tenant, samples| tenant.add(samples, tenant.counts.profiles),
    ),
    MetricFamily::counter(
        "athanor_distributor_received_compressed_bytes_total",
        "Size of all profiles that clients sent, in bytes as sent",
        &["tenant"],
        |tenant, samples| tenant.add(samples, tenant.counts.bytes),
    ),
    MetricFamily::counter(
        "athanor_distributor_received_decompressed_bytes_total",
        "Decompressed size of all profiles that were not rejected, in bytes",
        &["tenant"],
        |tenant, samples| tenant.add(samples, tenant.counts.raw_bytes),
    ),
    MetricFamily::counter(
        "athanor_distributor_received_samples_total",
        "Number of samples in all profiles that were not rejected",
        &["tenant"],
        |tenant, samples| tenant.add(samples, tenant.counts.samples),
    ),
    MetricFamily::counter(
        "athanor_distributor_accepted_profiles_total",
        "Number of new profiles that were stored",
        &["tenant"],
        |tenant, samples| tenant.add(samples, tenant.counts.new),
    ),
    MetricFamily::counter(
        "athanor_distributor_duplicate_profiles_total",
        "Number of profiles that were stored before and count once",
        &["tenant"],
        |tenant, samples| tenant.add(samples, tenant.counts.repeats),
    ),
    MetricFamily::counter(
        "athanor_distributor_empty_profiles_total",
        "Number of profiles without anything to store",
        &["tenant"],
        |tenant, samples| tenant.add(samples, tenant.counts.empty),
    ),
    MetricFamily::counter(
        "athanor_distributor_dropped_items_total",
        "Number of samples, stacks, texts and references that were dropped from stored profiles, by kind",
        &["tenant", "kind"],
        |tenant, samples| {
            for (kind, count) in tenant.counts.dropped.counts() {
                samples.add_labeled(&[&tenant.tenant, kind], count);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_distributor_otlp_violations_total",
        "Number of accepted deviations from the OTLP profiles format, by kind",
        &["tenant", "kind"],
        |tenant, samples| {
            let violations = tenant.counts.violations.counts();
            for (kind, count) in violations.into_iter().filter(|(_, count)| *count > 0) {
                samples.add_labeled(&[&tenant.tenant, kind], count);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_discarded_profiles_total",
        "Number of profiles that were rejected, by reason",
        &["tenant", "reason"],
        |tenant, samples| tenant.add_refusals(samples, |refusals| refusals.profiles),
    ),
    MetricFamily::counter(
        "athanor_discarded_bytes_total",
        "Size of all profiles that were rejected, in bytes as sent, by reason",
        &["tenant", "reason"],
        |tenant, samples| tenant.add_refusals(samples, |refusals| refusals.bytes),
    ),
    MetricFamily::counter(
        "athanor_discarded_requests_total",
        "Number of requests that were rejected before their profiles were counted, by reason",
        &["tenant", "reason"],
        |tenant, samples| tenant.add_refusals(samples, |refusals| refusals.requests),
    ),
];

/// Returns the collector of [`DISTRIBUTOR_METRICS`].
pub fn distributor_collector(distributor: Distributor, names: TenantNameDisplay) -> MetricCollector {
    metric_collector(DISTRIBUTOR_METRICS, move || {
        let tenants = distributor.stats().snapshot();
        match names {
            TenantNameDisplay::Shown => {
                tenants.into_iter().map(|(tenant, counts)| TenantSnapshot::new(tenant, counts)).collect()
            }
            TenantNameDisplay::Hidden => sum_tenants(tenants),
        }
    })
}

/// Returns one snapshot with the sums over all tenants. Returns none if there are no tenants.
fn sum_tenants(tenants: Vec<(Option<TenantId>, TenantCounts)>) -> Vec<TenantSnapshot> {
    let counts = tenants.into_iter().map(|(_, counts)| counts).reduce(|mut sum, counts| {
        sum += counts;
        sum
    });
    counts.map(|counts| TenantSnapshot { tenant: String::new(), counts }).into_iter().collect()
}

impl TenantSnapshot {
    fn new(tenant: Option<TenantId>, counts: TenantCounts) -> Self {
        let tenant = tenant.map_or_else(|| OTHER_TENANTS.to_owned(), |tenant| tenant.as_str().to_owned());
        Self { tenant, counts }
    }

    fn add(&self, samples: &mut MetricSamples<'_>, count: u64) {
        samples.add_labeled(&[&self.tenant], count);
    }

    fn add_refusals(&self, samples: &mut MetricSamples<'_>, count: fn(&RefusalCounts) -> u64) {
        for (reason, refusals) in &self.counts.refused {
            samples.add_labeled(&[&self.tenant, reason], count(refusals));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn hidden_tenants_are_summed_by_reason() {
        let counts = |profiles, reason| TenantCounts {
            profiles,
            refused: BTreeMap::from([(reason, RefusalCounts { requests: 1, profiles: 2, bytes: 3 })]),
            ..TenantCounts::default()
        };
        let tenants = vec![
            (Some(TenantId::anonymous()), counts(5, "rate_limited")),
            (None, counts(7, "rate_limited")),
            (None, counts(1, "internal")),
        ];
        let sums = sum_tenants(tenants);
        let [TenantSnapshot { tenant, counts }] = &sums[..] else { panic!("{} sums", sums.len()) };
        assert_eq!((tenant.as_str(), counts.profiles), ("", 13));
        let refused = [
            ("internal", RefusalCounts { requests: 1, profiles: 2, bytes: 3 }),
            ("rate_limited", RefusalCounts { requests: 2, profiles: 4, bytes: 6 }),
        ];
        assert_eq!(counts.refused, BTreeMap::from(refused));
        assert!(sum_tenants(Vec::new()).is_empty());
    }
}
