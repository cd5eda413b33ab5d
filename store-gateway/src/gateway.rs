//! Answers of blocks: kept ones where the question came before, else found by reading; those of many blocks as one,
//! opened some at a time, run on compute threads, merged as they come.

use std::sync::{Arc, Mutex, PoisonError};

use athanor_catalog::BlockId;
use athanor_chassis::room::{Room, Taken};
use athanor_chassis::{Activity, Code, Status, Stop, TenantId};
use athanor_query::{Ask, Canonical, Held, Meeting, Partial, Pieces, run};
use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::answers::{AnswerKey, AnswerStats, Answers};
use crate::blocks::{Blocks, Opened, Wanted};
use crate::config::Config;
use crate::flights::Flights;
use crate::parts::CacheStats;
use crate::shelf::{Shelf, ShelfStats};

/// Blocks of one question.
pub const MOST: usize = 256;

/// A larger answer of a block is not kept: it would take the place of many others.
const MOST_KEPT: usize = 64 << 20;

/// A block that a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// Its name.
    pub block: BlockId,
    /// Whether the question is about all of the time of the tenant's part.
    pub whole: bool,
}

/// What some blocks have of what is asked.
pub struct Answer {
    /// The answer, packed.
    pub pieces: Pieces,
    /// Blocks that are not in it since the bucket has them no more: others took their place, or they are too old.
    pub gone: Vec<BlockId>,
    /// Room that it takes until it is sent.
    pub taken: Option<Taken>,
}

/// A tenant's question to blocks.
pub struct Question {
    tenant: TenantId,
    ask: Arc<Ask>,
    /// The question to blocks of which it wants all time: most are such. None where answers are not kept.
    whole: Option<Arc<Canonical>>,
}

/// Answers for blocks.
pub struct Gateway {
    reading: Arc<Reading>,
    questions: Arc<Semaphore>,
    open_blocks: usize,
    room: Arc<Room>,
}

/// What reads blocks, and what was found.
struct Reading {
    blocks: Arc<Blocks>,
    answers: Answers,
    flights: Flights<AnswerKey, Result<Arc<Made>, Status>>,
}

/// An answer that was just found.
struct Made {
    /// As it is: for the first of those who wait for it.
    fresh: Mutex<Option<Partial>>,
    /// For the others. None where it is larger than what is kept.
    packed: Option<Bytes>,
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
}

impl Question {
    /// A question of this tenant.
    pub fn new(tenant: TenantId, ask: Ask) -> Self {
        // A question that is too long to be packed has answers all the same; they are not kept.
        let lasting = ask.is_lasting().then(|| ask.canonical(i64::MAX, i64::MIN).ok()).flatten();
        Self { tenant, ask: Arc::new(ask), whole: lasting.map(Arc::new) }
    }
}

impl Gateway {
    /// Over the blocks of a bucket.
    pub fn new(blocks: Arc<Blocks>, config: &Config) -> Self {
        let reading = Reading { blocks, answers: Answers::new(config.answers), flights: Flights::new() };
        Self {
            reading: Arc::new(reading),
            questions: Arc::new(Semaphore::new(config.questions)),
            open_blocks: config.open_blocks,
            room: config.room(),
        }
    }

    /// How useful it is to keep things.
    pub fn stats(&self) -> GatewayStats {
        let Reading { blocks, answers, .. } = &*self.reading;
        let shelf = blocks.shelf.as_ref().map(|shelf| shelf.stats()).unwrap_or_default();
        GatewayStats { parts: blocks.parts.stats(), answers: answers.stats(), shelf }
    }

