use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{Disk, ErrorCode, Random, Status};
use athanor_proto::push::v1::PushRequest;
use futures::future::join_all;
use prost::Message;

use super::test_server::{
    DedupServer, ServerState, open_spool, series_of, simulated_runtime, upload, wait_until,
    wait_until_delivered,
};
use super::*;
use crate::spool::{DropReason, SpoolConfig, SpoolDisks, VolatileDisk};
use crate::upload::{Upload, UploadOrder, UploadOrigin, UploadRoute, UploadSink};

const SECOND: Duration = Duration::from_secs(1);

fn scraped(series: &str, number: u64) -> Upload {
    upload(series, number, UploadOrder::Independent, UploadOrigin::Scraped)
}

fn batch(ids: &[String]) -> Upload {
    let request =
        PushRequest { series: ids.iter().map(|id| series_of("app", std::slice::from_ref(id))).collect() };
    Upload { body: request.encode_to_vec().into(), profiles: ids.len() as u32, ..scraped("app", 0) }
}

fn unavailable() -> Status {
    Status::new(ErrorCode::Unavailable, "connection refused")
}

#[tokio::test(start_paused = true)]
async fn rejected_profiles_are_refused_alone_and_others_are_stored() {
    let runtime = simulated_runtime(1);
    let server = DedupServer::new(&runtime);
    let refused: Arc<dyn Disk> = Arc::new(VolatileDisk::default());
    let disks = SpoolDisks { refused: Arc::clone(&refused), ..SpoolDisks::in_memory() };
    let spool = open_spool(disks, SpoolConfig::default(), &runtime).await;
    let ids: Vec<String> = (0..20).map(|number| format!("app/{number}")).collect();
    {
        let mut state = server.state.lock();
        state.rejected.insert(ids[3].clone(), "no sample type".to_owned());
        let old = "not in the ingestion window: 2h old (limits.reject_older_than)";
        state.rejected.insert(ids[12].clone(), old.to_owned());
    }
    let delivery = server.deliver(&spool, &runtime);
    spool.store(batch(&ids)).await.unwrap();
    wait_until_delivered(&delivery, &runtime).await;
    let expected: BTreeSet<_> = ids.iter().filter(|id| **id != ids[3] && **id != ids[12]).cloned().collect();
    assert_eq!(server.stored_ids(), expected);
    let snapshot = delivery.snapshot();
    assert_eq!((snapshot.sent_profiles, snapshot.refused_profiles), (18, 1));
    assert_eq!(snapshot.dropped_profiles[&DropReason::TooOld], 1);
    let names = refused.list().unwrap();
    let file = String::from_utf8_lossy(&refused.read(&names[0]).unwrap()).into_owned();
    assert!(names.len() == 1 && file.contains("no sample type") && file.contains("profile app/3"), "{file}");
    assert!(server.state.lock().requests < 20);
}

#[tokio::test(start_paused = true)]
async fn requested_delay_is_obeyed_and_access_errors_keep_files() {
    let runtime = simulated_runtime(1);
    let server = DedupServer::new(&runtime);
    let spool = open_spool(SpoolDisks::in_memory(), SpoolConfig::default(), &runtime).await;
    let delivery = server.deliver(&spool, &runtime);
    let busy = Status::new(ErrorCode::Exhausted, "rate limited").with_retry_after(90 * SECOND);
    server.state.lock().outage = Some(busy);
    spool.store(scraped("app", 1)).await.unwrap();
    wait_until(&runtime, "first request", || server.state.lock().requests == 1).await;
    for number in 2..80 {
        spool.store(scraped("app", number)).await.unwrap();
    }
    assert_eq!(server.state.lock().requests, 1);
    assert!(delivery.view().error.unwrap().contains("rate limited"));
    server.state.lock().outage = Some(Status::new(ErrorCode::Unauthenticated, "invalid token"));
    runtime.clock.sleep(600 * SECOND).await;
    let requests = server.state.lock().requests;
    assert!((5..50).contains(&requests), "{requests}");
    server.state.lock().outage = None;
    delivery.drain();
    let begin = runtime.clock.monotonic();
    wait_until_delivered(&delivery, &runtime).await;
    assert!(runtime.clock.monotonic() - begin < 5 * SECOND);
    assert_eq!((delivery.snapshot().sent_profiles, delivery.view().error), (79, None));
}

