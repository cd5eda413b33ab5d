//! Uploads of clients: each has a function of its own, and is sent until it is acknowledged.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use athanor_chassis::{Clock, Random, Timestamp};
use athanor_integration::server::{HttpResponse, try_send_request};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use serde_json::json;

use crate::pprof::{CountedProfile, SAMPLE_NANOS};
use crate::process::AgentProcess;

/// Time between two attempts of a client.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Longest time until an upload is acknowledged.
const ACKNOWLEDGEMENT_DEADLINE: Duration = Duration::from_secs(90);

/// Identity of an upload, by which a server recognizes a retry.
enum UploadIdentity {
    /// Folded text for `/ingest`, whose parameter `from` is the time.
    IngestTime,
    /// Pprof with a time and without an id.
    PprofTime,
    /// Pprof with an id and without a time.
    ProfileId(String),
}

/// Upload of one profile.
pub struct PushedProfile {
    number: usize,
    samples: i64,
    time: Timestamp,
    identity: UploadIdentity,
    /// Number of lines of folded text, which add up to the value.
    lines: i64,
}

/// Answers of the agent that were no acknowledgement.
#[derive(Default)]
pub struct PushRetries {
    pub no_response: usize,
    /// Responses with 429.
    pub too_many: usize,
    pub server_errors: usize,
}

impl PushedProfile {
    /// Creates a profile of the last minute.
    pub fn new(number: usize, clock: &Clock, random: &Random) -> Self {
        let identity = match number % 3 {
            0 => UploadIdentity::IngestTime,
            1 => UploadIdentity::PprofTime,
            _ => UploadIdentity::ProfileId(format!("{:032x}", random.next_id())),
        };
        let age = Duration::from_secs(random.next_below(60));
        Self {
            number,
            samples: 1 + random.next_below(1000) as i64,
            time: clock.wall().minus(age),
            identity,
            lines: 1,
        }
    }

    /// Creates a profile of folded text with many lines.
    pub fn large(number: usize, clock: &Clock, lines: i64) -> Self {
        let identity = UploadIdentity::IngestTime;
        Self { number, samples: lines, time: clock.wall(), identity, lines }
    }

    pub fn function(&self) -> String {
        format!("pushed{}", self.number)
    }

    /// Returns the value in nanoseconds.
    pub fn value(&self) -> i64 {
        self.samples * SAMPLE_NANOS
    }

    /// Sends the profile once.
    pub fn send(&self, agent: SocketAddr) -> std::io::Result<HttpResponse> {
        match &self.identity {
            UploadIdentity::IngestTime => {
                let from = self.time.nanos() / 1_000_000_000;
                let query = format!("from={from}&until={}&sampleRate=100&format=folded", from + 10);
                let line = format!("main;{} {}\n", self.function(), self.samples / self.lines);
                let body = line.repeat(self.lines as usize);
                let headers = [("content-type", "text/plain")];
                try_send_request(
                    agent,
                    &format!("POST /ingest?name=pushed&{query}"),
                    &headers,
                    body.as_bytes(),
                )
            }
            UploadIdentity::PprofTime => self.push(agent, Some(self.time), ""),
            UploadIdentity::ProfileId(id) => self.push(agent, None, id),
        }
    }

    fn push(&self, agent: SocketAddr, time: Option<Timestamp>, id: &str) -> std::io::Result<HttpResponse> {
        let pprof = CountedProfile::cpu(&self.function(), self.samples).encode_pprof(time);
        let label = |name: &str, value: &str| json!({ "name": name, "value": value });
        let request = json!({ "series": [{
            "labels": [label("__name__", "process_cpu"), label("service_name", "pushed")],
            "samples": [{ "rawProfile": BASE64_STANDARD.encode(pprof), "ID": id }],
        }] });
        let headers = [("content-type", "application/json")];
        let body = request.to_string();
        try_send_request(agent, "POST /push.v1.PusherService/Push", &headers, body.as_bytes())
    }

    /// Sends the profile until the agent acknowledges it.
    pub fn send_until_acknowledged(
        &self,
        agent: &Mutex<AgentProcess>,
        clock: &Clock,
        retries: &Mutex<PushRetries>,
    ) {
        let begun = clock.monotonic();
        loop {
            let address = agent.lock().receive_address();
            let response = self.send(address);
            let mut retries = retries.lock();
            match response {
                Ok(response) if response.status == 200 => return,
                Ok(response) if response.status == 429 => {
                    assert!(!response.header("retry-after").is_empty(), "429 without Retry-After");
                    retries.too_many += 1;
                }
                Ok(response) => {
                    let (status, text) = (response.status, response.text());
                    assert!(status >= 500, "rejected with {status}: {text}");
                    retries.server_errors += 1;
                }
                Err(_) => retries.no_response += 1,
            }
            drop(retries);
            let waited = clock.monotonic() - begun;
            assert!(waited < ACKNOWLEDGEMENT_DEADLINE, "{} is not accepted", self.function());
            thread::sleep(RETRY_INTERVAL);
        }
    }
}
