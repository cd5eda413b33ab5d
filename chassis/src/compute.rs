//! Threads for work that would block an I/O thread: decoding, compression, sorting, file calls.
//!
//! ```text
//!  run ──► ingest: first, fair among tenants ───────────────────────► one thread per core
//!      ──► maintenance: long jobs in order ─────────────────────────► one thread per core, lower priority
//!      ──► query: fair among tenants, jobs yield every 10 ms ───────► one slot per core, low priority
//!      ──► compaction: merges of blocks in order ───────────────────► one thread per core, lowest priority
//! ```
//!
//! Fairness is deficit round robin on measured CPU time (`compute/fair_queue.rs`). `compute/scheduler.rs`
//! decides how much each class may run. Both are pure.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::TenantId;
use crate::code::{ErrorCode, ErrorCodeExt};
use crate::observability::cpu_time::{CpuActivity, coarse_tick, thread_cpu_time};
use crate::tasks::panic_message;

use self::fair_queue::FlowKey;
use self::pool::{CpuClock, PoolInner, slice};
use self::scheduler::JobClass;

mod fair_queue;
mod pool;
mod scheduler;

pub use pool::slice::{hold_slice, yield_slice};

/// Upper bound of remembered queue limits. Beyond it, limits of tenants without jobs are dropped.
const MAX_QUEUE_LIMITS: usize = 4096;

/// Thread pool, or inline execution on the caller. Cheap to clone. The threads end with the last clone.
#[derive(Clone)]
pub struct ComputePool {
    pool: Option<Arc<ThreadPool>>,
    /// Tenant that pays for the CPU time of the jobs. `None` is the process itself.
    tenant: Option<TenantId>,
}

/// Failure of a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComputeError {
    /// The job panicked.
    #[error("computation panicked: {0}")]
    Panicked(String),
    /// The threads could not be started.
    #[error("compute threads not started: {0}")]
    NoThreads(String),
}

impl ComputeError {
    /// Resumes the panic of a job. For jobs that run parts of their work as other jobs.
    #[must_use]
    pub fn resume_panic(self) -> Self {
        match self {
            Self::Panicked(why) => resume_unwind(Box::new(why)),
            Self::NoThreads(_) => self,
        }
    }
}

struct ThreadPool {
    workers: usize,
    shared: Arc<PoolInner>,
    /// Upper bound of running and waiting jobs of one tenant and class.
    max_jobs: usize,
    limits: Mutex<BTreeMap<(JobClass, FlowKey), Weak<Semaphore>>>,
}

/// Starts a thread for one blocking loop that lasts as long as its owner, which joins it. Work that ends
/// belongs on a [`ComputePool`].
#[expect(clippy::disallowed_methods, reason = "one of the places that start threads")]
pub fn spawn_dedicated_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, ComputeError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|error| ComputeError::NoThreads(error.to_string()))
}

// === impl ComputePool ===

impl ComputePool {
    /// Creates a pool for `workers` cores, with at most `queue` waiting jobs per tenant and class. Further
    /// callers of the tenant wait.
    pub fn with_threads(workers: NonZeroUsize, queue: usize) -> Result<Self, ComputeError> {
        Self::with_clock(workers, queue, CpuClock { thread_time: thread_cpu_time, tick: coarse_tick })
    }

    fn with_clock(workers: NonZeroUsize, queue: usize, clock: CpuClock) -> Result<Self, ComputeError> {
        let workers = workers.get();
        let max_jobs = workers.saturating_add(queue).min(Semaphore::MAX_PERMITS);
        let shared = PoolInner::start(workers, clock)?;
        let pool = ThreadPool { workers, shared, max_jobs, limits: Mutex::default() };
        Ok(Self { pool: Some(Arc::new(pool)), tenant: None })
    }

    /// Pool without threads: each job runs on its caller at once. For simulations, which are single-threaded.
    pub const fn inline() -> Self {
        Self { pool: None, tenant: None }
    }

    /// Returns the same pool for jobs of a tenant, which pays for their CPU time.
    #[must_use]
    pub fn for_tenant(&self, tenant: &TenantId) -> Self {
        Self { pool: self.pool.clone(), tenant: Some(tenant.clone()) }
    }

    /// Number of jobs of a class that run at once.
    pub fn parallelism(&self) -> usize {
        self.pool.as_ref().map_or(1, |pool| pool.workers)
    }

    /// Number of jobs that run or wait.
    pub fn pending_jobs(&self) -> usize {
        self.pool.as_ref().map_or(0, |pool| pool.shared.lock().schedule.jobs())
    }

