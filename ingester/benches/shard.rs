//! What a shard remembers and reads back: the memory of its id window, and how fast a new leader has its head again.
//!
//! `cargo bench -p athanor-ingester --bench shard` fills a window with 100 million ids, a day of them, as cuts put them
//! into files (some 10 GB are written in the folder for temporary files, 1.7 GB stay until the end), and reads the head
//! of R-10k back from a log. `-- --ids 1000000` takes fewer; `--profiles 1200` too; `--folder PATH` names another folder;
//! `--only ids` or `rebuild` does one part. The floor of reading back is one thread that reads the log's files and sums
//! their bytes.
#![expect(clippy::unwrap_used, reason = "a bench")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use athanor_catalog::InMemoryCatalog;
use athanor_chassis::disk::LocalDisk;
use athanor_chassis::{ByteSize, Clock, ComputePool, LimitOverrides, Random, TaskGroup, TenantLimits};
use athanor_consensus::log::{CommitMode, Log, LogConfig, LogIdentity};
use athanor_consensus::replicated;
use athanor_ingester::{
    DedupConfig, DedupWindow, FlushConfig, Ingester, IngesterConfig, IngesterDeps, RunFiles,
};
use athanor_profile::encoding::hash::{self, ContentHash};
use athanor_profile::generate::ReferenceDataset;
use athanor_profile::store_interface::source::ProfileSource;
use athanor_profile::store_interface::upload::ProfileUpload;
use athanor_storage::{StorageConfig as Bucket, Store, StoreDeps};
use parking_lot::Mutex;

/// Ids between two cuts, as a busy shard has them in some minutes.
const CUT: u64 = 1_000_000;
const DAY: u64 = 86_400_000_000_000;
/// Profiles of one request.
const REQUEST: usize = 20;
const ROUNDS: usize = 3;

fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn id(number: u64) -> ContentHash {
    hash::hash_bytes(&number.to_le_bytes())
}

fn ids(count: u64, folder: &Path) {
    let disk = Arc::new(LocalDisk::open(folder).unwrap());
    let shelf = RunFiles::open(disk, 1, 1, DedupConfig::default().max_memory_ids as usize).unwrap();
    let window = Arc::new(Mutex::new(DedupWindow::new(shelf)));
    let (before, cuts) = (resident(), count.div_ceil(CUT));
    let (mut most, mut taken, mut filed) = (0, Duration::ZERO, Duration::ZERO);
    for cut in 1..=cuts {
        let some: Vec<ContentHash> = ((cut - 1) * CUT..(cut * CUT).min(count)).map(id).collect();
        let begun = Instant::now();
        {
            let mut window = window.lock();
            let stamp = cut * (DAY / cuts);
            window.advance(cut, stamp, DAY, false);
            assert!(window.insert_all(cut, &some).into_iter().all(|new| new));
            window.mark_applied(cut);
            window.set_flushed(cut, cut, stamp);
        }
        taken += begun.elapsed();
        drop(some);
        most = most.max(resident() - before);
        let begun = Instant::now();
        black_box(DedupWindow::capture(&window, cut).write().unwrap());
        DedupWindow::remove_unused_files(&window);
        filed += begun.elapsed();
        most = most.max(resident() - before);
    }
    let (begun, asked) = (Instant::now(), 100_000.min(count));
    let mut window = window.lock();
    let stride = count / asked;
    assert!((0..asked).all(|number| window.contains(id(number * stride))));
    let known = begun.elapsed();
    let held = window.len_at(window.stamp());
    println!(
        "{held} ids: {} MB of memory when all is in files, {} MB at most; taking one in {} ns, putting it into files {} \
         ns; a repeat of an old one is known after {:.1} us",
        (resident() - before) / 1_000_000,
        most / 1_000_000,
        taken.as_nanos() / u128::from(count),
        filed.as_nanos() / u128::from(count),
        known.as_secs_f64() * 1e6 / asked as f64,
    );
}

