//! Configurations that are accepted, and their defaults.

use std::path::{Path, PathBuf};
use std::time::Duration;

use athanor_chassis::ByteSize;
use athanor_chassis::config::SecretString;

use super::super::built_in_jobs::annotated_pods_job;
use super::super::{Environment, ExtraCapability, SamplerMode, SymbolizeMode, default_config, parse};
use super::accepted;
use crate::discovery::DiscoverySettings;
use crate::scrape_target::{Secret, TlsVersion};

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::from_variables(
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

fn inline(text: &str) -> Option<Secret> {
    Some(Secret::Inline(SecretString::new(text)))
}

fn file(path: &str) -> Option<Secret> {
    Some(Secret::File(PathBuf::from(path)))
}

#[test]
fn default_configuration_scrapes_itself_and_receives_on_loopback() {
    let config = default_config(&Environment::default()).unwrap();
    assert_eq!(config.servers.len(), 1);
    let server = &config.servers[0];
    assert_eq!((server.url.as_str(), server.name.as_str()), ("http://127.0.0.1:4040", "127.0.0.1-4040"));
    assert_eq!((&server.tenant, &server.http.credentials), (&None, &None));
    assert_eq!(config.receive.listen_address, Some("127.0.0.1:4041".parse().unwrap()));
    assert!(config.receive.tenant.allows_header && config.receive.adds_sender_labels);
    assert_eq!(config.operator_address, "127.0.0.1:4042".parse().unwrap());
    assert_eq!(config.spool.folder, PathBuf::from("/var/lib/athanor-agent/spool"));
    assert_eq!((config.spool.max_bytes, config.spool.min_free_percent), (ByteSize::mib(1024), 10));
    assert_eq!(config.warnings, [""; 0]);
    let jobs: Vec<&str> = config.jobs.iter().map(|job| job.job.name.as_str()).collect();
    assert_eq!(jobs, ["athanor-agent"]);
    let DiscoverySettings::Static(groups) = &config.jobs[0].discovery[0] else { panic!("not static") };
    assert_eq!(groups[0].targets[0].get("__address__"), Some("127.0.0.1:4042"));
    assert!(!groups[0].is_address_untrusted);
    assert_eq!(config.jobs[0].job.interval, Duration::from_secs(15));
}

#[test]
fn environment_names_the_server_and_the_cluster() {
    let variables = [
        ("ATHANOR_URL", "https://profiles.example.com"),
        ("ATHANOR_TENANT", "team-a"),
        ("ATHANOR_TOKEN", "s3cret"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("STATE_DIRECTORY", "/var/lib/private/agent:/other"),
        ("HOME", "/root"),
        ("ATHANOR_EMPTY", ""),
    ];
    let config = default_config(&environment(&variables)).unwrap();
    let server = &config.servers[0];
    assert_eq!(
        (server.url.as_str(), server.name.as_str()),
        ("https://profiles.example.com", "profiles.example.com-443")
    );
    assert_eq!(server.tenant.as_ref().unwrap().as_str(), "team-a");
    assert_eq!(server.http.credentials, inline("s3cret"));
    assert!(!format!("{config:?}").contains("s3cret"));
    assert_eq!(config.spool.folder, PathBuf::from("/var/lib/private/agent/spool"));
    let jobs: Vec<&str> = config.jobs.iter().map(|job| job.job.name.as_str()).collect();
    assert_eq!(jobs, ["athanor-agent", "annotated-pods"]);
    assert_eq!(
        environment(&[("HOME", "/h")]).spool_folder(),
        Path::new("/h/.local/state/athanor-agent/spool")
    );
    assert_eq!(
        environment(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]).spool_folder(),
        Path::new("/s/athanor-agent/spool")
    );
}

#[test]
fn built_in_jobs_run_without_scrape_configs_only() {
    let cluster = environment(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]);
    for (text, expected) in [
        ("servers: [{url: 'http://a:1'}]", &["athanor-agent", "annotated-pods"][..]),
        ("scrape_configs: []", &[]),
        ("scrape_self: false", &["annotated-pods"]),
        ("scrape_configs: [{job_name: a}]", &["a"]),
        ("{scrape_configs: [{job_name: a}], scrape_self: true}", &["a", "athanor-agent"]),
        ("{scrape_configs: [{job_name: a}], scrape_annotated_pods: true}", &["a", "annotated-pods"]),
        ("scrape_annotated_pods: no", &["athanor-agent"]),
    ] {
        let config = parse(text, Path::new("agent.yml"), &cluster).unwrap();
        let jobs: Vec<&str> = config.jobs.iter().map(|job| job.job.name.as_str()).collect();
        assert_eq!(jobs, expected, "{text}");
    }
    assert_eq!(annotated_pods_job().rules.rules().len(), 7);
}

