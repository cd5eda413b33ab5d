//! The spool on a real folder: how fast it stores uploads, and how fast it returns them. Beside it stands a floor: one
//! thread that writes files of the same sizes with fdatasync, and reads them.
//!
//! `cargo bench -p athanor-agent --bench spool` writes 2 GB into the folder for temporary files; `-- --folder PATH`
//! names another one, on the disk in question.

#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]

use std::fs::File;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use athanor_agent::spool::{DeliveryQueue, Spool, SpoolConfig, SpoolDisks, SpoolRuntime};
use athanor_agent::upload::{Upload, UploadOrder, UploadOrigin, UploadRoute};
use athanor_chassis::{ByteSize, Clock, ComputePool, Random, TaskGroup};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;

/// Rounds of which the best counts, spool and floor in turns.
const ROUNDS: usize = 4;
const UPLOAD_BYTES: usize = 100_000;
const UPLOADS: usize = 2_500;
/// Uploads that wait for their file at one time.
const WAITING_UPLOADS: usize = 200;
const FILE_BYTES: usize = 4 << 20;

fn upload(random: &Random) -> Upload {
    let words = (0..UPLOAD_BYTES / 8).flat_map(|_| random.next_u64().to_le_bytes());
    Upload {
        tenant: None,
        route: UploadRoute::Push,
        body: words.collect::<Vec<u8>>().into(),
        profiles: 1,
        order: UploadOrder::Independent,
        origin: UploadOrigin::Scraped,
        time: Clock::system().wall(),
    }
}

/// Times of one round.
#[derive(Clone, Copy)]
struct Round {
    store: Duration,
    take: Duration,
}

impl Round {
    fn faster(self, other: Self) -> Self {
        Self { store: self.store.min(other.store), take: self.take.min(other.take) }
    }
}

async fn spool_round(folder: &Path, uploads: &[Upload]) -> Round {
    let clock = Clock::system();
    let runtime = SpoolRuntime {
        clock: clock.clone(),
        random: Random::system(),
        compute: ComputePool::with_threads(NonZeroUsize::new(2).unwrap(), 1024).unwrap(),
        tasks: TaskGroup::new(clock, 16),
    };
    let config = SpoolConfig { max_bytes: ByteSize::mib(4096), ..SpoolConfig::default() };
    let disks = SpoolDisks::open(folder, "bench").unwrap();
    assert!(!disks.is_in_memory, "{} is not writable", folder.display());
    let spool = Spool::open("bench", disks, config, runtime.clone()).await.unwrap();
    let start = Instant::now();
    let mut waiting = FuturesUnordered::new();
    for upload in uploads {
        if waiting.len() == WAITING_UPLOADS {
            let stored: Option<Result<(), _>> = waiting.next().await;
            stored.unwrap().unwrap();
        }
        waiting.push(spool.store(upload.clone()));
    }
    spool.close_pending_files();
    while let Some(stored) = waiting.next().await {
        stored.unwrap();
    }
    let store = start.elapsed();
    let start = Instant::now();
    let mut returned = 0;
    for queue in [DeliveryQueue::Fresh, DeliveryQueue::Backlog] {
        while let Some(entry) = spool.take(queue) {
            let file = spool.read(&entry).await.unwrap().unwrap();
            returned += file.requests.iter().map(|request| request.profiles as usize).sum::<usize>();
            spool.acknowledge(&entry).await;
        }
    }
    assert_eq!(returned, uploads.len());
    let take = start.elapsed();
    runtime.tasks.shutdown(Duration::from_secs(10)).await;
    Round { store, take }
}

fn floor_round(folder: &Path, bytes: &[u8]) -> Round {
    let start = Instant::now();
    let paths: Vec<PathBuf> = (0..UPLOADS * UPLOAD_BYTES / FILE_BYTES)
        .map(|number| {
            let path = folder.join(format!("floor-{number}"));
            let mut file = File::create(&path).unwrap();
            file.write_all(bytes).unwrap();
            file.sync_data().unwrap();
            path
        })
        .collect();
    let store = start.elapsed();
    let start = Instant::now();
    for path in paths {
        assert_eq!(std::fs::read(&path).unwrap().len(), FILE_BYTES);
        std::fs::remove_file(&path).unwrap();
    }
    Round { store, take: start.elapsed() }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let place = arguments.iter().position(|argument| argument == "--folder");
    let parent = place.map_or_else(std::env::temp_dir, |place| PathBuf::from(&arguments[place + 1]));
    let folder = tempfile::tempdir_in(parent).unwrap();
    let random = Random::from_seed(1);
    let uploads: Vec<Upload> = (0..UPLOADS).map(|_| upload(&random)).collect();
    let file: Bytes = uploads.iter().flat_map(|upload| upload.body.clone()).take(FILE_BYTES).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let longest = Round { store: Duration::MAX, take: Duration::MAX };
    let (mut ours, mut floor) = (longest, longest);
    for _ in 0..ROUNDS {
        ours = ours.faster(runtime.block_on(spool_round(folder.path(), &uploads)));
        floor = floor.faster(floor_round(folder.path(), &file));
    }
    let speed = |time: Duration| (UPLOADS * UPLOAD_BYTES) as f64 / 1e6 / time.as_secs_f64();
    let row = |name: &str, ours: Duration, floor: Duration| {
        let (ours, floor) = (speed(ours), speed(floor));
        println!("{name}: {ours:.0} MB/s, floor {floor:.0} MB/s, {:.2} of the floor", ours / floor);
    };
    row("in", ours.store, floor.store);
    row("out", ours.take, floor.take);
}
