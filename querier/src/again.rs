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

use athanor_chassis::{ByteSize, Limits, Status};
use athanor_profile::hash::{self, Hash};
use athanor_query::Ask;
use moka::sync::Cache;
use prost::Message;

use crate::limits;
use crate::render::Rendered;
use crate::{Querier, Reader};

/// What an entry takes beside its bytes, about: a question with it.
const ENTRY: usize = 1024;
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
    /// What was asked of all sources for it, and of what the answers were made.
    made: Vec<Made>,
    bytes: Vec<u8>,
    sum: Hash,
}

/// A question to all sources, and of what its answer was made: [`Plan::made_of`](crate::Plan::made_of) of each tenant.
pub(crate) type Made = (Arc<Ask>, Option<Hash>);

/// What can be kept.
pub(crate) trait Answer: Sized {
    /// As bytes.
    fn to_bytes(&self) -> Vec<u8>;
    /// From those.
    fn of_bytes(bytes: &[u8]) -> Option<Self>;
}

impl<M: Message + Default> Answer for M {
    fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        M::decode(bytes).ok()
    }
}

impl Answer for Rendered {
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
            u32::try_from(key.len() + kept.bytes.len() + ENTRY * kept.made.len()).unwrap_or(u32::MAX)
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
        let limits = self.limits(reader);
        let key = key(reader, &limits, method, &request.encode_to_vec());
        if let Some(kept) = self.answers.kept.get(&key) {
            if let Some(answer) = self.kept(reader, &limits, &key, kept).await? {
                self.answers.hits.fetch_add(1, Ordering::Relaxed);
                reader.was_told_before();
                return Ok(answer);
            }
            self.answers.misses.fetch_add(1, Ordering::Relaxed);
        }
        let answer = answer(request).await?;
        let made = reader.made();
        let is_of_blocks = !made.is_empty() && made.iter().all(|(_, of)| of.is_some());
        if !is_of_blocks || reader.missing().is_some() {
            return Ok(answer);
        }
        let answers = Arc::clone(&self.answers);
        self.compute(move || {
            let bytes = answer.to_bytes();
            // What is larger than a part of all room would only drive out others.
            if (bytes.len() as u64) < answers.limit.get() / 4 {
                let sum = hash::bytes(&bytes);
                answers.kept.insert(key, Arc::new(Kept { made, bytes, sum }));
            }
            answer
        })
        .await
    }

    async fn kept<A: Answer + Send + 'static>(
        &self,
        reader: &Reader,
        limits: &Limits,
        key: &Arc<[u8]>,
        kept: Arc<Kept>,
    ) -> Result<Option<A>, Status> {
        let clock = &self.deps.clock;
        let left = reader.until(clock).saturating_sub(clock.monotonic());
        if !matches!(clock.within(left.min(PATIENCE), self.holds(reader, limits, &kept.made)).await, Ok(true))
        {
            return Ok(None);
        }
        // As it is, and as bytes on its way.
        self.make_room(reader, kept.bytes.len().saturating_mul(2))?;
        let read = move || (hash::bytes(&kept.bytes) == kept.sum).then(|| A::of_bytes(&kept.bytes)).flatten();
        let answer = self.compute(read).await?;
        if answer.is_none() {
            self.answers.damaged.fetch_add(1, Ordering::Relaxed);
            self.answers.kept.invalidate(key);
        }
        Ok(answer)
    }

    /// Whether an answer would be made of the same.
    async fn holds(&self, reader: &Reader, limits: &Limits, made: &[Made]) -> bool {
        for (ask, of) in made {
            let (time, now) = (ask.selection.time, self.deps.clock.wall());
            match limits::within(limits, now, time, limits::lead(ask)) {
                Ok((within, None)) if within == time => {}
                _ => return false,
            }
            let mut still = Vec::new();
            for tenant in reader.tenants() {
                match self.deps.sources.made_of(tenant, ask).await {
                    Ok(Some(one)) => still.push(one),
                    Ok(None) | Err(_) => return false,
                }
            }
            if Some(hash::list(&still)) != *of {
                return false;
            }
        }
        true
    }
}

/// All that decides what is answered, beside what there is: each part behind its length, so that no two are alike.
fn key(reader: &Reader, limits: &Limits, method: &str, request: &[u8]) -> Arc<[u8]> {
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
    reader.tenants().iter().for_each(|tenant| part(tenant.as_str().as_bytes()));
    part(request);
    key.into()
}
