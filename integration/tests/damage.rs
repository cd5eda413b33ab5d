//! A log that is damaged does not stop the server, and no answer hides what is missing.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::disk::MemoryDisk;
use athanor_chassis::{ByteSize, Disk, Overrides};
use athanor_server::{Config, Node, System, request};
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server on a disk in memory; its bucket is a folder.
struct Server {
    node: Node,
    runtime: Runtime,
}

impl Server {
    fn start(folder: &std::path::Path, log: &MemoryDisk) -> Self {
        let mut config =
            Config { listen: "127.0.0.1:0".to_owned(), data: folder.to_owned(), ..Config::default() };
        config.log.reserve = ByteSize::bytes(0);
        config.ingester.shards = 1;
        let system = System { log: Arc::new(log.clone()), ..System::local(&config).unwrap() };
        let runtime = Runtime::new().unwrap();
        let overrides = Overrides::new(config.limits.clone());
        let node = runtime.block_on(Node::start(&config, system, overrides, Arc::from(""))).unwrap();
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
    assert!(!head.contains("athanor-partial"), "{head}");
    server.kill();

    let disk = disk.restart();
    damage(&disk, "taken_by_damage");
    let server = Server::start(folder.path(), &disk);
    let is_told = |server: &Server, when: &str| {
        let (head, body) = server.ask();
        assert!(
            head.contains("athanor-partial: 2 acknowledged batches of profiles were lost"),
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
    server.runtime.block_on(request(folder.path(), "/cut")).unwrap();
    is_told(&server, "from blocks");
    server.kill();

    let server = Server::start(folder.path(), &disk.restart());
    is_told(&server, "after the log let go of it");
    server.kill();
}
