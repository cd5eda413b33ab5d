//! What one tenant may do, and the exceptions to it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::{ConfigError, Origin, Sources};
use crate::tenant::TenantId;
use crate::units::{ByteSize, duration_text, optional_duration_text};

/// The limits of one tenant. Named as users of this ecosystem know them; zero never means "without limit".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The largest profile, decompressed. Example: `4MiB`.
    pub max_profile_size_bytes: ByteSize,
    /// The most samples in a profile. Example: `16000`.
    pub max_profile_stacktrace_samples: u32,
    /// The most labels on a sample. Example: `100`.
    pub max_profile_stacktrace_sample_labels: u32,
    /// The deepest stack, in frames; deeper ones lose their leaves. Example: `1000`.
    pub max_profile_stacktrace_depth: u32,
    /// The longest name of a function, a file or a mapping, in bytes. Example: `65535`.
    pub max_profile_symbol_value_length: u32,
    /// The longest name of a label, in bytes. Example: `1024`.
    pub max_label_name_length: u32,
    /// The longest value of a label, in bytes. Example: `2048`.
    pub max_label_value_length: u32,
    /// The most labels of a series. Example: `30`.
    pub max_label_names_per_series: u32,
    /// The most series that a tenant has in the memory of each shard. None: as many as come. Example: `100000`.
    pub max_local_series_per_tenant: Option<u32>,
    /// How many values `__session_id__` has in a series, which names the run of a program; with 0 it is not stored.
    /// Example: `4`.
    pub max_sessions_per_series: u32,
    /// Whether names of labels are taken as they are; otherwise their dots become `_`, and other characters are refused.
    /// Example: `false`.
    pub disable_label_sanitization: bool,
    /// Rules that change, drop or keep series, as Prometheus has them. Example: `[{action: labeldrop, regex: pod}]`.
    pub ingestion_relabeling_rules: Vec<Value>,
    /// Where the server's own rules stand among these, which know what Go clients call differences. Example: `last`.
    pub ingestion_relabeling_default_rules_position: DefaultRules,
    /// Rules of the actions keep and drop that see the labels of a profile with the `__type__` and the `__unit__` of each
    /// of its sample types. Example: `[{action: drop, source_labels: [__type__], regex: alloc_.*}]`.
    pub sample_type_relabeling_rules: Vec<Value>,
    /// How old a profile may be when it arrives. Example: `1h`.
    #[serde(with = "duration_text")]
    pub reject_older_than: Duration,
    /// How far in the future a profile may lie when it arrives. Example: `10m`.
    #[serde(with = "duration_text")]
    pub reject_newer_than: Duration,
    /// The largest body of one push request, as sent. Example: `256MiB`.
    pub ingestion_body_limit: ByteSize,
    /// How many bytes of profiles each distributor takes in a second, decompressed. What a request is beyond its bytes as
    /// sent is charged once it is stored. None: as many as come. Example: `4MiB`.
    pub ingestion_rate: Option<ByteSize>,
    /// How many bytes may come at once above that rate. None: as many as the rate gives in a second. Example: `2MiB`.
    pub ingestion_burst_size: Option<ByteSize>,
    /// How many nodes a flame graph has where the query does not say. Example: `8192`.
    pub max_flamegraph_nodes_default: u32,
    /// The most nodes of a flame graph that a query may ask for. Example: `1048576`.
    pub max_flamegraph_nodes_max: u32,
    /// The longest time that a query may ask about. None or 0s: any. Example: `31d`.
    #[serde(with = "optional_duration_text")]
    pub max_query_length: Option<Duration>,
    /// How far back queries see; answers say that older profiles are left out. None or 0s: as far as there are any.
    /// Example: `90d`.
    #[serde(with = "optional_duration_text")]
    pub max_query_lookback: Option<Duration>,
    /// How much a query may read of the tenant: what its selector means, as AnalyzeQuery estimates it. None: anything.
    /// Example: `100GiB`.
    pub max_query_bytes: Option<ByteSize>,
    /// How many queries each querier answers at once; others wait for their turn. Example: `16`.
    pub max_concurrent_queries: u32,
    /// How many bytes of debug information are kept of the tenant. 0: any number. Example: `100GiB`.
    pub max_debuginfo_bytes: ByteSize,
    /// How many bytes of profiles uploaded by hand are kept of the tenant; the oldest make room for another one. Example:
    /// `512MiB`.
    pub max_adhoc_bytes: ByteSize,
    /// How many bytes of settings of pages and recording rules are kept of the tenant, at most 1 MiB; all tenants share
    /// 16 MiB. Example: `64KiB`.
    pub max_settings_bytes: ByteSize,
    /// The largest file of debug information. Example: `1GiB`.
    pub debuginfo_upload_max_size: ByteSize,
    /// How long an upload of debug information may take; one that is older may be tried again. Example: `15m`.
    #[serde(with = "duration_text")]
    pub debuginfo_upload_max_duration: Duration,
    /// How many uploads of debug information each node takes at once. Example: `32`.
    pub max_concurrent_debuginfo_uploads: u32,
}

