//! Answers of all sources become one: opened some at a time, run on compute threads, merged as they come. Peers are
//! asked meanwhile, all at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use athanor_chassis::turns::Turn;
use athanor_chassis::{Activity, Code, Compute, Status, Stop, TenantId};
use athanor_profile::hash::{self, Hash};
use athanor_query::{Ask, Held, Meeting, Partial};
use futures::future::{BoxFuture, try_join_all};
use futures::{StreamExt, TryStreamExt};

use crate::again::Made;
use crate::diagnostics::{Part, Scribe};
use crate::inbox::Inbox;
use crate::left_out::LeftOut;
use crate::replan::{Asked, Attempt};
use crate::twice::{Doubts, InMemory, Met, Once};
use crate::{Plan, Querier, Reader, Remote, Stored, limits};

/// Sources of one question that are open at once, at least: while some are fetched, others are read.
const OPEN: usize = 16;
/// Peers of one question that are asked at once: they work, and here is only waited.
const PEERS: usize = 64;

/// What is asked, and what has come so far.
pub(crate) struct Merging {
    pub(crate) ask: Arc<Ask>,
    /// Threads of the tenant that asks.
    pub(crate) compute: Compute,
    /// When nobody waits for the answer any more, on the clock that goes on.
    pub(crate) until: Duration,
    /// Where answers meet.
    pub(crate) meeting: Meeting,
    /// Writes down what becomes of it, where that is wanted.
    pub(crate) scribe: Scribe,
    /// What the answer lacks, in words.
    missing: Mutex<Vec<String>>,
    /// What it goes on without since that could not be read.
    pub(crate) left_out: LeftOut,
    /// What of it lies in blocks, of each tenant, as long as nothing else has part in it.
    made_of: Mutex<Option<Vec<Hash>>>,
    /// Of which time there are profiles that are in one place for sure, or not.
    pub(crate) met: Met,
}

/// Everything that is to be asked.
#[derive(Default)]
struct Parts {
    sources: Vec<InMemory>,
    stored: Vec<Box<dyn Stored>>,
    remote: Vec<(TenantId, Arc<dyn Remote>)>,
}

impl Querier {
    /// Asks all sources of all tenants, by new plans as long as those are overtaken. The reader holds the room that
    /// the answer takes.
    pub(crate) async fn gather(
        &self,
        reader: &Reader,
        ask: Arc<Ask>,
        turn: &Turn,
        scribe: Scribe,
    ) -> Result<Partial, Status> {
        let begun = scribe.now();
        let merging = self.by_plans(reader, &ask, turn, &scribe).await;
        scribe.gathered(begun);
        let (merging, held) = merging?;
        let made_of = merging.made_of.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (time, lead) = (merging.ask.selection.time, limits::lead(&merging.ask));
        reader.note_made(Made { time, lead, of: made_of.map(|of| hash::list(&of)) });
        reader.miss(std::mem::take(&mut *merging.missing.lock().unwrap_or_else(PoisonError::into_inner)));
        reader.miss(merging.left_out.told(held.as_ref().map(|held| &held.partial), &self.left_out)?);
        let Some(Held { partial, taken }) = held else {
            return Ok(Partial::none(&merging.ask.what));
        };
        // As much again is made of it to be shown.
        reader.hold(self.room_for(reader).take(taken.bytes())?);
        reader.hold(taken);
        Ok(partial)
    }

    async fn by_plans(
        &self,
        reader: &Reader,
        ask: &Arc<Ask>,
        turn: &Turn,
        scribe: &Scribe,
    ) -> Result<(Arc<Merging>, Option<Held>), Status> {
        let doubts = match ask.counts() {
            true => self.twice.doubts(reader.tenants(), self.deps.clock.wall()),
            false => Doubts::default(),
        };
        let mut attempt = Attempt::with(doubts);
        loop {
            match self.by_one_plan(reader, ask, (turn, scribe), &attempt).await {
                Ok(merging) => match self.once(reader, &merging, &mut attempt.doubts).await? {
                    Once::Counted(held) => return Ok((merging, held)),
                    Once::Again => {}
                },
                Err(asked) => attempt = attempt.next(asked)?,
            }
        }
    }

    async fn by_one_plan(
        &self,
        reader: &Reader,
        ask: &Arc<Ask>,
        (turn, scribe): (&Turn, &Scribe),
        attempt: &Attempt,
    ) -> Result<Arc<Merging>, Asked> {
        let until = reader.until(&self.deps.clock);
        let meeting = Meeting::new(ask.bounds, self.room_for(reader));
        let merging = Arc::new(Merging {
            ask: Arc::clone(ask),
            compute: self.compute_for(reader),
            until,
            meeting,
            scribe: scribe.clone(),
            missing: Mutex::default(),
            left_out: LeftOut::default(),
            made_of: Mutex::new(Some(Vec::new())),
            met: Met::default(),
        });
        let (mut parts, is_cheap) = (Parts::default(), ask.needs().is_index_only());
        let plans = reader.tenants().iter().map(async |tenant| {
            let begun = scribe.now();
            let plan = self.deps.sources.plan(tenant, ask, &attempt.doubts).await?;
            scribe.planned(tenant, &plan, begun);
            Ok::<_, Status>((tenant, plan))
        });
        for (tenant, plan) in try_join_all(plans).await? {
            let Plan { sources, stored, remote, missing, bytes, moved, made_of, untold, .. } = plan;
            // What reads no rows tells what there is to ask about, and what it would cost.
            let bytes = if is_cheap { 0 } else { bytes };
            if attempt.is_first() {
                self.check_bytes(reader, (tenant, ask), bytes, turn).await?;
            }
            turn.pay(tenant, bytes);
            merging.also_of(made_of);
            merging.met.untold(untold);
            parts.sources.extend(sources);
            parts.stored.extend(stored);
            parts.remote.extend(remote.into_iter().map(|remote| (tenant.clone(), remote)));
            merging.miss(missing);
            for why in moved {
                merging.miss([attempt.without(Asked::Replan(why))?]);
            }
        }
        self.ask_all(&merging, parts, attempt).await?;
        Ok(merging)
    }

