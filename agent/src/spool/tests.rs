use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{ByteSize, Disk, ErrorCode};
use futures::future::join_all;

use super::*;
use crate::delivery::test_server::{
    DedupServer, open_spool, simulated_runtime, upload, wait_until, wait_until_delivered,
};
use crate::upload::{Upload, UploadOrder, UploadOrigin};

const SECOND: Duration = Duration::from_secs(1);

fn disks(disk: &MemoryDisk) -> SpoolDisks {
    SpoolDisks {
        files: Arc::new(disk.clone()),
        refused: Arc::new(VolatileDisk::default()),
        is_in_memory: false,
    }
}

fn scraped(number: u64) -> Upload {
    upload("app", number, UploadOrder::Independent, UploadOrigin::Scraped)
}

fn received(number: u64) -> Upload {
    upload("app", number, UploadOrder::Independent, UploadOrigin::Received)
}

/// Stores uploads of all kinds, some of them together. Returns the ids that were acknowledged.
async fn store_all_kinds(spool: &Spool) -> BTreeSet<String> {
    let mut acknowledged = BTreeSet::new();
    for round in 0..3 {
        let uploads = [
            ("scraped", scraped(round)),
            ("received", received(100 + round)),
            ("series", upload("series", round, UploadOrder::Cumulative(1), UploadOrigin::Scraped)),
        ];
        let stored = uploads.into_iter().map(async |(kind, upload)| {
            let id = match kind {
                "scraped" => format!("app/{round}"),
                "received" => format!("app/{}", 100 + round),
                _ => format!("series/{round}"),
            };
            spool.store(upload).await.ok().map(|()| id)
        });
        acknowledged.extend(join_all(stored).await.into_iter().flatten());
    }
    acknowledged
}

/// Machine whose power fails, and a server that fails at random.
struct CrashRun {
    seed: u64,
    files: MemoryDisk,
    refused: MemoryDisk,
    server: Arc<DedupServer>,
}

/// Id of a profile that the server rejects.
const REJECTED_ID: &str = "app/101";
const DAMAGED_NAME: &str = "00000000000000000000-received-push-delta-00000000-1-0000000000000000.spool";

impl CrashRun {
    fn new(seed: u64) -> Self {
        let files = MemoryDisk::new();
        files.write(DAMAGED_NAME, b"no spool file").unwrap();
        let server = DedupServer::new(&simulated_runtime(seed));
        {
            let mut state = server.state.lock();
            state.random_failures = Some(athanor_chassis::Random::from_seed(seed));
            state.rejected.insert(REJECTED_ID.to_owned(), "no sample type".to_owned());
        }
        Self { seed, files, refused: MemoryDisk::new(), server }
    }

    /// Runs a process on the disk until its power fails, or until all is delivered. Returns the ids of the
    /// acknowledged uploads.
    async fn run_process(&mut self, power_lost_after: Option<u64>, stores: bool) -> BTreeSet<String> {
        self.seed += 1;
        if let Some(operations) = power_lost_after {
            self.files.lose_power_after(operations);
        }
        let runtime = simulated_runtime(self.seed);
        self.server.state.lock().clock = Some(runtime.clock.clone());
        let disks = SpoolDisks { refused: Arc::new(self.refused.clone()), ..disks(&self.files) };
        let spool = open_spool(disks, SpoolConfig::default(), &runtime).await;
        let delivery = self.server.deliver(&spool, &runtime);
        let acknowledged = if stores { store_all_kinds(&spool).await } else { BTreeSet::new() };
        match power_lost_after {
            Some(_) => runtime.clock.sleep(60 * SECOND).await,
            None => wait_until_delivered(&delivery, &runtime).await,
        }
        let is_crash = power_lost_after.is_some();
        let next_boot = |disk: &MemoryDisk| if is_crash { disk.crash(self.seed) } else { disk.restart() };
        self.files = next_boot(&self.files);
        self.refused = next_boot(&self.refused);
        runtime.tasks.shutdown(SECOND).await;
        acknowledged
    }

