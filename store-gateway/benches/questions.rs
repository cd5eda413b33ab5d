//! How long a block takes to answer: the first time, and again.
//!
//! `cargo bench -p athanor-store-gateway --bench questions` makes a block of R-10k in a folder and has gateways that know
//! nothing draw a flame graph of it: of all time, where sums answer, and of the middle half of it, where rows do. Then the
//! same gateway is asked again, and one that begins anew on the same disk; all that with the ids of the profiles as well,
//! as where another place may hold the same ones. `-- --profiles 1200` takes fewer profiles. The
//! floor of adding up rows is one thread that adds as many values into an array, from memory.
//!
//! Then a tenth of the time is asked for, of that block and of one that holds nothing else; what memory that takes is asked
//! of processes that do nothing else. Last, what a first tree takes beside a second one: reading and drawing names.
#![expect(clippy::unwrap_used, reason = "a bench")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use athanor_block::{
    Block, BlockFolder, META_FILE, MemoryFolder, PARQUET_FILES, TenantBlockSource, write_from_memory,
};
use athanor_catalog::BlockId;
use athanor_chassis::disk::LocalDisk;
use athanor_chassis::observability::cpu_time::process_cpu_time;
use athanor_chassis::{ByteSize, Clock, ComputePool, Random, TenantId};
use athanor_profile::generate::ReferenceDataset;
use athanor_profile::store_interface::source::{MemorySource, ProfileSource};
use athanor_query::{
    DuplicateExclusions, PartialResult, ProfileIdsBySource, ProfileQuery, ProfileSelection, QueryKind,
    SourceId, StackFilter, TimeRange,
};
use athanor_storage::path::{BlockOwner, FileName, ObjectKey};
use athanor_storage::{StorageConfig as Bucket, Store, StoreDeps};
use athanor_store_gateway::{BlockQuery, BlockReader, BlockTarget, StoreGateway, StoreGatewayConfig};

const ROUNDS: usize = 5;
/// The block of all, and that of a tenth of its time.
const BLOCK: u128 = 1;
const TENTH: u128 = 2;

fn store(folder: &Path) -> Store {
    let deps = StoreDeps { clock: Clock::system(), random: Random::from_seed(1) };
    Store::open(&Bucket { local: Some(folder.join("bucket")), ..Bucket::default() }, deps).unwrap()
}

/// Puts a block of some profiles into the bucket; gives these, and the block's files.
async fn put(store: &Store, block: u128, profiles: Range<usize>) -> (MemorySource, MemoryFolder) {
    let (set, mut held) = (ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED), MemorySource::default());
    for number in profiles {
        held.add(&set.labels(number), &set.profile(number), number as u128 + 1);
    }
    let folder = MemoryFolder::default();
    write_from_memory(&folder, "bench", None, [("anonymous", &held as _)].into_iter()).unwrap();
    for file in PARQUET_FILES.into_iter().chain([META_FILE]) {
        let bytes = folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
        let key = ObjectKey::Block { owner: BlockOwner::Shared, block, file: FileName::new(file).unwrap() };
        store.create(&key, bytes).await.unwrap();
    }
    (held, folder)
}

/// One that knows what is on its disk, where it has one.
async fn gateway(folder: &Path, compute: &ComputePool, keeps: bool) -> StoreGateway {
    let disk = keeps.then(|| Arc::new(LocalDisk::open(folder.join("kept")).unwrap()) as _);
    let config =
        StoreGatewayConfig { disk_cache_min_free_bytes: ByteSize::bytes(0), ..StoreGatewayConfig::default() };
    let blocks = BlockReader::new(store(folder), compute.clone(), disk, &config);
    let gateway = StoreGateway::new(Arc::new(blocks), &config);
    gateway.maintain_disk_cache().await;
    gateway
}

/// How long it took, on the wall and on processors.
#[derive(Clone, Copy)]
struct Took {
    wall: Duration,
    processor: Duration,
}

impl Took {
    const LONG: Took = Took { wall: Duration::MAX, processor: Duration::MAX };

    fn min(self, other: Took) -> Took {
        Took { wall: self.wall.min(other.wall), processor: self.processor.min(other.processor) }
    }
}

async fn asked(
    gateway: &StoreGateway,
    ask: &ProfileQuery,
    block: u128,
    (whole, tells): (bool, bool),
) -> (Took, i64) {
    let (begun, spent) = (Instant::now(), process_cpu_time());
    let question = BlockQuery::new(TenantId::anonymous(), ask.clone());
    let at = BlockTarget::without_duplicates(BlockId::from_number(block), whole);
    let at = BlockTarget { tells: tells.then(TimeRange::default), ..at };
    let (partial, _) = gateway.query_block(&question, &at).await.unwrap();
    let (partial, ids) = partial.split_ids();
    let PartialResult::Tree(tree) = partial else { unreachable!("a tree") };
    if tells {
        // As if another place told of one, so that there is something to compare.
        let other = ProfileIdsBySource::from_source(SourceId::Head { shard: 1, n: 0 }, vec![0]);
        let both: ProfileIdsBySource = other
            .by_source()
            .iter()
            .chain(ids.by_source())
            .map(|(place, ids)| (*place, ids.clone()))
            .collect();
        both.check_counted_once(&DuplicateExclusions::default()).unwrap();
    }
    (Took { wall: begun.elapsed(), processor: process_cpu_time() - spent }, tree.total())
}

