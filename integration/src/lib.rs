//! Tests of the crates together, and against programs that others wrote. Nothing here is part of the server.
//!
//! ```text
//!  tidy         structure and style of the source tree, its links, and mutants: bugs that tests must detect
//!  go_pprof     tables, merges and rows are those of `go tool pprof`
//!  regexp       regular expressions match what they match in Go
//!  relabel      rules for labels do what they do in Prometheus
//!  go_pgo       what is exported as pprof guides the compiler of Go
//!  jfr          flight recordings say what the JDK's own reader says of them
//!  golden       answers are those that another server of the same wire gave
//!  wire         each call in each way to write it, what is refused and how, and a canary
//!  flamegraph   the panel that Grafana shows, in a browser, shows what was answered
//!  parca        profiles and debug information as agents of Parca send them, by its own client as well
//!  doors        files of many profilers, and exports of OpenTelemetry, through each door that takes them, have the types and
//!               sums that another reader sees
//!  counting     profiles of Go that count from the start of a process add up to what each process counted
//!  clients      SDKs as they are shipped: what they send is taken and found
//!  oneshot      processes that live for one profile each: memory stays bounded, and all are found
//!  otlp         one bad profile of an export does not hurt the others, and ports for exports answer nothing else
//!  hostile      uploads that are made to hurt are answered in words, in bounded memory
//!  partial      whoever is asked for what the bucket has lost, or holds damaged, says so, in a header and in the answer
//!  damage       what damage of the log took is told with every answer
//!  operations   what a server tells of itself, how it starts and stops, what it says to clients that err
//!  cluster      whole servers in one process, with faults: nothing is lost, and nothing counts twice
//!  reads        every question, while profiles are cut and blocks replaced: the answer is that of one server's memory
//!  kill         a server that is killed under load loses nothing and counts nothing twice
//!  aborts       a query that takes the process along twice is refused
//!  dev          the local cluster of a command tells what happens in it, and leaves nobody behind
//!  chaos        so does a cluster of processes in three zones, whichever are killed or cut off
//!  rebuild      a catalogue whose voters lost all their disks comes back by command, and sums are what they were
//!  simulation   a node on a made machine, and a cluster of them, from a seed: each answer is that of a naive model
//! ```
//!
//! Some need what a machine may lack: Go, Python, Node, Java with Maven, Chromium, recorded data. There a test is left out
//! and says so; with `ATHANOR_SKIPS=deny` it fails unless `.ci/allowed-skips` lists it.

pub mod bodies;
pub mod clients;
pub mod cluster;
pub mod compactor;
pub mod grpc;
pub mod process;
pub mod readers;
pub mod server;

use std::path::PathBuf;

/// Says that a test, or a part of one, is left out: `what` is not here, in words that stay the same, and `why`, if more is
/// known.
///
/// # Panics
/// Where `ATHANOR_SKIPS=deny` and `.ci/allowed-skips` does not list it.
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

/// Whether a line of `.ci/allowed-skips` is this one, before the reason that it gives.
fn is_allowed_skip(line: &str) -> bool {
    let list = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/allowed-skips");
    let list = std::fs::read_to_string(list).unwrap_or_default();
    list.lines().any(|listed| listed.split_once(" # ").is_some_and(|(allowed, _)| allowed == line))
}

/// The `athanor` command that was built beside the test that asks, or the one that `ATHANOR_BINARY` names.
#[expect(clippy::disallowed_methods, reason = "the tests' own switch")]
pub fn athanor_binary() -> PathBuf {
    if let Some(named) = std::env::var_os("ATHANOR_BINARY") {
        return named.into();
    }
    let test = std::env::current_exe().expect("a program has a path");
    let path = test.ancestors().nth(2).expect("tests lie two folders deep").join("athanor");
    assert!(path.exists(), "{} is missing: cargo build -p athanor-server", path.display());
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
