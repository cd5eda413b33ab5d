//! Comparison of the targets of a job.

use std::collections::{BTreeMap, BTreeSet};

use athanor_agent::config::{JobConfig, format_prometheus_duration};
use athanor_agent::discovery::TargetGroup;
use athanor_agent::scrape_target::ScrapeTarget;
use athanor_agent::targets::{DropReason, build_targets};
use athanor_profile::Labels;
use serde_json::{Value, json};

use crate::cases::RunningCase;

const SERVICE_NAME_LABEL: &str = "service_name";
const DEFAULT_SCHEME: &str = "http";

/// Returns the differences between the targets of a job and the expected ones.
pub(crate) fn target_differences(
    job: &JobConfig,
    groups: &[TargetGroup],
    expected: &Value,
    running: &RunningCase,
) -> Vec<String> {
    let built = build_targets(job, groups, &Labels::default());
    let mut differences = Vec::new();
    if let Some(error) = &built.error {
        differences.push(error.to_string());
    }
    let sets_service_name =
        list(&expected["targets"]).any(|target| !target["labels"][SERVICE_NAME_LABEL].is_null());
    let targets = built.targets.iter().map(|target| describe(target, running, sets_service_name));
    let wanted = list(&expected["targets"]).map(normalize);
    differences.extend(set_differences("target", targets, wanted));
    let discovered = |is_counted: fn(&DropReason) -> bool| {
        let counted = built.dropped.iter().filter(move |dropped| is_counted(&dropped.reason));
        counted.map(|dropped| label_map(&dropped.discovered, running))
    };
    let dropped = discovered(|reason| matches!(reason, DropReason::Rule { .. }));
    differences.extend(set_differences("dropped target", dropped, list(&expected["dropped"])));
    let invalid = discovered(|reason| matches!(reason, DropReason::Invalid(_) | DropReason::Kinds(_)));
    let wanted = list(&expected["invalid"]).map(|target| target["discovered"].clone());
    differences.extend(set_differences("invalid target", invalid, wanted));
    differences
}

fn list(values: &Value) -> impl Iterator<Item = Value> {
    values.as_array().cloned().unwrap_or_default().into_iter()
}

/// Adds what the oracle leaves out: empty parameters, and the scheme where it is empty. Schemes are in lower case.
fn normalize(mut target: Value) -> Value {
    if target["params"].is_null() {
        target["params"] = json!({});
    }
    let scheme = target["scheme"].as_str().unwrap().to_lowercase();
    target["scheme"] = if scheme.is_empty() { DEFAULT_SCHEME.into() } else { scheme.into() };
    target
}

/// Returns a target in the form of the oracle.
fn describe(target: &ScrapeTarget, running: &RunningCase, has_service_name: bool) -> Value {
    let mut labels = label_map(&target.labels, running);
    if !has_service_name {
        labels.as_object_mut().unwrap().remove(SERVICE_NAME_LABEL);
    }
    let mut params: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in &target.kinds[0].params {
        params.entry(name).or_default().push(value);
    }
    json!({
        "discovered": label_map(&target.discovered, running),
        "labels": labels,
        "scheme": target.scheme,
        "address": running.with_placeholders(&target.address),
        "params": params,
        "interval": format_prometheus_duration(target.job.interval),
        "timeout": format_prometheus_duration(target.job.timeout),
    })
}

fn label_map(labels: &Labels, running: &RunningCase) -> Value {
    labels.iter().map(|(name, value)| (name.to_owned(), running.with_placeholders(value))).collect()
}

/// Describes the items that only one of two sets has, and the sets' sizes.
fn set_differences(
    what: &str,
    items: impl Iterator<Item = Value>,
    expected: impl Iterator<Item = Value>,
) -> Vec<String> {
    let mut items: Vec<String> = items.map(|item| item.to_string()).collect();
    let mut expected: Vec<String> = expected.map(|item| item.to_string()).collect();
    items.sort_unstable();
    expected.sort_unstable();
    if items == expected {
        return Vec::new();
    }
    let counts = format!("{} × {what}, expected {}", items.len(), expected.len());
    let known: BTreeSet<String> = items.iter().cloned().collect();
    let wanted: BTreeSet<String> = expected.into_iter().collect();
    let surplus = known.difference(&wanted).map(|item| format!("unexpected {what} {item}"));
    let missing = wanted.difference(&known).map(|item| format!("missing {what} {item}"));
    [counts].into_iter().chain(surplus).chain(missing).collect()
}
