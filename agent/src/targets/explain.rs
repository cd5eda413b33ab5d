//! Explanation of a target: the labels after each rule, and why it is scraped or not.

use athanor_profile::Labels;
use athanor_profile::labeling::relabel::apply;

use super::DropReason;
use super::group_targets::GroupTargets;
use super::labels::discovered_labels;

use crate::config::JobConfig;
use crate::discovery::TargetGroup;
use crate::scrape_target::ScrapeTarget;

/// Way of a target through the rules of its job.
#[derive(Clone, Debug)]
pub struct TargetExplanation {
    /// Labels before relabeling.
    pub discovered: Labels,
    /// Rules that were applied, in order. The last one may have dropped the target.
    pub rules: Vec<ExplainedRule>,
    /// Targets that result, or the reason why there is none.
    pub result: Result<Vec<ScrapeTarget>, DropReason>,
}

/// Rule with its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedRule {
    /// Number of the rule, from 1.
    pub number: usize,
    /// Rule as JSON.
    pub rule: String,
    /// Labels after the rule. None if it dropped the target.
    pub labels: Option<Labels>,
    /// Labels that the rule set, changed or removed, with their new values. Empty values are removed labels.
    pub changes: Vec<(String, String)>,
}

/// Explains a target of a group, by itself. Duplicates of other targets are not found.
pub fn explain_target(
    job: &JobConfig,
    group: &TargetGroup,
    target: &Labels,
    external_labels: &Labels,
) -> TargetExplanation {
    let discovered = discovered_labels(job, target);
    let rules = explain_rules(job, &discovered);
    let mut built = GroupTargets::build_one(job, group, target, external_labels);
    let result = match built.dropped.pop() {
        Some(dropped) if built.targets.is_empty() => Err(dropped.reason),
        _ => Ok(built.targets.into_iter().map(|built| built.target).collect()),
    };
    TargetExplanation { discovered, rules, result }
}

fn explain_rules(job: &JobConfig, discovered: &Labels) -> Vec<ExplainedRule> {
    let rules = job.rules.rules();
    let mut explained = Vec::with_capacity(rules.len());
    let mut before = discovered.clone();
    for (index, rule) in job.rules.texts().iter().enumerate() {
        // All rules are applied to the labels of discovery: their order of changes matters.
        let Ok(labels) = apply(&rules[..=index], discovered) else { break };
        let changes = labels.as_ref().map(|after| changed_labels(&before, after)).unwrap_or_default();
        explained.push(ExplainedRule {
            number: index + 1,
            rule: rule.clone(),
            labels: labels.clone(),
            changes,
        });
        match labels {
            Some(labels) => before = labels,
            None => break,
        }
    }
    explained
}

fn changed_labels(before: &Labels, after: &Labels) -> Vec<(String, String)> {
    let set = after.iter().filter(|(name, value)| before.get(name) != Some(value));
    let removed = before.iter().filter(|(name, _)| after.get(name).is_none()).map(|(name, _)| (name, ""));
    let mut changes: Vec<(String, String)> =
        set.chain(removed).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    changes.sort();
    changes
}