/// Where the server's own rules for labels stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultRules {
    /// Before those of the tenant.
    #[default]
    First,
    /// After them.
    Last,
    /// Nowhere.
    Disabled,
}

/// The limits of every tenant: one set for all, and exceptions. Cheap to clone; clones see what one replaces.
#[derive(Clone, Debug)]
pub struct Overrides {
    table: Arc<RwLock<Table>>,
}

#[derive(Debug)]
struct Table {
    all: Arc<Limits>,
    exceptions: BTreeMap<TenantId, Arc<Limits>>,
}

/// The runtime file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RuntimeFile {
    overrides: BTreeMap<TenantId, Map<String, Value>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_profile_size_bytes: ByteSize::mib(4),
            max_profile_stacktrace_samples: 16_000,
            max_profile_stacktrace_sample_labels: 100,
            max_profile_stacktrace_depth: 1_000,
            max_profile_symbol_value_length: 65_535,
            max_label_name_length: 1_024,
            max_label_value_length: 2_048,
            max_label_names_per_series: 30,
            max_local_series_per_tenant: None,
            max_sessions_per_series: 0,
            disable_label_sanitization: true,
            ingestion_relabeling_rules: Vec::new(),
            ingestion_relabeling_default_rules_position: DefaultRules::First,
            sample_type_relabeling_rules: Vec::new(),
            reject_older_than: Duration::from_secs(60 * 60),
            reject_newer_than: Duration::from_secs(10 * 60),
            ingestion_body_limit: ByteSize::mib(256),
            ingestion_rate: None,
            ingestion_burst_size: None,
            max_flamegraph_nodes_default: 8_192,
            max_flamegraph_nodes_max: 1 << 20,
            max_query_length: None,
            max_query_lookback: None,
            max_query_bytes: None,
            max_concurrent_queries: 32,
            max_debuginfo_bytes: ByteSize::mib(100 << 10),
            max_adhoc_bytes: ByteSize::mib(512),
            max_settings_bytes: ByteSize::kib(64),
            debuginfo_upload_max_size: ByteSize::mib(1024),
            debuginfo_upload_max_duration: Duration::from_secs(15 * 60),
            max_concurrent_debuginfo_uploads: 32,
        }
    }
}

impl Overrides {
    /// The same limits for all.
    pub fn new(all: Limits) -> Self {
        let table = Table { all: Arc::new(all), exceptions: BTreeMap::new() };
        Self { table: Arc::new(RwLock::new(table)) }
    }

    /// The limits of a tenant.
    pub fn of(&self, tenant: &TenantId) -> Arc<Limits> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(table.exceptions.get(tenant).unwrap_or(&table.all))
    }

    /// Replaces all exceptions by those of a runtime file: `overrides: {team-a: {reject_older_than: 2h}}`. What an
    /// exception does not say is as for all. A file that cannot be taken changes nothing; `check` says of an exception
    /// which setting cannot be so, and why.
    pub fn replace(
        &self,
        path: &Path,
        yaml: &str,
        check: impl Fn(&Limits) -> Result<(), (&'static str, String)>,
    ) -> Result<(), ConfigError> {
        let file = Sources::default().yaml(path, yaml)?.load::<RuntimeFile>()?.value;
        let all = serde_json::to_value(&*self.all()).expect("limits serialise to JSON");
        let mut exceptions = BTreeMap::new();
        for (tenant, exception) in file.overrides {
            let below = all.as_object().cloned().expect("limits are a table");
            let loaded = Sources::table(path, below, exception).load::<Limits>();
            let limits = loaded.map_err(|error| of_tenant(&tenant, error))?.value;
            check(&limits).map_err(|(setting, reason)| {
                let origin = Origin::File(path.to_owned());
                let wrong =
                    ConfigError::Value { path: setting.to_owned(), reason, hint: String::new(), origin };
                of_tenant(&tenant, wrong)
            })?;
            // What did not change stays the same, so that nobody makes anew what was made of it.
            let before = self.of(&tenant);
            exceptions.insert(tenant, if *before == limits { before } else { Arc::new(limits) });
        }
        self.table.write().unwrap_or_else(PoisonError::into_inner).exceptions = exceptions;
        Ok(())
    }

    fn all(&self) -> Arc<Limits> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner).all)
    }
}

