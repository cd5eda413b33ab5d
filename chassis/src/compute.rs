//! A pool of threads for work that would hold up an I/O thread: decoding, compressing, sorting, file calls.

use std::any::Any;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tokio::sync::{Semaphore, oneshot};

use crate::activity::Activity;
use crate::code::{Code, Coded};
use crate::tasks::panic_message;

type Job = Box<dyn FnOnce() + Send>;

/// A bounded pool of threads, or the caller itself. Cheap to clone; the threads end with the last clone.
#[derive(Clone)]
pub struct Compute {
    pool: Option<Arc<Pool>>,
}

/// Why a job gave no result.
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
    /// Goes on panicking where a job did: for a job that had others do parts of it.
    #[must_use]
    pub fn or_panic(self) -> Self {
        match self {
            Self::Panicked(why) => resume_unwind(Box::new(why)),
            Self::NoThreads(_) => self,
        }
    }
}

struct Pool {
    workers: usize,
    jobs: mpsc::Sender<Job>,
    /// One permit for each job that runs or waits in the queue.
    room: Arc<Semaphore>,
    limit: usize,
}

/// Starts a thread for one loop that blocks and lasts as long as its owner, who joins it. Few have one: work that ends
/// belongs on a [`Compute`].
#[expect(clippy::disallowed_methods, reason = "one of the places that start threads")]
pub fn dedicated(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, ComputeError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|error| ComputeError::NoThreads(error.to_string()))
}

// === impl Compute ===

impl Compute {
    /// So many threads, and at most `queue` jobs waiting for them; further callers wait their turn.
    #[expect(clippy::disallowed_methods, reason = "one of the places that start threads")]
    pub fn threads(workers: NonZeroUsize, queue: usize) -> Result<Self, ComputeError> {
        let (jobs, inbox) = mpsc::channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let workers = workers.get();
        for number in 0..workers {
            let inbox = Arc::clone(&inbox);
            std::thread::Builder::new()
                .name(format!("compute-{number}"))
                .spawn(move || work(&inbox))
                .map_err(|error| ComputeError::NoThreads(error.to_string()))?;
        }
        let limit = (workers + queue).min(Semaphore::MAX_PERMITS);
        let room = Arc::new(Semaphore::new(limit));
        Ok(Self { pool: Some(Arc::new(Pool { workers, jobs, room, limit })) })
    }

    /// No threads: each job runs on its caller, at once. For simulations, where everything is one thread.
    pub const fn inline() -> Self {
        Self { pool: None }
    }

    /// How many jobs run at once.
    pub fn width(&self) -> usize {
        self.pool.as_ref().map_or(1, |pool| pool.workers)
    }

    /// How many jobs run or wait.
    pub fn busy(&self) -> usize {
        self.pool.as_ref().map_or(0, |pool| pool.limit.saturating_sub(pool.room.available_permits()))
    }

    /// As [`run`](Self::run), and counts the job's time.
    pub async fn run_as<R, F>(&self, activity: Activity, job: F) -> Result<R, ComputeError>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        self.run(move || activity.measure(job)).await
    }

    /// Runs one job. If the caller leaves before the job has begun, it never does.
    pub async fn run<R, F>(&self, job: F) -> Result<R, ComputeError>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let Some(pool) = &self.pool else {
            return catch(job);
        };
        let permit = Arc::clone(&pool.room).acquire_owned().await.expect("the semaphore is never closed");
        let (answer, answered) = oneshot::channel();
        let job = move || {
            let _permit = permit;
            if !answer.is_closed() {
                // The caller may leave while the job runs; then nobody wants the result.
                let _ = answer.send(catch(job));
            }
        };
        pool.jobs.send(Box::new(job)).expect("workers live as long as the pool, which self holds");
        answered.await.expect("a worker answers each job whose caller waits")
    }

    /// Applies `each` to every item, on as many threads as the pool has, and gives the results in order. Blocks:
    /// for commands, not for tasks. The threads are of this call alone, so items may borrow.
    #[expect(clippy::disallowed_methods, reason = "one of the places that start threads")]
    pub fn map<T, R, F>(&self, items: Vec<T>, each: F) -> Result<Vec<R>, ComputeError>
    where
        T: Send,
        R: Send,
        F: Fn(T) -> R + Sync,
    {
        let width = self.width().min(items.len());
        if width <= 1 {
            return items.into_iter().map(|item| catch(|| each(item))).collect();
        }
        let items: Vec<_> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
        let next = AtomicUsize::new(0);
        let take = || {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let slot = items.get(index)?;
            let item = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
            item.map(|item| (index, item))
        };
        let all = || {
            let mut done = Vec::new();
            while let Some((index, item)) = take() {
                done.push((index, catch(|| each(item))));
            }
            done
        };
        // Who helps does what the caller does.
        let here = Activity::here();
        let worker = || here.map_or_else(all, |activity| activity.measure(all));
        let mut results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..width).map(|_| scope.spawn(worker)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("panics are caught inside")).collect()
        });
        results.sort_unstable_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

