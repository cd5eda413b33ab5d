//! Profile kinds and service names.

use super::super::service_name::infer_service_name;
use super::{built, built_from, labels, reasons};
use crate::scrape_target::ProfileKind;

/// Returns a kind as `name:metric path?params seconds cumulative`.
fn shown(kind: &ProfileKind) -> String {
    let params: Vec<String> = kind.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let seconds = kind.seconds.map(|seconds| format!(" {seconds}s")).unwrap_or_default();
    let cumulative = if kind.is_cumulative { " cumulative" } else { "" };
    format!("{}:{} {}?{}{seconds}{cumulative}", kind.name, kind.metric_name, kind.path, params.join("&"))
}

fn kinds_of(settings: &str, target: &[(&str, &str)]) -> Vec<String> {
    let targets = built_from(settings, target);
    assert_eq!(targets.targets.len(), 1, "{:?}", reasons(&targets));
    targets.targets[0].kinds.iter().map(shown).collect()
}

#[test]
fn default_kinds_are_five() {
    assert_eq!(
        kinds_of("scrape_interval: 15s", &[("__address__", "a:1")]),
        [
            "block:block /debug/pprof/block? cumulative",
            "goroutine:goroutine /debug/pprof/goroutine?",
            "memory:memory /debug/pprof/allocs? cumulative",
            "mutex:mutex /debug/pprof/mutex? cumulative",
            "process_cpu:process_cpu /debug/pprof/profile? 14s",
        ]
    );
}

#[test]
fn kinds_have_their_paths_and_parameters() {
    let off = ["memory", "goroutine", "block", "process_cpu"]
        .map(|kind| format!("{kind}: {{enabled: false}}"))
        .join(", ");
    let settings = format!(
        "scrape_interval: 10s, params: {{gc: ['1'], seconds: ['99'], debug: ['0']}}, profiling_config: {{path_prefix: /app/, pprof_config: {{{off}, mutex: {{seconds: 5}}, fgprof: {{}}, godeltaprof_memory: {{}}, wall: {{path: wall, params: {{debug: ['2']}}}}}}}}"
    );
    assert_eq!(
        kinds_of(&settings, &[("__address__", "a:1"), ("__param_gc", "2")]),
        [
            "fgprof:fgprof /app/debug/fgprof?debug=0&gc=2 9s",
            "godeltaprof_memory:memory /app/debug/pprof/delta_heap?debug=0&gc=2",
            "mutex:mutex /app/debug/pprof/mutex?debug=0&gc=2 5s",
            "wall:wall /app/wall?debug=2&gc=2",
        ]
    );
}

#[test]
fn labels_choose_kind_path_and_prefix() {
    let address = ("__address__", "a:1");
    assert_eq!(
        kinds_of(
            "",
            &[
                address,
                ("__name__", "memory"),
                ("__profile_path__", "/heap"),
                ("__profile_path_prefix__", "/x")
            ]
        ),
        ["memory:memory /x/heap? cumulative"]
    );
    assert_eq!(
        kinds_of("", &[address, ("__name__", "wall"), ("__profile_path__", "/wall")]),
        ["wall:wall /wall?"]
    );
    assert_eq!(kinds_of("", &[address, ("__name__", "fgprof")]), ["fgprof:fgprof /debug/fgprof? 59s"]);
    let targets = built_from("", &[address, ("__profile_path__", "/heap")]);
    assert_eq!(
        reasons(&targets),
        [
            "the label __profile_path__ is \"/heap\", but 5 kinds are enabled; set the label __name__ to one kind"
        ]
    );
    let targets = built_from("", &[address, ("__name__", "wall")]);
    assert_eq!(
        reasons(&targets),
        ["the label __name__ is \"wall\", which has no path; set __profile_path__ or profiling_config"]
    );
}

#[test]
fn target_without_kinds_is_dropped() {
    let off = ["memory", "goroutine", "block", "mutex", "process_cpu"]
        .map(|kind| format!("{kind}: {{enabled: false}}"));
    let settings = format!(
        "profiling_config: {{pprof_config: {{{}}}}}, static_configs: [{{targets: ['a:1']}}]",
        off.join(", ")
    );
    assert_eq!(reasons(&built(&settings)), ["no profile kind is enabled; enable one in profiling_config"]);
}

#[test]
fn name_of_the_service_is_inferred_as_alloy_infers_it() {
    let annotation = ("__meta_kubernetes_pod_annotation_pyroscope_io_service_name", "annotated");
    let namespace = ("__meta_kubernetes_namespace", "shop");
    let container = ("__meta_kubernetes_pod_container_name", "cart");
    let docker = ("__meta_docker_container_name", "/web");
    let swarm_label = ("__meta_dockerswarm_container_label_service_name", "labelled");
    let swarm = ("__meta_dockerswarm_service_name", "service");
    for (known, expected) in [
        (&[annotation, namespace, container, docker][..], "annotated"),
        (&[namespace, container, docker], "shop/cart"),
        (&[namespace, docker, swarm], "/web"),
        (&[swarm_label, swarm], "labelled"),
        (&[swarm], "service"),
        (&[("job", "own")], "own"),
        (&[container], "app"),
    ] {
        assert_eq!(infer_service_name(&labels(known), "app"), expected, "{known:?}");
    }
    let targets = built_from("", &[("__address__", "a:1"), ("service_name", "set"), annotation]);
    assert_eq!(targets.targets[0].labels.get("service_name"), Some("set"));
}
