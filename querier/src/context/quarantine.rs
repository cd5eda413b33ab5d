//! Quarantine of queries that crashed: after two crashes a query is rejected. A crash is a panic of its
//! computation or a death of the whole process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::requests::activity_tracker::{ActivityGuard, ActivityTracker, SuspectGuard};
use athanor_chassis::{ErrorCode, Status, TenantId};
use athanor_profile::encoding::hash::{self, ContentHash};
use athanor_query::{HeatmapQuery, ProfileQuery, QueryKind, TimeRange, TimeSeriesQuery};
use futures::lock::Mutex as AsyncMutex;
use parking_lot::{Mutex, MutexGuard};

/// Number of crashes after which a query is rejected.
const MAX_CRASHES_PER_QUERY: u32 = 2;
/// Time after its last crash for which a query is remembered.
const CRASH_RETENTION: Duration = Duration::from_secs(60 * 60);
/// Maximum number of remembered queries.
const MAX_REMEMBERED_QUERIES: usize = 256;

/// Record of queries that crashed.
#[derive(Debug, Default)]
pub(crate) struct QueryQuarantine {
    known: Mutex<QuarantineState>,
    /// Tracker of queries that were active when a process died. None if nothing is recorded on disk.
    deaths: Option<ActivityTracker>,
}

/// Running queries of a request, tracked for the case that they kill the process.
#[derive(Default)]
pub(crate) struct ActiveQueries {
    /// Held while a query runs that was active when a process died. Waiting for this lock does not block
    /// other queries of the request, which may hold a permit.
    alone: AsyncMutex<Option<SuspectGuard>>,
    queries: Mutex<Vec<ActivityGuard>>,
}

/// Counters and gauges of crashed queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuarantineStats {
    /// Queries that are rejected now.
    pub quarantined: usize,
    /// Queries that were active when a process died, and may have killed it. Each of them runs alone.
    pub suspected: usize,
    /// Number of crashes so far.
    pub crashes: u64,
    /// Number of rejected queries so far.
    pub refused: u64,
}

/// Query that crashed and is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashedQuery {
    /// Identity of the query without its time range.
    pub fingerprint: ContentHash,
    /// Kind of the crashes.
    pub cause: CrashCause,
    /// Number of crashes.
    pub crashes: u32,
    /// True if the query is rejected. False if it crashed less often than the limit.
    pub is_rejected: bool,
    /// Time after which the query is forgotten.
    pub expires_in: Duration,
}

/// Kind of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashCause {
    /// The computation of the query panicked.
    Panic,
    /// The process aborted while the query ran.
    Abort,
}

#[derive(Debug, Default)]
struct QuarantineState {
    /// Crash records, the latest at the end.
    crashed: VecDeque<CrashRecord>,
    crashes: u64,
    refused: u64,
}

#[derive(Debug)]
struct CrashRecord {
    question: QueryFingerprint,
    times: u32,
    last: Duration,
}

/// Identity of a query, or of several that are rendered together, without their time range: dashboards repeat
/// a query with later times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueryFingerprint(ContentHash);

impl QueryFingerprint {
    pub(crate) fn from_queries(tenants: &[TenantId], asked: &[Arc<ProfileQuery>]) -> Result<Self, Status> {
        let mut all =
            asked.iter().map(|ask| hash_without_time(ask)).collect::<Result<Vec<ContentHash>, Status>>()?;
        all.sort_unstable();
        all.dedup();
        let names: Vec<ContentHash> =
            tenants.iter().map(|tenant| hash::hash_bytes(tenant.as_str().as_bytes())).collect();
        Ok(QueryFingerprint(hash::hash_list(&[hash::hash_list(&all), hash::hash_list(&names)])))
    }
}

fn hash_without_time(ask: &ProfileQuery) -> Result<ContentHash, Status> {
    let mut timeless = ask.clone();
    timeless.selection.time = TimeRange { from: 0, to: 0 };
    if let QueryKind::Points(TimeSeriesQuery { steps, .. }) | QueryKind::Heat(HeatmapQuery { steps, .. }) =
        &mut timeless.what
    {
        (steps.start, steps.count) = (0, 0);
    }
    Ok(hash::hash_bytes(&timeless.pack().map_err(|error| Status::from_error(&error))?))
}

impl ActiveQueries {
    /// Stops tracking all queries of the request. If `well` is true, they also count as harmless.
    pub(crate) fn finish_all(&self, well: bool) {
        let queries = std::mem::take(&mut *self.queries.lock());
        if well {
            queries.iter().for_each(ActivityGuard::mark_succeeded);
        }
        // If the lock is taken, another query of the request still waits for it.
        if let Some(mut alone) = self.alone.try_lock() {
            *alone = None;
        }
    }
}

impl std::fmt::Debug for ActiveQueries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveQueries").field("queries", &self.queries.lock().len()).finish_non_exhaustive()
    }
}

impl QueryQuarantine {
    /// Creates a quarantine that also covers the crashes of earlier processes.
    pub(crate) fn with_crash_history(deaths: ActivityTracker) -> Self {
        Self { deaths: Some(deaths), ..Self::default() }
    }

