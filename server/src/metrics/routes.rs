//! Requests by where they went, counted on their way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use athanor_chassis::histogram::Spread;
use athanor_chassis::{Clock, Histogram};

/// What a request is counted as whose client left before the answer.
const LEFT: u16 = 499;

/// All routes.
#[derive(Debug, Default)]
pub struct Routes {
    known: Mutex<BTreeMap<&'static str, Arc<Route>>>,
}

/// The counters of one route.
#[derive(Debug)]
pub struct Route {
    took: Histogram,
    /// Answers by HTTP status.
    codes: Mutex<BTreeMap<u16, u64>>,
    partial: AtomicU64,
    underway: AtomicU64,
}

/// A request on its way. Dropping it says that its client left.
pub struct Underway {
    route: Arc<Route>,
    clock: Clock,
    begun: Duration,
    answered: bool,
}

/// One route's numbers at a moment.
pub(super) struct Counted {
    pub(super) route: &'static str,
    pub(super) took: Spread,
    pub(super) codes: BTreeMap<u16, u64>,
    pub(super) partial: u64,
    pub(super) underway: u64,
}

impl Routes {
    /// The counters of a route, made if they are new.
    pub fn of(&self, route: &'static str) -> Arc<Route> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Route {
            took: Histogram::of_times(),
            codes: Mutex::default(),
            partial: AtomicU64::new(0),
            underway: AtomicU64::new(0),
        };
        Arc::clone(known.entry(route).or_insert_with(|| Arc::new(new())))
    }

    pub(super) fn now(&self) -> Vec<Counted> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = known.iter().map(|(name, route)| Counted {
            route: name,
            took: route.took.now(),
            codes: route.codes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            partial: route.partial.load(Ordering::Relaxed),
            underway: route.underway.load(Ordering::Relaxed),
        });
        counted.collect()
    }
}

impl Underway {
    /// A request has come.
    pub fn begin(route: &Arc<Route>, clock: &Clock) -> Self {
        route.underway.fetch_add(1, Ordering::Relaxed);
        let (clock, begun) = (clock.clone(), clock.monotonic());
        Self { route: Arc::clone(route), clock, begun, answered: false }
    }

    /// It is answered.
    pub fn answered(mut self, code: u16, partial: bool) {
        self.answered = true;
        self.count(code, partial);
    }

    fn count(&self, code: u16, partial: bool) {
        self.route.took.took(self.clock.monotonic().saturating_sub(self.begun));
        *self.route.codes.lock().unwrap_or_else(PoisonError::into_inner).entry(code).or_default() += 1;
        self.route.partial.fetch_add(u64::from(partial), Ordering::Relaxed);
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.route.underway.fetch_sub(1, Ordering::Relaxed);
        if !self.answered {
            self.count(LEFT, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;

    use super::*;

    #[test]
    fn every_request_is_counted_once_also_of_who_left() {
        let (clock, hand) = Clock::manual(Timestamp::EPOCH);
        let routes = Routes::default();
        let route = routes.of("/ready");
        Underway::begin(&route, &clock).answered(200, true);
        let second = Underway::begin(&routes.of("/ready"), &clock);
        assert_eq!(routes.now()[0].underway, 1);
        hand.advance(Duration::from_secs(1));
        drop(second);
        let now = routes.now().remove(0);
        assert_eq!((now.route, now.underway, now.partial), ("/ready", 0, 1));
        assert_eq!(now.codes, BTreeMap::from([(200, 1), (LEFT, 1)]));
        assert_eq!((now.took.count(), now.took.sum), (2, 1_000_000_000));
    }
}
