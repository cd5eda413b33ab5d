//! A disk that is damaged does not stop the server, what can be found again is, and no answer hides what is missing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use athanor_catalog::CatalogCommand;
use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{ByteSize, Disk, LimitOverrides};
use athanor_integration::process::{NO_VARIABLES, ServerProcess};
use athanor_server::{NodeDeps, ServerConfig, ServerNode, send_admin_request};
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server on a disk in memory; its bucket is a folder.
struct Server {
    node: ServerNode,
    runtime: Runtime,
}

impl Server {
    fn start(folder: &std::path::Path, log: &MemoryDisk) -> Self {
        let mut config = ServerConfig {
            http_listen_address: "127.0.0.1:0".to_owned(),
            data_dir: folder.to_owned(),
            ..ServerConfig::default()
        };
        config.wal.min_free_bytes = ByteSize::bytes(0);
        config.ingester.single_node_shards = 1;
        let system = NodeDeps { log: Arc::new(log.clone()), ..NodeDeps::local(&config).unwrap() };
        let runtime = Runtime::new().unwrap();
        let overrides = LimitOverrides::new(config.limits.clone());
        let node = runtime.block_on(ServerNode::start(&config, system, overrides, Arc::from(""))).unwrap();
        Self { node, runtime }
    }

    /// Everything ends at once, as in a process that is killed.
    fn kill(self) {
        self.runtime.shutdown_timeout(PATIENCE);
    }

    fn push(&self, function: &str) {
        let body = format!("main;{function} 1\n");
        let (head, _) = send(self.node.address(), "POST /ingest?name=shop&format=folded", &body);
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }

    /// Head and body of the answer to a question about everything.
    fn ask(&self) -> (String, String) {
        let query = "process_cpu:cpu:nanoseconds:cpu:nanoseconds%7Bservice_name%3D%22shop%22%7D";
        let path = format!("GET /pyroscope/render?query={query}&from=now-1h&until=now");
        send(self.node.address(), &path, "")
    }
}

fn send(address: SocketAddr, request: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

/// What answers must have, and what they must say that they lack.
struct Expected<'a> {
    functions: &'a [&'a str],
    partial: Option<&'a str>,
}

impl Server {
    /// Cuts everything and gives the names of all blocks in the bucket, oldest first.
    fn cut(&self, folder: &Path) -> Vec<String> {
        self.runtime.block_on(send_admin_request(folder, "/flush")).unwrap();
        let names = std::fs::read_dir(folder.join("bucket/blocks/_shared")).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Asks until the answer is as it should be: what the catalogue lost is looked for while the server serves.
    fn comes_to(&self, when: &str, expected: &Expected<'_>) {
        let mut last = None;
        for _ in 0..400 {
            let (head, body) = self.ask();
            let warnings: Vec<&str> =
                head.lines().filter_map(|line| line.strip_prefix("athanor-warnings: ")).collect();
            let told = match expected.partial {
                Some(words) => warnings.iter().any(|warning| warning.contains(words)),
                None => warnings.is_empty(),
            };
            // Each function was pushed once, and weighs as much as the others.
            let total = 10_000_000 * expected.functions.len();
            let whole = expected.functions.iter().all(|function| body.contains(function));
            if told && whole && body.contains(&format!("\"numTicks\":{total},")) {
                return;
            }
            last = Some((head, body));
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{when}: {last:?}");
    }
}

/// A server with three blocks, and with profiles that are in none; killed. Its disk, and the names of the blocks.
fn three_blocks(folder: &Path, also: impl FnOnce(&Server)) -> (MemoryDisk, Vec<String>) {
    let disk = MemoryDisk::new();
    let server = Server::start(folder, &disk);
    let mut blocks = Vec::new();
    for function in ["first", "second", "third"] {
        server.push(function);
        blocks = server.cut(folder);
    }
    also(&server);
    server.push("fourth");
    server.kill();
    (disk.restart(), blocks)
}

/// What was pushed is found, and what comes is stored, now and after a restart.
fn goes_on(folder: &Path, disk: &MemoryDisk, mut functions: Vec<&str>, partial: Option<&str>) {
    let server = Server::start(folder, disk);
    server.comes_to("after the damage", &Expected { functions: &functions, partial });
    functions.push("fifth");
    server.push("fifth");
    server.comes_to("after a push", &Expected { functions: &functions, partial });
    server.cut(folder);
    server.comes_to("after a cut", &Expected { functions: &functions, partial });
    server.kill();
    let server = Server::start(folder, &disk.restart());
    server.comes_to("after a restart", &Expected { functions: &functions, partial });
    server.kill();
}

const ALL: [&str; 4] = ["first", "second", "third", "fourth"];

#[test]
fn blocks_whose_registration_was_lost_are_known_again() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, blocks) = three_blocks(folder.path(), |_| ());
    // The blocks after it do not begin where those that are known end, so the catalogue refuses them as well.
    damage(&disk, &blocks[0]);
    goes_on(folder.path(), &disk, ALL.into(), None);
}

