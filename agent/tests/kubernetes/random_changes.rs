//! Random changes with random faults end in the same targets as a plain list.

use std::collections::BTreeSet;

use athanor_chassis::Random;
use serde_json::Value;

use crate::discovery_run::{DiscoveryRun, list_targets};
use crate::samples::{ROLES, endpoint_slice, endpoints, namespace, node, pod, service};
use crate::stand_in::{ApiSettings, ApiStandIn};

const CHANGES: u64 = 300;
const SEEDS: u64 = 2;
const FAULT_PERCENT: u64 = 30;
/// Names of each resource.
const NAMES: u64 = 6;

#[tokio::test]
async fn random_changes_with_faults_end_in_the_targets_of_a_list() {
    for seed in 0..SEEDS {
        let random = Random::from_seed(seed);
        let api = ApiStandIn::start(ApiSettings { max_page: Some(3), ..ApiSettings::default() }).await;
        api.apply(namespace(0));
        let mut changes = RandomChanges { api, random: random.split(), existing: BTreeSet::new() };
        let sections: Vec<String> = ROLES.iter().map(|role| section(role, &changes.api)).collect();
        changes.api.set_fault_rate(random.split(), FAULT_PERCENT);
        let mut runs: Vec<DiscoveryRun> =
            sections.iter().map(|section| DiscoveryRun::start(section)).collect();
        for revision in 0..CHANGES {
            changes.make_change(revision);
        }
        changes.api.set_fault_rate(random.split(), 0);
        changes.api.apply(pod("last", "node-0", CHANGES));
        for (section, run) in sections.iter().zip(&mut runs) {
            let expected = list_targets(section).await;
            assert!(!expected.is_empty(), "{section} of seed {seed}");
            run.wait_for_targets(&expected).await;
        }
    }
}

fn section(role: &str, api: &ApiStandIn) -> String {
    // The metadata of a node is not attached to services and nodes.
    let attached = match role {
        "service" => ", attach_metadata: {namespace: true}",
        "node" => "",
        _ => ", attach_metadata: {node: true, namespace: true}",
    };
    format!("{{role: {role}, api_server: '{}'{attached}}}", api.url())
}

/// Source of random changes of a cluster.
struct RandomChanges {
    api: ApiStandIn,
    random: Random,
    /// Plural and name of the objects that a change may delete.
    existing: BTreeSet<(String, String)>,
}

impl RandomChanges {
    fn make_change(&mut self, revision: u64) {
        match self.random.next_below(10) {
            0..6 => self.apply_object(revision),
            6..8 => self.delete_object(),
            8 => self.api.send_bookmarks(),
            _ if self.random.next_below(2) == 0 => self.api.compact(),
            _ => self.api.end_watches(),
        }
    }

    fn apply_object(&mut self, revision: u64) {
        let name = format!("a-{}", self.random.next_below(NAMES));
        let object = match self.random.next_below(6) {
            0 => namespace(revision),
            1 => node(&format!("node-{}", self.random.next_below(3)), revision),
            2 => service(&name, revision),
            3 => endpoints(&name, &self.some_pods()),
            4 => endpoint_slice(&name, &self.some_pods()),
            _ => pod(&name, &format!("node-{}", self.random.next_below(3)), revision),
        };
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let plural = if kind.ends_with('s') { kind } else { format!("{kind}s") };
        if plural != "namespaces" {
            self.existing.insert((plural, name_of(&object)));
        }
        self.api.apply(object);
    }

    fn delete_object(&mut self) {
        let count = self.existing.len() as u64;
        if count == 0 {
            return;
        }
        let index = usize::try_from(self.random.next_below(count)).unwrap();
        let (plural, name) = self.existing.iter().nth(index).cloned().unwrap();
        let namespace = if plural == "nodes" { "" } else { "shop" };
        self.api.delete(&plural, namespace, &name);
        self.existing.remove(&(plural, name));
    }

    fn some_pods(&self) -> Vec<String> {
        let count = self.random.next_below(4);
        (0..count).map(|_| format!("a-{}", self.random.next_below(NAMES))).collect()
    }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}
