//! How fast OTLP becomes pprof, beside a floor: visiting every byte once and copying it. Throughput is in bytes of the
//! request, uncompressed.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use athanor_profile::formats::otlp::{OtlpLimits, encode, read};
use athanor_profile::formats::pprof::{DecodeLimits, decode};
use athanor_profile::generate::ReferenceDataset;
use criterion::{Criterion, Throughput, criterion_group};
use xxhash_rust::xxh3::xxh3_128;

const BOUNDS: OtlpLimits = OtlpLimits { profile: 1 << 30, total: 1 << 30, profiles: 10_000 };

struct Set {
    name: &'static str,
    requests: Vec<Vec<u8>>,
    bytes: u64,
}

impl Set {
    fn new(name: &'static str, requests: Vec<Vec<u8>>) -> Self {
        let bytes = requests.iter().map(|request| request.len() as u64).sum();
        Set { name, requests, bytes }
    }
    /// The reference profiles, each as one request.
    fn reference() -> Self {
        let request = |raw: Vec<u8>| {
            let mut profile = decode(&raw, &DecodeLimits::default()).unwrap().0;
            let period = athanor_profile::ValueType { kind: "cpu".into(), unit: "count".into() };
            profile.header.period_type.get_or_insert(period);
            encode(&profile, &[("service.name", "shop")])
        };
        Set::new(
            "R",
            ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED).profiles(40).map(request).collect(),
        )
    }
    /// A real request of a whole host.
    fn host() -> Option<Self> {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/otlp/otel-ebpf-profiler-1.10.pb");
        Some(Set::new("H", vec![std::fs::read(file).ok()?]))
    }
}

fn sets() -> impl Iterator<Item = Set> {
    std::iter::once(Set::reference()).chain(Set::host())
}

#[inline(never)]
fn floor(set: &Set) {
    for request in &set.requests {
        black_box((xxh3_128(request), request.clone()));
    }
}

#[inline(never)]
fn ours(set: &Set) {
    for request in &set.requests {
        let export = read(request, &BOUNDS).unwrap();
        assert!(export.profiles.iter().all(Result::is_ok));
        black_box(export);
    }
}

fn otlp(criterion: &mut Criterion) {
    for set in sets() {
        let mut group = criterion.benchmark_group(set.name);
        group.throughput(Throughput::Bytes(set.bytes));
        group.bench_function("floor", |bench| bench.iter(|| floor(&set)));
        group.bench_function("ours", |bench| bench.iter(|| ours(&set)));
    }
}

/// The best of many rounds taken in turns, so that whatever else the machine does hits both alike.
fn ratio(set: &Set) {
    let mut best = [Duration::MAX; 2];
    for _ in 0..if set.bytes < 1_000_000 { 500 } else { 30 } {
        for (best, work) in best.iter_mut().zip([floor, ours]) {
            let start = Instant::now();
            work(set);
            *best = (*best).min(start.elapsed());
        }
    }
    let [floor, ours] = best.map(|best| set.bytes as f64 / best.as_secs_f64() / 1e6);
    println!("{}: {} bytes; floor {floor:.0}, ours {ours:.0} MB/s", set.name, set.bytes);
}

criterion_group!(benches, otlp);

fn main() {
    if !std::env::args().any(|argument| argument == "--ratio") {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
    sets().for_each(|set| ratio(&set));
}
