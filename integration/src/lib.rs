//! Tests of the crates together and against third-party programs. Nothing here is part of the server.
//!
//! ```text
//!  tidy         structure and style of the source tree, links, and mutants: bugs that tests must detect
//!  compat       clients, formats and tools of others: SDKs, Grafana's panel, the wire protocol and recorded
//!               responses; files of many profilers; Go, the JDK and Prometheus as oracles
//!  cluster      whole servers in one process, with faults, flushes and merges: nothing is lost, nothing counts
//!               twice, and each query result equals that of plain lists
//!  faults       kills, crashes of queries, log damage, hostile uploads, and a cluster of processes under chaos
//!  operations   a server's own telemetry, its start and stop, its errors to clients, and a local cluster
//!  short_lived_processes
//!               processes that live for one profile each: memory stays bounded, and all are found
//!  agent        the agent between real targets, clients and servers: each profile is delivered once
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
pub mod sdk_programs;
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
pub fn athanor_binary() -> PathBuf {
    find_binary("ATHANOR_BINARY", "athanor", "athanor-cli")
}

/// Returns the `athanor-agent` binary: the path in `ATHANOR_AGENT_BINARY`, or the one built beside the calling test.
pub fn agent_binary() -> PathBuf {
    find_binary("ATHANOR_AGENT_BINARY", "athanor-agent", "athanor-agent")
}

#[expect(clippy::disallowed_methods, reason = "the tests' own switch")]
fn find_binary(variable: &str, name: &str, package: &str) -> PathBuf {
    if let Some(named) = std::env::var_os(variable) {
        return named.into();
    }
    let test = std::env::current_exe().expect("a program has a path");
    let path = test.ancestors().nth(2).expect("tests lie two folders deep").join(name);
    assert!(path.exists(), "{} is missing: cargo build -p {package}", path.display());
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
