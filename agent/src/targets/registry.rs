//! Targets of all jobs in force, as configuration and discovery change them.

use std::collections::BTreeMap;
use std::sync::Arc;

use athanor_profile::Labels;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::group_targets::GroupTargets;
use super::{JobTargets, max_listed_dropped, merge_groups};
use crate::config::JobConfig;
use crate::discovery::{DiscoverySettings, TargetGroup};
use crate::scrape_target::ScrapeTarget;

/// Registry of jobs and their targets. It publishes the list of all targets when it changes.
///
/// A job whose configuration changed keeps its old targets until all its mechanisms have sent their first update.
/// A reload therefore never leaves a job without targets.
pub struct TargetRegistry {
    state: Mutex<RegistryState>,
    published: watch::Sender<Arc<Vec<ScrapeTarget>>>,
}

/// Job with its targets.
#[derive(Clone, Debug)]
pub struct JobState {
    /// Configuration of the job.
    pub job: Arc<JobConfig>,
    /// Targets in force.
    pub targets: Arc<JobTargets>,
    /// True if mechanisms have yet to send their first update.
    pub is_pending: bool,
}

#[derive(Default)]
struct RegistryState {
    external_labels: Labels,
    jobs: Vec<RegisteredJob>,
}

struct RegisteredJob {
    job: Arc<JobConfig>,
    /// Targets by mechanism and source.
    groups: BTreeMap<(usize, String), GroupTargets>,
    /// Number of dropped targets that all groups list.
    listed_dropped: usize,
    /// True if a mechanism has sent an update, by its index.
    has_updated: Vec<bool>,
    targets: Arc<JobTargets>,
}

// === impl TargetRegistry ===

impl Default for TargetRegistry {
    fn default() -> Self {
        TargetRegistry { state: Mutex::default(), published: watch::Sender::new(Arc::default()) }
    }
}

impl TargetRegistry {
    /// Returns a receiver of the targets of all jobs.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Vec<ScrapeTarget>>> {
        self.published.subscribe()
    }

    /// Replaces the jobs and adds their static targets. Jobs that did not change keep their targets, and their
    /// mechanisms go on. Returns the names of the jobs whose other mechanisms must be started, after those of the
    /// same name were stopped.
    pub fn set_jobs(&self, jobs: &[JobConfig], external_labels: &Labels) -> Vec<String> {
        let mut state = self.state.lock();
        let is_same = state.external_labels == *external_labels;
        let mut known: BTreeMap<String, RegisteredJob> =
            state.jobs.drain(..).map(|job| (job.job.job.name.clone(), job)).collect();
        let mut started = Vec::new();
        for job in jobs {
            let old = known.remove(&job.job.name);
            match old {
                Some(old) if is_same && *old.job == *job => state.jobs.push(old),
                old => {
                    started.push(job.job.name.clone());
                    let mut registered = RegisteredJob::new(job, old.map(|old| old.targets));
                    registered.add_static_groups(external_labels);
                    state.jobs.push(registered);
                }
            }
        }
        state.external_labels = external_labels.clone();
        self.publish(&state);
        started
    }

    /// Replaces groups of a mechanism, which is named by its index in the job. Unknown jobs and mechanisms are
    /// ignored: they were removed meanwhile.
    pub fn update(&self, job: &str, mechanism: usize, groups: &[TargetGroup]) {
        let mut state = self.state.lock();
        let RegistryState { external_labels, jobs } = &mut *state;
        let Some(registered) = jobs.iter_mut().find(|known| known.job.job.name == job) else { return };
        if mechanism >= registered.has_updated.len() {
            return;
        }
        registered.update(mechanism, groups, external_labels);
        self.publish(&state);
    }

    /// Returns all jobs with their targets.
    pub fn jobs(&self) -> Vec<JobState> {
        let state = self.state.lock();
        let jobs = state.jobs.iter().map(|job| JobState {
            job: job.job.clone(),
            targets: job.targets.clone(),
            is_pending: job.is_pending(),
        });
        jobs.collect()
    }

    fn publish(&self, state: &RegistryState) {
        let all = state.jobs.iter().flat_map(|job| &job.targets.targets).cloned().collect();
        self.published.send_replace(Arc::new(all));
    }
}

// === impl RegisteredJob ===

impl RegisteredJob {
    /// Creates a job without groups. The targets of its predecessor stay in force meanwhile.
    fn new(job: &JobConfig, old: Option<Arc<JobTargets>>) -> Self {
        let has_updated = vec![false; job.discovery.len()];
        let keeps_old = !has_updated.is_empty();
        let targets = old.filter(|_| keeps_old).unwrap_or_default();
        RegisteredJob {
            job: Arc::new(job.clone()),
            groups: BTreeMap::new(),
            listed_dropped: 0,
            has_updated,
            targets,
        }
    }

    /// Adds the targets of the configuration, which no mechanism discovers.
    fn add_static_groups(&mut self, external_labels: &Labels) {
        let job = self.job.clone();
        for (index, settings) in job.discovery.iter().enumerate() {
            if let DiscoverySettings::Static(groups) = settings {
                self.update(index, groups, external_labels);
            }
        }
    }

    fn is_pending(&self) -> bool {
        self.has_updated.contains(&false)
    }

    fn update(&mut self, mechanism: usize, groups: &[TargetGroup], external_labels: &Labels) {
        let max_listed = max_listed_dropped(&self.job);
        for group in groups {
            let key = (mechanism, group.source.clone());
            if let Some(old) = self.groups.remove(&key) {
                self.listed_dropped -= old.dropped.len();
            }
            if group.targets.is_empty() {
                continue;
            }
            let max_listed = max_listed.saturating_sub(self.listed_dropped);
            let built = GroupTargets::build(&self.job, group, external_labels, max_listed);
            self.listed_dropped += built.dropped.len();
            self.groups.insert(key, built);
        }
        self.has_updated[mechanism] = true;
        if !self.is_pending() {
            self.targets = Arc::new(merge_groups(&self.job, self.groups.values()));
        }
    }
}
