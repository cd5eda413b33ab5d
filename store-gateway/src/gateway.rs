//! Answers of many blocks as one: found some at a time, run on compute threads, merged as they come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use athanor_catalog::BlockId;
use athanor_chassis::room::{Room, RoomStats, Taken};
use athanor_chassis::turns::{Turn, TurnStats, Turns, Words};
use athanor_chassis::{Activity, Code, Status, TenantId};
use athanor_query::{Ask, Canonical, Found, Held, Hits, Meeting, Partial, Pieces, Place, TimeRange, Without};
use futures::FutureExt;
use futures::future::try_join;
use futures::stream::{self, StreamExt, TryStreamExt};

use crate::answers::{AnswerKey, AnswerStats, Answers};
use crate::blocks::Blocks;
use crate::config::Config;
use crate::flights::Flights;
use crate::reading::{Reading, lost, named};
use crate::shelf::ShelfStats;
use crate::stats::CacheStats;

/// Blocks of one question.
pub const MOST: usize = 256;

/// Once the bucket has not given a block, others of the question have so long: what is kept and what it gives without
/// trouble is there by then, and nobody waits through all its tries for each of many blocks.
const SHORT: Duration = Duration::from_secs(2);

/// A block that a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// Its name.
    pub block: BlockId,
    /// Whether the question is about all of the time of the tenant's part.
    pub whole: bool,
    /// Of which time it tells which profiles are meant, since they may lie elsewhere, too.
    pub tells: Option<TimeRange>,
    /// Those of its profiles that count elsewhere.
    pub without: Without,
}

/// What some blocks have of what is asked.
pub struct Answer {
    /// The answer, packed.
    pub pieces: Pieces,
    /// Which blocks are in it.
    pub met: Met,
    /// What of blocks was held in memory to find it, bytes.
    pub read: u64,
    /// Room that it takes until it is sent.
    pub taken: Option<Taken>,
}

/// What became of the blocks of a question: those that are neither gone nor unread are in its answer.
#[derive(Debug, Default)]
pub struct Met {
    /// Blocks that the bucket has no more: others took their place, or they are too old.
    pub gone: Vec<BlockId>,
    /// Those that could not be read here, and why: they are damaged, or the bucket did not give them.
    pub unread: Vec<(BlockId, Status)>,
    /// Where the answers of the others came from.
    pub hits: Hits,
}

/// What became of one.
enum One {
    Found(Found),
    Gone(BlockId),
    Unread(BlockId, Status),
}

/// A tenant's question to blocks.
pub struct Question {
    tenant: TenantId,
    ask: Arc<Ask>,
    /// The question to blocks of which it wants all time: most are such. None where answers are not kept.
    whole: Option<Arc<Canonical>>,
    /// Whether the bucket has not given one of its blocks.
    failed: Arc<AtomicBool>,
    /// What of blocks was held in memory for it so far, bytes.
    read: Arc<AtomicU64>,
}

/// Answers for blocks.
pub struct Gateway {
    reading: Arc<Reading>,
    turns: Arc<Turns>,
    open_blocks: usize,
    room: Arc<Room>,
}

/// How useful it is to keep things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayStats {
    /// Parts of blocks.
    pub parts: CacheStats,
    /// Answers of blocks.
    pub answers: AnswerStats,
    /// What is on disk.
    pub shelf: ShelfStats,
    /// Whose turn it is, of other nodes' questions.
    pub turns: TurnStats,
    /// The room for answers to other nodes.
    pub room: RoomStats,
}

impl BlockAt {
    /// One whose profiles lie nowhere else.
    pub fn alone(block: BlockId, whole: bool) -> Self {
        Self { block, whole, tells: None, without: Without::default() }
    }
}

impl Question {
    /// A question of this tenant.
    pub fn new(tenant: TenantId, ask: Ask) -> Self {
        // A question that is too long to be packed has answers all the same; they are not kept.
        let lasting = ask.is_lasting().then(|| ask.canonical(i64::MAX, i64::MIN).ok()).flatten();
        let (failed, read) = Default::default();
        Self { tenant, ask: Arc::new(ask), whole: lasting.map(Arc::new), failed, read }
    }

