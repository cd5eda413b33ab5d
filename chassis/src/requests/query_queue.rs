//! Queue of queries: it limits concurrent queries and grants permits fairly among tenants.
//!
//! Each tenant pays for the bytes that its queries read. A permit goes to the waiting query whose tenant has
//! paid least. So a hundred wide queries of one tenant do not delay the narrow ones of another. A tenant that
//! arrives or returns starts at the current level, so it cannot save up permits. Once there is a second
//! tenant, each tenant holds at most half of the permits. Otherwise long queries of one tenant could hold all
//! of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::requests::tenant_shares::tenant_share;
use crate::{ErrorCode, Status, TenantId};

/// Upper bound of queued queries of one tenant.
const MAX_QUEUED_PER_TENANT: usize = 512;
/// Upper bound of queued queries of all tenants. Each grant scans all of them.
const MAX_QUEUED_QUERIES: usize = 2048;
/// Upper bound of tenants with remembered payments.
const MAX_REMEMBERED_TENANTS: usize = 4096;
/// Minimum cost of a query in bytes, however little it reads.
const MIN_QUERY_COST_BYTES: u64 = 64 << 10;
/// Wait before a retry after a rejection because of a full queue.
const QUEUE_RETRY_AFTER: Duration = Duration::from_secs(2);

/// Queue of a querier, or of a node that runs parts of queries for other nodes.
#[derive(Debug)]
pub struct QueryQueue {
    /// Upper bound of concurrent queries.
    most: usize,
    words: QueueNames,
    state: Mutex<QueryQueueState>,
}

/// Names that rejections use in their messages.
#[derive(Clone, Copy, Debug)]
pub struct QueueNames {
    /// Plural noun for the queued requests.
    pub questions: &'static str,
    /// Setting that limits concurrent requests.
    pub setting: &'static str,
    /// Setting that limits concurrent requests of one tenant, if lower.
    pub of_tenant: &'static str,
}

/// State of a queue at one point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryQueueStats {
    /// Number of running queries.
    pub running: usize,
    /// Upper bound of running queries.
    pub most: usize,
    /// Number of queued queries.
    pub waiting: usize,
    /// Number of queries that were rejected because the queue was full.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct QueryQueueState {
    running: usize,
    tenants: BTreeMap<TenantId, TenantAccount>,
    waiting: Vec<QueuedQuery>,
    /// Highest payment of a tenant at a grant or when forgotten. New and returning tenants start at it.
    level: u64,
    arrivals: u64,
    refused: u64,
}

#[derive(Debug, Default)]
struct TenantAccount {
    running: usize,
    waiting: usize,
    paid: u64,
}

#[derive(Debug)]
struct QueuedQuery {
    tenants: Arc<[TenantId]>,
    /// Upper bound of concurrent queries of each of these tenants.
    most: usize,
    arrival: u64,
    turn: oneshot::Sender<QueryPermit>,
}

/// Permit to run a query. Dropping it grants the next one.
#[derive(Debug)]
pub struct QueryPermit {
    turns: Arc<QueryQueue>,
    tenants: Arc<[TenantId]>,
}

/// Granted permits and their waiters. They are delivered without the lock, because a cancelled waiter drops
/// its permit, which takes the lock.
#[must_use]
struct GrantedPermits(Vec<(oneshot::Sender<QueryPermit>, QueryPermit)>);

impl QueryQueue {
    /// Creates a queue that runs at most `most` queries at once.
    pub fn new(most: usize, words: QueueNames) -> Arc<Self> {
        Arc::new(QueryQueue { most: most.max(1), words, state: Mutex::default() })
    }

    /// Waits for a permit. Each of the tenants may hold at most `most` at once.
    pub async fn acquire(self: &Arc<Self>, tenants: &[TenantId], most: usize) -> Result<QueryPermit, Status> {
        let (turn, came) = oneshot::channel();
        let given = {
            let mut state = self.state.lock();
            state.remove_cancelled();
            if let Some(why) = state.rejection_reason(tenants, most, self.words) {
                state.refused += 1;
                return Err(Status::new(ErrorCode::Exhausted, why).with_retry_after(QUEUE_RETRY_AFTER));
            }
            state.arrivals += 1;
            let arrival = state.arrivals;
            state.add_queued(tenants);
            state.waiting.push(QueuedQuery { tenants: tenants.into(), most: most.max(1), arrival, turn });
            self.grant_permits(&mut state)
        };
        given.deliver();
        came.await.map_err(|_| Status::new(ErrorCode::Internal, "the permit of a queued query was lost"))
    }

