//! Deficit round robin over tenants, by measured CPU time. Pure: time comes in as an argument.
//!
//! ```text
//!  returns from idle, deficit > 0 ──► urgent ──deficit used up──► ring ──► one quantum per round
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::TenantId;

/// CPU time that a tenant receives in each round, and the longest slice of a job that can yield.
pub(super) const CPU_QUANTUM: Duration = Duration::from_millis(10);
/// Upper bound of the CPU time that a tenant accumulates while idle.
const MAX_CPU_BURST: Duration = Duration::from_millis(100);
/// Upper bound of the CPU time that a tenant owes after a job that did not yield.
const MAX_CPU_DEBT: Duration = Duration::from_secs(1);
/// Upper bound of tenants with remembered deficits. Beyond it, idle tenants are dropped.
const MAX_REMEMBERED_FLOWS: usize = 4096;

/// Owner of jobs. `None` is the process itself.
pub(super) type FlowKey = Option<TenantId>;

/// Queue of jobs that is fair among tenants.
///
/// A tenant pays for CPU time after its jobs used it. A tenant that does not take part in rounds earns its
/// fair share of all CPU time instead, up to a bound. So a tenant that stays below its share runs ahead of
/// the round when it returns.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    flows: BTreeMap<FlowKey, TenantFlow<T>>,
    /// Tenants with saved time and waiting jobs, in order of arrival.
    urgent: VecDeque<FlowKey>,
    /// All other tenants with waiting jobs.
    ring: VecDeque<FlowKey>,
    waiting: usize,
    /// Flows that have running or waiting jobs.
    active: usize,
    /// CPU time charged to all flows so far.
    served_nanos: i64,
}

/// Jobs of one tenant.
#[derive(Debug)]
struct TenantFlow<T> {
    /// Ordered by ticket: a job that yielded continues before a later job begins.
    jobs: BTreeMap<u64, T>,
    running: usize,
    deficit_nanos: i64,
    /// `served_nanos` up to which the flow has received its share.
    earned_until_nanos: i64,
    /// Runs ahead of the ring. True from the return from idle until the deficit is used up.
    is_urgent: bool,
    /// Listed in `urgent` or `ring`.
    is_listed: bool,
}

/// List in which a flow waits.
#[derive(Clone, Copy)]
enum FlowList {
    Urgent,
    Ring,
}

/// Job that left the queue. It counts as running until [`FairQueue::release`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PickedJob<T> {
    pub(super) flow: FlowKey,
    pub(super) ticket: u64,
    pub(super) is_urgent: bool,
    pub(super) job: T,
}

impl<T> FairQueue<T> {
    pub(super) const fn new() -> Self {
        Self {
            flows: BTreeMap::new(),
            urgent: VecDeque::new(),
            ring: VecDeque::new(),
            waiting: 0,
            active: 0,
            served_nanos: 0,
        }
    }

    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Adds a job. Within a flow, lower tickets run first.
    pub(super) fn push(&mut self, key: &FlowKey, ticket: u64, job: T) {
        if self.flows.len() >= MAX_REMEMBERED_FLOWS && !self.flows.contains_key(key) {
            self.flows.retain(|_, flow| flow.running > 0 || !flow.jobs.is_empty());
        }
        let served_nanos = self.served_nanos;
        let flow = self.flows.entry(key.clone()).or_insert_with(|| TenantFlow {
            jobs: BTreeMap::new(),
            running: 0,
            deficit_nanos: nanos(CPU_QUANTUM),
            earned_until_nanos: served_nanos,
            is_urgent: false,
            is_listed: false,
        });
        if flow.is_idle() {
            self.active += 1;
            let unpaid_nanos = (served_nanos - flow.earned_until_nanos).max(0);
            let earned_nanos = unpaid_nanos / self.active as i64;
            flow.earned_until_nanos = flow.earned_until_nanos.max(served_nanos);
            flow.deficit_nanos = (flow.deficit_nanos + earned_nanos).min(nanos(MAX_CPU_BURST));
            flow.is_urgent = flow.deficit_nanos > 0;
        }
        flow.jobs.insert(ticket, job);
        self.waiting += 1;
        if flow.is_listed {
            return;
        }
        flow.is_listed = true;
        match (flow.is_urgent, flow.deficit_nanos > 0) {
            (true, _) => self.urgent.push_back(key.clone()),
            // The flow goes on with the rest of its quantum.
            (false, true) => self.ring.push_front(key.clone()),
            (false, false) => self.ring.push_back(key.clone()),
        }
    }

