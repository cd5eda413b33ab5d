//! Metrics per tenant. If tenants are not named, the values of all tenants are summed.

use std::collections::BTreeMap;

use athanor_chassis::TenantId;
use athanor_distributor::{RefusalCounts, TenantCounts};

use super::{MetricsPage, MetricsSnapshot, labels};

/// Label value for tenants beyond the counted ones. No valid tenant name equals it.
const OTHER_TENANTS_LABEL: &str = "<others>";

impl MetricsSnapshot {
    pub(super) fn profiles(&self, page: &mut MetricsPage) {
        let mut counter = |name, help, count: fn(&TenantCounts) -> u64| {
            let of = |tenant| self.labels_of(tenant, &[]);
            let all = self.tenants.iter().map(|(tenant, counts)| (of(tenant), count(counts) as f64));
            page.counter(name, help, summed(all));
        };
        counter("athanor_received_profiles_total", "Profiles that were sent", |counts| counts.profiles);
        counter("athanor_received_compressed_bytes_total", "Their bytes as they were sent", |counts| {
            counts.bytes
        });
        counter(
            "athanor_received_decompressed_bytes_total",
            "Bytes of profiles that were taken, decompressed",
            |counts| counts.raw_bytes,
        );
        counter("athanor_received_samples_total", "Samples of profiles that were taken", |counts| {
            counts.samples
        });
        counter("athanor_stored_profiles_total", "Profiles that were stored", |counts| counts.new);
        counter(
            "athanor_repeated_profiles_total",
            "Profiles that had been stored before, and count once",
            |counts| counts.repeats,
        );
        counter("athanor_empty_profiles_total", "Profiles with nothing in them to store", |counts| {
            counts.empty
        });
        let dropped = self.tenants.iter().flat_map(|(tenant, counts)| {
            let of = |what| self.labels_of(tenant, &[("what", what)]);
            counts.dropped.counts().map(|(what, count)| (of(what), count as f64))
        });
        page.counter(
            "athanor_dropped_total",
            "Parts that were left out of stored profiles: what dangles, is negative, too deep or too long, or what rules drop",
            summed(dropped),
        );
        let violations = self.tenants.iter().flat_map(|(tenant, counts)| {
            let of = |what| self.labels_of(tenant, &[("what", what)]);
            let seen = counts.violations.counts().into_iter().filter(|(_, count)| *count > 0);
            seen.map(move |(what, count)| (of(what), count as f64))
        });
        page.counter(
            "athanor_otlp_oddities_total",
            "What in exports of OpenTelemetry was not as the format says, and was taken",
            summed(violations),
        );
    }

    pub(super) fn refusals(&self, page: &mut MetricsPage) {
        let mut counter = |name, help, count: fn(&RefusalCounts) -> u64| {
            let all = self.tenants.iter().flat_map(|(tenant, counts)| {
                let of = move |reason| self.labels_of(tenant, &[("reason", reason)]);
                counts.refused.iter().map(move |(reason, refused)| (of(reason), count(refused) as f64))
            });
            page.counter(name, help, summed(all));
        };
        counter("athanor_discarded_profiles_total", "Profiles that were refused", |refused| refused.profiles);
        counter("athanor_discarded_bytes_total", "Their bytes as they were sent", |refused| refused.bytes);
        counter(
            "athanor_discarded_requests_total",
            "Requests that were refused before profiles in them were counted",
            |refused| refused.requests,
        );
    }

    /// Returns the labels of one tenant's sample.
    fn labels_of(&self, tenant: &Option<TenantId>, more: &[(&str, &str)]) -> String {
        let name = tenant.as_ref().map_or(OTHER_TENANTS_LABEL, TenantId::as_str);
        let tenant = self.names_tenants.then_some(("tenant", name));
        labels(&tenant.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
    }
}

/// Sums the values of equal labels.
fn summed(samples: impl Iterator<Item = (String, f64)>) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (labels, value) in samples {
        *sums.entry(labels).or_default() += value;
    }
    sums
}
