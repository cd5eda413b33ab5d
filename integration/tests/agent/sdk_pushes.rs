//! Real SDKs through the agent: each request goes both to the server and to the agent, as two tenants. Both tenants end up
//! with the same series, stacks and totals.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use athanor_chassis::Clock;
use athanor_integration::report_skipped;
use athanor_integration::sdk_programs::{
    PYTHON_SDK, command, java_agent_command, prepare_go, prepare_java_agent, prepare_node, prepare_python,
    prepare_rust, python_command, rust_command,
};
use athanor_integration::server::{RESPONSE_DEADLINE, TestServer, try_send_request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client_program::ClientProgram;
use crate::process::{AgentProcess, AgentSetup, config_text};
use crate::server::query_stacks;

const DIRECT_TENANT: &str = "direct";
const AGENT_TENANT: &str = "agent";
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait until both tenants are equal.
const DELIVERY_DEADLINE: Duration = Duration::from_secs(30);
const MAX_HEAD_BYTES: u64 = 64 * 1024;
/// Headers of one hop, which the tee writes itself.
const HOP_HEADERS: [&str; 5] = ["host", "connection", "content-length", "transfer-encoding", "x-scope-orgid"];

struct TeeState {
    server: SocketAddr,
    agent: SocketAddr,
    /// Responses with different statuses, as text.
    differences: Mutex<Vec<String>>,
    requests: Mutex<BTreeMap<String, usize>>,
    stopped: AtomicBool,
}

/// HTTP server that forwards each request to the server and to the agent.
struct Tee {
    state: Arc<TeeState>,
    address: SocketAddr,
}

struct TeeRequest {
    /// Method and path.
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Tee {
    fn start(server: SocketAddr, agent: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(TeeState {
            server,
            agent,
            differences: Mutex::default(),
            requests: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&shared);
                thread::spawn(move || client.and_then(|client| state.forward(client)));
            }
        });
        Self { state, address }
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

impl TeeState {
    fn forward(&self, mut client: TcpStream) -> std::io::Result<()> {
        client.set_read_timeout(Some(RESPONSE_DEADLINE))?;
        let request = TeeRequest::read(&mut BufReader::new(client.try_clone()?))?;
        let path = request.target.split(['?', ' ']).nth(1).unwrap_or_default();
        *self.requests.lock().entry(path.to_owned()).or_default() += 1;
        let direct = request.send(self.server, DIRECT_TENANT)?;
        let through_agent = request.send(self.agent, AGENT_TENANT)?;
        if direct.status != through_agent.status {
            let text = String::from_utf8_lossy(&through_agent.body).into_owned();
            let difference =
                format!("{}: {} and {} {text}", request.target, direct.status, through_agent.status);
            self.differences.lock().push(difference);
        }
        let kind = direct.header("content-type");
        let length = direct.body.len();
        let status = direct.status;
        let head = format!(
            "HTTP/1.1 {status} \r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        );
        client.write_all(head.as_bytes())?;
        client.write_all(&direct.body)
    }
}

impl TeeRequest {
    fn read(reader: &mut impl BufRead) -> std::io::Result<Self> {
        let mut head = reader.take(MAX_HEAD_BYTES);
        let mut line = String::new();
        head.read_line(&mut line)?;
        let target = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
        let mut headers = Vec::new();
        loop {
            line.clear();
            if head.read_line(&mut line)? <= 2 {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
        let header = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let body = match header("content-length").and_then(|length| length.parse().ok()) {
            Some(length) => {
                let mut body = vec![0; length];
                reader.read_exact(&mut body)?;
                body
            }
            None if header("transfer-encoding").is_some() => read_chunks(reader)?,
            None => Vec::new(),
        };
        headers.retain(|(name, _)| !HOP_HEADERS.contains(&name.as_str()));
        Ok(Self { target, headers, body })
    }

    fn send(
        &self,
        to: SocketAddr,
        tenant: &str,
    ) -> std::io::Result<athanor_integration::server::HttpResponse> {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = headers.chain([("x-scope-orgid", tenant)]).collect();
        try_send_request(to, &self.target, &headers, &self.body)
    }
}

fn read_chunks(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim_end(), 16).map_err(std::io::Error::other)?;
        let start = body.len();
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..])?;
        reader.read_line(&mut line)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Profiles of a tenant: its series, and the values of each stack by profile type.
#[derive(Debug, Default, PartialEq)]
struct TenantProfiles {
    series: Vec<String>,
    stacks: BTreeMap<String, BTreeMap<String, i64>>,
}

impl TenantProfiles {
    fn query(server: &TestServer, tenant: &str, service: &str) -> Self {
        let range = json!({ "start": 1, "end": i64::MAX / 1_000_000 - 1 });
        let selector = format!("{{service_name=\"{service}\"}}");
        let mut request = range.clone();
        request["matchers"] = json!([selector]);
        let series = server.call_json(tenant, "querier.v1.QuerierService/Series", &request);
        let series = list(&series["labelsSet"]).iter().map(Value::to_string);
        let types = server.call_json(tenant, "querier.v1.QuerierService/ProfileTypes", &range);
        let types = list(&types["profileTypes"]).iter().filter_map(|kind| kind["ID"].as_str());
        let stacks =
            types.map(|kind| (kind.to_owned(), query_stacks(server.address, tenant, kind, &selector)));
        let mut profiles = Self {
            series: series.collect(),
            stacks: stacks.filter(|(_, stacks)| !stacks.is_empty()).collect(),
        };
        profiles.series.sort();
        profiles
    }

    fn total(&self) -> i64 {
        self.stacks.values().flat_map(BTreeMap::values).sum()
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

type PrepareProgram<'t> = Box<dyn Fn(&Path) -> Result<String, String> + Send + 't>;

/// Program with an SDK.
struct SdkProgram<'t> {
    service: &'static str,
    /// Prepares the program in a folder.
    prepare: PrepareProgram<'t>,
    command: Vec<String>,
}

/// Returns all programs. They send to `url`; `rust_target` keeps compiled crates from run to run.
fn sdk_programs<'t>(url: &str, rust_target: &'t Path) -> Vec<SdkProgram<'t>> {
    let program = |service, command, prepare: PrepareProgram<'t>| SdkProgram { service, prepare, command };
    let go_files = &["main.go", "go.mod", "go.sum"];
    let node_files = &["package.json", "busy.mjs"];
    vec![
        program("go-busy", command(&["./busy", url]), Box::new(|folder| prepare_go("go", go_files, folder))),
        program(
            "node-busy",
            command(&["node", "busy.mjs", url]),
            Box::new(|folder| prepare_node("node", node_files, folder)),
        ),
        program(
            "python-busy",
            python_command("python", "busy.py", &[url]),
            Box::new(|folder| prepare_python(folder, &[PYTHON_SDK])),
        ),
        program(
            "rust-busy",
            rust_command(rust_target, url),
            Box::new(|folder| prepare_rust(folder, rust_target)),
        ),
        program("java-agent", java_agent_command(url), Box::new(prepare_java_agent)),
    ]
}

/// Runs a program until it has sent everything, and compares both tenants. A program whose language or packages are
/// missing is skipped.
fn run_program(server: &TestServer, program: &SdkProgram<'_>) {
    let SdkProgram { service, prepare, command } = program;
    let folder = TempDir::new().unwrap();
    if let Err(error) = prepare(folder.path()) {
        return report_skipped(&format!("no client of {service}"), &error);
    }
    let mut running = ClientProgram::start(command, folder.path());
    let clock = Clock::system();
    while running.next_line().is_some_and(|line| line != "done") {}
    let deadline = clock.monotonic() + DELIVERY_DEADLINE;
    // A program that sends now and then has sent its first profiles.
    while TenantProfiles::query(server, DIRECT_TENANT, service).total() == 0 {
        assert!(clock.monotonic() < deadline, "{service} sent nothing");
        thread::sleep(POLL_INTERVAL);
    }
    running.finish(folder.path());
    let direct = TenantProfiles::query(server, DIRECT_TENANT, service);
    let deadline = clock.monotonic() + DELIVERY_DEADLINE;
    let mut through_agent = TenantProfiles::query(server, AGENT_TENANT, service);
    while through_agent != direct && clock.monotonic() < deadline {
        thread::sleep(POLL_INTERVAL);
        through_agent = TenantProfiles::query(server, AGENT_TENANT, service);
    }
    assert_eq!(through_agent, direct, "{service}");
    println!("{service}: {} series, a total of {}", direct.series.len(), direct.total());
}

#[test]
fn profiles_of_sdks_are_equal_through_the_agent() {
    let server = TestServer::start(|config| config.multitenancy_enabled = true);
    let folder = TempDir::new().unwrap();
    let config = config_text(server.address, Ipv4Addr::LOCALHOST, "scrape_configs: []\n");
    let setup = AgentSetup { folder: folder.path().to_owned(), config, ..AgentSetup::default() };
    let mut agent = AgentProcess::start(setup);
    let tee = Tee::start(server.address, agent.receive_address());
    let rust_target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("client-rust");
    let programs = sdk_programs(&format!("http://{}", tee.address), &rust_target);
    thread::scope(|scope| {
        for program in programs {
            let server = &server;
            scope.spawn(move || run_program(server, &program));
        }
    });
    let differences = tee.state.differences.lock();
    assert!(differences.is_empty(), "{differences:?}");
    println!("requests: {:?}", tee.state.requests.lock());
    drop(differences);
    agent.stop();
}
