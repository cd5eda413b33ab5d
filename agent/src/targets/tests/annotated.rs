//! Pods with annotations.

use athanor_profile::Labels;

use super::super::{JobTargets, build_targets};
use super::{group, labels, reasons};
use crate::config::{Environment, JobConfig, default_config};

const PREFIX: &str = "__meta_kubernetes_pod_annotation_profiles_grafana_com_";

fn annotated_job() -> JobConfig {
    let variables = [("KUBERNETES_SERVICE_HOST".to_owned(), "10.0.0.1".to_owned())];
    let config = default_config(&Environment::from_variables(variables)).unwrap();
    config.jobs.into_iter().find(|job| job.reads_annotations).unwrap()
}

/// Returns the target of a container port of a pod with annotations.
fn pod_port(container: &str, port: &str, name: &str, annotations: &[(&str, &str)]) -> Labels {
    let address = if port.is_empty() { "10.1.0.5".to_owned() } else { format!("10.1.0.5:{port}") };
    let mut target = labels(&[
        ("__address__", &address),
        ("__meta_kubernetes_namespace", "shop"),
        ("__meta_kubernetes_pod_name", "cart-1"),
        ("__meta_kubernetes_pod_phase", "Running"),
        ("__meta_kubernetes_pod_container_name", container),
        ("__meta_kubernetes_pod_container_port_number", port),
        ("__meta_kubernetes_pod_container_port_name", name),
        ("__meta_kubernetes_pod_container_init", "false"),
        ("__meta_kubernetes_pod_label_team", "red"),
    ]);
    for (annotation, value) in annotations {
        target.set(&format!("{PREFIX}{annotation}"), value);
    }
    target
}

/// Builds the targets of a pod with an HTTP port and a port for operators.
fn built(annotations: &[(&str, &str)]) -> JobTargets {
    let ports = [("cart", "8080", "http"), ("cart", "6060", "ops")];
    let targets = ports.map(|(container, port, name)| pod_port(container, port, name, annotations));
    build_targets(&annotated_job(), &[group(targets.into())], &Labels::default())
}

/// Returns targets as `scheme://address kind path, …`.
fn shown(targets: &JobTargets) -> Vec<String> {
    let target = |target: &crate::ScrapeTarget| {
        let kinds: Vec<String> =
            target.kinds.iter().map(|kind| format!("{} {}", kind.name, kind.path)).collect();
        format!("{}://{} {}", target.scheme, target.address, kinds.join(", "))
    };
    targets.targets.iter().map(target).collect()
}

#[test]
fn annotations_select_kinds_and_ports() {
    for (annotations, expected) in [
        (
            &[("cpu_scrape", "true"), ("cpu_port_name", "ops")][..],
            &["http://10.1.0.5:6060 process_cpu /debug/pprof/profile"][..],
        ),
        (
            &[
                ("memory_scrape", "true"),
                ("memory_port", "8080"),
                ("memory_path", "/heap"),
                ("memory_scheme", "https"),
            ],
            &["https://10.1.0.5:8080 memory /heap"],
        ),
        (
            &[
                ("cpu_scrape", "true"),
                ("cpu_port", "6060"),
                ("memory_scrape", "true"),
                ("memory_port", "6060"),
            ],
            &["http://10.1.0.5:6060 process_cpu /debug/pprof/profile, memory /debug/pprof/allocs"],
        ),
        (
            &[("cpu_scrape", "true"), ("cpu_port", "7070"), ("block_scrape", "false"), ("mutex_port", "1")],
            &["http://10.1.0.5:7070 process_cpu /debug/pprof/profile"],
        ),
        (
            &[("goroutine_scrape", "true")],
            &[
                "http://10.1.0.5:8080 goroutine /debug/pprof/goroutine",
                "http://10.1.0.5:6060 goroutine /debug/pprof/goroutine",
            ],
        ),
        (
            &[("wall_scrape", "true"), ("wall_port_name", "ops"), ("wall_path", "/debug/wall")],
            &["http://10.1.0.5:6060 wall /debug/wall"],
        ),
        (
            &[
                ("cpu_scrape", "true"),
                ("cpu_port_name", "ops"),
                ("memory_scrape", "true"),
                ("memory_port_name", "http"),
            ],
            &[
                "http://10.1.0.5:8080 memory /debug/pprof/allocs",
                "http://10.1.0.5:6060 process_cpu /debug/pprof/profile",
            ],
        ),
    ] {
        assert_eq!(shown(&built(annotations)), expected, "{annotations:?}");
    }
}

