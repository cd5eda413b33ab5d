//! The blocks of a shard are a chain: where one ends, the next one begins.

use athanor_catalog::{BlockEntry, Catalog, ShardLogRange};
use athanor_chassis::TenantId;

use super::client::Breach;
use super::world::World;

/// Looks at the blocks of each shard, as ranges of its log in their order. Nothing lies in two of them; between them
/// nothing is left out, except where some may be gone. The caller says how they must lie to the shard's
/// watermark.
pub async fn check(
    catalog: &dyn Catalog,
    world: &World,
    some_gone: bool,
    fits: impl Fn(&[(u64, u64)], u64) -> bool,
) -> Result<(), Breach> {
    // First these: more may come meanwhile.
    let mut blocks = catalog.blocks().await.map_err(|error| error.to_string())?;
    let listing =
        catalog.list_blocks(&TenantId::anonymous(), 0, 0).await.map_err(|error| error.to_string())?;
    blocks.sort_by_key(|block| (block.shard, block.from));
    blocks.iter().for_each(|_| world.count("blocks"));
    // Also of shards that are over.
    for (place, one) in blocks.iter().enumerate() {
        if let Some(other) = blocks[..place].iter().find(|other| one.conflicts_with(other)) {
            return Err(format!("two blocks have the same entries: {one:?}, {other:?}"));
        }
    }
    // Of those that were made of others several may hold one range, each for tenants of its own.
    let rows = ShardLogRange::join_adjacent(blocks.iter().flat_map(BlockEntry::log_ranges));
    for shard in &listing.shards {
        let of_shard = rows.iter().filter(|rows| rows.shard == shard.id);
        let ranges: Vec<(u64, u64)> = of_shard.map(|rows| (rows.from, rows.to)).collect();
        let mut pairs = ranges.windows(2).map(|pair| (pair[0].1, pair[1].0));
        let follow = pairs.all(|(end, next)| if some_gone { end <= next } else { end == next });
        if !follow || !fits(&ranges, shard.watermark) {
            return Err(format!("blocks of {shard:?} are no chain: {ranges:?}"));
        }
    }
    Ok(())
}
