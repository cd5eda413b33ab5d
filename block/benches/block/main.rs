//! Blocks on the reference set R: bytes per sample, and the speed of building, merging and adding up.
//!
//! `cargo bench -p athanor-block --bench block` runs on R-1k; `-- --profiles 10000` takes R-10k, but for building;
//! `--only build`, `merge`, `day` or `tenants` does one part. `--write FOLDER` writes the blocks of R that `--merge-in FOLDER` merges. Each figure stands beside a floor. What one thread does is measured in processor time.
#![expect(clippy::unwrap_used, reason = "a bench")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

mod day;
mod floor;
#[path = "../../tests/downsampling/origin.rs"]
mod origin;

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use athanor_block::{
    Block, BlockBuilder, BlockFolder, LocalFolder, MemoryFolder, MemoryProfiles, MergeOutput, MergeSource,
    PARQUET_FILES, TenantBlockSource, merge, merge_into, write_from_memory,
};
use athanor_chassis::Tier;
use athanor_chassis::compute::ComputePool;
use athanor_profile::formats::pprof::{DecodeLimits, DecodedProfile, Inflater, PprofDecoder, gzip};
use athanor_profile::generate::ReferenceDataset;
use athanor_profile::store_interface::source::MemorySource;
use athanor_profile::{Dictionary, ProfileSource};
use origin::origin_of_tier;

/// Processor time of this thread.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn best_by(clock: impl Fn() -> Duration, times: usize, mut run: impl FnMut()) -> Duration {
    let rounds = (0..times).map(|_| {
        let start = clock();
        run();
        clock() - start
    });
    rounds.min().unwrap()
}

/// Wall time, for what runs on several threads.
fn best(times: usize, run: impl FnMut()) -> Duration {
    let start = Instant::now();
    best_by(|| start.elapsed(), times, run)
}

fn mega(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

/// Where the time of building went.
#[derive(Default)]
struct Built {
    folder: MemoryFolder,
    raw_bytes: u64,
    /// Inflating, alone.
    inflating: Duration,
    /// Inflating and decoding, alone.
    decoding: Duration,
    /// All that building takes.
    building: Duration,
}

/// A block of profiles `range` in memory.
fn build(set: &ReferenceDataset, range: std::ops::Range<usize>, measured: bool) -> Built {
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn BlockFolder>);
    let mut builder = BlockBuilder::new("bench", DecodeLimits::default(), 1 << 30, &mut scratch);
    let mut built = Built::default();
    let mut inflater = Inflater::default();
    let (mut decoder, mut dictionary, mut decoded) =
        (PprofDecoder::default(), Dictionary::default(), DecodedProfile::default());
    for number in range {
        let raw = set.pprof(number);
        let bytes = if measured { gzip(&raw) } else { raw };
        if measured {
            let start = cpu();
            let raw = inflater.inflate(&bytes, usize::MAX).unwrap();
            built.inflating += cpu() - start;
            decoder.decode(raw, &DecodeLimits::default(), &mut dictionary, &mut decoded).unwrap();
            built.decoding += cpu() - start;
        }
        let start = cpu();
        builder.add_pprof("bench", &set.labels(number), &bytes).unwrap();
        built.building += cpu() - start;
    }
    built.raw_bytes = builder.counts().raw_bytes;
    let start = cpu();
    builder.finish(&built.folder).unwrap();
    built.building += cpu() - start;
    built
}

fn sizes(block: &Block) {
    let samples = block.meta().samples() as f64;
    for file in PARQUET_FILES {
        let bytes = block.meta().files[file].bytes;
        println!("  {file:20} {bytes:>10} bytes  {:.4} bytes/sample", bytes as f64 / samples);
    }
    let meta = block.meta().encode().len() as u64;
    let all = (block.meta().bytes() + meta) as f64 / samples;
    println!("  all with meta.json {all:.4} bytes/sample over {samples} samples (target 1.5, entropy 0.89)");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after =
        |name: &str| arguments.iter().position(|argument| argument == name).map(|at| &arguments[at + 1]);
    let count: usize = after("--profiles").map_or(1200, |count| count.parse().unwrap());
    if let Some(folder) = after("--merge-in") {
        return merge_in(std::path::Path::new(folder));
    }
    if let Some(folder) = after("--write") {
        return write_pieces(&ReferenceDataset::new(1), count, std::path::Path::new(folder));
    }
    let only = after("--only").map(String::as_str);
    let set = ReferenceDataset::new(1);
    if only.is_none_or(|only| only == "build") {
        building(&set, count.min(ReferenceDataset::R_1K_PROFILES));
    }
    if only.is_none_or(|only| only == "merge") {
        merging(&set, count);
    }
    if only.is_none_or(|only| only == "day") {
        day::tenth_of_a_day();
    }
    if only.is_none_or(|only| only == "tenants") {
        tenants(&set, 1000);
    }
}

