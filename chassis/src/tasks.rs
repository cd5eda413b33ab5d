//! Background tasks of a process: named, counted, and shut down together.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::code::{ErrorCode, ErrorCodeExt};
use crate::time::clock::Clock;

/// Tasks of one process or one role. Cheap to clone.
#[derive(Clone)]
pub struct TaskGroup {
    shared: Arc<TaskGroupInner>,
}

/// Handle of a running task. Awaiting it returns the result; dropping it detaches the task.
#[derive(Debug)]
pub struct TaskHandle<T> {
    name: String,
    handle: JoinHandle<T>,
}

/// Failure to start a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// The limit of running tasks is reached.
    #[error("task {name} not started: {limit} tasks are running, which is the limit")]
    Full {
        /// Name of the task that was not started.
        name: String,
        /// Upper bound of running tasks.
        limit: usize,
    },
    /// The process is shutting down.
    #[error("task {name} not started: shutting down")]
    Closed {
        /// Name of the task that was not started.
        name: String,
    },
}

/// Failure of a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The task panicked.
    #[error("task {name} panicked: {message}")]
    Panicked {
        /// Name of the task.
        name: String,
        /// Message of the panic.
        message: String,
    },
    /// The task was aborted at shutdown.
    #[error("task {name} was aborted at shutdown")]
    Aborted {
        /// Name of the task.
        name: String,
    },
}

/// Result of a shutdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Names of tasks that did not end in time and were aborted.
    pub unfinished: Vec<String>,
    /// Names of tasks that panicked since the start, at most the first hundred.
    pub panicked: Vec<String>,
}

struct TaskGroupInner {
    clock: Clock,
    limit: usize,
    token: CancellationToken,
    table: Mutex<TaskTable>,
    running: watch::Sender<usize>,
}

#[derive(Default)]
struct TaskTable {
    next: u64,
    closed: bool,
    running: BTreeMap<u64, (String, Option<AbortHandle>)>,
    panicked: Vec<String>,
}

/// Guard that removes a task from the table, however it ends.
struct TaskTableGuard {
    shared: Arc<TaskGroupInner>,
    id: u64,
}

const MAX_REMEMBERED_PANICS: usize = 100;

// === impl TaskGroup ===

impl TaskGroup {
    /// Creates a group for at most `limit` running tasks. `clock` measures the deadline of a shutdown.
    pub fn new(clock: Clock, limit: usize) -> Self {
        let token = CancellationToken::new();
        let running = watch::Sender::new(0);
        Self { shared: Arc::new(TaskGroupInner { clock, limit, token, table: Mutex::default(), running }) }
    }

    /// Token that is cancelled when the process shuts down. Tasks watch it and finish.
    pub fn shutdown_token(&self) -> CancellationToken {
        self.shared.token.clone()
    }

    /// Number of running tasks.
    pub fn running_tasks(&self) -> usize {
        self.shared.table.lock().running.len()
    }

    /// Starts a task. It runs to its end even if its handle is dropped.
    #[expect(clippy::disallowed_methods, reason = "the one place that spawns")]
    pub fn spawn<F>(&self, name: impl Into<String>, future: F) -> Result<TaskHandle<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let name = name.into();
        let entry = self.register_task(&name)?;
        let id = entry.id;
        let handle = tokio::spawn(async move {
            let _entry = entry;
            future.await
        });
        if let Some((_, abort)) = self.shared.table.lock().running.get_mut(&id) {
            *abort = Some(handle.abort_handle());
        }
        Ok(TaskHandle { name, handle })
    }

    /// Cancels the token, waits for all tasks up to the deadline, then aborts the rest. No task starts
    /// afterwards.
    pub async fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        self.shared.table.lock().closed = true;
        self.shared.token.cancel();
        let mut running = self.shared.running.subscribe();
        let all_ended = running.wait_for(|count| *count == 0);
        // The task table shows which tasks ended, so the result is not needed.
        let _ = self.shared.clock.timeout(deadline, all_ended).await;
        let table = self.shared.table.lock();
        let mut ended = ShutdownReport { panicked: table.panicked.clone(), ..ShutdownReport::default() };
        for (name, abort) in table.running.values() {
            tracing::warn!(task = name, "task did not end in time");
            ended.unfinished.push(name.clone());
            if let Some(abort) = abort {
                abort.abort();
            }
        }
        ended
    }

    fn register_task(&self, name: &str) -> Result<TaskTableGuard, SpawnError> {
        let shared = &self.shared;
        let mut table = shared.table.lock();
        if table.closed {
            return Err(SpawnError::Closed { name: name.to_owned() });
        }
        if table.running.len() >= shared.limit {
            return Err(SpawnError::Full { name: name.to_owned(), limit: shared.limit });
        }
        let id = table.next;
        table.next += 1;
        table.running.insert(id, (name.to_owned(), None));
        shared.running.send_replace(table.running.len());
        Ok(TaskTableGuard { shared: Arc::clone(shared), id })
    }
}

