//! What was sent and acknowledged, and what answers must say.

use std::collections::BTreeMap;

use serde_json::json;

use crate::catalog_recovery::fleet::Fleet;

const SERVICES: [&str; 4] = ["checkout", "search", "mail", "billing"];
const PODS: u64 = 5;
/// One sample of folded text stands for so many nanoseconds, at 100 samples a second.
const SAMPLE: u64 = 10_000_000;

/// One upload.
struct Sent {
    path: String,
    body: String,
}

/// All uploads that were acknowledged.
#[derive(Default)]
pub struct Ledger {
    sent: Vec<Sent>,
    sums: BTreeMap<&'static str, u64>,
}

impl Ledger {
    /// Sends a round of profiles through all doors in turn.
    pub fn push(&mut self, fleet: &Fleet, doors: &[&str], round: u64) {
        let until = fleet.now() + round;
        let all = SERVICES.iter().flat_map(|service| (0..PODS).map(move |pod| (*service, pod)));
        for ((service, pod), door) in all.zip(doors.iter().cycle()) {
            let value = 3 + round * 10 + pod;
            let from = until - 10;
            let sent = Sent {
                path: format!(
                    "/ingest?name={service}%7Bpod%3D{pod}%7D&from={from}&until={until}&format=folded&sampleRate=100"
                ),
                body: format!("main;round-{round} {value}\nmain;pod-{pod} 1\n"),
            };
            fleet.push(door, &sent.path, &sent.body);
            self.sent.push(sent);
            *self.sums.entry(service).or_default() += (value + 1) * SAMPLE;
        }
    }

    /// Sends all of it again, through other doors.
    pub fn repeat(&self, fleet: &Fleet, doors: &[&str]) {
        for (sent, door) in self.sent.iter().zip(doors.iter().cycle().skip(1)) {
            fleet.push(door, &sent.path, &sent.body);
        }
    }

    /// Asks each node for all, to the unit.
    pub fn compare(&self, fleet: &Fleet, nodes: &[&str]) {
        let now = fleet.now() * 1000;
        for (node, (service, sum)) in
            nodes.iter().flat_map(|node| self.sums.iter().map(move |sum| (node, sum)))
        {
            let asked = json!({
                "profileTypeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
                "labelSelector": format!("{{service_name=\"{service}\"}}"),
                "start": now - 3_600_000,
                "end": now + 3_600_000,
            });
            let answer =
                fleet.ask(node, "/querier.v1.QuerierService/SelectMergeStacktraces", &asked.to_string());
            assert_eq!(answer.partial, None, "{node} of {service}");
            let total = answer.value["flamegraph"]["total"].as_str().unwrap_or_default().to_owned();
            assert_eq!(total, sum.to_string(), "{node} of {service}");
        }
    }
}
