//! Choice of the next job in each class. Pure: time comes in as an argument.

use std::collections::VecDeque;
use std::time::Duration;

use super::fair_queue::{CPU_QUANTUM, FairQueue, FlowKey, PickedJob};

/// Divisor of the cores that queries keep while ingest work waits for a thread. They keep at least one core.
const GUARANTEED_QUERY_DIVISOR: usize = 8;

/// Class of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobClass {
    /// Pushes, and work of the process for them. Runs first, on its own threads.
    Ingest,
    /// Long jobs that no request waits for, on their own threads.
    Maintenance,
    /// Merges of blocks, behind all other work, on their own threads.
    Compaction,
    /// Queries. Their jobs yield.
    Query,
}

/// Scheduler of a pool.
///
/// - Ingest: jobs of the process itself first, then those of tenants by fair share. One job per core.
/// - Maintenance and compaction: each in order of arrival. One job per core.
/// - Query: fair among tenants. One job per core. While ingest work waits, one job per eight cores and at
///   least one. A tenant below its share that has no running job starts one at once, above these numbers. A
///   job of another tenant yields for it.
pub(super) struct JobScheduler<T> {
    cores: usize,
    process: VecDeque<T>,
    ingest: FairQueue<T>,
    ingest_running: usize,
    maintenance: BackgroundQueue<T>,
    compaction: BackgroundQueue<T>,
    query: FairQueue<T>,
    query_running: usize,
    next_ticket: u64,
}

/// Jobs that run in the order of their arrival.
struct BackgroundQueue<T> {
    waiting: VecDeque<T>,
    running: usize,
}

impl<T> BackgroundQueue<T> {
    const fn new() -> Self {
        Self { waiting: VecDeque::new(), running: 0 }
    }

    fn jobs(&self) -> usize {
        self.waiting.len() + self.running
    }

    fn pop(&mut self) -> Option<T> {
        let job = self.waiting.pop_front()?;
        self.running += 1;
        Some(job)
    }

    fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }
}

impl<T> JobScheduler<T> {
    pub(super) const fn new(cores: usize) -> Self {
        Self {
            cores,
            process: VecDeque::new(),
            ingest: FairQueue::new(),
            ingest_running: 0,
            maintenance: BackgroundQueue::new(),
            compaction: BackgroundQueue::new(),
            query: FairQueue::new(),
            query_running: 0,
            next_ticket: 0,
        }
    }

    /// Returns the number of running and waiting jobs.
    pub(super) fn jobs(&self) -> usize {
        let background = self.maintenance.jobs() + self.compaction.jobs();
        let running = self.ingest_running + self.query_running;
        running + background + self.ingest_waiting() + self.query.waiting()
    }

    pub(super) fn push(&mut self, class: JobClass, flow: &FlowKey, job: T) {
        let ticket = self.take_ticket();
        match (class, flow) {
            (JobClass::Ingest, None) => self.process.push_back(job),
            (JobClass::Ingest, Some(_)) => self.ingest.push(flow, ticket, job),
            (JobClass::Maintenance, _) => self.maintenance.waiting.push_back(job),
            (JobClass::Compaction, _) => self.compaction.waiting.push_back(job),
            (JobClass::Query, _) => self.query.push(flow, ticket, job),
        }
    }

    /// Takes the next ingest job, which runs until [`end_ingest`](Self::end_ingest).
    pub(super) fn pop_ingest(&mut self) -> Option<(FlowKey, T)> {
        let of_process = self.process.pop_front().map(|job| (None, job));
        let picked = of_process.or_else(|| {
            let urgent = self.ingest.pop_urgent(usize::MAX, |_| true);
            let picked = urgent.or_else(|| self.ingest.pop_ring(|_| true))?;
            Some((picked.flow, picked.job))
        })?;
        self.ingest_running += 1;
        Some(picked)
    }

    pub(super) fn end_ingest(&mut self, flow: &FlowKey, cpu_time: Duration) {
        self.ingest_running = self.ingest_running.saturating_sub(1);
        if flow.is_some() {
            self.ingest.charge(flow, cpu_time);
            self.ingest.release(flow);
        }
    }

    /// Takes the next maintenance job, which runs until [`end_maintenance`](Self::end_maintenance).
    pub(super) fn pop_maintenance(&mut self) -> Option<T> {
        self.maintenance.pop()
    }

    pub(super) fn end_maintenance(&mut self) {
        self.maintenance.end();
    }

    /// Takes the next compaction job, which runs until [`end_compaction`](Self::end_compaction).
    pub(super) fn pop_compaction(&mut self) -> Option<T> {
        self.compaction.pop()
    }

    pub(super) fn end_compaction(&mut self) {
        self.compaction.end();
    }

