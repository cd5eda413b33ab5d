//! Async queries: started by one call, and polled by later ones.
//!
//! The node that started a query stores it, and the query id names that node. Another querier that receives a
//! poll forwards it there. Running queries and stored results are bounded for each tenant, and so is
//! retention. The bytes of results are bounded for the process, and one tenant may use half of them. A stored
//! result holds memory only for its own size, not for the memory of its computation. One task removes expired
//! queries.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{ByteSize, Clock, ErrorCode, Random, Status, TaskGroup, TenantId};
use futures::future::{Either, select};
use parking_lot::{Mutex, MutexGuard};

use crate::QueryContext;
use crate::async_query::query_handle::QueryHandleId;
use crate::fair_eviction::{self, EvictionCandidate};

mod wire;

pub(crate) use wire::StoredAsyncResult;
pub use wire::{AsyncQueryProgress, AsyncQueryReport, AsyncQueryResult};

/// Retention of a result, and maximum duration of a query, so that no plan is older [INV-18].
const ASYNC_RESULT_RETENTION: Duration = Duration::from_secs(15 * 60);
/// Maximum number of stored results of one tenant. The next one replaces the oldest.
const MAX_RESULTS_PER_TENANT: usize = 8;
/// Maximum number of queries of all tenants, running or stored.
const MAX_ASYNC_QUERIES: usize = 1_024;
/// Retry delay that the error suggests when too many queries run.
const RETRY_AFTER_BUSY: Duration = Duration::from_secs(5);

/// Registry of running async queries and stored results.
pub(crate) struct AsyncQueryRegistry<T> {
    /// Id of this node, which query ids contain.
    node: u64,
    tasks: TaskGroup,
    random: Random,
    clock: Clock,
    bounds: AsyncQueryLimits,
    jobs: Mutex<AsyncQueries<T>>,
}

/// Limits of the registry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsyncQueryLimits {
    /// Maximum number of running queries of a tenant.
    pub(crate) most: usize,
    /// Byte limit of stored results.
    pub(crate) bytes: usize,
}

/// Current state of the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncQueryStats {
    /// Number of running queries.
    pub running: usize,
    /// Number of finished queries that are stored.
    pub kept: usize,
    /// Memory of stored results in bytes.
    pub bytes: usize,
    /// Byte limit of stored results.
    pub limit: usize,
}

struct AsyncQueries<T> {
    by_ticket: BTreeMap<QueryHandleId, AsyncQuery<T>>,
    /// True while the expiry task runs.
    watched: bool,
}

struct AsyncQuery<T> {
    /// Context of the query: its tenants, and the warnings and memory of its result.
    reader: QueryContext,
    /// Start of the current state, on the monotonic clock.
    since: Duration,
    state: AsyncQueryState<T>,
}

/// State of an async query.
pub(crate) enum AsyncQueryState<T> {
    /// The query is running.
    Running,
    /// The query succeeded with this result.
    Done(Arc<T>),
    /// The query failed with this error.
    Failed(Status),
}

impl<T> Default for AsyncQueries<T> {
    fn default() -> Self {
        AsyncQueries { by_ticket: BTreeMap::new(), watched: false }
    }
}

impl<T> Clone for AsyncQueryState<T> {
    fn clone(&self) -> Self {
        match self {
            AsyncQueryState::Running => AsyncQueryState::Running,
            AsyncQueryState::Done(answer) => AsyncQueryState::Done(Arc::clone(answer)),
            AsyncQueryState::Failed(status) => AsyncQueryState::Failed(status.clone()),
        }
    }
}

