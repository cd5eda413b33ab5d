//! Labels of processes: meta labels, service names, rules, tenants.

use std::sync::Arc;

use athanor_agent_ebpf::processes::ProcessFacts;
use athanor_chassis::TenantLimits;
use athanor_profile::Labels;
use serde_json::{Value, json};

use super::made_up::{CONTAINER_ID, Containers, container, facts, host, labeler, labels};
use crate::config::{RelabelRules, SamplerTenant};
use crate::sampling::labels::{MAX_SERIES_LABELS, MAX_VALUE_BYTES, ProcessContext};
use crate::sampling::{LabelDrop, LabelSettings, ProcessLabeler, SeriesKey};

fn with_rules(rules: &[Value]) -> LabelSettings {
    LabelSettings { rules: RelabelRules::from_json(rules).unwrap(), ..LabelSettings::default() }
}

fn decide(settings: LabelSettings, facts: ProcessFacts) -> Result<Arc<SeriesKey>, LabelDrop> {
    labeler(settings).decision(&Arc::new(facts), None)
}

fn service_name(facts: ProcessFacts) -> String {
    let key = decide(LabelSettings::default(), facts).unwrap();
    key.labels.get("service_name").unwrap().to_owned()
}

fn discovered(facts: &ProcessFacts, container: Option<&Labels>) -> Labels {
    ProcessContext { facts, thread: None, container, host: &host() }.labels()
}

/// Labels of a container of a Deployment, as the API yields them.
fn pod_labels(container: &str) -> Labels {
    labels(&[
        ("__meta_kubernetes_namespace", "shop"),
        ("__meta_kubernetes_pod_name", "cart-7d9f8c-x2"),
        ("__meta_kubernetes_pod_container_name", container),
        ("__meta_kubernetes_pod_controller_kind", "ReplicaSet"),
        ("__meta_kubernetes_pod_controller_name", "cart-7d9f8c"),
        ("__meta_kubernetes_pod_label_pod_template_hash", "7d9f8c"),
    ])
}

#[test]
fn process_has_the_meta_labels_of_parca() {
    let mut facts = facts(7, "/usr/bin/shop (deleted)");
    facts.environment.push(("APP_VERSION".into(), "1.2".into()));
    facts.systemd_slice = "system.slice".into();
    let expected = labels(&[
        ("__meta_env_var_APP_VERSION", "1.2"),
        ("__meta_process_cgroup", "/"),
        ("__meta_process_cmdline", "run --fast"),
        ("__meta_process_comm", "comm"),
        ("__meta_process_executable_build_id", "ab12"),
        ("__meta_process_executable_compiler", "go1.22.1"),
        ("__meta_process_executable_name", "shop"),
        ("__meta_process_executable_path", "/usr/bin/shop (deleted)"),
        ("__meta_process_executable_static", "true"),
        ("__meta_process_kernel_thread", "false"),
        ("__meta_process_pid", "7"),
        ("__meta_process_ppid", "1"),
        ("__meta_process_user", "web"),
        ("__meta_process_user_id", "33"),
        ("__meta_system_kernel_release", "6.12.1"),
        ("__meta_system_node_name", "node-1"),
        ("__meta_systemd_slice", "system.slice"),
        ("node", "node-1"),
    ]);
    assert_eq!(discovered(&facts, None), expected);
}

#[test]
fn process_of_pod_has_the_labels_of_its_pod_and_workload() {
    let mut facts = facts(7, "/bin/shop");
    facts.container = Some(container());
    let found = discovered(&facts, Some(&pod_labels("main")));
    let expected = [
        ("__meta_container_id", CONTAINER_ID),
        ("__meta_container_runtime", "containerd"),
        ("__meta_kubernetes_pod_uid", "0f0e1234-aaaa-bbbb-cccc-0123456789ab"),
        ("__meta_kubernetes_workload_kind", "Deployment"),
        ("__meta_kubernetes_workload_name", "cart"),
        ("namespace", "shop"),
        ("pod", "cart-7d9f8c-x2"),
        ("container", "main"),
    ];
    for (name, value) in expected {
        assert_eq!(found.get(name), Some(value), "{name}");
    }
    // Users of a container are not those of the host.
    assert_eq!(found.get("__meta_process_user"), None);
}

