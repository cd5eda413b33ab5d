//! What this process counts of itself, for Prometheus.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use athanor_chassis::TenantId;
use athanor_profile::upload::Dropped;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    seconds: Family<Route, Histogram>,
    /// Bytes of profiles in memory that are in no block yet.
    pub unregistered_bytes: Gauge,
    /// Profiles that were stored.
    pub profiles: Counter,
    /// Profiles that had been stored before.
    pub repeats: Counter,
    /// Uncompressed bytes of what was stored.
    pub raw_bytes: Counter,
    /// Uploads that were refused.
    pub refused: Counter,
    /// Bytes of acknowledged log that were lost to damage.
    pub log_damage: Gauge,
    dropped: Family<Lost, Counter>,
    /// Tenants that have counters of their own.
    tenants: Mutex<BTreeSet<TenantId>>,
}

/// The most tenants that have counters of their own; the rest share theirs.
const TENANTS: usize = 1000;
/// What the rest is called. No tenant is: the name has a character that none may have.
const OTHERS: &str = "<others>";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lost {
    tenant: String,
    what: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("athanor"),
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 16))),
            unregistered_bytes: Gauge::default(),
            profiles: Counter::default(),
            repeats: Counter::default(),
            raw_bytes: Counter::default(),
            refused: Counter::default(),
            log_damage: Gauge::default(),
            dropped: Family::default(),
            tenants: Mutex::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("requests", "Requests answered", metrics.requests.clone());
        registry.register("request_seconds", "Time to answer a request", metrics.seconds.clone());
        registry.register(
            "unregistered_bytes",
            "Bytes of profiles in memory that are in no block yet",
            metrics.unregistered_bytes.clone(),
        );
        registry.register("profiles_stored", "Profiles stored", metrics.profiles.clone());
        registry.register(
            "profiles_repeated",
            "Profiles that had been stored before",
            metrics.repeats.clone(),
        );
        registry.register(
            "profile_bytes",
            "Uncompressed bytes of profiles stored",
            metrics.raw_bytes.clone(),
        );
        registry.register("uploads_refused", "Uploads refused", metrics.refused.clone());
        registry.register(
            "log_damaged_bytes",
            "Bytes of acknowledged log lost to damage",
            metrics.log_damage.clone(),
        );
        registry.register(
            "profile_dropped",
            "Parts of stored profiles that were left out: what dangles, is negative, too deep or too long",
            metrics.dropped.clone(),
        );
        metrics
    }
}

impl Metrics {
    /// Counts one answer.
    pub fn answered(&self, route: &str, status: u16, took: Duration) {
        let route = route.to_owned();
        self.requests.get_or_create(&Answered { route: route.clone(), status }).inc();
        self.seconds.get_or_create(&Route { route }).observe(took.as_secs_f64());
    }

    /// Counts what was left out of an upload.
    pub fn dropped(&self, tenant: &TenantId, dropped: &Dropped) {
        for (what, count) in dropped.each().into_iter().filter(|(_, count)| *count > 0) {
            let tenant = self.name_of(tenant);
            self.dropped.get_or_create(&Lost { tenant, what }).inc_by(count);
        }
    }

    /// What a tenant is called in metrics: whoever may name any tenant must not make any number of counters.
    fn name_of(&self, tenant: &TenantId) -> String {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() < TENANTS || tenants.contains(tenant) {
            tenants.insert(tenant.clone());
            return tenant.to_string();
        }
        OTHERS.to_owned()
    }

    /// All of them, as Prometheus reads them.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_route_and_status() {
        let metrics = Metrics::default();
        metrics.answered("/ready", 200, Duration::from_millis(1));
        metrics.answered("/ready", 200, Duration::from_millis(3));
        let text = metrics.encode();
        assert!(text.contains("athanor_requests_total{route=\"/ready\",status=\"200\"} 2"), "{text}");
        assert!(text.contains("athanor_request_seconds_count{route=\"/ready\"} 2"));
    }

    #[test]
    fn what_was_left_out_is_counted_by_tenant_within_a_bound() {
        let metrics = Metrics::default();
        let dropped = Dropped { samples: 2, deep: 1, ..Dropped::default() };
        for tenant in 0..=TENANTS {
            metrics.dropped(&tenant.to_string().parse().unwrap(), &dropped);
        }
        metrics.dropped(&"0".parse().unwrap(), &dropped);
        let text = metrics.encode();
        let count = |tenant: &str, what: &str| {
            let line = format!("athanor_profile_dropped_total{{tenant=\"{tenant}\",what=\"{what}\"}} ");
            text.lines().find_map(|found| found.strip_prefix(&line)?.parse::<u64>().ok())
        };
        assert_eq!((count("0", "dangling_samples"), count("0", "deep_stacks")), (Some(4), Some(2)));
        assert_eq!((count("999", "dangling_samples"), count("1000", "dangling_samples")), (Some(2), None));
        assert_eq!((count(OTHERS, "dangling_samples"), count("0", "long_texts")), (Some(2), None));
    }
}
