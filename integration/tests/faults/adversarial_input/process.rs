//! A server as a process, so that its memory is its own.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_integration::process::ServerProcess;
use athanor_integration::server::{RESPONSE_DEADLINE, try_send_request};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tempfile::TempDir;

use crate::adversarial_input::bombs::{Bomb, Way};

/// Settings of the server that bound what hostile requests may take.
pub struct Limits {
    /// The largest body.
    pub body: u64,
    /// The largest profile.
    pub profile: u64,
    /// An answer to a question.
    pub answer: u64,
    /// All requests that are under way.
    pub requests: u64,
}

/// A process with its folder.
pub struct Served {
    process: ServerProcess,
    _folder: TempDir,
    address: SocketAddr,
    /// For exports of OpenTelemetry alone: gRPC and HTTP.
    otlp: [SocketAddr; 2],
}

impl Served {
    /// Starts one with these limits.
    pub fn start(limits: &Limits) -> Self {
        Self::start_with(limits, &[])
    }

    /// As [`Served::start`], with more settings.
    pub fn start_with(limits: &Limits, more: &[&str]) -> Self {
        // What was freed goes back to the kernel at once, so that what is measured is what is held.
        Self::launch(limits, more, Some(("MALLOC_CONF", "narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0")))
    }

    /// As [`Served::start`], with an allocator that keeps free memory for as long as it does for users.
    pub fn start_as_shipped(limits: &Limits) -> Self {
        Self::launch(limits, &[], None)
    }

    fn launch(limits: &Limits, more: &[&str], allocator: Option<(&str, &str)>) -> Self {
        let Limits { body, profile, answer, requests } = limits;
        // An address of this machine that no other process of tests has, and two ports for each server.
        static STARTED: AtomicU16 = AtomicU16::new(0);
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let grpc_port = 4317 + 2 * STARTED.fetch_add(1, Ordering::Relaxed);
        let otlp = [grpc_port, grpc_port + 1].map(|port| SocketAddr::from(([127, 1 + a, b, c.max(1)], port)));
        let folder = TempDir::new().unwrap();
        let mut settings = vec![
            "ingester.single_node_shards=1".to_owned(),
            "wal.min_free_bytes=0MiB".to_owned(),
            "wal.preallocated_segments=1".to_owned(),
            format!("limits.ingestion_body_limit={body}B"),
            format!("limits.max_profile_size_bytes={profile}B"),
            format!("max_inflight_request_bytes={requests}B"),
            format!("querier.max_result_bytes={answer}B"),
            "limits.reject_older_than=0s".to_owned(),
            "limits.reject_newer_than=0s".to_owned(),
            "limits.max_profile_stacktrace_samples=10000000".to_owned(),
            format!("otlp.grpc_listen_address={}", otlp[0]),
            format!("otlp.http_listen_address={}", otlp[1]),
            // What a cut takes is no upload's, and one may come at the peak of any.
            "ingester.flush.max_head_age=1h".to_owned(),
            "telemetry.level=warn".to_owned(),
            "shutdown_delay=0s".to_owned(),
        ];
        settings.extend(more.iter().map(|setting| (*setting).to_owned()));
        let (data, said) = (folder.path().join("data"), folder.path().join("said.log"));
        let mut process = ServerProcess::start(&data, said, &settings, allocator);
        Served { address: process.address(), process, _folder: folder, otlp }
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.process.process_id()))
    }

    /// Begins the peak anew, and gives the memory that is held now.
    pub fn begin_peak(&self) -> u64 {
        fs::write(self.proc("clear_refs"), "5").unwrap();
        self.of_status("VmRSS:")
    }

    /// As [`Self::begin_peak`], once no more than `most` is held: what was read for an answer is let go of after it is out,
    /// which takes a while where others compute. After all patience what is held then.
    pub fn settle(&self, most: u64) -> u64 {
        let clock = Clock::system();
        let begun = clock.monotonic();
        loop {
            let held = self.begin_peak();
            if held <= most || clock.monotonic() - begun > RESPONSE_DEADLINE {
                return held;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The most memory that was held since.
    pub fn peak(&self) -> u64 {
        self.of_status("VmHWM:")
    }

    fn of_status(&self, name: &str) -> u64 {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    /// Its port for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends one, and gives the status of the answer and what it says; why there is none, if there is none.
    pub fn send(&self, bomb: &Bomb) -> Result<(u16, String), String> {
        let Bomb { way, path, headers, body, .. } = bomb;
        let address = match way {
            Way::Grpc => return self.call(path, headers, body),
            Way::OtlpHttp => self.otlp[1],
            Way::Http => self.address,
        };
        let answer = try_send_request(address, &format!("POST {path}"), headers, body);
        let answer = answer.map_err(|error| format!("no answer: {error}"))?;
        // Calls that have many messages say there what came of them.
        let said = answer.header("grpc-message");
        let body = String::from_utf8_lossy(&answer.body);
        Ok((answer.status, said.chars().chain(body.chars()).take(400).collect()))
    }

    /// A call of gRPC at the port for exports: its status is that of gRPC.
    #[expect(clippy::disallowed_methods, reason = "a client as others have it")]
    fn call(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<(u16, String), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut request =
            http::Request::post(format!("http://{}{path}", self.otlp[0])).header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
        let answered = async {
            let stream = tokio::net::TcpStream::connect(self.otlp[0]).await.unwrap();
            let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
            let (mut sender, connection) = handshake.await.unwrap();
            tokio::spawn(connection);
            let (head, body) = sender.send_request(request).await.unwrap().into_parts();
            let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
            let said = |name: &str| {
                let value = trailers.get(name).or(head.headers.get(name))?;
                Some(value.to_str().unwrap().to_owned())
            };
            (said("grpc-status").unwrap().parse().unwrap(), said("grpc-message").unwrap_or_default())
        };
        let answered = runtime.block_on(async { tokio::time::timeout(RESPONSE_DEADLINE, answered).await });
        answered.map_err(|late| format!("no answer: {late}"))
    }

    /// It never panicked, and ends in order.
    pub fn end(self) {
        assert!(!self.process.log_text().contains("panicked"), "{}", self.process.log_text());
        self.process.stop();
    }
}
