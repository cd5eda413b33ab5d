//! Settings of the sampler: the section `sampler`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use athanor_chassis::{ByteSize, TenantId};

use super::duration::format_prometheus_duration;
use super::error::shorten;
use super::reader::{ConfigReader, ConfigTable};
use super::relabel_rules::{RelabelRules, read_rules};
use super::yaml::YamlNode;

const DEFAULT_FREQUENCY_HZ: u32 = 19;
const MAX_FREQUENCY_HZ: u32 = 997;
const DEFAULT_WINDOW_INTERVAL: Duration = Duration::from_secs(10);
const MIN_WINDOW_INTERVAL: Duration = Duration::from_secs(2);
const MAX_WINDOW_INTERVAL: Duration = Duration::from_secs(300);
const DEFAULT_MEMORY: ByteSize = ByteSize::mib(64);
const MIN_MEMORY: ByteSize = ByteSize::mib(16);
const MAX_MEMORY: ByteSize = ByteSize::mib(4096);
const DEFAULT_CPU_PERCENT: f64 = 0.5;
/// Maximum number of environment variables that become labels.
const MAX_ENVIRONMENT_VARIABLES: usize = 64;
const MAX_VARIABLE_NAME_LENGTH: usize = 256;

/// Condition under which the agent samples its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerMode {
    /// The agent samples if it has the privileges.
    Auto,
    /// The agent does not start without the privileges.
    On,
    /// The agent does not sample.
    Off,
}

/// Place where addresses become names of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolizeMode {
    /// The agent reads symbol tables.
    Local,
    /// The agent sends file addresses only.
    None,
}

/// Capability that the sampler keeps on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExtraCapability {
    /// `CAP_SYSLOG`: addresses of kernel functions, which most hosts restrict.
    Syslog,
    /// `CAP_DAC_READ_SEARCH`: files that only their owner may read.
    DacReadSearch,
    /// `CAP_CHECKPOINT_RESTORE`: mapped files that were deleted or exist in memory only.
    CheckpointRestore,
}

/// Tenant of sampled profiles. The label decides before the fixed tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SamplerTenant {
    /// Label whose value is the tenant, after relabeling. It may be a meta label.
    pub label: Option<String>,
    /// Tenant of all others. None sends no tenant header.
    pub fixed: Option<TenantId>,
}

/// Sampler of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerSettings {
    /// Condition under which it runs.
    pub mode: SamplerMode,
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// Length of a window. Each has its own profiles.
    pub window_interval: Duration,
    /// Stacks are counted by thread name, which becomes a label.
    pub thread_names: bool,
    /// Place where addresses become names.
    pub symbolize: SymbolizeMode,
    /// Bound of maps, unwind rows, tables and names.
    pub max_memory: ByteSize,
    /// Bound of its own share of all CPUs, in percent.
    pub max_cpu_percent: f64,
    /// Sampling stops while this file exists.
    pub kill_switch_file: Option<PathBuf>,
    /// Environment variables that become meta labels.
    pub environment_variables: Vec<String>,
    /// Capabilities that stay if the process has them.
    pub extra_capabilities: BTreeSet<ExtraCapability>,
    /// Rules for the labels of processes.
    pub rules: RelabelRules,
    /// Choice of the tenant.
    pub tenant: SamplerTenant,
}

impl Default for SamplerSettings {
    fn default() -> Self {
        Self {
            mode: SamplerMode::Auto,
            frequency_hz: DEFAULT_FREQUENCY_HZ,
            window_interval: DEFAULT_WINDOW_INTERVAL,
            thread_names: false,
            symbolize: SymbolizeMode::Local,
            max_memory: DEFAULT_MEMORY,
            max_cpu_percent: DEFAULT_CPU_PERCENT,
            kill_switch_file: None,
            environment_variables: Vec::new(),
            extra_capabilities: BTreeSet::new(),
            rules: RelabelRules::default(),
            tenant: SamplerTenant::default(),
        }
    }
}

impl SamplerSettings {
    /// Returns whether both differ in a setting that takes effect after a restart only.
    pub fn needs_restart(&self, other: &Self) -> bool {
        let fixed = |settings: &Self| Self {
            rules: RelabelRules::default(),
            tenant: SamplerTenant::default(),
            ..settings.clone()
        };
        fixed(self) != fixed(other)
    }
}

/// Returns whether a number of samples per second is in the range of the sampler.
pub fn is_frequency(frequency_hz: u32) -> bool {
    (1..=MAX_FREQUENCY_HZ).contains(&frequency_hz)
}