#[test]
fn shards_whose_opening_was_lost_are_known_again() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, _) = three_blocks(folder.path(), |_| ());
    damage(&disk, "open_slots");
    goes_on(folder.path(), &disk, ALL.into(), None);
}

#[test]
fn a_block_that_is_really_gone_is_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, blocks) = three_blocks(folder.path(), |_| ());
    damage(&disk, &blocks[1]);
    std::fs::remove_dir_all(folder.path().join("bucket/blocks/_shared").join(&blocks[1])).unwrap();
    let lost = "are in blocks that the catalog lost";
    goes_on(folder.path(), &disk, vec!["first", "third", "fourth"], Some(lost));
}

#[test]
fn a_catalogue_without_its_snapshot_is_made_anew_from_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, blocks) = three_blocks(folder.path(), |server| {
        let catalog = &server.node.roles().catalog;
        let forget = || CatalogCommand::ExpireTombstones;
        for _ in 0..1100 {
            server.runtime.block_on(catalog.propose(forget())).unwrap();
        }
    });
    // The files of a block under another name are no block.
    let bucket = folder.path().join("bucket/blocks/_shared");
    let copy = |name: &str| {
        std::fs::create_dir(bucket.join(name)).unwrap();
        for file in std::fs::read_dir(bucket.join(&blocks[0])).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), bucket.join(name).join(file.file_name())).unwrap();
        }
    };
    let last = if blocks[0].ends_with('0') { '1' } else { '0' };
    let other = format!("{}{last}", &blocks[0][..31]);
    copy(&other);
    flip(&only(&folder.path().join("state"), "group-0-"), 200);
    goes_on(folder.path(), &disk, ALL.into(), None);
}

#[test]
fn a_shard_without_its_snapshot_goes_on_and_says_what_that_means() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, _) = three_blocks(folder.path(), |_| ());
    flip(&only(&folder.path().join("state"), "group-1-"), 40);
    goes_on(folder.path(), &disk, ALL.into(), Some("may count twice"));
}

#[test]
fn a_log_that_failed_is_said_to_be_no_more_ready() {
    let folder = tempfile::tempdir().unwrap();
    let disk = MemoryDisk::new();
    let server = Server::start(folder.path(), &disk);
    let ready = || send(server.node.address(), "GET /ready", "");
    assert!(ready().0.starts_with("http/1.1 200"));
    disk.fail_syncs(1);
    let (head, _) = send(server.node.address(), "POST /ingest?name=shop&format=folded", "main 1\n");
    assert!(head.starts_with("http/1.1 500"), "{head}");
    let (head, body) = ready();
    assert!(head.starts_with("http/1.1 503") && body.contains("failed to sync"), "{head} {body}");
    server.kill();
}

