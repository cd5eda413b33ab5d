//! What nobody needs any more: whole blocks past their retention.
//!
//! A block is condemned in the catalogue first, so that it never registers again (E15); its objects go later, when no
//! plan names them any more. The catalogue remembers what it condemned for longer than that, so a restart forgets none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use athanor_catalog::{BlockEntry, BlockId, Catalog, Command, REMEMBER};
use athanor_chassis::{Clock, Status, TenantId, Timestamp};
use athanor_storage::Store;
use athanor_storage::path::{FileName, Key, Owner};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(60);
/// Blocks that are condemned, and blocks that are removed, at once.
const AT_ONCE: usize = 256;
/// Blocks whose objects are removed side by side: one takes ten calls of the bucket, one after the other.
const SIDE_BY_SIDE: usize = 16;
/// Objects stay so long after their block was condemned, for queries that were planned before (E18).
const GRACE: Duration = Duration::from_secs(30 * 60);

/// Removes what is too old.
pub struct Janitor {
    /// Knows the blocks.
    pub catalog: Arc<dyn Catalog>,
    /// Holds them.
    pub store: Store,
    /// Time.
    pub clock: Clock,
    /// How long blocks are kept; zero keeps them for ever.
    pub retention: Duration,
    /// Counts.
    pub done: Arc<Done>,
}

/// What a janitor did since the start.
#[derive(Debug, Default)]
pub struct Done {
    condemned: AtomicU64,
    deleted: AtomicU64,
    failed: AtomicU64,
}

/// That at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoneNow {
    /// Blocks past their retention.
    pub condemned: u64,
    /// Blocks whose objects were removed.
    pub deleted: u64,
    /// Rounds that failed.
    pub failed: u64,
}

impl Done {
    /// So far.
    pub fn now(&self) -> DoneNow {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DoneNow { condemned: read(&self.condemned), deleted: read(&self.deleted), failed: read(&self.failed) }
    }
}

impl Janitor {
    /// Runs until the process ends; does nothing while another node leads the catalogue.
    pub async fn run(self, leads: impl Fn() -> bool + Send, ending: CancellationToken) {
        let mut removed = BTreeSet::new();
        loop {
            tokio::select! {
                biased;
                () = ending.cancelled() => return,
                () = self.clock.sleep(EVERY) => {}
            }
            if leads()
                && let Err(status) = self.round(&mut removed).await
            {
                self.done.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(error = %status, "old blocks were not removed, it will be tried again");
            }
        }
    }

    /// Condemns what is too old and removes what was condemned long enough ago.
    async fn round(&self, removed: &mut BTreeSet<BlockId>) -> Result<(), Status> {
        let now = self.clock.wall();
        let blocks = self.catalog.blocks().await.map_err(|error| Status::of(&error))?;
        let old: Vec<BlockId> = blocks
            .iter()
            .filter(|block| is_old(block, now, self.retention))
            .map(|block| block.id)
            .take(AT_ONCE)
            .collect();
        if !old.is_empty() {
            tracing::info!(blocks = old.len(), "removing blocks past their retention");
            let count = old.len() as u64;
            self.catalog.condemn(old).await.map_err(|error| Status::of(&error))?;
            self.done.condemned.fetch_add(count, Ordering::Relaxed);
        }
        let condemned = self.catalog.condemned().await.map_err(|error| Status::of(&error))?;
        let condemned: BTreeMap<BlockId, Timestamp> = condemned.into_iter().collect();
        removed.retain(|block| condemned.contains_key(block));
        let sweeping = self.sweep(&condemned, now, removed).await;
        // Not before their objects are gone: else nobody would know of them any more.
        let expired: Vec<&BlockId> = condemned
            .iter()
            .filter(|(_, since)| now.since(**since) >= REMEMBER)
            .map(|(block, _)| block)
            .collect();
        if !expired.is_empty() && expired.into_iter().all(|block| removed.contains(block)) {
            self.catalog.propose(Command::Forget).await.map_err(|error| Status::of(&error))?;
        }
        self.heal(now).await?;
        sweeping
    }

