//! The querier: answers what dashboards and command lines ask.
//!
//! ```text
//!  wire request ─► check ─► Ask ─► Sources::plan ─► fetch ─► run on each source, on compute threads ─► merge
//!                              ▲        │                                                            ▲ │
//!                              └ replan ┴► Remote::ask, all peers at once ─► pieces ─► unpack ───────┘ │
//!                                                                                                      │
//!  wire answer  ◄─ flame graph, tree, DOT, pprof, points, lists ◄─ cut to max_nodes, once ◄────────────┘
//! ```
//!
//! A request is refused before anything is read, or it is answered exactly: partial answers are merged by id and
//! name, and only the whole is cut down to what was asked for. Several tenants are read as one by asking the
//! sources of each. Answers take room until they are sent, and there is only so much. Only so many questions are answered
//! at once; tenants that have read less go first. Equal requests at once are answered once. What one querier keeps for a
//! client, others ask it for.

#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use athanor_chassis::clock::Elapsed;
use athanor_chassis::deaths::Deaths;
use athanor_chassis::room::{Room, RoomStats};
use athanor_chassis::turns::{Turn, TurnStats, Turns, Words};
use athanor_chassis::{Activity, Clock, Code, Compute, Limits, Overrides, Status, TenantId};
use athanor_profile::Source;
use athanor_profile::hash::Hash;
use athanor_query::{Ask, Partial, TimeRange};

mod adhoc;
mod again;
mod background;
mod check;
mod companion;
mod config;
mod diagnostics;
mod elsewhere;
mod estimate;
mod explore;
mod gather;
mod heatmap;
mod inbox;
mod left_out;
mod limits;
mod lists;
mod merge;
mod points;
mod quarantine;
mod reader;
mod render;
mod replan;
mod shares;
mod together;
mod twice;

pub use adhoc::{AdHoc, Shelf, Upload};
pub use again::AgainStats;
pub use background::{Answered, BackgroundStats, Looked, Progress};
pub use companion::Companion;
pub use config::{Config, ConfigError};
pub use diagnostics::{Part, PartOf, Summary};
pub use elsewhere::{Elsewhere, Errand, Place, Ticket};
pub use inbox::{Inbox, Remote};
pub use left_out::{LeftOutStats, Unread};
pub use quarantine::QuarantineStats;
pub use reader::{MAX_TENANTS, Reader, TenantsError};
pub use render::{Rendered, parse_parameters, parse_time};
pub use replan::Asked;
pub use twice::{Doubts, InMemory};

use again::Answers;
use elsewhere::Standing;
use gather::mixed_up;
use quarantine::{Quarantine, Question};
use twice::Twice;

/// What there is to read. Where a profile may be in two of the sources, both tell of it.
#[derive(Default)]
pub struct Plan {
    /// Those in memory.
    pub sources: Vec<InMemory>,
    /// Those that are read when it is their turn.
    pub stored: Vec<Box<dyn Stored>>,
    /// Peers that answer for sources of theirs.
    pub remote: Vec<Arc<dyn Remote>>,
    /// What should be there and is not, in words: the answer is partial.
    pub missing: Vec<String>,
    /// About how many bytes of the tenant blocks of that time hold, and heads that are here.
    pub bytes: u64,
    /// What has moved since the listing that this plan is of, in words: which shard, and where its rows went. Another
    /// plan is made, unless there were too many.
    pub moved: Vec<String>,
    /// Names all blocks that an answer to the question is made of, and whatever else decides what they answer; none where
    /// anything in memory here has part in it, or something is missing. Peers tell of what they have in memory.
    pub made_of: Option<Hash>,
    /// The last moment of which one of them holds profiles without telling of them: peers may have some of that time, too.
    pub untold: Option<i64>,
    /// How many blocks it names, here and elsewhere: for who asks why a query was slow.
    pub blocks: usize,
    /// How many shards others lead, likewise.
    pub shards: usize,
}