/// Reads the section `sampler`.
pub(super) fn read_sampler(reader: &mut ConfigReader, root: &ConfigTable<'_>) -> SamplerSettings {
    let mut sampler = SamplerSettings::default();
    let Some(table) = root.get("sampler").and_then(|node| reader.table("sampler", node)) else {
        return sampler;
    };
    if let Some(node) = table.get("enabled") {
        sampler.mode = read_mode(reader, node).unwrap_or(sampler.mode);
    }
    if let Some(node) = table.get("frequency_hz") {
        let frequency =
            reader.number("frequency_hz", node, u64::MAX).unwrap_or(u64::from(DEFAULT_FREQUENCY_HZ));
        match u32::try_from(frequency).ok().filter(|&frequency| is_frequency(frequency)) {
            Some(frequency) => sampler.frequency_hz = frequency,
            None => {
                let message = format!("frequency_hz is {frequency}; set 1 to {MAX_FREQUENCY_HZ}");
                reader.refuse(node.position, message);
            }
        }
    }
    read_window(reader, &table, &mut sampler);
    sampler.thread_names = table.truth(reader, "thread_names").unwrap_or(false);
    if let Some(node) = table.get("symbolize") {
        sampler.symbolize = read_symbolize(reader, node).unwrap_or(sampler.symbolize);
    }
    read_bounds(reader, &table, &mut sampler);
    let kill_switch = table.filled_text(reader, "kill_switch_file");
    sampler.kill_switch_file = kill_switch.map(|file| reader.resolve_path(&file));
    sampler.environment_variables = read_variables(reader, &table);
    sampler.extra_capabilities = read_capabilities(reader, &table);
    sampler.rules = read_rules(reader, &table);
    if let Some(tenant) = table.get("tenant").and_then(|node| reader.table("tenant", node)) {
        sampler.tenant.label = tenant.filled_text(reader, "label");
        sampler.tenant.fixed = tenant.parsed(reader, "fixed");
        tenant.finish(reader);
    }
    table.finish(reader);
    sampler
}

fn read_mode(reader: &mut ConfigReader, node: &YamlNode) -> Option<SamplerMode> {
    let text = reader.text("enabled", node)?;
    match text.as_str() {
        "auto" => return Some(SamplerMode::Auto),
        "true" => return Some(SamplerMode::On),
        "false" => return Some(SamplerMode::Off),
        _ => {}
    }
    reader.refuse(node.position, format!("enabled is {:?}; write auto, true or false", shorten(&text)));
    None
}

fn read_symbolize(reader: &mut ConfigReader, node: &YamlNode) -> Option<SymbolizeMode> {
    let text = reader.text("symbolize", node)?;
    match text.as_str() {
        "local" => return Some(SymbolizeMode::Local),
        "none" => return Some(SymbolizeMode::None),
        _ => {}
    }
    reader.refuse(node.position, format!("symbolize is {:?}; write local or none", shorten(&text)));
    None
}

fn read_window(reader: &mut ConfigReader, table: &ConfigTable<'_>, sampler: &mut SamplerSettings) {
    let Some(interval) = table.duration(reader, "window_interval") else { return };
    if (MIN_WINDOW_INTERVAL..=MAX_WINDOW_INTERVAL).contains(&interval) {
        sampler.window_interval = interval;
        return;
    }
    let [interval, min, max] =
        [interval, MIN_WINDOW_INTERVAL, MAX_WINDOW_INTERVAL].map(format_prometheus_duration);
    let message = format!("window_interval is {interval}; set {min} to {max}");
    reader.refuse(table.position_of("window_interval"), message);
}

fn read_bounds(reader: &mut ConfigReader, table: &ConfigTable<'_>, sampler: &mut SamplerSettings) {
    if let Some(memory) = table.parsed::<ByteSize>(reader, "max_memory_bytes") {
        if memory < MIN_MEMORY || memory > MAX_MEMORY {
            let message = format!("max_memory_bytes is {memory}; set {MIN_MEMORY} to {MAX_MEMORY}");
            reader.refuse(table.position_of("max_memory_bytes"), message);
        }
        sampler.max_memory = memory;
    }
    if let Some(percent) = table.parsed::<f64>(reader, "max_cpu_percent") {
        if !(percent > 0.0 && percent <= 100.0) {
            let message = format!("max_cpu_percent is {percent}; set a number above 0, up to 100");
            reader.refuse(table.position_of("max_cpu_percent"), message);
        }
        sampler.max_cpu_percent = percent;
    }
}

/// Reads `environment_variables`: names that become meta labels.
fn read_variables(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> Vec<String> {
    let Some(node) = table.get("environment_variables") else { return Vec::new() };
    let items = reader.list("environment_variables", node);
    if items.len() > MAX_ENVIRONMENT_VARIABLES {
        let message = format!(
            "environment_variables has {} items, the limit is {MAX_ENVIRONMENT_VARIABLES}; list fewer",
            items.len()
        );
        reader.refuse(node.position, message);
    }
    let mut names: Vec<String> = Vec::new();
    for item in items.iter().take(MAX_ENVIRONMENT_VARIABLES) {
        let Some(name) = reader.text("environment_variables", item) else { continue };
        if !is_variable_name(&name) {
            let message = format!(
                "{:?} is no name of an environment variable; write letters, digits and _, such as APP_VERSION",
                shorten(&name)
            );
            reader.refuse(item.position, message);
        } else if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn is_variable_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=MAX_VARIABLE_NAME_LENGTH).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn read_capabilities(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> BTreeSet<ExtraCapability> {
    let mut capabilities = BTreeSet::new();
    let Some(node) = table.get("extra_capabilities") else { return capabilities };
    for item in reader.list("extra_capabilities", node) {
        let Some(name) = reader.text("extra_capabilities", item) else { continue };
        let capability = match name.to_ascii_uppercase().trim_start_matches("CAP_") {
            "SYSLOG" => ExtraCapability::Syslog,
            "DAC_READ_SEARCH" => ExtraCapability::DacReadSearch,
            "CHECKPOINT_RESTORE" => ExtraCapability::CheckpointRestore,
            _ => {
                let message = format!(
                    "extra_capabilities has {:?}; write SYSLOG, DAC_READ_SEARCH or CHECKPOINT_RESTORE",
                    shorten(&name)
                );
                reader.refuse(item.position, message);
                continue;
            }
        };
        capabilities.insert(capability);
    }
    capabilities
}
