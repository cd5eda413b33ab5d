//! A server stops in this order: it says so, still answers, listens no more, cuts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use athanor_chassis::{Clock, ErrorCode, Random, Timestamp, compute};
use athanor_integration::cluster::FaultBucket;
use athanor_integration::server::{HttpResponse, RESPONSE_DEADLINE, TestServer, send_request};
use athanor_server::ServerConfig;
use athanor_storage::test_bucket::TestBucket;
use athanor_storage::{StorageConfig as StoreConfig, Store, StoreDeps};

#[test]
fn it_says_that_it_stops_before_it_does() {
    let server = TestServer::start(|config| config.shutdown_timeout = 2 * RESPONSE_DEADLINE);
    assert_eq!(server.get("/ready", &[]).text(), "ready\n");
    assert_eq!(server.post("/ingest?name=shop.cpu", &[], b"main;f 3\n").status, 200);
    let haste = server.node.force_stop();
    let TestServer { node, runtime, folder, address } = server;
    let stopping = runtime.spawn(node.stop_after(RESPONSE_DEADLINE));
    let ready = || send_request(address, "GET /ready", &[], b"");
    let (clock, begun) = (Clock::system(), Clock::system().monotonic());
    let answer = loop {
        let answer = ready();
        if answer.status != 200 {
            break answer;
        }
        assert!(clock.monotonic() - begun < RESPONSE_DEADLINE, "it does not say that it stops");
    };
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("stopping: this node accepts no new requests"), "{}", answer.text());
    // Whom the news has not reached yet is served.
    assert_eq!(send_request(address, "POST /ingest?name=shop.cpu", &[], b"main;g 4\n").status, 200);
    let page = send_request(address, "GET /metrics", &[], b"");
    assert!(page.text().contains("\nathanor_ready 0\n"));
    assert!(!stopping.is_finished());
    // The second signal.
    runtime.block_on(async {
        while TcpStream::connect(address).is_ok() {
            haste.notify_waiters();
            clock.sleep(Duration::from_millis(1)).await;
        }
        stopping.await.unwrap().unwrap();
    });
    // What was acknowledged is in the log, if not in a block.
    drop(folder);
}

#[test]
fn the_last_cut_is_made() {
    let server = TestServer::start(|_| {});
    assert_eq!(server.post("/ingest?name=shop.cpu", &[], b"main;f 3\n").status, 200);
    let TestServer { node, runtime, folder, .. } = server;
    runtime.block_on(node.stop()).unwrap();
    let blocks = std::fs::read_dir(folder.path().join("bucket")).unwrap().count();
    assert!(blocks > 0, "a block is in the bucket");
}

#[test]
fn a_log_that_is_gone_is_told_while_it_runs_and_at_the_end() {
    // Nobody puts a file into a folder that is being removed.
    let server = TestServer::start(|config| config.wal.preallocated_segments = 0);
    assert_eq!(server.post("/ingest?name=shop.cpu", &[], b"main;f 3\n").status, 200);
    std::fs::remove_dir_all(server.folder.path().join("wal")).unwrap();
    let ready = server.get("/ready", &[]);
    assert!(ready.status == 503 && ready.text().contains("the log has failed"), "{}", ready.text());
    let TestServer { node, runtime, folder, .. } = server;
    let lost = runtime.block_on(node.stop()).unwrap_err();
    assert!(lost.code == ErrorCode::DataLoss && lost.message.contains("no such file"), "{lost}");
    drop(folder);
}

#[test]
fn a_log_that_is_gone_with_nothing_in_it_is_no_loss() {
    let server = TestServer::start(|config| config.wal.preallocated_segments = 0);
    std::fs::remove_dir_all(server.folder.path().join("wal")).unwrap();
    let TestServer { node, runtime, folder, .. } = server;
    runtime.block_on(node.stop()).unwrap();
    drop(folder);
}

/// A request that has begun, and whose body does not end.
struct Held(TcpStream);

