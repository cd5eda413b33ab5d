//! Targets, sink and clients: HTTP/1.1 over blocking sockets, with a small thread for each connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use athanor_chassis::Random;
use athanor_integration::bodies::{gzip, protobuf_field};

const STACK_BYTES: usize = 64 << 10;

/// Starts a server that answers each request. It lasts until the end of the process.
pub fn start_server(address: &str, answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let bound = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for client in listener.incoming() {
            let answer = Arc::clone(&answer);
            let serve = move || client.and_then(|client| serve_client(client, &*answer));
            thread::Builder::new().stack_size(STACK_BYTES).spawn(serve).unwrap();
        }
    });
    bound
}

fn serve_client(mut client: TcpStream, answer: &dyn Fn(&str) -> Vec<u8>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut reader = BufReader::new(client.try_clone()?);
    while let Some(head) = read_request(&mut reader) {
        client.write_all(&answer(&head))?;
    }
    Ok(())
}

/// Reads the first line of a request or response, and its headers and body. None after the last one.
pub fn read_request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|bytes| *bytes > 0)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    io::copy(&mut reader.take(length), &mut io::sink()).ok()?;
    Some(first)
}

/// Returns a response with a body.
pub fn response(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Returns the push of one small profile as folded text.
pub fn folded_push(number: u64) -> Vec<u8> {
    let mut body = String::new();
    for line in 0..200 {
        body.push_str(&format!("main;handler_{line};work_{number} {}\n", line + 1));
    }
    let path = "/ingest?name=bench&format=folded&sampleRate=100&from=now-10s&until=now";
    format!("POST {path} HTTP/1.1\r\nhost: agent\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// Returns a compressed pprof profile of about the given size. Its strings are random.
pub fn pprof_of_bytes(bytes: usize) -> Vec<u8> {
    let random = Random::from_seed(1);
    let strings = ["", "inuse_space", "bytes"].map(|text| protobuf_field(6, text.as_bytes()));
    let mut profile = protobuf_field(1, &[0x08, 1, 0x10, 2]);
    profile.extend(protobuf_field(2, &[0x12, 1, 1]));
    profile.extend(strings.concat());
    while profile.len() < bytes * 2 {
        let text: String = (0..4).map(|_| format!("{:016x}", random.next_u64())).collect();
        profile.extend(protobuf_field(6, text.as_bytes()));
    }
    gzip(&profile)
}
