//! Scrape jobs: `global` and the items of `scrape_configs`, with the keys and defaults of Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use athanor_chassis::{ByteSize, TenantId};
use athanor_profile::Labels;

use super::discovery::{read_discovery, refuse_other_mechanism};
use super::duration::format_prometheus_duration;
use super::error::shorten;
use super::http_client::read_http_client;
use super::profiling::{ProfilingSettings, read_params, read_profiling};
use super::reader::{ConfigReader, ConfigTable};
use super::relabel_rules::{RelabelRules, read_rules};
use super::yaml::{YamlNode, YamlValue};
use crate::discovery::DiscoverySettings;
use crate::scrape_target::ScrapeJob;

/// Defaults of Prometheus.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_METRICS_PATH: &str = "/metrics";
/// Maximum bytes of a scraped response, compressed. A job may lower it.
pub(crate) const MAX_BODY_BYTES: u64 = 64 << 20;

/// Keys of Prometheus that concern samples of metrics only.
const IGNORED_JOB_KEYS: [&str; 19] = [
    "honor_labels",
    "honor_timestamps",
    "track_timestamps_staleness",
    "scrape_protocols",
    "fallback_scrape_protocol",
    "scrape_native_histograms",
    "always_scrape_classic_histograms",
    "convert_classic_histograms_to_nhcb",
    "scrape_failure_log_file",
    "enable_compression",
    "sample_limit",
    "label_limit",
    "label_name_length_limit",
    "label_value_length_limit",
    "native_histogram_bucket_limit",
    "native_histogram_min_bucket_factor",
    "metric_name_validation_scheme",
    "metric_name_escaping_scheme",
    "extra_scrape_metrics",
];
const IGNORED_GLOBAL_KEYS: [&str; 19] = [
    "scrape_protocols",
    "evaluation_interval",
    "rule_query_offset",
    "query_log_file",
    "query_max_series",
    "query_max_samples_read",
    "query_max_duration",
    "scrape_failure_log_file",
    "sample_limit",
    "label_limit",
    "label_name_length_limit",
    "label_value_length_limit",
    "metric_name_validation_scheme",
    "metric_name_escaping_scheme",
    "scrape_native_histograms",
    "convert_classic_histograms_to_nhcb",
    "always_scrape_classic_histograms",
    "extra_scrape_metrics",
    "scrape_classic_histograms",
];

/// Scrape job with all that leads to its targets.
#[derive(Clone, Debug, PartialEq)]
pub struct JobConfig {
    /// Settings that the targets share.
    pub job: Arc<ScrapeJob>,
    /// `http` or `https` in any case, unless a rule changes it. Empty for no label, which means `http`.
    pub scheme: String,
    /// Value of the label `__metrics_path__`, which rules may use. It has no other effect.
    pub metrics_path: String,
    /// Parameters of each request.
    pub params: BTreeMap<String, Vec<String>>,
    /// Relabeling rules.
    pub rules: RelabelRules,
    /// Profile kinds.
    pub profiling: ProfilingSettings,
    /// Mechanisms that discover targets.
    pub discovery: Vec<DiscoverySettings>,
    /// Maximum targets after relabeling. 0 for no limit of its own. More targets fail the job.
    pub target_limit: u64,
    /// Maximum dropped targets that are listed. 0 for no limit of its own.
    pub keep_dropped_targets: u64,
    /// True if annotations of pods choose the kinds, ports and paths.
    pub reads_annotations: bool,
}

/// Settings of the section `global`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GlobalSettings {
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) external_labels: Labels,
    max_body_bytes: u64,
    target_limit: u64,
    keep_dropped_targets: u64,
}

impl Default for GlobalSettings {
    fn default() -> Self {
        GlobalSettings {
            interval: DEFAULT_INTERVAL,
            timeout: DEFAULT_TIMEOUT,
            external_labels: Labels::default(),
            max_body_bytes: MAX_BODY_BYTES,
            target_limit: 0,
            keep_dropped_targets: 0,
        }
    }
}