fn of_tenant(tenant: &TenantId, error: ConfigError) -> ConfigError {
    match error {
        ConfigError::Value { path, reason, hint, origin } => {
            ConfigError::Value { path: format!("overrides.{tenant}.{path}"), reason, hint, origin }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "runtime.yaml";

    fn replace(overrides: &Overrides, yaml: &str) -> Result<(), ConfigError> {
        overrides.replace(Path::new(FILE), yaml, |_| Ok(()))
    }

    #[test]
    fn an_exception_says_only_what_differs() {
        let all = Limits { max_label_names_per_series: 40, ..Limits::default() };
        let overrides = Overrides::new(all.clone());
        let seen_by_a_role = overrides.clone();
        let yaml = "overrides:\n  team-a:\n    reject_older_than: 2h\n    max_profile_size_bytes: 8MiB\n";
        replace(&overrides, yaml).unwrap();
        let team_a = Limits {
            reject_older_than: Duration::from_secs(7200),
            max_profile_size_bytes: ByteSize::mib(8),
            ..all.clone()
        };
        assert_eq!(*seen_by_a_role.of(&"team-a".parse().unwrap()), team_a);
        assert_eq!(*seen_by_a_role.of(&TenantId::anonymous()), all);
        replace(&overrides, "").unwrap();
        assert_eq!(*seen_by_a_role.of(&"team-a".parse().unwrap()), all);
    }

    #[test]
    fn a_file_that_cannot_be_taken_changes_nothing() {
        let overrides = Overrides::new(Limits::default());
        replace(&overrides, "overrides: {a: {reject_newer_than: 1m}}").unwrap();
        let before = overrides.of(&"a".parse().unwrap());
        let error = replace(&overrides, "overrides: {a: {reject_newer_then: 5m}}").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("overrides.a.reject_newer_then: unknown field"), "{text}");
        assert!(text.contains("did you mean `reject_newer_than`?") && text.contains(FILE), "{text}");
        assert!(replace(&overrides, "overrides: {\"a/b\": {}}").is_err());
        assert_eq!(overrides.of(&"a".parse().unwrap()), before);
    }

    #[test]
    fn what_does_not_change_stays_the_same_and_what_cannot_be_names_the_setting() {
        let overrides = Overrides::new(Limits::default());
        let tenant: TenantId = "a".parse().unwrap();
        let yaml = "overrides: {a: {ingestion_relabeling_rules: [{action: labeldrop, regex: pod}]}}";
        replace(&overrides, yaml).unwrap();
        let before = overrides.of(&tenant);
        assert_eq!(before.ingestion_relabeling_rules[0]["regex"], "pod");
        replace(&overrides, yaml).unwrap();
        assert!(Arc::ptr_eq(&before, &overrides.of(&tenant)));
        let check = |_: &Limits| Err(("ingestion_relabeling_rules", "rule 1 is wrong".to_owned()));
        let error = overrides.replace(Path::new(FILE), yaml, check).unwrap_err().to_string();
        assert_eq!(error, "overrides.a.ingestion_relabeling_rules: rule 1 is wrong (from file runtime.yaml)");
    }

    #[test]
    fn limits_are_written_as_they_are_read() {
        let text = serde_json::to_string(&Limits::default()).unwrap();
        assert!(text.contains("\"reject_older_than\":\"1h\"") && text.contains("\"4MiB\""), "{text}");
        assert_eq!(serde_json::from_str::<Limits>(&text).unwrap(), Limits::default());
    }
}