    fn check_delivered(&self, acknowledged: &BTreeSet<String>, context: &str) {
        let mut delivered = self.server.stored_ids();
        self.server.assert_stored(&delivered);
        let refused = self.refused.list().unwrap();
        assert!(refused.len() <= 1, "{context}: {refused:?}");
        for name in refused {
            let text = String::from_utf8_lossy(&self.refused.read(&name).unwrap()).into_owned();
            assert!(text.contains("no sample type") && text.contains(REJECTED_ID), "{context}: {text}");
            delivered.insert(REJECTED_ID.to_owned());
        }
        let missing: Vec<_> = acknowledged.difference(&delivered).collect();
        assert!(missing.is_empty(), "{context}: {missing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn crash_after_each_operation_loses_no_acknowledged_upload() {
    let mut undisturbed = CrashRun::new(1);
    let before = undisturbed.files.operations();
    let all = undisturbed.run_process(None, true).await;
    let operations = undisturbed.files.operations() - before;
    undisturbed.check_delivered(&all, "no crash");
    // Each of 9 files is written and unlinked, and the damaged one is renamed.
    assert_eq!((all.len(), operations), (9, 19));
    let mut acknowledged = BTreeSet::new();
    for first in 0..operations {
        for second in [None, Some(0), Some(1), Some(2), Some(5)] {
            let context = format!("power lost after {first} operations, then after {second:?}");
            let mut run = CrashRun::new(100 * first);
            let ids = run.run_process(Some(first), true).await;
            acknowledged.insert(ids.len());
            if second.is_some() {
                run.run_process(second, false).await;
            }
            run.run_process(None, false).await;
            run.check_delivered(&ids, &context);
            assert_eq!(run.files.list().unwrap(), [format!("{DAMAGED_NAME}.damaged")], "{context}");
        }
    }
    // The crashes reach from before the first write to after the last one.
    assert_eq!((acknowledged.first(), acknowledged.last()), (Some(&0), Some(&9)));
}

#[tokio::test(start_paused = true)]
async fn every_flipped_bit_quarantines_the_file_and_delivers_none_of_its_profiles() {
    let disk = MemoryDisk::new();
    let runtime = simulated_runtime(1);
    let spool = open_spool(disks(&disk), SpoolConfig::default(), &runtime).await;
    let (first, second) = futures::join!(spool.store(received(1)), spool.store(received(2)));
    assert_eq!((first, second), (Ok(()), Ok(())));
    runtime.tasks.shutdown(SECOND).await;
    let name = disk.list().unwrap().remove(0);
    let bytes = disk.read(&name).unwrap();
    assert_eq!(SpoolFile::decode(&bytes.clone().into()).unwrap().requests.len(), 2);
    for bit in 0..bytes.len() * 8 {
        let damaged = MemoryDisk::new();
        damaged.write(&name, &bytes).unwrap();
        assert!(damaged.flip_bit(&name, (bit / 8) as u64, (bit % 8) as u8));
        let runtime = simulated_runtime(2);
        let server = DedupServer::new(&runtime);
        let spool = open_spool(disks(&damaged), SpoolConfig::default(), &runtime).await;
        let delivery = server.deliver(&spool, &runtime);
        wait_until_delivered(&delivery, &runtime).await;
        let snapshot = spool.snapshot();
        assert_eq!((snapshot.damaged_files, server.state.lock().requests), (1, 0), "bit {bit}");
        assert_eq!(snapshot.dropped_profiles[&DropReason::Damaged], 2);
        assert_eq!(damaged.list().unwrap(), [format!("{name}.damaged")]);
        assert_ne!(damaged.read(&format!("{name}.damaged")).unwrap(), bytes);
        runtime.tasks.shutdown(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn second_file_with_the_same_number_is_quarantined() {
    let disk = MemoryDisk::new();
    let name = |profiles| {
        format!("00000000000000000007-scraped-push-delta-00000000-{profiles}-0000000000000000.spool")
    };
    disk.write(&name(1), b"x").unwrap();
    disk.write(&name(2), b"x").unwrap();
    let runtime = simulated_runtime(1);
    let spool = open_spool(disks(&disk), SpoolConfig::default(), &runtime).await;
    assert_eq!(disk.list().unwrap(), [name(1), format!("{}.damaged", name(2))]);
    assert_eq!(
        (spool.snapshot().spool_files, spool.snapshot().dropped_profiles[&DropReason::Damaged]),
        (1, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn files_with_unknown_names_are_quarantined_and_foreign_files_stay() {
    let disk = MemoryDisk::new();
    disk.write("7-later.spool", b"x").unwrap();
    disk.write("notes.txt", b"x").unwrap();
    let runtime = simulated_runtime(1);
    let spool = open_spool(disks(&disk), SpoolConfig::default(), &runtime).await;
    assert_eq!(disk.list().unwrap(), ["7-later.spool.damaged", "notes.txt"]);
    assert_eq!((spool.snapshot().damaged_files, spool.snapshot().spool_files), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn upload_is_durable_after_the_closing_time_of_its_origin() {
    let runtime = simulated_runtime(1);
    let disk = MemoryDisk::new();
    let spool = open_spool(disks(&disk), SpoolConfig::default(), &runtime).await;
    for (upload, expected_millis) in [(received(1), 40), (scraped(2), 1000)] {
        let begin = runtime.clock.monotonic();
        spool.store(upload).await.unwrap();
        let waited = (runtime.clock.monotonic() - begin).as_millis();
        assert!((expected_millis..=expected_millis + 5).contains(&waited), "{waited} ms");
    }
    assert_eq!(disk.list().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn shutdown_writes_pending_uploads_and_rejects_later_ones() {
    let runtime = simulated_runtime(1);
    let disk = MemoryDisk::new();
    let spool = open_spool(disks(&disk), SpoolConfig::default(), &runtime).await;
    let storing = spool.clone();
    let stored = runtime.tasks.spawn("store", async move { storing.store(scraped(1)).await }).unwrap();
    runtime.clock.sleep(Duration::from_millis(5)).await;
    assert_eq!(runtime.tasks.shutdown(Duration::from_millis(100)).await.unfinished, Vec::<String>::new());
    stored.await.unwrap().unwrap();
    assert_eq!(disk.list().unwrap().len(), 1);
    assert_eq!(spool.store(scraped(2)).await.unwrap_err().code, ErrorCode::Unavailable);
}

/// Fills a spool of 4 files with received and scraped uploads of equal sizes.
async fn full_spool(runtime: &SpoolRuntime, disk: &MemoryDisk) -> Spool {
    let probe = open_spool(disks(&MemoryDisk::new()), SpoolConfig::default(), runtime).await;
    probe.store(received(1)).await.unwrap();
    let config = SpoolConfig {
        max_bytes: ByteSize::bytes(4 * probe.snapshot().spool_bytes),
        ..SpoolConfig::default()
    };
    let spool = open_spool(disks(disk), config, runtime).await;
    for number in 1..=4 {
        spool.store(if number % 2 == 1 { received(number) } else { scraped(number) }).await.unwrap();
    }
    spool
}

#[tokio::test(start_paused = true)]
async fn full_spool_replaces_scraped_files_and_rejects_received_uploads() {
    let runtime = simulated_runtime(1);
    let disk = MemoryDisk::new();
    let spool = full_spool(&runtime, &disk).await;
    let status = spool.store(received(5)).await.unwrap_err();
    assert_eq!(status.code, ErrorCode::Exhausted);
    assert!(
        status.retry_after.unwrap() >= SECOND && status.message.contains("spool.max_bytes"),
        "{status:?}"
    );
    for number in 6..9 {
        spool.store(scraped(number)).await.unwrap();
    }
    let names = disk.list().unwrap();
    let origins: Vec<_> = names.iter().map(|name| name.split('-').nth(1).unwrap()).collect();
    assert_eq!(origins, ["received", "received", "scraped", "scraped"]);
    assert_eq!(spool.snapshot().dropped_profiles[&DropReason::Evicted], 3);
}

#[tokio::test(start_paused = true)]
async fn spool_of_received_files_rejects_all_uploads_and_counts_scraped_ones() {
    let runtime = simulated_runtime(1);
    let disk = MemoryDisk::new();
    let spool = full_spool(&runtime, &disk).await;
    // The scraped files are in flight, so nothing may be evicted.
    while spool.take(DeliveryQueue::Fresh).is_some() {}
    assert_eq!(spool.store(scraped(5)).await.unwrap_err().code, ErrorCode::Exhausted);
    assert_eq!(spool.snapshot().dropped_profiles[&DropReason::SpoolFull], 1);
    assert_eq!(disk.list().unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn low_disk_is_treated_as_a_full_spool_until_space_is_free() {
    let runtime = simulated_runtime(1);
    let disk = MemoryDisk::new();
    disk.set_capacity(Some(200_000));
    disk.write("notes.txt", &[0; 150_000]).unwrap();
    let spool = open_spool(disks(&disk), SpoolConfig::default(), &runtime).await;
    spool.store(scraped(1)).await.unwrap();
    disk.remove("notes.txt").unwrap();
    disk.write("notes.txt", &[0; 178_000]).unwrap();
    let status = spool.store(received(2)).await.unwrap_err();
    assert_eq!(status.code, ErrorCode::Exhausted);
    assert_eq!(spool.store(received(3)).await.unwrap_err().code, ErrorCode::Exhausted);
    // Other programs use more than all scraped files occupy.
    disk.remove("notes.txt").unwrap();
    disk.write("notes.txt", &[0; 190_000]).unwrap();
    assert_eq!(spool.store(scraped(3)).await.unwrap_err().code, ErrorCode::Exhausted);
    assert_eq!(spool.snapshot().dropped_profiles.get(&DropReason::Evicted), None);
    assert_eq!(spool.snapshot().spool_files, 1);
    disk.remove("notes.txt").unwrap();
    spool.store(received(4)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failed_write_is_reported_and_leaves_no_file() {
    let runtime = simulated_runtime(1);
    let disk = MemoryDisk::new();
    let spool = open_spool(disks(&disk), SpoolConfig::default(), &runtime).await;
    disk.fail_syncs(1);
    assert_eq!(spool.store(received(1)).await.unwrap_err().code, ErrorCode::Unavailable);
    disk.fail_syncs(1);
    assert_eq!(spool.store(scraped(2)).await.unwrap_err().code, ErrorCode::Unavailable);
    assert_eq!(spool.snapshot().dropped_profiles[&DropReason::DiskError], 1);
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
    spool.store(received(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn acknowledged_file_that_cannot_be_unlinked_is_unlinked_later_and_not_sent_again() {
    let runtime = simulated_runtime(1);
    let disk = Arc::new(VolatileDisk::default());
    let server = DedupServer::new(&runtime);
    let disks = SpoolDisks { files: disk.clone(), ..SpoolDisks::in_memory() };
    let spool = open_spool(disks, SpoolConfig::default(), &runtime).await;
    let delivery = server.deliver(&spool, &runtime);
    *disk.failing_removals.lock() = 2;
    spool.store(received(1)).await.unwrap();
    wait_until(&runtime, "first upload", || delivery.snapshot().sent_profiles == 1).await;
    let snapshot = spool.snapshot();
    assert_eq!((snapshot.spool_files, snapshot.spool_bytes, spool.is_idle()), (1, 4096, true));
    wait_until_delivered(&delivery, &runtime).await;
    assert!(runtime.clock.monotonic() >= 20 * SECOND, "{:?}", runtime.clock.monotonic());
    assert_eq!((server.state.lock().requests, disk.list().unwrap()), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn upload_larger_than_the_spool_is_rejected() {
    let runtime = simulated_runtime(1);
    let config = SpoolConfig { max_memory_bytes: ByteSize::bytes(10), ..SpoolConfig::default() };
    let spool = open_spool(SpoolDisks::in_memory(), config, &runtime).await;
    assert_eq!(spool.store(scraped(1)).await.unwrap_err().code, ErrorCode::TooLarge);
    assert!(spool.snapshot().is_in_memory);
    assert_eq!(spool.snapshot().dropped_profiles[&DropReason::TooLarge], 1);
}
