//! Targets of one group.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_profile::Labels;
use athanor_profile::labeling::relabel::apply;

use super::annotations::{AnnotatedVariant, annotated_variants};
use super::labels::{META_LABEL_PREFIX, TargetLabels, discovered_labels, target_labels};
use super::profile_kinds::profile_kinds;
use super::service_name::infer_service_name;
use super::{DropReason, DroppedTarget};
use crate::config::JobConfig;
use crate::discovery::TargetGroup;
use crate::scrape_target::{ScrapeJob, ScrapeTarget};

/// Targets that a group yields.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupTargets {
    pub(super) targets: Vec<BuiltTarget>,
    /// Targets that are not scraped, up to a limit.
    pub(super) dropped: Vec<DroppedTarget>,
    /// Number of targets that are not scraped.
    pub(super) dropped_count: usize,
}

/// Target with its identity in the job.
#[derive(Clone, Debug)]
pub(super) struct BuiltTarget {
    /// Hash of all labels after relabeling, without those of discovery.
    pub(super) identity: u128,
    pub(super) target: ScrapeTarget,
}

impl GroupTargets {
    /// Builds the targets of a group.
    pub(super) fn build(
        job: &JobConfig,
        group: &TargetGroup,
        external_labels: &Labels,
        max_listed: usize,
    ) -> Self {
        let mut builder = GroupBuilder::new(job, group, external_labels, max_listed);
        group.targets.iter().for_each(|target| builder.add(target));
        builder.result
    }

    /// Builds what a single target of a group yields.
    pub(super) fn build_one(
        job: &JobConfig,
        group: &TargetGroup,
        target: &Labels,
        external_labels: &Labels,
    ) -> Self {
        let mut builder = GroupBuilder::new(job, group, external_labels, 1);
        builder.add(target);
        builder.result
    }
}

struct GroupBuilder<'a> {
    job: &'a JobConfig,
    group: &'a TargetGroup,
    external_labels: &'a Labels,
    /// Jobs with the interval and timeout of a label.
    jobs: BTreeMap<(Duration, Duration), Arc<ScrapeJob>>,
    max_listed: usize,
    result: GroupTargets,
}

impl<'a> GroupBuilder<'a> {
    fn new(
        job: &'a JobConfig,
        group: &'a TargetGroup,
        external_labels: &'a Labels,
        max_listed: usize,
    ) -> Self {
        let result = GroupTargets::default();
        GroupBuilder { job, group, external_labels, jobs: BTreeMap::new(), max_listed, result }
    }

    /// Adds the target of a group, or the reason why it is not scraped.
    fn add(&mut self, target: &Labels) {
        let discovered = discovered_labels(self.job, target);
        if self.job.reads_annotations {
            self.add_annotated(discovered);
            return;
        }
        let built = relabel(self.job, &discovered).and_then(|labels| self.add_target(&discovered, &labels));
        if let Err(reason) = built {
            self.drop_target(discovered, reason);
        }
    }

    /// Adds a target for each address that annotations of the pod name. An invalid address or kind is dropped by
    /// itself.
    fn add_annotated(&mut self, discovered: Labels) {
        let variants = annotated_variants(self.group, &discovered);
        if variants.is_empty() {
            self.drop_target(discovered, DropReason::NotAnnotated);
            return;
        }
        for variant in variants {
            if let Err(reason) = self.add_variant(&discovered, &variant) {
                self.drop_target(discovered.clone(), reason);
            }
        }
    }

    fn add_variant(&mut self, discovered: &Labels, variant: &AnnotatedVariant) -> Result<(), DropReason> {
        let labels = relabel(self.job, &variant.labels)?;
        let mut target = self.scrape_target(discovered, &labels)?;
        for kind in variant.profile_kinds(self.job, &labels) {
            match kind {
                Ok(kind) => target.kinds.push(kind),
                Err(error) => self.drop_target(discovered.clone(), error.into()),
            }
        }
        if !target.kinds.is_empty() {
            self.push(&labels, target);
        }
        Ok(())
    }

    fn add_target(&mut self, discovered: &Labels, relabeled: &Labels) -> Result<(), DropReason> {
        let mut target = self.scrape_target(discovered, relabeled)?;
        target.kinds = profile_kinds(self.job, relabeled, target.job.interval)?;
        self.push(relabeled, target);
        Ok(())
    }

    /// Returns a target without kinds.
    fn scrape_target(&mut self, discovered: &Labels, relabeled: &Labels) -> Result<ScrapeTarget, DropReason> {
        let TargetLabels { scheme, address, interval, timeout, mut labels } = target_labels(relabeled)?;
        if labels.get("service_name").is_none() {
            labels.set("service_name", &infer_service_name(relabeled, &self.job.job.name));
        }
        for (name, value) in self.external_labels.iter() {
            if labels.get(name).is_none() {
                labels.set(name, value);
            }
        }
        Ok(ScrapeTarget {
            job: self.job_with(interval, timeout),
            scheme,
            address,
            kinds: Vec::new(),
            labels,
            discovered: discovered.clone(),
            is_address_untrusted: self.group.is_address_untrusted,
        })
    }

    /// Returns the job with an interval and timeout, which labels may change.
    fn job_with(&mut self, interval: Duration, timeout: Duration) -> Arc<ScrapeJob> {
        let job = &self.job.job;
        if job.interval == interval && job.timeout == timeout {
            return job.clone();
        }
        let changed = || Arc::new(ScrapeJob { interval, timeout, ..ScrapeJob::clone(job) });
        self.jobs.entry((interval, timeout)).or_insert_with(changed).clone()
    }

    fn push(&mut self, relabeled: &Labels, target: ScrapeTarget) {
        let identity = relabeled.iter().filter(|(name, _)| !name.starts_with(META_LABEL_PREFIX));
        let identity = identity.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.result.targets.push(BuiltTarget { identity: Labels::new(identity).hash(), target });
    }

    fn drop_target(&mut self, discovered: Labels, reason: DropReason) {
        self.result.dropped_count += 1;
        if self.result.dropped.len() < self.max_listed {
            self.result.dropped.push(DroppedTarget { discovered, reason });
        }
    }
}

/// Applies the rules of a job.
fn relabel(job: &JobConfig, discovered: &Labels) -> Result<Labels, DropReason> {
    match apply(job.rules.rules(), discovered)? {
        Some(labels) => Ok(labels),
        None => Err(drop_reason(job, discovered)),
    }
}

/// Finds the rule that drops a target.
fn drop_reason(job: &JobConfig, discovered: &Labels) -> DropReason {
    let rules = job.rules.rules();
    let drops = |&end: &usize| matches!(apply(&rules[..end], discovered), Ok(None));
    let number = (1..=rules.len()).find(drops).unwrap_or(rules.len());
    let rule = job.rules.texts().get(number.wrapping_sub(1)).cloned().unwrap_or_default();
    DropReason::Rule { number, rule }
}
