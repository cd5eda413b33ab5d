//! Blocks on the reference set R: bytes per sample, and the speed of building, merging and adding up.
//!
//! `cargo bench -p athanor-block` runs on R-1k; `-- --profiles 10000` takes R-10k. Each figure stands beside a floor.
#![expect(clippy::unwrap_used, reason = "a bench")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use athanor_block::{Block, Builder, FILES, Folder, LocalFolder, MemoryFolder, merge};
use athanor_chassis::compute::Compute;
use athanor_profile::generate::Reference;
use athanor_profile::pprof::{Inflater, Limits};

fn best(times: usize, mut run: impl FnMut()) -> Duration {
    (0..times)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .min()
        .unwrap()
}

fn gzipped(raw: &[u8]) -> Vec<u8> {
    let mut gzip = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut out = vec![0; gzip.gzip_compress_bound(raw.len())];
    let length = gzip.gzip_compress(raw, &mut out).unwrap();
    out.truncate(length);
    out
}

fn mega(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

/// A block of profiles `range` in memory, with the raw bytes and the time spent after generating them.
fn build(
    set: &Reference,
    range: std::ops::Range<usize>,
    gzip: bool,
) -> (MemoryFolder, u64, Duration, Duration) {
    let mut scratch = || Ok(Arc::new(MemoryFolder::default()) as Arc<dyn Folder>);
    let mut builder = Builder::new("bench", Limits::default(), 1 << 30, &mut scratch);
    let (mut taken, mut inflating) = (Duration::ZERO, Duration::ZERO);
    let mut inflater = Inflater::default();
    for number in range {
        let raw = set.pprof(number);
        let bytes = if gzip { gzipped(&raw) } else { raw };
        let start = Instant::now();
        black_box(inflater.inflate(&bytes, usize::MAX).unwrap());
        inflating += start.elapsed();
        let start = Instant::now();
        builder.add_pprof("bench", &set.labels(number), &bytes).unwrap();
        taken += start.elapsed();
    }
    let raw_bytes = builder.counts().raw_bytes;
    let folder = MemoryFolder::default();
    let start = Instant::now();
    builder.finish(&folder).unwrap();
    (folder, raw_bytes, taken + start.elapsed(), inflating)
}

fn sizes(block: &Block) {
    let samples = block.meta().samples() as f64;
    for file in FILES {
        let bytes = block.meta().files[file].bytes;
        println!("  {file:20} {bytes:>10} bytes  {:.4} bytes/sample", bytes as f64 / samples);
    }
    let meta = block.meta().encode().len() as u64;
    let all = (block.meta().bytes() + meta) as f64 / samples;
    println!("  all with meta.json {all:.4} bytes/sample over {samples} samples (target 1.5, entropy 0.89)");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let asked =
        arguments.iter().position(|argument| argument == "--profiles").map(|at| arguments[at + 1].parse());
    let count: usize = asked.map_or(1200, Result::unwrap);
    let set = Reference::new(1);
    let (folder, raw, time, inflating) = build(&set, 0..count, true);
    println!(
        "build, gzipped pprof in: {:.0} MB of raw pprof/core s; floor, inflate alone: {:.0}; ratio {:.0} %",
        mega(raw, time),
        mega(raw, inflating),
        100.0 * inflating.as_secs_f64() / time.as_secs_f64()
    );
    let block = Block::open(Arc::new(folder)).unwrap();
    sizes(&block);
    let disk = tempfile::tempdir().unwrap();
    merge(&LocalFolder::open(disk.path()), "disk", std::slice::from_ref(&block)).unwrap();
    let block = Block::open(Arc::new(LocalFolder::open(disk.path()))).unwrap();
    add_up(&block);
    merging(&set, count);
}

fn add_up(block: &Block) {
    let compute = Compute::threads(NonZeroUsize::new(2).unwrap(), 4).unwrap();
    let part = block.part("bench").unwrap();
    let samples = part.meta.samples;
    let all = 0..samples;
    let expected = part.whole_totals(|_| true).unwrap();
    let scan = best(9, || assert_eq!(part.totals(std::slice::from_ref(&all), &compute).unwrap(), expected));
    let rollup = best(9, || drop(black_box(part.whole_totals(|_| true).unwrap())));
    let names = best(5, || drop(black_box(part.names().unwrap())));
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
        "whole period from the roll-up: {:.1} ms; all names into a dictionary: {:.1} ms",
        rollup.as_secs_f64() * 1e3,
        names.as_secs_f64() * 1e3
    );
}

fn merging(set: &Reference, count: usize) {
    let pieces = 4;
    let blocks: Vec<Block> = (0..pieces)
        .map(|piece| build(set, piece * count / pieces..(piece + 1) * count / pieces, false).0)
        .map(|folder| Block::open(Arc::new(folder)).unwrap())
        .collect();
    let bytes: u64 = blocks.iter().map(|block| block.meta().bytes()).sum();
    let samples: u64 = blocks.iter().map(|block| block.meta().samples()).sum();
    let time = best(3, || drop(merge(&MemoryFolder::default(), "merged", &blocks).unwrap()));
    let reading = best(3, || {
        for block in &blocks {
            let part = block.part("bench").unwrap();
            let all = 0..part.meta.samples;
            black_box(part.totals(std::slice::from_ref(&all), &Compute::inline()).unwrap());
        }
    });
    println!(
        "merge {pieces} blocks: {:.1} MB of block/core s, {:.1} M samples/s; floor, reading them: {:.1} MB/s; ratio {:.0} %",
        mega(bytes, time),
        samples as f64 / 1e6 / time.as_secs_f64(),
        mega(bytes, reading),
        100.0 * reading.as_secs_f64() / time.as_secs_f64()
    );
}