#[tokio::test(start_paused = true)]
async fn limit_of_one_tenant_delays_no_other_and_is_asked_for_no_other_file() {
    let runtime = simulated_runtime(1);
    let server = DedupServer::new(&runtime);
    let spool = open_spool(SpoolDisks::in_memory(), SpoolConfig::default(), &runtime).await;
    let delivery = server.deliver(&spool, &runtime);
    let limited = Status::new(ErrorCode::Exhausted, "rate limited").with_retry_after(90 * SECOND);
    server.state.lock().tenant_outages.insert("team-a".to_owned(), limited);
    let of_team_a = |upload| Upload { tenant: Some("team-a".parse().unwrap()), ..upload };
    let snapshot =
        |series: &str, number| upload(series, number, UploadOrder::Cumulative(1), UploadOrigin::Scraped);
    spool.store(of_team_a(scraped("limited", 0))).await.unwrap();
    wait_until(&runtime, "first request", || server.state.lock().requests == 1).await;
    for number in 1..10 {
        let uploads = [
            of_team_a(scraped("limited", number)),
            of_team_a(snapshot("limited heap", number)),
            scraped("app", number),
            snapshot("heap", number),
        ];
        let begin = runtime.clock.monotonic();
        join_all(uploads.map(|upload| spool.store(upload))).await.into_iter().for_each(Result::unwrap);
        let ids = [format!("app/{number}"), format!("heap/{number}")];
        wait_until(&runtime, "other tenant", || ids.iter().all(|id| server.stored_ids().contains(id))).await;
        assert!(runtime.clock.monotonic() - begin < 2 * SECOND);
    }
    assert_eq!((server.state.lock().requests, delivery.snapshot().spool_files), (1 + 18, 19));
    server.state.lock().tenant_outages.clear();
    let begin = runtime.clock.monotonic();
    wait_until_delivered(&delivery, &runtime).await;
    assert!(runtime.clock.monotonic() - begin < 91 * SECOND);
    assert_eq!(delivery.view().error, None);
}

