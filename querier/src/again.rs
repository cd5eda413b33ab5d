//! Answers that were given before, to the same request: given again as long as they would be made of the same blocks, and
//! of nothing else.
//!
//! Blocks never change, so what was made of some stays true of them. What lies in heads does change: an answer in which a
//! head had part is not kept, and one that was kept is given again only after a new listing and a new word of all leaders
//! (E17) that nothing of theirs belongs into it. Whatever else comes to decide what blocks answer has to go into
//! [`Plan::made_of`](crate::Plan::made_of) (E19).

use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_chassis::room::Room;
use athanor_chassis::{ByteSize, Limits, Status};
use athanor_profile::hash::{self, Hash};
use athanor_query::TimeRange;
use futures::future::join_all;
use moka::sync::Cache;
use prost::Message;

use crate::limits;
use crate::render::Rendered;
use crate::{Querier, Reader};

/// What an entry takes beside its bytes, about.
const ENTRY: usize = 512;
/// How long it may take to learn that an answer still holds: finding it anew is then no worse.
const PATIENCE: Duration = Duration::from_secs(1);

/// Hashes alike in every run.
type Fixed = BuildHasherDefault<DefaultHasher>;

/// What was answered, by all that was asked.
pub(crate) struct Answers {
    limit: ByteSize,
    kept: Cache<Arc<[u8]>, Arc<Kept>, Fixed>,
    hits: AtomicU64,
    misses: AtomicU64,
    damaged: AtomicU64,
}

/// How useful it is to keep answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgainStats {
    /// What they take.
    pub bytes: u64,
    /// What they may take.
    pub limit: u64,
    /// Requests that were answered so.
    pub hits: u64,
    /// Those that might have been, and were answered anew.
    pub misses: u64,
    /// Kept answers that were not what had been kept.
    pub damaged: u64,
}

struct Kept {
    made: Vec<Made>,
    bytes: Vec<u8>,
    sum: Hash,
    /// The room that the answer took when it was put together.
    room: usize,
}

/// What decides whether the answer of all sources to one question still holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// Of which time it is, and how long before the time that was named that begins.
    pub(crate) time: TimeRange,
    pub(crate) lead: Duration,
    /// Of what it was made: [`Plan::made_of`](crate::Plan::made_of) of all tenants.
    pub(crate) of: Option<Hash>,
}

/// What can be kept.
pub(crate) trait Answer: Sized {
    /// How many bytes it is.
    fn packed(&self) -> usize;
    /// As bytes.
    fn to_bytes(&self) -> Vec<u8>;
    /// From those.
    fn of_bytes(bytes: &[u8]) -> Option<Self>;
}

impl<M: Message + Default> Answer for M {
    fn packed(&self) -> usize {
        self.encoded_len()
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        M::decode(bytes).ok()
    }
}

impl Answer for Rendered {
    fn packed(&self) -> usize {
        self.body.len()
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.body.clone()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Rendered::json(bytes.to_vec()))
    }
}

impl Answers {
    /// At most so many bytes.
    pub(crate) fn new(limit: ByteSize) -> Self {
        let weigh = |key: &Arc<[u8]>, kept: &Arc<Kept>| {
            let made = kept.made.len() * size_of::<Made>();
            u32::try_from(key.len() + kept.bytes.len() + made + ENTRY).unwrap_or(u32::MAX)
        };
        let kept =
            Cache::builder().max_capacity(limit.get()).weigher(weigh).build_with_hasher(Fixed::default());
        let (hits, misses, damaged) = Default::default();
        Self { limit, kept, hits, misses, damaged }
    }

    pub(crate) fn stats(&self) -> AgainStats {
        // What came last is not weighed yet.
        self.kept.run_pending_tasks();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AgainStats {
            bytes: self.kept.weighted_size(),
            limit: self.limit.get(),
            hits: read(&self.hits),
            misses: read(&self.misses),
            damaged: read(&self.damaged),
        }
    }

    fn is_on(&self) -> bool {
        self.limit.get() > 0
    }

    /// Keeps an answer for which so much room was taken, unless it would only drive out others, or there is no room to
    /// write it.
    fn keep(&self, key: Arc<[u8]>, answer: &impl Answer, made: Vec<Made>, held: usize, room: &Arc<Room>) {
        let size = answer.packed();
        if size as u64 >= self.limit.get() / 4 {
            return;
        }
        let Ok(_written) = room.take(size) else { return };
        let bytes = answer.to_bytes();
        let sum = hash::bytes(&bytes);
        // As it is, and as bytes on its way.
        let room = held.max(size.saturating_mul(2));
        self.kept.insert(key, Arc::new(Kept { made, bytes, sum, room }));
    }
}

