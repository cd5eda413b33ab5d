//! The log on a real folder: how fast it takes entries, and how fast it opens. Each figure stands beside a floor that
//! is measured in turns with it: one thread that writes the same bytes into a file made before and syncs each time;
//! one that reads the same files and sums them up.
//!
//! `cargo bench -p athanor-consensus --bench log` takes 1.5 GB in the folder for temporary files; `-- --folder PATH`
//! names another one, on the disk in question. `--only append` or `open` does one part.
#![expect(clippy::unwrap_used, reason = "a bench")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use athanor_chassis::disk::LocalDisk;
use athanor_chassis::{ByteSize, Disk, Random};
use athanor_consensus::Log;
use athanor_consensus::log::{CommitMode, LogConfig, LogIdentity, LogRecord};
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// Rounds of which the best counts.
const ROUNDS: usize = 5;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SEGMENT: u64 = 64 << 20;

/// Processor time of this thread.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn mega(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

/// Time of a round, and of each append in it.
struct Round {
    whole: Duration,
    each: Vec<Duration>,
}

impl Round {
    fn quantile(&self, part: f64) -> u128 {
        let mut each = self.each.clone();
        each.sort_unstable();
        each[((each.len() - 1) as f64 * part) as usize].as_micros()
    }
}

fn faster(best: &mut Option<Round>, round: Round) {
    if best.as_ref().is_none_or(|best| round.whole < best.whole) {
        *best = Some(round);
    }
}

/// What the disk takes by itself: writes of this size, each synced, one after the other.
fn bare(file: &File, payload: &[u8], count: usize) -> Round {
    let (begun, mut each) = (Instant::now(), Vec::with_capacity(count));
    for number in 0..count {
        let start = Instant::now();
        file.write_all_at(payload, (number * payload.len()) as u64 % SEGMENT).unwrap();
        file.sync_data().unwrap();
        each.push(start.elapsed());
    }
    Round { whole: begun.elapsed(), each }
}

/// Producers that each append to a group of their own and wait until it is durable.
fn appended(log: &Log, payload: &Bytes, producers: u32, count: usize) -> Round {
    let begun = Instant::now();
    let each = std::thread::scope(|scope| {
        let running: Vec<_> = (1..=producers)
            .map(|group| {
                scope.spawn(move || {
                    let mut each = Vec::with_capacity(count);
                    let first = log.group_state(group).end.max(1);
                    for index in first..first + (count / producers as usize) as u64 {
                        let start = Instant::now();
                        let (tell, told) = std::sync::mpsc::sync_channel(1);
                        let entry = LogRecord::Entry { group, index, term: 1, data: payload.clone() };
                        log.submit(vec![entry], move |done| tell.send(done).unwrap()).unwrap();
                        told.recv().unwrap().unwrap();
                        each.push(start.elapsed());
                    }
                    each
                })
            })
            .collect();
        running.into_iter().flat_map(|producer| producer.join().unwrap()).collect()
    });
    let round = Round { whole: begun.elapsed(), each };
    // So that the segments go back to the prepared files, and the next round writes into those.
    let purge = |group| LogRecord::Purge { group, index: log.group_state(group).end - 1, term: 1 };
    let (tell, told) = std::sync::mpsc::channel();
    log.submit((1..=producers).map(purge).collect(), move |done| tell.send(done).unwrap()).unwrap();
    told.recv().unwrap().unwrap();
    round
}

fn open(folder: &Path, spares: usize) -> Log {
    let config = LogConfig {
        segment: ByteSize::bytes(SEGMENT),
        spares,
        reserve: ByteSize::bytes(0),
        ..LogConfig::default()
    };
    let disk = Arc::new(LocalDisk::open(folder).unwrap());
    Log::open(disk, &Random::from_seed(1), LogIdentity { cluster: 1, node: 1 }, &config, CommitMode::Thread)
        .unwrap()
        .0
}