#[test]
fn labels_name_namespace_pod_and_container() {
    let targets = built(&[("cpu_scrape", "true"), ("cpu_port_name", "ops")]);
    assert_eq!(
        targets.targets[0].labels.to_string(),
        r#"{container="cart", instance="10.1.0.5:6060", job="annotated-pods", namespace="shop", pod="cart-1", service_name="shop/cart", team="red"}"#
    );
    assert!(targets.targets[0].is_address_untrusted);
    assert_eq!(
        reasons(&targets),
        ["no annotation profiles.grafana.com/<kind>.scrape of the pod selects this port"]
    );
}

#[test]
fn pods_without_annotations_and_ended_pods_are_dropped() {
    assert_eq!(shown(&built(&[])), [""; 0]);
    let mut ended = pod_port("cart", "6060", "ops", &[("cpu_scrape", "true")]);
    ended.set("__meta_kubernetes_pod_phase", "Succeeded");
    let mut init = pod_port("cart", "6060", "ops", &[("cpu_scrape", "true")]);
    init.set("__meta_kubernetes_pod_container_init", "true");
    let targets = build_targets(&annotated_job(), &[group(vec![ended, init])], &Labels::default());
    let reasons = reasons(&targets);
    assert!(
        reasons[0].starts_with("dropped by rule 1") && reasons[1].starts_with("dropped by rule 2"),
        "{reasons:?}"
    );
}

#[test]
fn pod_without_declared_ports_uses_the_annotated_one() {
    let annotations = [("cpu_scrape", "true"), ("cpu_port", "6060")];
    let target = pod_port("cart", "", "", &annotations);
    let targets = build_targets(&annotated_job(), &[group(vec![target])], &Labels::default());
    assert_eq!(shown(&targets), ["http://10.1.0.5:6060 process_cpu /debug/pprof/profile"]);
    let mut target = pod_port("cart", "", "", &annotations);
    target.set("__address__", "fd00::5");
    let targets = build_targets(&annotated_job(), &[group(vec![target])], &Labels::default());
    assert_eq!(targets.targets[0].address, "[fd00::5]:6060");
}

#[test]
fn invalid_annotations_are_ignored_or_drop_the_target() {
    let annotations =
        [("cpu_scrape", "true"), ("cpu_port", "99999"), ("cpu_scheme", "ftp"), ("cpu_port_name", "ops")];
    assert_eq!(shown(&built(&annotations)), ["http://10.1.0.5:6060 process_cpu /debug/pprof/profile"]);
    let targets = built(&[("wall_scrape", "true"), ("wall_port", "6060")]);
    assert!(reasons(&targets)[1].contains("which has no path"), "{:?}", reasons(&targets));
}

#[test]
fn invalid_kind_or_address_leaves_the_other_kinds() {
    let targets = built(&[
        ("cpu_scrape", "true"),
        ("cpu_port_name", "ops"),
        ("wall_scrape", "true"),
        ("wall_port_name", "ops"),
        ("zzz_scrape", "true"),
        ("zzz_port", "5050"),
        ("memory_scrape", "true"),
        ("memory_port", "7070"),
    ]);
    assert_eq!(
        shown(&targets),
        [
            "http://10.1.0.5:7070 memory /debug/pprof/allocs",
            "http://10.1.0.5:6060 process_cpu /debug/pprof/profile"
        ]
    );
    let without_path = reasons(&targets).iter().filter(|reason| reason.contains("has no path")).count();
    assert_eq!((targets.dropped_count, without_path), (2, 2));
}