/// Reads the section `global`.
pub(super) fn read_global(reader: &mut ConfigReader, root: &ConfigTable<'_>) -> GlobalSettings {
    let mut global = GlobalSettings::default();
    let Some(table) = root.get("global").and_then(|node| reader.table("global", node)) else { return global };
    let interval = table.duration(reader, "scrape_interval").filter(|interval| !interval.is_zero());
    global.interval = interval.unwrap_or(DEFAULT_INTERVAL);
    let timeout = table.duration(reader, "scrape_timeout").filter(|timeout| !timeout.is_zero());
    if timeout.is_some_and(|timeout| timeout > global.interval) {
        refuse_timeout(reader, &table, timeout.unwrap_or_default(), global.interval);
    }
    global.timeout = timeout.unwrap_or(DEFAULT_TIMEOUT.min(global.interval));
    global.external_labels = table.labels(reader, "external_labels");
    global.max_body_bytes = read_body_limit(reader, &table).unwrap_or(MAX_BODY_BYTES);
    global.target_limit = read_limit(reader, &table, "target_limit").unwrap_or(0);
    global.keep_dropped_targets = read_limit(reader, &table, "keep_dropped_targets").unwrap_or(0);
    table.ignore_all(reader, &IGNORED_GLOBAL_KEYS);
    table.finish(reader);
    global
}

fn refuse_timeout(reader: &mut ConfigReader, table: &ConfigTable<'_>, timeout: Duration, interval: Duration) {
    let timeout = format_prometheus_duration(timeout);
    let interval = format_prometheus_duration(interval);
    let message = format!(
        "scrape_timeout is {timeout}, scrape_interval is {interval}; set a timeout up to the interval"
    );
    reader.refuse(table.position_of("scrape_timeout"), message);
}

fn read_limit(reader: &mut ConfigReader, table: &ConfigTable<'_>, key: &'static str) -> Option<u64> {
    table.get(key).and_then(|node| reader.number(key, node, u64::MAX))
}

