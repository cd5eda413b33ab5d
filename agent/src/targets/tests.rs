//! Tests of targets: labels, relabeling, duplicates, kinds, annotations, explanations.

mod annotated;
mod explained;
mod kinds;
mod labels;
mod registered;

use std::path::Path;

use athanor_profile::Labels;

use super::{JobTargets, build_targets};
use crate::config::{Environment, JobConfig, parse};
use crate::discovery::{DiscoverySettings, TargetGroup};

/// Parses a configuration with one job, from the settings of the job.
fn job(settings: &str) -> JobConfig {
    let text = format!("scrape_configs: [{{job_name: app, {settings}}}]");
    let config = parse(&text, Path::new("agent.yml"), &Environment::default());
    config.unwrap_or_else(|errors| panic!("{errors}")).jobs.remove(0)
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

fn group(targets: Vec<Labels>) -> TargetGroup {
    TargetGroup { source: "group".to_owned(), targets, is_address_untrusted: true }
}

fn static_groups(job: &JobConfig) -> Vec<TargetGroup> {
    let groups = job.discovery.iter().flat_map(|settings| match settings {
        DiscoverySettings::Static(groups) => groups.clone(),
        _ => Vec::new(),
    });
    groups.collect()
}

/// Builds the targets of the static groups of a job.
fn built(settings: &str) -> JobTargets {
    let job = job(settings);
    build_targets(&job, &static_groups(&job), &Labels::default())
}

/// Builds the targets of a job from one discovered target.
fn built_from(settings: &str, target: &[(&str, &str)]) -> JobTargets {
    build_targets(&job(settings), &[group(vec![labels(target)])], &Labels::default())
}

/// Returns the reasons of all dropped targets.
fn reasons(targets: &JobTargets) -> Vec<String> {
    targets.dropped.iter().map(|dropped| dropped.reason.to_string()).collect()
}
