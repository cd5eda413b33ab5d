//! What a part of a block takes in memory, before it is read: room is taken for that.
//!
//! ```text
//!  nothing is there ─► a guess ─► footers ─► series and profiles as they are decoded ─► what they are, and what else is read
//! ```

use std::ops::Range;

use athanor_block::{BlockError, FILES, FUNCTIONS, MAPPINGS, PAGE, ROLLUP, SERIES, TenantMeta};
use athanor_query::Picked;

use super::Part;

/// How much longer texts are thought to be decompressed before it is known: mostly they are less.
const TEXT_RATIO: u64 = 6;
/// What texts take in memory for each byte: as they are read, and as they are kept.
const TEXT_MEMORY: u64 = 2;
/// What footers take in memory for each byte, once they are decoded.
const FOOTER_MEMORY: u64 = 2;
/// What a series of a few labels takes as it is decoded, before it is known how many it has.
const SERIES_GUESS: u64 = 2048;
/// What a profile takes as it is decoded: its columns, and itself twice while the list of all is made.
const PROFILE: u64 = 192;
/// What entries of other tables take as they are kept.
const NODE: u64 = 56;
const LOCATION: u64 = 96;
const FUNCTION: u64 = 128;

/// What footers, series and profiles of a part take, about, when of most of them nothing was read.
pub(super) fn guess_of_index(part: &Part, meta: &TenantMeta) -> u64 {
    if part.source.has_series() {
        return kept(part).saturating_add(u64::from(meta.profiles.1) * PROFILE);
    }
    let all = part.block.meta();
    let bytes_of = |file: &str| all.file(file).map_or(0, |file| file.bytes);
    let series: u64 = all.tenants.iter().map(|of| u64::from(of.series.1)).sum();
    let series = bytes_of(SERIES).saturating_mul(meta.series.1.into()) / series.max(1);
    let footers = FILES.iter().map(|file| bytes_of(file).min(PAGE as u64)).sum::<u64>();
    let texts = series.saturating_mul(1 + TEXT_RATIO * TEXT_MEMORY);
    let rows = u64::from(meta.series.1) * SERIES_GUESS + u64::from(meta.profiles.1) * PROFILE;
    footers.saturating_mul(1 + FOOTER_MEMORY).saturating_add(texts).saturating_add(rows)
}

/// What series and profiles of a part take as they are decoded, about, once footers are there.
pub(super) fn of_index(part: &Part, meta: &TenantMeta) -> Result<u64, BlockError> {
    let series = if part.source.has_series() { 0 } else { part.source.memory_of_series()? };
    let profiles = u64::from(meta.profiles.1) * PROFILE;
    Ok(kept(part).saturating_add(series).saturating_add(profiles))
}

/// What a part takes once some more of it is fetched, and it is read, of the profiles that are meant: they were found, so
/// that series and profiles are there.
pub(super) fn of_reading(
    part: &Part,
    (extents, names): (&[(&'static str, Range<u64>)], bool),
    picked: &Picked,
    width: usize,
) -> Result<u64, BlockError> {
    let missing = part.folder.missing(extents).iter().map(|(_, range)| range.end - range.start).sum::<u64>();
    let mut bytes = kept(part).saturating_add(missing).saturating_add(picked.memory() as u64);
    let texts: &[&'static str] = if names { &[FUNCTIONS, MAPPINGS] } else { &[] };
    for file in texts {
        let (_, plain) = part.block.extent(part.tenant.as_str(), file)?;
        bytes = bytes.saturating_add(plain.saturating_mul(TEXT_MEMORY));
    }
    if extents.iter().any(|(file, _)| *file == ROLLUP) {
        bytes = bytes.saturating_add(part.source.memory_of_rollup(picked.places())?);
    }
    let TenantMeta { nodes, stacks, locations, functions, .. } = part.meta()?;
    let of = |count: u32, each: u64| u64::from(count) * each;
    let mut tables = 0;
    if names {
        tables += of(nodes.1, NODE) + of(locations.1, LOCATION) + of(functions.1, FUNCTION);
    }
    // Each thread adds up for itself.
    Ok(bytes.saturating_add(tables + of(stacks, 8 * (width as u64 + 1))))
}

/// What was fetched, footers, and the series and profiles that were decoded.
fn kept(part: &Part) -> u64 {
    (part.folder.bytes() + part.block.footer_bytes() + part.source.index_bytes()) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use athanor_catalog::BlockId;
    use athanor_chassis::Compute;
    use athanor_profile::source::MemorySource;
    use athanor_profile::{Labels, Profile, ProfileRow, Series, Source, ValueType};
    use athanor_query::{Ask, StackFilter, What};

    use super::*;
    use crate::blocks::tests::{bucket, put};
    use crate::blocks::{Blocks, Wanted};
    use crate::config::Config;

    const PROCESSES: u32 = 1500;

    /// Profiles of processes that live for one each.
    fn one_each() -> MemorySource {
        let mut profile = Profile::default();
        profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
        profile.header.period_type = Some(ValueType::new("cpu", "nanoseconds"));
        for stack in ["a", "b", "c"] {
            let id = profile.dictionary.named_stack(["main.main", stack].into_iter());
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
    fn least(source: &dyn Source) -> u64 {
        let text = |text: &str| text.len();
        let types = |of: &ValueType| text(&of.kind) + text(&of.unit);
        let of_series = |series: &Series| {
            let labels = series.labels();
            let lists = size_of::<Vec<(String, String)>>() + labels.len() * size_of::<(String, String)>();
            let texts = labels.text_bytes() + text(series.service());
            size_of::<Series>() + lists + texts + types(&series.value_type) + types(&series.period_type)
        };
        let series: usize = source.series().unwrap().iter().map(of_series).sum();
        (series + source.brief_profiles().unwrap().len() * size_of::<ProfileRow>()) as u64
    }

    #[tokio::test]
    async fn room_is_taken_for_all_that_many_series_of_one_profile_each_take() {
        let (store, block) = (bucket(), BlockId::from_number(7));
        put(&store, block, &[("shop", one_each())]).await;
        let blocks = Arc::new(Blocks::new(store, Compute::inline(), None, &Config::default()));
        let tenant = "shop".parse().unwrap();
        let ask = Arc::new(Ask { what: What::Tree(StackFilter::default()), ..Ask::default() });
        let wanted =
            Wanted { blocks: Arc::clone(&blocks), block, tenant: "shop".parse().unwrap(), ask, whole: true };
        let part = blocks.part(block, &tenant).await.unwrap();
        let meta = part.meta().unwrap();
        assert_eq!(meta.series.1, PROCESSES);
        let guess = guess_of_index(&part, &meta);
        wanted.fetch_index(&part).await.unwrap();
        let decoding = of_index(&part, &meta).unwrap();
        assert!(!part.source.has_series());
        let (_, reading, picked) = wanted.plan(&part, 1).await.unwrap();
        let least = least(part.source());
        let decoded = part.source.index_bytes() as u64;
        assert!(least < decoded && decoded < 3 * least, "{least} {decoded}");
        // Lists are there twice while they are made, and columns beside them.
        for before in [guess, decoding] {
            assert!(decoded < before && before < 4 * decoded, "{decoded} {before}");
        }
        let places = size_of_val(picked.places());
        assert!(decoded + places as u64 + part.folder.bytes() as u64 <= reading, "{decoded} {reading}");
        assert!(reading < 4 * decoded, "{decoded} {reading}");
        assert!(guess_of_index(&part, &meta) >= decoded, "what is there counts as what it is");
    }
}