    /// Runs a job like [`run`](Self::run) and measures its CPU time under `activity`. Query jobs run after
    /// those of uploads. Jobs that write blocks and snapshots have their own threads, and so have merges.
    pub async fn run_as<R, F>(&self, activity: CpuActivity, job: F) -> Result<R, ComputeError>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let class = match activity {
            CpuActivity::Query => JobClass::Query,
            CpuActivity::Flush | CpuActivity::Snapshot | CpuActivity::CompactionPlan => JobClass::Maintenance,
            CpuActivity::Compaction => JobClass::Compaction,
            CpuActivity::HttpBody
            | CpuActivity::Decode
            | CpuActivity::Batch
            | CpuActivity::Apply
            | CpuActivity::Wal => JobClass::Ingest,
        };
        self.run_in_class(class, move || activity.measure(job)).await
    }

    /// Runs one short job. If the caller stops waiting before the job begins, the job never runs.
    pub async fn run<R, F>(&self, job: F) -> Result<R, ComputeError>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        self.run_in_class(JobClass::Ingest, job).await
    }

    async fn run_in_class<R, F>(&self, class: JobClass, job: F) -> Result<R, ComputeError>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let Some(pool) = &self.pool else {
            return catch_panic(job);
        };
        let permit = pool.acquire_permit(class, &self.tenant).await;
        let (answer, answered) = oneshot::channel();
        let job = move || {
            let _permit = permit;
            if !answer.is_closed() {
                // The caller may stop waiting while the job runs. The result is then dropped.
                let _ = answer.send(catch_panic(job));
            }
        };
        pool.shared.submit(class, &self.tenant, Box::new(job));
        answered.await.expect("a worker answers each job whose caller waits")
    }

    /// Applies `each` to every item, on as many threads as the pool has, and returns the results in order.
    /// Blocks, so it is for commands and jobs, not for tasks. The threads exist for this call only, so items
    /// may borrow. In a query job they take slots of the pool that no other job waits for.
    #[expect(clippy::disallowed_methods, reason = "one of the places that start threads")]
    pub fn map<T, R, F>(&self, items: Vec<T>, each: F) -> Result<Vec<R>, ComputeError>
    where
        T: Send,
        R: Send,
        F: Fn(T) -> R + Sync,
    {
        let width = self.parallelism().min(items.len());
        let helpers = slice::start_helpers(width.saturating_sub(1));
        if width <= 1 || helpers.as_ref().is_some_and(Vec::is_empty) {
            return items.into_iter().map(|item| catch_panic(|| each(item))).collect();
        }
        let items: Vec<_> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
        let next = AtomicUsize::new(0);
        let take = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let slot = items.get(index)?;
            let item = slot.lock().take();
            item.map(|item| (index, item))
        };
        let all = || {
            let mut done = Vec::new();
            while let Some((index, item)) = take() {
                done.push((index, catch_panic(|| each(item))));
            }
            done
        };
        // Helper threads are measured under the caller's activity.
        let here = CpuActivity::current();
        let worker = || here.map_or_else(all, |activity| activity.measure(all));
        let mut results: Vec<_> = std::thread::scope(|scope| match helpers {
            None => {
                let threads: Vec<_> = (0..width).map(|_| scope.spawn(worker)).collect();
                threads
                    .into_iter()
                    .flat_map(|thread| thread.join().expect("panics are caught inside"))
                    .collect()
            }
            Some(helpers) => {
                let worker = &worker;
                let threads: Vec<_> = helpers
                    .into_iter()
                    .map(|slice| scope.spawn(move || slice::run_in_slice(slice, worker)))
                    .collect();
                let own = all();
                let join = || {
                    threads.into_iter().flat_map(|thread| thread.join().expect("panics are caught inside"))
                };
                let others: Vec<_> = slice::wait_for_helpers(|| join().collect());
                own.into_iter().chain(others).collect()
            }
        });
        results.sort_unstable_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

impl fmt::Debug for ComputePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputePool").field("width", &self.parallelism()).finish()
    }
}

impl ThreadPool {
    /// Waits for a queue slot of the tenant.
    async fn acquire_permit(&self, class: JobClass, flow: &FlowKey) -> OwnedSemaphorePermit {
        let limit = {
            let mut limits = self.limits.lock();
            if limits.len() >= MAX_QUEUE_LIMITS {
                limits.retain(|_, limit| limit.strong_count() > 0);
            }
            let limit = limits.entry((class, flow.clone())).or_default();
            limit.upgrade().unwrap_or_else(|| {
                let new = Arc::new(Semaphore::new(self.max_jobs));
                *limit = Arc::downgrade(&new);
                new
            })
        };
        limit.acquire_owned().await.expect("the semaphore is never closed")
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.close();
    }
}

