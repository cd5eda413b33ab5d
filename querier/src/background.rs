//! Queries in the background: begun by one call, and asked for by later ones.
//!
//! They are kept by the node that began them, which their tickets name: another querier that is asked for one asks that
//! node. How many run and how many answers are kept is bounded for each tenant, and so is how long; how many bytes answers
//! have is bounded for all, and one tenant may have half of it. An answer takes room for as long as it is kept, of all
//! that was taken to put it together only as much as it has bytes. One task for all of them ends what nobody asks for.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use athanor_chassis::tasks::SpawnError;
use athanor_chassis::{ByteSize, Clock, Code, Random, Status, Tasks, TenantId};
use futures::future::{Either, select};

use crate::Reader;
use crate::elsewhere::Ticket;
use crate::shares::{self, Share};

mod wire;

pub(crate) use wire::Kept;
pub use wire::{Answered, Looked, Progress};

/// How long an answer is kept, and the longest that a query may run: a plan is not older [INV-18].
const KEEP: Duration = Duration::from_secs(15 * 60);
/// Answers of one tenant that are kept at once: the next one takes the place of the oldest.
const MOST_KEPT: usize = 8;
/// Queries of all tenants, running or kept.
const MOST: usize = 1_024;
/// When to try again where too many run.
const BUSY: Duration = Duration::from_secs(5);

/// Queries that run, and answers that are kept.
pub(crate) struct Background<T> {
    /// Whose they are.
    node: u64,
    tasks: Tasks,
    random: Random,
    clock: Clock,
    bounds: Bounds,
    jobs: Mutex<Jobs<T>>,
}

/// How much of it there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Queries of a tenant that run at once.
    pub(crate) most: usize,
    /// Bytes of answers that are kept.
    pub(crate) bytes: usize,
}

/// Queries in the background at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackgroundStats {
    /// Those that run.
    pub running: usize,
    /// Those that have ended, and are kept.
    pub kept: usize,
    /// Bytes of answers that are kept.
    pub bytes: usize,
    /// How many there may be.
    pub limit: usize,
}

struct Jobs<T> {
    by_ticket: BTreeMap<Ticket, Job<T>>,
    /// Whether a task looks after their age.
    watched: bool,
}

struct Job<T> {
    /// Who may ask for it, and what its answer lacks and holds.
    reader: Reader,
    /// When it began to be what it is, by the monotonic clock.
    since: Duration,
    state: State<T>,
}

/// How far a query is.
pub(crate) enum State<T> {
    /// It runs.
    Running,
    /// Its answer.
    Done(Arc<T>),
    /// Why there is none.
    Failed(Status),
}

impl<T> Default for Jobs<T> {
    fn default() -> Self {
        Jobs { by_ticket: BTreeMap::new(), watched: false }
    }
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        match self {
            State::Running => State::Running,
            State::Done(answer) => State::Done(Arc::clone(answer)),
            State::Failed(status) => State::Failed(status.clone()),
        }
    }
}