    /// Waits until another node's question may be answered: only so many are at once. None when all ends.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.questions).acquire_owned().await.ok()
    }

    /// The answer of all of these blocks together.
    pub async fn answer(&self, tenant: &TenantId, ask: Ask, blocks: Vec<BlockAt>) -> Result<Answer, Status> {
        if blocks.len() > MOST {
            let message = format!("{} blocks are asked for at once, the limit is {MOST}", blocks.len());
            return Err(Status::new(Code::Invalid, message));
        }
        let question = Arc::new(Question::new(tenant.clone(), ask));
        let place = Arc::new(Meeting::new(question.ask.bounds, Arc::clone(&self.room)));
        let compute = &self.reading.blocks.compute;
        let width = self.open_blocks.max(compute.width() + 1);
        let each = blocks.into_iter().map(|at| self.add_one(&question, at, &place));
        let gone = stream::iter(each)
            .buffer_unordered(width)
            .try_filter_map(|gone| async move { Ok(gone) })
            .try_collect()
            .await?;
        let pack = move || {
            let (partial, taken) = match place.take() {
                Some(Held { partial, taken }) => (partial, Some(taken)),
                None => (Partial::none(&question.ask.what), None),
            };
            let pieces = partial.pack().map_err(|error| Status::of(&error))?;
            Ok::<_, Status>((pieces, taken))
        };
        let packed = compute.run_as(Activity::Query, pack).await;
        let (pieces, taken) = packed.map_err(|error| Status::of(&error))??;
        Ok(Answer { pieces, gone, taken })
    }

    /// Adds what one block has, or says that it is gone.
    async fn add_one(
        &self,
        question: &Arc<Question>,
        at: BlockAt,
        place: &Arc<Meeting>,
    ) -> Result<Option<BlockId>, Status> {
        let partial = match self.answer_of(question, at).await {
            Ok(partial) => partial,
            Err(status) if status.code == Code::NotFound => return Ok(Some(at.block)),
            Err(status) => return Err(status),
        };
        let place = Arc::clone(place);
        let job = move || place.add(partial, None);
        let done = self.reading.blocks.compute.run_as(Activity::Query, job).await;
        done.map_err(|error| Status::of(&error))?.map(|()| None)
    }

    /// What one block has: [`Code::NotFound`] if the bucket has it no more.
    pub async fn answer_of(&self, question: &Question, at: BlockAt) -> Result<Partial, Status> {
        let Question { tenant, ask, whole } = question;
        let reading = &self.reading;
        let Some(canonical) = whole else {
            let made = Arc::clone(reading).make(tenant.clone(), at, Arc::clone(ask)).await?;
            return made.take().ok_or_else(|| reading.lost());
        };
        let canonical = match at.whole {
            true => Arc::clone(canonical),
            false => {
                let span = reading.blocks.span(at.block, tenant).await;
                let (first, last) = reading.sound(at.block, tenant, span).await?;
                let canonical = ask.canonical(first, last).map_err(|error| Status::of(&error))?;
                Arc::new(canonical)
            }
        };
        let key = AnswerKey { block: at.block, tenant: tenant.clone(), ask: canonical.key };
        if let Some(bytes) = reading.kept(&key).await {
            match reading.unpack(&canonical, bytes).await {
                Ok(partial) => return Ok(partial),
                // It is whole, and more than may be asked for.
                Err(status) if status.code == Code::Invalid => return Err(status),
                Err(_) => reading.damaged(&key).await,
            }
        }
        let asked = Arc::new(canonical.ask.clone());
        let begin = || Arc::clone(reading).find(key.clone(), at, Arc::clone(&asked)).boxed();
        let (made, joined) = reading.flights.join(key.clone(), begin).await;
        if joined {
            reading.answers.joined();
        }
        let made = made?;
        match (made.take(), &made.packed) {
            (Some(partial), _) => Ok(canonical.answer(partial)),
            (None, Some(packed)) => reading.unpack(&canonical, packed.clone()).await,
            (None, None) => {
                let made = Arc::clone(reading).make(tenant.clone(), at, asked).await?;
                made.take().map(|partial| canonical.answer(partial)).ok_or_else(|| reading.lost())
            }
        }
    }
}

impl Reading {
    /// Finds an answer and keeps it.
    async fn find(self: Arc<Self>, key: AnswerKey, at: BlockAt, ask: Arc<Ask>) -> Result<Arc<Made>, Status> {
        let made = Arc::clone(&self).make(key.tenant.clone(), at, ask).await?;
        if let Some(packed) = &made.packed {
            self.answers.put(key.clone(), packed.clone());
            let (shelf_key, packed) = (key.on_shelf(), packed.clone());
            self.on_shelf(move |shelf| shelf.put(&shelf_key, &packed)).await;
        }
        Ok(Arc::new(made))
    }