impl Held {
    fn begin(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(RESPONSE_DEADLINE)).unwrap();
        // Enough has come to be no slower than bodies have to be, for longer than the end takes.
        let lines = "main;g 1\n".repeat(4096);
        let length = lines.len() + "main;h 5\n".len();
        let head = format!(
            "POST /ingest?name=shop.cpu HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\
             expect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // That it may go on is said when the body is waited for.
        let mut go_on = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut go_on).unwrap();
        assert!(go_on.starts_with(b"HTTP/1.1 100 "));
        stream.write_all(lines.as_bytes()).unwrap();
        stream.write_all(b"main").unwrap();
        Self(stream)
    }

    fn finish(mut self) -> HttpResponse {
        self.0.write_all(b";h 5\n").unwrap();
        let mut answer = Vec::new();
        self.0.read_to_end(&mut answer).unwrap();
        HttpResponse::parse(&answer)
    }

    /// Whatever comes until the connection is closed.
    fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // It may be reset as well.
        let _ = self.0.read_to_end(&mut rest);
        rest
    }
}

/// By its own clock: all that a server does at its end takes no longer than `shutdown_timeout` together,
/// though it answers for a while, a request never ends and the bucket takes nothing.
#[test]
fn the_end_takes_no_longer_than_it_may() {
    const STEP: Duration = Duration::from_millis(50);
    let (clock, hand) = Clock::manual(Timestamp::from_seconds(1_900_000_000));
    let bucket = FaultBucket::default();
    let server = TestServer::start_on(
        |_| {},
        |system| {
            let deps = StoreDeps { clock: clock.clone(), random: Random::from_seed(1) };
            system.store =
                Store::with_object_store(Arc::new(TestBucket(bucket.clone())), &StoreConfig::default(), deps);
            system.clock = clock.clone();
        },
    );
    let ServerConfig { shutdown_timeout, shutdown_delay, .. } = ServerConfig::default();
    assert_eq!(shutdown_timeout, Duration::from_secs(10));
    let address = server.address;
    // It begins to work after a moment of its clock.
    let tick = || {
        hand.advance(STEP);
        thread::sleep(Duration::from_millis(2));
    };
    let first = move || {
        assert_eq!(send_request(address, "POST /ingest?name=shop.cpu", &[], b"main;f 3\n").status, 200);
    };
    let first = compute::spawn_dedicated_thread("sends the first", first).unwrap();
    while !first.is_finished() {
        tick();
    }
    first.join().unwrap();
    bucket.fail_one_of(1);
    let (late, lost) = (Held::begin(address), Held::begin(address));
    let TestServer { node, runtime, folder, .. } = server;
    let begun = clock.monotonic();
    let stopping = runtime.spawn({
        let clock = clock.clone();
        async move { (node.stop_after(shutdown_delay).await, clock.monotonic() - begun) }
    });
    let pass = |until: Duration| {
        while clock.monotonic() - begun < until {
            tick();
        }
    };
    pass(Duration::from_secs(5));
    assert!(!stopping.is_finished());
    assert_eq!(late.finish().status, 200, "who finishes in time is answered");
    pass(Duration::from_secs(8));
    // Nobody is waited for any more, so the last cut is tried. However long that takes this machine, its clock waits.
    let patient = Clock::system();
    let asked = patient.monotonic();
    while bucket.failed_calls() == 0 {
        assert!(patient.monotonic() - asked < RESPONSE_DEADLINE, "the last cut is not tried");
        thread::sleep(Duration::from_millis(2));
    }
    pass(shutdown_timeout);
    // From here on its clock stands still: whoever waits for more waits for ever.
    let (stopped, took) = runtime
        .block_on(async { Clock::system().timeout(RESPONSE_DEADLINE, stopping).await })
        .expect("it ends, since its time is up")
        .unwrap();
    assert!(took >= Duration::from_secs(7) && took <= shutdown_timeout, "{took:?}");
    assert_eq!(lost.rest(), b"", "who does not is cut off");
    // What was acknowledged is in no block, and in the log.
    stopped.unwrap();
    drop(folder);
}
