//! Traces of relabeling, as pages and commands show them.

use std::collections::BTreeMap;

use athanor_profile::Labels;

use super::views::{ExplanationView, ExplanationsView, RuleStepView};
use crate::config::JobConfig;
use crate::discovery::{TargetGroup, URL_LABEL, mask_url};
use crate::targets::{TargetExplanation, explain_target};

/// Maximum number of targets that one request explains.
pub const MAX_EXPLAINED_TARGETS: usize = 50;

/// Adds the traces of all targets of the groups that match.
pub fn explain_groups(
    job: &JobConfig,
    groups: &[TargetGroup],
    external_labels: &Labels,
    is_match: impl Fn(&Labels) -> bool,
    view: &mut ExplanationsView,
) {
    for group in groups {
        for target in group.targets.iter().filter(|target| is_match(target)) {
            if view.targets.len() == MAX_EXPLAINED_TARGETS {
                view.is_truncated = true;
                return;
            }
            let explanation = explain_target(job, group, target, external_labels);
            view.targets.push(explanation_view(&job.job.name, explanation));
        }
    }
}

/// Returns whether a discovered target has the text as a label value, such as its address. No text matches all.
pub fn is_match(target: &Labels, text: Option<&str>) -> bool {
    text.is_none_or(|text| target.iter().any(|(_, value)| value == text))
}

/// Returns labels by name. The URL of an HTTP list is masked, because its query may contain a token.
pub fn label_map(labels: &Labels) -> BTreeMap<String, String> {
    let shown = |name: &str, value: &str| if name == URL_LABEL { mask_url(value) } else { value.to_owned() };
    labels.iter().map(|(name, value)| (name.to_owned(), shown(name, value))).collect()
}

fn explanation_view(job: &str, explanation: TargetExplanation) -> ExplanationView {
    let TargetExplanation { discovered, rules, result } = explanation;
    let steps = rules.into_iter().map(|rule| {
        let (removed, set): (Vec<_>, Vec<_>) =
            rule.changes.into_iter().partition(|(_, value)| value.is_empty());
        RuleStepView {
            rule: rule.rule,
            set: set.into_iter().collect(),
            removed: removed.into_iter().map(|(name, _)| name).collect(),
        }
    });
    let mut view = ExplanationView {
        job: job.to_owned(),
        discovered_labels: label_map(&discovered),
        steps: steps.collect(),
        ..ExplanationView::default()
    };
    match result {
        Ok(targets) => {
            view.labels = targets.first().map(|target| label_map(&target.labels));
            view.kinds =
                targets.iter().flat_map(|target| &target.kinds).map(|kind| kind.name.clone()).collect();
        }
        Err(reason) => view.dropped = Some(reason.to_string()),
    }
    view
}
