//! DuckDB reads a block's files as they lie, and its sums and joins equal ours to the unit.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use athanor_block::{
    Block, BlockBuilder, BlockFolder, LocalFolder, MemoryFolder, MergeOutput, TenantBlock, merge_into,
};
use athanor_chassis::Tier;
use athanor_chassis::compute::ComputePool;
use athanor_profile::formats::pprof::{DecodeLimits, encode};
use athanor_profile::{Labels, generate};

#[path = "downsampling/origin.rs"]
mod origin;
use origin::origin_of_tier;

/// The Python that has DuckDB; `./test` makes one and names it here.
fn python() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the test's own switch")]
    let named = std::env::var("ATHANOR_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&named).args(["-c", "import duckdb"]).output();
    has.is_ok_and(|output| output.status.success()).then_some(named)
}

#[test]
fn duckdb_sums_and_joins_equal_ours() {
    let Some(python) = python() else {
        #[expect(clippy::disallowed_methods, reason = "the test's own switch")]
        let denied = std::env::var("ATHANOR_SKIPS").is_ok_and(|skips| skips == "deny");
        assert!(!denied, "DuckDB's Python package is not installed; run ./test, which installs it");
        println!("skip: duckdb_sums_and_joins_equal_ours: no Python with DuckDB");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let mut builder = BlockBuilder::new("duck", DecodeLimits::default(), 1 << 30, &mut scratch);
    for seed in 0..40u64 {
        let mut profile = generate::arbitrary_profile(seed);
        // DuckDB refuses to overflow where we wrap.
        profile.samples.values.iter_mut().for_each(|value| *value %= 1_000_000);
        profile.header.time_nanos = 1_700_000_000_000_000_000 + seed as i64;
        let labels = Labels::new([("pod".into(), format!("pod-{}", seed % 3))]);
        builder.add_pprof(["acme", "globex"][seed as usize % 2], &labels, &encode(&profile)).unwrap();
    }
    builder.finish(&LocalFolder::open(folder.path())).unwrap();
    let block = Block::open(Arc::new(LocalFolder::open(folder.path()))).unwrap();

    let mut by_series: BTreeMap<(String, String, String), i64> = BTreeMap::new();
    let mut by_leaf: BTreeMap<(String, String, String), i64> = BTreeMap::new();
    let mut counts: BTreeMap<(String, String, String), i64> = BTreeMap::new();
    for part in block.tenant_blocks() {
        let (names, profiles) = (part.read_names().unwrap(), part.read_all_profiles().unwrap());
        for (place, series) in (0u32..).zip(part.read_series().unwrap()) {
            let ranges = TenantBlock::sample_ranges(&profiles, |profile| profile.series == place);
            let totals = part.sum_by_stack(&ranges, &ComputePool::inline()).unwrap();
            let tenant = part.meta.tenant.clone();
            let kind = series.value_type.kind.clone();
            let pod = series.labels().get("pod").unwrap().to_owned();
            let of_series = profiles.iter().filter(|profile| profile.series == place);
            *counts.entry((tenant.clone(), pod.clone(), kind.clone())).or_default() +=
                of_series.count() as i64;
            if !ranges.is_empty() {
                *by_series.entry((tenant.clone(), pod, kind.clone())).or_default() +=
                    totals.iter().sum::<i64>();
            }
            for (stack, total) in totals.iter().enumerate().filter(|(_, total)| **total != 0) {
                let symbols = &names.dictionary.symbols;
                let leaf = names.dictionary.stacks.locations(names.stacks[stack]).next();
                let line = leaf.and_then(|leaf| symbols.lines(leaf).first().copied());
                if let Some(line) = line {
                    let name = symbols.function_name(line.function).to_owned();
                    *by_leaf.entry((tenant.clone(), kind.clone(), name)).or_default() += total;
                }
            }
        }
    }
    by_leaf.retain(|_, total| *total != 0);
    let listed = |rows: BTreeMap<(String, String, String), i64>| {
        rows.into_iter().map(|((a, b, c), total)| (a, b, c, total)).collect::<Vec<_>>()
    };
    let (by_series, by_leaf, counts) = (listed(by_series), listed(by_leaf), listed(counts));
    let buckets = tempfile::tempdir().unwrap();
    downsample(block, &LocalFolder::open(buckets.path()));
    for folder in [folder, buckets] {
        let results = query_sums(&python, folder.path());
        assert_eq!(results.len(), 5);
        let expected = [&by_series, &by_series, &by_series, &by_leaf, &counts];
        for (ours, theirs) in expected.into_iter().zip(&results) {
            assert!(!ours.is_empty());
            let differs = ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs);
            assert_eq!((differs, ours.len()), (None, theirs.len()));
        }
    }
}

/// Merges a block into buckets of a day, which are fewer than its profiles.
fn downsample(block: Block, folder: &LocalFolder) {
    let tier = Tier::OneDay;
    let origin = Some(origin_of_tier("buckets", tier));
    let output = MergeOutput { id: "buckets".to_owned(), origin, tier, ..MergeOutput::default() };
    let mut scratch = || Err(std::io::ErrorKind::Unsupported.into());
    let profiles = block.meta().tenants[0].profiles.1;
    let merged = merge_into(folder, &output, vec![block.into()], &mut scratch, &mut |_| ()).unwrap();
    assert!(merged.meta.tenants[0].profiles.1 < profiles);
}

/// Runs the queries of `sums.py`.
fn query_sums(python: &str, folder: &Path) -> Vec<Vec<(String, String, String, i64)>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sums.py");
    let output = Command::new(python).arg(script).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