    fn reads(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Another one that is part of it.
    fn like(&self, ask: Ask) -> Self {
        let (failed, read) = (Arc::clone(&self.failed), Arc::clone(&self.read));
        Self { failed, read, ..Self::new(self.tenant.clone(), ask) }
    }
}

impl Gateway {
    /// Over the blocks of a bucket.
    pub fn new(blocks: Arc<Blocks>, config: &Config) -> Self {
        let reading = Reading { blocks, answers: Answers::new(config.answers), flights: Flights::new() };
        let words = Words {
            questions: "questions of other nodes",
            setting: "store_gateway.questions",
            of_tenant: "store_gateway.questions",
        };
        Self {
            reading: Arc::new(reading),
            turns: Turns::new(config.questions, words),
            open_blocks: config.open_blocks,
            room: config.room(),
        }
    }

    /// How useful it is to keep things.
    pub fn stats(&self) -> GatewayStats {
        let Reading { blocks, answers, .. } = &*self.reading;
        let shelf = blocks.shelf.as_ref().map(|shelf| shelf.stats()).unwrap_or_default();
        let (turns, room) = (self.turns.stats(), self.room.stats());
        GatewayStats { parts: blocks.parts.stats(), answers: answers.stats(), shelf, turns, room }
    }

    /// Whether there is a disk to look after: then somebody has to [`tend_disk`](Self::tend_disk), or nothing is kept there.
    pub fn has_disk(&self) -> bool {
        self.reading.blocks.shelf.is_some()
    }

    /// Writes what waits to be kept on disk, and gives back what others need of it.
    pub async fn tend_disk(&self) {
        let Blocks { shelf, compute, .. } = &*self.reading.blocks;
        if let Some(shelf) = shelf {
            shelf.tend(compute).await;
        }
    }

