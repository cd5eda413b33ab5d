//! What this process counts of itself, for Prometheus.

use std::time::Duration;

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
}
