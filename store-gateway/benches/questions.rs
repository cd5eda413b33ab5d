//! How long a block takes to answer: the first time, and again.
//!
//! `cargo bench -p athanor-store-gateway --bench questions` makes a block of R-10k in a folder and has gateways that know
//! nothing draw a flame graph of it: of all time, where sums answer, and of the middle half of it, where rows do. Then the
//! same gateway is asked again, and one that begins anew on the same disk; all that with the ids of the profiles as well,
//! as where another place may hold the same ones. `-- --profiles 1200` takes fewer profiles. The
//! floor of adding up rows is one thread that adds as many values into an array, from memory.
#![expect(clippy::unwrap_used, reason = "a bench")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use athanor_block::{FILES, Folder, META, MemoryFolder, write_held};
use athanor_catalog::BlockId;
use athanor_chassis::disk::LocalDisk;
use athanor_chassis::{ByteSize, Clock, Compute, Random, TenantId};
use athanor_profile::generate::Reference;
use athanor_profile::source::{MemorySource, Source};
use athanor_query::{Ask, Doubles, Ids, Partial, Place, Selection, StackFilter, TimeRange, What};
use athanor_storage::path::{FileName, Key, Owner};
use athanor_storage::{Config as Bucket, Store, StoreDeps};
use athanor_store_gateway::{BlockAt, Blocks, Config, Gateway, Question};

const ROUNDS: usize = 5;
const BLOCK: u128 = 1;

fn store(folder: &Path) -> Store {
    let deps = StoreDeps { clock: Clock::system(), random: Random::seeded(1) };
    Store::open(&Bucket { local: Some(folder.join("bucket")), ..Bucket::default() }, deps).unwrap()
}

/// Puts the block into the bucket; gives the set.
async fn put(store: &Store, profiles: usize) -> MemorySource {
    let (set, mut held) = (Reference::new(Reference::SEED), MemorySource::default());
    for number in 0..profiles {
        held.add(&set.labels(number), &set.profile(number), number as u128 + 1);
    }
    let folder = MemoryFolder::default();
    write_held(&folder, "bench", None, [("anonymous", &held as _)].into_iter()).unwrap();
    for file in FILES.into_iter().chain([META]) {
        let bytes = folder.read(file, 0, folder.length(file).unwrap() as usize).unwrap();
        let key = Key::Block { owner: Owner::Shared, block: BLOCK, file: FileName::new(file).unwrap() };
        store.create(&key, bytes).await.unwrap();
    }
    held
}

/// One that knows what is on its disk, where it has one.
async fn gateway(folder: &Path, compute: &Compute, keeps: bool) -> Gateway {
    let disk = keeps.then(|| Arc::new(LocalDisk::open(folder.join("kept")).unwrap()) as _);
    let config = Config { disk_spare: ByteSize::bytes(0), ..Config::default() };
    let blocks = Blocks::new(store(folder), compute.clone(), disk, &config);
    let gateway = Gateway::new(Arc::new(blocks), &config);
    gateway.tend_disk().await;
    gateway
}

async fn asked(gateway: &Gateway, ask: &Ask, whole: bool, tells: bool) -> (Duration, i64) {
    let begun = Instant::now();
    let question = Question::new(TenantId::anonymous(), ask.clone());
    let at = BlockAt::alone(BlockId::from_number(BLOCK), whole);
    let at = BlockAt { tells: tells.then(TimeRange::default), ..at };
    let (partial, _) = gateway.answer_of(&question, &at).await.unwrap();
    let (partial, ids) = partial.told();
    let Partial::Tree(tree) = partial else { unreachable!("a tree") };
    // As if another place told of one, so that there is something to compare.
    let other = Ids::of(Place::Head { shard: 1, n: 0 }, vec![0]);
    let both: Ids =
        other.places().iter().chain(ids.places()).map(|(place, ids)| (*place, ids.clone())).collect();
    both.once(&Doubles::default()).unwrap();
    (begun.elapsed(), tree.total())
}

fn tree(from: i64, to: i64) -> Ask {
    let selection = Selection { time: TimeRange { from, to }, ..Selection::default() };
    Ask { selection, what: What::Tree(StackFilter::default()), ..Ask::default() }
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

fn shown(what: &str, took: Duration) {
    println!("{what:44} {:8.2} ms", took.as_secs_f64() * 1e3);
}

async fn run(profiles: usize) {
    let folder = tempfile::tempdir().unwrap();
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let compute = Compute::threads(threads, 64).unwrap();
    let held = put(&store(folder.path()), profiles).await;
    let rows = held.profiles().unwrap();
    let mut times: Vec<i64> = rows.iter().map(|row| row.time).collect();
    times.sort_unstable();
    let (from, to) = (times[times.len() / 4], times[times.len() * 3 / 4]);
    let within = rows.iter().filter(|row| (from..to).contains(&row.time));
    let scanned: usize = within.map(|row| row.samples as usize).sum();
    let all: usize = rows.iter().map(|row| row.samples as usize).sum();
    println!("{profiles} profiles, {all} samples, {threads} threads, best of {ROUNDS}");
    let asks = [
        ("all time, from sums", tree(i64::MIN, i64::MAX), true, false),
        ("all time, telling ids", tree(i64::MIN, i64::MAX), true, true),
        ("half of it, from rows", tree(from, to), false, false),
        ("half of it, telling ids", tree(from, to), false, true),
    ];
    for (what, ask, whole, tells) in &asks {
        let (mut cold, mut again) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            let gateway = gateway(folder.path(), &compute, false).await;
            let (first, total) = asked(&gateway, ask, *whole, *tells).await;
            let (second, same) = asked(&gateway, ask, *whole, *tells).await;
            assert_eq!(total, same);
            (cold, again) = (cold.min(first), again.min(second));
        }
        shown(&format!("{what}: first"), cold);
        shown(&format!("{what}: again"), again);
        let before = gateway(folder.path(), &compute, true).await;
        asked(&before, ask, *whole, *tells).await;
        before.tend_disk().await;
        drop(before);
        let again = gateway(folder.path(), &compute, true).await;
        let (restarted, _) = asked(&again, ask, *whole, *tells).await;
        shown(&format!("{what}: again, after a restart"), restarted);
        if !whole {
            let a_second = scanned as f64 / cold.as_secs_f64() / threads.get() as f64;
            let floor = scanned as f64 / floor(scanned, 100_000).as_secs_f64();
            println!(
                "{:44} {:8.1} M samples/s/core, floor {:.1} M, {:.1} % of it",
                format!("{what}: {scanned} of them"),
                a_second / 1e6,
                floor / 1e6,
                100.0 * a_second / floor
            );
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut profiles = Reference::R_10K;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--profiles" => profiles = arguments.next().unwrap().parse().unwrap(),
            // Cargo's own.
            "--bench" => {}
            other => panic!("{other} is unknown: --profiles COUNT"),
        }
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(profiles));
}