    /// Removes the objects of blocks that were condemned first, and long enough ago; one that fails keeps no other
    /// waiting.
    async fn sweep(
        &self,
        condemned: &BTreeMap<BlockId, Timestamp>,
        now: Timestamp,
        removed: &mut BTreeSet<BlockId>,
    ) -> Result<(), Status> {
        let due =
            condemned.iter().filter(|(block, since)| now.since(**since) >= GRACE && !removed.contains(block));
        let mut due: Vec<(Timestamp, BlockId)> = due.map(|(block, since)| (*since, *block)).collect();
        due.sort_unstable();
        due.truncate(AT_ONCE);
        let removing = due.into_iter().map(|(_, block)| {
            let store = self.store.clone();
            async move { (block, remove(&store, block).await) }
        });
        let mut removing = futures::stream::iter(removing).buffer_unordered(SIDE_BY_SIDE);
        let mut failure = None;
        while let Some((block, done)) = removing.next().await {
            match done {
                Ok(()) => {
                    self.done.deleted.fetch_add(1, Ordering::Relaxed);
                    removed.insert(block);
                }
                Err(status) => failure = Some(status),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// What damage took is not missed any more when it would be too old to be kept.
    async fn heal(&self, now: Timestamp) -> Result<(), Status> {
        if self.retention.is_zero() {
            return Ok(());
        }
        let before = now.minus(self.retention);
        let listing = self.catalog.listing(&TenantId::anonymous(), 0, 0).await;
        let scars = listing.map_err(|error| Status::of(&error))?.scars;
        if scars.iter().any(|scar| scar.since < before) {
            self.catalog.propose(Command::Heal { before }).await.map_err(|error| Status::of(&error))?;
        }
        Ok(())
    }
}

async fn remove(store: &Store, block: BlockId) -> Result<(), Status> {
    // What says that it is a block goes first.
    for file in [athanor_block::META].into_iter().chain(athanor_block::FILES) {
        let name = FileName::new(file)
            .map_err(|error| Status::new(athanor_chassis::Code::Internal, error.to_string()))?;
        let key = Key::Block { owner: Owner::Shared, block: block.number(), file: name };
        store.delete(&key).await.map_err(|error| Status::of(&error))?;
    }
    Ok(())
}

/// Whether both a block's data and the block itself are older than what is kept: data of long ago that came yesterday
/// is wanted by somebody.
fn is_old(block: &BlockEntry, now: Timestamp, retention: Duration) -> bool {
    if retention.is_zero() {
        return false;
    }
    let newest = Timestamp::from_nanos(block.max_time()).max(block.id.named_at());
    now.since(newest) > retention
}

#[cfg(test)]
mod tests {
    use athanor_catalog::{Memory, TenantSpan, Wound};
    use athanor_chassis::Random;
    use athanor_storage::{Config as Bucket, StoreDeps};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn block(named: Timestamp) -> BlockEntry {
        let span = TenantSpan { tenant: TenantId::anonymous(), min_time: 0, max_time: 0, profiles: 1 };
        let id = BlockId::new(named, &Random::seeded(1));
        let (shard, epoch, from, to) = (1, 1, 0, 1);
        let (further, tenants) = (Vec::new(), vec![span]);
        BlockEntry { id, shard, epoch, from, to, bytes: 1, samples: 1, lost: 0, level: 0, further, tenants }
    }

    #[tokio::test]
    async fn objects_go_after_their_block_whoever_condemned_it() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
        let deps = StoreDeps { clock: clock.clone(), random: Random::seeded(2) };
        let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap();
        let catalog = Arc::new(Memory::new(clock.clone()));
        let block = block(clock.wall());
        let file = FileName::new(athanor_block::META).unwrap();
        let key = Key::Block { owner: Owner::Shared, block: block.id.number(), file };
        store.create(&key, bytes::Bytes::from_static(b"{}")).await.unwrap();
        catalog.open_shard(0, 1).await.unwrap();
        catalog.register(block).await.unwrap();
        let done = Arc::new(Done::default());
        let janitor = || Janitor {
            catalog: Arc::clone(&catalog) as Arc<dyn Catalog>,
            store: store.clone(),
            clock: clock.clone(),
            retention: DAY,
            done: Arc::clone(&done),
        };
        let count = async || (catalog.blocks().await.unwrap().len(), store.head(&key).await.is_ok());
        janitor().round(&mut BTreeSet::new()).await.unwrap();
        assert_eq!(count().await, (1, true));
        hand.advance(DAY + Duration::from_secs(1));
        janitor().round(&mut BTreeSet::new()).await.unwrap();
        assert_eq!(count().await, (0, true), "plans may still name it");
        hand.advance(GRACE);
        // The process that condemned it is gone.
        janitor().round(&mut BTreeSet::new()).await.unwrap();
        assert_eq!(count().await, (0, false));
        assert_eq!(done.now(), DoneNow { condemned: 1, deleted: 1, failed: 0 });
    }

    #[tokio::test]
    async fn a_round_with_nothing_to_forget_proposes_nothing() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
        let deps = StoreDeps { clock: clock.clone(), random: Random::seeded(2) };
        let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, deps).unwrap();
        let catalog = Arc::new(Memory::new(clock.clone()));
        let known = Arc::clone(&catalog) as Arc<dyn Catalog>;
        let janitor = Janitor {
            catalog: known,
            store,
            clock: clock.clone(),
            retention: 10 * DAY,
            done: Arc::default(),
        };
        let revision = async || catalog.listing(&TenantId::anonymous(), 0, 0).await.unwrap().revision;
        catalog.condemn(vec![BlockId::from_number(7)]).await.unwrap();
        catalog.mark(Wound::Ids { shard: 1, to: 9 }).await.unwrap();
        let mut removed = BTreeSet::new();
        for (wait, proposals, condemned, scars) in
            [(DAY, 0, 1, 1), (DAY, 1, 0, 1), (DAY, 0, 0, 1), (8 * DAY, 1, 0, 0), (DAY, 0, 0, 0)]
        {
            hand.advance(wait);
            let before = revision().await;
            janitor.round(&mut removed).await.unwrap();
            assert_eq!(revision().await - before, proposals);
            let listing = catalog.listing(&TenantId::anonymous(), 0, 0).await.unwrap();
            assert_eq!((catalog.condemned().await.unwrap().len(), listing.scars.len()), (condemned, scars));
        }
    }

