//! Single flight: concurrent requests with equal keys share one computation.
//!
//! A request may join a computation that began before it. So the result must not depend on the time of the
//! request, as that of an immutable block does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;

type FlightFuture<V> = BoxFuture<'static, V>;
type InFlightMap<K, V> = Arc<Mutex<BTreeMap<K, WeakShared<FlightFuture<V>>>>>;

/// Running computations by key. An entry exists only while a caller waits for it, so entries never outnumber
/// callers.
pub struct SingleFlight<K: Ord, V: Clone>(InFlightMap<K, V>);

/// Waiter of a computation. The computation is cancelled when the last waiter is dropped.
struct FlightWaiter<K: Ord + Clone, V: Clone> {
    under_way: InFlightMap<K, V>,
    key: K,
    flight: Option<Shared<FlightFuture<V>>>,
}

impl<K: Ord, V: Clone> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Ord + Clone, V: Clone> SingleFlight<K, V> {
    /// Waits for the running computation of a key, or starts one. Also returns whether one was already
    /// running.
    pub async fn join_or_start(&self, key: K, begin: impl FnOnce() -> FlightFuture<V>) -> (V, bool) {
        let (flight, joined) = {
            let mut all = self.0.lock();
            match all.get(&key).and_then(WeakShared::upgrade) {
                Some(flight) => (flight, true),
                None => {
                    let flight = begin().shared();
                    if let Some(weak) = flight.downgrade() {
                        all.insert(key.clone(), weak);
                    }
                    (flight, false)
                }
            }
        };
        let seat = FlightWaiter { under_way: Arc::clone(&self.0), key, flight: Some(flight.clone()) };
        let value = flight.await;
        drop(seat);
        (value, joined)
    }

    /// Returns the approximate number of waiters of a key. Waiters may arrive or leave concurrently.
    pub fn waiter_count(&self, key: &K) -> usize {
        let flight = self.0.lock().get(key).and_then(WeakShared::upgrade);
        // Each waiter holds two references, and this function holds one.
        flight.and_then(|flight| flight.strong_count()).map_or(0, |count| (count - 1) / 2)
    }

    /// Returns the number of running computations.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl<K: Ord + Clone, V: Clone> Drop for FlightWaiter<K, V> {
    fn drop(&mut self) {
        self.flight = None;
        let mut all = self.under_way.lock();
        // The upgraded reference must be dropped outside the lock: dropping the last one ends the
        // computation.
        let left = all.get(&self.key).and_then(WeakShared::upgrade);
        if left.is_none() {
            all.remove(&self.key);
        }
        drop(all);
        if left.is_some() {
            drop(left);
            // Other waiters may have left meanwhile and counted the upgraded reference as a waiter.
            let mut all = self.under_way.lock();
            if all.get(&self.key).is_some_and(|flight| flight.upgrade().is_none()) {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[derive(Default)]
    struct Work {
        begun: AtomicUsize,
        dropped: AtomicUsize,
        go: Notify,
    }

    struct Running(Arc<Work>);

    impl Drop for Running {
        fn drop(&mut self) {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn begin(work: &Arc<Work>) -> FlightFuture<usize> {
        let work = Arc::clone(work);
        async move {
            let running = Running(Arc::clone(&work));
            let number = work.begun.fetch_add(1, Ordering::Relaxed) + 1;
            work.go.notified().await;
            drop(running);
            number
        }
        .boxed()
    }

    #[tokio::test]
    async fn who_asks_the_same_waits_for_one_answer_whoever_leaves() {
        let (flights, work) = (SingleFlight::default(), Arc::<Work>::default());
        let mut first = Box::pin(flights.join_or_start(1, || begin(&work)));
        let mut second = Box::pin(flights.join_or_start(1, || begin(&work)));
        let mut other = Box::pin(flights.join_or_start(2, || begin(&work)));
        assert!(futures::poll!(&mut first).is_pending());
        assert!(futures::poll!(&mut second).is_pending());
        assert!(futures::poll!(&mut other).is_pending());
        assert_eq!((work.begun.load(Ordering::Relaxed), flights.len()), (2, 2));
        assert_eq!([1, 2, 3].map(|key| flights.waiter_count(&key)), [2, 1, 0]);
        drop(first);
        drop(other);
        assert_eq!(
            (work.dropped.load(Ordering::Relaxed), flights.len()),
            (1, 1),
            "nobody waits for the other"
        );
        work.go.notify_waiters();
        assert_eq!(second.await, (1, true));
        assert_eq!(flights.len(), 0);
        // What has ended begins anew.
        let mut again = Box::pin(flights.join_or_start(1, || begin(&work)));
        assert!(futures::poll!(&mut again).is_pending());
        work.go.notify_waiters();
        assert_eq!(again.await, (3, false));
        assert_eq!((work.begun.load(Ordering::Relaxed), flights.len()), (3, 0));
    }
}