    /// Waits until the query is the only running suspect, if a process died while it was active. Otherwise
    /// every query that runs beside a killer would become as suspect as the killer.
    pub(crate) async fn wait_until_exclusive(
        &self,
        asking: &ActiveQueries,
        question: impl FnOnce() -> Result<QueryFingerprint, Status>,
    ) -> Result<(), Status> {
        let Some(deaths) = self.deaths.as_ref().filter(|deaths| !deaths.has_no_crashes()) else {
            return Ok(());
        };
        let QueryFingerprint(key) = question()?;
        if deaths.find_crashes(key).is_some() {
            let mut alone = asking.alone.lock().await;
            if alone.is_none() {
                *alone = Some(deaths.lock_suspects().await);
            }
        }
        Ok(())
    }

    /// Tracks a query as active, until its request ends or its client disconnects.
    pub(crate) async fn begin_query(
        &self,
        asking: &ActiveQueries,
        question: impl FnOnce() -> Result<QueryFingerprint, Status>,
    ) -> Result<(), Status> {
        let Some(deaths) = &self.deaths else { return Ok(()) };
        let QueryFingerprint(key) = question()?;
        asking.queries.lock().extend(deaths.track_activity(key));
        Ok(())
    }

    /// Marks the queries of a request as harmless, and tracks their combined rendering from now on.
    pub(crate) async fn begin_combined(
        &self,
        asking: &ActiveQueries,
        question: impl FnOnce() -> Result<QueryFingerprint, Status> + Copy,
    ) -> Result<(), Status> {
        if self.deaths.is_none() {
            return Ok(());
        }
        asking.finish_all(true);
        self.wait_until_exclusive(asking, question).await?;
        self.begin_query(asking, question).await
    }

    /// Rejects a query that has crashed too often. The fingerprint is computed only if there were crashes.
    pub(crate) fn check_query(
        &self,
        now: Duration,
        question: impl FnOnce() -> Result<QueryFingerprint, Status>,
    ) -> Result<(), Status> {
        let is_quiet = self.deaths.as_ref().is_none_or(ActivityTracker::has_no_crashes);
        if is_quiet && self.lock_state(now).crashed.is_empty() {
            return Ok(());
        }
        let question = question()?;
        self.check_killed_process(question, now)?;
        let mut known = self.lock_state(now);
        let QuarantineState { crashed, refused, .. } = &mut *known;
        match crashed.iter().find(|one| one.question == question) {
            Some(CrashRecord { times, last, .. }) if *times >= MAX_CRASHES_PER_QUERY => {
                *refused += 1;
                let left = (CRASH_RETENTION - now.saturating_sub(*last)).as_secs().div_ceil(60);
                let message = format!(
                    "query crashed {times} times, the limit is {MAX_CRASHES_PER_QUERY}: rejected for {left} more minutes; change the \
                     query, and report the crash from the log of the server"
                );
                Err(Status::new(ErrorCode::Internal, message))
            }
            _ => Ok(()),
        }
    }

    /// Rejects a query during which processes have died too often.
    fn check_killed_process(
        &self,
        QueryFingerprint(key): QueryFingerprint,
        now: Duration,
    ) -> Result<(), Status> {
        match self.deaths.as_ref().and_then(|deaths| deaths.find_crashes(key)) {
            Some((times, left)) if times >= MAX_CRASHES_PER_QUERY => {
                self.lock_state(now).refused += 1;
                let left = left.as_secs().div_ceil(60);
                let message = format!(
                    "query ran {times} times when the process aborted, the limit is {MAX_CRASHES_PER_QUERY}: rejected for {left} more \
                     minutes; change the query, or find the cause of the abort and unblock the query with \
                     `athanor quarantine clear`"
                );
                Err(Status::new(ErrorCode::Internal, message))
            }
            _ => Ok(()),
        }
    }

    /// Records a crash of a query.
    pub(crate) fn record_crash(&self, question: QueryFingerprint, now: Duration) {
        let mut known = self.lock_state(now);
        let QuarantineState { crashed, crashes, .. } = &mut *known;
        *crashes += 1;
        let at = crashed.iter().position(|one| one.question == question);
        let times = at.and_then(|at| crashed.remove(at)).map_or(0, |one| one.times);
        if crashed.len() >= MAX_REMEMBERED_QUERIES {
            crashed.pop_front();
        }
        crashed.push_back(CrashRecord { question, times: times + 1, last: now });
    }

    /// Forgets all crashes. Returns the number of quarantined queries.
    pub(crate) fn clear_all(&self, now: Duration) -> usize {
        let mut known = self.lock_state(now);
        let quarantined = known.quarantined_count();
        known.crashed.clear();
        quarantined + self.deaths.as_ref().map_or(0, |deaths| deaths.clear_crashes(MAX_CRASHES_PER_QUERY))
    }

