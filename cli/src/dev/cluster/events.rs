//! Events of a cluster, printed with one line each.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitStatus;
use std::time::Duration;

use athanor_chassis::Clock;
use serde_json::Value;

use super::plan::{ClusterPlan, PlannedNode};
use crate::output::format_rfc3339;

/// Timeout of one page request.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Last seen state of the cluster, and the lines to print.
pub struct ClusterEvents {
    clock: Clock,
    http: reqwest::Client,
    /// Client ports to fetch pages from; the first that responds is used.
    ports: Vec<u16>,
    members: BTreeMap<String, String>,
    shards: BTreeMap<u64, (String, String)>,
    lines: String,
}

impl ClusterEvents {
    pub fn new(plan: &ClusterPlan, clock: Clock) -> Self {
        let mut ports: Vec<u16> = plan.nodes.iter().map(|node| node.port).collect();
        ports.sort_unstable();
        // The call fails if the process has installed a provider before, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            clock,
            http: reqwest::Client::new(),
            ports,
            members: BTreeMap::new(),
            shards: BTreeMap::new(),
            lines: String::new(),
        }
    }

    /// Returns the lines added since the last call.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.lines)
    }

    /// Records the exit of a process. Its port is not polled any more, because another process may bind it.
    pub fn record_exit(&mut self, node: &PlannedNode, status: &ExitStatus) {
        self.ports.retain(|port| *port != node.port);
        let log = node.folder.join("log");
        self.record(&node.name, &format!("exited: {status}; log: {}", log.display()));
    }

    /// Polls the pages of the first node that responds, and records changes.
    pub async fn poll(&mut self) {
        if let Some(page) = self.page("members.json").await {
            self.members(&page);
        }
        if let Some(page) = self.page("shards.json").await {
            self.shards(&page);
        }
    }

    async fn page(&self, name: &str) -> Option<Value> {
        for port in &self.ports {
            let asked = self.http.get(format!("http://127.0.0.1:{port}/{name}")).send();
            if let Ok(Ok(answer)) = self.clock.timeout(PAGE_TIMEOUT, asked).await
                && answer.status().is_success()
            {
                let body = self.clock.timeout(PAGE_TIMEOUT, answer.bytes()).await;
                return serde_json::from_slice(&body.ok()?.ok()?).ok();
            }
        }
        None
    }

    fn members(&mut self, page: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for member in page["members"].as_array().into_iter().flatten() {
            let state = if member["alive"] == true { text(&member["state"]) } else { "missing".to_owned() };
            let name = text(&member["name"]);
            if self.members.get(&name) != Some(&state) {
                self.record(&name, &format!("is {state}"));
                self.members.insert(name, state);
            }
        }
    }

    fn shards(&mut self, page: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for shard in page["shards"].as_array().into_iter().flatten() {
            let id = shard["shard"].as_u64().unwrap_or_default();
            let phase = text(&shard["phase"]);
            let leader = text(&shard["leader"]["name"]);
            let (known_phase, known_leader) = self.shards.get(&id).cloned().unwrap_or_default();
            let name = format!("shard {id}");
            if phase != known_phase {
                let members = shard["members"].as_array().into_iter().flatten();
                let members: Vec<String> = members.map(|member| text(&member["name"])).collect();
                let of = format!("of slot {} is {phase}, on {}", shard["slot"], members.join(", "));
                self.record(&name, &of);
            }
            // During an election no leader is known for a short time, which is no event.
            if leader != known_leader && !leader.is_empty() {
                self.record(&name, &format!("is led by {leader}"));
            }
            let leader = if leader.is_empty() { known_leader } else { leader };
            self.shards.insert(id, (phase, leader));
        }
    }

    fn record(&mut self, subject: &str, event: &str) {
        let now = format_rfc3339(self.clock.wall().nanos());
        // Writing to a string cannot fail.
        let _ = writeln!(self.lines, "{}  {subject:<14} {event}", &now[11..19]);
    }
}

#[cfg(test)]
mod tests {
    use athanor_chassis::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_changes_are_recorded() {
        let plan = ClusterPlan { folder: "x".into(), nodes: Vec::new() };
        let mut events = ClusterEvents::new(&plan, Clock::manual(Timestamp::from_seconds(3_661)).0);
        let members = json!({ "members": [{ "name": "ingester-1-a", "alive": true, "state": "ready" }] });
        events.members(&members);
        assert_eq!(events.take(), "01:01:01  ingester-1-a   is ready\n");
        events.members(&members);
        assert_eq!(events.take(), "");
        let shards = |leader: Value| {
            let members = json!([{ "name": "i1" }, { "name": "i2" }]);
            json!({ "shards": [{ "shard": 7, "slot": 6, "phase": "open", "leader": leader, "members": members }] })
        };
        events.shards(&shards(json!({ "name": "i1" })));
        let lines = events.take();
        let opens = "shard 7        of slot 6 is open, on i1, i2";
        assert!(lines.contains(opens) && lines.contains("is led by i1"), "{lines}");
        events.shards(&shards(Value::Null));
        events.shards(&shards(json!({ "name": "i1" })));
        assert_eq!(events.take(), "");
    }
}