    async fn ask_all(&self, merging: &Arc<Merging>, parts: Parts, attempt: &Attempt) -> Result<(), Asked> {
        let Parts { sources, stored, remote } = parts;
        let here = sources.into_iter().map(|source| Box::pin(self.run(merging, source)) as BoxFuture<'_, _>);
        let there = stored.into_iter().map(|stored| Box::pin(self.open(merging, stored)) as BoxFuture<'_, _>);
        let afar = remote
            .into_iter()
            .map(|(tenant, remote)| Box::pin(self.ask_afar(merging, tenant, remote)) as BoxFuture<'_, _>);
        let each = |asked: Result<(), Asked>| match asked {
            Ok(()) => Ok(()),
            Err(asked) => attempt.without(asked).map(|without| merging.miss([without])),
        };
        // One more job than there are threads: none waits for the next one to be handed in.
        let width = OPEN.max(self.deps.compute.width() + 1);
        let jobs: Vec<BoxFuture<'_, Result<(), Asked>>> = here.chain(there).collect();
        let peers: Vec<BoxFuture<'_, Result<(), Asked>>> = afar.collect();
        let jobs = futures::stream::iter(jobs).buffer_unordered(width).map(each).try_collect::<()>();
        let peers = futures::stream::iter(peers).buffer_unordered(PEERS).map(each).try_collect::<()>();
        futures::future::try_join(peers, jobs).await?;
        Ok(())
    }

    async fn open(&self, merging: &Arc<Merging>, stored: Box<dyn Stored>) -> Result<(), Asked> {
        let begun = merging.scribe.now();
        let mut inbox = Inbox::new(Arc::clone(merging));
        let Some((partial, part)) = stored.answer(&mut inbox).await? else { return Ok(inbox.check()?) };
        let of = Arc::clone(merging);
        let job = move || Ok(of.scribe.merging(|| of.meeting.add(partial, None))?);
        let done = merging.compute.run_as(Activity::Query, job).await.map_err(|error| Status::of(&error))?;
        merging.tell(begun, part, &done);
        done
    }

    /// Reads a source. What is computed ends when whoever waits for it leaves.
    async fn run(&self, merging: &Arc<Merging>, mut lying: InMemory) -> Result<(), Asked> {
        let (stop, _waiting) = Stop::when_left();
        if let Some(source) = lying.source.until_left(stop.flag()) {
            lying.source = source;
        }
        let (of, begun) = (Arc::clone(merging), merging.scribe.now());
        let job = move || of.answer(&lying);
        let done = merging.compute.run_as(Activity::Query, job).await.map_err(|error| Status::of(&error))?;
        merging.tell(begun, Part::default(), &done);
        done
    }

    async fn ask_afar(
        &self,
        merging: &Arc<Merging>,
        tenant: TenantId,
        remote: Arc<dyn Remote>,
    ) -> Result<(), Asked> {
        let mut inbox = Inbox::new(Arc::clone(merging));
        remote.ask(&tenant, &merging.ask, &mut inbox).await?;
        Ok(inbox.check()?)
    }
}

impl Merging {
    /// More of the answer lies in such blocks, or not in blocks alone.
    pub(crate) fn also_of(&self, blocks: Option<Hash>) {
        let mut made_of = self.made_of.lock().unwrap_or_else(PoisonError::into_inner);
        match (made_of.as_mut(), blocks) {
            (Some(all), Some(blocks)) => all.push(blocks),
            _ => *made_of = None,
        }
    }

    /// Says what the answer lacks.
    pub(crate) fn miss(&self, missing: impl IntoIterator<Item = String>) {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).extend(missing);
    }

    /// Says what a source of this node did, for who wants to know why a query was slow.
    fn tell(&self, begun: Duration, part: Part, done: &Result<(), Asked>) {
        let took = self.scribe.now().saturating_sub(begun);
        let failed = done.as_ref().err().map(ToString::to_string);
        self.scribe.part(Part { took, failed, ..part });
    }

    /// Adds the answer of one source.
    fn answer(&self, lying: &InMemory) -> Result<(), Asked> {
        let partial = lying.run(&self.ask)?;
        Ok(self.scribe.merging(|| self.meeting.add(partial, None))?)
    }
}

/// An answer to another question than the one asked: a mistake in this program.
pub(crate) fn mixed_up() -> Status {
    Status::new(Code::Internal, "the answer is to another question than the one asked")
}