impl<T: Send + Sync + 'static> AsyncQueryRegistry<T> {
    /// Creates a registry for a node.
    pub(crate) fn new(
        node: u64,
        tasks: TaskGroup,
        random: Random,
        clock: Clock,
        bounds: AsyncQueryLimits,
    ) -> Self {
        AsyncQueryRegistry { node, tasks, random, clock, bounds, jobs: Mutex::default() }
    }

    /// Returns true if async queries are allowed.
    pub(crate) fn is_enabled(&self) -> bool {
        self.bounds.most > 0
    }

    /// Returns the current numbers of queries and bytes.
    pub(crate) fn stats(&self) -> AsyncQueryStats {
        let jobs = self.jobs.lock();
        let (running, kept): (Vec<_>, Vec<_>) = jobs.by_ticket.values().partition(|job| job.is_running());
        let bytes = kept.iter().map(|job| job.reader.held_bytes()).sum();
        AsyncQueryStats { running: running.len(), kept: kept.len(), bytes, limit: self.bounds.bytes }
    }

    /// Starts a query and returns the id by which the client polls it.
    pub(crate) fn start_query<F>(
        self: &Arc<Self>,
        reader: QueryContext,
        query: impl FnOnce(QueryContext) -> F,
    ) -> Result<QueryHandleId, Status>
    where
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let ticket = QueryHandleId::generate(self.node, &self.random);
        let job = AsyncQuery {
            reader: reader.clone(),
            since: self.clock.monotonic(),
            state: AsyncQueryState::Running,
        };
        self.reserve_slot(reader.tenants())?.by_ticket.insert(ticket, job);
        let query = query(reader);
        let shared = Arc::clone(self);
        let run = async move {
            let stop = shared.tasks.shutdown_token();
            let query = pin!(query);
            if let Either::Left((answer, _)) = select(query, pin!(stop.cancelled())).await {
                shared.finish_query(ticket, answer);
            }
        };
        let started = self.start_expiry_task().and_then(|()| self.tasks.spawn("async query", run));
        if let Err(error) = started {
            self.jobs.lock().by_ticket.remove(&ticket);
            return Err(Status::from_error(&error));
        }
        Ok(ticket)
    }

    /// Starts the expiry task unless it runs. Results that no client polls hold memory too. The task ends
    /// when no query is left.
    fn start_expiry_task(self: &Arc<Self>) -> Result<(), SpawnError> {
        let mut jobs = self.jobs.lock();
        if jobs.watched {
            return Ok(());
        }
        let shared = Arc::clone(self);
        let forget = async move {
            let stop = shared.tasks.shutdown_token();
            while let Some(rest) = shared.next_expiry() {
                if let Either::Right(_) = select(pin!(shared.clock.sleep(rest)), pin!(stop.cancelled())).await
                {
                    return;
                }
            }
        };
        self.tasks.spawn("async query expiry", forget)?;
        jobs.watched = true;
        Ok(())
    }

    /// Removes expired queries. Returns the time until the next expiry. None if no query is left, and then
    /// the expiry task ends.
    fn next_expiry(&self) -> Option<Duration> {
        let mut jobs = self.jobs.lock();
        self.remove_expired(&mut jobs);
        let oldest = jobs.by_ticket.values().map(|job| job.since).min();
        jobs.watched = oldest.is_some();
        oldest.map(|oldest| (oldest + ASYNC_RESULT_RETENTION).saturating_sub(self.clock.monotonic()))
    }

    /// Returns the state of a query and its context, which has the warnings and memory of the result. A query
    /// of other tenants is treated as missing.
    pub(crate) fn poll_query(
        &self,
        reader: &QueryContext,
        ticket: QueryHandleId,
    ) -> Result<(AsyncQueryState<T>, QueryContext), Status> {
        let mut jobs = self.jobs.lock();
        self.remove_expired(&mut jobs);
        let job = jobs.by_ticket.get(&ticket).filter(|job| job.reader.tenants() == reader.tenants());
        let Some(job) = job else { return Err(unknown_query_error(&ticket.to_string())) };
        Ok((job.state.clone(), job.reader.clone()))
    }

    fn remove_expired(&self, jobs: &mut AsyncQueries<T>) {
        let now = self.clock.monotonic();
        jobs.by_ticket.retain(|_, job| now.saturating_sub(job.since) < ASYNC_RESULT_RETENTION);
    }

    /// Reserves a slot for one more query of these tenants. The query counts for each of them, as do queries
    /// that they share with other tenants.
    fn reserve_slot(&self, tenants: &[TenantId]) -> Result<MutexGuard<'_, AsyncQueries<T>>, Status> {
        let mut jobs = self.jobs.lock();
        self.remove_expired(&mut jobs);
        for tenant in tenants {
            let running = jobs.queries_of(tenant).filter(|(_, job)| job.is_running()).count();
            if running >= self.bounds.most {
                let most = self.bounds.most;
                let message = format!(
                    "tenant has {running} running async queries, the limit is {most} (querier.max_async_queries_per_tenant); wait until one ends"
                );
                return Err(Status::new(ErrorCode::Exhausted, message).with_retry_after(RETRY_AFTER_BUSY));
            }
        }
        for tenant in tenants {
            let kept = jobs.queries_of(tenant).filter(|(_, job)| !job.is_running());
            let mut kept: Vec<(Duration, QueryHandleId)> =
                kept.map(|(ticket, job)| (job.since, *ticket)).collect();
            kept.sort_unstable();
            let more = (kept.len() + 1).saturating_sub(MAX_RESULTS_PER_TENANT);
            kept.iter().take(more).for_each(|(_, ticket)| drop(jobs.by_ticket.remove(ticket)));
        }
        let seen = jobs.by_ticket.len();
        if seen >= MAX_ASYNC_QUERIES {
            let message = format!(
                "{seen} async queries run or have a stored result, the limit is {MAX_ASYNC_QUERIES}; retry later"
            );
            return Err(Status::new(ErrorCode::Exhausted, message).with_retry_after(RETRY_AFTER_BUSY));
        }
        Ok(jobs)
    }

    fn finish_query(&self, ticket: QueryHandleId, answer: Result<T, Status>) {
        let now = self.clock.monotonic();
        let mut jobs = self.jobs.lock();
        // The query may have expired meanwhile.
        let Some(job) = jobs.by_ticket.get_mut(&ticket) else { return };
        job.since = now;
        let answer = answer.and_then(|answer| {
            check_result_size(job.reader.held_bytes(), self.bounds.bytes).map(|()| answer)
        });
        job.state = match answer {
            Ok(answer) => AsyncQueryState::Done(Arc::new(answer)),
            Err(status) => {
                job.reader.shrink_held_memory(0);
                AsyncQueryState::Failed(status)
            }
        };
        let done = jobs.by_ticket.iter().filter(|(_, job)| !job.is_running());
        let shares = done.map(|(key, job)| EvictionCandidate {
            key: *key,
            tenants: job.reader.tenants(),
            bytes: job.reader.held_bytes(),
            since: job.since,
        });
        let gone = fair_eviction::select_victims(shares.collect(), ticket, self.bounds.bytes);
        gone.iter().for_each(|gone| drop(jobs.by_ticket.remove(gone)));
    }
}