impl Plan {
    /// Of sources in memory whose profiles lie nowhere else.
    pub fn of(sources: impl IntoIterator<Item = Arc<dyn Source>>) -> Self {
        Plan { sources: sources.into_iter().map(InMemory::from).collect(), ..Plan::default() }
    }
}

/// A source that is read when it is its turn, or has answered before.
#[async_trait]
pub trait Stored: Send {
    /// What it has of what the plan was made for, and how that was found. A block that the bucket has no more is
    /// [`Asked::Gone`] [INV-18]. None where it has nothing but what it has put into the inbox: the answer of another
    /// one who can read it, or that nobody can.
    async fn answer(self: Box<Self>, inbox: &mut Inbox) -> Result<Option<(Partial, Part)>, Asked>;
}

/// Of which time profiles there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The first and the last, Unix nanoseconds; none if there is no profile.
    pub span: Option<(i64, i64)>,
    /// What should be there and is not, in words.
    pub missing: Vec<String>,
    /// What has moved since the listing was made, as in [`Plan::moved`].
    pub moved: Vec<String>,
}

/// Where a tenant's profiles lie at the moment.
#[async_trait]
pub trait Sources: Send + Sync {
    /// Whatever may hold profiles that are asked about.
    async fn plan(&self, tenant: &TenantId, ask: &Ask, doubts: &Doubts) -> Result<Plan, Status>;

    /// What [`Plan::made_of`] would say of a time, once all peers have said that nothing in memory has part in the answer.
    async fn made_of(&self, _tenant: &TenantId, _time: TimeRange) -> Result<Option<Hash>, Status> {
        Ok(None)
    }

    /// Of which time there are profiles. No profile is read for that.
    async fn times(&self, tenant: &TenantId) -> Result<Times, Status>;
}

/// What the querier needs.
#[derive(Clone)]
pub struct Deps {
    /// Where profiles lie.
    pub sources: Arc<dyn Sources>,
    /// What each tenant may ask for.
    pub overrides: Overrides,
    /// What time it is.
    pub clock: Clock,
    /// Threads for reading and merging.
    pub compute: Compute,
}

/// Answers queries. Cheap to clone.
#[derive(Clone)]
pub struct Querier {
    deps: Deps,
    config: Config,
    room: Arc<Room>,
    answers: Arc<Answers>,
    turns: Arc<Turns>,
    quarantine: Arc<Quarantine>,
    twice: Arc<Twice>,
    left_out: Arc<left_out::Counts>,
    /// None where nothing is kept for clients.
    standing: Option<Arc<Standing>>,
}

/// How a querier fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuerierStats {
    /// Whose turn it is.
    pub turns: TurnStats,
    /// What crashed.
    pub quarantine: QuarantineStats,
    /// What answers went on without.
    pub left_out: LeftOutStats,
    /// The room for answers.
    pub room: RoomStats,
    /// Answers that were kept.
    pub again: AgainStats,
    /// What nobody waits for.
    pub background: BackgroundStats,
    /// Questions that were asked again since profiles lie in two places.
    pub twice: u64,
}

impl Querier {
    /// A querier over these sources.
    pub fn new(config: Config, deps: Deps) -> Self {
        let words = Words {
            questions: "queries",
            setting: "querier.concurrent_queries",
            of_tenant: "limits.max_concurrent_queries",
        };
        let turns = Turns::new(config.concurrent_queries, words);
        let (room, quarantine, twice) = (config.room(), Arc::default(), Arc::default());
        let answers = Arc::new(Answers::new(config.kept_answers));
        let left_out = Arc::default();
        Querier { deps, config, room, answers, turns, quarantine, twice, left_out, standing: None }
    }

    /// Gives it a place: then queries run in the background there, and it is recorded how queries are answered, as far as
    /// the settings allow that.
    #[must_use]
    pub fn placed(mut self, place: Place) -> Self {
        self.standing = Some(Arc::new(Standing::new(place, &self.config, &self.deps.clock)));
        self
    }