    /// Takes the next job for which there is a thread, of the flows in the ring.
    pub(super) fn pop_ring(&mut self, can_run: impl Fn(&T) -> bool) -> Option<PickedJob<T>> {
        self.refill(&can_run);
        let flows = &self.flows;
        let is_next = |key: &FlowKey| flows[key].deficit_nanos > 0 && flows[key].has_next(&can_run);
        let place = self.ring.iter().position(is_next)?;
        let key = self.ring.remove(place)?;
        self.take(&key, FlowList::Ring)
    }

    /// Returns the next job of a flow that runs ahead of the ring and has fewer than `max_running` running
    /// jobs.
    pub(super) fn pop_urgent(
        &mut self,
        max_running: usize,
        can_run: impl Fn(&T) -> bool,
    ) -> Option<PickedJob<T>> {
        let is_next = |flow: &TenantFlow<T>| flow.running < max_running && flow.has_next(&can_run);
        let place = self.urgent.iter().position(|key| is_next(&self.flows[key]))?;
        let key = self.urgent.remove(place)?;
        self.take(&key, FlowList::Urgent)
    }

    /// Returns whether a flow that runs ahead of the ring has a waiting job.
    pub(super) fn has_urgent(&self) -> bool {
        !self.urgent.is_empty()
    }

    /// Returns whether the flow runs ahead of the ring.
    pub(super) fn is_urgent(&self, key: &FlowKey) -> bool {
        self.flows.get(key).is_some_and(|flow| flow.is_urgent)
    }

    /// Subtracts CPU time that a job of the flow used. While no job waits, no flow goes into debt.
    pub(super) fn charge(&mut self, key: &FlowKey, cpu_time: Duration) {
        let cost_nanos = nanos(cpu_time);
        self.served_nanos = self.served_nanos.saturating_add(cost_nanos);
        let Some(flow) = self.flows.get_mut(key) else { return };
        let least_nanos = if self.waiting == 0 { 0 } else { -nanos(MAX_CPU_DEBT) };
        flow.deficit_nanos = flow.deficit_nanos.saturating_sub(cost_nanos).max(least_nanos);
        if !flow.is_urgent || flow.deficit_nanos > 0 {
            return;
        }
        flow.is_urgent = false;
        if flow.is_listed {
            self.urgent.retain(|listed| listed != key);
            self.ring.push_back(key.clone());
        }
    }

    /// Counts one more running job of the flow, which did not come from the queue.
    pub(super) fn retain(&mut self, key: &FlowKey) {
        if let Some(flow) = self.flows.get_mut(key) {
            flow.running += 1;
        }
    }

    /// Ends a running job, or its slice. A job that yields is pushed before this call.
    pub(super) fn release(&mut self, key: &FlowKey) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        flow.running = flow.running.saturating_sub(1);
        if flow.is_idle() {
            self.active = self.active.saturating_sub(1);
        }
    }

    /// Removes the first job of a flow that was removed from its list, and lists the flow again if more jobs
    /// wait.
    fn take(&mut self, key: &FlowKey, from: FlowList) -> Option<PickedJob<T>> {
        let flow = self.flows.get_mut(key)?;
        let (ticket, job) = flow.jobs.pop_first()?;
        self.waiting -= 1;
        flow.running += 1;
        let is_urgent = flow.is_urgent;
        flow.is_listed = !flow.jobs.is_empty();
        if flow.is_listed {
            // The flow stays first until its quantum is used up.
            match from {
                FlowList::Urgent => self.urgent.push_front(key.clone()),
                FlowList::Ring => self.ring.push_front(key.clone()),
            }
        }
        Some(PickedJob { flow: key.clone(), ticket, is_urgent, job })
    }

    /// Adds as many rounds of quanta as it takes until a flow of the ring may run, if none may.
    fn refill(&mut self, can_run: impl Fn(&T) -> bool) {
        let flows = &self.flows;
        let runnable = self.ring.iter().map(|key| &flows[key]).filter(|flow| flow.has_next(&can_run));
        let Some(deficit_nanos) = runnable.map(|flow| flow.deficit_nanos).max() else { return };
        if deficit_nanos > 0 {
            return;
        }
        let rounds = -deficit_nanos / nanos(CPU_QUANTUM) + 1;
        // A quantum is the share of the CPU time that all active flows use until the next round.
        let until_nanos = self.served_nanos + rounds * nanos(CPU_QUANTUM) * self.active as i64;
        for key in &self.ring {
            if let Some(flow) = self.flows.get_mut(key) {
                flow.deficit_nanos += rounds * nanos(CPU_QUANTUM);
                flow.earned_until_nanos = until_nanos;
            }
        }
    }
}

