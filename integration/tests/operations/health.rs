//! Whether a server is well: to load balancers, and to clients of gRPC.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use athanor_chassis::config::SecretString;
use athanor_chassis::{Clock, compute};
use athanor_integration::server::{RESPONSE_DEADLINE, TestServer};
use athanor_storage::S3Config;

const GRPC_WEB: (&str, &str) = ("content-type", "application/grpc-web+proto");

/// A call's message that names a service.
fn asked(service: &str) -> Vec<u8> {
    let mut message = vec![0x0a, service.len() as u8];
    message.extend(service.as_bytes());
    if service.is_empty() {
        message.clear();
    }
    let mut frame = vec![0, 0, 0, 0, message.len() as u8];
    frame.extend(message);
    frame
}

/// A call whose answer comes in pieces.
struct Watching(TcpStream);

impl Watching {
    fn begin(server: &TestServer, service: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(RESPONSE_DEADLINE)).unwrap();
        let body = asked(service);
        let head = format!(
            "POST /grpc.health.v1.Health/Watch HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\
             content-type: application/grpc-web+proto\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        let mut watching = Self(stream);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(watching.take(1));
        }
        assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&head));
        watching
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// One chunk is one frame: its flag and what is in it. Nothing at the end.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut size = Vec::new();
        while !size.ends_with(b"\r\n") {
            size.extend(self.take(1));
        }
        let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
        let chunk = self.take(size + 2);
        (size > 0).then(|| (chunk[0], chunk[5..size].to_vec()))
    }
}

const SERVING: (u8, &[u8]) = (0, &[8, 1]);
const NOT_SERVING: (u8, &[u8]) = (0, &[8, 2]);
const UNKNOWN: (u8, &[u8]) = (0, &[8, 3]);

fn frame((flag, message): (u8, &[u8])) -> Option<(u8, Vec<u8>)> {
    Some((flag, message.to_vec()))
}

#[test]
fn who_watches_hears_of_the_end() {
    let server = TestServer::start(|config| config.shutdown_timeout = 2 * RESPONSE_DEADLINE);
    let mut known = Watching::begin(&server, "push.v1.PusherService");
    let mut unknown = Watching::begin(&server, "no.such.Service");
    assert_eq!((known.next(), unknown.next()), (frame(SERVING), frame(UNKNOWN)));
    let check = |service| server.post("/grpc.health.v1.Health/Check", &[GRPC_WEB], &asked(service));
    assert_eq!(check("").body[5..7], [8, 1]);
    assert_eq!(check("no.such.Service").header("grpc-status"), "5");
    let connect = server.post(
        "/grpc.health.v1.Health/Check",
        &[("content-type", "application/json")],
        br#"{"service":"x"}"#,
    );
    assert_eq!(
        (connect.status, connect.text()),
        (404, r#"{"code":"not_found","message":"unknown service \"x\""}"#)
    );
    let haste = server.node.force_stop();
    let TestServer { node, runtime, folder, address } = server;
    let stopping = runtime.spawn(node.stop_after(RESPONSE_DEADLINE));
    assert_eq!(known.next(), frame(NOT_SERVING));
    let stopped = runtime.spawn(async move {
        while !stopping.is_finished() {
            haste.notify_waiters();
            tokio::task::yield_now().await;
        }
    });
    let (flag, trailers) = known.next().unwrap();
    let trailers = String::from_utf8(trailers).unwrap();
    assert!(flag == 0x80 && trailers.starts_with("grpc-status: 14\r\n"), "{trailers}");
    assert_eq!(known.next(), None);
    runtime.block_on(stopped).unwrap();
    drop((folder, address));
}

#[test]
fn a_stream_is_not_asked_for_as_a_single_answer() {
    let server = TestServer::start(|_| {});
    let answer = server.post("/grpc.health.v1.Health/Watch", &[("content-type", "application/json")], b"{}");
    assert_eq!(answer.status, 415);
    assert!(answer.header("accept-post").starts_with("application/grpc, "));
    assert_eq!(server.get("/grpc.health.v1.Health/Watch", &[]).status, 405);
    let broken = server.post("/grpc.health.v1.Health/Watch", &[GRPC_WEB], b"\0\0");
    assert_eq!((broken.status, broken.header("grpc-status")), (200, "3"));
}

/// A server of S3 that has no bucket until it is told to.
fn s3_without_bucket() -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let exists = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&exists);
    let serve = move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    head.push(byte[0]);
                } else {
                    break;
                }
            }
            let (status, body) = match seen.load(Ordering::SeqCst) {
                false => ("404 Not Found", "<Error><Code>NoSuchBucket</Code></Error>"),
                true => ("200 OK", "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"),
            };
            let length = body.len();
            // A client may leave before the answer.
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-type: application/xml\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    };
    compute::spawn_dedicated_thread("S3", serve).unwrap();
    (address, exists)
}

#[test]
fn node_without_its_bucket_is_not_ready_and_says_what_is_missing() {
    let (address, exists) = s3_without_bucket();
    let server = TestServer::start(|config| {
        config.storage.s3 = Some(S3Config {
            bucket: "profiles".to_owned(),
            endpoint: Some(format!("http://{address}")),
            access_key: Some("access".to_owned()),
            secret_key: Some(SecretString::new("secret")),
            allow_http: true,
            ..S3Config::default()
        });
    });
    let clock = Clock::system();
    let until = |what: &str, is: &dyn Fn(u16, &str) -> bool| {
        let begun = clock.monotonic();
        loop {
            let answer = server.get("/ready", &[]);
            let text = answer.text().to_owned();
            if is(answer.status, &text) {
                return;
            }
            assert!(clock.monotonic() - begun < RESPONSE_DEADLINE, "{what}: {} {text}", answer.status);
            thread::sleep(Duration::from_millis(20));
        }
    };
    let missing = "does not exist; create it, or correct storage.s3.bucket";
    until("missing", &|status, text| {
        assert_eq!(status, 503, "never ready without its bucket: {text}");
        text.contains("profiles") && text.contains(missing)
    });
    exists.store(true, Ordering::SeqCst);
    until("ready", &|status, _| status == 200);
}
