//! A query that takes the whole process along is known to the next one, and refused when it has done so twice.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_integration::athanor_binary;
use athanor_integration::process::{NO_VARIABLES, ServerProcess};
use athanor_integration::server::{HttpResponse, send_request};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);
const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";

/// A server that is ready.
struct Server {
    process: ServerProcess,
    address: SocketAddr,
}

impl Server {
    fn start(data: &Path, life: usize) -> Self {
        let settings = ["ingester.single_node_shards=1", "wal.min_free_bytes=0MiB", "shutdown_delay=0s"]
            .map(str::to_owned);
        let said = data.with_file_name(format!("life-{life}.log"));
        let mut process = ServerProcess::start(data, said, &settings, NO_VARIABLES);
        let server = Self { address: process.address(), process };
        until("it is ready", || (server.get("/ready").status == 200).then_some(()));
        server
    }

    fn get(&self, path: &str) -> HttpResponse {
        send_request(self.address, &format!("GET {path}"), &[], b"")
    }

    /// A number of its metrics.
    fn tells(&self, name: &str) -> f64 {
        let page = self.get("/metrics");
        let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
        page.text().lines().find_map(of).unwrap_or_else(|| panic!("no {name}"))
    }
}

fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let clock = Clock::system();
    let begun = clock.monotonic();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(clock.monotonic() - begun < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A question about the last hour.
fn ask(address: SocketAddr, call: &str, selector: &str) -> HttpResponse {
    let now = Clock::system().wall().millis();
    let question = json!({
        "profileTypeID": TYPE, "labelSelector": selector, "matchers": [selector],
        "start": now - 3_600_000, "end": now + 60_000,
    });
    let headers = [("content-type", "application/json")];
    let path = format!("POST /querier.v1.QuerierService/{call}");
    send_request(address, &path, &headers, question.to_string().as_bytes())
}

/// Asks beside the test: whoever asks may see the process die.
#[expect(clippy::disallowed_methods, reason = "a client of a process that dies meanwhile")]
fn begin(server: &Server, selector: &'static str) -> JoinHandle<()> {
    let address = server.address;
    thread::spawn(move || drop(std::panic::catch_unwind(|| ask(address, "SelectMergeStacktraces", selector))))
}

/// How many questions are written down as under way.
fn under_way(data: &Path) -> usize {
    let slots = fs::read(data.join("activity/active-queries")).unwrap();
    slots.chunks(32).filter(|slot| slot[17] == 1).count()
}

/// What each block says of itself: the first that is read of it.
fn metas(data: &Path) -> Vec<PathBuf> {
    let blocks = fs::read_dir(data.join("bucket/blocks/_shared")).unwrap();
    blocks.map(|block| block.unwrap().path().join("meta.json")).collect()
}

#[test]
fn a_query_that_aborts_the_process_twice_is_refused_until_it_is_lifted() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&data, 0);
    let pushed = send_request(server.address, "POST /ingest?name=shop&format=folded", &[], b"main;work 1\n");
    assert_eq!(pushed.status, 200, "{}", pushed.text());
    let cut =
        Command::new(athanor_binary()).args(["flush", "--data"]).arg(&data).env_clear().output().unwrap();
    assert!(cut.status.success(), "{cut:?}");
    // Whoever reads the block waits for ever: a pipe that nobody writes to.
    let metas = metas(&data);
    let kept: Vec<Vec<u8>> = metas.iter().map(|meta| fs::read(meta).unwrap()).collect();
    for meta in &metas {
        fs::remove_file(meta).unwrap();
        assert!(Command::new("mkfifo").arg(meta).status().unwrap().success());
    }
    let killer = "{service_name=~\"shop.*\"}";
    let asked = [begin(&server, killer), begin(&server, "{}")];
    until("both are under way", || (under_way(&data) == 2).then_some(()));
    server.process.abort();
    asked.into_iter().for_each(|asked| asked.join().unwrap());

    let server = Server::start(&data, 1);
    assert_eq!(server.tells("athanor_querier_queries_suspect") as usize, 2);
    let first = begin(&server, killer);
    until("it is under way", || (under_way(&data) == 1).then_some(()));
    // The other one waits, and is not to blame.
    let second = begin(&server, "{}");
    assert_eq!(ask(server.address, "GetProfileStats", "{}").status, 200, "others are answered");
    server.process.abort();
    [first, second].into_iter().for_each(|asked| asked.join().unwrap());

    let server = Server::start(&data, 2);
    assert_eq!(server.tells("athanor_querier_queries_quarantined") as usize, 1);
    let refused = ask(server.address, "SelectMergeStacktraces", killer);
    assert_eq!(refused.status, 500, "{}", refused.text());
    for said in ["ran 2 times when the process aborted", "athanor quarantine clear"] {
        assert!(refused.text().contains(said), "{}", refused.text());
    }
    for (meta, bytes) in metas.iter().zip(kept) {
        fs::remove_file(meta).unwrap();
        fs::write(meta, bytes).unwrap();
    }
    let other = ask(server.address, "SelectMergeStacktraces", "{}");
    assert!(other.status == 200 && other.text().contains("work"), "{}", other.text());
    assert_eq!(server.tells("athanor_querier_queries_suspect") as usize, 0, "it ended well");
    let quarantine = |action: &str| {
        let arguments = ["quarantine", action, "--data"];
        let run = Command::new(athanor_binary()).args(arguments).arg(&data).env_clear().output().unwrap();
        assert!(run.status.success(), "{run:?}");
        String::from_utf8(run.stdout).unwrap()
    };
    let listed = quarantine("list");
    assert!(listed.lines().count() == 2 && listed.contains("  quarantined  abort"), "{listed}");
    assert_eq!(quarantine("clear"), "unblocked 1 queries\n");
    assert_eq!(quarantine("list").lines().count(), 1);
    let answer = ask(server.address, "SelectMergeStacktraces", killer);
    assert!(answer.status == 200 && answer.text().contains("work"), "{}", answer.text());
}