fn tree(from: i64, to: i64) -> ProfileQuery {
    let selection = ProfileSelection { time: TimeRange { from, to }, ..ProfileSelection::default() };
    ProfileQuery { selection, what: QueryKind::Tree(StackFilter::default()), ..ProfileQuery::default() }
}

/// Adds so many values into an array, at places that follow no order.
fn floor(rows: usize, stacks: usize) -> Duration {
    let places: Vec<u32> =
        (0..rows as u64).map(|row| (row.wrapping_mul(2_654_435_761) % stacks as u64) as u32).collect();
    let values: Vec<i64> = (0..rows as i64).collect();
    let once = || {
        let mut totals = vec![0i64; stacks];
        let begun = Instant::now();
        for (&place, &value) in places.iter().zip(&values) {
            totals[place as usize] = totals[place as usize].wrapping_add(value);
        }
        black_box(&totals);
        begun.elapsed()
    };
    (0..ROUNDS).map(|_| once()).min().unwrap()
}

fn shown(what: &str, took: Took) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!("{what:44} {:8.2} ms, {:8.2} ms of processor time", ms(took.wall), ms(took.processor));
}

/// The most memory that this process has had, bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    value.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// What a process has at the most that asks this of a block and does nothing else.
fn peak_of(folder: &Path, block: u128, (from, to): (i64, i64)) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let numbers = [block.to_string(), from.to_string(), to.to_string()];
    let output = command.arg("--peak").arg(folder).args(numbers).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// A tenth of the time, in a block of ten times as much and in one of nothing else.
async fn growth(folder: &Path, compute: &ComputePool, profiles: usize) {
    let middle = profiles * 9 / 20..profiles * 11 / 20;
    let (held, _) = put(&store(folder), TENTH, middle).await;
    let times = held.profiles().unwrap();
    let times = times.iter().map(|row| row.time);
    // Without the first profile of each series sums tell of neither block.
    let first = times.clone().min().unwrap() + 15_000_000_000;
    let window = (first, times.max().unwrap() + 1);
    drop(held);
    let ask = tree(window.0, window.1);
    let mut best = [Took::LONG; 2];
    let mut totals = [0; 2];
    for _ in 0..ROUNDS {
        for (place, block) in [TENTH, BLOCK].into_iter().enumerate() {
            let gateway = gateway(folder, compute, false).await;
            let (took, total) = asked(&gateway, &ask, block, (false, false)).await;
            (best[place], totals[place]) = (best[place].min(took), total);
        }
    }
    assert_eq!(totals[0], totals[1]);
    let peaks = [TENTH, BLOCK].map(|block| peak_of(folder, block, window));
    shown("a tenth of the time, of a block of its own", best[0]);
    shown("a tenth of the time, of ten times as much", best[1]);
    let ratio = |of: fn(&Took) -> Duration| of(&best[1]).as_secs_f64() / of(&best[0]).as_secs_f64();
    println!(
        "ten times the data: {:.2} times the wall time, {:.2} times the processor time; {:.1} and {:.1} MiB at the peak, \
         {:.2} times",
        ratio(|took| took.wall),
        ratio(|took| took.processor),
        peaks[0] as f64 / (1 << 20) as f64,
        peaks[1] as f64 / (1 << 20) as f64,
        peaks[1] as f64 / peaks[0] as f64
    );
}

