//! Content of the pages, independent of the components that provide it. The JSON of a page is its view.

use std::collections::BTreeMap;

use async_trait::async_trait;
use athanor_chassis::Status;
use athanor_chassis::observability::metrics_page::MetricsFormat;
use serde::{Deserialize, Serialize};

/// State of an agent, as its pages show it.
#[async_trait]
pub trait AgentView: Send + Sync + 'static {
    /// Returns the targets of all jobs.
    fn targets(&self) -> TargetsView;

    /// Returns the state of the process and its components.
    fn status(&self) -> StatusView;

    /// Returns the configuration in force. Secrets are masked.
    fn config(&self) -> ConfigView;

    /// Returns the reason why the agent is not ready yet.
    fn unreadiness(&self) -> Option<String>;

    /// Returns the page of metrics.
    ///
    /// # Errors
    ///
    /// `Internal` if a value cannot be encoded.
    fn metrics(&self, format: MetricsFormat) -> Result<String, Status>;

    /// Returns how relabeling treats the targets whose address, `instance` or any other label value is the text.
    fn explain(&self, target: &str) -> ExplanationsView;

    /// Makes all queues send their spooled profiles now, without waiting for the end of a backoff.
    async fn drain(&self) -> Result<(), Status>;
}

/// Targets of all jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetsView {
    /// Targets that are scraped.
    pub active: Vec<TargetView>,
    /// Number of discovered targets that are not scraped, by job.
    pub dropped: BTreeMap<String, u64>,
    /// Discovered targets that are not scraped, up to a limit for each job.
    #[serde(default)]
    pub dropped_targets: Vec<DroppedTargetView>,
    /// Conditions that each page shows, such as a spool in memory.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Discovered target that is not scraped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DroppedTargetView {
    /// Name of the job.
    pub job: String,
    /// Labels before relabeling.
    pub discovered_labels: BTreeMap<String, String>,
    /// Reason why it is not scraped.
    pub reason: String,
}

/// Target that is scraped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetView {
    /// Name of the job.
    pub job: String,
    /// Scheme, host and port.
    pub url: String,
    /// `up`, `busy`, `absent`, `down` or `unknown`.
    pub state: String,
    /// Labels of its profiles.
    pub labels: BTreeMap<String, String>,
    /// Labels before relabeling.
    pub discovered_labels: BTreeMap<String, String>,
    /// Profile kinds.
    pub kinds: Vec<KindView>,
}

/// Profile kind of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindView {
    /// Name of the kind.
    pub name: String,
    /// Path of the request.
    pub path: String,
    /// `up`, `busy`, `absent`, `down` or `unknown`.
    pub state: String,
    /// Age of the last scrape that ended, in seconds.
    pub last_scrape_age_seconds: Option<f64>,
    /// Duration of the last scrape, in seconds.
    pub last_duration_seconds: f64,
    /// Bytes of the last profile.
    pub last_bytes: u64,
    /// Time until the next scrape, in seconds.
    pub next_scrape_in_seconds: f64,
    /// Reason if the last scrape returned no profile.
    pub error: Option<String>,
}

/// State of the process and its components.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// Version of the program.
    pub version: String,
    /// Time since the start, in seconds.
    pub uptime_seconds: f64,
    /// Source of the configuration in force.
    pub config: ConfigStatusView,
    /// Address that accepts pushed profiles. None if the agent accepts none.
    pub receive_address: Option<String>,
    /// Folder of the spool. None if profiles are in memory, because no folder is writable.
    pub spool_folder: Option<String>,
    /// Servers that receive the profiles.
    pub servers: Vec<ServerView>,
    /// Sampler of the host.
    #[serde(default)]
    pub sampler: SamplerView,
    /// Conditions that an operator must know, such as a spool in memory or a denied API call.
    pub warnings: Vec<String>,
}

