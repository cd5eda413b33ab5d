//! Request coalescing: concurrent equal requests share one computation.
//!
//! ```text
//!  first ──── waits for a permit ──── plans ──── queries ──── responds
//!  second ──────── waits ────────────────────────────────────► receives the same result
//!  third                               waits ────────────────► leads: recomputes for all that wait by then
//! ```
//! A client may have seen data that was stored just before its request. So a result is shared only with
//! requests that came before it was planned [INV-17]. All later requests wait for the next computation
//! together. Any number of equal requests needs at most one running computation and one pending.
//!
//! That is no `SingleFlight`: the leader computes in its own request, with its permit and memory, and another
//! request takes over if it leaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::channel::oneshot;
use parking_lot::Mutex;

/// Maximum number of requests that wait for one result.
const MAX_WAITERS_PER_REQUEST: usize = 512;
/// Maximum number of waiting requests of all tenants. Further requests compute alone.
const MAX_TOTAL_WAITERS: usize = 2048;

/// Encoded request inputs, including the tenants.
pub(crate) type RequestKey = Arc<[u8]>;

/// Registry of requests in flight and their waiters. `T` is the shared result.
pub(crate) struct RequestCoalescer<T> {
    requests: Mutex<BTreeMap<RequestKey, InFlightRequest<T>>>,
}

/// Request that one leader computes for all its waiters.
struct InFlightRequest<T> {
    /// Set once the leader has made its plan.
    planned: Arc<AtomicBool>,
    /// Waiters in the order of their arrival.
    waiting: Vec<CoalescedWaiter<T>>,
}

struct CoalescedWaiter<T> {
    /// True if the waiter came before the plan was made.
    is_early: bool,
    /// Flag to set once the waiter itself has made a plan.
    planned: Arc<AtomicBool>,
    hear: oneshot::Sender<JoinOutcome<T>>,
}

/// Role of a request that joins equal ones.
pub(crate) enum JoinOutcome<T> {
    /// The request computes the result for all waiters.
    Lead(CoalescingLeader<T>),
    /// The leader shared this result.
    Told(T),
    /// Too many requests wait, so the request computes alone.
    Alone,
}

/// Computes for all equal requests. If it is dropped without a result, the next waiter leads.
pub(crate) struct CoalescingLeader<T> {
    together: Arc<RequestCoalescer<T>>,
    key: RequestKey,
}

impl<T> Default for RequestCoalescer<T> {
    fn default() -> Self {
        Self { requests: Mutex::default() }
    }
}

impl<T> RequestCoalescer<T> {
    /// Becomes the leader, or waits for it. `planned` is set once the request is planned.
    pub(crate) async fn join(self: &Arc<Self>, key: &RequestKey, planned: Arc<AtomicBool>) -> JoinOutcome<T> {
        let heard = {
            let mut all = self.requests.lock();
            match all.get(key) {
                None => {
                    all.insert(Arc::clone(key), InFlightRequest { planned, waiting: Vec::new() });
                    return JoinOutcome::Lead(self.leader_of(key));
                }
                Some(_) => wait(&mut all, key, planned),
            }
        };
        match heard {
            Some(heard) => heard.await.unwrap_or(JoinOutcome::Alone),
            None => JoinOutcome::Alone,
        }
    }

    /// Returns the number of waiting requests.
    #[cfg(test)]
    fn waiter_count(&self) -> usize {
        self.requests.lock().values().map(|asked| asked.waiting.len()).sum()
    }

    fn leader_of(self: &Arc<Self>, key: &RequestKey) -> CoalescingLeader<T> {
        CoalescingLeader { together: Arc::clone(self), key: Arc::clone(key) }
    }

    /// Makes the next waiter the leader. The message is sent without the lock: a cancelled waiter drops its
    /// [`CoalescingLeader`], which takes the lock.
    fn promote_next_waiter(self: &Arc<Self>, key: &RequestKey) {
        let next = {
            let mut all = self.requests.lock();
            let Some(asked) = all.get_mut(key) else { return };
            asked.sweep();
            if asked.waiting.is_empty() {
                all.remove(key);
                return;
            }
            let next = asked.waiting.remove(0);
            asked.planned = Arc::clone(&next.planned);
            let is_early = !next.planned.load(Ordering::SeqCst);
            asked.waiting.iter_mut().for_each(|waiter| waiter.is_early = is_early);
            next
        };
        drop(next.hear.send(JoinOutcome::Lead(self.leader_of(key))));
    }
}

/// Adds a waiter for the leader. Returns none if a limit is reached.
fn wait<T>(
    all: &mut BTreeMap<RequestKey, InFlightRequest<T>>,
    key: &RequestKey,
    planned: Arc<AtomicBool>,
) -> Option<oneshot::Receiver<JoinOutcome<T>>> {
    let count = |all: &BTreeMap<RequestKey, InFlightRequest<T>>| {
        all.values().map(|asked| asked.waiting.len()).sum::<usize>()
    };
    if count(all) >= MAX_TOTAL_WAITERS {
        all.values_mut().for_each(InFlightRequest::sweep);
        if count(all) >= MAX_TOTAL_WAITERS {
            return None;
        }
    }
    let asked = all.get_mut(key)?;
    asked.sweep();
    if asked.waiting.len() >= MAX_WAITERS_PER_REQUEST {
        return None;
    }
    let is_early = !asked.planned.load(Ordering::SeqCst);
    let (hear, heard) = oneshot::channel();
    asked.waiting.push(CoalescedWaiter { is_early, planned, hear });
    Some(heard)
}

