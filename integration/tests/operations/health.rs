//! Whether a server is well: to load balancers, and to clients of gRPC.

use std::io::{Read, Write};
use std::net::TcpStream;

use athanor_integration::server::{PATIENCE, Server};

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
    fn begin(server: &Server, service: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
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
    let server = Server::start(|config| config.drain = 2 * PATIENCE);
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
        (404, r#"{"code":"not_found","message":"there is no service \"x\""}"#)
    );
    let haste = server.node.haste();
    let Server { node, runtime, folder, address } = server;
    let stopping = runtime.spawn(node.stop_after(PATIENCE));
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
    let server = Server::start(|_| {});
    let answer = server.post("/grpc.health.v1.Health/Watch", &[("content-type", "application/json")], b"{}");
    assert_eq!(answer.status, 415);
    assert!(answer.header("accept-post").starts_with("application/grpc, "));
    assert_eq!(server.get("/grpc.health.v1.Health/Watch", &[]).status, 405);
    let broken = server.post("/grpc.health.v1.Health/Watch", &[GRPC_WEB], b"\0\0");
    assert_eq!((broken.status, broken.header("grpc-status")), (200, "3"));
}
