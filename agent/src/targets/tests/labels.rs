//! Labels of targets, checks after relabeling, and duplicates.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::super::build_targets;
use super::{built, built_from, group, job, labels, reasons, static_groups};

#[test]
fn labels_of_the_job_are_added_where_they_are_absent() {
    let targets = built(
        "params: {debug: ['0', '1'], x: []}, static_configs: [{targets: ['a:6060'], labels: {team: t, __scheme__: https}}]",
    );
    let target = &targets.targets[0];
    assert_eq!(
        target.discovered.to_string(),
        r#"{__address__="a:6060", __metrics_path__="/metrics", __param_debug="0", __scheme__="https", __scrape_interval__="1m", __scrape_timeout__="10s", job="app", team="t"}"#
    );
    assert_eq!(target.labels.to_string(), r#"{instance="a:6060", job="app", service_name="app", team="t"}"#);
    assert_eq!((target.scheme.as_str(), target.address.as_str()), ("https", "a:6060"));
    let params: Vec<String> =
        target.kinds[0].params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(params, ["debug=0", "debug=1"]);
    assert!(!target.is_address_untrusted);
}

#[test]
fn address_keeps_its_form_and_gets_no_port() {
    for address in ["host", "host:80", "host:443", "[::1]:9090", "10.0.0.1"] {
        let targets = built_from("scheme: https", &[("__address__", address)]);
        let target = &targets.targets[0];
        assert_eq!((target.address.as_str(), target.labels.get("instance")), (address, Some(address)));
        assert!(target.is_address_untrusted);
    }
}

#[test]
fn external_labels_are_added_where_they_are_absent() {
    let job = job("static_configs: [{targets: ['a:1'], labels: {zone: own}}]");
    let external = labels(&[("zone", "z"), ("cluster", "c")]);
    let targets = build_targets(&job, &static_groups(&job), &external);
    let made = &targets.targets[0].labels;
    assert_eq!((made.get("zone"), made.get("cluster")), (Some("own"), Some("c")));
}

#[test]
fn invalid_targets_are_dropped_with_the_reason() {
    for (label, value, reason) in [
        ("__address__", "", "no address: the label __address__ is empty after relabeling"),
        (
            "__address__",
            "http://a",
            "\"http://a\" is not a valid hostname; write host:port into the label __address__",
        ),
        ("__scheme__", "ftp", "the label __scheme__ is \"ftp\"; use http or https"),
        ("__scrape_interval__", "0", "the label __scrape_interval__ is 0; set a duration above 0"),
        (
            "__scrape_timeout__",
            "2m",
            "the label __scrape_timeout__ is \"2m\", __scrape_interval__ is \"1m\"; set a timeout up to the interval",
        ),
        (
            "__scrape_timeout__",
            "x",
            "the label __scrape_timeout__ is invalid: \"x\" is not a duration; write whole numbers with the units y, w, d, h, m, s and ms from large to small, such as 1m30s",
        ),
    ] {
        let targets = built(&format!(
            "relabel_configs: [{{target_label: {label}, replacement: '{value}'}}], static_configs: [{{targets: ['a:1']}}]"
        ));
        assert_eq!((targets.targets.len(), reasons(&targets)), (0, vec![reason.to_owned()]));
    }
}

#[test]
fn labels_change_interval_and_timeout_of_a_target() {
    let targets = built(
        "static_configs: [{targets: ['a:1', 'b:1'], labels: {__scrape_interval__: 30s, __scrape_timeout__: 7s}}, {targets: ['c:1']}]",
    );
    let times: Vec<(Duration, Duration)> =
        targets.targets.iter().map(|target| (target.job.interval, target.job.timeout)).collect();
    let seconds = |interval, timeout| (Duration::from_secs(interval), Duration::from_secs(timeout));
    assert_eq!(times, [seconds(30, 7), seconds(30, 7), seconds(60, 10)]);
    assert!(std::sync::Arc::ptr_eq(&targets.targets[0].job, &targets.targets[1].job));
    let recorded = targets.targets[0].kinds.iter().find_map(|kind| kind.seconds);
    assert_eq!(recorded, Some(29));
}

#[test]
fn every_action_of_relabeling_applies() {
    for (rules, expected) in [
        ("{source_labels: [a], regex: x, action: keep}", Some(r#"a="x", b="Y", instance="h:1", job="app""#)),
        ("{source_labels: [a], regex: y, action: keep}", None),
        ("{source_labels: [a], regex: x, action: drop}", None),
        (
            "{source_labels: [a, b], separator: '-', target_label: c}",
            Some(r#"a="x", b="Y", c="x-Y", instance="h:1", job="app""#),
        ),
        (
            "{source_labels: [a], target_label: c, action: hashmod, modulus: 10}",
            Some(r#"a="x", b="Y", c="6", instance="h:1", job="app""#),
        ),
        ("{regex: __meta_(.+), action: labelmap}", Some(r#"a="x", b="Y", instance="h:1", job="app", m="v""#)),
        ("{regex: a, action: labeldrop}", Some(r#"b="Y", instance="h:1", job="app""#)),
        ("{regex: 'a|__.+', action: labelkeep}", Some(r#"a="x", instance="h:1""#)),
        (
            "{source_labels: [b], target_label: b, action: lowercase}",
            Some(r#"a="x", b="y", instance="h:1", job="app""#),
        ),
        (
            "{source_labels: [a], target_label: a, action: uppercase}",
            Some(r#"a="X", b="Y", instance="h:1", job="app""#),
        ),
        ("{source_labels: [a], target_label: b, action: keepequal}", None),
        ("{source_labels: [a], target_label: a, action: dropequal}", None),
        (
            "{source_labels: [a], target_label: b, action: dropequal}",
            Some(r#"a="x", b="Y", instance="h:1", job="app""#),
        ),
    ] {
        let target = [("__address__", "h:1"), ("__meta_m", "v"), ("a", "x"), ("b", "Y")];
        let targets = built_from(&format!("relabel_configs: [{rules}]"), &target);
        let found = targets.targets.first().map(|target| {
            let mut labels = target.labels.clone();
            labels.set("service_name", "");
            labels.to_string()
        });
        assert_eq!(found, expected.map(|labels| format!("{{{labels}}}")), "{rules}");
    }
}

#[test]
fn dropped_target_names_its_rule() {
    let targets = built_from(
        "relabel_configs: [{target_label: a, replacement: b}, {source_labels: [a], regex: c, action: keep}]",
        &[("__address__", "h:1")],
    );
    assert_eq!(
        reasons(&targets),
        [
            "dropped by rule 2 of relabel_configs: {\"action\":\"keep\",\"regex\":\"c\",\"source_labels\":[\"a\"]}"
        ]
    );
}

#[test]
fn equal_labels_are_one_target() {
    let targets = built(
        "static_configs: [{targets: ['a:1', 'b:1', 'a:1']}, {targets: ['a:1'], labels: {__meta_x: y}}]",
    );
    assert_eq!(targets.targets.len(), 2);
    assert_eq!(targets.dropped_count, 2);
    assert_eq!(reasons(&targets), ["another target of the job has the same labels"; 2]);
    let targets = built("static_configs: [{targets: ['a:1']}, {targets: ['a:1'], labels: {__param_x: y}}]");
    assert_eq!(targets.targets.len(), 2);
}

#[test]
fn limits_of_the_job_hold() {
    let settings = "static_configs: [{targets: ['a:1', 'b:1', 'c:1']}]";
    let targets = built(&format!("target_limit: 2, {settings}"));
    assert_eq!(targets.targets.len(), 0);
    assert_eq!(
        targets.error.unwrap().to_string(),
        "job app has 3 targets, target_limit is 2; drop some with relabel_configs or raise the limit"
    );
    assert!(built(&format!("target_limit: 3, {settings}")).error.is_none());
    let drop_all = "relabel_configs: [{regex: '.*', action: drop}]";
    let targets = built(&format!("keep_dropped_targets: 1, {drop_all}, {settings}"));
    assert_eq!((targets.dropped.len(), targets.dropped_count), (1, 3));
}

#[test]
fn labels_without_bound_are_dropped() {
    let rules = "{source_labels: [a, a], target_label: a},".repeat(30);
    let targets = built_from(&format!("relabel_configs: [{rules}]"), &[("__address__", "h:1"), ("a", "x")]);
    assert!(reasons(&targets)[0].contains("the limits are"), "{:?}", reasons(&targets));
}

#[test]
fn shards_of_hashmod_are_disjoint_and_complete() {
    let addresses: Vec<String> = (0..100).map(|n| format!("'host-{n}:6060'")).collect();
    let addresses = addresses.join(",");
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for shard in 0..4 {
        let targets = built(&format!(
            "relabel_configs: [{{source_labels: [__address__], modulus: 4, target_label: __tmp_shard, action: hashmod}}, {{source_labels: [__tmp_shard], regex: {shard}, action: keep}}], static_configs: [{{targets: [{addresses}]}}]"
        ));
        assert!((10..40).contains(&targets.targets.len()), "{}", targets.targets.len());
        total += targets.targets.len();
        seen.extend(targets.targets.into_iter().map(|target| target.address));
    }
    assert_eq!((total, seen.len()), (100, 100));
}

proptest! {
    #[test]
    fn each_target_is_scraped_or_dropped(
        addresses in prop::collection::vec("[a-c:/]{0,4}", 0..20),
        regex in "[a-c.*|]{1,5}",
    ) {
        let settings = format!("relabel_configs: [{{source_labels: [__address__], regex: '{regex}', action: keep}}]");
        let text = format!("scrape_configs: [{{job_name: app, {settings}}}]");
        let path = std::path::Path::new("agent.yml");
        if let Ok(mut config) = crate::config::parse(&text, path, &crate::config::Environment::default()) {
            let job = config.jobs.remove(0);
            let targets = addresses.iter().map(|address| labels(&[("__address__", address)])).collect();
            let built = build_targets(&job, &[group(targets)], &labels(&[]));
            prop_assert_eq!(built.targets.len() + built.dropped_count, addresses.len());
            let unique: BTreeSet<&str> = built.targets.iter().map(|target| target.address.as_str()).collect();
            prop_assert_eq!(unique.len(), built.targets.len());
        }
    }
}