impl Querier {
    /// The answer to a request that was given before, if it still holds; else `answer`, which is kept if it can be.
    pub(crate) async fn again<M, A, F>(
        &self,
        reader: &Reader,
        method: &str,
        request: M,
        answer: impl FnOnce(M) -> F,
    ) -> Result<A, Status>
    where
        M: Message,
        A: Answer + Send + Sync + 'static,
        F: Future<Output = Result<A, Status>>,
    {
        if !self.answers.is_on() {
            return answer(request).await;
        }
        let limits = &self.limits(reader);
        let key = self.key(reader, limits, method, &request.encode_to_vec());
        if let Some(kept) = self.answers.kept.get(&key) {
            // All nodes are asked whether it holds, so that has its turn as a question has.
            let look = |turn| async move {
                let told = self.told_again(reader, limits, kept).await;
                drop(turn);
                told
            };
            if let Some(answer) = self.in_turn(reader, limits, look).await? {
                self.answers.hits.fetch_add(1, Ordering::Relaxed);
                reader.was_told_before();
                return Ok(answer);
            }
            self.answers.misses.fetch_add(1, Ordering::Relaxed);
            // Nobody is to look at it once more.
            self.answers.kept.invalidate(&key);
        }
        let answer = answer(request).await?;
        let made = reader.made();
        let is_of_blocks = !made.is_empty() && made.iter().all(|made| made.of.is_some());
        if !is_of_blocks || reader.missing().is_some() {
            return Ok(answer);
        }
        let (answers, room, held) = (Arc::clone(&self.answers), Arc::clone(&self.room), reader.held());
        self.compute(move || {
            answers.keep(key, &answer, made, held, &room);
            answer
        })
        .await
    }

    async fn told_again<A: Answer + Send + 'static>(
        &self,
        reader: &Reader,
        limits: &Limits,
        kept: Arc<Kept>,
    ) -> Result<Option<A>, Status> {
        let clock = &self.deps.clock;
        let left = reader.until(clock).saturating_sub(clock.monotonic());
        if !matches!(clock.within(left.min(PATIENCE), self.holds(reader, limits, &kept.made)).await, Ok(true))
        {
            return Ok(None);
        }
        self.make_room(reader, kept.room)?;
        let read = move || (hash::bytes(&kept.bytes) == kept.sum).then(|| A::of_bytes(&kept.bytes)).flatten();
        let answer = self.compute(read).await?;
        if answer.is_none() {
            self.answers.damaged.fetch_add(1, Ordering::Relaxed);
        }
        Ok(answer)
    }

    /// Whether an answer would be made of the same.
    async fn holds(&self, reader: &Reader, limits: &Limits, made: &[Made]) -> bool {
        let all = made.iter().map(|of| self.is_made_so(reader, limits, of));
        join_all(all).await.into_iter().all(|holds| holds)
    }

    /// Whether the answer to one question would be.
    async fn is_made_so(&self, reader: &Reader, limits: &Limits, made: &Made) -> bool {
        let Made { time, lead, of } = *made;
        match limits::within(limits, self.deps.clock.wall(), time, lead) {
            Ok((within, None)) if within == time => {}
            _ => return false,
        }
        let still = reader.tenants().iter().map(|tenant| self.deps.sources.made_of(tenant, time));
        let still: Option<Vec<Hash>> =
            join_all(still).await.into_iter().map(|made_of| made_of.ok().flatten()).collect();
        still.is_some_and(|still| Some(hash::list(&still)) == of)
    }

    /// All that decides what is answered, beside what there is: each part behind its length, so that no two are alike.
    fn key(&self, reader: &Reader, limits: &Limits, method: &str, request: &[u8]) -> Arc<[u8]> {
        let nodes = [limits.max_flamegraph_nodes_default, limits.max_flamegraph_nodes_max].map(u64::from);
        let mut key = Vec::new();
        let mut part = |bytes: &[u8]| {
            key.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            key.extend_from_slice(bytes);
        };
        part(method.as_bytes());
        part(&[u8::from(reader.utf8_labels)]);
        part(&nodes.map(u64::to_le_bytes).concat());
        part(&(reader.tenants().len() as u64).to_le_bytes());
        for tenant in reader.tenants() {
            part(tenant.as_str().as_bytes());
            let most = self.deps.overrides.of(tenant).max_query_bytes;
            part(&most.map_or(u64::MAX, ByteSize::get).to_le_bytes());
        }
        part(request);
        key.into()
    }
}