/// What of a first tree goes into names, and what drawing these beside reading rows saves.
fn symbols(folder: MemoryFolder, compute: &ComputePool, profiles: usize) {
    let block = Arc::new(Block::open(Arc::new(folder)).unwrap());
    // Without the last one no sums are at hand.
    let all: Vec<u32> = (0..profiles as u32 - 1).collect();
    let source = |compute: &ComputePool| {
        TenantBlockSource::new(Arc::clone(&block), "anonymous", compute.clone()).unwrap()
    };
    let (mut rows, mut names) = (Duration::MAX, Duration::MAX);
    let (mut after, mut beside) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let alone = source(&ComputePool::inline());
        let begun = process_cpu_time();
        let totals = alone.totals(&all).unwrap();
        let read = process_cpu_time();
        black_box(alone.tree(&totals).unwrap());
        let first = process_cpu_time();
        black_box(alone.tree(&totals).unwrap());
        let second = process_cpu_time();
        rows = rows.min(read - begun);
        names = names.min((first - read).saturating_sub(second - first));
        let (one, other) = (source(compute), source(compute));
        let begun = Instant::now();
        let tree = one.tree(&one.totals(&all).unwrap()).unwrap();
        let middle = Instant::now();
        assert_eq!(other.tree(&other.totals_for_tree(&all).unwrap()).unwrap(), tree);
        (after, beside) = (after.min(middle - begun), beside.min(middle.elapsed()));
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{:44} {:8.2} ms of processor time, beside {:.2} ms for all rows: {:.1} % once, nothing as long as they are kept",
        "reading and drawing names",
        ms(names),
        ms(rows),
        100.0 * names.as_secs_f64() / (rows + names).as_secs_f64()
    );
    println!(
        "{:44} {:8.2} ms, with names after them {:.2} ms",
        "all rows, and names beside them",
        ms(beside),
        ms(after)
    );
}

async fn run(profiles: usize) {
    let folder = tempfile::tempdir().unwrap();
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let compute = ComputePool::with_threads(threads, 64).unwrap();
    let (held, files) = put(&store(folder.path()), BLOCK, 0..profiles).await;
    let rows = held.profiles().unwrap();
    let mut times: Vec<i64> = rows.iter().map(|row| row.time).collect();
    times.sort_unstable();
    let (from, to) = (times[times.len() / 4], times[times.len() * 3 / 4]);
    let within = rows.iter().filter(|row| (from..to).contains(&row.time));
    let scanned: usize = within.map(|row| row.samples as usize).sum();
    let all: usize = rows.iter().map(|row| row.samples as usize).sum();
    drop(held);
    println!("{profiles} profiles, {all} samples, {threads} threads, best of {ROUNDS}");
    let asks = [
        ("all time, from sums", tree(i64::MIN, i64::MAX), true, false),
        ("all time, telling ids", tree(i64::MIN, i64::MAX), true, true),
        ("half of it, from rows", tree(from, to), false, false),
        ("half of it, telling ids", tree(from, to), false, true),
    ];
    for (what, ask, whole, tells) in &asks {
        let (mut cold, mut again) = (Took::LONG, Took::LONG);
        for _ in 0..ROUNDS {
            let gateway = gateway(folder.path(), &compute, false).await;
            let (first, total) = asked(&gateway, ask, BLOCK, (*whole, *tells)).await;
            let (second, same) = asked(&gateway, ask, BLOCK, (*whole, *tells)).await;
            assert_eq!(total, same);
            (cold, again) = (cold.min(first), again.min(second));
        }
        shown(&format!("{what}: first"), cold);
        shown(&format!("{what}: again"), again);
        let before = gateway(folder.path(), &compute, true).await;
        asked(&before, ask, BLOCK, (*whole, *tells)).await;
        before.maintain_disk_cache().await;
        drop(before);
        let again = gateway(folder.path(), &compute, true).await;
        let (restarted, _) = asked(&again, ask, BLOCK, (*whole, *tells)).await;
        shown(&format!("{what}: again, after a restart"), restarted);
        if !whole {
            let a_second = scanned as f64 / cold.wall.as_secs_f64() / threads.get() as f64;
            let of_processor = scanned as f64 / cold.processor.as_secs_f64();
            let floor = scanned as f64 / floor(scanned, 100_000).as_secs_f64();
            println!(
                "{:44} {:8.1} M samples/s/core, {:.1} M a second of processor time, floor {:.1} M, {:.1} % of it",
                format!("{what}: {scanned} of them"),
                a_second / 1e6,
                of_processor / 1e6,
                floor / 1e6,
                100.0 * a_second / floor
            );
        }
    }
    growth(folder.path(), &compute, profiles).await;
    symbols(files, &compute, profiles);
}

/// Asks once and says what memory this process has had.
async fn once(folder: &Path, [block, from, to]: [String; 3]) {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let gateway = gateway(folder, &ComputePool::with_threads(threads, 64).unwrap(), false).await;
    let ask = tree(from.parse().unwrap(), to.parse().unwrap());
    asked(&gateway, &ask, block.parse().unwrap(), (false, false)).await;
    println!("{}", peak());
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut profiles = ReferenceDataset::R_10K_PROFILES;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--profiles" => profiles = arguments.next().unwrap().parse().unwrap(),
            // What this bench starts itself with.
            "--peak" => {
                let folder = arguments.next().unwrap();
                let numbers = std::array::from_fn(|_| arguments.next().unwrap());
                return runtime.block_on(once(Path::new(&folder), numbers));
            }
            // Cargo's own.
            "--bench" => {}
            other => panic!("{other} is unknown: --profiles COUNT"),
        }
    }
    runtime.block_on(run(profiles));
}