impl<T> InFlightRequest<T> {
    /// Removes the waiters of cancelled requests.
    fn sweep(&mut self) {
        self.waiting.retain(|waiter| !waiter.hear.is_canceled());
    }
}

impl<T> CoalescingLeader<T> {
    /// Returns true if a waiter would receive the result.
    pub(crate) fn has_waiters(&self) -> bool {
        let all = self.together.requests.lock();
        let mut waiting = all.get(&self.key).into_iter().flat_map(|asked| &asked.waiting);
        waiting.any(|waiter| waiter.is_early && !waiter.hear.is_canceled())
    }

    /// Sends the result to waiters that came before the plan.
    pub(crate) fn share_result(self, told: T)
    where
        T: Clone,
    {
        let early: Vec<CoalescedWaiter<T>> = {
            let mut all = self.together.requests.lock();
            let asked = all.get_mut(&self.key);
            asked.map(|asked| asked.waiting.extract_if(.., |waiter| waiter.is_early).collect())
        }
        .unwrap_or_default();
        for waiter in early {
            drop(waiter.hear.send(JoinOutcome::Told(told.clone())));
        }
    }
}

impl<T> Drop for CoalescingLeader<T> {
    fn drop(&mut self) {
        self.together.promote_next_waiter(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn key(text: &str) -> RequestKey {
        RequestKey::from(text.as_bytes())
    }

    /// Who asks, and has not heard yet.
    fn joins(
        together: &Arc<RequestCoalescer<u32>>,
        planned: &Arc<AtomicBool>,
    ) -> impl Future<Output = JoinOutcome<u32>> + Unpin {
        let (together, planned) = (Arc::clone(together), Arc::clone(planned));
        let mut join = Box::pin(async move { together.join(&key("a"), planned).await });
        let now = (&mut join).now_or_never();
        async move {
            match now {
                Some(heard) => heard,
                None => join.await,
            }
        }
        .boxed_local()
    }

    fn leads(heard: Option<JoinOutcome<u32>>) -> CoalescingLeader<u32> {
        match heard {
            Some(JoinOutcome::Lead(lead)) => lead,
            Some(JoinOutcome::Told(told)) => panic!("it was told {told}"),
            Some(JoinOutcome::Alone) => panic!("it asks alone"),
            None => panic!("it waits"),
        }
    }

    fn told(heard: Option<JoinOutcome<u32>>) -> u32 {
        match heard {
            Some(JoinOutcome::Told(told)) => told,
            Some(_) => panic!("it asks"),
            None => panic!("it waits"),
        }
    }

    #[test]
    fn an_answer_is_for_who_came_before_its_plan() {
        let (together, planned) =
            (Arc::new(RequestCoalescer::default()), [0; 4].map(|_| Arc::<AtomicBool>::default()));
        let lead = leads(joins(&together, &planned[0]).now_or_never());
        assert!(!lead.has_waiters());
        let early = joins(&together, &planned[1]);
        assert!(lead.has_waiters());
        planned[0].store(true, Ordering::SeqCst);
        let late = [joins(&together, &planned[2]), joins(&together, &planned[3])];
        lead.share_result(1);
        assert_eq!(told(early.now_or_never()), 1);
        let [first, second] = late;
        let lead = leads(first.now_or_never());
        assert!(lead.has_waiters(), "the second of them came before the plan that is made now");
        planned[2].store(true, Ordering::SeqCst);
        lead.share_result(2);
        assert_eq!(told(second.now_or_never()), 2);
        assert!(together.requests.lock().is_empty());
    }

    #[test]
    fn who_leaves_lets_the_next_one_lead() {
        let (together, planned) =
            (Arc::new(RequestCoalescer::default()), [0; 4].map(|_| Arc::<AtomicBool>::default()));
        let lead = leads(joins(&together, &planned[0]).now_or_never());
        let [left, next, last] = [1, 2, 3].map(|at| joins(&together, &planned[at]));
        planned[0].store(true, Ordering::SeqCst);
        drop(left);
        drop(lead);
        // The lead is on its way to one that does not take it any more.
        drop(next);
        let lead = leads(last.now_or_never());
        assert!(!lead.has_waiters());
        assert_eq!(together.waiter_count(), 0);
        drop(lead);
        assert!(together.requests.lock().is_empty());
    }

    #[test]
    fn so_many_wait_and_no_more() {
        let (together, planned) = (Arc::new(RequestCoalescer::default()), Arc::default());
        let lead = leads(joins(&together, &planned).now_or_never());
        let mut waiting: Vec<_> = (0..MAX_WAITERS_PER_REQUEST).map(|_| joins(&together, &planned)).collect();
        assert!(matches!(joins(&together, &planned).now_or_never(), Some(JoinOutcome::Alone)));
        assert_eq!(together.waiter_count(), MAX_WAITERS_PER_REQUEST);
        // Who leaves makes a place.
        waiting.pop();
        waiting.push(joins(&together, &planned));
        lead.share_result(7);
        assert!(waiting.into_iter().all(|waiter| told(waiter.now_or_never()) == 7));
    }
}