const FULL: &str = r#"
# Agent of a host.
global:
  scrape_interval: 30s
  evaluation_interval: 15s
  external_labels: {cluster: eu-1, version: 1.10}
rule_files: ["rules/*.yml"]
servers:
  - url: https://a.example.com/profiles
    tenant: team-a
    token_file: token
    tls_config: {ca_file: ca.pem}
  - name: backup
    url: http://10.0.0.2:4040
    basic_auth: {username: agent, password: hunter2}
spool: {folder: spool, max_bytes: 2GiB, min_free: 5%}
receive:
  listen_address: 0.0.0.0:4041
  sender_labels: false
  labels: {host: web-1}
  tenant: {header: false, label: namespace, fixed: ops}
operator: {listen_address: "[::1]:4042"}
allowed_target_ranges: [127.0.0.0/8, "fe80::/10", 169.254.169.254]
scrape_configs:
  - job_name: api
    scrape_timeout: 5s
    metrics_path: /metrics
    honor_labels: true
    scheme: https
    tenant: team-b
    body_size_limit: 10MB
    params: {debug: ["0"]}
    http_headers:
      X-Team: {values: [a], secrets: [hunter3], files: [team]}
    authorization: {credentials_file: /run/token}
    profiling_config:
      path_prefix: /internal
      pprof_config:
        memory: {enabled: false}
        process_cpu: {seconds: 10}
        fgprof: {}
        wall: {path: /debug/wall, delta: true, params: {x: [y]}}
        block: {seconds: 20, keep_sample_type: [{type: delay, unit: nanoseconds}]}
    static_configs:
      - targets: [a:6060, b:6060]
        labels: {service: api}
    file_sd_configs:
      - files: [targets/*.json, /etc/other.yml]
    dns_sd_configs:
      - {names: [_pprof._tcp.example.com]}
    http_sd_configs:
      - url: http://inventory/targets
        bearer_token: hunter4
    kubernetes_sd_configs:
      - role: pod
        namespaces: {names: [shop]}
        selectors: [{role: pod, label: "app in (a, b)", field: "status.phase!=Failed,spec.nodeName=n"}]
        attach_metadata: {node: true}
    docker_sd_configs:
      - host: unix:///var/run/docker.sock
        filters: [{name: label, values: [profile]}]
    relabel_configs:
      - {source_labels: [__address__], target_label: shard, action: hashmod, modulus: 4}
      - {source_labels: [shard], regex: 1, action: keep}
"#;

#[test]
fn full_file_is_read_with_its_sections() {
    let config = accepted(FULL);
    let [first, second] = &config.servers[..] else { panic!("two servers") };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("a.example.com-443", "backup"));
    assert_eq!(first.http.credentials, file("/etc/agent/token"));
    assert_eq!(first.http.ca, file("/etc/agent/ca.pem"));
    assert_eq!((&second.http.username, &second.http.password), (&inline("agent"), &inline("hunter2")));
    assert_eq!(config.spool.folder, PathBuf::from("/etc/agent/spool"));
    assert_eq!((config.spool.max_bytes, config.spool.min_free_percent), (ByteSize::mib(2048), 5));
    assert_eq!(config.receive.labels.to_string(), r#"{host="web-1"}"#);
    let tenant = &config.receive.tenant;
    assert_eq!((tenant.allows_header, tenant.label.as_deref()), (false, Some("namespace")));
    assert_eq!(config.operator_address, "[::1]:4042".parse().unwrap());
    assert_eq!(config.external_labels.to_string(), r#"{cluster="eu-1", version="1.10"}"#);
    assert_eq!(config.allowed_target_ranges.len(), 3);
    assert_eq!(
        config.warnings,
        [
            "keys without a meaning for profiles: global.evaluation_interval, pprof_config.keep_sample_type, rule_files, scrape_configs.honor_labels, scrape_configs.metrics_path"
        ]
    );
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter"), "{shown}");
}

#[test]
fn job_of_full_file_has_its_settings() {
    let config = accepted(FULL);
    let job = &config.jobs[0];
    assert_eq!((job.job.interval, job.job.timeout), (Duration::from_secs(30), Duration::from_secs(5)));
    assert_eq!((job.job.max_body_bytes, job.scheme.as_str()), (10 << 20, "https"));
    assert_eq!(job.job.tenant.as_ref().unwrap().as_str(), "team-b");
    let headers =
        [("X-Team", inline("a")), ("X-Team", inline("hunter3")), ("X-Team", file("/etc/agent/team"))];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.unwrap()));
    assert_eq!(job.job.http.headers, headers);
    assert_eq!((&job.job.http.credentials, job.rules.rules().len()), (&file("/run/token"), 2));
    let kinds = &job.profiling.kinds;
    let enabled: Vec<&str> =
        kinds.iter().filter(|(_, kind)| kind.enabled).map(|(name, _)| name.as_str()).collect();
    assert_eq!(enabled, ["block", "fgprof", "goroutine", "mutex", "process_cpu", "wall"]);
    let seconds = |name: &str| kinds[name].recorded_seconds(job.job.interval);
    assert_eq!(
        (seconds("process_cpu"), seconds("fgprof"), seconds("wall"), seconds("block"), seconds("mutex")),
        (Some(10), Some(29), Some(29), Some(20), None)
    );
    assert_eq!(job.profiling.path_prefix, "/internal");
    let [static_sd, file_sd, http_sd, dns_sd, kubernetes_sd, docker_sd] = &job.discovery[..] else {
        panic!("{:?}", job.discovery)
    };
    assert!(matches!(static_sd, DiscoverySettings::Static(groups) if groups[0].targets.len() == 2));
    let DiscoverySettings::File(files) = file_sd else { panic!("file") };
    assert_eq!(files.files, ["/etc/agent/targets/*.json", "/etc/other.yml"]);
    assert_eq!(files.refresh_interval, Duration::from_secs(300));
    assert!(matches!(http_sd, DiscoverySettings::Http(http) if http.http.credentials == inline("hunter4")));
    assert!(matches!(dns_sd, DiscoverySettings::Dns(dns) if dns.record_type == "SRV" && dns.port == 0));
    let DiscoverySettings::Kubernetes(kubernetes) = kubernetes_sd else { panic!("kubernetes") };
    assert_eq!((kubernetes.namespaces.len(), kubernetes.attach_node_metadata), (1, true));
    let DiscoverySettings::Docker(docker) = docker_sd else { panic!("docker") };
    assert_eq!((docker.port, docker.host_networking_host.as_str()), (80, "localhost"));
    assert_eq!(docker.filters, [("label".to_owned(), vec!["profile".to_owned()])]);
}

#[test]
fn defaults_of_jobs_are_those_of_prometheus() {
    let config = accepted("scrape_configs: [{job_name: a}]");
    let job = &config.jobs[0];
    assert_eq!((job.job.interval, job.job.timeout), (Duration::from_secs(60), Duration::from_secs(10)));
    assert_eq!((job.scheme.as_str(), job.metrics_path.as_str()), ("http", "/metrics"));
    assert!(job.job.http.enable_http2 && !job.job.http.insecure_skip_verify);
    let config = accepted("scrape_configs: [{job_name: a, scrape_interval: 5s}]");
    assert_eq!(config.jobs[0].job.timeout, Duration::from_secs(5));
    assert_eq!(config.jobs[0].job.max_body_bytes, 64 << 20);
}

#[test]
fn timeout_of_parca_contains_the_recorded_seconds() {
    for (timeout, expected) in [("13s", 4), ("10s", 10), ("60s", 10)] {
        let config = accepted(&format!(
            "scrape_configs: [{{job_name: a, scrape_interval: 10s, scrape_timeout: {timeout}, profiling_config: {{}}}}]"
        ));
        assert_eq!(config.jobs[0].job.timeout, Duration::from_secs(expected), "{timeout}");
    }
}

#[test]
fn configuration_of_parca_is_read_unchanged() {
    let config = accepted(
        r#"
object_storage:
  bucket:
    type: "FILESYSTEM"
    config:
      directory: "./data"
scrape_configs:
  - job_name: "default"
    scrape_interval: "2s"
    static_configs:
      - targets: ["127.0.0.1:7070"]
    normalized_addresses: true
    profiling_config:
      pprof_config:
        fgprof:
          enabled: true
          path: /debug/pprof/fgprof
"#,
    );
    let job = &config.jobs[0];
    assert_eq!(job.profiling.kinds["fgprof"].path, "/debug/pprof/fgprof");
    assert_eq!(job.profiling.kinds["process_cpu"].recorded_seconds(job.job.interval), Some(1));
    assert_eq!(config.warnings.len(), 1);
}

#[test]
fn anchors_and_merged_tables_are_read() {
    let config = accepted(
        r#"
scrape_configs:
  - job_name: a
    static_configs:
      - targets: [a:1]
        labels: &common {team: x, zone: 007}
      - targets: [b:1]
        labels: {<<: *common, team: y}
  - job_name: b
    static_configs: [{targets: [c:1], labels: *common}]
"#,
    );
    let labels = |job: usize, group: usize| {
        let DiscoverySettings::Static(groups) = &config.jobs[job].discovery[0] else { panic!("static") };
        groups[group].targets[0].to_string()
    };
    assert_eq!(labels(0, 0), r#"{__address__="a:1", team="x", zone="007"}"#);
    assert_eq!(labels(0, 1), r#"{__address__="b:1", team="y", zone="007"}"#);
    assert_eq!(labels(1, 0), r#"{__address__="c:1", team="x", zone="007"}"#);
}

#[test]
fn values_keep_the_text_that_was_written() {
    let text = "scrape_configs: [{job_name: 1.10, static_configs: [{targets: ['a:1'], labels: {a: 1e3, b: yes, c: 0x1F, d: ~, e: '', f: 'null', g: -0, h: !!str 5, i: 2026-01-01}}]}]";
    let config = accepted(text);
    assert_eq!(config.jobs[0].job.name, "1.10");
    let DiscoverySettings::Static(groups) = &config.jobs[0].discovery[0] else { panic!("static") };
    assert_eq!(
        groups[0].targets[0].to_string(),
        r#"{__address__="a:1", a="1e3", b="yes", c="0x1F", f="null", g="-0", h="5", i="2026-01-01"}"#
    );
}

#[test]
fn bounds_of_the_tls_version_leave_the_versions_between_them() {
    for (bounds, expected) in [
        ("", None),
        ("min_version: TLS10", None),
        ("min_version: TLS12, max_version: TLS13", None),
        ("min_version: TLS13", Some(TlsVersion::Tls13)),
        ("min_version: TLS11, max_version: TLS12", Some(TlsVersion::Tls12)),
    ] {
        let config = accepted(&format!("scrape_configs: [{{job_name: a, tls_config: {{{bounds}}}}}]"));
        assert_eq!(config.jobs[0].job.http.only_tls_version, expected, "{bounds}");
    }
}

#[test]
fn sampler_has_defaults_and_reads_all_its_keys() {
    let default = accepted("").sampler;
    assert_eq!((default.mode, default.symbolize), (SamplerMode::Auto, SymbolizeMode::Local));
    assert_eq!((default.frequency_hz, default.window_interval), (19, Duration::from_secs(10)));
    assert_eq!((default.max_memory, default.max_cpu_percent), (ByteSize::mib(64), 0.5));
    let text = "
sampler:
  enabled: true
  frequency_hz: 97
  window_interval: 15s
  thread_names: true
  symbolize: none
  max_memory_bytes: 32MiB
  max_cpu_percent: 2.5
  kill_switch_file: stop
  environment_variables: [APP_VERSION, HOME, HOME]
  extra_capabilities: [CAP_SYSLOG, dac_read_search]
  relabel_configs: [{action: labeldrop, regex: node}]
  tenant: {label: namespace, fixed: shop}
";
    let sampler = accepted(text).sampler;
    assert_eq!((sampler.mode, sampler.symbolize), (SamplerMode::On, SymbolizeMode::None));
    assert_eq!((sampler.frequency_hz, sampler.window_interval), (97, Duration::from_secs(15)));
    assert_eq!((sampler.max_memory, sampler.max_cpu_percent), (ByteSize::mib(32), 2.5));
    assert!(sampler.thread_names && sampler.rules.rules().len() == 1);
    assert_eq!(sampler.kill_switch_file, Some(PathBuf::from("/etc/agent/stop")));
    assert_eq!(sampler.environment_variables, ["APP_VERSION", "HOME"]);
    let extra: Vec<_> = sampler.extra_capabilities.iter().copied().collect();
    assert_eq!(extra, [ExtraCapability::Syslog, ExtraCapability::DacReadSearch]);
    assert_eq!(sampler.tenant.label.as_deref(), Some("namespace"));
    assert_eq!(sampler.tenant.fixed, Some("shop".parse().unwrap()));
}

#[test]
fn sampler_restarts_for_all_but_rules_and_tenant() {
    let sampler = accepted("").sampler;
    let relabeled =
        accepted("sampler: {relabel_configs: [{action: labeldrop, regex: a}], tenant: {fixed: a}}");
    assert!(!sampler.needs_restart(&relabeled.sampler));
    for other in ["frequency_hz: 20", "enabled: false", "environment_variables: [A]", "max_cpu_percent: 1"] {
        assert!(sampler.needs_restart(&accepted(&format!("sampler: {{{other}}}")).sampler), "{other}");
    }
}