/// Runs an outage of an hour with a delta profile and a snapshot every few seconds.
async fn check_outage(outage: impl FnOnce(&mut ServerState)) {
    let runtime = simulated_runtime(7);
    let server = DedupServer::new(&runtime);
    let disk = MemoryDisk::new();
    let disks = SpoolDisks { files: Arc::new(disk.clone()), ..SpoolDisks::in_memory() };
    let disks = SpoolDisks { is_in_memory: false, ..disks };
    let spool = open_spool(disks, SpoolConfig::default(), &runtime).await;
    let delivery = server.deliver(&spool, &runtime);
    server.state.lock().latency = SECOND / 20;
    outage(&mut server.state.lock());
    let end = runtime.clock.monotonic() + 3600 * SECOND;
    let mut number = 0;
    let mut expected = BTreeSet::new();
    let mut store_both = async || {
        let cumulative = upload("heap", number, UploadOrder::Cumulative(9), UploadOrigin::Scraped);
        let delta = spool.store(scraped("cpu", number));
        let (delta, cumulative) = futures::join!(delta, spool.store(cumulative));
        delta.unwrap();
        cumulative.unwrap();
        expected.extend([format!("cpu/{number}"), format!("heap/{number}")]);
        number += 1;
        number - 1
    };
    while runtime.clock.monotonic() < end {
        store_both().await;
        runtime.clock.sleep(4 * SECOND).await;
    }
    let outage_requests = server.state.lock().requests;
    assert!((60..1400).contains(&outage_requests), "{outage_requests}");
    {
        let mut state = server.state.lock();
        state.outage = None;
        state.hang = None;
    }
    let begin = runtime.clock.monotonic();
    let fresh = store_both().await;
    let id = format!("cpu/{fresh}");
    wait_until(&runtime, "fresh profile", || server.stored_ids().contains(&id)).await;
    let waited = runtime.clock.monotonic() - begin;
    assert!(waited < 5 * SECOND, "{waited:?}");
    wait_until_delivered(&delivery, &runtime).await;
    let waited = runtime.clock.monotonic() - begin;
    assert!(waited < 180 * SECOND, "{waited:?}");
    server.assert_stored(&expected);
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
    let state = server.state.lock();
    let files = expected.len();
    assert!(state.requests - outage_requests < files + files / 2, "{} for {files}", state.requests);
    let heap: Vec<_> = state.order["heap"].iter().map(|id| id[5..].parse::<u64>().unwrap()).collect();
    let limit = MAX_PROBE_REQUESTS + MAX_FRESH_REQUESTS + MAX_BACKLOG_REQUESTS + MAX_CUMULATIVE_REQUESTS;
    assert!(heap.is_sorted() && state.max_in_flight <= limit, "{}", state.max_in_flight);
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_of_an_hour_fresh_profiles_are_visible_and_the_backlog_is_complete() {
    check_outage(|state| state.outage = Some(unavailable())).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_partition_of_an_hour_fresh_profiles_do_not_wait_for_requests_that_hang() {
    check_outage(|state| state.hang = Some(30 * SECOND)).await;
}

#[tokio::test(start_paused = true)]
async fn backlog_uses_at_most_half_of_the_requests() {
    let runtime = simulated_runtime(3);
    let server = DedupServer::new(&runtime);
    let disk = MemoryDisk::new();
    let disks =
        || SpoolDisks { files: Arc::new(disk.clone()), is_in_memory: false, ..SpoolDisks::in_memory() };
    let spool = open_spool(disks(), SpoolConfig::default(), &runtime).await;
    for number in 0..20 {
        spool.store(scraped("app", number)).await.unwrap();
    }
    runtime.tasks.shutdown(SECOND).await;
    let runtime = simulated_runtime(4);
    server.state.lock().latency = SECOND;
    let spool = open_spool(disks(), SpoolConfig::default(), &runtime).await;
    let delivery = server.deliver(&spool, &runtime);
    wait_until_delivered(&delivery, &runtime).await;
    let state = server.state.lock();
    assert_eq!((state.max_in_flight, state.stored.len()), (MAX_BACKLOG_REQUESTS, 20));
}

/// Stores snapshots of several series while the server fails at random, and restarts the agent now and then.
async fn check_snapshot_order(seed: u64) {
    let disk = MemoryDisk::new();
    let disks = |disk: &MemoryDisk| SpoolDisks {
        files: Arc::new(disk.clone()),
        is_in_memory: false,
        ..SpoolDisks::in_memory()
    };
    let random = Random::from_seed(seed);
    let mut disk = disk;
    let mut server = None;
    let mut number = 0;
    for life in 0..4 {
        let runtime = simulated_runtime(seed + life);
        let server: &Arc<DedupServer> = server.get_or_insert_with(|| DedupServer::new(&runtime));
        server.state.lock().random_failures = Some(random.split());
        server.state.lock().clock = Some(runtime.clock.clone());
        let spool = open_spool(disks(&disk), SpoolConfig::default(), &runtime).await;
        let delivery = server.deliver(&spool, &runtime);
        for _ in 0..12 {
            let snapshots = (0..6).map(|series| {
                let name = format!("series{series}");
                spool.store(upload(&name, number, UploadOrder::Cumulative(series), UploadOrigin::Scraped))
            });
            join_all(snapshots).await.into_iter().for_each(Result::unwrap);
            number += 1;
            runtime.clock.sleep(Duration::from_millis(random.next_below(3000))).await;
        }
        if life == 3 {
            wait_until_delivered(&delivery, &runtime).await;
        }
        if random.next_below(2) == 0 {
            disk = disk.crash(seed)
        } else {
            disk = disk.restart()
        }
        runtime.tasks.shutdown(SECOND).await;
    }
    let server = server.unwrap();
    let state = server.state.lock();
    for (series, ids) in &state.order {
        let numbers: Vec<u64> =
            ids.iter().map(|id| id.rsplit('/').next().unwrap().parse().unwrap()).collect();
        assert_eq!(numbers, (0..number).collect::<Vec<_>>(), "{series}, seed {seed}");
    }
    assert_eq!(state.order.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn snapshots_of_a_series_arrive_in_order_despite_failures_and_restarts() {
    for seed in 0..20 {
        check_snapshot_order(100 * seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_server_is_served_at_its_own_pace_with_the_tenant_of_the_upload() {
    let runtime = simulated_runtime(1);
    let servers = [DedupServer::new(&runtime), DedupServer::new(&runtime)];
    servers[0].state.lock().outage = Some(unavailable());
    let mut deliveries = Vec::new();
    for server in &servers {
        let spool = open_spool(SpoolDisks::in_memory(), SpoolConfig::default(), &runtime).await;
        deliveries.push(server.deliver(&spool, &runtime));
    }
    let set = SpoolSet::new(deliveries);
    let tenant = Some("team-a".parse().unwrap());
    set.store(Upload { tenant, ..scraped("app", 1) }).await.unwrap();
    wait_until(&runtime, "second server", || servers[1].stored_ids().len() == 1).await;
    let files: Vec<_> = set.snapshots().iter().map(|snapshot| snapshot.spool_files).collect();
    assert_eq!((files, servers[0].stored_ids().len()), (vec![1, 0], 0));
    assert!(set.is_in_memory() && set.views()[0].error.is_some());
    servers[0].state.lock().outage = None;
    set.drain();
    wait_until(&runtime, "first server", || servers[0].stored_ids().len() == 1).await;
    assert_eq!(servers[0].state.lock().tenants, BTreeSet::from([Some("team-a".to_owned())]));
}

/// Spools of two servers, of which the second one holds `capacity` bytes in memory.
async fn two_spools(runtime: &SpoolRuntime, capacity: [u64; 2]) -> (Vec<Arc<DedupServer>>, SpoolSet) {
    let mut servers = Vec::new();
    let mut deliveries = Vec::new();
    for bytes in capacity {
        let server = DedupServer::new(runtime);
        let config = SpoolConfig {
            max_memory_bytes: athanor_chassis::ByteSize::bytes(bytes),
            ..SpoolConfig::default()
        };
        let spool = open_spool(SpoolDisks::in_memory(), config, runtime).await;
        deliveries.push(server.deliver(&spool, runtime));
        servers.push(server);
    }
    (servers, SpoolSet::new(deliveries))
}

fn received(number: u64) -> Upload {
    upload("app", number, UploadOrder::Independent, UploadOrigin::Received)
}

#[tokio::test(start_paused = true)]
async fn full_spool_of_one_server_delays_no_other_and_counts_its_drops() {
    let runtime = simulated_runtime(1);
    let (servers, set) = two_spools(&runtime, [1 << 20, 3 * 4096]).await;
    servers[1].state.lock().outage = Some(unavailable());
    for number in 0..10 {
        set.store(received(number)).await.unwrap();
    }
    wait_until(&runtime, "first server", || servers[0].stored_ids().len() == 10).await;
    servers[1].state.lock().outage = None;
    wait_until(&runtime, "second server", || set.snapshots()[1].spool_files == 0).await;
    let snapshots = set.snapshots();
    let dropped = snapshots[1].dropped_profiles[&DropReason::SpoolFull];
    assert!(dropped > 0 && snapshots[0].dropped_profiles.is_empty(), "{snapshots:?}");
    assert_eq!((snapshots[1].sent_profiles + dropped, snapshots[0].sent_profiles), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn upload_that_no_spool_accepts_is_an_error_and_stored_nowhere() {
    let runtime = simulated_runtime(1);
    let (servers, set) = two_spools(&runtime, [3 * 4096, 3 * 4096]).await;
    servers.iter().for_each(|server| server.state.lock().outage = Some(unavailable()));
    let mut accepted = BTreeSet::new();
    let mut rejected = 0;
    for number in 0..10 {
        match set.store(received(number)).await {
            Ok(()) => drop(accepted.insert(format!("app/{number}"))),
            Err(status) => {
                assert_eq!(status.code, ErrorCode::Exhausted);
                assert!(status.retry_after.is_some());
                rejected += 1;
            }
        }
    }
    assert!(rejected > 0);
    servers.iter().for_each(|server| server.state.lock().outage = None);
    wait_until(&runtime, "both servers", || set.snapshots().iter().all(|state| state.spool_files == 0)).await;
    servers.iter().for_each(|server| server.assert_stored(&accepted));
    assert!(set.snapshots().iter().all(|state| state.dropped_profiles.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn stop_delivers_what_is_in_memory_within_a_limit() {
    for (seconds, outage_seconds, delivered) in [(0, 0, 2), (3, 3, 2), (10, 60, 0)] {
        let runtime = simulated_runtime(1);
        let server = DedupServer::new(&runtime);
        let spool = open_spool(SpoolDisks::in_memory(), SpoolConfig::default(), &runtime).await;
        let delivery = server.deliver(&spool, &runtime);
        server.state.lock().outage = Some(unavailable());
        spool.store(scraped("app", 1)).await.unwrap();
        runtime.clock.sleep(120 * SECOND).await;
        let begin = runtime.clock.monotonic();
        let recovery = async {
            runtime.clock.sleep(outage_seconds * SECOND).await;
            server.state.lock().outage = None;
        };
        let stop = async {
            let unfinished = runtime.tasks.shutdown(12 * SECOND).await.unfinished;
            (unfinished, runtime.clock.monotonic() - begin)
        };
        // The last upload is pending when the stop begins.
        let storing = spool.store(scraped("app", 2));
        let (stored, (unfinished, waited), ()) = futures::join!(storing, stop, recovery);
        assert_eq!((stored, unfinished), (Ok(()), Vec::<String>::new()));
        let expected = seconds * SECOND..=(seconds + 4) * SECOND;
        assert!(expected.contains(&waited), "{waited:?} after an outage of {outage_seconds} s");
        assert_eq!(
            (server.stored_ids().len(), delivery.snapshot().sent_profiles),
            (delivered, delivered as u64)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn export_whose_response_is_a_page_stays_in_the_spool() {
    let runtime = simulated_runtime(1);
    let server = DedupServer::new(&runtime);
    let spool = open_spool(SpoolDisks::in_memory(), SpoolConfig::default(), &runtime).await;
    let delivery = server.deliver(&spool, &runtime);
    server.state.lock().otlp_response = Some("<html>log in</html>".into());
    spool.store(Upload { route: UploadRoute::Otlp, ..received(1) }).await.unwrap();
    runtime.clock.sleep(300 * SECOND).await;
    assert_eq!((delivery.snapshot().spool_files, delivery.snapshot().sent_profiles), (1, 0));
    assert!(delivery.view().error.unwrap().contains("check that the URL"));
    server.state.lock().otlp_response = Some(bytes::Bytes::new());
    wait_until_delivered(&delivery, &runtime).await;
    assert_eq!(delivery.snapshot().sent_profiles, 1);
}

#[tokio::test(start_paused = true)]
async fn method_that_the_server_does_not_have_delays_no_other_upload() {
    let runtime = simulated_runtime(1);
    let server = DedupServer::new(&runtime);
    let spool = open_spool(SpoolDisks::in_memory(), SpoolConfig::default(), &runtime).await;
    let delivery = server.deliver(&spool, &runtime);
    for number in 0..20 {
        let route = UploadRoute::Ingest {
            query: "name=app".to_owned(),
            content_type: String::new(),
            content_encoding: String::new(),
        };
        spool.store(Upload { route, ..received(1000) }).await.unwrap();
        spool.store(received(number)).await.unwrap();
        let id = format!("app/{number}");
        let begin = runtime.clock.monotonic();
        wait_until(&runtime, "other upload", || server.stored_ids().contains(&id)).await;
        assert!(runtime.clock.monotonic() - begin < SECOND);
    }
    assert_eq!((delivery.snapshot().sent_profiles, delivery.snapshot().spool_files), (20, 20));
    runtime.clock.sleep(1800 * SECOND).await;
    // Each of 20 uploads of the missing method is sent at first, and after 1, 3, 7 and 15 minutes.
    let requests = server.state.lock().requests;
    assert!((100..180).contains(&requests), "{requests}");
}
