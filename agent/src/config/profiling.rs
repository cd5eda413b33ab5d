//! Profile kinds of a job: the section `profiling_config`, with the keys of Parca.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::shorten;
use super::reader::{ConfigReader, ConfigTable};

/// Maximum seconds that a target may record.
const MAX_SECONDS: u64 = 3600;

/// Settings of all kinds of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfilingSettings {
    /// Settings by name of the kind, with disabled ones.
    pub kinds: BTreeMap<String, KindSettings>,
    /// Prefix of all paths. Empty for none.
    pub path_prefix: String,
}

/// Settings of a profile kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindSettings {
    /// True if targets are scraped for the kind.
    pub enabled: bool,
    /// Path without the prefix.
    pub path: String,
    /// Parameters of the request, besides those of the job.
    pub params: BTreeMap<String, Vec<String>>,
    /// True if the target records for a duration.
    pub is_delta: bool,
    /// Duration of the recording in seconds. None for the interval less one second.
    pub seconds: Option<u32>,
}

/// Built-in kinds: name, path, whether the target records for a duration, whether it is enabled.
const BUILT_IN_KINDS: [(&str, &str, bool, bool); 9] = [
    ("process_cpu", "/debug/pprof/profile", true, true),
    ("memory", "/debug/pprof/allocs", false, true),
    ("goroutine", "/debug/pprof/goroutine", false, true),
    ("mutex", "/debug/pprof/mutex", false, true),
    ("block", "/debug/pprof/block", false, true),
    ("fgprof", "/debug/fgprof", true, false),
    ("godeltaprof_memory", "/debug/pprof/delta_heap", false, false),
    ("godeltaprof_mutex", "/debug/pprof/delta_mutex", false, false),
    ("godeltaprof_block", "/debug/pprof/delta_block", false, false),
];

// === impl ProfilingSettings ===

impl Default for ProfilingSettings {
    fn default() -> Self {
        let kinds = BUILT_IN_KINDS.map(|(name, path, is_delta, enabled)| {
            let kind = KindSettings { enabled, is_delta, ..KindSettings::custom(path) };
            (name.to_owned(), kind)
        });
        ProfilingSettings { kinds: kinds.into(), path_prefix: String::new() }
    }
}

// === impl KindSettings ===

impl KindSettings {
    /// Returns an enabled kind with a path of its own.
    pub fn custom(path: &str) -> Self {
        KindSettings {
            enabled: true,
            path: path.to_owned(),
            params: BTreeMap::new(),
            is_delta: false,
            seconds: None,
        }
    }

    /// Returns the seconds that a target records, if it records for a duration.
    pub fn recorded_seconds(&self, interval: Duration) -> Option<u32> {
        let default = || u32::try_from(interval.as_secs().saturating_sub(1)).unwrap_or(u32::MAX).max(1);
        self.seconds.or_else(|| self.is_delta.then(default))
    }
}

/// Reads `profiling_config` of a job.
pub(super) fn read_profiling(reader: &mut ConfigReader, job: &ConfigTable<'_>) -> ProfilingSettings {
    let mut settings = ProfilingSettings::default();
    let Some(section) = job.get("profiling_config").and_then(|node| reader.table("profiling_config", node))
    else {
        return settings;
    };
    settings.path_prefix = section.text(reader, "path_prefix").unwrap_or_default();
    if let Some(kinds) = section.get("pprof_config").and_then(|node| reader.table("pprof_config", node)) {
        for entry in kinds.entries() {
            let Some(kind) = reader.table("pprof_config", &entry.node) else { continue };
            if !is_kind_name(&entry.key) {
                let name = shorten(&entry.key);
                reader.refuse(
                    entry.key_position,
                    format!("kind {name:?} has an invalid name; use letters, digits and _"),
                );
            }
            let known = settings.kinds.get(&entry.key).cloned();
            let read = read_kind(reader, &kind, known);
            kind.finish(reader);
            settings.kinds.insert(entry.key.clone(), read);
        }
    }
    section.finish(reader);
    settings
}

fn is_kind_name(name: &str) -> bool {
    (1..=100).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Reads the settings of a kind. A built-in kind that is named is enabled unless the section disables it.
fn read_kind(
    reader: &mut ConfigReader,
    table: &ConfigTable<'_>,
    known: Option<KindSettings>,
) -> KindSettings {
    let is_built_in = known.is_some();
    let mut kind = known.unwrap_or_else(|| KindSettings::custom(""));
    kind.enabled = table.truth(reader, "enabled").unwrap_or(true);
    if let Some(path) = table.filled_text(reader, "path") {
        kind.path = path;
    }
    if let Some(is_delta) = table.truth(reader, "delta") {
        kind.is_delta = is_delta;
    }
    kind.params = read_params(reader, table);
    if let Some(node) = table.get("seconds") {
        let seconds =
            reader.number("seconds", node, MAX_SECONDS).and_then(|seconds| u32::try_from(seconds).ok());
        kind.seconds = seconds.filter(|&seconds| seconds > 0);
    }
    table.ignore_all(reader, &["keep_sample_type"]);
    if kind.path.is_empty() && !is_built_in && kind.enabled {
        reader.refuse(table.position, "a kind of its own has no path; set path");
    }
    kind
}

/// Reads the parameters of requests: a table of names and lists of values.
pub(super) fn read_params(
    reader: &mut ConfigReader,
    table: &ConfigTable<'_>,
) -> BTreeMap<String, Vec<String>> {
    let Some(params) = table.get("params").and_then(|node| reader.table("params", node)) else {
        return BTreeMap::new();
    };
    let entries = params.entries().iter();
    entries
        .map(|entry| {
            (entry.key.clone(), reader.texts(&format!("params.{}", shorten(&entry.key)), &entry.node))
        })
        .collect()
}