impl<T> TenantFlow<T> {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.jobs.is_empty()
    }

    fn has_next(&self, can_run: impl Fn(&T) -> bool) -> bool {
        self.jobs.first_key_value().is_some_and(|(_, job)| can_run(job))
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop(queue: &mut FairQueue<()>) -> Option<PickedJob<()>> {
        queue.pop_urgent(usize::MAX, |()| true).or_else(|| queue.pop_ring(|()| true))
    }

    fn tenant(name: &str) -> FlowKey {
        Some(name.parse().unwrap())
    }

    /// Queue in which jobs are named after their tickets.
    fn queue(jobs: &[(&str, u64)]) -> FairQueue<()> {
        let mut queue = FairQueue::new();
        jobs.iter().for_each(|(name, ticket)| queue.push(&tenant(name), *ticket, ()));
        queue
    }

    /// Runs the next job for some CPU time and returns its tenant. The job yields and waits again.
    fn run_slice(queue: &mut FairQueue<()>, cpu_time: impl Fn(&str) -> u64) -> String {
        let PickedJob { flow, ticket, .. } = pop(queue).unwrap();
        let name = flow.as_ref().unwrap().as_str().to_owned();
        queue.charge(&flow, Duration::from_millis(cpu_time(&name)));
        queue.push(&flow, ticket, ());
        queue.release(&flow);
        name
    }

    /// Runs the next job to its end.
    fn run_to_end(queue: &mut FairQueue<()>, cpu_time: Duration) -> PickedJob<()> {
        let picked = pop(queue).unwrap();
        queue.charge(&picked.flow, cpu_time);
        queue.release(&picked.flow);
        picked
    }

    #[test]
    fn tenants_with_many_and_few_jobs_get_equal_cpu_time() {
        let mut queue = queue(&[("few", 0)]);
        (1..65).for_each(|ticket| queue.push(&tenant("many"), ticket, ()));
        let mut spent: BTreeMap<String, u64> = BTreeMap::new();
        // The jobs of one run for much longer before they yield.
        let cpu_time = |name: &str| if name == "many" { 37 } else { 5 };
        for _ in 0..2_000 {
            let name = run_slice(&mut queue, cpu_time);
            *spent.entry(name.clone()).or_default() += cpu_time(&name);
        }
        assert!(spent["many"].abs_diff(spent["few"]) <= 200, "{spent:?}");
    }

    #[test]
    fn jobs_of_one_tenant_run_to_their_end_in_order_of_arrival() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3)]);
        for _ in 0..5 {
            let PickedJob { flow, ticket, .. } = pop(&mut queue).unwrap();
            assert_eq!(ticket, 1);
            queue.charge(&flow, CPU_QUANTUM);
            queue.push(&flow, ticket, ());
            queue.release(&flow);
        }
    }

    #[test]
    fn tenant_below_its_share_runs_before_one_with_a_backlog() {
        let mut queue = queue(&[]);
        (0..64).for_each(|ticket| queue.push(&tenant("heavy"), ticket, ()));
        for round in 0..200 {
            // 60 ms of one tenant, then four jobs of the other: 40 % of the CPU time.
            for _ in 0..6 {
                assert_eq!(run_slice(&mut queue, |_| 10), "heavy");
            }
            for job in 0..4 {
                queue.push(&tenant("light"), 1_000 + round * 4 + job, ());
                // A new tenant has saved up nothing.
                let is_first = round > 0 && queue.has_urgent();
                let mut waited = 0;
                while run_slice_or_end(&mut queue, "light") == "heavy" {
                    waited += 1;
                }
                assert!(round == 0 || (is_first && waited == 0), "round {round} job {job}: {waited}");
            }
        }
    }

    #[test]
    fn tenant_above_its_share_waits_for_the_round() {
        let mut queue = queue(&[]);
        (0..64).for_each(|ticket| queue.push(&tenant("heavy"), ticket, ()));
        let (mut spent, mut first) = (0, 0);
        for ticket in 1_000..1_200 {
            // It sends the next job as soon as the last one has ended.
            queue.push(&tenant("greedy"), ticket, ());
            first += u32::from(queue.has_urgent());
            while run_slice_or_end(&mut queue, "greedy") == "heavy" {
                spent += 10;
            }
        }
        assert!((1_900..=2_100).contains(&spent), "2 000 ms of this tenant and {spent} ms of the other one");
        assert!(first < 20, "{first} of 200 jobs ran first");
    }

    /// Runs the next job for 10 ms. The job of one tenant ends with that, all others yield.
    fn run_slice_or_end(queue: &mut FairQueue<()>, ends: &str) -> String {
        let PickedJob { flow, ticket, .. } = pop(queue).unwrap();
        let name = flow.as_ref().unwrap().as_str().to_owned();
        queue.charge(&flow, CPU_QUANTUM);
        if name != ends {
            queue.push(&flow, ticket, ());
        }
        queue.release(&flow);
        name
    }

    #[test]
    fn tenant_saves_up_no_more_than_a_burst() {
        let mut queue = queue(&[("new", 0), ("heavy", 1)]);
        run_to_end(&mut queue, Duration::from_millis(1));
        for _ in 0..10_000 {
            assert_eq!(run_slice(&mut queue, |_| 10), "heavy");
        }
        queue.push(&tenant("new"), 2, ());
        let mut burst = 0;
        while run_slice(&mut queue, |_| 10) == "new" {
            burst += 10;
        }
        assert_eq!(burst, 100);
    }

    #[test]
    fn tenant_that_leaves_in_debt_returns_in_debt() {
        let mut queue = queue(&[("a", 0), ("b", 1)]);
        assert_eq!(run_to_end(&mut queue, Duration::from_millis(500)).flow, tenant("a"));
        queue.push(&tenant("a"), 2, ());
        assert!(!queue.is_urgent(&tenant("a")));
        let mut slices = 0;
        while run_slice(&mut queue, |_| 10) == "b" {
            slices += 1;
        }
        assert!((20..=50).contains(&slices), "{slices}");
    }

    #[test]
    fn tenant_that_ran_alone_owes_nothing() {
        let mut queue = queue(&[("alone", 0)]);
        let PickedJob { flow, ticket, .. } = pop(&mut queue).unwrap();
        (0..1_000).for_each(|_| queue.charge(&flow, CPU_QUANTUM));
        queue.push(&flow, ticket, ());
        queue.release(&flow);
        queue.push(&tenant("new"), 1, ());
        let order: Vec<String> = (0..5).map(|_| run_slice(&mut queue, |_| 10)).collect();
        assert_eq!(order.iter().filter(|name| *name == "alone").count(), 2, "{order:?}");
    }

    #[test]
    fn job_without_a_thread_holds_up_no_other_tenant() {
        let mut queue = FairQueue::new();
        queue.push(&tenant("a"), 0, "starts");
        queue.push(&tenant("b"), 1, "resumes");
        let picked = queue.pop_urgent(1, |job| *job == "resumes").unwrap();
        assert_eq!((picked.flow, picked.job), (tenant("b"), "resumes"));
        assert_eq!(queue.pop_urgent(1, |job| *job == "resumes"), None);
        assert_eq!((queue.waiting(), queue.has_urgent()), (1, true));
    }

    #[test]
    fn idle_tenants_are_forgotten() {
        let mut queue = FairQueue::new();
        for number in 0..3 * MAX_REMEMBERED_FLOWS as u64 {
            queue.push(&tenant(&format!("t{number}")), number, ());
            run_to_end(&mut queue, CPU_QUANTUM);
        }
        assert!(queue.flows.len() <= MAX_REMEMBERED_FLOWS);
        assert_eq!(queue.active, 0);
    }
}