fn building(set: &ReferenceDataset, count: usize) {
    let built = build(set, 0..count, true);
    println!(
        "build {count} profiles, gzipped pprof in: {:.0} MB of raw pprof/core s; floor, inflate and decode: {:.0}; \
         ratio {:.0} %; inflate alone: {:.0}",
        mega(built.raw_bytes, built.building),
        mega(built.raw_bytes, built.decoding),
        100.0 * built.decoding.as_secs_f64() / built.building.as_secs_f64(),
        mega(built.raw_bytes, built.inflating),
    );
}

fn add_up(block: &Block) {
    let compute = ComputePool::with_threads(NonZeroUsize::new(2).unwrap(), 4).unwrap();
    let part = block.tenant_block("bench").unwrap();
    let samples = part.meta.samples;
    let all = 0..samples;
    let expected = part.sum_rollup(|_| true).unwrap();
    let scan =
        best(9, || assert_eq!(part.sum_by_stack(std::slice::from_ref(&all), &compute).unwrap(), expected));
    let rollup = best(9, || drop(black_box(part.sum_rollup(|_| true).unwrap())));
    let names = best(5, || drop(black_box(part.read_names().unwrap())));
    let (cold, warm, tree) = trees(block, &expected);
    let stacks: Vec<u32> = (0..samples).map(|at| (at * 7919 % u64::from(part.meta.stacks)) as u32).collect();
    let floor = best(5, || {
        let mut totals = vec![0i64; part.meta.stacks as usize];
        stacks.iter().for_each(|&stack| totals[stack as usize] += 1);
        black_box(totals);
    });
    println!(
        "add up {samples} samples on 2 threads: {:.1} ms ({:.0} M/s); floor, dense adds alone on 1: {:.1} ms; ratio {:.1}",
        scan.as_secs_f64() * 1e3,
        samples as f64 / 1e6 / scan.as_secs_f64(),
        floor.as_secs_f64() * 1e3,
        scan.as_secs_f64() / floor.as_secs_f64()
    );
    println!(
        "whole period from the roll-up: {:.1} ms; all names into a dictionary: {:.1} ms; a tree of {} stacks and {tree} \
         nodes: {:.1} ms, {:.1} ms when the tables are there",
        rollup.as_secs_f64() * 1e3,
        names.as_secs_f64() * 1e3,
        part.meta.stacks,
        cold.as_secs_f64() * 1e3,
        warm.as_secs_f64() * 1e3,
    );
}

/// The time of a tree of everything, at first and then, and its nodes.
fn trees(block: &Block, totals: &[i64]) -> (Duration, Duration, usize) {
    let block = Arc::new(block.clone());
    let source = || TenantBlockSource::new(block.clone(), "bench", ComputePool::inline()).unwrap();
    let cold = best_by(cpu, 5, || drop(black_box(source().tree(totals).unwrap())));
    let kept = source();
    let nodes = kept.tree(totals).unwrap().nodes().len();
    (cold, best_by(cpu, 5, || drop(black_box(kept.tree(totals).unwrap()))), nodes)
}

/// Ten blocks into one, and what that is like.
fn merging(set: &ReferenceDataset, count: usize) {
    let pieces = 10;
    let folders: Vec<MemoryFolder> = (0..pieces)
        .map(|piece| build(set, piece * count / pieces..(piece + 1) * count / pieces, false).folder)
        .collect();
    let blocks: Vec<Block> =
        folders.iter().map(|folder| Block::open(Arc::new(folder.clone())).unwrap()).collect();
    let bytes: u64 = blocks.iter().map(|block| block.meta().bytes()).sum();
    let samples: u64 = blocks.iter().map(|block| block.meta().samples()).sum();
    let merged = || {
        let folder = MemoryFolder::default();
        merge(&folder, "merged", &blocks).unwrap();
        folder
    };
    let time = best_by(cpu, 3, || drop(merged()));
    let output = merged();
    let decoding = (0..3).map(|_| folders.iter().map(floor::decode).sum()).min().unwrap();
    let encoding = (0..3).map(|_| floor::encode(&output)).min().unwrap();
    let floor: Duration = decoding + encoding;
    println!(
        "merge {pieces} blocks of {:.1} MB: {:.1} MB of block/core s, {:.1} M samples/s; floor, Parquet alone: {:.1} MB/s \
         (decoding {:.1}, encoding {:.1}); ratio {:.0} %",
        bytes as f64 / 1e6,
        mega(bytes, time),
        samples as f64 / 1e6 / time.as_secs_f64(),
        mega(bytes, floor),
        mega(bytes, decoding),
        mega(bytes, encoding),
        100.0 * floor.as_secs_f64() / time.as_secs_f64(),
    );
    downsampling(&blocks, bytes, samples);
    let disk = tempfile::tempdir().unwrap();
    for (piece, folder) in folders.iter().enumerate() {
        copy(folder, &disk.path().join(piece.to_string()));
    }
    copy(&output, &disk.path().join("whole"));
    drop((blocks, folders, output));
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    assert!(alone.arg("--merge-in").arg(disk.path()).status().unwrap().success());
    let whole = Block::open(Arc::new(LocalFolder::open(disk.path().join("whole")))).unwrap();
    sizes(&whole);
    add_up(&whole);
}

