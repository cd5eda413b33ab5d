//! Queries in the background: begun by one call, and asked for by later ones.
//!
//! They are kept by the node that began them, so whoever asks for one must come to the same node. How many run and how many
//! answers are kept is bounded for each tenant, and so is how long; answers take room for as long as they are kept.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use athanor_chassis::{Clock, Code, Random, Status, Tasks, TenantId};
use futures::future::{Either, select};

use crate::Reader;
use crate::check::uuid;

/// How long an answer is kept, and the longest that a query may run: a plan is not older (E18).
const KEEP: Duration = Duration::from_secs(15 * 60);
/// Answers of one tenant that are kept at once: the next one takes the place of the oldest.
const MOST_KEPT: usize = 8;
/// Queries of all tenants, running or kept.
const MOST: usize = 1_024;
/// When to try again where too many run.
const BUSY: Duration = Duration::from_secs(5);

/// Queries that run, and answers that are kept.
pub(crate) struct Background<T> {
    tasks: Tasks,
    random: Random,
    clock: Clock,
    /// How many of a tenant may run at once.
    most: usize,
    jobs: Mutex<BTreeMap<String, Job<T>>>,
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
    /// Of each tenant so many may run at once.
    pub(crate) fn new(tasks: Tasks, random: Random, clock: Clock, most: usize) -> Self {
        Background { tasks, random, clock, most, jobs: Mutex::default() }
    }

    /// Begins a query for a reader, who asks for it by the name that is given back.
    pub(crate) fn begin<F>(
        self: &Arc<Self>,
        reader: Reader,
        query: impl FnOnce(Reader) -> F,
    ) -> Result<String, Status>
    where
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let name = uuid(self.random.id128());
        let job = Job { reader: reader.clone(), since: self.clock.monotonic(), state: State::Running };
        self.make_place(reader.tenants())?.insert(name.clone(), job);
        let (query, shared, begun) = (query(reader), Arc::clone(self), name.clone());
        let task = self.tasks.spawn("query in the background", async move {
            let (stop, query) = (shared.tasks.token(), pin!(query));
            let ended = match select(query, pin!(stop.cancelled())).await {
                Either::Left((answer, _)) => answer,
                Either::Right(_) => return,
            };
            shared.end(&begun, ended.map_or_else(State::Failed, |answer| State::Done(Arc::new(answer))));
            // It takes room, also if nobody asks any more.
            select(pin!(shared.clock.sleep(KEEP)), pin!(stop.cancelled())).await;
            shared.jobs().remove(&begun);
        });
        if let Err(error) = task {
            self.jobs().remove(&name);
            return Err(Status::of(&error));
        }
        Ok(name)
    }

    /// How far a query is, and what its answer lacks. One of other tenants is as one that never was.
    pub(crate) fn look(&self, reader: &Reader, name: &str) -> Result<State<T>, Status> {
        let mut jobs = self.jobs();
        self.forget_old(&mut jobs);
        let job = jobs.get(name).filter(|job| job.reader.tenants() == reader.tenants());
        let Some(job) = job else { return Err(unknown(name)) };
        reader.miss(job.reader.missing().into_iter().collect());
        Ok(job.state.clone())
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<String, Job<T>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_old(&self, jobs: &mut BTreeMap<String, Job<T>>) {
        let now = self.clock.monotonic();
        jobs.retain(|_, job| now.saturating_sub(job.since) < KEEP);
    }

    /// Makes place for one more of these tenants.
    fn make_place(&self, tenants: &[TenantId]) -> Result<MutexGuard<'_, BTreeMap<String, Job<T>>>, Status> {
        let mut jobs = self.jobs();
        self.forget_old(&mut jobs);
        let mine = |job: &&Job<T>| job.reader.tenants() == tenants;
        let is_running = |job: &Job<T>| matches!(job.state, State::Running);
        let running = jobs.values().filter(mine).filter(|job| is_running(job)).count();
        if running >= self.most {
            let most = self.most;
            let message = format!(
                "{running} queries run in the background, the limit is {most} (querier.background_queries); wait for one of them to end"
            );
            return Err(Status::new(Code::Exhausted, message).after(BUSY));
        }
        let kept = jobs.iter().filter(|(_, job)| mine(job) && !is_running(job));
        let mut kept: Vec<(Duration, String)> = kept.map(|(name, job)| (job.since, name.clone())).collect();
        if kept.len() >= MOST_KEPT {
            kept.sort_unstable();
            kept.iter().take(kept.len() + 1 - MOST_KEPT).for_each(|(_, name)| drop(jobs.remove(name)));
        }
        if jobs.len() >= MOST {
            let message = format!(
                "{} queries run in the background or are kept, the limit is {MOST}; ask again later",
                jobs.len()
            );
            return Err(Status::new(Code::Exhausted, message).after(BUSY));
        }
        Ok(jobs)
    }

    fn end(&self, name: &str, state: State<T>) {
        let now = self.clock.monotonic();
        // It may have been forgotten meanwhile.
        if let Some(job) = self.jobs().get_mut(name) {
            (job.state, job.since) = (state, now);
        }
    }
}

