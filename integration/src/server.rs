//! Server within the test process, and a client with its own HTTP/1.1 encoding.

#![expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "what does not work fails the test")]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ByteSize, LimitOverrides};
use athanor_server::{NodeDeps, ServerConfig, ServerNode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Longest wait of a test for a response.
pub const RESPONSE_DEADLINE: Duration = Duration::from_secs(30);

/// Running server with its own data folder and port.
pub struct TestServer {
    /// Node that serves the requests.
    pub node: ServerNode,
    /// Runtime that executes the node.
    pub runtime: Runtime,
    /// Data folder, deleted on drop.
    pub folder: TempDir,
    /// Address of the client port.
    pub address: SocketAddr,
}

/// HTTP response as a test reads it.
pub struct HttpResponse {
    /// Status code as a number.
    pub status: u16,
    /// Header values by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// Body, decoded if it was sent in chunks.
    pub body: Vec<u8>,
}

impl TestServer {
    /// Starts a server. `change` modifies the default settings.
    pub fn start(change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::start_on(change, |_| {})
    }

    /// Starts a server like [`TestServer::start`]. `other` replaces dependencies of the machine.
    pub fn start_on(change: impl FnOnce(&mut ServerConfig), other: impl FnOnce(&mut NodeDeps)) -> Self {
        let folder = TempDir::new().unwrap();
        let mut config = ServerConfig {
            http_listen_address: "127.0.0.1:0".to_owned(),
            data_dir: folder.path().to_owned(),
            ..ServerConfig::default()
        };
        config.wal.min_free_bytes = ByteSize::bytes(0);
        config.ingester.single_node_shards = 1;
        change(&mut config);
        let runtime = Runtime::new().unwrap();
        let overrides = LimitOverrides::new(config.limits.clone());
        let mut system = NodeDeps::local(&config).unwrap();
        other(&mut system);
        let node = runtime.block_on(ServerNode::start(&config, system, overrides, Arc::from(""))).unwrap();
        let address = node.address();
        Self { node, runtime, folder, address }
    }

    /// Sends a JSON request as a tenant and returns the JSON response. Panics unless the status is 200.
    pub fn call_json(&self, tenant: &str, call: &str, question: &Value) -> Value {
        let headers = [("content-type", "application/json"), ("x-scope-orgid", tenant)];
        let answer = self.post(&format!("/{call}"), &headers, question.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{call}: {}", String::from_utf8_lossy(&answer.body));
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// Returns the total of all profiles of a tenant by profile type. Types with a total of zero are omitted.
    pub fn query_totals(&self, tenant: &str) -> BTreeMap<String, i64> {
        let start = 1;
        let end = i64::MAX / 1_000_000 - 1;
        let asked = json!({ "start": start, "end": end });
        let types = self.call_json(tenant, "querier.v1.QuerierService/ProfileTypes", &asked);
        let ids = types["profileTypes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let total = |id: &Value| {
            let id = id["ID"].as_str().unwrap().to_owned();
            let asked = json!({ "profileTypeID": id, "labelSelector": "{}", "start": start, "end": end });
            let graph = self.call_json(tenant, "querier.v1.QuerierService/SelectMergeStacktraces", &asked);
            (id, graph["flamegraph"]["total"].as_str().unwrap_or("0").parse().unwrap())
        };
        ids.iter().map(total).filter(|(_, total)| *total != 0).collect()
    }

    /// Sends a GET request.
    pub fn get(&self, path: &str, headers: &[(&str, &str)]) -> HttpResponse {
        send_request(self.address, &format!("GET {path}"), headers, b"")
    }

    /// Sends a POST request with a body.
    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
        send_request(self.address, &format!("POST {path}"), headers, body)
    }
}

impl HttpResponse {
    /// Returns the value of a header, or an empty text. Values of a repeated header are joined.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the body as text.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Parses the bytes that a server sent until it closed the connection.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let end =
            bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head ends with an empty line");
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in lines.map(|line| line.split_once(':').unwrap()) {
            let values = headers.entry(name.to_lowercase()).or_default();
            if !values.is_empty() {
                values.push_str(", ");
            }
            values.push_str(value.trim());
        }
        let body = &bytes[end + 4..];
        let chunked = headers.get("transfer-encoding").is_some_and(|value| value == "chunked");
        Self { status, headers, body: if chunked { decode_chunks(body) } else { body.to_vec() } }
    }
}

/// Sends one request on a connection of its own. Panics if no response arrives.
#[must_use]
pub fn send_request(
    address: SocketAddr,
    request: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    try_send_request(address, request, headers, body).unwrap()
}

/// Sends a request like [`send_request`], and returns the I/O error if no response arrives.
pub fn try_send_request(
    address: SocketAddr,
    request: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<HttpResponse> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(RESPONSE_DEADLINE))?;
    let mut head = format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    if !body.is_empty() || request.starts_with("POST") {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    // A server that rejects a body may stop reading it and close the connection after its response.
    let sent = stream.write_all(body);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    // A server that was killed closes the connection without a response, or within its head.
    if !answer.windows(4).any(|four| four == b"\r\n\r\n") {
        sent?;
        read?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(HttpResponse::parse(&answer))
}

/// Joins the chunks of a chunked body.
fn decode_chunks(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        let from = end + 2;
        whole.extend_from_slice(&body[from..from + size]);
        body = &body[from + size + 2..];
    }
    whole
}
