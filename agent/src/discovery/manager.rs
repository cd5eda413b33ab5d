//! Manager of the discoverers of all jobs.
//!
//! Jobs with equal settings share a discoverer. A new configuration stops and starts only the discoverers that
//! differ. Until a new discoverer of a job has found its targets, the job keeps those of the discoverers that it
//! replaces, so that their scrapes go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{Clock, TaskGroup};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Discoverer, DiscovererFactory, DiscoveryError, DiscoveryKind, DiscoverySettings, DiscoveryStats,
    TargetGroup,
};

/// Updates of a discoverer that wait.
const UPDATE_QUEUE: usize = 16;
/// Time in which the changes of a discoverer are gathered before they are published.
const PUBLISH_DELAY: Duration = Duration::from_millis(200);
/// Maximum groups of a discoverer.
const MAX_GROUPS_PER_DISCOVERER: usize = 250_000;

/// Discovery of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDiscovery {
    /// Name of the job.
    pub job: String,
    /// Settings of its discoverers.
    pub discoverers: Vec<DiscoverySettings>,
}

/// Targets of a job, published as they change. None until a discoverer has found those that exist.
pub type TargetGroups = Option<Arc<Vec<TargetGroup>>>;

/// Manager of discoverers. Cheap to clone.
#[derive(Clone)]
pub struct DiscoveryManager {
    shared: Arc<ManagerInner>,
}

struct ManagerInner {
    tasks: TaskGroup,
    clock: Clock,
    factory: Arc<dyn DiscovererFactory>,
    stats: Arc<DiscoveryStats>,
    state: Mutex<ManagerState>,
}

#[derive(Default)]
struct ManagerState {
    providers: BTreeMap<u64, Provider>,
    jobs: BTreeMap<String, JobTargets>,
    next_provider: u64,
}

/// Running discoverer with its groups.
struct Provider {
    settings: DiscoverySettings,
    groups: BTreeMap<String, TargetGroup>,
    /// True if the first update arrived.
    is_synced: bool,
    stop: CancellationToken,
}

/// Targets of a job.
struct JobTargets {
    providers: Vec<u64>,
    /// Groups of replaced discoverers, in force until all others are synced.
    replaced: Vec<TargetGroup>,
    sender: watch::Sender<TargetGroups>,
}

// === impl DiscoveryManager ===

impl DiscoveryManager {
    /// Creates a manager without jobs. Discoverers run in `tasks`.
    pub fn new(
        tasks: TaskGroup,
        clock: Clock,
        factory: Arc<dyn DiscovererFactory>,
        stats: Arc<DiscoveryStats>,
    ) -> Self {
        let state = Mutex::default();
        Self { shared: Arc::new(ManagerInner { tasks, clock, factory, stats, state }) }
    }

    /// Applies the discovery of all jobs. Jobs and discoverers that did not change are not touched. Returns the
    /// discoverers that could not be started; the others run.
    pub fn apply(&self, jobs: &[JobDiscovery]) -> Vec<(String, DiscoveryError)> {
        let mut failed = Vec::new();
        let mut state = self.shared.state.lock();
        let mut wanted: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for job in jobs {
            let providers = wanted.entry(&job.job).or_default();
            for settings in &job.discoverers {
                match self.find_or_start(&mut state, settings) {
                    Ok(id) if providers.contains(&id) => {}
                    Ok(id) => providers.push(id),
                    Err(error) => {
                        self.shared.stats.count_error(DiscoveryKind::from_settings(settings));
                        failed.push((job.job.clone(), error));
                    }
                }
            }
        }
        state.jobs.retain(|name, _| wanted.contains_key(name.as_str()));
        for (name, providers) in wanted {
            self.assign_providers(&mut state, name, providers);
        }
        state.stop_unused_providers();
        failed
    }

    /// Returns the targets of a job, None if there is no such job. The channel closes if a configuration removes
    /// the job.
    pub fn subscribe(&self, job: &str) -> Option<watch::Receiver<TargetGroups>> {
        self.shared.state.lock().jobs.get(job).map(|job| job.sender.subscribe())
    }

    /// Returns the id of the discoverer with these settings.
    fn find_or_start(
        &self,
        state: &mut ManagerState,
        settings: &DiscoverySettings,
    ) -> Result<u64, DiscoveryError> {
        let known = state.providers.iter().find(|(_, provider)| provider.settings == *settings);
        if let Some((id, _)) = known {
            return Ok(*id);
        }
        let discoverer = self.shared.factory.create(settings)?;
        let id = state.next_provider;
        let stop = self.shared.tasks.shutdown_token().child_token();
        let kind = DiscoveryKind::from_settings(settings);
        let run = run_provider(Arc::clone(&self.shared), id, discoverer, stop.clone());
        let spawned = self.shared.tasks.spawn(format!("discovery {} {id}", kind.name()), run);
        spawned.map_err(|error| DiscoveryError::Settings { reason: error.to_string() })?;
        state.next_provider += 1;
        let provider =
            Provider { settings: settings.clone(), groups: BTreeMap::new(), is_synced: false, stop };
        state.providers.insert(id, provider);
        Ok(id)
    }

