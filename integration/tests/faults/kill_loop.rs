//! A server that is killed again and again, under load, loses nothing and counts nothing twice.
//!
//! ```text
//!  clients ─► athanor serve ─► killed ─► started on the same folder ─► …
//!     └─ ledger: sent, acknowledged ── compared with ── what queries say
//! ```
//!
//! An upload whose answer never came is sent again after the restart, byte for byte, until it is acknowledged; it
//! counts once, whatever became of its first try. Cuts run all the time, so that kills fall between their steps.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use athanor_chassis::{Clock, Random};
use athanor_integration::process::{NO_VARIABLES, ServerProcess};
use parking_lot::Mutex;
use serde_json::{Value, json};

const KILLS: usize = 60;
const CLIENTS: usize = 8;
const TENANTS: [&str; 2] = ["acme", "umbrella"];
const SERVICES: [&str; 3] = ["checkout", "search", "mail"];
const LEAVES: u64 = 40;
/// After so many kills everything is compared, with nothing under way.
const COMPARE_EVERY: usize = 6;
/// One sample of folded text stands for so many nanoseconds, at 100 samples a second.
const SAMPLE: i64 = 10_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// A server of one life.
fn start(folder: &Path, life: usize) -> ServerProcess {
    let settings = [
        "ingester.flush.max_head_age=100ms",
        "ingester.single_node_shards=2",
        "wal.segment_bytes=1MiB",
        "wal.min_free_bytes=0MiB",
        "wal.preallocated_segments=1",
        "multitenancy_enabled=true",
        "telemetry.level=warn",
        "shutdown_delay=0s",
    ];
    let said = folder.join(format!("life-{life}.log"));
    ServerProcess::start(&folder.join("data"), said, &settings.map(str::to_owned), NO_VARIABLES)
}

/// Sends one request on a connection of its own; gives status and body.
fn send(address: &str, tenant: &str, kind: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nx-scope-orgid: {tenant}\r\ncontent-type: {kind}\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let cut_short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut_short)?;
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    if length.is_some_and(|length| length != body.len()) {
        return Err(cut_short());
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut_short)?;
    Ok((status, body.to_owned()))
}

/// Tenant and service, as places.
type Place = (usize, usize);

/// One upload; its value is like no other's.
#[derive(Clone)]
struct Upload {
    place: Place,
    path: String,
    body: String,
    leaves: Vec<(u64, i64)>,
    acknowledged: bool,
}

impl Upload {
    fn total(&self) -> i64 {
        self.leaves.iter().map(|(_, value)| value).sum()
    }
}

#[derive(Default)]
struct Ledger {
    uploads: Vec<Upload>,
    /// Sent, and no answer came.
    unknown: Vec<usize>,
    sent: BTreeMap<Place, i64>,
    acknowledged: BTreeMap<Place, i64>,
    repeats: usize,
}

impl Ledger {
    /// A new upload, or one that was sent before.
    fn next(&mut self, random: &Random, now: u64) -> (usize, Upload) {
        let chosen = if let Some(unknown) = self.unknown.pop() {
            self.repeats += 1;
            unknown
        } else if !self.uploads.is_empty() && random.next_below(8) == 0 {
            self.repeats += 1;
            let recent = random.next_below(2) == 0;
            let among = if recent { self.uploads.len().min(8) } else { self.uploads.len() };
            self.uploads.len() - 1 - random.next_below(among as u64) as usize
        } else {
            let upload = new(random, now, self.uploads.len());
            *self.sent.entry(upload.place).or_default() += upload.total();
            self.uploads.push(upload);
            self.uploads.len() - 1
        };
        (chosen, self.uploads[chosen].clone())
    }

    fn answered(&mut self, chosen: usize) {
        let upload = &mut self.uploads[chosen];
        if !upload.acknowledged {
            upload.acknowledged = true;
            *self.acknowledged.entry(upload.place).or_default() += upload.total();
        }
    }

    /// What a place holds, by leaf, when all is acknowledged.
    fn expected(&self, place: Place) -> BTreeMap<String, i64> {
        assert!(self.uploads.iter().all(|upload| upload.acknowledged));
        let mut expected = BTreeMap::new();
        for (leaf, value) in
            self.uploads.iter().filter(|upload| upload.place == place).flat_map(|upload| &upload.leaves)
        {
            *expected.entry(format!("leaf{leaf}")).or_default() += value;
        }
        expected
    }
}

