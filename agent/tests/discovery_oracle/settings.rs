//! Comparison of settings and their defaults, key by key.

use std::collections::BTreeMap;
use std::path::Path;

use athanor_agent::config::{JobConfig, format_prometheus_duration};
use athanor_agent::discovery::{DiscoverySettings, KubernetesDiscoverySettings};
use athanor_agent::scrape_target::{HttpClientSettings, Secret};
use serde_json::{Map, Value, json};

use crate::cases::RunningCase;

/// Keys of a job without an effect: they concern samples of metrics, or the response, whose bounds are the agent's.
const IGNORED_JOB_KEYS: [&str; 22] = [
    "always_scrape_classic_histograms",
    "body_size_limit",
    "convert_classic_histograms_to_nhcb",
    "enable_compression",
    "extra_scrape_metrics",
    "fallback_scrape_protocol",
    "honor_labels",
    "honor_timestamps",
    "label_limit",
    "label_name_length_limit",
    "label_value_length_limit",
    "metric_name_escaping_scheme",
    "metric_name_validation_scheme",
    "metric_relabel_configs",
    "native_histogram_bucket_limit",
    "native_histogram_min_bucket_factor",
    "relabel_configs",
    "sample_limit",
    "scrape_failure_log_file",
    "scrape_native_histograms",
    "scrape_protocols",
    "track_timestamps_staleness",
];
/// Keys of a client without an effect: the agent follows no redirect, uses no proxy and refuses other credentials.
const IGNORED_CLIENT_KEYS: [&str; 9] = [
    "follow_redirects",
    "no_proxy",
    "oauth2",
    "proxy_connect_header",
    "proxy_from_environment",
    "proxy_url",
    "bearer_token",
    "tls_config.max_version",
    "tls_config.min_version",
];
/// Keys of Kubernetes without an effect: metadata of workloads is not attached.
const IGNORED_KUBERNETES_KEYS: [&str; 3] =
    ["attach_metadata.cronjob", "attach_metadata.deployment", "attach_metadata.job"];
/// Ends of keys that name a secret manager, which the agent refuses.
const REFERENCE_END: &str = "_ref";

type Settings = BTreeMap<String, Value>;

/// Returns the differences between the settings of a job and the expected ones.
pub(crate) fn setting_differences(
    job: &JobConfig,
    expected: &Map<String, Value>,
    running: &RunningCase,
) -> Vec<String> {
    let settings = job_settings(job, running);
    let mut differences = Vec::new();
    for (key, wanted) in expected {
        match settings.get(key) {
            Some(value) if value == wanted => {}
            Some(value) => differences.push(format!("{key} is {value}, expected {wanted}")),
            None if is_ignored(key) => {}
            None => differences.push(format!("{key} is unknown, expected {wanted}")),
        }
    }
    let surplus = settings.keys().filter(|key| !expected.contains_key(*key));
    differences.extend(surplus.map(|key| format!("{key} is no key of Prometheus")));
    differences
}

fn is_ignored(key: &str) -> bool {
    let client_key = key.split_once("].").map_or(key, |(_, rest)| rest);
    IGNORED_JOB_KEYS.contains(&key)
        || IGNORED_CLIENT_KEYS.contains(&client_key)
        || IGNORED_KUBERNETES_KEYS.contains(&client_key)
        || client_key == "bearer_token_file"
        || client_key.ends_with(REFERENCE_END)
}

fn job_settings(job: &JobConfig, running: &RunningCase) -> Settings {
    let mut settings = Settings::new();
    settings.insert("job_name".to_owned(), json!(job.job.name));
    settings.insert("scrape_interval".to_owned(), json!(format_prometheus_duration(job.job.interval)));
    settings.insert("scrape_timeout".to_owned(), json!(format_prometheus_duration(job.job.timeout)));
    settings.insert("scheme".to_owned(), json!(job.scheme));
    settings.insert("metrics_path".to_owned(), json!(job.metrics_path));
    settings.insert("target_limit".to_owned(), json!(job.target_limit.to_string()));
    settings.insert("keep_dropped_targets".to_owned(), json!(job.keep_dropped_targets.to_string()));
    settings.insert("params".to_owned(), list_text(job.params.keys()));
    add_client(&mut settings, "", &job.job.http, running);
    for (index, discovery) in job.discovery.iter().enumerate() {
        add_discovery(&mut settings, index, discovery, running);
    }
    settings
}