impl<T: Send + Sync + 'static> Background<T> {
    /// Those of a node.
    pub(crate) fn new(node: u64, tasks: Tasks, random: Random, clock: Clock, bounds: Bounds) -> Self {
        Background { node, tasks, random, clock, bounds, jobs: Mutex::default() }
    }

    /// Whether any may run.
    pub(crate) fn is_on(&self) -> bool {
        self.bounds.most > 0
    }

    /// How many there are.
    pub(crate) fn stats(&self) -> BackgroundStats {
        let jobs = self.jobs();
        let (running, kept): (Vec<_>, Vec<_>) = jobs.by_ticket.values().partition(|job| job.is_running());
        let bytes = kept.iter().map(|job| job.reader.held()).sum();
        BackgroundStats { running: running.len(), kept: kept.len(), bytes, limit: self.bounds.bytes }
    }

    /// Begins a query for a reader, who asks for it by the ticket that is given back.
    pub(crate) fn begin<F>(
        self: &Arc<Self>,
        reader: Reader,
        query: impl FnOnce(Reader) -> F,
    ) -> Result<Ticket, Status>
    where
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let ticket = Ticket::draw(self.node, &self.random);
        let job = Job { reader: reader.clone(), since: self.clock.monotonic(), state: State::Running };
        self.make_place(reader.tenants())?.by_ticket.insert(ticket, job);
        let (query, shared) = (query(reader), Arc::clone(self));
        let run = async move {
            let (stop, query) = (shared.tasks.token(), pin!(query));
            if let Either::Left((answer, _)) = select(query, pin!(stop.cancelled())).await {
                shared.end(ticket, answer);
            }
        };
        let started = self.watch().and_then(|()| self.tasks.spawn("query in the background", run));
        if let Err(error) = started {
            self.jobs().by_ticket.remove(&ticket);
            return Err(Status::of(&error));
        }
        Ok(ticket)
    }

    /// Has a task forget what is old, though nobody asks any more: it takes room. It ends with the last of the queries.
    fn watch(self: &Arc<Self>) -> Result<(), SpawnError> {
        let mut jobs = self.jobs();
        if jobs.watched {
            return Ok(());
        }
        let shared = Arc::clone(self);
        let forget = async move {
            let stop = shared.tasks.token();
            while let Some(rest) = shared.rest() {
                if let Either::Right(_) = select(pin!(shared.clock.sleep(rest)), pin!(stop.cancelled())).await
                {
                    return;
                }
            }
        };
        self.tasks.spawn("answers of queries in the background", forget)?;
        jobs.watched = true;
        Ok(())
    }

    /// Forgets what is old. How long until the next is; none if there is none, and nobody looks after them any more.
    fn rest(&self) -> Option<Duration> {
        let mut jobs = self.jobs();
        self.forget_old(&mut jobs);
        let oldest = jobs.by_ticket.values().map(|job| job.since).min();
        jobs.watched = oldest.is_some();
        oldest.map(|oldest| (oldest + KEEP).saturating_sub(self.clock.monotonic()))
    }

    /// How far a query is, and who began it: that one knows what the answer lacks, and holds its room. A query of other
    /// tenants is as one that never was.
    pub(crate) fn look(&self, reader: &Reader, ticket: Ticket) -> Result<(State<T>, Reader), Status> {
        let mut jobs = self.jobs();
        self.forget_old(&mut jobs);
        let job = jobs.by_ticket.get(&ticket).filter(|job| job.reader.tenants() == reader.tenants());
        let Some(job) = job else { return Err(unknown(&ticket.to_string())) };
        Ok((job.state.clone(), job.reader.clone()))
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs<T>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_old(&self, jobs: &mut Jobs<T>) {
        let now = self.clock.monotonic();
        jobs.by_ticket.retain(|_, job| now.saturating_sub(job.since) < KEEP);
    }

    /// Makes place for one more of these tenants. It counts for each of them, and so does what they have together with
    /// others.
    fn make_place(&self, tenants: &[TenantId]) -> Result<MutexGuard<'_, Jobs<T>>, Status> {
        let mut jobs = self.jobs();
        self.forget_old(&mut jobs);
        for tenant in tenants {
            let running = jobs.of(tenant).filter(|(_, job)| job.is_running()).count();
            if running >= self.bounds.most {
                let most = self.bounds.most;
                let message = format!(
                    "{running} queries of a tenant run in the background, the limit is {most} (querier.background_queries); wait for one of them to end"
                );
                return Err(Status::new(Code::Exhausted, message).after(BUSY));
            }
        }
        for tenant in tenants {
            let kept = jobs.of(tenant).filter(|(_, job)| !job.is_running());
            let mut kept: Vec<(Duration, Ticket)> = kept.map(|(ticket, job)| (job.since, *ticket)).collect();
            kept.sort_unstable();
            let more = (kept.len() + 1).saturating_sub(MOST_KEPT);
            kept.iter().take(more).for_each(|(_, ticket)| drop(jobs.by_ticket.remove(ticket)));
        }
        let seen = jobs.by_ticket.len();
        if seen >= MOST {
            let message = format!(
                "{seen} queries run in the background or are kept, the limit is {MOST}; ask again later"
            );
            return Err(Status::new(Code::Exhausted, message).after(BUSY));
        }
        Ok(jobs)
    }

    fn end(&self, ticket: Ticket, answer: Result<T, Status>) {
        let now = self.clock.monotonic();
        let mut jobs = self.jobs();
        // It may have been forgotten meanwhile.
        let Some(job) = jobs.by_ticket.get_mut(&ticket) else { return };
        job.since = now;
        let answer = answer.and_then(|answer| fits(job.reader.held(), self.bounds.bytes).map(|()| answer));
        job.state = match answer {
            Ok(answer) => State::Done(Arc::new(answer)),
            Err(status) => {
                job.reader.keep(0);
                State::Failed(status)
            }
        };
        let done = jobs.by_ticket.iter().filter(|(_, job)| !job.is_running());
        let shares = done.map(|(key, job)| Share {
            key: *key,
            tenants: job.reader.tenants(),
            bytes: job.reader.held(),
            since: job.since,
        });
        let gone = shares::to_go(shares.collect(), ticket, self.bounds.bytes);
        gone.iter().for_each(|gone| drop(jobs.by_ticket.remove(gone)));
    }
}

