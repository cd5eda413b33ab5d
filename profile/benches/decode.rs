//! How fast pprof is read, beside a floor: the least that any reader must do.
//!
//! The floor inflates, visits every field and number, and hashes the bytes; it keeps nothing. Throughput is
//! in bytes after decompression.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../tests/oracle/message.rs"]
mod message;

use std::hint::black_box;
use std::time::{Duration, Instant};

use athanor_profile::Dictionary;
use athanor_profile::formats::pprof::{DecodeLimits, DecodedProfile, Inflater, PprofDecoder, gzip};
use athanor_profile::generate::ReferenceDataset;
use criterion::{Criterion, Throughput, criterion_group};
use prost::Message;
use xxhash_rust::xxh3::xxh3_128;

/// Compressed profiles and their size in plain bytes.
struct Set {
    name: &'static str,
    files: Vec<Vec<u8>>,
    raw_bytes: u64,
}

impl Set {
    fn new(name: &'static str, files: Vec<Vec<u8>>) -> Self {
        let mut inflater = Inflater::default();
        let size = |file: &Vec<u8>| inflater.inflate(file, 1 << 30).unwrap().len() as u64;
        let raw_bytes = files.iter().map(size).sum();
        Set { name, files, raw_bytes }
    }
    fn reference() -> Self {
        let set = ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED);
        Set::new("R", set.profiles(40).map(|raw| gzip(&raw)).collect())
    }
    /// Real files, gzipped again so that all decompressors start alike.
    fn corpus() -> Option<Self> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/pprof");
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).ok()? {
            let bytes = std::fs::read(entry.ok()?.path()).ok()?;
            let Ok(raw) = athanor_profile::formats::pprof::inflate(&bytes, 1 << 30) else { continue };
            if athanor_profile::formats::pprof::decode(&raw, &DecodeLimits::default()).is_ok() {
                files.push(gzip(&raw));
            }
        }
        Some(Set::new("C", files))
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// Visits each field of a message; `nested` says what its fields of bytes are.
fn walk(bytes: &[u8], nested: fn(u64) -> Kind) -> u64 {
    let (mut at, mut sum) = (0, 0u64);
    while at < bytes.len() {
        let key = varint(bytes, &mut at);
        if key & 7 == 0 {
            sum = sum.wrapping_add(varint(bytes, &mut at));
            continue;
        }
        let length = varint(bytes, &mut at) as usize;
        let content = &bytes[at..at + length];
        at += length;
        let part = match nested(key >> 3) {
            Kind::Text => length as u64,
            Kind::Flat => walk(content, |_| Kind::Text),
            Kind::Location => walk(content, |_| Kind::Flat),
            Kind::Sample => walk(content, |field| if field == 3 { Kind::Flat } else { Kind::Numbers }),
            Kind::Numbers => {
                let (mut at, mut sum) = (0, 0u64);
                while at < content.len() {
                    sum = sum.wrapping_add(varint(content, &mut at));
                }
                sum
            }
        };
        sum = sum.wrapping_add(part);
    }
    sum
}

enum Kind {
    Text,
    Flat,
    Numbers,
    Location,
    Sample,
}

fn top(field: u64) -> Kind {
    match field {
        2 => Kind::Sample,
        4 => Kind::Location,
        6 => Kind::Text,
        13 => Kind::Numbers,
        _ => Kind::Flat,
    }
}

fn inflate(set: &Set, inflater: &mut Inflater) {
    for file in &set.files {
        black_box(inflater.inflate(file, 1 << 30).unwrap());
    }
}

#[inline(never)]
fn floor(set: &Set, inflater: &mut Inflater) {
    for file in &set.files {
        let raw = inflater.inflate(file, 1 << 30).unwrap();
        black_box((walk(raw, top), xxh3_128(raw)));
    }
}

#[derive(Default)]
struct Ours {
    decoder: PprofDecoder,
    dictionary: Dictionary,
    decoded: DecodedProfile,
}

#[inline(never)]
fn ours(set: &Set, inflater: &mut Inflater, state: &mut Ours) {
    for file in &set.files {
        let raw = inflater.inflate(file, 1 << 30).unwrap();
        let Ours { decoder, dictionary, decoded } = state;
        decoder.decode(raw, &DecodeLimits::default(), dictionary, decoded).unwrap();
        black_box(decoded.content.finish(&decoded.header));
    }
}

fn prost(set: &Set, inflater: &mut Inflater) {
    for file in &set.files {
        let raw = inflater.inflate(file, 1 << 30).unwrap();
        black_box(message::Profile::decode(raw).unwrap());
    }
}

/// The sets that are named on the command line; all if none is.
fn sets() -> Vec<Set> {
    let only: Vec<String> = std::env::args().filter(|argument| ["R", "C"].contains(&&**argument)).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|set| set == name);
    let reference = wanted("R").then(Set::reference);
    let corpus = wanted("C").then(Set::corpus).flatten();
    reference.into_iter().chain(corpus).collect()
}

fn decode(criterion: &mut Criterion) {
    for set in sets() {
        let mut group = criterion.benchmark_group(set.name);
        group.throughput(Throughput::Bytes(set.raw_bytes));
        let mut inflater = Inflater::default();
        let mut state = Ours::default();
        group.bench_function("inflate", |bench| bench.iter(|| inflate(&set, &mut inflater)));
        group.bench_function("floor", |bench| bench.iter(|| floor(&set, &mut inflater)));
        group.bench_function("ours", |bench| bench.iter(|| ours(&set, &mut inflater, &mut state)));
        group.bench_function("prost", |bench| bench.iter(|| prost(&set, &mut inflater)));
    }
}

/// The best of many rounds taken in turns, so that whatever else the machine does hits all alike.
fn ratio(set: &Set) {
    let (mut inflater, mut state) = (Inflater::default(), Ours::default());
    ours(set, &mut inflater, &mut state);
    // A small set is over before whatever else disturbs the machine, so it takes more rounds.
    let rounds = if set.raw_bytes < 10_000_000 { 200 } else { 30 };
    let mut best = [Duration::MAX; 4];
    for _ in 0..rounds {
        let mut time = |which: usize, work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            best[which] = best[which].min(start.elapsed());
        };
        time(0, &mut || inflate(set, &mut inflater));
        time(1, &mut || floor(set, &mut inflater));
        time(2, &mut || ours(set, &mut inflater, &mut state));
        time(3, &mut || prost(set, &mut inflater));
    }
    let speed = |which: usize| set.raw_bytes as f64 / best[which].as_secs_f64() / 1e6;
    println!(
        "{}: {} profiles, {} raw bytes; inflate {:.0}, floor {:.0}, ours {:.0}, prost {:.0} MB/s; ours/floor {:.0} %",
        set.name,
        set.files.len(),
        set.raw_bytes,
        speed(0),
        speed(1),
        speed(2),
        speed(3),
        100.0 * speed(2) / speed(1),
    );
}

criterion_group!(benches, decode);

fn main() {
    if !std::env::args().any(|argument| argument == "--ratio") {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
    sets().iter().for_each(ratio);
}
