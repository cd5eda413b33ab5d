//! Feed of targets: carries the groups of all discoverers to the registry of targets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use athanor_chassis::TaskGroup;
use athanor_profile::Labels;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::sender_directory::SenderDirectory;
use crate::config::JobConfig;
use crate::discovery::{DiscoveryManager, DiscoverySettings, JobDiscovery, TargetGroup, TargetGroups};
use crate::targets::TargetRegistry;

/// Name of the discovery for the labels of senders. Names of other feeds contain a slash.
const SENDERS_FEED: &str = "senders";

/// Feed from the discoverers to the registry. A reload restarts the feeds of changed jobs only.
pub struct TargetFeed {
    manager: DiscoveryManager,
    registry: Arc<TargetRegistry>,
    senders: Arc<SenderDirectory>,
    tasks: TaskGroup,
    state: Arc<Mutex<FeedState>>,
}

#[derive(Default)]
struct FeedState {
    /// Tokens that stop the feeds of each job.
    running: BTreeMap<String, CancellationToken>,
    /// Discoverers that could not be started, as messages.
    problems: Vec<String>,
}

/// Feed of one discoverer of a job.
struct DiscovererFeed {
    registry: Arc<TargetRegistry>,
    job: String,
    mechanism: usize,
    groups: watch::Receiver<TargetGroups>,
    /// State of all feeds. Its lock orders updates before or after a new configuration.
    state: Arc<Mutex<FeedState>>,
    stop: CancellationToken,
    /// Directory of senders, if the discoverer finds containers.
    containers: Option<Arc<SenderDirectory>>,
}

impl TargetFeed {
    /// Creates a feed without jobs. Feeds run in `tasks`.
    pub fn new(
        manager: DiscoveryManager,
        registry: Arc<TargetRegistry>,
        senders: Arc<SenderDirectory>,
        tasks: TaskGroup,
    ) -> Self {
        Self { manager, registry, senders, tasks, state: Arc::default() }
    }

    /// Applies the jobs of a configuration, and the discovery of the pods whose labels senders get.
    pub fn apply(&self, jobs: &[JobConfig], external_labels: &Labels, senders: Option<DiscoverySettings>) {
        let mut state = self.state.lock();
        let changed = self.registry.set_jobs(jobs, external_labels);
        let is_known = |name: &String| jobs.iter().any(|job| job.job.name == *name);
        state.running.retain(|name, stop| {
            let is_kept = is_known(name) && !changed.contains(name);
            if !is_kept {
                stop.cancel();
            }
            is_kept
        });
        let mut wanted: Vec<JobDiscovery> = jobs.iter().flat_map(discoveries).collect();
        let senders = senders.map(|settings| vec![settings]);
        wanted.extend(senders.map(|discoverers| JobDiscovery { job: SENDERS_FEED.to_owned(), discoverers }));
        let failed = self.manager.apply(&wanted);
        state.problems = failed.into_iter().map(|(feed, error)| format!("{feed}: {error}")).collect();
        self.watch_senders(jobs, &wanted);
        for problem in &state.problems {
            tracing::error!(problem, "failed to start discovery");
        }
        for job in jobs.iter().filter(|job| changed.contains(&job.job.name)) {
            let stop = self.tasks.shutdown_token().child_token();
            self.start_feeds(job, &stop);
            state.running.insert(job.job.name.clone(), stop);
        }
    }

    /// Names the feeds that the labels of senders come from.
    fn watch_senders(&self, jobs: &[JobConfig], wanted: &[JobDiscovery]) {
        self.senders.retain_feeds(|feed| wanted.iter().any(|discovery| discovery.job == feed));
        let finds_containers =
            |(_, settings): &(usize, &DiscoverySettings)| matches!(settings, DiscoverySettings::Docker(_));
        let docker = jobs.iter().flat_map(|job| {
            let found = job.discovery.iter().enumerate().filter(finds_containers);
            found.map(|(mechanism, _)| feed_name(&job.job.name, mechanism))
        });
        let feeds = docker.chain([SENDERS_FEED.to_owned()]);
        self.senders.set_sources(feeds.filter_map(|feed| self.manager.subscribe(&feed)).collect());
    }

    /// Returns the discoverers that could not be started.
    pub fn problems(&self) -> Vec<String> {
        self.state.lock().problems.clone()
    }

    /// Returns the groups of a job, those of its configuration and those of discoverers.
    pub fn groups(&self, job: &JobConfig) -> Vec<TargetGroup> {
        let mut groups = Vec::new();
        for (mechanism, settings) in job.discovery.iter().enumerate() {
            match settings {
                DiscoverySettings::Static(listed) => groups.extend(listed.iter().cloned()),
                _ => {
                    let found = self.manager.subscribe(&feed_name(&job.job.name, mechanism));
                    let found = found.and_then(|found| found.borrow().clone());
                    groups.extend(found.iter().flat_map(|found| found.iter().cloned()));
                }
            }
        }
        groups
    }