fn add_discovery(
    settings: &mut Settings,
    index: usize,
    discovery: &DiscoverySettings,
    running: &RunningCase,
) {
    let interval = format_prometheus_duration;
    let (mechanism, values) = match discovery {
        DiscoverySettings::Static(_) => return,
        DiscoverySettings::File(file) => {
            let files = list_text(file.files.iter().map(|file| running.with_placeholders(file)));
            ("file", vec![("files", files), ("refresh_interval", json!(interval(file.refresh_interval)))])
        }
        DiscoverySettings::Http(http) => (
            "http",
            vec![("url", json!(http.url)), ("refresh_interval", json!(interval(http.refresh_interval)))],
        ),
        DiscoverySettings::Dns(dns) => {
            let names = list_text(dns.names.iter());
            let values = vec![
                ("names", names),
                ("type", json!(dns.record_type)),
                ("port", json!(dns.port.to_string())),
                ("refresh_interval", json!(interval(dns.refresh_interval))),
            ];
            ("dns", values)
        }
        DiscoverySettings::Docker(docker) => {
            let values = vec![
                ("host", json!(docker.host)),
                ("port", json!(docker.port.to_string())),
                ("host_networking_host", json!(docker.host_networking_host)),
                ("match_first_network", json!(docker.match_first_network)),
                ("filters", list_text(docker.filters.iter().map(|(name, _)| name))),
                ("refresh_interval", json!(interval(docker.refresh_interval))),
            ];
            ("docker", values)
        }
        DiscoverySettings::Kubernetes(kubernetes) => ("kubernetes", kubernetes_values(kubernetes)),
    };
    let prefix = format!("{mechanism}_sd_configs[{index}].");
    settings.extend(values.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)));
    match discovery {
        DiscoverySettings::Http(http) => add_client(settings, &prefix, &http.http, running),
        DiscoverySettings::Docker(docker) => add_client(settings, &prefix, &docker.http, running),
        DiscoverySettings::Kubernetes(kubernetes) => add_client(settings, &prefix, &kubernetes.http, running),
        DiscoverySettings::Static(_) | DiscoverySettings::File(_) | DiscoverySettings::Dns(_) => {}
    }
}

fn kubernetes_values(kubernetes: &KubernetesDiscoverySettings) -> Vec<(&'static str, Value)> {
    vec![
        ("role", json!(kubernetes.role)),
        ("api_server", json!(kubernetes.api_server)),
        ("kubeconfig_file", json!(kubernetes.kubeconfig_file.clone().unwrap_or_default())),
        ("namespaces.names", list_text(kubernetes.namespaces.iter())),
        ("namespaces.own_namespace", json!(kubernetes.own_namespace)),
        ("selectors", list_text(kubernetes.selectors.iter().map(|selector| &selector.role))),
        ("attach_metadata.node", json!(kubernetes.attach_node_metadata)),
        ("attach_metadata.namespace", json!(kubernetes.attach_namespace_metadata)),
    ]
}

/// Adds the keys of a client. Sections that are absent are null.
fn add_client(settings: &mut Settings, prefix: &str, http: &HttpClientSettings, running: &RunningCase) {
    let mut add = |key: &str, value: Value| drop(settings.insert(format!("{prefix}{key}"), value));
    let mut add_secret = |key: &str, secret: Option<&Secret>| {
        let (text, file) = match secret {
            Some(Secret::Inline(text)) => (text.expose().to_owned(), String::new()),
            Some(Secret::File(path)) => (String::new(), path_text(path, running)),
            None => (String::new(), String::new()),
        };
        add(key, json!(text));
        add(&format!("{key}_file"), json!(file));
    };
    for (key, secret) in [("ca", &http.ca), ("cert", &http.cert), ("key", &http.key)] {
        add_secret(&format!("tls_config.{key}"), secret.as_ref());
    }
    if http.credentials.is_some() {
        add_secret("authorization.credentials", http.credentials.as_ref());
    }
    if http.username.is_some() {
        add_secret("basic_auth.username", http.username.as_ref());
        add_secret("basic_auth.password", http.password.as_ref());
    }
    match http.credentials {
        Some(_) => add("authorization.type", json!(http.authorization_type)),
        None => add("authorization", Value::Null),
    }
    if http.username.is_none() {
        add("basic_auth", Value::Null);
    }
    add("tls_config.server_name", json!(http.server_name.clone().unwrap_or_default()));
    add("tls_config.insecure_skip_verify", json!(http.insecure_skip_verify));
    add("enable_http2", json!(http.enable_http2));
    if http.headers.is_empty() {
        add("http_headers", Value::Null);
    }
}

fn path_text(path: &Path, running: &RunningCase) -> String {
    running.with_placeholders(&path.display().to_string())
}

/// Returns a list in the form of the oracle: empty, or its texts in brackets.
fn list_text(items: impl Iterator<Item = impl AsRef<str>>) -> Value {
    let texts: Vec<String> = items.map(|item| item.as_ref().to_owned()).collect();
    if texts.is_empty() { json!([]) } else { json!(format!("[{}]", texts.join(" "))) }
}