    /// Takes the next query job if it may run now. Urgent jobs and all others have different threads.
    pub(super) fn pop_query(
        &mut self,
        can_run_urgent: impl Fn(&T) -> bool,
        can_run: impl Fn(&T) -> bool,
    ) -> Option<PickedJob<T>> {
        let slots = self.query_slots();
        let picked = if self.query_running < slots {
            let urgent = self.query.pop_urgent(usize::MAX, can_run_urgent);
            urgent.or_else(|| self.query.pop_ring(can_run))
        } else if self.query_running < slots + self.cores {
            self.query.pop_urgent(1, can_run_urgent)
        } else {
            None
        }?;
        self.query_running += 1;
        Some(picked)
    }

    /// Returns whether running jobs must check at once if they have to yield.
    pub(super) fn is_pressed(&self) -> bool {
        self.query.has_urgent() || self.query_running > self.query_slots()
    }

    /// Returns whether a query job must yield after using `cpu_time` in its slice.
    pub(super) fn must_yield(&self, flow: &FlowKey, cpu_time: Duration) -> bool {
        if cpu_time >= CPU_QUANTUM {
            return self.query.waiting() > 0 || self.query_running > self.query_slots();
        }
        self.is_pressed() && !self.query.is_urgent(flow)
    }

    /// Charges a slice of a query job that continues.
    pub(super) fn renew_slice(&mut self, flow: &FlowKey, cpu_time: Duration) {
        self.query.charge(flow, cpu_time);
    }

    /// Ends a slice of a query job, which waits for the next one.
    pub(super) fn suspend_query(&mut self, flow: &FlowKey, ticket: u64, cpu_time: Duration, job: T) {
        self.query.push(flow, ticket, job);
        self.end_query(flow, cpu_time);
    }

    /// Queues a query job that began before and has no slot.
    pub(super) fn resume_query(&mut self, flow: &FlowKey, ticket: u64, job: T) {
        self.query.push(flow, ticket, job);
    }

    pub(super) fn end_query(&mut self, flow: &FlowKey, cpu_time: Duration) {
        self.query_running = self.query_running.saturating_sub(1);
        self.query.charge(flow, cpu_time);
        self.query.release(flow);
    }

    /// Starts up to `max_helpers` helpers of a running query job, on slots that no other job waits for.
    /// Returns their tickets.
    pub(super) fn start_helpers(&mut self, flow: &FlowKey, max_helpers: usize) -> Vec<u64> {
        if self.query.waiting() > 0 {
            return Vec::new();
        }
        let free = self.query_slots().saturating_sub(self.query_running);
        let started = free.min(max_helpers);
        self.query_running += started;
        (0..started)
            .map(|_| {
                self.query.retain(flow);
                self.take_ticket()
            })
            .collect()
    }

    /// Removes all waiting jobs.
    pub(super) fn drain(&mut self) -> Vec<T> {
        let background = self.maintenance.waiting.drain(..).chain(self.compaction.waiting.drain(..));
        let mut all: Vec<T> = self.process.drain(..).chain(background).collect();
        for queue in [&mut self.ingest, &mut self.query] {
            while let Some(picked) =
                queue.pop_urgent(usize::MAX, |_| true).or_else(|| queue.pop_ring(|_| true))
            {
                queue.release(&picked.flow);
                all.push(picked.job);
            }
        }
        all
    }

    fn ingest_waiting(&self) -> usize {
        self.process.len() + self.ingest.waiting()
    }

    fn query_slots(&self) -> usize {
        match self.ingest_waiting() {
            0 => self.cores,
            _ => (self.cores / GUARANTEED_QUERY_DIVISOR).max(1),
        }
    }

    fn take_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> FlowKey {
        Some(name.parse().unwrap())
    }

