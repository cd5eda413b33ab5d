//! How fast answers are packed and read, beside two floors: copying the bytes, and writing and reading as many numbers.
//!
//! Throughput is in packed bytes.

#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;

use athanor_profile::Dictionary;
use athanor_profile::call_tree::tree::TreeBuilder;
use athanor_profile::encoding::codec::{CodecReader, put_varint};
use athanor_query::{
    MAX_CHUNK_BYTES, MergedProfile, PartialChunkBuffer, PartialResult, ProfileQuery, QueryKind, StackFilter,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Nodes of the tree, names that they share, and how deep it is.
const NODES: u64 = 1_000_000;
const NAMES: u64 = 50_000;
const DEPTH: u64 = 40;
const PERIOD: i64 = 10_000_000;

/// A number that follows from another, and looks like chance.
fn scatter(number: u64) -> u64 {
    let product = u128::from(number ^ 0x5851_F42D_4C95_7F2D) * 0x9E37_79B9_7F4A_7C15;
    product as u64 ^ (product >> 64) as u64
}

fn name(number: u64) -> String {
    format!("github.com/example/service/internal/package{}.(*Type).method{number}", number % 500)
}

/// Stacks that leave each other at some depth, as those of one service do.
fn tree() -> PartialResult {
    let mut builder = TreeBuilder::with_capacity(NODES as usize);
    let names: Vec<u32> = (0..NAMES).map(|number| builder.name(&name(number))).collect();
    let (mut path, mut nodes, mut stack) = (Vec::new(), 0, 0);
    while nodes < NODES {
        stack += 1;
        path.truncate((scatter(stack) % DEPTH) as usize);
        while (path.len() as u64) < DEPTH {
            let caller = path.last().copied().unwrap_or(TreeBuilder::ROOT_NODE);
            let callee = names[(scatter(nodes) % NAMES) as usize];
            path.push(builder.child(caller, callee));
            nodes += 1;
        }
        builder.add(path[DEPTH as usize - 1], (1 + scatter(stack) as i64 % 50).abs() * PERIOD);
    }
    PartialResult::Tree(builder.finish())
}

fn profile() -> PartialResult {
    let mut dictionary = Dictionary::default();
    let mut totals = Vec::new();
    for stack in 0..100_000 {
        let depth = 5 + scatter(stack) % 20;
        let names: Vec<String> = (0..depth).map(|at| name(scatter(at * (stack % 1_000)) % NAMES)).collect();
        let id = dictionary.intern_named_stack(names.iter().map(String::as_str)) as usize;
        totals.resize(totals.len().max(id + 1), 0);
        totals[id] += PERIOD;
    }
    PartialResult::Profile(Box::new(MergedProfile { dictionary, totals, profiles: 1 }))
}

fn wire(criterion: &mut Criterion) {
    for (name, partial, what) in [
        ("tree", tree(), QueryKind::Tree(StackFilter::default())),
        ("profile", profile(), QueryKind::Profile(StackFilter::default(), None)),
    ] {
        let ask = ProfileQuery { what, ..ProfileQuery::default() };
        let bytes: Vec<u8> = partial.pack().unwrap().flatten().collect();
        let mut group = criterion.benchmark_group(format!(
            "{name} of {} bytes in memory, {} packed",
            partial.bytes(),
            bytes.len()
        ));
        group.sample_size(10).throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function("pack", |bench| bench.iter(|| partial.pack().unwrap().remaining_bytes()));
        group.bench_function("read", |bench| {
            bench.iter(|| {
                let mut received = PartialChunkBuffer::default();
                bytes.chunks(MAX_CHUNK_BYTES).for_each(|piece| received.push(piece).unwrap());
                received.unpack(&ask).unwrap()
            });
        });
        group.bench_function("floor: copy", |bench| bench.iter(|| black_box(&bytes).clone()));
        // Half of the numbers take one byte, the others two.
        let numbers: Vec<u64> = (0..bytes.len() as u64 * 2 / 3).map(|at| (at % 2) * 300).collect();
        group.bench_function("floor: write numbers", |bench| {
            bench.iter(|| {
                let mut out = Vec::new();
                black_box(&numbers).iter().for_each(|&number| put_varint(&mut out, number));
                out
            });
        });
        let mut written = Vec::new();
        numbers.iter().for_each(|&number| put_varint(&mut written, number));
        group.bench_function("floor: read numbers", |bench| {
            bench.iter(|| {
                let mut unpacker = CodecReader::new(black_box(&written));
                (0..numbers.len()).map(|_| unpacker.read_number().unwrap()).fold(0, u64::wrapping_add)
            });
        });
    }
}

criterion_group!(benches, wire);
criterion_main!(benches);