    fn start_feeds(&self, job: &JobConfig, stop: &CancellationToken) {
        for (mechanism, settings) in job.discovery.iter().enumerate() {
            let name = feed_name(&job.job.name, mechanism);
            let is_static = matches!(settings, DiscoverySettings::Static(_));
            let Some(groups) = self.manager.subscribe(&name).filter(|_| !is_static) else { continue };
            let registry = Arc::clone(&self.registry);
            let state = Arc::clone(&self.state);
            let finds_containers = matches!(settings, DiscoverySettings::Docker(_));
            let containers = finds_containers.then(|| Arc::clone(&self.senders));
            let feed = DiscovererFeed {
                registry,
                job: job.job.name.clone(),
                mechanism,
                groups,
                state,
                stop: stop.clone(),
                containers,
            };
            let stop = stop.clone();
            let run = async move {
                tokio::select! {
                    () = feed.run() => {}
                    () = stop.cancelled() => {}
                }
            };
            if let Err(error) = self.tasks.spawn(format!("targets {name}"), run) {
                tracing::error!(%error, feed = name, "failed to start a feed of targets");
            }
        }
    }
}

/// Returns the discoverers of a job that run. Each has a feed of its own.
fn discoveries(job: &JobConfig) -> impl Iterator<Item = JobDiscovery> {
    let running = job.discovery.iter().enumerate();
    let running = running.filter(|(_, settings)| !matches!(settings, DiscoverySettings::Static(_)));
    running.map(|(mechanism, settings)| JobDiscovery {
        job: feed_name(&job.job.name, mechanism),
        discoverers: vec![settings.clone()],
    })
}

fn feed_name(job: &str, mechanism: usize) -> String {
    format!("{job}/{mechanism}")
}

impl DiscovererFeed {
    async fn run(mut self) {
        let mut published: HashMap<String, TargetGroup> = HashMap::new();
        loop {
            let groups = self.groups.borrow_and_update().clone();
            if let Some(groups) = groups {
                self.publish(&mut published, &groups);
            }
            // A configuration without the discoverer closes the channel.
            if self.groups.changed().await.is_err() {
                return;
            }
        }
    }

    fn publish(&self, published: &mut HashMap<String, TargetGroup>, groups: &[TargetGroup]) {
        if let Some(containers) = &self.containers {
            containers.set_containers(&feed_name(&self.job, self.mechanism), groups);
        }
        let changes = take_changes(published, groups);
        let _state = self.state.lock();
        // The job of that name may be another one by now.
        if self.stop.is_cancelled() {
            return;
        }
        self.registry.update(&self.job, self.mechanism, &changes);
    }
}

/// Returns the groups that differ from those published before, and an empty group for each removed source. Of
/// several groups of one source the first counts: later ones are of a replaced discoverer.
fn take_changes(published: &mut HashMap<String, TargetGroup>, groups: &[TargetGroup]) -> Vec<TargetGroup> {
    let mut current: HashMap<String, TargetGroup> = HashMap::with_capacity(groups.len());
    for group in groups {
        current.entry(group.source.clone()).or_insert_with(|| group.clone());
    }
    let is_changed = |group: &&TargetGroup| published.get(&group.source) != Some(*group);
    let mut changes: Vec<TargetGroup> = current.values().filter(is_changed).cloned().collect();
    let removed = published.keys().filter(|source| !current.contains_key(*source));
    changes.extend(removed.map(|source| TargetGroup { source: source.clone(), ..TargetGroup::default() }));
    changes.sort_by(|one, other| one.source.cmp(&other.source));
    *published = current;
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(source: &str, address: &str) -> TargetGroup {
        let labels = Labels::new([("__address__".to_owned(), address.to_owned())]);
        TargetGroup { source: source.to_owned(), targets: vec![labels], is_address_untrusted: false }
    }

    #[test]
    fn changes_are_new_changed_and_removed_sources() {
        let mut published = HashMap::new();
        let first = [group("a", "one"), group("b", "two"), group("a", "replaced")];
        assert_eq!(take_changes(&mut published, &first), [group("a", "one"), group("b", "two")]);
        let removed = TargetGroup { source: "a".to_owned(), ..TargetGroup::default() };
        let second = [group("b", "three"), group("c", "four")];
        let expected = [removed, group("b", "three"), group("c", "four")];
        assert_eq!(take_changes(&mut published, &second), expected);
        assert_eq!(take_changes(&mut published, &second), []);
    }
}