    #[tokio::test]
    async fn a_block_that_cannot_be_removed_keeps_no_other() {
        let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_700_000_000));
        let folder = tempfile::tempdir().unwrap();
        let mut bucket = Bucket { local: Some(folder.path().to_path_buf()), ..Bucket::default() };
        // Nobody moves the clock between two attempts.
        bucket.patience.attempts = 1;
        let store =
            Store::open(&bucket, StoreDeps { clock: clock.clone(), random: Random::seeded(2) }).unwrap();
        let meta = |number| {
            let file = FileName::new(athanor_block::META).unwrap();
            Key::Block { owner: Owner::Shared, block: number, file }
        };
        store.create(&meta(2), bytes::Bytes::from_static(b"{}")).await.unwrap();
        // No file can be removed whose place a folder has.
        std::fs::create_dir_all(folder.path().join(meta(1).to_string()).join("in the way")).unwrap();
        let catalog = Arc::new(Memory::new(clock.clone()));
        catalog.condemn(vec![BlockId::from_number(1), BlockId::from_number(2)]).await.unwrap();
        let done = Arc::new(Done::default());
        let known = Arc::clone(&catalog) as Arc<dyn Catalog>;
        let janitor =
            Janitor { catalog: known, store: store.clone(), clock, retention: DAY, done: Arc::clone(&done) };
        hand.advance(REMEMBER + DAY);
        let mut removed = BTreeSet::new();
        assert!(janitor.round(&mut removed).await.is_err());
        assert!(store.head(&meta(2)).await.is_err(), "it goes all the same");
        assert_eq!(done.now().deleted, 1);
        assert_eq!(catalog.condemned().await.unwrap().len(), 2, "nobody else knows of what is still there");
    }

    #[test]
    fn blocks_stay_while_their_data_or_they_themselves_are_young() {
        let begin = Timestamp::from_seconds(1_700_000_000);
        let mut block = block(begin);
        assert!(!is_old(&block, begin.plus(DAY), DAY));
        assert!(is_old(&block, begin.plus(DAY + Duration::from_millis(2)), DAY));
        assert!(!is_old(&block, begin.plus(DAY * 100), Duration::ZERO));
        block.tenants[0].max_time = begin.plus(DAY).nanos();
        assert!(!is_old(&block, begin.plus(DAY * 2), DAY));
    }
}
