//! How fast flight recordings become pprof, beside a floor: the hash of their bytes, which visits each once.
//!
//! `cargo bench -p athanor-profile --bench jfr -- --ratio`. The chunks of real recordings are put one after the other until
//! they have some ten megabytes; G has samples only, of a thousand stacks that are forty deep.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use athanor_profile::formats::jfr::{JfrLimits, LabelsSnapshot, RecordingInfo, read};
use athanor_profile::generate::{FlightChunk, FlightEvent};
use criterion::{Criterion, Throughput};
use xxhash_rust::xxh3::xxh3_128;

const BYTES: usize = 30 << 20;
const ROUNDS: usize = 20;

struct Set {
    name: String,
    raw: Vec<u8>,
}

impl Set {
    fn of(name: &str, chunk: &[u8]) -> Self {
        let raw = chunk.repeat((BYTES / chunk.len()).max(1));
        Set { name: name.to_owned(), raw }
    }
    fn generated() -> Self {
        let stack = |number: u32| {
            let frame = |depth: u32| {
                (format!("com/shop/Class{}", (number * 7 + depth) % 500), "call".to_owned(), depth)
            };
            (0..40).map(frame).collect()
        };
        let event = |number: u32| FlightEvent {
            name: "jdk.ExecutionSample",
            stack: stack(number % 1_000),
            numbers: vec![("contextId", u64::from(number % 3))],
            state: Some("STATE_RUNNABLE"),
            ..FlightEvent::default()
        };
        let events = (0..100_000).map(event).collect();
        Set::of("G", &FlightChunk { compressed: true, ticks: 1_000_000_000, events }.chunk())
    }
    fn real() -> Vec<Self> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/jfr");
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut sets = Vec::new();
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let bytes = std::fs::read(&path).unwrap();
            let raw = athanor_profile::formats::pprof::inflate(&bytes, 1 << 30).unwrap();
            if athanor_profile::formats::jfr::is_recording(&raw) {
                sets.push(Set::of(&name, &raw));
            }
        }
        sets
    }
}

fn ours(set: &Set) {
    let about = RecordingInfo { sample_rate: 100, ..RecordingInfo::default() };
    black_box(read(&set.raw, &about, &LabelsSnapshot::default(), &JfrLimits::default()).unwrap());
}

fn floor(set: &Set) {
    black_box(xxh3_128(&set.raw));
}

/// The best of some rounds taken in turns, so that whatever else the machine does hits both alike.
fn ratio(set: &Set) {
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (best, work) in best.iter_mut().zip([floor, ours]) {
            let start = Instant::now();
            work(set);
            *best = start.elapsed().min(*best);
        }
    }
    let speed = best.map(|time| set.raw.len() as f64 / time.as_secs_f64() / 1e6);
    println!("{}: {} bytes; floor {:.0}, ours {:.0} MB/s", set.name, set.raw.len(), speed[0], speed[1]);
}

fn main() {
    let sets: Vec<Set> = Set::real().into_iter().chain([Set::generated()]).collect();
    if std::env::args().any(|argument| argument == "--ratio") {
        return sets.iter().for_each(ratio);
    }
    let mut criterion = Criterion::default().configure_from_args();
    for set in &sets {
        let mut group = criterion.benchmark_group(&set.name);
        group.throughput(Throughput::Bytes(set.raw.len() as u64));
        group.bench_function("floor", |bench| bench.iter(|| floor(set)));
        group.bench_function("ours", |bench| bench.iter(|| ours(set)));
    }
    criterion.final_summary();
}
