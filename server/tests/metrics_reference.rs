//! Reference page of all metrics. It is generated from the metric families of all crates;
//! `ATHANOR_WRITE_REFERENCE=1` writes it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use athanor_chassis::observability::metrics_page::describe_as_markdown;
use athanor_server::{MetricDescription, describe_all_metrics};

/// Page below the root of the repository.
const PAGE_PATH: &str = "docs/reference/metrics.md";
/// Variable that requests to write the page instead of comparing it.
const WRITE_VARIABLE: &str = "ATHANOR_WRITE_REFERENCE";
/// Metrics of the process with the names that all client libraries of Prometheus use.
const STANDARD_NAMES: &[&str] = &[
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_threads",
    "process_virtual_memory_bytes",
];
/// Beginning of the page.
const INTRODUCTION: &str = "# Metrics reference

This page lists all metrics of `/metrics` with their types and labels.
Read it to find a metric; the pages of [operate](../operate/configuration.md#state-of-the-process) name those to watch.

The page is generated from the metrics of all crates. After a change of these, run
`ATHANOR_WRITE_REFERENCE=1 cargo test --package athanor-server --test metrics_reference`.

A node has the metrics of its roles. The label `tenant` is missing if the request may not see the names of tenants.
";

fn render_page() -> String {
    INTRODUCTION.to_owned() + &describe_as_markdown(&describe_all_metrics())
}

fn all_metrics() -> Vec<MetricDescription> {
    describe_all_metrics().into_iter().flat_map(|(_, metrics)| metrics).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a switch of the test, not a setting")]
fn reference_page_matches_the_metrics() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(PAGE_PATH);
    let generated = render_page();
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let difference = committed.lines().zip(generated.lines()).find(|(old, new)| old != new);
    assert!(
        committed == generated,
        "{PAGE_PATH} is stale, first difference: {difference:?}; run \
         {WRITE_VARIABLE}=1 cargo test --package athanor-server --test metrics_reference"
    );
}

#[test]
fn metric_names_follow_the_conventions() {
    let mut names = BTreeSet::new();
    for MetricDescription { name, kind, labels, .. } in all_metrics() {
        assert!(names.insert(name), "{name} is declared twice");
        assert_eq!(name.ends_with("_total"), kind.as_str() == "counter", "{name} is a {}", kind.as_str());
        let is_word = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        let has_prefix = name.strip_prefix("athanor_").is_some_and(|rest| !rest.is_empty());
        assert!(is_word(name) && (has_prefix || STANDARD_NAMES.contains(&name)), "{name}");
        let reserved = ["le", "quantile"];
        assert!(labels.iter().all(|label| is_word(label) && !reserved.contains(label)), "{name}: {labels:?}");
    }
}

#[test]
fn help_texts_stand_alone() {
    let mut texts = BTreeSet::new();
    for MetricDescription { name, help, .. } in all_metrics() {
        assert!(texts.insert(help), "{name} shares its help text with another metric");
        assert!(help.split(' ').count() >= 4, "{name}: {help:?} is too short");
        assert!(help.starts_with(|first: char| first.is_ascii_uppercase()), "{name}: {help:?}");
        let is_one_line = !help.contains(['\n', '|']) && !help.ends_with(['.', ' ']);
        assert!(is_one_line, "{name}: {help:?}");
        let refers = ["Their ", "Those ", "These ", "It ", "They "].iter().any(|word| help.starts_with(word));
        assert!(!refers, "{name}: {help:?} refers to another metric");
    }
}