#[test]
fn workload_is_the_owner_of_the_controller_if_its_name_shows_it() {
    let cases = [
        (("ReplicaSet", "cart-7d9f8c", "7d9f8c"), ("Deployment", "cart")),
        (("ReplicaSet", "cart-7d9f8c", "other"), ("ReplicaSet", "cart-7d9f8c")),
        (("Job", "report-29012345", ""), ("CronJob", "report")),
        (("Job", "report-2", ""), ("Job", "report-2")),
        (("StatefulSet", "db-29012345", ""), ("StatefulSet", "db-29012345")),
        (("DaemonSet", "agent", ""), ("DaemonSet", "agent")),
    ];
    let facts = facts(7, "/bin/shop");
    for ((kind, name, hash), (workload_kind, workload_name)) in cases {
        let pod = labels(&[
            ("__meta_kubernetes_pod_controller_kind", kind),
            ("__meta_kubernetes_pod_controller_name", name),
            ("__meta_kubernetes_pod_label_pod_template_hash", hash),
        ]);
        let found = discovered(&facts, Some(&pod));
        assert_eq!(found.get("__meta_kubernetes_workload_kind"), Some(workload_kind), "{name}");
        assert_eq!(found.get("__meta_kubernetes_workload_name"), Some(workload_name), "{name}");
    }
}

#[test]
fn service_name_is_the_first_of_the_sources_that_exists() {
    let with = |change: &dyn Fn(&mut ProcessFacts)| {
        let mut facts = facts(7, "/usr/bin/shop (deleted)");
        change(&mut facts);
        service_name(facts)
    };
    assert_eq!(with(&|facts| facts.is_kernel_thread = true), "kernel");
    let hide = |facts: &mut ProcessFacts| {
        facts.identity.pid = 0;
        facts.executable = "".into();
    };
    assert_eq!(with(&hide), "unknown", "the process is outside of the PID namespace");
    assert_eq!(with(&|facts| facts.systemd_unit = "nginx.service".into()), "nginx.service");
    assert_eq!(with(&|facts| facts.systemd_unit = "session-3.scope".into()), "shop");
    assert_eq!(with(&|facts| facts.systemd_unit = "user@1000.service".into()), "shop");
    let in_container = |facts: &mut ProcessFacts| {
        facts.systemd_unit = "docker.service".into();
        facts.container = Some(container());
    };
    assert_eq!(with(&in_container), "shop");
    assert_eq!(with(&|facts| facts.executable = "".into()), "comm");
    assert_eq!(with(&|facts| (facts.executable, facts.comm) = ("".into(), "".into())), "unknown");
}

#[test]
fn service_name_of_container_is_that_of_scrapes() {
    let mut docker = labels(&[("__meta_docker_container_name", "/cart")]);
    let mut facts = facts(7, "/bin/shop");
    facts.container = Some(container());
    let name_of = |container: &Labels| {
        let containers = Containers::default();
        containers.0.lock().insert(CONTAINER_ID.to_owned(), container.clone());
        let mut labeler = ProcessLabeler::new(host(), Arc::new(containers), LabelSettings::default());
        let key = labeler.decision(&Arc::new(facts.clone()), None).unwrap();
        key.labels.get("service_name").unwrap().to_owned()
    };
    assert_eq!(name_of(&docker), "/cart");
    assert_eq!(name_of(&pod_labels("main")), "shop/main");
    // The sandbox of a pod is no container of it.
    assert_eq!(name_of(&pod_labels("")), "shop/cart");
    docker.set("__meta_kubernetes_pod_annotation_pyroscope_io_service_name", "named");
    assert_eq!(name_of(&docker), "named");
}

#[test]
fn default_keeps_few_labels() {
    let key = decide(LabelSettings::default(), facts(7, "/bin/shop")).unwrap();
    let expected = labels(&[("__name__", "process_cpu"), ("node", "node-1"), ("service_name", "shop")]);
    assert_eq!((&key.labels, &key.tenant), (&expected, &None));
}

#[test]
fn rules_change_labels_and_external_ones_fill_gaps() {
    let mut settings = with_rules(&[
        json!({"source_labels": ["__meta_process_comm"], "target_label": "comm"}),
        json!({"source_labels": ["__meta_process_executable_name"], "target_label": "service_name", "replacement": "x-$1"}),
        json!({"action": "labeldrop", "regex": "node"}),
    ]);
    settings.external_labels = labels(&[("comm", "other"), ("zone", "a")]);
    let key = decide(settings, facts(7, "/bin/shop")).unwrap();
    let expected = [("__name__", "process_cpu"), ("comm", "comm"), ("service_name", "x-shop"), ("zone", "a")];
    assert_eq!(key.labels, labels(&expected));
}

