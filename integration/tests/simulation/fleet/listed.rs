//! What anybody was told of the catalogue. Whoever asks after that is told nothing older.

use std::collections::BTreeMap;

use athanor_catalog::{BlockListing, ShardId, ShardPhase};

use crate::client::Breach;

/// The newest that was told.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    revision: u64,
    shards: BTreeMap<ShardId, Told>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    watermark: u64,
    has_opened: bool,
}

impl Listed {
    /// Holds an answer against all that was told before its question.
    pub fn allows(&self, listing: &BlockListing) -> Result<(), Breach> {
        if listing.revision < self.revision {
            let (now, before) = (listing.revision, self.revision);
            return Err(format!("the catalogue goes back: at {now} after {before}"));
        }
        for shard in &listing.shards {
            let told = self.shards.get(&shard.id).copied().unwrap_or_default();
            let opens_again = told.has_opened && matches!(shard.phase, ShardPhase::Opening { .. });
            if shard.watermark < told.watermark || opens_again {
                return Err(format!("the catalogue goes back: {shard:?} after {told:?}"));
            }
        }
        Ok(())
    }

    /// Remembers an answer.
    pub fn learn(&mut self, listing: &BlockListing) {
        self.revision = self.revision.max(listing.revision);
        for shard in &listing.shards {
            let told = self.shards.entry(shard.id).or_default();
            told.watermark = told.watermark.max(shard.watermark);
            told.has_opened |= !matches!(shard.phase, ShardPhase::Opening { .. });
        }
    }
}