    fn schedule(cores: usize, jobs: &[(JobClass, &str, &'static str)]) -> JobScheduler<&'static str> {
        let mut schedule = JobScheduler::new(cores);
        for (class, name, job) in jobs {
            schedule.push(
                *class,
                &Some(*name).filter(|name| !name.is_empty()).map(|name| name.parse().unwrap()),
                *job,
            );
        }
        schedule
    }

    fn pop_query(schedule: &mut JobScheduler<&'static str>) -> Option<PickedJob<&'static str>> {
        schedule.pop_query(|_| true, |_| true)
    }

    /// Has a tenant use up its first quantum.
    fn spend(schedule: &mut JobScheduler<&'static str>, flow: &FlowKey) {
        schedule.renew_slice(flow, CPU_QUANTUM);
    }

    #[test]
    fn ingest_job_runs_while_queries_hold_every_query_slot() {
        let jobs =
            [(JobClass::Query, "a", "q1"), (JobClass::Query, "a", "q2"), (JobClass::Ingest, "b", "push")];
        let mut schedule = schedule(1, &jobs);
        assert_eq!(pop_query(&mut schedule).unwrap().job, "q1");
        // It never yields.
        assert_eq!(schedule.pop_ingest(), Some((tenant("b"), "push")));
    }

    #[test]
    fn jobs_of_the_process_run_before_those_of_tenants() {
        let jobs = [
            (JobClass::Ingest, "a", "walk"),
            (JobClass::Ingest, "", "apply"),
            (JobClass::Maintenance, "", "cut"),
        ];
        let mut schedule = schedule(1, &jobs);
        assert_eq!(schedule.pop_ingest(), Some((None, "apply")));
        assert_eq!(schedule.pop_ingest(), Some((tenant("a"), "walk")));
        assert_eq!((schedule.pop_ingest(), schedule.pop_maintenance()), (None, Some("cut")));
        assert_eq!(schedule.jobs(), 3);
    }

    #[test]
    fn compaction_job_delays_no_maintenance_job() {
        let jobs = [
            (JobClass::Compaction, "", "merge"),
            (JobClass::Compaction, "", "merge later"),
            (JobClass::Maintenance, "", "flush"),
        ];
        let mut schedule = schedule(1, &jobs);
        assert_eq!(schedule.pop_compaction(), Some("merge"));
        assert_eq!(schedule.pop_maintenance(), Some("flush"));
        assert_eq!(schedule.jobs(), 3);
        schedule.end_maintenance();
        schedule.end_compaction();
        assert_eq!((schedule.jobs(), schedule.drain()), (1, vec!["merge later"]));
    }

    #[test]
    fn waiting_ingest_work_leaves_queries_their_guaranteed_slots() {
        for (cores, slots) in [(1, 1), (8, 1), (32, 4)] {
            let mut schedule = schedule(cores, &[(JobClass::Ingest, "a", "push")]);
            (0..64).for_each(|_| schedule.push(JobClass::Query, &tenant("b"), "q"));
            assert!(pop_query(&mut schedule).unwrap().is_urgent);
            spend(&mut schedule, &tenant("b"));
            while pop_query(&mut schedule).is_some() {}
            assert_eq!(schedule.query_running, slots, "{cores} cores");
            schedule.pop_ingest().unwrap();
            while pop_query(&mut schedule).is_some() {}
            assert_eq!(schedule.query_running, cores);
            // Once ingest work waits again, jobs above the guaranteed slots yield at the end of their slices.
            schedule.push(JobClass::Ingest, &tenant("a"), "push");
            assert_eq!(schedule.must_yield(&tenant("b"), Duration::ZERO), cores > slots);
        }
    }

    #[test]
    fn query_job_yields_after_ten_milliseconds_if_others_wait() {
        let mut schedule = schedule(1, &[(JobClass::Query, "a", "q1")]);
        let picked = pop_query(&mut schedule).unwrap();
        let limit = Duration::from_millis(10);
        assert!(!schedule.must_yield(&picked.flow, limit), "no other job waits");
        spend(&mut schedule, &picked.flow);
        schedule.push(JobClass::Query, &tenant("a"), "q2");
        assert!(!schedule.must_yield(&picked.flow, limit - Duration::from_nanos(1)));
        assert!(schedule.must_yield(&picked.flow, limit));
    }

    #[test]
    fn tenant_below_its_share_starts_at_once_and_the_other_one_yields() {
        let mut schedule = schedule(1, &[(JobClass::Query, "heavy", "h1"), (JobClass::Query, "heavy", "h2")]);
        let heavy = pop_query(&mut schedule).unwrap();
        spend(&mut schedule, &heavy.flow);
        assert_eq!(pop_query(&mut schedule), None);
        schedule.push(JobClass::Query, &tenant("light"), "l1");
        let light = pop_query(&mut schedule).unwrap();
        assert_eq!((light.job, light.is_urgent), ("l1", true));
        assert!(
            schedule.must_yield(&heavy.flow, Duration::ZERO)
                && !schedule.must_yield(&light.flow, Duration::ZERO)
        );
        schedule.suspend_query(&heavy.flow, heavy.ticket, Duration::ZERO, "h1");
        assert!(!schedule.is_pressed());
        assert_eq!(pop_query(&mut schedule), None, "one job per core");
        schedule.end_query(&light.flow, Duration::from_millis(2));
        assert_eq!(pop_query(&mut schedule).unwrap().job, "h1", "the job that began first goes on");
    }

    #[test]
    fn helpers_start_only_on_slots_that_nobody_waits_for() {
        let mut schedule = schedule(4, &[(JobClass::Query, "a", "q1")]);
        let picked = pop_query(&mut schedule).unwrap();
        assert_eq!(schedule.start_helpers(&picked.flow, 9).len(), 3);
        assert_eq!(schedule.start_helpers(&picked.flow, 9).len(), 0);
        schedule.end_query(&picked.flow, CPU_QUANTUM);
        schedule.push(JobClass::Query, &tenant("a"), "q2");
        assert_eq!(schedule.start_helpers(&picked.flow, 1).len(), 0);
    }
}