    /// Returns the numbers of running, queued and rejected queries.
    pub fn stats(&self) -> QueryQueueStats {
        let mut state = self.state.lock();
        state.remove_cancelled();
        let QueryQueueState { running, ref waiting, refused, .. } = *state;
        QueryQueueStats { running, most: self.most, waiting: waiting.len(), refused }
    }

    /// Grants free permits to queued queries, in order of the least payment.
    fn grant_permits(self: &Arc<Self>, state: &mut QueryQueueState) -> GrantedPermits {
        state.remove_cancelled();
        let mut given = Vec::new();
        while state.running < self.most
            && let Some(QueuedQuery { tenants, turn, .. }) = state.pop_next(self.most)
        {
            given.push((turn, QueryPermit { turns: Arc::clone(self), tenants }));
        }
        GrantedPermits(given)
    }
}

impl GrantedPermits {
    fn deliver(self) {
        for (waiter, turn) in self.0 {
            // A cancelled waiter drops the permit, which grants it to the next query.
            drop(waiter.send(turn));
        }
    }
}

impl QueryQueueState {
    /// Removes queued queries after their callers stopped waiting.
    fn remove_cancelled(&mut self) {
        let left = self.waiting.extract_if(.., |waiter| waiter.turn.is_closed());
        for tenant in left.flat_map(|waiter| waiter.tenants.to_vec()) {
            if let Some(account) = self.tenants.get_mut(&tenant) {
                account.waiting = account.waiting.saturating_sub(1);
            }
        }
    }

    /// Returns the reason for which another query cannot be queued, as an error message.
    fn rejection_reason(&self, tenants: &[TenantId], most: usize, words: QueueNames) -> Option<String> {
        let QueueNames { questions, setting, of_tenant } = words;
        if self.waiting.len() >= MAX_QUEUED_QUERIES {
            return Some(format!(
                "{} {questions} of all tenants are queued, the limit is {MAX_QUEUED_QUERIES}, and {} are \
                 running ({setting}); retry later",
                self.waiting.len(),
                self.running
            ));
        }
        let of = |tenant| self.tenants.get(tenant).map(|account| (tenant, account));
        let (tenant, account) =
            tenants.iter().filter_map(of).find(|(_, account)| account.waiting >= MAX_QUEUED_PER_TENANT)?;
        Some(format!(
            "{} {questions} of tenant {tenant} are queued, the limit is {MAX_QUEUED_PER_TENANT}, and {} \
             are running, of at most {most} ({of_tenant}); retry later",
            account.waiting, account.running
        ))
    }

    /// Removes the next eligible query from the queue and counts it as running. `all` is the limit of
    /// concurrent queries.
    fn pop_next(&mut self, all: usize) -> Option<QueuedQuery> {
        let QueryQueueState { tenants, waiting, .. } = &*self;
        let share = (tenant_share(all as u64, tenants.len()) as usize).max(1);
        let may = |waiter: &QueuedQuery| {
            waiter.tenants.iter().all(|tenant| {
                tenants.get(tenant).is_none_or(|account| account.running < waiter.most.min(share))
            })
        };
        let paid = |waiter: &QueuedQuery| {
            let of = |tenant| tenants.get(tenant).map_or(0, |account| account.paid);
            waiter.tenants.iter().map(of).max().unwrap_or_default()
        };
        let next = waiting.iter().enumerate().filter(|(_, waiter)| may(waiter));
        let next = next.min_by_key(|(_, waiter)| (paid(waiter), waiter.arrival));
        let (at, level) = next.map(|(at, waiter)| (at, paid(waiter)))?;
        let waiter = self.waiting.remove(at);
        self.level = self.level.max(level);
        self.running += 1;
        for tenant in &*waiter.tenants {
            let account = self.tenants.entry(tenant.clone()).or_default();
            account.waiting = account.waiting.saturating_sub(1);
            account.running += 1;
        }
        Some(waiter)
    }

    fn add_queued(&mut self, tenants: &[TenantId]) {
        if self.tenants.len() >= MAX_REMEMBERED_TENANTS {
            self.forget_idle_tenants();
        }
        for tenant in tenants {
            let level = self.level;
            let account = self.tenants.entry(tenant.clone()).or_default();
            if account.running == 0 && account.waiting == 0 {
                account.paid = account.paid.max(level);
            }
            account.waiting += 1;
        }
    }

