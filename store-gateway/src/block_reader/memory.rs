//! Estimates of the memory that a part of a block needs, made before the read to reserve that memory.
//!
//! ```text
//!  nothing read ─► guess ─► footers ─► decoded series and profiles ─► their size, and the size of the rest
//! ```

use std::ops::Range;

use athanor_block::{
    BlockError, FUNCTIONS_FILE, MAPPINGS_FILE, PAGE_BYTES, PARQUET_FILES, ROLLUP_FILE, SERIES_FILE,
    TenantMeta,
};
use athanor_query::MatchedProfiles;

use crate::cached_block::CachedBlock;

/// Assumed compression ratio of texts while the real one is unknown. Usually the real ratio is lower.
const TEXT_COMPRESSION_RATIO: u64 = 6;
/// Memory per byte of text: one copy while it is read and one that is kept.
const TEXT_MEMORY_FACTOR: u64 = 2;
/// Memory per byte of a footer once it is decoded, in bytes.
const FOOTER_MEMORY_FACTOR: u64 = 2;
/// Assumed memory of a decoded series with a few labels, while the number of labels is unknown.
const SERIES_GUESS_BYTES: u64 = 2048;
/// Memory of a decoded profile: its columns, and two copies while the list of all profiles is built.
const PROFILE_MEMORY_BYTES: u64 = 192;
/// Memory of a retained entry in each of the other tables.
const NODE_MEMORY_BYTES: u64 = 56;
const LOCATION_MEMORY_BYTES: u64 = 96;
const FUNCTION_MEMORY_BYTES: u64 = 128;

/// Guesses the memory of footers, series and profiles of a part, before most of them are read.
pub(super) fn guess_index_memory(part: &CachedBlock, meta: &TenantMeta) -> u64 {
    if part.source.has_decoded_series() {
        return retained_bytes(part).saturating_add(u64::from(meta.profiles.1) * PROFILE_MEMORY_BYTES);
    }
    let all = part.block.meta();
    let bytes_of = |file: &str| all.file(file).map_or(0, |file| file.bytes);
    let series: u64 = all.tenants.iter().map(|of| u64::from(of.series.1)).sum();
    let series = bytes_of(SERIES_FILE).saturating_mul(meta.series.1.into()) / series.max(1);
    let footers = PARQUET_FILES.iter().map(|file| bytes_of(file).min(PAGE_BYTES as u64)).sum::<u64>();
    let texts = series.saturating_mul(1 + TEXT_COMPRESSION_RATIO * TEXT_MEMORY_FACTOR);
    let rows =
        u64::from(meta.series.1) * SERIES_GUESS_BYTES + u64::from(meta.profiles.1) * PROFILE_MEMORY_BYTES;
    footers.saturating_mul(1 + FOOTER_MEMORY_FACTOR).saturating_add(texts).saturating_add(rows)
}

/// Estimates the memory of decoded series and profiles of a part, once its footers are fetched.
pub(super) fn estimate_index_memory(part: &CachedBlock, meta: &TenantMeta) -> Result<u64, BlockError> {
    let series = if part.source.has_decoded_series() { 0 } else { part.source.estimate_series_memory()? };
    let profiles = u64::from(meta.profiles.1) * PROFILE_MEMORY_BYTES;
    Ok(retained_bytes(part).saturating_add(series).saturating_add(profiles))
}

