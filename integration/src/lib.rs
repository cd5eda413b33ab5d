//! Tests of the crates together and against third-party programs. Nothing here is part of the server.
//!
//! ```text
//!  tidy         structure and style of the source tree, links, and mutants: bugs that tests must detect
//!  go_pprof     tables, merges and rows equal those of `go tool pprof`
//!  regexp       regular expressions match as they do in Go
//!  relabel      relabeling rules act as they do in Prometheus
//!  go_pgo       exported pprof files guide the Go compiler
//!  jfr          flight recordings read as the JDK's own reader reads them
//!  golden       responses equal those of another server with the same wire format
//!  wire         each call in each encoding, rejected requests and their errors, and a canary
//!  flamegraph   Grafana's flame graph panel, in a browser, shows the response
//!  parca        profiles and debug information as agents of Parca send them, by its own client as well
//!  doors        files of many profilers and OpenTelemetry exports, through each endpoint that accepts them,
//!               have the types and sums that another reader sees
//!  counting     cumulative profiles of Go add up to the counters of each process
//!  clients      profiles sent by released SDKs are accepted and found
//!  oneshot      processes that live for one profile each: memory stays bounded, and all are found
//!  otlp         one bad profile of an export does not affect the others; export ports serve nothing else
//!  hostile      malicious uploads are rejected with an error message, in bounded memory
//!  partial      queries over lost or damaged objects report it in a header and in the response
//!  damage       every response reports profiles lost to log damage
//!  operations   a server's own telemetry, its start and stop, and its errors to clients
//!  cluster      whole servers in one process, with faults: nothing is lost, and nothing counts twice
//!  reads        every query during flushes and merges: the result equals that of one server's memory
//!  kill         a server that is killed under load loses nothing and counts nothing twice
//!  aborts       a query that crashes the process twice is rejected
//!  dev          the local cluster of a command reports its events and leaves no process behind
//!  chaos        a cluster of processes in three zones loses nothing under kills and partitions
//!  rebuild      a command rebuilds the catalog after all voters lost their disks; sums stay equal
//!  simulation   a node or a cluster on a simulated machine, from a seed: each result equals a naive model's
//! ```
//!
//! Some tests need programs or data that a machine may lack: Go, Python, Node, Java with Maven, Chromium,
//! recorded data. Such a test is skipped and prints a line. With `ATHANOR_SKIPS=deny` it fails unless
//! `.ci/allowed-skips` lists it.

pub mod bodies;
pub mod clients;
pub mod cluster;
pub mod compactor;
pub mod grpc;
pub mod process;
pub mod readers;
pub mod server;

use std::path::PathBuf;

/// Reports that a test, or a part of one, is skipped. `what` names the missing requirement in fixed words;
/// `why` adds details.
///
/// # Panics
/// If `ATHANOR_SKIPS=deny` is set and `.ci/allowed-skips` does not list the line.
#[expect(clippy::disallowed_methods, reason = "the tests' own switch")]
pub fn report_skipped(what: &str, why: &str) {
    let line = format!("skip: {what}");
    let denied = std::env::var("ATHANOR_SKIPS").is_ok_and(|skips| skips == "deny");
    assert!(
        !denied || is_allowed_skip(&line),
        "ATHANOR_SKIPS=deny, and .ci/allowed-skips does not list {line:?}: {why}"
    );
    println!("{line}");
    if !why.is_empty() {
        println!("left out since {why}");
    }
}

/// Returns whether a line of `.ci/allowed-skips` equals this one, up to its ` # ` and reason.
fn is_allowed_skip(line: &str) -> bool {
    let list = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/allowed-skips");
    let list = std::fs::read_to_string(list).unwrap_or_default();
    list.lines().any(|listed| listed.split_once(" # ").is_some_and(|(allowed, _)| allowed == line))
}

/// Returns the `athanor` binary: the path in `ATHANOR_BINARY`, or the one built beside the calling test.
#[expect(clippy::disallowed_methods, reason = "the tests' own switch")]
pub fn athanor_binary() -> PathBuf {
    if let Some(named) = std::env::var_os("ATHANOR_BINARY") {
        return named.into();
    }
    let test = std::env::current_exe().expect("a program has a path");
    let path = test.ancestors().nth(2).expect("tests lie two folders deep").join("athanor");
    assert!(path.exists(), "{} is missing: cargo build -p athanor-cli", path.display());
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_may_be_left_out() {
        assert!(is_allowed_skip("skip: no flight recordings at ../shared/data/jfr"));
        assert!(!is_allowed_skip("skip: no flight recordings"));
    }
}
