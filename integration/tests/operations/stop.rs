//! A server stops in this order: it says so, still answers, listens no more, cuts.

use std::net::TcpStream;
use std::time::Duration;

use athanor_chassis::{Clock, Code};

use athanor_integration::server::{PATIENCE, Server, send};

#[test]
fn it_says_that_it_stops_before_it_does() {
    let server = Server::start(|_| {});
    assert_eq!(server.get("/ready", &[]).text(), "ready\n");
    assert_eq!(server.post("/ingest?name=shop.cpu", &[], b"main;f 3\n").status, 200);
    let haste = server.node.haste();
    let Server { node, runtime, folder, address } = server;
    let stopping = runtime.spawn(node.stop_after(PATIENCE));
    let ready = || send(address, "GET /ready", &[], b"");
    let (clock, begun) = (Clock::system(), Clock::system().monotonic());
    let answer = loop {
        let answer = ready();
        if answer.status != 200 {
            break answer;
        }
        assert!(clock.monotonic() - begun < PATIENCE, "it does not say that it stops");
    };
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("stopping: it takes no new requests"), "{}", answer.text());
    // Whom the news has not reached yet is served.
    assert_eq!(send(address, "POST /ingest?name=shop.cpu", &[], b"main;g 4\n").status, 200);
    let page = send(address, "GET /metrics", &[], b"");
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
    let server = Server::start(|_| {});
    assert_eq!(server.post("/ingest?name=shop.cpu", &[], b"main;f 3\n").status, 200);
    let Server { node, runtime, folder, .. } = server;
    runtime.block_on(node.stop()).unwrap();
    let blocks = std::fs::read_dir(folder.path().join("bucket")).unwrap().count();
    assert!(blocks > 0, "a block is in the bucket");
}

#[test]
fn a_log_that_is_gone_is_told_while_it_runs_and_at_the_end() {
    // Nobody puts a file into a folder that is being removed.
    let server = Server::start(|config| config.log.spares = 0);
    assert_eq!(server.post("/ingest?name=shop.cpu", &[], b"main;f 3\n").status, 200);
    std::fs::remove_dir_all(server.folder.path().join("log")).unwrap();
    let ready = server.get("/ready", &[]);
    assert!(ready.status == 503 && ready.text().contains("the log has failed"), "{}", ready.text());
    let Server { node, runtime, folder, .. } = server;
    let lost = runtime.block_on(node.stop()).unwrap_err();
    assert!(lost.code == Code::DataLoss && lost.message.contains("no such file"), "{lost}");
    drop(folder);
}

#[test]
fn a_log_that_is_gone_with_nothing_in_it_is_no_loss() {
    let server = Server::start(|config| config.log.spares = 0);
    std::fs::remove_dir_all(server.folder.path().join("log")).unwrap();
    let Server { node, runtime, folder, .. } = server;
    runtime.block_on(node.stop()).unwrap();
    drop(folder);
}
