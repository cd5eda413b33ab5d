//! What nobody needs any more: whole blocks past their retention.
//!
//! A block is condemned in the catalogue first, so that it never registers again (E15); its objects go later, and not at
//! all if the process ends before: which ones still wait is known in memory only.

use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::{BlockEntry, BlockId, Catalog, Command};
use athanor_chassis::{Clock, Status, Timestamp};
use athanor_storage::Store;
use athanor_storage::path::{FileName, Key, Owner};
use tokio_util::sync::CancellationToken;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(60);
/// Blocks that go at once.
const AT_ONCE: usize = 256;
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
}

impl Janitor {
    /// Runs until the process ends.
    pub async fn run(self, ending: CancellationToken) {
        let mut condemned: Vec<(Timestamp, BlockId)> = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = ending.cancelled() => return,
                () = self.clock.sleep(EVERY) => {}
            }
            if let Err(status) = self.round(&mut condemned).await {
                tracing::warn!(error = %status, "old blocks were not removed, it will be tried again");
            }
        }
    }

    /// Condemns what is too old and removes what was condemned long enough ago.
    async fn round(&self, condemned: &mut Vec<(Timestamp, BlockId)>) -> Result<(), Status> {
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
            self.catalog.condemn(old.clone(), now).await.map_err(|error| Status::of(&error))?;
            condemned.extend(old.into_iter().map(|block| (now, block)));
        }
        while let Some(&(since, block)) = condemned.first() {
            if now.since(since) < GRACE {
                break;
            }
            self.remove(block).await?;
            condemned.remove(0);
        }
        self.catalog.propose(Command::Forget { at: now }).await.map_err(|error| Status::of(&error))?;
        Ok(())
    }

    async fn remove(&self, block: BlockId) -> Result<(), Status> {
        // What says that it is a block goes first.
        for file in [athanor_block::META].into_iter().chain(athanor_block::FILES) {
            let name = FileName::new(file)
                .map_err(|error| Status::new(athanor_chassis::Code::Internal, error.to_string()))?;
            let key = Key::Block { owner: Owner::Shared, block: block.number(), file: name };
            self.store.delete(&key).await.map_err(|error| Status::of(&error))?;
        }
        Ok(())
    }
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
    use athanor_catalog::TenantSpan;
    use athanor_chassis::{Random, TenantId};

    use super::*;

    #[test]
    fn blocks_stay_while_their_data_or_they_themselves_are_young() {
        let day = Duration::from_secs(24 * 3600);
        let begin = Timestamp::from_seconds(1_700_000_000);
        let id = BlockId::new(begin, &Random::seeded(1));
        let mut block = BlockEntry {
            id,
            shard: 1,
            epoch: 1,
            from: 0,
            to: 1,
            bytes: 1,
            samples: 1,
            lost: 0,
            tenants: Vec::new(),
        };
        block.tenants.push(TenantSpan {
            tenant: TenantId::anonymous(),
            min_time: 0,
            max_time: 0,
            profiles: 1,
        });
        assert!(!is_old(&block, begin.plus(day), day));
        assert!(is_old(&block, begin.plus(day + Duration::from_millis(2)), day));
        assert!(!is_old(&block, begin.plus(day * 100), Duration::ZERO));
        block.tenants[0].max_time = begin.plus(day).nanos();
        assert!(!is_old(&block, begin.plus(day * 2), day));
    }
}