    /// Forgets the half of the idle tenants that paid least. They return at the current level, which is no
    /// lower than their payment.
    fn forget_idle_tenants(&mut self) {
        let is_idle = |of: &TenantAccount| of.running == 0 && of.waiting == 0;
        let mut paid: Vec<u64> = self.tenants.values().filter(|of| is_idle(of)).map(|of| of.paid).collect();
        paid.sort_unstable();
        let Some(&middle) = paid.get(paid.len() / 2) else { return };
        self.level = self.level.max(middle);
        self.tenants.retain(|_, of| !is_idle(of) || of.paid > middle);
    }

    fn finish_query(&mut self, tenants: &[TenantId]) {
        self.running -= 1;
        for tenant in tenants {
            if let Some(account) = self.tenants.get_mut(tenant) {
                account.running = account.running.saturating_sub(1);
            }
        }
    }
}

impl QueryPermit {
    /// Charges bytes that the query reads from a tenant.
    pub fn charge(&self, tenant: &TenantId, bytes: u64) {
        let mut state = self.turns.state.lock();
        let account = state.tenants.entry(tenant.clone()).or_default();
        account.paid = account.paid.saturating_add(bytes.max(MIN_QUERY_COST_BYTES));
    }
}

impl Drop for QueryPermit {
    fn drop(&mut self) {
        let given = {
            let mut state = self.turns.state.lock();
            state.finish_query(&self.tenants);
            self.turns.grant_permits(&mut state)
        };
        given.deliver();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Wake, Waker};

    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;

