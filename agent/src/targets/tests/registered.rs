//! Registry of targets: updates of discovery, and reloads.

use athanor_profile::Labels;

use super::super::TargetRegistry;
use super::{job, labels};
use crate::config::JobConfig;
use crate::discovery::TargetGroup;

const TWO_MECHANISMS: &str = "static_configs: [{targets: ['s:1']}], file_sd_configs: [{files: [a.json]}]";

fn source(name: &str, addresses: &[&str]) -> TargetGroup {
    let targets = addresses.iter().map(|address| labels(&[("__address__", address)])).collect();
    TargetGroup { source: name.to_owned(), targets, is_address_untrusted: false }
}

fn published(registry: &TargetRegistry) -> Vec<String> {
    registry.subscribe().borrow().iter().map(|target| target.address.clone()).collect()
}

fn renamed(settings: &str, name: &str) -> JobConfig {
    let mut job = job(settings);
    let inner = crate::ScrapeJob { name: name.to_owned(), ..(*job.job).clone() };
    job.job = std::sync::Arc::new(inner);
    job
}

#[test]
fn updates_replace_and_remove_groups_of_their_source() {
    let registry = TargetRegistry::default();
    assert_eq!(registry.set_jobs(&[job(TWO_MECHANISMS)], &Labels::default()), ["app"]);
    assert!(registry.jobs()[0].is_pending);
    assert_eq!(published(&registry), [""; 0]);
    registry.update("app", 1, &[source("a", &["a:1", "a:2"]), source("b", &["b:1", "s:1"])]);
    assert_eq!(published(&registry), ["s:1", "a:1", "a:2", "b:1"]);
    assert_eq!(registry.jobs()[0].targets.dropped_count, 1);
    registry.update("app", 1, &[source("a", &["a:3"]), source("b", &[])]);
    assert_eq!(published(&registry), ["s:1", "a:3"]);
    registry.update("app", 2, &[source("x", &["x:1"])]);
    registry.update("other", 0, &[source("x", &["x:1"])]);
    assert_eq!(published(&registry), ["s:1", "a:3"]);
}

#[test]
fn static_targets_need_no_update() {
    let registry = TargetRegistry::default();
    registry.set_jobs(&[job("static_configs: [{targets: ['s:1', 's:2']}]")], &Labels::default());
    assert_eq!(published(&registry), ["s:1", "s:2"]);
    registry.set_jobs(&[job("static_configs: [{targets: ['s:2']}]")], &Labels::default());
    assert_eq!(published(&registry), ["s:2"]);
    registry.set_jobs(&[], &Labels::default());
    assert_eq!(published(&registry), [""; 0]);
}

#[test]
fn reload_keeps_unchanged_jobs_and_old_targets_of_changed_ones() {
    let registry = TargetRegistry::default();
    let settings = "file_sd_configs: [{files: [a.json]}]";
    let (same, changed, gone) = (job(settings), renamed(settings, "changed"), renamed(settings, "gone"));
    registry.set_jobs(&[same.clone(), changed.clone(), gone], &Labels::default());
    for name in ["app", "changed", "gone"] {
        registry.update(name, 0, &[source("a", &[&format!("{name}:1")])]);
    }
    assert_eq!(published(&registry), ["app:1", "changed:1", "gone:1"]);
    let new = renamed("scrape_interval: 2m, file_sd_configs: [{files: [a.json]}]", "changed");
    assert_eq!(registry.set_jobs(&[new, same.clone()], &Labels::default()), ["changed"]);
    assert_eq!(published(&registry), ["changed:1", "app:1"]);
    assert!(registry.jobs()[0].is_pending && !registry.jobs()[1].is_pending);
    registry.update("changed", 0, &[source("a", &["new:1"])]);
    let targets = registry.subscribe().borrow().clone();
    let interval = |at: usize| (targets[at].address.as_str(), targets[at].job.interval.as_secs());
    assert_eq!((interval(0), interval(1)), (("new:1", 120), ("app:1", 60)));
    assert_eq!(registry.set_jobs(&[same], &labels(&[("cluster", "c")])), ["app"]);
}

#[test]
fn listed_dropped_targets_are_bounded_over_groups() {
    let registry = TargetRegistry::default();
    let settings = "file_sd_configs: [{files: [a.json]}], relabel_configs: [{regex: '.*', action: drop}]";
    registry.set_jobs(&[job(settings)], &Labels::default());
    let groups: Vec<TargetGroup> = (0..1500).map(|n| source(&n.to_string(), &["a:1"])).collect();
    registry.update("app", 0, &groups);
    let targets = &registry.jobs()[0].targets;
    assert_eq!((targets.dropped.len(), targets.dropped_count), (1000, 1500));
}