/// Source of the configuration in force, and its reloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigStatusView {
    /// Path of the file. None if the defaults are in force.
    pub file: Option<String>,
    /// Age of the configuration in force, in seconds.
    pub age_seconds: f64,
    /// Number of reloads that changed the configuration.
    pub reloads: u64,
    /// Number of reloads that failed. The configuration before them stays in force.
    pub failed_reloads: u64,
    /// Error of the last reload, if it failed.
    pub error: Option<String>,
}

/// Server with its spool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerView {
    /// Name of the server.
    pub name: String,
    /// URL without credentials.
    pub url: String,
    /// Files in the spool.
    pub spool_files: u64,
    /// Bytes in the spool.
    pub spool_bytes: u64,
    /// Age of the oldest file, in seconds.
    pub oldest_age_seconds: Option<f64>,
    /// Number of profiles that the server stored.
    pub sent_profiles: u64,
    /// Number of profiles that the server refused.
    pub refused_profiles: u64,
    /// Number of profiles that the agent dropped.
    pub dropped_profiles: u64,
    /// Error of the last request, if it failed.
    pub error: Option<String>,
}

/// Sampler of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplerView {
    /// `running`, `starting`, `disabled`, `unprivileged`, `stopped` or `failed`.
    pub state: String,
    /// Reason why it does not sample.
    pub problem: Option<String>,
    /// Sampling rate in force, per second and CPU.
    pub rate_hz: f64,
    /// Own share of all CPUs in the last window, in percent.
    pub cpu_percent: f64,
    /// Processes whose mappings are loaded.
    pub processes: u64,
    /// Pages of code whose unwind rows are loaded.
    pub pages: u64,
    /// Unwind rows in BPF maps.
    pub rows: u64,
    /// Bytes of BPF maps.
    pub map_bytes: u64,
    /// Bytes of tables in user space.
    pub table_bytes: u64,
    /// Evictions by kind.
    pub evictions: BTreeMap<String, u64>,
    /// Mean processor time of the BPF program for a sample, in nanoseconds.
    pub program_nanos_per_sample: u64,
    /// Windows that were read.
    pub windows: u64,
    /// Windows that could not be read.
    pub lost_windows: u64,
    /// Samples taken.
    pub samples_taken: u64,
    /// Samples in windows.
    pub samples_delivered: u64,
    /// Samples in profiles that the spool accepted.
    pub samples_stored: u64,
    /// Samples that were taken and are in no window, by reason.
    pub samples_lost: BTreeMap<String, u64>,
    /// Delivered samples with an incomplete stack, by reason.
    pub samples_incomplete: BTreeMap<String, u64>,
    /// Samples that are in no profile because of their labels, by reason.
    pub samples_dropped: BTreeMap<String, u64>,
    /// Profiles that the spool accepted.
    pub profiles: u64,
    /// Profiles that the spool rejected.
    pub rejected_profiles: u64,
}

/// Configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigView {
    /// Path of the file. None if the defaults are in force.
    pub file: Option<String>,
    /// YAML with masked secrets.
    pub yaml: String,
    /// Conditions that each page shows, such as a spool in memory.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Traces of relabeling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExplanationsView {
    /// One trace for each matching target.
    pub targets: Vec<ExplanationView>,
    /// True if more targets match than are shown.
    pub is_truncated: bool,
}

/// Trace of one target through relabeling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExplanationView {
    /// Name of the job.
    pub job: String,
    /// Labels before the first rule.
    pub discovered_labels: BTreeMap<String, String>,
    /// Rules in their order, up to the one that drops the target.
    pub steps: Vec<RuleStepView>,
    /// Labels of the profiles. None if the target is dropped.
    pub labels: Option<BTreeMap<String, String>>,
    /// Profile kinds that are scraped.
    pub kinds: Vec<String>,
    /// Reason why the target is not scraped.
    pub dropped: Option<String>,
}

/// Rule with its effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleStepView {
    /// Rule as YAML.
    pub rule: String,
    /// Labels that the rule set, with their values.
    pub set: BTreeMap<String, String>,
    /// Labels that the rule removed.
    pub removed: Vec<String>,
}
