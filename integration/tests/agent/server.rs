//! Server for the agent, and queries of what it stored.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use athanor_integration::process::{NO_VARIABLES, ServerProcess};
use athanor_integration::server::send_request;

pub const CPU_TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
pub const MUTEX_TYPE: &str = "mutex:contentions:count:contentions:count";

/// Range that contains all profiles of a run.
const WHOLE_RANGE: &str = "from=now-3h&until=now%2B3h";

/// Starts a server on the data folder of a run. It accepts profiles of a clock that is an hour off, and requests for
/// `host`.
pub fn start_server(folder: &Path, host: IpAddr, life: usize) -> ServerProcess {
    start_server_accepting(folder, host, life, "3h")
}

/// Starts a server as [`start_server`] that rejects profiles older than `max_age`.
pub fn start_server_accepting(folder: &Path, host: IpAddr, life: usize, max_age: &str) -> ServerProcess {
    let allowed_hosts = format!("allowed_hosts=[{host}]");
    let max_age = format!("limits.reject_older_than={max_age}");
    let settings = [
        &allowed_hosts,
        "ingester.flush.max_head_age=1s",
        "ingester.single_node_shards=1",
        "limits.reject_newer_than=3h",
        &max_age,
        "wal.segment_bytes=1MiB",
        "wal.min_free_bytes=0MiB",
        "wal.preallocated_segments=1",
        "telemetry.level=warn",
        "shutdown_delay=0s",
    ];
    let log = folder.join(format!("server-{life}.log"));
    ServerProcess::start(&folder.join("data"), log, &settings.map(str::to_owned), NO_VARIABLES)
}

/// Returns the values of a service by leaf function, for one profile type.
pub fn query_functions(server: SocketAddr, profile_type: &str, service: &str) -> BTreeMap<String, i64> {
    query_range_functions(server, profile_type, service, WHOLE_RANGE)
}

/// Returns the values of a service by leaf function, for one profile type and the parameters of a time range.
pub fn query_range_functions(
    server: SocketAddr,
    profile_type: &str,
    service: &str,
    range: &str,
) -> BTreeMap<String, i64> {
    let selector = format!("{{service_name=\"{service}\"}}");
    let mut functions = BTreeMap::new();
    for (stack, value) in query_range_stacks(server, "", profile_type, &selector, range) {
        let leaf = stack.rsplit(';').next().unwrap_or_default();
        *functions.entry(leaf.to_owned()).or_default() += value;
    }
    functions
}

/// Returns the values of a tenant's profiles by stack, from the root, for one profile type and a selector. An empty
/// tenant sends no header.
pub fn query_stacks(
    server: SocketAddr,
    tenant: &str,
    profile_type: &str,
    selector: &str,
) -> BTreeMap<String, i64> {
    query_range_stacks(server, tenant, profile_type, selector, WHOLE_RANGE)
}

fn query_range_stacks(
    server: SocketAddr,
    tenant: &str,
    profile_type: &str,
    selector: &str,
    range: &str,
) -> BTreeMap<String, i64> {
    let query: String =
        format!("{profile_type}{selector}").bytes().map(|byte| format!("%{byte:02x}")).collect();
    let path = format!("GET /athanor/export?query={query}&{range}&format=folded");
    let headers = [("x-scope-orgid", tenant)];
    let headers = if tenant.is_empty() { &headers[..0] } else { &headers };
    let response = send_request(server, &path, headers, b"");
    // Profiles that do not exist are unknown.
    if response.status == 404 {
        return BTreeMap::new();
    }
    assert_eq!(response.status, 200, "{}", response.text());
    let mut stacks = BTreeMap::new();
    for line in response.text().lines() {
        let (stack, value) = line.rsplit_once(' ').expect("a stack and a value");
        *stacks.entry(stack.to_owned()).or_default() += value.parse::<i64>().expect("a number");
    }
    stacks
}