impl fmt::Debug for TaskGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGroup")
            .field("running", &self.running_tasks())
            .field("limit", &self.shared.limit)
            .finish()
    }
}

impl Drop for TaskTableGuard {
    fn drop(&mut self) {
        let mut table = self.shared.table.lock();
        let Some((name, _)) = table.running.remove(&self.id) else { return };
        if std::thread::panicking() {
            tracing::error!(task = name, "task panicked");
            if table.panicked.len() < MAX_REMEMBERED_PANICS {
                table.panicked.push(name);
            }
        }
        self.shared.running.send_replace(table.running.len());
    }
}

// === impl TaskHandle ===

impl<T> TaskHandle<T> {
    /// Returns whether the task ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Name of the task.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<T> Future for TaskHandle<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let joined = std::task::ready!(Pin::new(&mut self.handle).poll(context));
        Poll::Ready(joined.map_err(|error| {
            let name = self.name.clone();
            match error.try_into_panic() {
                Ok(payload) => TaskError::Panicked { name, message: panic_message(&*payload) },
                Err(_) => TaskError::Aborted { name },
            }
        }))
    }
}

/// Returns the message of a panic payload, or "no message".
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

impl ErrorCodeExt for SpawnError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Full { .. } => ErrorCode::Exhausted,
            Self::Closed { .. } => ErrorCode::Unavailable,
        }
    }
}

impl ErrorCodeExt for TaskError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Panicked { .. } => ErrorCode::Internal,
            Self::Aborted { .. } => ErrorCode::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::clock::Timestamp;

    #[tokio::test]
    async fn shutdown_names_those_that_did_not_end() {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let tasks = TaskGroup::new(clock, 8);
        let token = tasks.shutdown_token();
        let polite = tasks.spawn("polite", async move { token.cancelled().await }).unwrap();
        let stubborn = tasks.spawn("stubborn", std::future::pending::<()>()).unwrap();
        let (ended, polite) = tokio::join!(tasks.shutdown(Duration::from_secs(5)), async {
            let polite = polite.await;
            hand.wait_for_sleepers(1).await;
            hand.advance(Duration::from_secs(5));
            polite
        });
        assert_eq!(polite, Ok(()));
        assert_eq!(ended, ShutdownReport { unfinished: vec!["stubborn".to_owned()], panicked: vec![] });
        assert_eq!(stubborn.await, Err(TaskError::Aborted { name: "stubborn".to_owned() }));
        let late = tasks.spawn("late", async {}).unwrap_err();
        assert_eq!(late.code(), ErrorCode::Unavailable);
    }

    #[tokio::test]
    async fn a_panic_is_reported_and_ends_only_its_task() {
        let tasks = TaskGroup::new(Clock::system(), 8);
        let failed = tasks.spawn("careless", async { panic!("oh no") }).unwrap();
        while !failed.is_finished() {
            tokio::task::yield_now().await;
        }
        let error: Result<(), _> = failed.await;
        assert_eq!(
            error,
            Err(TaskError::Panicked { name: "careless".to_owned(), message: "oh no".to_owned() })
        );
        assert_eq!(tasks.spawn("next", async { 3 }).unwrap().await, Ok(3));
        let ended = tasks.shutdown(Duration::from_secs(60)).await;
        assert_eq!(ended, ShutdownReport { unfinished: vec![], panicked: vec!["careless".to_owned()] });
    }

    #[tokio::test]
    async fn no_more_run_than_may() {
        let tasks = TaskGroup::new(Clock::system(), 1);
        let (finish, finished) = tokio::sync::oneshot::channel::<()>();
        let first = tasks.spawn("first", finished).unwrap();
        let refused = tasks.spawn("second", async {}).unwrap_err();
        assert_eq!(refused, SpawnError::Full { name: "second".to_owned(), limit: 1 });
        assert_eq!((refused.code(), tasks.running_tasks()), (ErrorCode::Exhausted, 1));
        finish.send(()).unwrap();
        first.await.unwrap().unwrap();
        tasks.spawn("third", async {}).unwrap().await.unwrap();
    }
}
