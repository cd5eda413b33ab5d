//! Counters of requests by route.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::observability::histogram::HistogramSnapshot;
use athanor_chassis::observability::metric_family::{MetricCollector, MetricFamily, metric_collector};
use athanor_chassis::{Clock, Histogram};
use parking_lot::Mutex;

/// Status for requests with a connection that closed before the response.
const CLIENT_CLOSED_REQUEST: u16 = 499;

const LABELS: &[&str] = &["route"];

/// Metrics of HTTP routes.
pub(super) const ROUTE_METRICS: &[MetricFamily<RouteStats>] = &[
    MetricFamily::counter(
        "athanor_http_requests_total",
        "Number of HTTP and gRPC requests by HTTP status, where 499 means that the client closed the connection",
        &["route", "code"],
        |route, samples| {
            for (code, count) in &route.codes {
                samples.add_labeled(&[route.route, &code.to_string()], *count);
            }
        },
    ),
    MetricFamily::histogram(
        "athanor_http_request_duration_seconds",
        "Duration of HTTP and gRPC requests until the response or until the client closed the connection, in seconds",
        LABELS,
        |route, samples| {
            if route.is_used() {
                samples.add_durations(&[route.route], &route.took);
            }
        },
    ),
    MetricFamily::gauge(
        "athanor_http_requests_in_flight",
        "Number of HTTP and gRPC requests without a response yet",
        LABELS,
        |route, samples| {
            if route.is_used() {
                samples.add_labeled(&[route.route], route.underway);
            }
        },
    ),
    MetricFamily::counter(
        "athanor_http_partial_responses_total",
        "Number of HTTP and gRPC responses that lacked data and reported it",
        LABELS,
        |route, samples| {
            if route.is_used() {
                samples.add_labeled(&[route.route], route.partial);
            }
        },
    ),
];

/// Counters of all routes.
#[derive(Debug, Default)]
pub struct RouteMetrics {
    known: Mutex<BTreeMap<&'static str, Arc<RouteCounters>>>,
}

/// Counters of one route.
#[derive(Debug)]
pub struct RouteCounters {
    took: Histogram,
    /// Responses by HTTP status.
    codes: Mutex<BTreeMap<u16, u64>>,
    partial: AtomicU64,
    underway: AtomicU64,
}

/// Guard of a running request. Dropping it without a response counts a closed connection.
pub struct RouteRequestGuard {
    route: Arc<RouteCounters>,
    clock: Clock,
    begun: Duration,
    answered: bool,
}

/// Values of one route at one scrape.
pub(crate) struct RouteStats {
    route: &'static str,
    took: HistogramSnapshot,
    codes: BTreeMap<u16, u64>,
    partial: u64,
    underway: u64,
}

/// Returns the collector of [`ROUTE_METRICS`].
pub(crate) fn route_collector(routes: Arc<RouteMetrics>) -> MetricCollector {
    metric_collector(ROUTE_METRICS, move || routes.now())
}

impl RouteMetrics {
    /// Returns the counters of a route, and creates them on first use.
    pub fn counters_for(&self, route: &'static str) -> Arc<RouteCounters> {
        let mut known = self.known.lock();
        let new = || RouteCounters {
            took: Histogram::for_durations(),
            codes: Mutex::default(),
            partial: AtomicU64::new(0),
            underway: AtomicU64::new(0),
        };
        Arc::clone(known.entry(route).or_insert_with(|| Arc::new(new())))
    }

    fn now(&self) -> Vec<RouteStats> {
        let known = self.known.lock();
        let counted = known.iter().map(|(name, route)| RouteStats {
            route: name,
            took: route.took.snapshot(),
            codes: route.codes.lock().clone(),
            partial: route.partial.load(Ordering::Relaxed),
            underway: route.underway.load(Ordering::Relaxed),
        });
        counted.collect()
    }
}

impl RouteStats {
    /// Returns whether the route received a request. Other routes have no samples.
    fn is_used(&self) -> bool {
        self.underway > 0 || !self.codes.is_empty()
    }
}

impl RouteRequestGuard {
    /// Counts a new request as running.
    pub fn begin(route: &Arc<RouteCounters>, clock: &Clock) -> Self {
        route.underway.fetch_add(1, Ordering::Relaxed);
        let (clock, begun) = (clock.clone(), clock.monotonic());
        Self { route: Arc::clone(route), clock, begun, answered: false }
    }

    /// Counts the response and ends the request.
    pub fn finish(mut self, code: u16, partial: bool) {
        self.answered = true;
        self.count(code, partial);
    }

    fn count(&self, code: u16, partial: bool) {
        self.route.took.record_duration(self.clock.monotonic().saturating_sub(self.begun));
        *self.route.codes.lock().entry(code).or_default() += 1;
        self.route.partial.fetch_add(u64::from(partial), Ordering::Relaxed);
    }
}

impl Drop for RouteRequestGuard {
    fn drop(&mut self) {
        self.route.underway.fetch_sub(1, Ordering::Relaxed);
        if !self.answered {
            self.count(CLIENT_CLOSED_REQUEST, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;

    use super::*;

    #[test]
    fn every_request_is_counted_once_also_of_who_left() {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let routes = RouteMetrics::default();
        let route = routes.counters_for("/ready");
        RouteRequestGuard::begin(&route, &clock).finish(200, true);
        let second = RouteRequestGuard::begin(&routes.counters_for("/ready"), &clock);
        assert_eq!(routes.now()[0].underway, 1);
        hand.advance(Duration::from_secs(1));
        drop(second);
        let now = routes.now().remove(0);
        assert_eq!((now.route, now.underway, now.partial), ("/ready", 0, 1));
        assert_eq!(now.codes, BTreeMap::from([(200, 1), (CLIENT_CLOSED_REQUEST, 1)]));
        assert_eq!((now.took.count(), now.took.sum), (2, 1_000_000_000));
    }
}