fn catch_panic<R>(job: impl FnOnce() -> R) -> Result<R, ComputeError> {
    // The panic drops the job and its result, so no half-changed state stays visible through them.
    catch_unwind(AssertUnwindSafe(job))
        .map_err(|payload: Box<dyn Any + Send>| ComputeError::Panicked(panic_message(&*payload)))
}

impl ErrorCodeExt for ComputeError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Panicked(_) | Self::NoThreads(_) => ErrorCode::Internal,
        }
    }

    fn is_panic(&self) -> bool {
        matches!(self, Self::Panicked(_))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::{Clock, Status};

    fn pool(workers: usize, queue: usize) -> ComputePool {
        ComputePool::with_threads(NonZeroUsize::new(workers).unwrap(), queue).unwrap()
    }

    #[tokio::test]
    async fn jobs_run_off_the_calling_thread_or_inline() {
        let here = std::thread::current().id();
        assert_ne!(pool(1, 1).run(|| std::thread::current().id()).await.unwrap(), here);
        assert_eq!(ComputePool::inline().run(|| std::thread::current().id()).await.unwrap(), here);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_pool_goes_on() {
        for compute in [pool(1, 1), ComputePool::inline()] {
            let failed: Result<(), _> = compute.run(|| panic!("bad {}", "row")).await;
            let error = failed.unwrap_err();
            assert_eq!(
                (error.clone(), error.code()),
                (ComputeError::Panicked("bad row".into()), ErrorCode::Internal)
            );
            assert!(
                Status::from_error(&error).panicked
                    && Status::from_error(&Status::from_error(&error)).panicked
            );
            assert!(!Status::from_error(&ComputeError::NoThreads("none left".into())).panicked);
            assert_eq!(compute.run(|| 5).await, Ok(5));
        }
    }

    #[tokio::test]
    async fn a_full_pool_makes_callers_wait_and_forgets_those_who_left() {
        let compute = pool(1, 1);
        let (release, blocked) = mpsc::channel::<()>();
        let first = compute.run(move || blocked.recv().is_ok());
        let second = compute.run(|| unreachable!("its caller left before it began"));
        let third = compute.run(|| 3);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let (mut first, mut second, mut third) = (Box::pin(first), Box::pin(second), Box::pin(third));
        assert!(first.as_mut().poll(&mut context).is_pending());
        let _: std::task::Poll<Result<(), _>> = second.as_mut().poll(&mut context);
        assert!(third.as_mut().poll(&mut context).is_pending());
        assert_eq!(compute.pending_jobs(), 2);
        drop(second);
        release.send(()).unwrap();
        assert_eq!(first.await, Ok(true));
        assert_eq!(third.await, Ok(3));
    }

    /// A clock on which each look takes as long as a slice.
    fn hasty_clock() -> CpuClock {
        static LOOKS: AtomicUsize = AtomicUsize::new(0);
        CpuClock {
            thread_time: || Duration::from_millis(10) * LOOKS.fetch_add(1, Ordering::Relaxed) as u32,
            tick: || LOOKS.fetch_add(1, Ordering::Relaxed) as u64,
        }
    }

    /// Fails instead of waiting for ever.
    async fn within_a_minute<F: Future>(future: F) -> F::Output {
        Clock::system().timeout(Duration::from_secs(60), future).await.expect("it runs")
    }

    fn tenants<const N: usize>(compute: &ComputePool, names: [&str; N]) -> [ComputePool; N] {
        names.map(|name| compute.for_tenant(&name.parse().unwrap()))
    }

    /// Query jobs that do not yield, on all the slots that queries of the tenant may have.
    fn endless_queries(
        compute: &ComputePool,
    ) -> (mpsc::Sender<()>, Vec<impl Future<Output = Result<bool, ComputeError>>>) {
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let jobs = (0..8).map(|_| {
            let (compute, blocked) = (compute.clone(), Arc::clone(&blocked));
            async move { compute.run_as(CpuActivity::Query, move || blocked.lock().recv().is_err()).await }
        });
        (release, jobs.collect())
    }

    #[tokio::test]
    async fn ingest_job_runs_beside_queries_that_never_yield() {
        let compute = pool(1, 100);
        let [heavy, light] = tenants(&compute, ["heavy", "light"]);
        let (release, queries) = endless_queries(&heavy);
        let mut queries = Box::pin(futures::future::join_all(queries));
        assert!(futures::poll!(queries.as_mut()).is_pending());
        assert_eq!(within_a_minute(light.run_as(CpuActivity::Decode, || 1)).await, Ok(1));
        assert_eq!(within_a_minute(compute.run_as(CpuActivity::Apply, || 2)).await, Ok(2));
        assert_eq!(within_a_minute(compute.run_as(CpuActivity::Flush, || 3)).await, Ok(3));
        // A query of another tenant does as well.
        assert_eq!(within_a_minute(light.run_as(CpuActivity::Query, || 4)).await, Ok(4));
        drop(release);
        assert!(queries.await.into_iter().all(|ended| ended == Ok(true)));
    }

    #[tokio::test]
    async fn query_jobs_yield_to_those_of_other_tenants() {
        let compute = ComputePool::with_clock(NonZeroUsize::MIN, 100, hasty_clock()).unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let jobs = ["a", "b", "c", "d", "e"].map(|name| {
            let ([compute], begun) = (tenants(&compute, [name]), Arc::clone(&begun));
            let job = move || {
                begun.fetch_add(1, Ordering::SeqCst);
                // One slot is not enough for all, unless they yield it.
                while begun.load(Ordering::SeqCst) < 5 {
                    yield_slice();
                }
            };
            async move { compute.run_as(CpuActivity::Query, job).await }
        });
        let ended = within_a_minute(futures::future::join_all(jobs)).await;
        assert_eq!(ended, vec![Ok(()); 5]);
    }

    #[tokio::test]
    async fn job_that_holds_its_slice_does_not_yield() {
        let compute = ComputePool::with_clock(NonZeroUsize::MIN, 100, hasty_clock()).unwrap();
        let lock = Arc::new(Mutex::new(0));
        let jobs = ["a", "b", "c"].map(|name| {
            let ([compute], lock) = (tenants(&compute, [name]), Arc::clone(&lock));
            let job = move || {
                hold_slice(|| {
                    let mut count = lock.lock();
                    (0..100).for_each(|_| yield_slice());
                    *count += 1;
                });
                (0..100).for_each(|_| yield_slice());
            };
            async move { compute.run_as(CpuActivity::Query, job).await }
        });
        let ended = within_a_minute(futures::future::join_all(jobs)).await;
        assert_eq!((ended, *lock.lock()), (vec![Ok(()); 3], 3));
    }

    #[tokio::test]
    async fn query_jobs_map_on_slots_that_are_free() {
        let compute = ComputePool::with_clock(NonZeroUsize::new(3).unwrap(), 100, hasty_clock()).unwrap();
        let jobs = ["a", "a", "b", "c", "d"].map(|name| {
            let ([compute], parts) = (tenants(&compute, [name]), compute.clone());
            let each = |n: usize| {
                (0..20).for_each(|_| yield_slice());
                n * 2
            };
            let job = move || parts.map((0..50).collect(), each).map_err(ComputeError::resume_panic);
            async move { compute.run_as(CpuActivity::Query, job).await }
        });
        let expected: Vec<usize> = (0..50).map(|n| n * 2).collect();
        for done in within_a_minute(futures::future::join_all(jobs)).await {
            assert_eq!(done.unwrap().unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn tenant_with_a_full_queue_holds_up_no_other_tenant() {
        let compute = pool(1, 1);
        let [heavy, light] = tenants(&compute, ["heavy", "light"]);
        let (release, queries) = endless_queries(&heavy);
        let mut queries = Box::pin(futures::future::join_all(queries));
        assert!(futures::poll!(queries.as_mut()).is_pending());
        assert_eq!(compute.pending_jobs(), 2, "six callers wait to queue up");
        assert_eq!(within_a_minute(light.run_as(CpuActivity::Query, || 1)).await, Ok(1));
        drop(release);
        queries.await;
    }

    #[tokio::test]
    async fn a_part_that_panics_is_a_panic_of_the_whole() {
        let (compute, parts) = (pool(2, 1), pool(2, 1));
        let all =
            move || parts.map(vec![1, 2, 3], |n| assert!(n != 2, "two")).map_err(ComputeError::resume_panic);
        assert_eq!(compute.run(all).await, Err(ComputeError::Panicked("two".into())));
    }

    #[test]
    fn map_keeps_the_order_and_lets_items_borrow() {
        let words = ["a", "bb", "ccc", "dddd"];
        for compute in [pool(3, 1), ComputePool::inline()] {
            let lengths = compute.map(words.iter().collect(), |word| word.len()).unwrap();
            assert_eq!(lengths, [1, 2, 3, 4]);
            assert_eq!(compute.map(Vec::<u8>::new(), |byte| byte).unwrap(), Vec::<u8>::new());
            let failed = compute.map(vec![1, 2, 3], |n| assert!(n != 2, "two"));
            assert_eq!(failed, Err(ComputeError::Panicked("two".into())));
        }
    }
}