    /// Has it know what earlier processes died over, and write down what is under way for those that come after.
    #[must_use]
    pub fn remembering(mut self, deaths: Deaths) -> Self {
        self.quarantine = Arc::new(Quarantine::of(deaths));
        self
    }

    /// Returns the budget of all answers, which responses hold until they are sent.
    pub fn response_room(&self) -> &Arc<Room> {
        &self.room
    }

    /// The process ends in order: no question that is still under way is to blame.
    pub fn close(&self) {
        self.quarantine.close();
    }

    /// How it fares.
    pub fn stats(&self) -> QuerierStats {
        let quarantine = self.quarantine.stats(self.deps.clock.monotonic());
        let background = self.standing.as_ref().map(|standing| standing.background.stats());
        QuerierStats {
            turns: self.turns.stats(),
            quarantine,
            left_out: self.left_out.stats(),
            room: self.room.stats(),
            again: self.answers.stats(),
            background: background.unwrap_or_default(),
            twice: self.twice.again(),
        }
    }

    /// Forgets which queries crashed, so that they are answered again. How many were refused by then.
    pub fn lift_quarantine(&self) -> usize {
        self.quarantine.lift(self.deps.clock.monotonic())
    }

    /// Asks all sources of all tenants, and merges their answers as they come.
    async fn ask(&self, reader: &Reader, mut ask: Ask) -> Result<Partial, Status> {
        let limits = self.limits(reader);
        let (time, lead) = (ask.selection.time, limits::lead(&ask));
        let (time, left_out) = limits::within(&limits, self.deps.clock.wall(), time, lead)?;
        ask.selection.time = time;
        reader.miss(left_out.into_iter().collect());
        let asked = [Arc::new(ask)];
        self.admit(reader, &asked)?;
        let [ask] = &asked;
        reader.note(Arc::clone(ask));
        let scribe = reader.scribe(ask);
        let begun = scribe.now();
        let question = || Question::of(reader.tenants(), &asked);
        let clock = &self.deps.clock;
        let left = reader.until(clock).saturating_sub(clock.monotonic());
        let alone = clock.within(left, self.quarantine.alone(reader.asking(), question)).await;
        alone.map_err(|_| {
            let message = "query waited for others that may have killed the process before; ask again later";
            Status::new(Code::Deadline, message)
        })??;
        let answer = |turn| async move {
            scribe.waited(begun);
            self.quarantine.begin(reader.asking(), question).await?;
            self.gather(reader, Arc::clone(ask), &turn, scribe).await
        };
        let answer = self.in_turn(reader, &limits, answer).await;
        answer.inspect_err(|status| self.mind(reader, &asked, status))
    }

    /// Does something when it is the reader's turn, as long as the reader waits.
    async fn in_turn<R, F: Future<Output = Result<R, Status>>>(
        &self,
        reader: &Reader,
        limits: &Limits,
        work: impl FnOnce(Turn) -> F,
    ) -> Result<R, Status> {
        let clock = &self.deps.clock;
        let left = || reader.until(clock).saturating_sub(clock.monotonic());
        let all = left();
        let late = |way_out: &str| Status::new(Code::Deadline, format!("query {}{way_out}", Elapsed(all)));
        let most = limits.max_concurrent_queries as usize;
        let turn = clock.within(all, self.turns.take(reader.tenants(), most)).await;
        let turn = turn.map_err(|_| {
            late(
                ": it waited for its turn (querier.concurrent_queries, limits.max_concurrent_queries); ask again later",
            )
        })??;
        // Answers to another tenant may fill more than its share of the memory, if this one is new.
        let room = self.room_for(reader);
        let fair = clock.within(left(), room.until_fair()).await;
        fair.map_err(|_| {
            late(": it waited for memory that another tenant holds (querier.answers); ask again later")
        })?;
        reader.plans();
        let done = clock.within(left(), work(turn)).await;
        done.map_err(|_| late("; select fewer series or a shorter time"))?
    }