/// Estimates the memory of a part including the ranges still to fetch and the read of the matched profiles.
/// Series and profiles are decoded at this point.
pub(super) fn estimate_read_memory(
    part: &CachedBlock,
    extents: &[(&'static str, Range<u64>)],
    names: bool,
    picked: &MatchedProfiles,
    width: usize,
) -> Result<u64, BlockError> {
    let missing =
        part.folder.missing_ranges(extents).iter().map(|(_, range)| range.end - range.start).sum::<u64>();
    let mut bytes = retained_bytes(part).saturating_add(missing).saturating_add(picked.memory_bytes() as u64);
    let texts: &[&'static str] = if names { &[FUNCTIONS_FILE, MAPPINGS_FILE] } else { &[] };
    for file in texts {
        let (_, plain) = part.block.tenant_range(part.location.tenant.as_str(), file)?;
        bytes = bytes.saturating_add(plain.saturating_mul(TEXT_MEMORY_FACTOR));
    }
    if extents.iter().any(|(file, _)| *file == ROLLUP_FILE) {
        bytes = bytes.saturating_add(part.source.estimate_rollup_memory(picked.row_indexes())?);
    }
    let TenantMeta { nodes, stacks, locations, functions, .. } = part.meta()?;
    let of = |count: u32, each: u64| u64::from(count) * each;
    let mut tables = 0;
    if names {
        tables += of(nodes.1, NODE_MEMORY_BYTES)
            + of(locations.1, LOCATION_MEMORY_BYTES)
            + of(functions.1, FUNCTION_MEMORY_BYTES);
    }
    // Each compute thread has its own sums.
    Ok(bytes.saturating_add(tables + of(stacks, 8 * (width as u64 + 1))))
}

/// Returns the bytes of fetched ranges, footers, and decoded series and profiles.
fn retained_bytes(part: &CachedBlock) -> u64 {
    (part.folder.fetched_bytes() + part.block.footer_bytes() + part.source.index_memory_bytes()) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use athanor_catalog::BlockId;
    use athanor_chassis::ComputePool;
    use athanor_profile::store_interface::source::MemorySource;
    use athanor_profile::{Labels, Profile, ProfileRow, ProfileSeries, ProfileSource, ValueType};
    use athanor_query::{ProfileQuery, QueryKind, StackFilter};

    use super::*;
    use crate::block_reader::tests::{bucket, put};
    use crate::block_reader::{BlockRead, BlockReader};
    use crate::config::StoreGatewayConfig;
    use crate::part_location::PartLocation;

    const PROCESSES: u32 = 1500;

    /// Profiles of processes that live for one each.
    fn one_each() -> MemorySource {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
        for stack in ["a", "b", "c"] {
            let id = profile.dictionary.intern_named_stack(["main.main", stack].into_iter());
            profile.samples.push(id, 0, &[1]);
        }
        let mut source = MemorySource::default();
        for process in 0..PROCESSES {
            let pairs = [
                ("__name__", "process_cpu".to_owned()),
                ("namespace", "batch".to_owned()),
                ("pid", process.to_string()),
                ("pod", format!("job-{process:08x}-{:05x}", process.wrapping_mul(0x9e37_79b9) & 0xf_ffff)),
                ("service_name", "jobs".to_owned()),
            ];
            let labels = Labels::new(pairs.map(|(name, value)| (name.to_owned(), value)));
            source.add(&labels, &profile, u128::from(process));
        }
        source
    }

    /// Bytes of series and profiles, and of each thing of them that lies by itself: less than any allocator takes.
    fn least(source: &dyn ProfileSource) -> u64 {
        let text = |text: &str| text.len();
        let types = |of: &ValueType| text(&of.kind) + text(&of.unit);
        let of_series = |series: &ProfileSeries| {
            let labels = series.labels();
            let lists = size_of::<Vec<(String, String)>>() + labels.len() * size_of::<(String, String)>();
            let texts = labels.text_bytes() + text(series.service());
            size_of::<ProfileSeries>()
                + lists
                + texts
                + types(&series.value_type)
                + types(&series.period_type)
        };
        let series: usize = source.series().unwrap().iter().map(of_series).sum();
        (series + source.brief_profiles().unwrap().len() * size_of::<ProfileRow>()) as u64
    }

    #[tokio::test]
    async fn room_is_taken_for_all_that_many_series_of_one_profile_each_take() {
        let (store, block) = (bucket(), BlockId::from_number(7));
        put(&store, block, &[("shop", one_each())]).await;
        let blocks =
            Arc::new(BlockReader::new(store, ComputePool::inline(), None, &StoreGatewayConfig::default()));
        let location = PartLocation { block, tenant: "shop".parse().unwrap(), in_tenant_folder: false };
        let ask = Arc::new(ProfileQuery {
            what: QueryKind::Tree(StackFilter::default()),
            ..ProfileQuery::default()
        });
        let part = blocks.cached_block(&location).await.unwrap();
        let wanted = BlockRead { blocks: Arc::clone(&blocks), location, ask, whole: true };
        let meta = part.meta().unwrap();
        assert_eq!(meta.series.1, PROCESSES);
        let guess = guess_index_memory(&part, &meta);
        wanted.fetch_index(&part).await.unwrap();
        let decoding = estimate_index_memory(&part, &meta).unwrap();
        assert!(!part.source.has_decoded_series());
        let (_, reading, picked) = wanted.plan_fetch(&part, 1).await.unwrap();
        let least = least(part.source());
        let decoded = part.source.index_memory_bytes() as u64;
        assert!(least < decoded && decoded < 3 * least, "{least} {decoded}");
        // Lists are there twice while they are made, and columns beside them.
        for before in [guess, decoding] {
            assert!(decoded < before && before < 4 * decoded, "{decoded} {before}");
        }
        let places = size_of_val(picked.row_indexes());
        assert!(
            decoded + places as u64 + part.folder.fetched_bytes() as u64 <= reading,
            "{decoded} {reading}"
        );
        assert!(reading < 4 * decoded, "{decoded} {reading}");
        assert!(guess_index_memory(&part, &meta) >= decoded, "what is there counts as what it is");
    }
}
