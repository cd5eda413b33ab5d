//! Configuration, discovery and relabeling of the agent against the verdicts of Prometheus's own packages.
//!
//! `just agent-oracle` writes the verdicts. The agent deliberately differs in these points:
//!
//! - It refuses mechanisms of discovery other than its own, such as consul. The error names those that replace
//!   them.
//! - It adds `service_name` where no rule sets it, since each profile belongs to a service.
//! - Keys that concern samples of metrics have no effect. [`settings`] lists them. Their values are not checked.
//! - It refuses a scheme other than HTTP's in the configuration. Prometheus accepts it, and each scrape fails.
//! - It sends requests over HTTP if a scheme is empty, and it knows schemes in upper case.
//! - A section `scrape_configs` without content counts as absent, so that the agent scrapes itself.

#![allow(clippy::unwrap_used)]

#[path = "kubernetes/cluster.rs"]
mod cluster;
#[path = "kubernetes/stand_in.rs"]
#[expect(dead_code, reason = "the oracle injects no faults")]
mod stand_in;

#[path = "discovery_oracle/cases.rs"]
mod cases;
#[path = "discovery_oracle/discovery.rs"]
mod discovery;
#[path = "discovery_oracle/settings.rs"]
mod settings;
#[path = "discovery_oracle/targets.rs"]
mod targets;

use std::fmt::Write;

use athanor_agent::config::{self, AgentConfig, Environment, JobConfig, format_prometheus_duration};
use serde_json::{Value, json};

use cases::{OracleCase, RunningCase, read_cases};
use discovery::discover;
use settings::setting_differences;
use targets::target_differences;

/// Mechanisms that the agent lacks on purpose.
const REFUSED_MECHANISMS: [&str; 1] = ["consul"];
/// Mechanisms that the oracle does not run, since their servers are not on loopback.
const UNRUN_MECHANISMS: [&str; 1] = ["dns"];
/// Cases that the agent accepts: a wrong value has no effect, since its key concerns samples of metrics only.
const ACCEPTED_CASES: [&str; 2] = ["fixed-259", "fixed-288"];
/// Cases that the agent refuses: their scheme is not one of HTTP.
const REFUSED_CASES: [&str; 1] = ["fixed-256"];
/// Name of the job by which the agent scrapes itself.
const SELF_JOB_NAME: &str = "athanor-agent";
/// Number of configurations that the committed verdicts contain at least.
const MIN_GENERATED_CASES: usize = 200;
const MIN_REAL_CASES: usize = 20;

#[tokio::test]
async fn every_configuration_yields_the_targets_of_prometheus() {
    let cases = read_cases();
    let generated = cases.iter().filter(|case| case.is_generated).count();
    assert!(generated >= MIN_GENERATED_CASES, "{generated} generated cases");
    assert!(cases.len() - generated >= MIN_REAL_CASES, "{} real cases", cases.len() - generated);
    let mut report = String::new();
    for case in &cases {
        let running = RunningCase::start(case).await;
        for difference in compare_case(case, &running).await {
            writeln!(report, "{}: {difference}", case.name).unwrap();
        }
    }
    assert!(report.is_empty(), "the agent differs from Prometheus:\n{report}");
}

/// Returns the differences between the agent and the verdict on a case.
async fn compare_case(case: &OracleCase, running: &RunningCase) -> Vec<String> {
    let parsed = config::parse(&running.config_text, &running.config_file, &Environment::default());
    let jobs = case.expected["jobs"].as_array().cloned().unwrap_or_default();
    let refused_mechanism = mechanisms(&jobs).find(|name| REFUSED_MECHANISMS.contains(&name.as_str()));
    match (parsed, case.expected.get("refused")) {
        (Err(_), Some(_)) => Vec::new(),
        (Ok(_), Some(_)) if ACCEPTED_CASES.contains(&case.name.as_str()) => Vec::new(),
        (Err(_), None) if REFUSED_CASES.contains(&case.name.as_str()) => Vec::new(),
        (Ok(_), Some(reason)) => vec![format!("is accepted, Prometheus refuses it: {reason}")],
        (Err(error), None) => match refused_mechanism {
            Some(name) => {
                let text = error.to_string();
                let names_both = text.contains("file_sd_configs") && text.contains("http_sd_configs");
                let names_mechanism = text.contains(&name);
                if names_both && names_mechanism {
                    Vec::new()
                } else {
                    vec![format!("error on {name}: {text}")]
                }
            }
            None => vec![format!("is refused, Prometheus accepts it: {error}")],
        },
        (Ok(_), None) if refused_mechanism.is_some() => {
            vec!["an unsupported mechanism is accepted".to_owned()]
        }
        (Ok(config), None) => compare_jobs(&config, &jobs, running).await,
    }
}

fn mechanisms(jobs: &[Value]) -> impl Iterator<Item = String> {
    let lists = jobs.iter().filter_map(|job| job["discovery"].as_array());
    lists.flatten().filter_map(|name| name.as_str().map(str::to_owned))
}

async fn compare_jobs(config: &AgentConfig, expected: &[Value], running: &RunningCase) -> Vec<String> {
    let mut differences = Vec::new();
    let names: Vec<&str> = expected.iter().filter_map(|job| job["name"].as_str()).collect();
    let is_compared = |job: &&JobConfig| job.job.name != SELF_JOB_NAME || names.contains(&SELF_JOB_NAME);
    let jobs: Vec<&JobConfig> = config.jobs.iter().filter(is_compared).collect();
    let mut job_names: Vec<&str> = jobs.iter().map(|job| job.job.name.as_str()).collect();
    job_names.sort_unstable();
    if names != job_names {
        return vec![format!("jobs {job_names:?}, expected {names:?}")];
    }
    for expected in expected {
        let job = jobs.iter().find(|job| expected["name"] == *job.job.name).unwrap();
        let schedule = json!([
            format_prometheus_duration(job.job.interval),
            format_prometheus_duration(job.job.timeout)
        ]);
        if schedule != json!([expected["interval"], expected["timeout"]]) {
            differences.push(format!("{}: interval and timeout {schedule}", job.job.name));
        }
        if let Some(settings) = expected["settings"].as_object() {
            differences.extend(setting_differences(job, settings, running));
        } else if !mechanisms(std::slice::from_ref(expected))
            .any(|name| UNRUN_MECHANISMS.contains(&name.as_str()))
        {
            let groups = discover(job).await;
            differences.extend(target_differences(job, &groups, expected, running));
        }
    }
    differences
}