    /// An answer that was kept, in memory or on disk.
    async fn kept(&self, key: &AnswerKey) -> Option<Bytes> {
        if let Some(bytes) = self.answers.get(key) {
            return Some(bytes);
        }
        let on_shelf = key.on_shelf();
        let bytes = self.on_shelf(move |shelf| shelf.get(&on_shelf)).await.flatten()?;
        self.answers.put(key.clone(), bytes.clone());
        Some(bytes)
    }

    /// Forgets an answer that is none.
    async fn damaged(&self, key: &AnswerKey) {
        self.answers.damaged(key);
        let on_shelf = key.on_shelf();
        self.on_shelf(move |shelf| shelf.drop_damaged(&on_shelf)).await;
    }

    async fn on_shelf<R: Send + 'static>(&self, job: impl FnOnce(&Shelf) -> R + Send + 'static) -> Option<R> {
        let shelf = Arc::clone(self.blocks.shelf.as_ref()?);
        self.blocks.compute.run_as(Activity::Query, move || job(&shelf)).await.ok()
    }

    /// Reads a block. What is computed ends when whoever waits for it leaves.
    async fn make(self: Arc<Self>, tenant: TenantId, at: BlockAt, ask: Arc<Ask>) -> Result<Made, Status> {
        let (stop, _waiting) = Stop::when_left();
        let BlockAt { block, whole } = at;
        let (blocks, asked) = (Arc::clone(&self.blocks), Arc::clone(&ask));
        let wanted = Wanted { blocks, block, tenant: tenant.clone(), ask: asked, whole };
        let opened = wanted.open().await;
        let Opened { source, held } = self.sound(block, &tenant, opened).await?;
        let source = source.until(stop);
        let job = move || {
            let partial = run(&ask, &source).map_err(|error| Status::of(&error))?;
            drop((source, held));
            let may_last = ask.is_lasting() && partial.bytes() <= MOST_KEPT;
            let packed = may_last.then(|| partial.pack().ok()).flatten();
            Ok(Made { fresh: Mutex::new(Some(partial)), packed: packed.map(Pieces::into_bytes) })
        };
        let done = self.blocks.compute.run_as(Activity::Query, job).await;
        let made = done.map_err(|error| Status::of(&error))?;
        self.sound(block, &tenant, made).await
    }

    async fn unpack(&self, canonical: &Arc<Canonical>, bytes: Bytes) -> Result<Partial, Status> {
        let canonical = Arc::clone(canonical);
        let job = move || {
            let partial = Partial::unpack(&bytes, &canonical.ask).map_err(|error| Status::of(&error))?;
            Ok(canonical.answer(partial))
        };
        let done = self.blocks.compute.run_as(Activity::Query, job).await;
        done.map_err(|error| Status::of(&error))?
    }

    /// The same, but an error says which block is damaged, and what was fetched of it is forgotten.
    async fn sound<T>(
        &self,
        block: BlockId,
        tenant: &TenantId,
        said: Result<T, Status>,
    ) -> Result<T, Status> {
        match said {
            Err(status) if status.code == Code::DataLoss => {
                self.blocks.doubt(block, tenant).await;
                Err(Status { message: format!("block {block}: {}", status.message), ..status })
            }
            said => said,
        }
    }

    fn lost(&self) -> Status {
        Status::new(Code::Internal, "an answer was taken by somebody else")
    }
}

impl Made {
    fn take(&self) -> Option<Partial> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::{ByteSize, Compute};
    use athanor_query::{Bounds, Received, Selection, StackFilter, TimeRange, What};

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
        blocks.map(|number| BlockAt { block: BlockId::from_number(number), whole: true }).collect()
    }

    async fn total(gateway: &Gateway, tenant: &str, blocks: Vec<BlockAt>) -> (i64, Vec<BlockId>) {
        let ask = tree();
        let answer = gateway.answer(&tenant.parse().unwrap(), ask.clone(), blocks).await.unwrap();
        let mut received = Received::default();
        answer.pieces.for_each(|piece| received.push(&piece).unwrap());
        let Partial::Tree(tree) = received.unpack(&ask).unwrap() else { panic!("no tree") };
        (tree.total(), answer.gone)
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
}