    fn assign_providers(&self, state: &mut ManagerState, name: &str, providers: Vec<u64>) {
        let Some(job) = state.jobs.get_mut(name) else {
            let sender = watch::Sender::new(None);
            let job = JobTargets { providers, replaced: Vec::new(), sender };
            state.jobs.insert(name.to_owned(), job);
            state.publish(name);
            return;
        };
        if job.providers == providers {
            return;
        }
        let removed = job.providers.iter().filter(|id| !providers.contains(id));
        let replaced = removed.filter_map(|id| state.providers.get(id));
        let replaced: Vec<TargetGroup> =
            replaced.flat_map(|provider| provider.groups.values().cloned()).collect();
        job.providers = providers;
        if job.providers.iter().any(|id| !state.providers.get(id).is_some_and(|provider| provider.is_synced))
        {
            job.replaced.extend(replaced);
        }
        state.publish(name);
    }
}

/// Runs a discoverer and publishes its updates until it is stopped.
async fn run_provider(
    shared: Arc<ManagerInner>,
    id: u64,
    discoverer: Arc<dyn Discoverer>,
    stop: CancellationToken,
) {
    let (updates, receiver) = mpsc::channel(UPDATE_QUEUE);
    let run = async {
        discoverer.run(updates, stop.clone()).await;
        if !stop.is_cancelled() {
            tracing::error!(provider = id, "discoverer ended although it was not stopped");
        }
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(run, publish_updates(&shared, id, receiver)) } => {}
        () = stop.cancelled() => {}
    }
}

/// Publishes the first update at once and gathers later ones.
async fn publish_updates(shared: &ManagerInner, id: u64, mut updates: mpsc::Receiver<Vec<TargetGroup>>) {
    while let Some(update) = updates.recv().await {
        let mut is_first = shared.store_update(id, update);
        // A burst of updates is published once, at a fixed time after its first update.
        let deadline = shared.clock.sleep(PUBLISH_DELAY);
        tokio::pin!(deadline);
        while !is_first {
            tokio::select! {
                () = &mut deadline => break,
                update = updates.recv() => match update {
                    Some(update) => is_first |= shared.store_update(id, update),
                    None => break,
                }
            }
        }
        shared.publish_provider(id);
    }
}

impl ManagerInner {
    /// Replaces the groups of an update. Returns whether it was the first one.
    fn store_update(&self, id: u64, update: Vec<TargetGroup>) -> bool {
        let mut state = self.state.lock();
        let Some(provider) = state.providers.get_mut(&id) else { return false };
        let kind = DiscoveryKind::from_settings(&provider.settings);
        self.stats.count_update(kind);
        let mut dropped = 0_usize;
        for group in update {
            if group.targets.is_empty() {
                provider.groups.remove(&group.source);
            } else if provider.groups.len() < MAX_GROUPS_PER_DISCOVERER
                || provider.groups.contains_key(&group.source)
            {
                provider.groups.insert(group.source.clone(), group);
            } else {
                dropped += 1;
            }
        }
        if dropped > 0 {
            self.stats.count_error(kind);
            let limit = MAX_GROUPS_PER_DISCOVERER;
            tracing::warn!(
                kind = kind.name(),
                dropped,
                limit,
                "discoverer has too many groups, dropping new ones"
            );
        }
        !std::mem::replace(&mut provider.is_synced, true)
    }

    /// Publishes all jobs that use a discoverer.
    fn publish_provider(&self, id: u64) {
        let mut state = self.state.lock();
        let uses_provider =
            |(name, job): (&String, &JobTargets)| job.providers.contains(&id).then(|| name.clone());
        let names: Vec<String> = state.jobs.iter().filter_map(uses_provider).collect();
        for name in names {
            state.publish(&name);
        }
    }
}

// === impl ManagerState ===

impl ManagerState {
    /// Merges the groups of a job by discoverer and source, and sends them if they changed.
    fn publish(&mut self, name: &str) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        let providers = || job.providers.iter().filter_map(|id| self.providers.get(id));
        if providers().all(|provider| provider.is_synced) {
            job.replaced.clear();
        }
        // Nothing is known yet. What was published before stays in force.
        if job.replaced.is_empty() && !providers().any(|provider| provider.is_synced) {
            return;
        }
        let mut groups: Vec<TargetGroup> =
            providers().flat_map(|provider| provider.groups.values().cloned()).collect();
        groups.extend(job.replaced.iter().cloned());
        job.sender.send_if_modified(|published| {
            let is_changed = published.as_deref() != Some(&groups);
            if is_changed {
                *published = Some(Arc::new(groups));
            }
            is_changed
        });
    }

    fn stop_unused_providers(&mut self) {
        let jobs = &self.jobs;
        self.providers.retain(|id, provider| {
            let is_used = jobs.values().any(|job| job.providers.contains(id));
            if !is_used {
                provider.stop.cancel();
            }
            is_used
        });
    }
}

#[cfg(test)]
mod tests;
