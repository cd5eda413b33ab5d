//! Moments of samples: kept with their rows through building and merging, in bounded row groups, and free for who does
//! not ask for them.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::ops::Range;
use std::process::Command;
use std::sync::Arc;

use athanor_block::{
    Block, BlockBuilder, BlockFolder, LocalFolder, MemoryFolder, ProfileProjection, RowProjection,
    TenantBlockSource, merge,
};
use athanor_chassis::compute::ComputePool;
use athanor_profile::formats::pprof::{DecodeLimits, encode};
use athanor_profile::{Labels, Profile, ProfileSource, ValueType};

const TIME: i64 = 1_700_000_000_000_000_000;

/// A profile of one stack for each list of moments.
fn profile(time: i64, rows: &[&[i64]]) -> Vec<u8> {
    let mut profile = Profile::default();
    profile.header.types = vec![ValueType::new("cpu", "nanoseconds")];
    profile.header.time_nanos = time;
    for (row, moments) in rows.iter().enumerate() {
        let stack = profile.dictionary.intern_named_stack(["main", &format!("f{row}")].into_iter());
        profile.samples.moments.add(row, moments.iter().copied());
        profile.samples.push(stack, 0, &[1]);
    }
    encode(&profile)
}

fn build(folder: &dyn BlockFolder, profiles: &[Vec<u8>]) {
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let mut builder = BlockBuilder::new("moments", DecodeLimits::default(), 1 << 30, &mut scratch);
    profiles.iter().for_each(|bytes| builder.add_pprof("acme", &Labels::default(), bytes).unwrap());
    builder.finish(folder).unwrap();
}

fn built(profiles: &[Vec<u8>]) -> Block {
    let folder = MemoryFolder::default();
    build(&folder, profiles);
    Block::open(Arc::new(folder)).unwrap()
}

fn moments(block: &Block, ranges: &[Range<u64>]) -> Vec<Vec<i64>> {
    let mut all = Vec::new();
    block.tenant_block("acme").unwrap().read_timestamps(ranges, |_, times| all.push(times.to_vec())).unwrap();
    all
}

fn all(block: &Block) -> Vec<Vec<i64>> {
    moments(block, std::slice::from_ref(&(0..block.meta().samples())))
}

#[test]
fn block_without_timestamps_has_no_timestamp_column() {
    let (with, without) = (built(&[profile(1, &[&[5], &[]])]), built(&[profile(1, &[&[], &[]])]));
    assert_eq!((with.meta().format, without.meta().format), (2, 2));
    assert!(with.timestamp_bytes().unwrap().is_some_and(|bytes| bytes > 0));
    assert_eq!(without.timestamp_bytes().unwrap(), None);
    assert_eq!((all(&with), all(&without)), (vec![vec![5]], vec![]));
    let folder = MemoryFolder::default();
    merge(&folder, "both", &[without, with]).unwrap();
    let both = Block::open(Arc::new(folder)).unwrap();
    both.verify(|_| {}).unwrap();
    assert_eq!((both.meta().format, all(&both)), (2, vec![vec![5]]));
}

#[test]
fn rows_with_many_moments_lie_in_row_groups_of_bounded_size() {
    let many: Vec<i64> = (0..700_000).map(|at| TIME + at * 50_000_000).collect();
    let folder = MemoryFolder::default();
    build(&folder, &[profile(TIME, &[&many, &[], &many, &[7], &many[..3]])]);
    let block = Block::open(Arc::new(folder)).unwrap();
    block.verify(|_| {}).unwrap();
    // The third row fills a group, the rest is another one.
    assert_eq!(block.meta().tenants[0].groups[2].1, 2);
    let lengths = |ranges: &[Range<u64>]| moments(&block, ranges).iter().map(Vec::len).collect::<Vec<_>>();
    let mut whole: Vec<usize> = all(&block).iter().map(Vec::len).collect();
    whole.sort_unstable();
    assert_eq!(whole, [1, 3, 700_000, 700_000]);
    let apart: Vec<usize> = (0..5).flat_map(|row| lengths(std::slice::from_ref(&(row..row + 1)))).collect();
    assert_eq!(apart, lengths(&[0..1, 1..5]));
    let folder = MemoryFolder::default();
    merge(&folder, "moments", std::slice::from_ref(&block)).unwrap();
    let merged = Block::open(Arc::new(folder)).unwrap();
    assert_eq!(all(&merged), all(&block));
}

#[test]
fn whoever_does_not_ask_for_them_fetches_none_of_their_bytes() {
    let rows: Vec<Vec<i64>> =
        (0..50).map(|row| (0..1000).map(|at| TIME + at * at * 97 + row).collect()).collect();
    let rows: Vec<&[i64]> = rows.iter().map(Vec::as_slice).collect();
    let block = built(&[profile(1, &rows), profile(2, &rows)]);
    let of_moments = block.timestamp_bytes().unwrap().unwrap();
    let (all, _) = block.tenant_range("acme", "samples.parquet").unwrap();
    assert!(of_moments > (all.end - all.start) / 2);
    let source = TenantBlockSource::new(Arc::new(block), "acme", ComputePool::inline()).unwrap();
    source.profiles().unwrap();
    source.bytes_of_profiles(ProfileProjection::All).unwrap();
    for wanted in [
        RowProjection { totals: true, ..RowProjection::default() },
        RowProjection { each: true, requests: true, ..RowProjection::default() },
    ] {
        let fetched = source.bytes_of_rows(&[0], wanted).unwrap();
        let of_samples = fetched.iter().filter(|(file, _)| *file == "samples.parquet");
        let last = of_samples.map(|(_, range)| range.end).max().unwrap();
        assert!(last <= all.end - of_moments, "{last} of {all:?}, of which {of_moments} are of moments");
    }
}

#[test]
fn duckdb_reads_them() {
    #[expect(clippy::disallowed_methods, reason = "the test's own switch")]
    let python = std::env::var("ATHANOR_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import duckdb"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        println!("skip: duckdb_reads_them: no Python with DuckDB");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rows: [&[i64]; 3] = [&[TIME + 9, TIME, TIME + 9], &[], &[-1]];
    build(&LocalFolder::open(folder.path()), &[profile(TIME, &rows), profile(TIME + 1, &rows[..1])]);
    let script = "import sys, duckdb\nfor row in duckdb.sql(f\"select profile, timestamps, make_timestamp_ns(timestamps[1]) \
                  from '{sys.argv[1]}/samples.parquet' order by all\").fetchall(): print(*row, sep='; ')";
    let output = Command::new(python).args(["-c", script]).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lists: Vec<&str> = stdout.lines().map(|line| line.split("; ").nth(1).unwrap()).collect();
    let timed = format!("[{TIME}, {}, {}]", TIME + 9, TIME + 9);
    assert_eq!(lists, ["[-1]", timed.as_str(), "None", timed.as_str()]);
    assert!(stdout.contains("2023-11-14 22:13:20"), "{stdout}");
}
