//! Reference page of the agent's metrics, generated from the metric families of all its parts;
//! `ATHANOR_WRITE_REFERENCE=1` writes it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use athanor_agent::discovery::DISCOVERY_METRICS;
use athanor_agent::operator::metrics::{BUILD_METRICS, PROCESS_METRICS, RELOAD_METRICS};
use athanor_agent::receive::RECEIVE_METRICS;
use athanor_agent::sampling::SAMPLER_METRICS;
use athanor_agent::scrape::SCRAPE_METRICS;
use athanor_agent::spool::SPOOL_METRICS;
use athanor_agent::wall_clock::WALL_CLOCK_METRICS;
use athanor_chassis::observability::metric_family::{MetricDescription, describe_metrics};
use athanor_chassis::observability::metrics_page::describe_as_markdown;

/// Page below the root of the repository.
const PAGE_PATH: &str = "docs/reference/agent-metrics.md";
/// Variable that requests to write the page instead of comparing it.
const WRITE_VARIABLE: &str = "ATHANOR_WRITE_REFERENCE";
/// Beginning of the page.
const INTRODUCTION: &str = "# Metrics of the agent

This page lists all metrics of `/metrics` of `athanor-agent` with their types and labels.
Read it to find a metric; [agent.md](../agent.md#operate) names those to watch.

The page is generated from the metrics of the crate `agent`. After a change of these, run
`ATHANOR_WRITE_REFERENCE=1 cargo test --package athanor-agent --test reference_page`.
";

fn sections() -> Vec<(&'static str, Vec<MetricDescription>)> {
    let mut process = describe_metrics(BUILD_METRICS);
    process.extend(describe_metrics(PROCESS_METRICS));
    process.extend(describe_metrics(WALL_CLOCK_METRICS));
    vec![
        ("Sampler", describe_metrics(SAMPLER_METRICS)),
        ("Scrapes", describe_metrics(SCRAPE_METRICS)),
        ("Discovery", describe_metrics(DISCOVERY_METRICS)),
        ("Receiver", describe_metrics(RECEIVE_METRICS)),
        ("Spool and delivery", describe_metrics(SPOOL_METRICS)),
        ("Configuration", describe_metrics(RELOAD_METRICS)),
        ("Process", process),
    ]
}

fn render_page() -> String {
    INTRODUCTION.to_owned() + &describe_as_markdown(&sections())
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a switch of the test, not a setting")]
fn reference_page_matches_the_metrics() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(PAGE_PATH);
    let generated = render_page();
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = committed.lines().zip(generated.lines()).find(|(old, new)| old != new);
    assert!(
        committed == generated,
        "{PAGE_PATH} is stale, first difference: {difference:?}; run \
         {WRITE_VARIABLE}=1 cargo test --package athanor-agent --test reference_page"
    );
}

#[test]
fn metrics_of_reference_page_follow_the_conventions() {
    let mut names = BTreeSet::new();
    let mut texts = BTreeSet::new();
    for MetricDescription { name, help, kind, .. } in sections().into_iter().flat_map(|(_, metrics)| metrics)
    {
        assert!(names.insert(name), "{name} is declared twice");
        assert!(name.starts_with("athanor_agent_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind.as_str() == "counter", "{name} is a {}", kind.as_str());
        assert!(texts.insert(help), "{name} shares its help text with another metric");
        assert!(!help.contains(['\n', '|']) && !help.ends_with('.'), "{name}: {help:?}");
    }
}