/// Refuses to keep an answer that would take more than one tenant may have.
fn fits(bytes: usize, all: usize) -> Result<(), Status> {
    let most = shares::of_one(all);
    if bytes <= most {
        return Ok(());
    }
    let size = |bytes: usize| ByteSize::bytes(bytes as u64);
    let message = format!(
        "the answer has {}, and half of {} (querier.background_answers, and at most half of querier.answers) may be kept for a tenant; ask for fewer nodes, or wait for the answer",
        size(bytes),
        size(all)
    );
    Err(Status::new(Code::Exhausted, message))
}

impl<T> Jobs<T> {
    /// Those that read a tenant.
    fn of<'j>(&'j self, tenant: &'j TenantId) -> impl Iterator<Item = (&'j Ticket, &'j Job<T>)> {
        self.by_ticket.iter().filter(move |(_, job)| job.reader.tenants().contains(tenant))
    }
}

impl<T> Job<T> {
    fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }
}

/// What is said of a query that is not there.
pub(crate) fn unknown(name: &str) -> Status {
    let minutes = KEEP.as_secs() / 60;
    let message = format!(
        "no query {name:?} runs here: it ended more than {minutes} minutes ago, its answer made room for others, or its node was started again; begin it again"
    );
    Status::new(Code::NotFound, message)
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;
    use athanor_chassis::clock::ManualClock;
    use athanor_chassis::room::{Bound, Room};
    use tokio::sync::oneshot;

    use super::*;

    type Ended = oneshot::Sender<Result<u32, Status>>;

    fn begin(background: &Arc<Background<u32>>, tenants: &str) -> Result<(Ticket, Ended), Status> {
        let (end, ended) = oneshot::channel();
        let reader = Reader::parse(tenants).unwrap();
        let ticket = background.begin(reader, |reader| async move {
            reader.miss(vec!["something".to_owned()]);
            ended.await.unwrap()
        })?;
        Ok((ticket, end))
    }

    /// Of each tenant so many run at once.
    fn background(tasks: usize, most: usize) -> (Arc<Background<u32>>, ManualClock) {
        let (clock, hand) = Clock::manual(Timestamp::EPOCH);
        let (tasks, bounds) = (Tasks::new(clock.clone(), tasks), Bounds { most, bytes: 1 << 20 });
        (Arc::new(Background::new(7, tasks, Random::seeded(1), clock, bounds)), hand)
    }

    /// Lets tasks go on until all but the one that looks after them have ended.
    async fn idle(background: &Background<u32>) {
        while background.tasks.running() > 1 {
            tokio::task::yield_now().await;
        }
    }

    async fn settled(
        background: &Background<u32>,
        reader: &Reader,
        ticket: Ticket,
    ) -> Result<State<u32>, Status> {
        for _ in 0..100 {
            match background.look(reader, ticket)?.0 {
                State::Running => tokio::task::yield_now().await,
                state => return Ok(state),
            }
        }
        Ok(State::Running)
    }

    #[tokio::test]
    async fn queries_are_begun_asked_for_and_forgotten() {
        let (background, hand) = background(100, 2);
        let (acme, other) = (Reader::of("acme".parse().unwrap()), Reader::of("other".parse().unwrap()));
        let (first, end_first) = begin(&background, "acme").unwrap();
        let (second, end_second) = begin(&background, "acme").unwrap();
        let refused = begin(&background, "acme").unwrap_err();
        assert_eq!(refused.code, Code::Exhausted);
        assert!(refused.to_string().contains("the limit is 2 (querier.background_queries)"), "{refused}");
        assert!(begin(&background, "other").is_ok(), "another tenant has its own");
        assert!(matches!(background.look(&acme, first), Ok((State::Running, _))));
        assert_eq!(background.look(&other, first).err().unwrap().code, Code::NotFound);
        let never = Ticket::draw(7, &Random::seeded(9));
        assert_eq!(background.look(&acme, never).err().unwrap().code, Code::NotFound);

        end_first.send(Ok(7)).unwrap();
        end_second.send(Err(Status::new(Code::Invalid, "no"))).unwrap();
        let Ok(State::Done(answer)) = settled(&background, &acme, first).await else { panic!("no answer") };
        let lacks = background.look(&acme, first).unwrap().1.missing();
        assert_eq!((*answer, lacks.as_deref()), (7, Some("something")));
        let Ok(State::Failed(status)) = settled(&background, &acme, second).await else {
            panic!("no failure")
        };
        assert_eq!(status.code, Code::Invalid);
        hand.advance(KEEP - Duration::from_secs(1));
        assert!(background.look(&acme, first).is_ok());
        hand.advance(Duration::from_secs(1));
        assert_eq!(background.look(&acme, first).err().unwrap().code, Code::NotFound);
    }

    #[tokio::test]
    async fn of_each_tenant_only_the_last_answers_are_kept() {
        let (background, hand) = background(100, 1);
        let acme = Reader::of("acme".parse().unwrap());
        let mut names = Vec::new();
        for number in 0..MOST_KEPT as u32 + 2 {
            let (name, end) = begin(&background, "acme").unwrap();
            end.send(Ok(number)).unwrap();
            assert!(matches!(settled(&background, &acme, name).await, Ok(State::Done(_))));
            names.push(name);
            hand.advance(Duration::from_secs(1));
        }
        let known: Vec<bool> = names.iter().map(|name| background.look(&acme, *name).is_ok()).collect();
        assert_eq!((&known[..2], &known[2..]), (&[false; 2][..], &[true; MOST_KEPT][..]));
    }

    #[tokio::test]
    async fn a_query_that_has_ended_is_no_task_and_its_answer_goes_though_nobody_asks() {
        let (background, hand) = background(2, 1);
        for _ in 0..3 {
            for number in 0..MOST_KEPT as u32 + 2 {
                let (_, end) = begin(&background, "acme").unwrap();
                end.send(Ok(number)).unwrap();
                idle(&background).await;
            }
            hand.advance(KEEP);
            while background.tasks.running() > 0 {
                tokio::task::yield_now().await;
            }
            assert!(background.jobs().by_ticket.is_empty());
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
        let of_both = Reader::parse("a|e").unwrap();
        for number in 0..MOST_KEPT as u32 {
            let (_, end) = begin(&background, "e").unwrap();
            end.send(Ok(number)).unwrap();
            idle(&background).await;
        }
        drop(background.make_place(of_both.tenants()).unwrap());
        let kept = |tenant: &str| background.jobs().of(&tenant.parse().unwrap()).count();
        assert_eq!((kept("e"), kept("a")), (MOST_KEPT - 1, 2));
    }

    #[tokio::test]
    async fn answers_are_kept_within_their_bytes_and_one_tenant_has_half_of_them() {
        let (background, hand) = background(100, 5);
        let bound = |setting| Bound { limit: ByteSize::mib(64), setting };
        let room = Room::new(bound("each"), bound("all"));
        let keep = async |tenants: &str, kibibytes: usize| {
            let (reader, room) = (Reader::parse(tenants).unwrap(), Arc::clone(&room));
            let query = |reader: Reader| async move {
                reader.hold(room.take(kibibytes << 10)?);
                Ok(0)
            };
            let ticket = background.begin(reader, query).unwrap();
            idle(&background).await;
            hand.advance(Duration::from_secs(1));
            ticket
        };
        let is_kept = |tenants: &str, ticket| {
            matches!(background.look(&Reader::parse(tenants).unwrap(), ticket), Ok((State::Done(_), _)))
        };
        let of_a = [keep("a", 300).await, keep("a", 200).await];
        assert!(of_a.iter().all(|ticket| is_kept("a", *ticket)));
        let third = keep("a", 100).await;
        assert_eq!((is_kept("a", of_a[0]), is_kept("a", of_a[1]), is_kept("a", third)), (false, true, true));
        let large = keep("b", 513).await;
        let Ok((State::Failed(why), reader)) = background.look(&Reader::parse("b").unwrap(), large) else {
            panic!("it is too large")
        };
        assert!(why.message.contains("the answer has 513KiB, and half of 1MiB"), "{why}");
        assert_eq!(reader.held(), 0);
        let (b, c) = (keep("b", 512).await, keep("c", 512).await);
        // Of whoever has most, the oldest; then of the next one.
        let kept = [is_kept("a", of_a[1]), is_kept("a", third), is_kept("b", b), is_kept("c", c)];
        assert_eq!(kept, [true, true, false, true]);
        assert_eq!(room.stats().taken, (200 + 100 + 512) << 10);
        let stats = BackgroundStats { running: 0, kept: 4, bytes: (200 + 100 + 512) << 10, limit: 1 << 20 };
        assert_eq!(background.stats(), stats, "what failed is kept as well");
    }
}
