//! Discoverer that runs against a stand-in, with the targets that it reported.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_agent::config::{self, Environment};
use athanor_agent::discovery::kubernetes::{KubernetesDiscoverer, KubernetesEnvironment, KubernetesStatus};
use athanor_agent::discovery::{Discoverer, DiscoverySettings, KubernetesDiscoverySettings, TargetGroup};
use athanor_chassis::{Backoff, Clock, ComputePool, Random, TaskGroup};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Longest time for a state to come about.
const STATE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two looks at a state that nothing reports.
const STATE_CHECK_INTERVAL: Duration = Duration::from_millis(5);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(1), Duration::from_millis(20));

/// Targets by source, each as text.
pub(crate) type Targets = BTreeMap<String, Vec<String>>;

/// Running discoverer.
pub(crate) struct DiscoveryRun {
    pub(crate) targets: Targets,
    /// Sources that were removed, in order.
    pub(crate) removed: Vec<String>,
    pub(crate) status: Arc<KubernetesStatus>,
    updates: mpsc::Receiver<Vec<TargetGroup>>,
    stop: CancellationToken,
    clock: Clock,
}

impl DiscoveryRun {
    /// Starts a discoverer with a section of `kubernetes_sd_configs`.
    pub(crate) fn start(section: &str) -> Self {
        Self::start_with(section, None, Clock::system())
    }

    /// Starts a discoverer of an agent that runs on a node.
    pub(crate) fn start_on_node(section: &str, node_name: &str) -> Self {
        Self::start_with(section, Some(node_name), Clock::system())
    }

    /// Starts a discoverer with a clock of its own.
    pub(crate) fn start_with(section: &str, node_name: Option<&str>, discoverer_clock: Clock) -> Self {
        let clock = Clock::system();
        let environment = KubernetesEnvironment {
            clock: discoverer_clock,
            random: Random::from_seed(1),
            pool: ComputePool::with_threads(1.try_into().unwrap(), 8).unwrap(),
            backoff: BACKOFF,
            node_name: node_name.map(str::to_owned),
            stats: std::sync::Arc::default(),
        };
        let discoverer = KubernetesDiscoverer::new(parse(section), environment).unwrap();
        let status = discoverer.status();
        let (sender, updates) = mpsc::channel(64);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let tasks = TaskGroup::new(clock.clone(), 1);
        tasks.spawn("discoverer", async move { discoverer.run(sender, stopped).await }).unwrap();
        Self { targets: Targets::new(), removed: Vec::new(), status, updates, stop, clock }
    }

    /// Waits for the next update and applies it.
    pub(crate) async fn next(&mut self) {
        let update = self.clock.timeout(STATE_TIMEOUT, self.updates.recv()).await;
        let update = update.unwrap_or_else(|_| panic!("no update, problems: {:?}", self.status.problems()));
        for group in update.expect("the discoverer runs") {
            if group.targets.is_empty() {
                self.targets.remove(&group.source);
                self.removed.push(group.source);
            } else {
                let texts = group.targets.iter().map(ToString::to_string).collect();
                self.targets.insert(group.source, texts);
            }
        }
    }

    /// Applies updates until the targets are as expected.
    pub(crate) async fn wait_for_targets(&mut self, expected: &Targets) {
        while self.targets != *expected {
            self.next().await;
        }
    }

    /// Applies updates until a text is part of a target.
    pub(crate) async fn wait_for_text(&mut self, text: &str) {
        while !self.has_text(text) {
            self.next().await;
        }
    }

    /// Waits for a state that no update reports.
    pub(crate) async fn wait_until(&self, what: &str, is_reached: impl Fn(&KubernetesStatus) -> bool) {
        let wait = async {
            while !is_reached(&self.status) {
                self.clock.sleep(STATE_CHECK_INTERVAL).await;
            }
        };
        let waited = self.clock.timeout(STATE_TIMEOUT, wait).await;
        assert!(waited.is_ok(), "no {what}, problems: {:?}", self.status.problems());
    }

    fn has_text(&self, text: &str) -> bool {
        self.targets.values().flatten().any(|target| target.contains(text))
    }
}

impl Drop for DiscoveryRun {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns the targets that a plain list yields.
pub(crate) async fn list_targets(section: &str) -> Targets {
    let mut run = DiscoveryRun::start(section);
    run.next().await;
    run.targets.clone()
}

fn parse(section: &str) -> KubernetesDiscoverySettings {
    let text = format!("scrape_configs: [{{job_name: a, kubernetes_sd_configs: [{section}]}}]");
    let file = std::path::Path::new("/agent.yml");
    let config = config::parse(&text, file, &Environment::default()).unwrap();
    match &config.jobs[0].discovery[0] {
        DiscoverySettings::Kubernetes(settings) => settings.clone(),
        other => panic!("{other:?}"),
    }
}