    fn turns(most: usize) -> Arc<QueryQueue> {
        let words = QueueNames { questions: "queries", setting: "most", of_tenant: "most_of_one" };
        QueryQueue::new(most, words)
    }

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    /// Who is waiting, polled once.
    fn ask(turns: &Arc<QueryQueue>, tenants: &[&str], most: usize) -> BoxFuture<'static, QueryPermit> {
        let (turns, tenants) =
            (Arc::clone(turns), tenants.iter().map(|name| tenant(name)).collect::<Vec<_>>());
        let mut asked = async move { turns.acquire(&tenants, most).await.unwrap() }.boxed();
        match (&mut asked).now_or_never() {
            Some(turn) => futures::future::ready(turn).boxed(),
            None => asked,
        }
    }

    #[test]
    fn who_has_read_less_goes_first() {
        let turns = turns(1);
        let first = ask(&turns, &["wide"], 8).now_or_never().unwrap();
        first.charge(&tenant("wide"), 1 << 30);
        let mut wide: Vec<_> = (0..3).map(|_| ask(&turns, &["wide"], 8)).collect();
        let mut narrow: Vec<_> = (0..3).map(|_| ask(&turns, &["narrow"], 8)).collect();
        drop(first);
        for narrow in &mut narrow {
            assert!(wide.iter_mut().all(|wide| wide.now_or_never().is_none()));
            narrow.now_or_never().expect("it is its turn").charge(&tenant("narrow"), 1 << 20);
        }
        assert!(wide[0].as_mut().now_or_never().is_some());
    }

    #[test]
    fn nobody_saves_up_turns_and_those_who_leave_hold_none() {
        let turns = turns(1);
        for _ in 0..100 {
            ask(&turns, &["busy"], 8).now_or_never().unwrap().charge(&tenant("busy"), 1 << 20);
        }
        let running = ask(&turns, &["busy"], 8).now_or_never().unwrap();
        let mut others: Vec<_> = (0..4).map(|_| ask(&turns, &["new"], 8)).collect();
        let mut busy = ask(&turns, &["busy"], 8);
        // One leaves.
        drop(others.remove(0));
        drop(running);
        let turn = others[0].as_mut().now_or_never().expect("the new one is first");
        turn.charge(&tenant("new"), 2 << 20);
        drop(turn);
        busy.as_mut().now_or_never().expect("it came with what others had paid, and has paid more since");
    }

    #[test]
    fn a_tenant_has_only_so_many_at_once() {
        let turns = turns(10);
        let two = [(); 2].map(|()| ask(&turns, &["a"], 2).now_or_never().unwrap());
        let mut third = ask(&turns, &["a"], 2);
        let mut both = ask(&turns, &["b", "a"], 2);
        assert!(third.as_mut().now_or_never().is_none() && both.as_mut().now_or_never().is_none());
        let other = ask(&turns, &["b"], 2).now_or_never().expect("another tenant");
        drop(two);
        assert!(third.now_or_never().is_some() && both.now_or_never().is_some());
        drop(other);
        assert_eq!(turns.state.lock().running, 0);
    }

    #[test]
    fn tenant_has_all_turns_alone_and_half_beside_others() {
        let turns = turns(4);
        let alone = [(); 4].map(|()| ask(&turns, &["wide"], 64).now_or_never().unwrap());
        let mut narrow = ask(&turns, &["narrow"], 64);
        assert!(narrow.as_mut().now_or_never().is_none());
        let mut more = ask(&turns, &["wide"], 64);
        drop(alone);
        let narrow = narrow.now_or_never().expect("its turn");
        let more = more.as_mut().now_or_never().expect("its turn");
        let half = ask(&turns, &["wide"], 64).now_or_never().expect("its turn");
        assert!(ask(&turns, &["wide"], 64).now_or_never().is_none(), "it has two of four");
        let last = ask(&turns, &["narrow"], 64).now_or_never();
        assert!(last.is_some(), "the other half is free");
        drop((narrow, more, half, last));
    }

    #[test]
    fn tenants_that_come_once_are_forgotten() {
        let turns = turns(1);
        for n in 0..3 * MAX_REMEMBERED_TENANTS {
            let name = format!("t{n}");
            ask(&turns, &[&name], 8).now_or_never().unwrap().charge(&tenant(&name), 1);
        }
        assert!(turns.state.lock().tenants.len() <= MAX_REMEMBERED_TENANTS);
    }

    #[test]
    fn a_queue_has_an_end() {
        let turns = turns(1);
        let held = ask(&turns, &["a"], 8).now_or_never().unwrap();
        let waiting: Vec<_> = (0..MAX_QUEUED_PER_TENANT).map(|_| ask(&turns, &["a"], 8)).collect();
        let refused = turns.acquire(&[tenant("a")], 8).now_or_never().expect("at once").unwrap_err();
        assert_eq!((refused.code, refused.retry_after), (ErrorCode::Exhausted, Some(QUEUE_RETRY_AFTER)));
        assert!(refused.message.contains("512 queries of tenant a are queued"), "{refused}");
        assert_eq!((turns.stats().waiting, turns.stats().refused), (MAX_QUEUED_PER_TENANT, 1));
        drop(waiting);
        assert!(turns.acquire(&[tenant("a")], 8).now_or_never().is_none(), "it waits: the others have left");
        drop(held);
        assert_eq!(turns.stats(), QueryQueueStats { most: 1, refused: 1, ..QueryQueueStats::default() });
    }

    #[test]
    fn all_tenants_share_a_queue_that_has_an_end() {
        let turns = turns(1);
        let held = ask(&turns, &["a"], 8).now_or_never().unwrap();
        let waiting: Vec<_> = (0..MAX_QUEUED_QUERIES).map(|n| ask(&turns, &[&format!("t{n}")], 8)).collect();
        let refused = turns.acquire(&[tenant("b")], 8).now_or_never().expect("at once").unwrap_err();
        assert_eq!((refused.code, refused.retry_after), (ErrorCode::Exhausted, Some(QUEUE_RETRY_AFTER)));
        assert!(refused.message.contains("2048 queries of all tenants are queued"), "{refused}");
        drop((waiting, held));
        assert!(turns.acquire(&[tenant("b")], 8).now_or_never().is_some());
    }

    /// Leaves the moment that its turn has come.
    #[derive(Default)]
    struct Leaves(Mutex<Option<BoxFuture<'static, QueryPermit>>>);

    impl Wake for Leaves {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().take());
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of a thread that may never end")]
    fn who_leaves_as_its_turn_comes_holds_up_nobody() {
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let turns = turns(1);
            let held = ask(&turns, &["a"], 8).now_or_never().unwrap();
            let leaves = Arc::new(Leaves::default());
            let mut waits = ask(&turns, &["a"], 8);
            let waker = Waker::from(Arc::clone(&leaves));
            assert!(waits.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
            *leaves.0.lock() = Some(waits);
            let mut after = ask(&turns, &["b"], 8);
            drop(held);
            let next = after.as_mut().now_or_never().is_some();
            let _ = done.send((next, turns.stats().running));
        });
        let outcome = ended.recv_timeout(Duration::from_secs(60)).expect("nobody waits for a lock it holds");
        assert_eq!(outcome, (true, 0));
    }
}