impl fmt::Debug for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute").field("width", &self.width()).finish()
    }
}

fn work(inbox: &Mutex<mpsc::Receiver<Job>>) {
    loop {
        let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(mpsc::RecvError) => return,
        }
    }
}

fn catch<R>(job: impl FnOnce() -> R) -> Result<R, ComputeError> {
    // The job is consumed and its result dropped with the panic: nothing half-changed is seen again through it.
    catch_unwind(AssertUnwindSafe(job))
        .map_err(|payload: Box<dyn Any + Send>| ComputeError::Panicked(panic_message(&*payload)))
}

impl Coded for ComputeError {
    fn code(&self) -> Code {
        match self {
            Self::Panicked(_) | Self::NoThreads(_) => Code::Internal,
        }
    }

    fn is_panic(&self) -> bool {
        matches!(self, Self::Panicked(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    fn pool(workers: usize, queue: usize) -> Compute {
        Compute::threads(NonZeroUsize::new(workers).unwrap(), queue).unwrap()
    }

    #[tokio::test]
    async fn jobs_run_off_the_calling_thread_or_inline() {
        let here = std::thread::current().id();
        assert_ne!(pool(1, 1).run(|| std::thread::current().id()).await.unwrap(), here);
        assert_eq!(Compute::inline().run(|| std::thread::current().id()).await.unwrap(), here);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_pool_goes_on() {
        for compute in [pool(1, 1), Compute::inline()] {
            let failed: Result<(), _> = compute.run(|| panic!("bad {}", "row")).await;
            let error = failed.unwrap_err();
            assert_eq!(
                (error.clone(), error.code()),
                (ComputeError::Panicked("bad row".into()), Code::Internal)
            );
            assert!(Status::of(&error).panicked && Status::of(&Status::of(&error)).panicked);
            assert!(!Status::of(&ComputeError::NoThreads("none left".into())).panicked);
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
        assert_eq!(compute.pool.as_ref().unwrap().room.available_permits(), 0);
        drop(second);
        release.send(()).unwrap();
        assert_eq!(first.await, Ok(true));
        assert_eq!(third.await, Ok(3));
    }

    #[tokio::test]
    async fn a_part_that_panics_is_a_panic_of_the_whole() {
        let (compute, parts) = (pool(2, 1), pool(2, 1));
        let all =
            move || parts.map(vec![1, 2, 3], |n| assert!(n != 2, "two")).map_err(ComputeError::or_panic);
        assert_eq!(compute.run(all).await, Err(ComputeError::Panicked("two".into())));
    }

    #[test]
    fn map_keeps_the_order_and_lets_items_borrow() {
        let words = ["a", "bb", "ccc", "dddd"];
        for compute in [pool(3, 1), Compute::inline()] {
            let lengths = compute.map(words.iter().collect(), |word| word.len()).unwrap();
            assert_eq!(lengths, [1, 2, 3, 4]);
            assert_eq!(compute.map(Vec::<u8>::new(), |byte| byte).unwrap(), Vec::<u8>::new());
            let failed = compute.map(vec![1, 2, 3], |n| assert!(n != 2, "two"));
            assert_eq!(failed, Err(ComputeError::Panicked("two".into())));
        }
    }
}