/// What is said of a query that is not there.
pub(crate) fn unknown(name: &str) -> Status {
    let minutes = KEEP.as_secs() / 60;
    let message = format!(
        "no query {name:?} runs here; it was another node's, or ended more than {minutes} minutes ago: begin it again"
    );
    Status::new(Code::NotFound, message)
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;
    use tokio::sync::oneshot;

    use super::*;

    type Ended = oneshot::Sender<Result<u32, Status>>;

    fn begin(background: &Arc<Background<u32>>, tenant: &str) -> Result<(String, Ended), Status> {
        let (end, ended) = oneshot::channel();
        let reader = Reader::of(tenant.parse().unwrap());
        let name = background.begin(reader, |reader| async move {
            reader.miss(vec!["something".to_owned()]);
            ended.await.unwrap()
        })?;
        Ok((name, end))
    }

    async fn settled(
        background: &Background<u32>,
        reader: &Reader,
        name: &str,
    ) -> Result<State<u32>, Status> {
        for _ in 0..100 {
            match background.look(reader, name)? {
                State::Running => tokio::task::yield_now().await,
                state => return Ok(state),
            }
        }
        Ok(State::Running)
    }

    #[tokio::test]
    async fn queries_are_begun_asked_for_and_forgotten() {
        let (clock, hand) = Clock::manual(Timestamp::EPOCH);
        let tasks = Tasks::new(clock.clone(), 100);
        let background = Arc::new(Background::new(tasks, Random::seeded(1), clock, 2));
        let (acme, other) = (Reader::of("acme".parse().unwrap()), Reader::of("other".parse().unwrap()));
        let (first, end_first) = begin(&background, "acme").unwrap();
        let (second, end_second) = begin(&background, "acme").unwrap();
        let refused = begin(&background, "acme").unwrap_err();
        assert_eq!(refused.code, Code::Exhausted);
        assert!(refused.to_string().contains("the limit is 2 (querier.background_queries)"), "{refused}");
        assert!(begin(&background, "other").is_ok(), "another tenant has its own");
        assert!(matches!(background.look(&acme, &first), Ok(State::Running)));
        assert_eq!(background.look(&other, &first).err().unwrap().code, Code::NotFound);
        assert_eq!(background.look(&acme, "never").err().unwrap().code, Code::NotFound);

        end_first.send(Ok(7)).unwrap();
        end_second.send(Err(Status::new(Code::Invalid, "no"))).unwrap();
        let Ok(State::Done(answer)) = settled(&background, &acme, &first).await else { panic!("no answer") };
        assert_eq!((*answer, acme.missing().unwrap().as_str()), (7, "something"));
        let Ok(State::Failed(status)) = settled(&background, &acme, &second).await else {
            panic!("no failure")
        };
        assert_eq!(status.code, Code::Invalid);
        hand.advance(KEEP - Duration::from_secs(1));
        assert!(background.look(&acme, &first).is_ok());
        hand.advance(Duration::from_secs(1));
        assert_eq!(background.look(&acme, &first).err().unwrap().code, Code::NotFound);
    }

    #[tokio::test]
    async fn of_each_tenant_only_the_last_answers_are_kept() {
        let (clock, hand) = Clock::manual(Timestamp::EPOCH);
        let tasks = Tasks::new(clock.clone(), 100);
        let background = Arc::new(Background::new(tasks, Random::seeded(1), clock, 1));
        let acme = Reader::of("acme".parse().unwrap());
        let mut names = Vec::new();
        for number in 0..MOST_KEPT as u32 + 2 {
            let (name, end) = begin(&background, "acme").unwrap();
            end.send(Ok(number)).unwrap();
            assert!(matches!(settled(&background, &acme, &name).await, Ok(State::Done(_))));
            names.push(name);
            hand.advance(Duration::from_secs(1));
        }
        let known: Vec<bool> = names.iter().map(|name| background.look(&acme, name).is_ok()).collect();
        assert_eq!((&known[..2], &known[2..]), (&[false; 2][..], &[true; MOST_KEPT][..]));
    }
}