    /// Until something waits to be kept on disk: for ever where there is none.
    pub async fn disk_wanted(&self) {
        match &self.reading.blocks.shelf {
            Some(shelf) => shelf.wanted().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until another node's question may be answered: only so many are at once, and tenants of which less was read
    /// go first.
    pub async fn turn(&self, tenant: &TenantId) -> Result<Turn, Status> {
        let turn = self.turns.take(std::slice::from_ref(tenant), self.turns.stats().most).await?;
        turn.pay(tenant, 0);
        Ok(turn)
    }

    /// The answer of all of these blocks together.
    pub async fn answer(&self, tenant: &TenantId, ask: Ask, blocks: Vec<BlockAt>) -> Result<Answer, Status> {
        if blocks.len() > MOST {
            let message = format!("{} blocks are asked for at once, the limit is {MOST}", blocks.len());
            return Err(Status::new(Code::Invalid, message));
        }
        let question = Arc::new(Question::new(tenant.clone(), ask));
        let place =
            Arc::new(Meeting::new(question.ask.bounds, self.room.for_tenants(std::slice::from_ref(tenant))));
        let met = self.meet(&question, blocks, &place).await?;
        let read = question.read.load(Ordering::Relaxed);
        let pack = move || {
            let (partial, taken) = match place.take() {
                Some(Held { partial, taken }) => (partial, Some(taken)),
                None => (Partial::none(&question.ask.what), None),
            };
            let pieces = partial.pack().map_err(|error| Status::of(&error))?;
            Ok::<_, Status>((pieces, taken))
        };
        let packed = self.reading.blocks.compute.for_tenant(tenant).run_as(Activity::Query, pack).await;
        let (pieces, taken) = packed.map_err(|error| Status::of(&error))??;
        Ok(Answer { pieces, met, read, taken })
    }

    /// Has the answers of all of these blocks meet; says which of them are not among them, and where the others came from.
    pub async fn meet(
        &self,
        question: &Arc<Question>,
        blocks: Vec<BlockAt>,
        place: &Arc<Meeting>,
    ) -> Result<Met, Status> {
        let width = self.open_blocks.max(self.reading.blocks.compute.width() + 1);
        let each = blocks.into_iter().map(|at| self.add_one(question, at, place));
        let mut said = stream::iter(each).buffer_unordered(width);
        let mut met = Met::default();
        while let Some(one) = said.try_next().await? {
            match one {
                One::Found(found) => met.hits.count(found),
                One::Gone(block) => met.gone.push(block),
                One::Unread(block, why) => met.unread.push((block, why)),
            }
        }
        Ok(met)
    }

    /// Adds what one block has, and says where it was, or why it is not there.
    async fn add_one(
        &self,
        question: &Arc<Question>,
        at: BlockAt,
        place: &Arc<Meeting>,
    ) -> Result<One, Status> {
        let (partial, found) = match self.answer_of(question, &at).await {
            Ok(answered) => answered,
            Err(status) if status.code == Code::NotFound => return Ok(One::Gone(at.block)),
            Err(status) if is_unread(&status) => return Ok(One::Unread(at.block, status)),
            Err(status) => return Err(status),
        };
        let place = Arc::clone(place);
        let job = move || place.add(partial, None);
        let compute = self.reading.blocks.compute.for_tenant(&question.tenant);
        let done = compute.run_as(Activity::Query, job).await;
        done.map_err(|error| Status::of(&error))?.map(|()| One::Found(found))
    }

    /// What one block has, and where that was: [`Code::NotFound`] if the bucket has it no more.
    pub async fn answer_of(&self, question: &Question, at: &BlockAt) -> Result<(Partial, Found), Status> {
        let finding = self.told_of(question, at);
        let found = match question.failed.load(Ordering::Relaxed) {
            false => finding.await,
            true => {
                let late = |_| {
                    let message =
                        format!("it was not there within {SHORT:?}, after others of the bucket failed");
                    Err(Status::new(Code::Deadline, message))
                };
                self.reading.blocks.store.clock().within(SHORT, finding).await.unwrap_or_else(late)
            }
        };
        if found.as_ref().is_err_and(|status| is_unread(status) && status.code != Code::DataLoss) {
            question.failed.store(true, Ordering::Relaxed);
        }
        found
    }

    /// What one block has of those of its profiles that count there, and which others are meant, if that is to be told.
    async fn told_of(&self, question: &Question, at: &BlockAt) -> Result<(Partial, Found), Status> {
        let less = (!at.without.is_empty()).then(|| question.like(question.ask.without(&at.without)));
        let answer = self.find_of(less.as_ref().unwrap_or(question), at);
        let Some(time) = at.tells else { return answer.await };
        // A question of its own: it has the same answer whatever else is asked of the same profiles.
        let of_ids = question.like(question.ask.ids(time));
        let of_block = BlockAt::alone(at.block, at.whole && time == TimeRange::default());
        match try_join(answer, self.find_of(&of_ids, &of_block)).await? {
            ((answer, found), (Partial::Ids(ids), _)) => {
                Ok((answer.telling(Place::Block(at.block.number()), ids), found))
            }
            _ => Err(Status::new(Code::Internal, "a block tells something else than ids")),
        }
    }

    async fn find_of(&self, question: &Question, at: &BlockAt) -> Result<(Partial, Found), Status> {
        let Question { tenant, ask, whole, .. } = question;
        let reading = &self.reading;
        let Some(canonical) = whole else {
            let made = Arc::clone(reading)
                .make(tenant.clone(), (at.block, at.whole), Arc::clone(ask), || false)
                .await?;
            question.reads(made.bytes);
            return Ok((made.take().ok_or_else(lost)?, Found::ByReading));
        };
        let canonical = match at.whole {
            true => Arc::clone(canonical),
            false => {
                let span = reading.blocks.span(at.block, tenant).await;
                let (first, last) = span.map_err(|status| named(at.block, status))?;
                let canonical = ask.canonical(first, last).map_err(|error| Status::of(&error))?;
                Arc::new(canonical)
            }
        };
        let key = AnswerKey { block: at.block, tenant: tenant.clone(), ask: canonical.key };
        if let Some(answered) = reading.known(&key, &canonical).await {
            return answered;
        }
        let asked = Arc::new(canonical.ask.clone());
        let begin = || {
            reading.answers.missed();
            Arc::clone(reading).find(key.clone(), (at.block, at.whole), Arc::clone(&asked)).boxed()
        };
        let (made, joined) = reading.flights.join(key.clone(), begin).await;
        if joined {
            reading.answers.joined();
        }
        let made = made?;
        question.reads(made.bytes);
        let found = if joined { Found::Joined } else { Found::ByReading };
        let partial = match (made.take(), &made.packed) {
            (Some(partial), _) => reading.as_asked(tenant, &canonical, partial).await?,
            (None, Some(packed)) => reading.unpack(tenant, &canonical, packed.clone()).await?,
            (None, None) => {
                let made =
                    Arc::clone(reading).make(tenant.clone(), (at.block, at.whole), asked, || false).await?;
                reading.as_asked(tenant, &canonical, made.take().ok_or_else(lost)?).await?
            }
        };
        Ok((partial, found))
    }
}

/// Whether it is a block that is at fault, or the bucket, and neither the question nor this node: an answer may go on
/// without that block, if it says so.
pub fn is_unread(status: &Status) -> bool {
    match status.code {
        Code::DataLoss | Code::Unimplemented => true,
        Code::Unavailable | Code::Deadline | Code::PermissionDenied | Code::Unauthenticated => true,
        Code::Invalid | Code::TooLarge | Code::Exhausted | Code::Cancelled | Code::Internal => false,
        Code::NotFound | Code::Conflict | Code::NotLeader | Code::Precondition => false,
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::{ByteSize, Compute};
    use athanor_query::{Bounds, Received, Selection, StackFilter, What};

    use super::*;
    use crate::blocks::tests::{bucket, held, put};

    fn tree() -> Ask {
        let time = TimeRange { from: i64::MIN, to: i64::MAX };
        let selection = Selection { time, ..Selection::default() };
        Ask { selection, what: What::Tree(StackFilter::default()), bounds: Bounds::default() }
    }

    async fn gateway(blocks: u32) -> Gateway {
        let store = bucket();
        for block in 1..=blocks {
            let tenants = [("other", held(50)), ("shop", held(block))];
            put(&store, BlockId::from_number(block.into()), &tenants).await;
        }
        let config = Config { reading: ByteSize::mib(64), parts: ByteSize::mib(64), ..Config::default() };
        let blocks = Blocks::new(store, Compute::inline(), None, &config);
        Gateway::new(Arc::new(blocks), &config)
    }

    fn at(blocks: impl Iterator<Item = u128>) -> Vec<BlockAt> {
        blocks.map(|number| BlockAt::alone(BlockId::from_number(number), true)).collect()
    }

    async fn total(gateway: &Gateway, tenant: &str, blocks: Vec<BlockAt>) -> (i64, Vec<BlockId>) {
        let ask = tree();
        let answer = gateway.answer(&tenant.parse().unwrap(), ask.clone(), blocks).await.unwrap();
        let mut received = Received::default();
        answer.pieces.for_each(|piece| received.push(&piece).unwrap());
        let Partial::Tree(tree) = received.unpack(&ask).unwrap() else { panic!("no tree") };
        assert_eq!(answer.met.unread, []);
        (tree.total(), answer.met.gone)
    }

    #[tokio::test]
    async fn blocks_answer_as_one() {
        let gateway = gateway(40).await;
        let of = |block: i64| block * (block + 1) / 2;
        assert_eq!(total(&gateway, "shop", at(1..=40)).await, ((1..=40).map(of).sum(), vec![]));
        assert_eq!(total(&gateway, "shop", at(7..=8)).await, (of(7) + of(8), vec![]));
        assert_eq!(total(&gateway, "other", at(7..=8)).await, (2 * of(50), vec![]));
        assert_eq!(total(&gateway, "shop", vec![]).await, (0, vec![]));
    }

    #[tokio::test]
    async fn blocks_that_are_gone_are_named_and_too_much_is_refused() {
        let mut gateway = gateway(3).await;
        let gone = [4, 5].map(BlockId::from_number).to_vec();
        let (sum, mut named) = total(&gateway, "shop", at(2..=5)).await;
        named.sort_unstable();
        assert_eq!((sum, named), (3 + 6, gone));
        let shop: TenantId = "shop".parse().unwrap();
        let refused = gateway.answer(&shop, tree(), at(0..MOST as u128 + 1)).await;
        assert_eq!(refused.err().unwrap().code, Code::Invalid);
        gateway.room = Config { answer: ByteSize::bytes(100), ..Config::default() }.room();
        let refused = gateway.answer(&shop, tree(), at(1..=3)).await.err().unwrap();
        assert!(refused.message.contains("the limit is 100B"), "{refused}");
    }

    #[tokio::test]
    async fn of_tenants_that_wait_the_one_of_which_less_was_read_is_next() {
        let mut gateway = gateway(2).await;
        let words = Words { questions: "questions", setting: "questions", of_tenant: "questions" };
        gateway.turns = Turns::new(1, words);
        let tenant = |name: &str| name.parse::<TenantId>().unwrap();
        let (wide, narrow) = (tenant("other"), tenant("shop"));
        let held = gateway.turn(&wide).await.unwrap();
        let answer = gateway.answer(&wide, tree(), at(1..=2)).await.unwrap();
        assert!(answer.read > 200_000, "{}", answer.read);
        held.pay(&wide, answer.read);
        let mut again = Box::pin(gateway.turn(&wide));
        let mut other = Box::pin(gateway.turn(&narrow));
        assert!((&mut again).now_or_never().is_none() && (&mut other).now_or_never().is_none());
        drop(held);
        assert!((&mut again).now_or_never().is_none(), "it came first, and more was read of it");
        let turn = (&mut other).now_or_never().expect("its turn").unwrap();
        drop(turn);
        assert!(again.now_or_never().is_some());
    }
}
