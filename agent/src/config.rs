//! Configuration: one YAML file, with the sections of Prometheus and Parca for scraping and sections of its own.
//!
//! [`parse`] is pure. It returns the settings in force with their defaults, or all errors with their positions.
//! Paths in the result are resolved against the folder of the file.
//!
//! - `global`, `scrape_configs`: as in Prometheus, with `profiling_config` as in Parca.
//! - `servers`, `spool`, `receive`, `operator`: settings of the agent itself.
//! - `sampler`: sampler of the host.
//! - `scrape_self`, `scrape_annotated_pods`: built-in jobs, which run by default if there is no `scrape_configs`.
//! - `allowed_target_ranges`: restricted addresses that targets of other writers may have.

mod agent_settings;
mod built_in_jobs;
mod discovery;
mod duration;
mod environment;
mod error;
mod http_client;
mod job;
mod profiling;
mod reader;
mod relabel_rules;
mod sampler;
#[cfg(test)]
mod tests;
mod yaml;

use std::net::SocketAddr;
use std::path::Path;

use athanor_profile::Labels;

pub use agent_settings::{ReceiveSettings, ServerSettings, SpoolSettings, TenantRules};
pub use duration::{DurationError, format_prometheus_duration, parse_prometheus_duration};
pub use environment::Environment;
pub use error::{ConfigError, ConfigErrors, Position};
pub use job::JobConfig;
pub use profiling::{KindSettings, ProfilingSettings};
pub use relabel_rules::RelabelRules;
pub use sampler::{
    ExtraCapability, SamplerMode, SamplerSettings, SamplerTenant, SymbolizeMode, is_frequency,
};

pub use built_in_jobs::pod_discovery;
use built_in_jobs::{SELF_JOB_NAME, annotated_pods_job, self_job};
use job::{GlobalSettings, read_global, read_jobs};
use reader::{ConfigReader, ConfigTable};
use yaml::{YamlNode, YamlValue, parse_tree};

/// Warning of an agent that finds the pods of all nodes.
const NO_NODE_NAME_WARNING: &str = "NODE_NAME is not set, so the agent scrapes the annotated pods of all nodes; set it \
from the field spec.nodeName if an agent runs on each node, else each profile counts once for each agent";
/// Maximum bytes of a configuration.
pub const MAX_CONFIG_BYTES: usize = 4 << 20;
/// Sections of Prometheus and Parca that concern their servers.
const IGNORED_SECTIONS: [&str; 10] = [
    "runtime",
    "alerting",
    "rule_files",
    "storage",
    "tracing",
    "remote_write",
    "remote_read",
    "otlp",
    "object_storage",
    "remote_configs",
];

/// Settings in force.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentConfig {
    /// Servers that receive all profiles.
    pub servers: Vec<ServerSettings>,
    /// Spool on disk.
    pub spool: SpoolSettings,
    /// Receiver of pushed profiles.
    pub receive: ReceiveSettings,
    /// Sampler of the host.
    pub sampler: SamplerSettings,
    /// Address of pages and metrics for operators.
    pub operator_address: SocketAddr,
    /// Labels of all scraped profiles where they are absent.
    pub external_labels: Labels,
    /// Restricted addresses that targets of other writers may have: addresses with or without a prefix length.
    pub allowed_target_ranges: Vec<String>,
    /// Scrape jobs, with the built-in ones.
    pub jobs: Vec<JobConfig>,
    /// Warnings for the log: keys without a meaning.
    pub warnings: Vec<String>,
}

impl AgentConfig {
    /// Sets the address that the operator interface is bound to, which the built-in job scrapes.
    pub fn set_operator_address(&mut self, address: SocketAddr) {
        let old = self_job(self.operator_address);
        self.operator_address = address;
        let job = self.jobs.iter_mut().find(|job| job.job.name == SELF_JOB_NAME && **job == old);
        if let Some(job) = job {
            *job = self_job(address);
        }
    }
}