fn new(random: &Random, now: u64, number: usize) -> Upload {
    let place =
        (random.next_below(TENANTS.len() as u64) as usize, random.next_below(SERVICES.len() as u64) as usize);
    let from = now - random.next_below(1800);
    let leaves: BTreeSet<u64> = (0..=random.next_below(4)).map(|_| random.next_below(LEAVES)).collect();
    let leaves: Vec<(u64, i64)> = leaves
        .into_iter()
        .enumerate()
        // The number is in it, so that no two are equal.
        .map(|(place, leaf)| (leaf, SAMPLE * if place == 0 { number as i64 + 1 } else { 7 }))
        .collect();
    let text: Vec<String> = leaves
        .iter()
        .map(|(leaf, value)| format!("main;step{};leaf{leaf} {}\n", leaf % 5, value / SAMPLE))
        .collect();
    let path = format!(
        "/ingest?name={}&from={from}&until={}&sampleRate=100&format=folded",
        SERVICES[place.1],
        from + 10
    );
    Upload { place, path, body: text.concat(), leaves, acknowledged: false }
}

/// What a server says that a place holds, by leaf; nothing if it does not answer.
fn asked(address: &str, (tenant, service): Place, now: u64) -> Option<BTreeMap<String, i64>> {
    let question = json!({
        "profileTypeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "labelSelector": format!("{{service_name={:?}}}", SERVICES[service]),
        "start": (now - 3600) * 1000,
        "end": (now + 3600) * 1000,
    });
    let path = "/querier.v1.QuerierService/SelectMergeStacktraces";
    let (status, body) =
        send(address, TENANTS[tenant], "application/json", path, &question.to_string()).ok()?;
    assert_eq!(status, 200, "a query is refused: {body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    let names = answer["flamegraph"]["names"].as_array().cloned().unwrap_or_default();
    let number =
        |value: &Value| value.as_i64().or_else(|| value.as_str().and_then(|text| text.parse().ok())).unwrap();
    let mut held = BTreeMap::new();
    for level in answer["flamegraph"]["levels"].as_array().into_iter().flatten() {
        // Each node: how far from the one before, total, self, name.
        for node in level["values"].as_array().unwrap().chunks(4) {
            let self_value = number(&node[2]);
            if self_value != 0 {
                let name = names[number(&node[3]) as usize].as_str().unwrap();
                *held.entry(name.to_owned()).or_default() += self_value;
            }
        }
    }
    Some(held)
}

fn series(address: &str, tenant: &str, now: u64) -> BTreeSet<String> {
    let question = json!({
        "labelNames": ["service_name"], "start": (now - 3600) * 1000, "end": (now + 3600) * 1000,
    });
    let path = "/querier.v1.QuerierService/Series";
    let (status, body) = send(address, tenant, "application/json", path, &question.to_string()).unwrap();
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    let sets = answer["labelsSet"].as_array().cloned().unwrap_or_default();
    let values = sets.iter().flat_map(|set| set["labels"].as_array().unwrap());
    values.map(|label| label["value"].as_str().unwrap().to_owned()).collect()
}

/// Everything that the clients and the killer share.
struct Trial {
    clock: Clock,
    ledger: Mutex<Ledger>,
    queries: AtomicUsize,
    unavailable: AtomicUsize,
}

impl Trial {
    fn now(&self) -> u64 {
        self.clock.wall().nanos() as u64 / 1_000_000_000
    }

    /// Sends one upload. False if the server is gone.
    fn upload(&self, address: &str, chosen: usize, upload: &Upload) -> bool {
        match send(address, TENANTS[upload.place.0], "text/plain", &upload.path, &upload.body) {
            Ok((200, _)) => self.ledger.lock().answered(chosen),
            Ok((status, body)) => {
                assert!(status >= 500 || status == 429, "refused with {status}: {body}");
                self.unavailable.fetch_add(1, Ordering::Relaxed);
                self.ledger.lock().unknown.push(chosen);
            }
            Err(_) => {
                self.ledger.lock().unknown.push(chosen);
                return false;
            }
        }
        true
    }

    fn client(&self, address: &str, random: &Random, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let (chosen, upload) = self.ledger.lock().next(random, self.now());
            if !self.upload(address, chosen, &upload) {
                return;
            }
        }
    }

    /// Asks all the time: never less than was acknowledged before, never more than was sent.
    fn watcher(&self, address: &str, random: &Random, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let place = (
                random.next_below(TENANTS.len() as u64) as usize,
                random.next_below(SERVICES.len() as u64) as usize,
            );
            let of = |totals: &BTreeMap<Place, i64>| totals.get(&place).copied().unwrap_or_default();
            let least = of(&self.ledger.lock().acknowledged);
            let Some(held) = asked(address, place, self.now()) else { return };
            let most = of(&self.ledger.lock().sent);
            let total: i64 = held.values().sum();
            assert!(
                (least..=most).contains(&total),
                "{place:?}: {total} of {least} acknowledged and {most} sent, in samples: {} of {}..{}",
                total / SAMPLE,
                least / SAMPLE,
                most / SAMPLE,
            );
            self.queries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// With nothing under way: repeats what is unknown, and compares everything.
    fn compare(&self, address: &str) {
        let begun = self.clock.monotonic();
        loop {
            let unknown = self.ledger.lock().unknown.pop();
            let Some(chosen) = unknown else { break };
            let upload = self.ledger.lock().uploads[chosen].clone();
            self.upload(address, chosen, &upload);
            assert!(self.clock.monotonic() - begun < PATIENCE, "uploads are not acknowledged");
        }
        let ledger = self.ledger.lock();
        for (tenant, of) in TENANTS.iter().enumerate() {
            let mut services = BTreeSet::new();
            for (service, name) in SERVICES.iter().enumerate() {
                let expected = ledger.expected((tenant, service));
                if !expected.is_empty() {
                    services.insert((*name).to_owned());
                }
                let held = asked(address, (tenant, service), self.now()).unwrap();
                assert_eq!(held, expected, "{name} of {of}");
            }
            assert_eq!(series(address, of, self.now()), services);
        }
    }

    /// One life under load; ends by SIGKILL.
    #[expect(clippy::disallowed_methods, reason = "a test whose clients wait for a server")]
    fn live(&self, mut server: ServerProcess, random: &Random, span: Duration) {
        let address = server.address().to_string();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let random = random.split();
                let (address, stop) = (&address, &stop);
                scope.spawn(move || self.client(address, &random, stop));
            }
            let random = random.split();
            let (address, stop) = (&address, &stop);
            scope.spawn(move || self.watcher(address, &random, stop));
            thread::sleep(span);
            server.kill();
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// How many blocks were written to their end.
fn blocks(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { blocks(&path) } else { usize::from(path.ends_with("meta.json")) })
        .sum()
}

#[test]
fn what_is_acknowledged_is_counted_once_however_often_the_server_is_killed() {
    #[expect(clippy::disallowed_methods, reason = "the test's own switch")]
    let seed = std::env::var("ATHANOR_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| Random::system().next_u64());
    println!("ATHANOR_SEED={seed}");
    let random = Random::from_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let trial = Trial {
        clock: Clock::system(),
        ledger: Mutex::default(),
        queries: AtomicUsize::new(0),
        unavailable: AtomicUsize::new(0),
    };
    let mut early = 0;
    for life in 1..=KILLS {
        let mut server = start(folder.path(), life);
        if random.next_below(6) == 0 {
            // Killed while it starts.
            early += 1;
            thread::sleep(Duration::from_millis(random.next_below(120)));
            server.kill();
            continue;
        }
        if life % COMPARE_EVERY == 0 {
            trial.compare(&server.address().to_string());
        }
        trial.live(server, &random, Duration::from_millis(100 + random.next_below(300)));
    }
    let mut server = start(folder.path(), KILLS + 1);
    trial.compare(&server.address().to_string());
    server.stop();
    let mut server = start(folder.path(), KILLS + 2);
    trial.compare(&server.address().to_string());
    let blocks = blocks(&folder.path().join("data/bucket"));
    let ledger = trial.ledger.lock();
    println!(
        "{KILLS} kills ({early} while starting), {} uploads acknowledged, {} repeats, {} queries, {} times unavailable, {blocks} blocks",
        ledger.uploads.len(),
        ledger.repeats,
        trial.queries.load(Ordering::Relaxed),
        trial.unavailable.load(Ordering::Relaxed),
    );
    assert!(ledger.uploads.len() > KILLS && blocks > KILLS / 4, "hardly any load");
}