/// Reads `body_size_limit`, a size with a unit of two powers, as in Prometheus. 0 means the default.
fn read_body_limit(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> Option<u64> {
    let text = table.filled_text(reader, "body_size_limit")?;
    if text == "0" {
        return None;
    }
    let upper = text.to_ascii_uppercase();
    let is_binary = upper.ends_with("IB");
    let binary = if is_binary { upper.clone() } else { upper.replace('B', "iB") };
    let size: Option<ByteSize> = match binary.as_str() {
        text if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') => None,
        text => text.parse().or_else(|_| upper.parse()).ok(),
    };
    match size.map(ByteSize::get) {
        Some(0) => None,
        Some(bytes) if bytes <= MAX_BODY_BYTES => Some(bytes),
        Some(_) => {
            reader.ignore("body_size_limit over 64MB".to_owned());
            None
        }
        None => {
            let message =
                format!("body_size_limit is {:?}; write a size with a unit, such as 10MB", shorten(&text));
            reader.refuse(table.position_of("body_size_limit"), message);
            None
        }
    }
}

/// Reads the items of `scrape_configs`.
pub(super) fn read_jobs(
    reader: &mut ConfigReader,
    node: &YamlNode,
    global: &GlobalSettings,
) -> Vec<JobConfig> {
    let mut jobs: Vec<JobConfig> = Vec::new();
    for item in reader.list("scrape_configs", node) {
        if matches!(item.value, YamlValue::Null) {
            reader.refuse(item.position, "an item of scrape_configs is empty; remove it");
            continue;
        }
        let Some(table) = reader.table("scrape_configs", item) else { continue };
        let job = read_job(reader, &table, global);
        if jobs.iter().any(|known| known.job.name == job.job.name) {
            let message = format!("job_name {:?} is used twice; rename one", shorten(&job.job.name));
            reader.refuse(table.position_of("job_name"), message);
        }
        finish_job(reader, table);
        jobs.push(job);
    }
    jobs
}

/// Refuses unknown keys, and mechanisms of discovery with a message of their own.
fn finish_job(reader: &mut ConfigReader, table: ConfigTable<'_>) {
    let known = ["static_configs", "file_sd_configs", "http_sd_configs"];
    let known = known.iter().chain(&["dns_sd_configs", "kubernetes_sd_configs", "docker_sd_configs"]);
    let known: Vec<&str> = known.copied().collect();
    let is_other = |key: &str| key.ends_with("_sd_configs") && !known.contains(&key);
    for entry in table.entries().iter().filter(|entry| is_other(&entry.key)) {
        refuse_other_mechanism(reader, &entry.key, entry.key_position);
    }
    table.finish_except(reader, is_other);
}

fn read_job(reader: &mut ConfigReader, table: &ConfigTable<'_>, global: &GlobalSettings) -> JobConfig {
    let name = table.text(reader, "job_name").unwrap_or_default();
    if name.is_empty() {
        reader.refuse(table.position_of("job_name"), "a job of scrape_configs has no name; set job_name");
    }
    let interval = table.duration(reader, "scrape_interval").filter(|interval| !interval.is_zero());
    let interval = interval.unwrap_or(global.interval);
    let timeout = read_timeout(reader, table, interval, global);
    let scheme = table.text(reader, "scheme").unwrap_or_else(|| "http".to_owned());
    if !matches!(scheme.to_ascii_lowercase().as_str(), "" | "http" | "https") {
        let message = format!("scheme is {:?}; use http or https", shorten(&scheme));
        reader.refuse(table.position_of("scheme"), message);
    }
    let http = read_http_client(reader, table);
    let rules = read_rules(reader, table);
    let discovery = read_discovery(reader, table);
    if rules.is_empty() {
        refuse_urls(reader, table, &discovery);
    }
    let profiling = read_profiling(reader, table);
    table.ignore_all(reader, &IGNORED_JOB_KEYS);
    table.ignore_all(reader, &["metric_relabel_configs", "normalized_addresses"]);
    let metrics_path = table.filled_text(reader, "metrics_path");
    if metrics_path.is_some() {
        reader.ignore("scrape_configs.metrics_path".to_owned());
    }
    JobConfig {
        job: Arc::new(ScrapeJob {
            name,
            interval,
            timeout,
            tenant: table.parsed::<TenantId>(reader, "tenant"),
            http,
            max_body_bytes: read_body_limit(reader, table).unwrap_or(global.max_body_bytes),
        }),
        scheme,
        metrics_path: metrics_path.unwrap_or_else(|| DEFAULT_METRICS_PATH.to_owned()),
        params: read_params(reader, table),
        rules,
        profiling,
        discovery,
        target_limit: read_limit(reader, table, "target_limit")
            .filter(|&limit| limit > 0)
            .unwrap_or(global.target_limit),
        keep_dropped_targets: read_limit(reader, table, "keep_dropped_targets")
            .filter(|&limit| limit > 0)
            .unwrap_or(global.keep_dropped_targets),
        reads_annotations: false,
    }
}

/// Reads the timeout of a job. In the form of Parca, which has `profiling_config`, it contains the recorded
/// seconds and exceeds the interval.
fn read_timeout(
    reader: &mut ConfigReader,
    table: &ConfigTable<'_>,
    interval: Duration,
    global: &GlobalSettings,
) -> Duration {
    let timeout = table.duration(reader, "scrape_timeout").filter(|timeout| !timeout.is_zero());
    let Some(timeout) = timeout else { return global.timeout.min(interval) };
    let recorded = interval.saturating_sub(Duration::from_secs(1));
    if timeout <= interval {
        return timeout;
    }
    if table.get("profiling_config").is_some() {
        return (timeout - recorded).min(interval);
    }
    refuse_timeout(reader, table, timeout, interval);
    interval
}

/// Refuses URLs among static targets, which no rule can make addresses of.
fn refuse_urls(reader: &mut ConfigReader, table: &ConfigTable<'_>, discovery: &[DiscoverySettings]) {
    for settings in discovery {
        let DiscoverySettings::Static(groups) = settings else { continue };
        let addresses =
            groups.iter().flat_map(|group| &group.targets).filter_map(|target| target.get("__address__"));
        for address in addresses.filter(|address| address.contains('/')) {
            let message = format!("target {:?} is not an address; write host:port", shorten(address));
            reader.refuse(table.position_of("static_configs"), message);
        }
    }
}