/// Parses a configuration. `file` is its path, for messages and for relative paths in it. An empty text yields
/// the default configuration.
///
/// # Errors
///
/// All errors with their positions.
pub fn parse(text: &str, file: &Path, environment: &Environment) -> Result<AgentConfig, ConfigErrors> {
    let refused = |errors| ConfigErrors { file: file.to_owned(), errors };
    if text.len() > MAX_CONFIG_BYTES {
        let message = format!("the file has {} bytes, the limit is {MAX_CONFIG_BYTES}; split it", text.len());
        return Err(refused(vec![ConfigError { position: Position { line: 1, column: 1 }, message }]));
    }
    let tree = parse_tree(text).map_err(|error| refused(vec![error]))?;
    let mut reader = ConfigReader::new(file);
    let config = read_config(&mut reader, tree, environment);
    let (errors, ignored) = reader.into_results();
    match config {
        Some(mut config) if errors.is_empty() => {
            if !ignored.is_empty() {
                let ignored: Vec<String> = ignored.into_iter().collect();
                config.warnings.push(format!("keys without a meaning for profiles: {}", ignored.join(", ")));
            }
            Ok(config)
        }
        _ => Err(refused(errors)),
    }
}

/// Returns the configuration without a file.
///
/// # Errors
///
/// A variable of the environment is invalid.
pub fn default_config(environment: &Environment) -> Result<AgentConfig, ConfigErrors> {
    parse("", Path::new("environment"), environment)
}

fn read_config(
    reader: &mut ConfigReader,
    mut tree: YamlNode,
    environment: &Environment,
) -> Option<AgentConfig> {
    if matches!(tree.value, YamlValue::Null) {
        tree.value = YamlValue::Table(Vec::new());
    }
    let root = reader.table("configuration", &tree)?;
    let global = read_global(reader, &root);
    let config = AgentConfig {
        servers: agent_settings::read_servers(reader, &root, environment),
        spool: agent_settings::read_spool(reader, &root, environment),
        receive: agent_settings::read_receive(reader, &root),
        sampler: sampler::read_sampler(reader, &root),
        operator_address: agent_settings::read_operator(reader, &root),
        allowed_target_ranges: agent_settings::read_allowed_ranges(reader, &root),
        jobs: Vec::new(),
        warnings: Vec::new(),
        external_labels: global.external_labels.clone(),
    };
    let jobs = read_all_jobs(reader, &root, &global, &config, environment);
    let finds_all_pods = jobs.iter().any(|job| job.reads_annotations) && environment.node_name.is_none();
    let warnings = finds_all_pods.then(|| NO_NODE_NAME_WARNING.to_owned()).into_iter().collect();
    if root.get("scrape_config_files").is_some() {
        let message = "scrape_config_files is not supported; move the jobs to scrape_configs";
        reader.refuse(root.position_of("scrape_config_files"), message);
    }
    root.ignore_all(reader, &IGNORED_SECTIONS);
    root.finish(reader);
    Some(AgentConfig { jobs, warnings, ..config })
}

/// Reads the jobs of the file and adds the built-in ones. These run by default if the file has no
/// `scrape_configs`.
fn read_all_jobs(
    reader: &mut ConfigReader,
    root: &ConfigTable<'_>,
    global: &GlobalSettings,
    config: &AgentConfig,
    environment: &Environment,
) -> Vec<JobConfig> {
    let section = root.get("scrape_configs");
    let mut jobs = section.map(|node| read_jobs(reader, node, global)).unwrap_or_default();
    let is_default = section.is_none();
    let mut built_in = Vec::new();
    if root.truth(reader, "scrape_self").unwrap_or(is_default) {
        built_in.push(self_job(config.operator_address));
    }
    let is_in_cluster = is_default && environment.is_in_cluster;
    if root.truth(reader, "scrape_annotated_pods").unwrap_or(is_in_cluster) {
        built_in.push(annotated_pods_job());
    }
    for job in built_in {
        if jobs.iter().any(|known| known.job.name == job.job.name) {
            let name = &job.job.name;
            let message =
                format!("job_name {name} is that of a built-in job; rename the job of scrape_configs");
            reader.refuse(root.position_of("scrape_configs"), message);
        }
        jobs.push(job);
    }
    jobs
}