/// Rejects a result larger than the quota of one tenant.
fn check_result_size(bytes: usize, all: usize) -> Result<(), Status> {
    let most = fair_eviction::tenant_quota(all);
    if bytes <= most {
        return Ok(());
    }
    let size = |bytes: usize| ByteSize::bytes(bytes as u64);
    let message = format!(
        "result has {}, the limit per tenant is half of {} (querier.async_results_bytes, and at most half of querier.max_inflight_result_bytes); request fewer nodes, or send a synchronous query",
        size(bytes),
        size(all)
    );
    Err(Status::new(ErrorCode::Exhausted, message))
}

impl<T> AsyncQueries<T> {
    /// Returns the queries that read a tenant.
    fn queries_of<'j>(
        &'j self,
        tenant: &'j TenantId,
    ) -> impl Iterator<Item = (&'j QueryHandleId, &'j AsyncQuery<T>)> {
        self.by_ticket.iter().filter(move |(_, job)| job.reader.tenants().contains(tenant))
    }
}

impl<T> AsyncQuery<T> {
    fn is_running(&self) -> bool {
        matches!(self.state, AsyncQueryState::Running)
    }
}

/// Error for a query that does not exist.
pub(crate) fn unknown_query_error(name: &str) -> Status {
    let minutes = ASYNC_RESULT_RETENTION.as_secs() / 60;
    let message = format!(
        "no async query {name:?} on this node: it ended more than {minutes} minutes ago, its result was evicted, or the node restarted; start a new query"
    );
    Status::new(ErrorCode::NotFound, message)
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;
    use athanor_chassis::memory_budget::BudgetLimit;
    use athanor_chassis::requests::result_budget::ResultBudget;
    use athanor_chassis::time::clock::ManualClock;
    use tokio::sync::oneshot;

    use super::*;

    type Ended = oneshot::Sender<Result<u32, Status>>;

    fn begin(
        background: &Arc<AsyncQueryRegistry<u32>>,
        tenants: &str,
    ) -> Result<(QueryHandleId, Ended), Status> {
        let (end, ended) = oneshot::channel();
        let reader = QueryContext::parse(tenants).unwrap();
        let ticket = background.start_query(reader, |reader| async move {
            reader.add_warnings(vec!["something".to_owned()]);
            ended.await.unwrap()
        })?;
        Ok((ticket, end))
    }

    /// Of each tenant so many run at once.
    fn background(tasks: usize, most: usize) -> (Arc<AsyncQueryRegistry<u32>>, ManualClock) {
        let (clock, hand) = Clock::manual(Timestamp::UNIX_EPOCH);
        let (tasks, bounds) =
            (TaskGroup::new(clock.clone(), tasks), AsyncQueryLimits { most, bytes: 1 << 20 });
        (Arc::new(AsyncQueryRegistry::new(7, tasks, Random::from_seed(1), clock, bounds)), hand)
    }

    /// Lets tasks go on until all but the one that looks after them have ended.
    async fn idle(background: &AsyncQueryRegistry<u32>) {
        while background.tasks.running_tasks() > 1 {
            tokio::task::yield_now().await;
        }
    }

    async fn settled(
        background: &AsyncQueryRegistry<u32>,
        reader: &QueryContext,
        ticket: QueryHandleId,
    ) -> Result<AsyncQueryState<u32>, Status> {
        for _ in 0..100 {
            match background.poll_query(reader, ticket)?.0 {
                AsyncQueryState::Running => tokio::task::yield_now().await,
                state => return Ok(state),
            }
        }
        Ok(AsyncQueryState::Running)
    }

    #[tokio::test]
    async fn queries_are_begun_asked_for_and_forgotten() {
        let (background, hand) = background(100, 2);
        let (acme, other) = (
            QueryContext::for_tenant("acme".parse().unwrap()),
            QueryContext::for_tenant("other".parse().unwrap()),
        );
        let (first, end_first) = begin(&background, "acme").unwrap();
        let (second, end_second) = begin(&background, "acme").unwrap();
        let refused = begin(&background, "acme").unwrap_err();
        assert_eq!(refused.code, ErrorCode::Exhausted);
        assert!(
            refused.to_string().contains("the limit is 2 (querier.max_async_queries_per_tenant)"),
            "{refused}"
        );
        assert!(begin(&background, "other").is_ok(), "another tenant has its own");
        assert!(matches!(background.poll_query(&acme, first), Ok((AsyncQueryState::Running, _))));
        assert_eq!(background.poll_query(&other, first).err().unwrap().code, ErrorCode::NotFound);
        let never = QueryHandleId::generate(7, &Random::from_seed(9));
        assert_eq!(background.poll_query(&acme, never).err().unwrap().code, ErrorCode::NotFound);

        end_first.send(Ok(7)).unwrap();
        end_second.send(Err(Status::new(ErrorCode::Invalid, "no"))).unwrap();
        let Ok(AsyncQueryState::Done(answer)) = settled(&background, &acme, first).await else {
            panic!("no answer")
        };
        let warnings = background.poll_query(&acme, first).unwrap().1.warnings();
        assert_eq!((*answer, warnings), (7, vec!["something".to_owned()]));
        let Ok(AsyncQueryState::Failed(status)) = settled(&background, &acme, second).await else {
            panic!("no failure")
        };
        assert_eq!(status.code, ErrorCode::Invalid);
        hand.advance(ASYNC_RESULT_RETENTION - Duration::from_secs(1));
        assert!(background.poll_query(&acme, first).is_ok());
        hand.advance(Duration::from_secs(1));
        assert_eq!(background.poll_query(&acme, first).err().unwrap().code, ErrorCode::NotFound);
    }

    #[tokio::test]
    async fn of_each_tenant_only_the_last_answers_are_kept() {
        let (background, hand) = background(100, 1);
        let acme = QueryContext::for_tenant("acme".parse().unwrap());
        let mut names = Vec::new();
        for number in 0..MAX_RESULTS_PER_TENANT as u32 + 2 {
            let (name, end) = begin(&background, "acme").unwrap();
            end.send(Ok(number)).unwrap();
            assert!(matches!(settled(&background, &acme, name).await, Ok(AsyncQueryState::Done(_))));
            names.push(name);
            hand.advance(Duration::from_secs(1));
        }
        let known: Vec<bool> = names.iter().map(|name| background.poll_query(&acme, *name).is_ok()).collect();
        assert_eq!((&known[..2], &known[2..]), (&[false; 2][..], &[true; MAX_RESULTS_PER_TENANT][..]));
    }

    #[tokio::test]
    async fn a_query_that_has_ended_is_no_task_and_its_answer_goes_though_nobody_asks() {
        let (background, hand) = background(2, 1);
        for _ in 0..3 {
            for number in 0..MAX_RESULTS_PER_TENANT as u32 + 2 {
                let (_, end) = begin(&background, "acme").unwrap();
                end.send(Ok(number)).unwrap();
                idle(&background).await;
            }
            hand.advance(ASYNC_RESULT_RETENTION);
            while background.tasks.running_tasks() > 0 {
                tokio::task::yield_now().await;
            }
            assert!(background.jobs.lock().by_ticket.is_empty());
        }
    }

    #[tokio::test]
    async fn a_query_of_several_tenants_counts_for_each() {
        let (background, _hand) = background(100, 2);
        let mut ends = Vec::new();
        let mut is_begun = |tenants: &str| {
            let begun = begin(&background, tenants);
            begun.map(|(_, end)| ends.push(end)).is_ok()
        };
        let begun = ["a", "a|b", "a", "a|c", "c|b", "b", "b|c", "c", "d"].map(&mut is_begun);
        assert_eq!(begun, [true, true, false, false, true, false, false, true, true]);
        ends.into_iter().for_each(|end| end.send(Ok(1)).unwrap());
        idle(&background).await;
        let of_both = QueryContext::parse("a|e").unwrap();
        for number in 0..MAX_RESULTS_PER_TENANT as u32 {
            let (_, end) = begin(&background, "e").unwrap();
            end.send(Ok(number)).unwrap();
            idle(&background).await;
        }
        drop(background.reserve_slot(of_both.tenants()).unwrap());
        let kept = |tenant: &str| background.jobs.lock().queries_of(&tenant.parse().unwrap()).count();
        assert_eq!((kept("e"), kept("a")), (MAX_RESULTS_PER_TENANT - 1, 2));
    }

    #[tokio::test]
    async fn answers_are_kept_within_their_bytes_and_one_tenant_has_half_of_them() {
        let (background, hand) = background(100, 5);
        let bound = |setting| BudgetLimit { limit: ByteSize::mib(64), setting };
        let room = ResultBudget::new(bound("each"), bound("all"));
        let keep = async |tenants: &str, kibibytes: usize| {
            let (reader, room) = (QueryContext::parse(tenants).unwrap(), Arc::clone(&room));
            let query = |reader: QueryContext| async move {
                reader.hold_memory(room.reserve(kibibytes << 10)?);
                Ok(0)
            };
            let ticket = background.start_query(reader, query).unwrap();
            idle(&background).await;
            hand.advance(Duration::from_secs(1));
            ticket
        };
        let is_kept = |tenants: &str, ticket| {
            matches!(
                background.poll_query(&QueryContext::parse(tenants).unwrap(), ticket),
                Ok((AsyncQueryState::Done(_), _))
            )
        };
        let of_a = [keep("a", 300).await, keep("a", 200).await];
        assert!(of_a.iter().all(|ticket| is_kept("a", *ticket)));
        let third = keep("a", 100).await;
        assert_eq!((is_kept("a", of_a[0]), is_kept("a", of_a[1]), is_kept("a", third)), (false, true, true));
        let large = keep("b", 513).await;
        let Ok((AsyncQueryState::Failed(why), reader)) =
            background.poll_query(&QueryContext::parse("b").unwrap(), large)
        else {
            panic!("it is too large")
        };
        assert!(why.message.contains("result has 513KiB, the limit per tenant is half of 1MiB"), "{why}");
        assert_eq!(reader.held_bytes(), 0);
        let (b, c) = (keep("b", 512).await, keep("c", 512).await);
        // Of whoever has most, the oldest; then of the next one.
        let kept = [is_kept("a", of_a[1]), is_kept("a", third), is_kept("b", b), is_kept("c", c)];
        assert_eq!(kept, [true, true, false, true]);
        assert_eq!(room.stats().taken, (200 + 100 + 512) << 10);
        let stats = AsyncQueryStats { running: 0, kept: 4, bytes: (200 + 100 + 512) << 10, limit: 1 << 20 };
        assert_eq!(background.stats(), stats, "what failed is kept as well");
    }
}