/// Waits until so many files lie prepared.
fn prepared(folder: &Path, wanted: usize) {
    let ready = || {
        let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        let spare = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|end| end == "spare");
        files.filter(|entry| spare(entry) && entry.metadata().unwrap().len() == SEGMENT).count()
    };
    while ready() < wanted {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn append(folder: &Path) {
    println!("append: MB/s, p50 and p99 in µs; the best of {ROUNDS} rounds in turns\n");
    println!("| producers | bytes | floor | p50/p99 | log | p50/p99 | log/floor |");
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    let disk = LocalDisk::open(folder.join("floor")).unwrap();
    disk.create_zeroed("floor", SEGMENT).unwrap();
    let file = File::options().write(true).open(folder.join("floor").join("floor")).unwrap();
    let folder = folder.join("append");
    let log = open(&folder, 4);
    prepared(&folder, 4);
    for (size, count) in [(4 * KIB, 2_000), (64 * KIB, 1_600), (MIB, 160)] {
        let payload: Bytes = (0..size).map(|place| (place * 31) as u8).collect();
        for producers in [1, 8] {
            let (mut floor, mut ours) = (None, None);
            for _ in 0..ROUNDS {
                faster(&mut floor, bare(&file, &payload, count));
                faster(&mut ours, appended(&log, &payload, producers, count));
                prepared(&folder, 4);
            }
            let (floor, ours) = (floor.unwrap(), ours.unwrap());
            let bytes = (count * size) as u64;
            println!(
                "| {producers} | {} | {:.0} | {}/{} | {:.0} | {}/{} | {:.2} |",
                ByteSize::bytes(size as u64),
                mega(bytes, floor.whole),
                floor.quantile(0.5),
                floor.quantile(0.99),
                mega(bytes, ours.whole),
                ours.quantile(0.5),
                ours.quantile(0.99),
                floor.whole.as_secs_f64() / ours.whole.as_secs_f64()
            );
        }
    }
}

/// Reads all segments once, in order, and sums them up.
fn summed(folder: &Path) -> u64 {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "log"));
    files.sort();
    let (mut bytes, mut window) = (0, vec![0; MIB]);
    for path in files {
        let file = File::open(path).unwrap();
        for at in (0..SEGMENT).step_by(MIB) {
            file.read_exact_at(&mut window, at).unwrap();
            black_box(xxh3_64(&window));
            bytes += MIB as u64;
        }
    }
    bytes
}

fn recover(folder: &Path) {
    println!("\nopen 1 GiB: processor time of the best of {ROUNDS} rounds in turns, files in the cache\n");
    println!("| bytes | floor, ms | log, ms | log, MB/s | floor/log |");
    println!("|---:|---:|---:|---:|---:|");
    for size in [4 * KIB, 64 * KIB, MIB] {
        let folder = folder.join(format!("open-{size}"));
        let payload: Bytes = (0..size).map(|place| (place * 31) as u8).collect();
        let log = open(&folder, 1);
        let batch = (4 * MIB / size) as u64;
        let (tell, told) = std::sync::mpsc::channel();
        for first in (0..256).map(|number| 1 + number * batch) {
            let entry = |index| LogRecord::Entry { group: 1, index, term: 1, data: payload.clone() };
            let tell = tell.clone();
            log.submit((first..first + batch).map(entry).collect(), move |done| tell.send(done).unwrap())
                .unwrap();
            told.recv().unwrap().unwrap();
        }
        drop(log);
        let (mut floor, mut ours, mut bytes) = (Duration::MAX, Duration::MAX, 0);
        for _ in 0..ROUNDS {
            let start = cpu();
            bytes = summed(&folder);
            floor = floor.min(cpu() - start);
            let start = cpu();
            let log = open(&folder, 1);
            ours = ours.min(cpu() - start);
            assert_eq!(log.group_state(1).end, 1 + 256 * batch);
        }
        println!(
            "| {} | {:.0} | {:.0} | {:.0} | {:.2} |",
            ByteSize::bytes(size as u64),
            floor.as_secs_f64() * 1e3,
            ours.as_secs_f64() * 1e3,
            mega(bytes, ours),
            floor.as_secs_f64() / ours.as_secs_f64()
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let parent = after("--folder").map_or_else(std::env::temp_dir, Into::into);
    let folder = tempfile::tempdir_in(parent).unwrap();
    let only = after("--only");
    if only.as_deref() != Some("open") {
        append(folder.path());
    }
    if only.as_deref() != Some("append") {
        recover(folder.path());
    }
}