#[test]
fn dropped_process_has_a_reason() {
    let rule =
        json!({"source_labels": ["__meta_process_executable_name"], "regex": "shop", "action": "drop"});
    assert_eq!(decide(with_rules(&[rule]), facts(7, "/bin/shop")), Err(LabelDrop::Rule));
    let pattern = json!({"action": "labelmap", "regex": "__meta_env_var_(.+)"});
    let with_variables = |count: usize| {
        let mut facts = facts(7, "/bin/shop");
        facts.environment = (0..count).map(|index| (format!("V{index}").into(), "1".into())).collect();
        decide(with_rules(std::slice::from_ref(&pattern)), facts)
    };
    // Besides them, a profile has its kind, its service and its node.
    let most = with_variables(MAX_SERIES_LABELS - 3).unwrap();
    assert_eq!(most.labels.len(), TenantLimits::default().max_label_names_per_series as usize);
    assert_eq!(with_variables(MAX_SERIES_LABELS - 2), Err(LabelDrop::LabelLimit));
}

#[test]
fn tenant_is_the_value_of_a_label_or_the_fixed_one() {
    let fixed: athanor_chassis::TenantId = "shared".parse().unwrap();
    let tenant =
        SamplerTenant { label: Some("__meta_env_var_TENANT".to_owned()), fixed: Some(fixed.clone()) };
    let settings = LabelSettings { tenant, ..LabelSettings::default() };
    let mut facts = facts(7, "/bin/shop");
    assert_eq!(decide(settings.clone(), facts.clone()).unwrap().tenant, Some(fixed));
    facts.environment = vec![("TENANT".into(), "shop".into())];
    assert_eq!(decide(settings.clone(), facts.clone()).unwrap().tenant, Some("shop".parse().unwrap()));
    facts.environment = vec![("TENANT".into(), "../other".into())];
    assert_eq!(decide(settings, facts), Err(LabelDrop::InvalidTenant));
}

#[test]
fn hostile_texts_are_escaped_shortened_or_left_out() {
    let map = json!({"action": "labelmap", "regex": "__meta_env_var_(.+)"});
    let copy = json!({"source_labels": ["__meta_process_comm"], "target_label": "comm"});
    let mut facts = facts(7, "/bin/\u{1b}[2Jshop\n");
    facts.comm = "ü".repeat(MAX_VALUE_BYTES).into();
    facts.environment = vec![("1bad".into(), "1".into()), ("_".into(), "\u{202e}a".into())];
    let key = decide(with_rules(&[map, copy]), facts).unwrap();
    assert_eq!(key.labels.get("service_name"), Some("\\u{1b}[2Jshop\\n"));
    assert_eq!(key.labels.get("comm").unwrap().len(), MAX_VALUE_BYTES);
    assert_eq!(key.labels.get("_"), Some("\\u{202e}a"));
    assert_eq!(key.labels.get("1bad"), None);
}

#[test]
fn decision_is_kept_until_exec_or_another_cgroup() {
    let rule = json!({"source_labels": ["__meta_process_cgroup"], "target_label": "cgroup"});
    let mut labeler = labeler(with_rules(&[rule]));
    let first = facts(7, "/bin/shop");
    let before = labeler.decision(&Arc::new(first.clone()), None).unwrap();
    let same = labeler.decision(&Arc::new(first.clone()), None).unwrap();
    assert!(Arc::ptr_eq(&before, &same) && labeler.len() == 1);
    let moved = ProcessFacts { cgroup: "/other".into(), ..first.clone() };
    let after = labeler.decision(&Arc::new(moved), None).unwrap();
    assert_eq!((after.labels.get("cgroup"), labeler.len()), (Some("/other"), 1));
    let mut replaced = ProcessFacts { executable: "/bin/other".into(), ..first };
    replaced.identity.exec_id = 2;
    let replaced = labeler.decision(&Arc::new(replaced), None).unwrap();
    assert_eq!((replaced.labels.get("service_name"), labeler.len()), (Some("other"), 2));
}

#[test]
fn container_that_becomes_known_later_is_looked_up_again() {
    let containers = Arc::new(Containers::default());
    let mut labeler = ProcessLabeler::new(host(), Arc::clone(&containers) as _, LabelSettings::default());
    let mut facts = facts(7, "/bin/shop");
    facts.container = Some(container());
    let facts = Arc::new(facts);
    let mut name = || {
        labeler.begin_window();
        labeler.decision(&facts, None).unwrap().labels.get("service_name").unwrap().to_owned()
    };
    assert_eq!([name(), name()], ["shop", "shop"]);
    containers.0.lock().insert(CONTAINER_ID.to_owned(), pod_labels("main"));
    assert_eq!(name(), "shop/main");
    containers.0.lock().clear();
    assert_eq!(name(), "shop/main");
}

#[test]
fn idle_processes_are_forgotten() {
    let mut labeler = labeler(LabelSettings::default());
    labeler.decision(&Arc::new(facts(7, "/bin/shop")), None).unwrap();
    (0..60).for_each(|_| labeler.begin_window());
    assert_eq!(labeler.len(), 1);
    labeler.begin_window();
    assert!(labeler.is_empty());
}