/// The one file in a folder whose name begins so.
fn only(folder: &Path, prefix: &str) -> PathBuf {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(prefix);
    let files: Vec<PathBuf> = files.filter(named).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 8;
    std::fs::write(file, bytes).unwrap();
}

/// Flips a bit of the first place where the disk holds a text.
fn damage(disk: &MemoryDisk, text: &str) {
    for name in disk.list().unwrap() {
        let bytes = disk.read(&name).unwrap();
        if let Some(offset) = bytes.windows(text.len()).position(|window| window == text.as_bytes()) {
            assert!(disk.flip_bit(&name, offset as u64, 3));
            return;
        }
    }
    panic!("{text} is not in the log");
}

#[test]
fn what_damage_took_is_said_with_every_answer() {
    let folder = tempfile::tempdir().unwrap();
    let disk = MemoryDisk::new();
    let server = Server::start(folder.path(), &disk);
    ["before_it", "taken_by_damage", "built_on_it"].into_iter().for_each(|function| server.push(function));
    let (head, body) = server.ask();
    assert!(body.contains("taken_by_damage") && body.contains("built_on_it"), "{body}");
    assert!(!head.contains("athanor-partial-response"), "{head}");
    server.kill();

    let disk = disk.restart();
    damage(&disk, "taken_by_damage");
    let server = Server::start(folder.path(), &disk);
    let ingester = server.node.roles().ingester.clone().unwrap();
    let lost: Vec<u64> = ingester.damaged_shards().into_iter().map(|(_, entries)| entries).collect();
    assert_eq!(lost, [2]);
    drop(ingester);
    let is_told = |server: &Server, when: &str| {
        let (head, body) = server.ask();
        assert!(
            head.contains("athanor-warnings: 2 acknowledged batches of profiles were lost"),
            "{when}: {head}"
        );
        // An entry whose names build on lost ones would be called by wrong names: it is not shown.
        let shown = ["before_it", "taken_by_damage", "built_on_it"].map(|function| body.contains(function));
        assert_eq!(shown, [true, false, false], "{when}: {body}");
    };
    is_told(&server, "from the head");
    server.push("after_it");
    is_told(&server, "from two generations");
    assert!(server.ask().1.contains("after_it"));
    server.runtime.block_on(send_admin_request(folder.path(), "/flush")).unwrap();
    is_told(&server, "from blocks");
    server.kill();

    let server = Server::start(folder.path(), &disk.restart());
    is_told(&server, "after the log let go of it");
    server.kill();
}

/// Nothing is lost where damage is below the watermark: profiles lie in blocks.
#[test]
fn damage_below_watermark_logs_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let settings = ["ingester.single_node_shards=1".to_owned(), "wal.min_free_bytes=0MiB".to_owned()];
    let start = |said: &str| ServerProcess::start(&data, folder.path().join(said), &settings, NO_VARIABLES);
    let mut process = start("first");
    let address = process.address();
    for function in ["lies_in_a_block", "lies_beside_it"] {
        let path = "POST /ingest?name=shop&format=folded";
        let (head, _) = send(address, path, &format!("main;{function} 1\n"));
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }
    let runtime = Runtime::new().unwrap();
    runtime.block_on(send_admin_request(&data, "/flush")).unwrap();
    process.kill();

    let text = b"lies_in_a_block";
    let damaged = std::fs::read_dir(data.join("wal")).unwrap().any(|file| {
        let path = file.unwrap().path();
        let place = std::fs::read(&path).unwrap().windows(text.len()).position(|window| window == text);
        place.inspect(|at| flip(&path, *at)).is_some()
    });
    assert!(damaged, "the entry is in the log still");
    let mut process = start("second");
    process.address();
    let said = process.log_text();
    assert!(said.contains("WARN") && said.contains("log is damaged"), "{said}");
    assert!(!said.contains("ERROR"), "{said}");
    process.stop();
}