/// Blocks into each downsampled tier, the coarser ones from the finer.
fn downsampling(blocks: &[Block], bytes: u64, samples: u64) {
    let mut sources = blocks.to_vec();
    for tier in Tier::DOWNSAMPLED {
        let merged = || {
            let folder = MemoryFolder::default();
            let output = MergeOutput {
                id: "tier".to_owned(),
                origin: Some(origin_of_tier("tier", tier)),
                tier,
                ..MergeOutput::default()
            };
            let sources = sources.iter().cloned().map(MergeSource::from).collect();
            let mut scratch = || Err(std::io::ErrorKind::Unsupported.into());
            merge_into(&folder, &output, sources, &mut scratch, &mut |_| ()).unwrap();
            folder
        };
        let time = best_by(cpu, 3, || drop(merged()));
        let block = Block::open(Arc::new(merged())).unwrap();
        println!(
            "tier {}: {:.3} core s, {:.1} % of the raw bytes, {:.1} % of the raw samples",
            tier.name(),
            time.as_secs_f64(),
            100.0 * block.meta().bytes() as f64 / bytes as f64,
            100.0 * block.meta().samples() as f64 / samples as f64,
        );
        sources = vec![block];
    }
}

fn copy(from: &MemoryFolder, to: &std::path::Path) {
    std::fs::create_dir(to).unwrap();
    for name in from.names() {
        let length = from.length(&name).unwrap() as usize;
        std::fs::write(to.join(&name), from.read(&name, 0, length).unwrap()).unwrap();
    }
}

/// Writes ten blocks into a new folder, for `--merge-in`.
fn write_pieces(set: &ReferenceDataset, count: usize, folder: &std::path::Path) {
    std::fs::create_dir_all(folder).unwrap();
    for piece in 0..10 {
        let block = build(set, piece * count / 10..(piece + 1) * count / 10, false).folder;
        copy(&block, &folder.join(piece.to_string()));
    }
}

/// Merges the blocks in a folder, in a process that does nothing else, from disk to disk.
fn merge_in(folder: &std::path::Path) {
    let blocks: Vec<Block> = (0..10)
        .map(|piece| Block::open(Arc::new(LocalFolder::open(folder.join(piece.to_string())))).unwrap())
        .collect();
    let before = peak();
    let start = cpu();
    merge(&LocalFolder::create(folder.join("merged")).unwrap(), "merged", &blocks).unwrap();
    println!(
        "the same from disk to disk: {:.2} core s; most memory ever held {} MiB, {} MiB before",
        (cpu() - start).as_secs_f64(),
        peak() >> 20,
        before >> 20
    );
}

/// What footers take in a block of many tenants, each with a minute of five pods: 20 profiles.
fn tenants(set: &ReferenceDataset, count: usize) {
    let mut held = MemorySource::default();
    (0..20).for_each(|number| held.add(&set.labels(number), &set.profile(number), number as u128));
    let names: Vec<String> = (0..count).map(|number| format!("tenant-{number:04}")).collect();
    let folder = MemoryFolder::default();
    let parts = names.iter().map(|name| (name.as_str(), &held as &dyn MemoryProfiles));
    let bytes = write_from_memory(&folder, "tenants", None, parts).unwrap().bytes();
    let mut all = 0;
    for file in PARQUET_FILES {
        let end = folder.length(file).unwrap();
        let tail = folder.read(file, end - 8, 4).unwrap();
        let footer = u64::from(u32::from_le_bytes(tail[..].try_into().unwrap()));
        all += footer;
        println!("  {file:20} {end:>10} bytes, its footer {footer:>8}");
    }
    println!(
        "{count} tenants, {:.1} kB each: footers {} bytes a tenant, {:.2} % of the block (goal 2 %)",
        bytes as f64 / 1e3 / count as f64,
        all / count as u64,
        100.0 * all as f64 / bytes as f64
    );
}

/// Most bytes that this process ever had in memory, blocks in memory included.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default();
    kib << 10
}