    /// Refuses what crashed too often.
    fn admit(&self, reader: &Reader, asked: &[Arc<Ask>]) -> Result<(), Status> {
        let now = self.deps.clock.monotonic();
        self.quarantine.admit(now, || Question::of(reader.tenants(), asked))
    }

    /// Remembers what was asked, where a computation panicked over it.
    fn mind(&self, reader: &Reader, asked: &[Arc<Ask>], status: &Status) {
        if status.panicked
            && let Ok(question) = Question::of(reader.tenants(), asked)
        {
            self.quarantine.crashed(question, self.deps.clock.monotonic());
        }
    }

    /// Makes something of what the reader was answered, on a thread for that. Where it panics, all that was asked
    /// crashed, together.
    async fn shape<R, F>(&self, reader: &Reader, job: F) -> Result<R, Status>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let asked = reader.asked();
        // A single question was admitted when it was asked.
        if asked.len() > 1 {
            self.admit(reader, &asked)?;
            let question = || Question::of(reader.tenants(), &asked);
            self.quarantine.begin_together(reader.asking(), question).await?;
        }
        self.compute(reader, job).await.inspect_err(|status| self.mind(reader, &asked, status))
    }

    /// Takes room for what is made of an answer to be shown, until the reader has it.
    fn make_room(&self, reader: &Reader, bytes: usize) -> Result<(), Status> {
        reader.hold(self.room_for(reader).take(bytes)?);
        Ok(())
    }

    /// Returns the room for answers to a reader.
    fn room_for(&self, reader: &Reader) -> Arc<Room> {
        self.room.for_tenants(reader.tenants())
    }

    /// Returns the threads for queries of a reader. Of several tenants the first one pays.
    fn compute_for(&self, reader: &Reader) -> Compute {
        let first = reader.tenants().first();
        first.map_or_else(|| self.deps.compute.clone(), |tenant| self.deps.compute.for_tenant(tenant))
    }

    /// Reads a part of a request that would hold up an I/O thread. No tenant pays.
    async fn parse<R, F>(&self, job: F) -> Result<R, Status>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let done = self.deps.compute.run_as(Activity::Query, job).await;
        done.map_err(|error| Status::of(&error))
    }

    /// Runs a part of a reader's query that would hold up an I/O thread.
    async fn compute<R, F>(&self, reader: &Reader, job: F) -> Result<R, Status>
    where
        R: Send + 'static,
        F: FnOnce() -> R + Send + 'static,
    {
        let done = self.compute_for(reader).run_as(Activity::Query, job).await;
        done.map_err(|error| Status::of(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use athanor_chassis::Timestamp;
    use athanor_chassis::deaths::Left;
    use athanor_chassis::disk::MemoryDisk;
    use athanor_query::What;

    use super::*;

    struct Nothing;

    #[async_trait]
    impl Sources for Nothing {
        async fn plan(&self, _: &TenantId, _: &Ask, _: &Doubts) -> Result<Plan, Status> {
            Ok(Plan::default())
        }
        async fn times(&self, _: &TenantId) -> Result<Times, Status> {
            Ok(Times::default())
        }
    }

    fn querier() -> Querier {
        let (clock, _hand) = Clock::manual(Timestamp::EPOCH);
        let overrides = Overrides::new(Limits::default());
        let deps = Deps { sources: Arc::new(Nothing), overrides, clock, compute: Compute::inline() };
        Querier::new(Config::default(), deps)
    }

    /// Asks all of these, then makes something of the answers that panics, or not.
    async fn shaped(querier: &Querier, all: &[What], panics: bool) -> Result<(), String> {
        let reader = Reader::of(TenantId::anonymous());
        for what in all {
            let asked = querier.ask(&reader, Ask { what: what.clone(), ..Ask::default() }).await;
            asked.map_err(|status| status.message)?;
        }
        querier
            .shape(&reader, move || assert!(!panics, "no such node"))
            .await
            .map_err(|status| status.message)
    }

    #[tokio::test]
    async fn what_crashes_when_it_is_shown_crashed() {
        let querier = querier();
        let (names, types) = (What::LabelNames, What::ProfileTypes);
        for _ in 0..2 {
            let crashed = shaped(&querier, std::slice::from_ref(&names), true).await.unwrap_err();
            assert!(crashed.contains("no such node"), "{crashed}");
        }
        let refused = shaped(&querier, std::slice::from_ref(&names), false).await.unwrap_err();
        assert!(refused.contains("crashed 2 times"), "{refused}");
        assert_eq!(shaped(&querier, std::slice::from_ref(&types), false).await, Ok(()));
        let stats = querier.stats().quarantine;
        assert_eq!(stats, QuarantineStats { quarantined: 1, suspected: 0, crashes: 2, refused: 1 });
        assert_eq!(querier.lift_quarantine(), 1);
        assert_eq!(shaped(&querier, &[names], false).await, Ok(()));
    }

    #[tokio::test]
    async fn questions_that_crash_together_are_good_alone() {
        let querier = querier();
        let both = [What::LabelNames, What::ProfileTypes];
        for _ in 0..2 {
            shaped(&querier, &both, true).await.unwrap_err();
        }
        // In whichever order.
        let other_way = [What::ProfileTypes, What::LabelNames];
        assert!(shaped(&querier, &other_way, false).await.unwrap_err().contains("crashed 2 times"));
        for alone in both {
            assert_eq!(shaped(&querier, &[alone], false).await, Ok(()));
        }
    }

    /// The process dies while a question is under way: it does not come to be answered.
    async fn dies(querier: &Querier, what: &What) {
        let reader = Reader::of(TenantId::anonymous());
        let asked = querier.ask(&reader, Ask { what: what.clone(), ..Ask::default() }).await;
        asked.unwrap();
        std::mem::forget(reader);
    }

    #[tokio::test]
    async fn what_kills_the_process_twice_is_refused_and_who_runs_beside_is_not() {
        let disk = MemoryDisk::new();
        let begun = || {
            let deaths =
                Deaths::open(Left { disk: Arc::new(disk.clone()), has_aborted: true }, Clock::system())
                    .unwrap();
            querier().remembering(deaths)
        };
        let (killer, beside, other) = (What::LabelNames, What::ProfileTypes, What::Series(Vec::new()));
        let first = begun();
        dies(&first, &killer).await;
        dies(&first, &beside).await;
        let second = begun();
        assert_eq!(second.stats().quarantine.suspected, 2);
        // Each of the two is asked alone: no other suspect is under way when the process dies again.
        let reader = Reader::of(TenantId::anonymous());
        second.ask(&reader, Ask { what: killer.clone(), ..Ask::default() }).await.unwrap();
        let waits = shaped(&second, std::slice::from_ref(&beside), false);
        let (clock, moment) = (Clock::system(), Duration::from_millis(50));
        assert!(clock.within(moment, waits).await.is_err(), "it waits for the other one");
        assert_eq!(shaped(&second, std::slice::from_ref(&other), false).await, Ok(()), "nobody suspects it");
        std::mem::forget(reader);
        let third = begun();
        let refused = shaped(&third, std::slice::from_ref(&killer), false).await.unwrap_err();
        assert!(refused.contains("under way 2 times") && refused.contains("athanor lift"), "{refused}");
        let stats = third.stats().quarantine;
        assert_eq!(stats, QuarantineStats { quarantined: 1, suspected: 1, crashes: 0, refused: 1 });
        // What ends well is above suspicion.
        let reader = Reader::of(TenantId::anonymous());
        third.ask(&reader, Ask { what: beside, ..Ask::default() }).await.unwrap();
        reader.ended(None);
        assert_eq!(third.stats().quarantine.suspected, 0);
        assert_eq!(third.lift_quarantine(), 1);
        assert_eq!(shaped(&third, &[killer], false).await, Ok(()));
        third.close();
        assert_eq!(begun().stats().quarantine, QuarantineStats::default());
    }
}
