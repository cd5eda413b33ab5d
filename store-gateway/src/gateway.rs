//! One answer of many blocks: opened some at a time, run on compute threads, merged as they come.

use std::sync::{Arc, Mutex, PoisonError};

use athanor_catalog::BlockId;
use athanor_chassis::{Activity, ByteSize, Code, Status, TenantId};
use athanor_query::{Ask, Partial, Pieces, meet, run};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::Semaphore;

use crate::blocks::{Blocks, Opened, Wanted};

/// Blocks of one question.
pub const MOST: usize = 256;
/// Blocks of one question that are open at once, at least: while some are fetched, others are read.
const OPEN: usize = 16;
/// Questions that are answered at once; others wait.
const QUESTIONS: usize = 32;
/// Memory that one answer may take.
const ANSWER: ByteSize = ByteSize::mib(512);

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
}

/// Answers for blocks.
pub struct Gateway {
    blocks: Arc<Blocks>,
    questions: Semaphore,
    answer: ByteSize,
}

/// What the blocks of one question have answered so far.
struct Held {
    partial: Partial,
    /// At least what it takes.
    bytes: usize,
}

/// Where answers meet.
type Place = Mutex<Option<Held>>;

impl Gateway {
    /// Over the blocks of a bucket.
    pub fn new(blocks: Arc<Blocks>) -> Self {
        Self { blocks, questions: Semaphore::new(QUESTIONS), answer: ANSWER }
    }

    /// The blocks that it reads.
    pub fn blocks(&self) -> &Arc<Blocks> {
        &self.blocks
    }

    /// The answer of all of these blocks together.
    pub async fn answer(&self, tenant: &TenantId, ask: Ask, blocks: Vec<BlockAt>) -> Result<Answer, Status> {
        if blocks.len() > MOST {
            let message = format!("{} blocks are asked for at once, the limit is {MOST}", blocks.len());
            return Err(Status::new(Code::Invalid, message));
        }
        let _turn = self.questions.acquire().await;
        let (ask, place) = (Arc::new(ask), Arc::new(Place::default()));
        let width = OPEN.max(self.blocks.compute.width() + 1);
        let each = blocks.into_iter().map(|at| self.ask_one(tenant, &ask, at, &place));
        let gone = stream::iter(each)
            .buffer_unordered(width)
            .try_filter_map(|gone| async move { Ok(gone) })
            .try_collect()
            .await?;
        let pack = move || {
            let held = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            let partial = held.map_or_else(|| Partial::none(&ask.what), |held| held.partial);
            partial.pack().map_err(|error| Status::of(&error))
        };
        let packed = self.blocks.compute.run_as(Activity::Query, pack).await;
        Ok(Answer { pieces: packed.map_err(|error| Status::of(&error))??, gone })
    }

    /// Adds what one block has, or says that it is gone.
    async fn ask_one(
        &self,
        tenant: &TenantId,
        ask: &Arc<Ask>,
        BlockAt { block, whole }: BlockAt,
        place: &Arc<Place>,
    ) -> Result<Option<BlockId>, Status> {
        let (blocks, tenant, needs) = (Arc::clone(&self.blocks), tenant.clone(), ask.needs());
        let Opened { source, held } = match (Wanted { blocks, block, tenant, needs, whole }).open().await {
            Ok(opened) => opened,
            Err(status) if status.code == Code::NotFound => return Ok(Some(block)),
            Err(status) => return Err(status),
        };
        let (ask, place, limit) = (Arc::clone(ask), Arc::clone(place), self.answer);
        let job = move || {
            let partial = run(&ask, source.as_ref()).map_err(|error| Status::of(&error))?;
            drop((source, held));
            let mine = Held { bytes: partial.bytes(), partial };
            meet(&place, mine, |one, other| one.merge(other, &ask, limit))
        };
        let done = self.blocks.compute.run_as(Activity::Query, job).await;
        done.map_err(|error| Status::of(&error))?.map(|()| None)
    }
}

impl Held {
    fn merge(self, other: Held, ask: &Ask, limit: ByteSize) -> Result<Held, Status> {
        let bytes = self.bytes + other.bytes;
        let partial = self.partial.merge(other.partial, &ask.bounds).map_err(|error| Status::of(&error))?;
        // What both had counts twice: it is counted anew only where that matters, as counting takes a walk.
        let bytes = if bytes > limit.as_usize() { partial.bytes() } else { bytes };
        if bytes > limit.as_usize() {
            let seen = ByteSize::bytes(bytes as u64);
            let message = format!(
                "the answer of some blocks takes {seen} of memory, the limit is {limit}; select fewer series or a shorter time"
            );
            return Err(Status::new(Code::Invalid, message));
        }
        Ok(Held { partial, bytes })
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Compute;
    use athanor_query::{Bounds, Received, Selection, StackFilter, TimeRange, What};

    use super::*;
    use crate::blocks::tests::{bucket, held, put};
    use crate::parts::Parts;

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
        let parts = Arc::new(Parts::new(ByteSize::mib(64)));
        let blocks = Blocks::new(store, parts, Compute::inline(), ByteSize::mib(64));
        Gateway::new(Arc::new(blocks))
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
        gateway.answer = ByteSize::bytes(100);
        let refused = gateway.answer(&shop, tree(), at(1..=3)).await.err().unwrap();
        assert!(refused.message.contains("the limit is 100B"), "{refused}");
    }
}