/// A node of one shard that never cuts.
async fn boot(folder: &Path) -> (Ingester, TaskGroup, Duration) {
    let (clock, random) = (Clock::system(), Random::from_seed(7));
    let store = StoreDeps { clock: clock.clone(), random: random.split() };
    let store = Store::open(&Bucket { memory: true, ..Bucket::default() }, store).unwrap();
    let tasks = TaskGroup::new(clock.clone(), 1000);
    let compute = ComputePool::with_threads(NonZeroUsize::new(2).unwrap(), 64).unwrap();
    let disk = Arc::new(LocalDisk::open(folder.join("log")).unwrap());
    let config = LogConfig { reserve: ByteSize::bytes(0), ..LogConfig::default() };
    let (log, _) =
        Log::open(disk, &random, LogIdentity { cluster: 1, node: 1 }, &config, CommitMode::Thread).unwrap();
    let consensus = replicated::RaftGroupDeps {
        log,
        disk: Arc::new(LocalDisk::open(folder.join("state")).unwrap()),
        compute: compute.clone(),
        random: random.split(),
        network: None,
        node: 1,
        timing: replicated::RaftTiming::default(),
    };
    let deps = IngesterDeps {
        catalog: Arc::new(InMemoryCatalog::new(clock.clone())),
        store,
        consensus,
        overrides: LimitOverrides::new(TenantLimits {
            reject_older_than: Duration::ZERO,
            ..TenantLimits::default()
        }),
        clock: clock.clone(),
        random: random.split(),
        compute,
        tasks: tasks.clone(),
        cluster: 1,
        alone: true,
        kin: None,
    };
    let never = FlushConfig {
        max_head_age: Duration::from_secs(1 << 30),
        max_head_bytes: ByteSize::mib(1 << 20),
        ..FlushConfig::default()
    };
    let config = IngesterConfig {
        flush: never,
        single_node_shards: 1,
        max_unflushed_bytes: ByteSize::mib(1 << 20),
        ..IngesterConfig::default()
    };
    let begun = Instant::now();
    let ingester = Ingester::open(&config, deps).await.unwrap();
    (ingester, tasks, begun.elapsed())
}

async fn rebuild(count: usize, folder: &Path) {
    let reference = ReferenceDataset::new(ReferenceDataset::PUBLISHED_SEED);
    let (ingester, tasks, _) = boot(folder).await;
    let (tenant, shard) = ("bench".parse().unwrap(), ingester.shard_of_slot(ingester.slots()[0]).unwrap());
    let mut raw = 0;
    for first in (0..count).step_by(REQUEST) {
        let upload = |i: usize| {
            let (labels, pprof) = (reference.labels(i), reference.pprof(i));
            raw += pprof.len();
            ProfileUpload { sent: labels.clone(), labels, pprof: pprof.into(), ..ProfileUpload::default() }
        };
        let uploads = (first..count.min(first + REQUEST)).map(upload).collect();
        let stored = ingester.append(shard, 1, &tenant, uploads).await.unwrap();
        assert!(stored.into_iter().all(|stored| stored.unwrap().new == 1));
    }
    let end = async |ingester: Ingester, tasks: TaskGroup| {
        tasks.shutdown(Duration::from_secs(5)).await;
        ingester.shutdown().await;
    };
    end(ingester, tasks).await;

    // Files are made before they are written to.
    let used = |path: PathBuf| {
        let length =
            std::fs::read(&path).unwrap().iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        (path, vec![0; length])
    };
    let mut logs: Vec<(PathBuf, Vec<u8>)> = std::fs::read_dir(folder.join("log"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .map(used)
        .collect();
    let bytes: usize = logs.iter().map(|(_, read)| read.len()).sum();
    let (mut best, mut floor) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let (ingester, tasks, took) = boot(folder).await;
        let views = ingester.head_snapshots(shard, 0, &tenant).unwrap();
        assert_eq!(views.iter().map(|view| view.profiles().unwrap().len()).sum::<usize>(), count);
        best = best.min(took);
        end(ingester, tasks).await;
        let begun = Instant::now();
        for (path, read) in &mut logs {
            File::open(path).unwrap().read_exact(read).unwrap();
            black_box(hash::hash_bytes(read));
        }
        floor = floor.min(begun.elapsed());
    }
    let mega = |bytes: usize, time: Duration| bytes as f64 / 1e6 / time.as_secs_f64();
    println!(
        "a head of {count} profiles: {:.1} MB of log, {:.0} MB of raw pprof; read back in {:.0} ms, {:.0} MB/s of the log \
         and {:.0} MB/s of what was sent, {:.1} times the floor of {:.0} ms",
        bytes as f64 / 1e6,
        raw as f64 / 1e6,
        best.as_secs_f64() * 1e3,
        mega(bytes, best),
        mega(raw, best),
        best.as_secs_f64() / floor.as_secs_f64(),
        floor.as_secs_f64() * 1e3,
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1).cloned()
    };
    let number = |name: &str, usual: u64| after(name).map_or(usual, |given| given.parse().unwrap());
    let parent = after("--folder").map_or_else(std::env::temp_dir, Into::into);
    let folder = tempfile::tempdir_in(parent).unwrap();
    let only = after("--only");
    if only.as_deref() != Some("rebuild") {
        let folder = folder.path().join("ids");
        std::fs::create_dir(&folder).unwrap();
        ids(number("--ids", 100_000_000), &folder);
    }
    if only.as_deref() != Some("ids") {
        for part in ["log", "state"] {
            std::fs::create_dir(folder.path().join(part)).unwrap();
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_time().worker_threads(2).build().unwrap();
        runtime.block_on(rebuild(
            number("--profiles", ReferenceDataset::R_10K_PROFILES as u64) as usize,
            folder.path(),
        ));
    }
}