    /// Returns the remembered queries, the rejected ones first.
    pub(crate) fn crashed_queries(&self, now: Duration) -> Vec<CrashedQuery> {
        let aborts = self.deaths.as_ref().map(ActivityTracker::remembered_crashes).unwrap_or_default();
        let aborted = aborts.into_iter().map(|abort| CrashedQuery {
            fingerprint: abort.key,
            cause: CrashCause::Abort,
            crashes: abort.crashes,
            is_rejected: abort.crashes >= MAX_CRASHES_PER_QUERY,
            expires_in: abort.expires_in,
        });
        let mut queries: Vec<CrashedQuery> = aborted.collect();
        let known = self.lock_state(now);
        queries.extend(known.crashed.iter().map(|record| CrashedQuery {
            fingerprint: record.question.0,
            cause: CrashCause::Panic,
            crashes: record.times,
            is_rejected: record.times >= MAX_CRASHES_PER_QUERY,
            expires_in: CRASH_RETENTION.saturating_sub(now.saturating_sub(record.last)),
        }));
        queries.sort_by_key(|query| std::cmp::Reverse(query.is_rejected));
        queries
    }

    /// Marks the shutdown as orderly, so that no active query counts as a crash.
    pub(crate) fn close(&self) {
        if let Some(deaths) = &self.deaths {
            deaths.close();
        }
    }

    /// Returns counters and gauges.
    pub(crate) fn stats(&self, now: Duration) -> QuarantineStats {
        let of_deaths = |least| self.deaths.as_ref().map_or(0, |deaths| deaths.count_crashed(least));
        let killed = of_deaths(MAX_CRASHES_PER_QUERY);
        let all = of_deaths(1);
        let known = self.lock_state(now);
        let QuarantineState { crashes, refused, .. } = *known;
        let quarantined = known.quarantined_count() + killed;
        QuarantineStats { quarantined, suspected: all.saturating_sub(killed), crashes, refused }
    }

    /// Locks the state without expired records.
    fn lock_state(&self, now: Duration) -> MutexGuard<'_, QuarantineState> {
        let mut known = self.known.lock();
        known.crashed.retain(|one| now.saturating_sub(one.last) < CRASH_RETENTION);
        known
    }
}

impl QuarantineState {
    fn quarantined_count(&self) -> usize {
        self.crashed.iter().filter(|one| one.times >= MAX_CRASHES_PER_QUERY).count()
    }
}

#[cfg(test)]
mod tests {
    use athanor_query::{ProfileSelection, ResultLimits, TimeGrid};

    use super::*;

    fn question(tenant: &str, to: i64) -> QueryFingerprint {
        let selection = ProfileSelection { time: TimeRange { from: 1, to }, ..ProfileSelection::default() };
        // A dashboard's grid moves with its time.
        let steps = TimeGrid { start: to, step: 10, count: to.unsigned_abs() };
        let what = QueryKind::Points(TimeSeriesQuery { steps, ..TimeSeriesQuery::default() });
        let ask = ProfileQuery { selection, what, bounds: ResultLimits::default() };
        QueryFingerprint::from_queries(&[tenant.parse().unwrap()], &[Arc::new(ask)]).unwrap()
    }

    fn is_admitted(quarantine: &QueryQuarantine, question: QueryFingerprint, now: Duration) -> bool {
        quarantine.check_query(now, || Ok(question)).is_ok()
    }

    #[test]
    fn what_crashed_twice_is_refused_for_a_while() {
        let quarantine = QueryQuarantine::default();
        let admit =
            |tenant, to, now| is_admitted(&quarantine, question(tenant, to), Duration::from_secs(now));
        quarantine.record_crash(question("a", 5), Duration::from_secs(10));
        assert!(admit("a", 5, 11));
        quarantine.record_crash(question("a", 6), Duration::from_secs(20));
        let listed = quarantine.crashed_queries(Duration::from_secs(21));
        let expected = CrashedQuery {
            fingerprint: question("a", 7).0,
            cause: CrashCause::Panic,
            crashes: 2,
            is_rejected: true,
            expires_in: Duration::from_secs(3599),
        };
        assert_eq!(listed, [expected]);
        assert_eq!([admit("a", 7, 21), admit("b", 7, 21), admit("a", 7, 3619)], [false, true, false]);
        assert!(admit("a", 7, 3620));
        quarantine.record_crash(question("a", 6), Duration::from_secs(4000));
        assert!(admit("a", 5, 4001), "it is forgotten by then");
    }

    #[test]
    fn questions_cost_nothing_as_long_as_none_crashed() {
        let quarantine = QueryQuarantine::default();
        let now = Duration::from_secs(1);
        assert_eq!(quarantine.check_query(now, || unreachable!("nobody compares it")), Ok(()));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let quarantine = QueryQuarantine::default();
        let (first, now) = (question("first", 1), Duration::from_secs(1));
        (0..MAX_CRASHES_PER_QUERY).for_each(|_| quarantine.record_crash(first, now));
        for n in 0..MAX_REMEMBERED_QUERIES {
            quarantine.record_crash(question(&format!("t{n}"), 1), now);
        }
        assert!(is_admitted(&quarantine, first, now));
        assert_eq!(quarantine.lock_state(now).crashed.len(), MAX_REMEMBERED_QUERIES);
    }
}
