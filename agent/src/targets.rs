//! Targets of a job: from discovered groups to what is scraped, as Prometheus derives them.
//!
//! ```text
//!  discovered labels ─► + job, __scheme__, … ─► rules ─► checks ─► - __meta_* ─► + instance, service_name
//! ```
//!
//! [`build_targets`] is pure. It returns targets and dropped targets with reasons. [`explain_target`] shows the
//! labels after each rule. [`TargetRegistry`] publishes the targets of all jobs as discovery changes them.

mod annotations;
mod explain;
mod group_targets;
mod labels;
mod profile_kinds;
mod registry;
pub mod scrape_target;
mod service_name;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use athanor_profile::Labels;
use athanor_profile::labeling::relabel::RelabelLimitError;

pub use annotations::{AnnotatedKind, annotated_kinds};
pub use explain::{ExplainedRule, TargetExplanation, explain_target};
pub use labels::InvalidTargetError;
pub use profile_kinds::KindError;
pub use registry::{JobState, TargetRegistry};
pub(crate) use service_name::{infer_service_name, service_name_of_container};

use crate::config::JobConfig;
use crate::discovery::TargetGroup;
use crate::scrape_target::ScrapeTarget;
use group_targets::GroupTargets;

/// Maximum targets of a job.
pub const MAX_TARGETS_PER_JOB: usize = 100_000;
/// Maximum dropped targets of a job that are listed.
pub const MAX_LISTED_DROPPED_TARGETS: usize = 1_000;

/// Targets of one job.
#[derive(Clone, Debug, Default)]
pub struct JobTargets {
    /// Targets that are scraped, with different labels.
    pub targets: Vec<ScrapeTarget>,
    /// Targets that are not scraped, up to a limit.
    pub dropped: Vec<DroppedTarget>,
    /// Number of targets that are not scraped.
    pub dropped_count: usize,
    /// Error that concerns the whole job. It has no targets then.
    pub error: Option<JobTargetsError>,
}

/// Target that is not scraped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedTarget {
    /// Labels before relabeling.
    pub discovered: Labels,
    /// Reason.
    pub reason: DropReason,
}

/// Reason why a target is not scraped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
    /// A rule dropped it.
    #[error("dropped by rule {number} of relabel_configs: {rule}")]
    Rule {
        /// Number of the rule, from 1.
        number: usize,
        /// Rule as JSON.
        rule: String,
    },
    /// Its labels exceed a limit of relabeling.
    #[error("{0}")]
    Labels(#[from] RelabelLimitError),
    /// Target is invalid after relabeling.
    #[error("{0}")]
    Invalid(#[from] InvalidTargetError),
    /// Its profile kinds are invalid.
    #[error("{0}")]
    Kinds(#[from] KindError),
    /// No annotation of the pod selects it.
    #[error("no annotation profiles.grafana.com/<kind>.scrape of the pod selects this port")]
    NotAnnotated,
    /// Another target has the same labels.
    #[error("another target of the job has the same labels")]
    Duplicate,
    /// The job has too many targets.
    #[error("the job has more than {MAX_TARGETS_PER_JOB} targets; drop some with relabel_configs")]
    TooMany,
}

/// Error of all targets of a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobTargetsError {
    /// More targets than the job allows.
    #[error(
        "job {job} has {count} targets, target_limit is {limit}; drop some with relabel_configs or raise the limit"
    )]
    TargetLimit {
        /// Name of the job.
        job: String,
        /// Number of targets.
        count: usize,
        /// Limit.
        limit: u64,
    },
}

/// Builds the targets of a job from its groups. `external_labels` are added to the labels of profiles where they
/// are absent.
pub fn build_targets(job: &JobConfig, groups: &[TargetGroup], external_labels: &Labels) -> JobTargets {
    let max_listed = max_listed_dropped(job);
    let built: Vec<GroupTargets> =
        groups.iter().map(|group| GroupTargets::build(job, group, external_labels, max_listed)).collect();
    merge_groups(job, &built)
}

/// Returns the number of dropped targets that are listed.
fn max_listed_dropped(job: &JobConfig) -> usize {
    match usize::try_from(job.keep_dropped_targets) {
        Ok(0) | Err(_) => MAX_LISTED_DROPPED_TARGETS,
        Ok(limit) => limit.min(MAX_LISTED_DROPPED_TARGETS),
    }
}

/// Merges the targets of groups: duplicates and targets beyond the limits are dropped.
fn merge_groups<'a>(job: &JobConfig, groups: impl IntoIterator<Item = &'a GroupTargets>) -> JobTargets {
    let max_listed = max_listed_dropped(job);
    let mut merged = JobTargets::default();
    let mut known = HashSet::new();
    for group in groups {
        for built in &group.targets {
            let reason = if !known.insert(built.identity) {
                DropReason::Duplicate
            } else if merged.targets.len() >= MAX_TARGETS_PER_JOB {
                DropReason::TooMany
            } else {
                merged.targets.push(built.target.clone());
                continue;
            };
            merged.dropped_count += 1;
            if merged.dropped.len() < max_listed {
                merged.dropped.push(DroppedTarget { discovered: built.target.discovered.clone(), reason });
            }
        }
        merged.dropped_count += group.dropped_count;
        let listed = max_listed - merged.dropped.len();
        merged.dropped.extend(group.dropped.iter().take(listed).cloned());
    }
    let count = merged.targets.len();
    if job.target_limit > 0 && count as u64 > job.target_limit {
        merged.targets.clear();
        let (job, limit) = (job.job.name.clone(), job.target_limit);
        merged.error = Some(JobTargetsError::TargetLimit { job, count, limit });
    }
    merged
}
