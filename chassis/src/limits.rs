//! Limits of one tenant, and overrides by tenant.

mod pyroscope;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::{ConfigError, ConfigSources, LoadedConfig, SettingLocation, SettingSource};
use crate::tenant::TenantId;
use crate::units::{ByteSize, duration_text, optional_duration_text};

/// Limits of one tenant, named as in Grafana Pyroscope. In overrides zero means "no limit", as in Grafana
/// Pyroscope. In this type it does only where the field states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantLimits {
    /// Upper bound of a decompressed profile. Example: `4MiB`.
    pub max_profile_size_bytes: ByteSize,
    /// Upper bound of samples in a profile. Example: `16000`.
    pub max_profile_stacktrace_samples: u32,
    /// Upper bound of labels on a sample. Example: `100`.
    pub max_profile_stacktrace_sample_labels: u32,
    /// Upper bound of frames in a stack. Deeper stacks lose their leaves. Example: `1000`.
    pub max_profile_stacktrace_depth: u32,
    /// Upper bound in bytes of the name of a function, a file or a mapping. Example: `65535`.
    pub max_profile_symbol_value_length: u32,
    /// Upper bound in bytes of a label name. Example: `1024`.
    pub max_label_name_length: u32,
    /// Upper bound in bytes of a label value. Example: `2048`.
    pub max_label_value_length: u32,
    /// Upper bound of labels on a series. Example: `30`.
    pub max_label_names_per_series: u32,
    /// Upper bound of the tenant's series in the memory of each shard. None: no limit. Example: `100000`.
    pub max_local_series_per_tenant: Option<u32>,
    /// Upper bound of tenants that have profiles, in memory or in blocks. Beyond it, new tenants are rejected
    /// and known ones are not. An override for a tenant admits it. Example: `10000`.
    pub max_tenants: u32,
    /// Upper bound of values of `__session_id__` in a series, which names the run of a program. With 0 the
    /// label is not stored. Example: `4`.
    pub max_sessions_per_series: u32,
    /// Stores label names unchanged. If disabled, dots become `_`, and names with other invalid characters are
    /// rejected. Example: `false`.
    pub disable_label_sanitization: bool,
    /// Rules that change, drop or keep series, as in Prometheus. Example: `[{action: labeldrop, regex:
    /// pod}]`.
    pub ingestion_relabeling_rules: Vec<Value>,
    /// Position of the server's default rules among the tenant's: `first`, `last` or `disabled`. They detect
    /// delta profiles of Go clients. Example: `last`.
    pub ingestion_relabeling_default_rules_position: DefaultRulesPosition,
    /// Rules with the actions keep and drop. They see the labels of a profile plus the `__type__` and
    /// `__unit__` of each of its sample types. Example: `[{action: drop, source_labels: [__type__], regex:
    /// alloc_.*}]`.
    pub sample_type_relabeling_rules: Vec<Value>,
    /// Upper bound of the age of a profile on arrival. Example: `1h`.
    #[serde(with = "duration_text")]
    pub reject_older_than: Duration,
    /// Upper bound of the distance into the future of a profile on arrival. Example: `10m`.
    #[serde(with = "duration_text")]
    pub reject_newer_than: Duration,
    /// Upper bound of the body of one push request, as sent. Example: `256MiB`.
    pub ingestion_body_limit: ByteSize,
    /// Bytes of decompressed profiles that each distributor accepts per second. Bytes beyond those of the
    /// request as sent are charged after it is stored. None: no limit. Example: `4MiB`.
    pub ingestion_rate: Option<ByteSize>,
    /// Burst in bytes above that rate. None: as many as the rate accepts in one second. Example: `2MiB`.
    pub ingestion_burst_size: Option<ByteSize>,
    /// Number of flame graph nodes if the query sets none. Example: `8192`.
    pub max_flamegraph_nodes_default: u32,
    /// Upper bound of the flame graph nodes that a query may request. Example: `1048576`.
    pub max_flamegraph_nodes_max: u32,
    /// Upper bound of the time range of a query. None or 0s: no limit. Example: `31d`.
    #[serde(with = "optional_duration_text")]
    pub max_query_length: Option<Duration>,
    /// Age up to which queries see profiles. Results report that older profiles are left out. None or 0s: no
    /// limit. Example: `90d`.
    #[serde(with = "optional_duration_text")]
    pub max_query_lookback: Option<Duration>,
    /// Retention period of single profiles. None: that of the server, `retention_period`. 0s keeps them for ever.
    /// Example: `7d`.
    #[serde(with = "optional_duration_text")]
    pub retention_period: Option<Duration>,
    /// Retention period of sums over 5 minutes. None: as long as single profiles. 0s keeps them for ever.
    /// Example: `30d`.
    #[serde(with = "optional_duration_text")]
    pub retention_period_5m: Option<Duration>,
    /// Retention period of sums over an hour. None: as long as single profiles. 0s keeps them for ever.
    /// Example: `365d`.
    #[serde(with = "optional_duration_text")]
    pub retention_period_1h: Option<Duration>,
    /// Retention period of sums over a day. None: as long as single profiles. 0s keeps them for ever.
    /// Example: `0s`.
    #[serde(with = "optional_duration_text")]
    pub retention_period_1d: Option<Duration>,
    /// Upper bound of the tenant's bytes that a query may read, as AnalyzeQuery estimates them for its
    /// selector. None: no limit. Example: `100GiB`.
    pub max_query_bytes: Option<ByteSize>,
    /// Upper bound of concurrent queries per querier. Further queries wait in the queue. Example: `16`.
    pub max_concurrent_queries: u32,
    /// Upper bound of the tenant's stored debug information in bytes. 0: no limit. Example: `100GiB`.
    pub debuginfo_max_bytes: ByteSize,
    /// Upper bound in bytes of the tenant's ad-hoc profiles, which are uploaded by hand. The oldest ones are
    /// evicted for a new one. Example: `512MiB`.
    pub max_adhoc_bytes: ByteSize,
    /// Upper bound in bytes of the tenant's UI settings and recording rules, at most 1 MiB. All tenants share
    /// 16 MiB. Example: `64KiB`.
    pub max_settings_bytes: ByteSize,
    /// Upper bound of one file of debug information. Example: `1GiB`.
    pub debuginfo_max_file_bytes: ByteSize,
    /// Timeout of an upload of debug information. After it, the upload may be retried. Example: `15m`.
    #[serde(with = "duration_text")]
    pub debuginfo_upload_timeout: Duration,
    /// Upper bound of concurrent uploads of debug information per node. Example: `32`.
    pub max_concurrent_debuginfo_uploads: u32,
}

/// Position of the server's default relabeling rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DefaultRulesPosition {
    /// Before the rules of the tenant.
    #[default]
    First,
    /// After the rules of the tenant.
    Last,
    /// The default rules do not apply.
    Disabled,
}

/// Limits of all tenants: one default, and overrides by tenant. Cheap to clone. Clones share replaced
/// overrides.
#[derive(Clone, Debug)]
pub struct LimitOverrides {
    table: Arc<RwLock<LimitTable>>,
}

#[derive(Debug)]
struct LimitTable {
    all: Arc<TenantLimits>,
    exceptions: BTreeMap<TenantId, Arc<TenantLimits>>,
    /// Settings that were ignored in runtime files so far, and those of them that were not returned to the
    /// caller yet.
    left_out: BTreeSet<String>,
    unsaid: BTreeSet<String>,
}

/// Contents of the runtime file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RuntimeFile {
    overrides: BTreeMap<String, Value>,
}

impl Default for TenantLimits {
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
            max_tenants: 10_000,
            max_sessions_per_series: 0,
            disable_label_sanitization: true,
            ingestion_relabeling_rules: Vec::new(),
            ingestion_relabeling_default_rules_position: DefaultRulesPosition::First,
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
            retention_period: None,
            retention_period_5m: None,
            retention_period_1h: None,
            retention_period_1d: None,
            max_query_bytes: None,
            max_concurrent_queries: 32,
            debuginfo_max_bytes: ByteSize::mib(100 << 10),
            max_adhoc_bytes: ByteSize::mib(512),
            max_settings_bytes: ByteSize::kib(64),
            debuginfo_max_file_bytes: ByteSize::mib(1024),
            debuginfo_upload_timeout: Duration::from_secs(15 * 60),
            max_concurrent_debuginfo_uploads: 32,
        }
    }
}

impl LimitOverrides {
    /// Creates limits that are equal for all tenants.
    pub fn new(all: TenantLimits) -> Self {
        let (exceptions, left_out, unsaid) = Default::default();
        let table = LimitTable { all: Arc::new(all), exceptions, left_out, unsaid };
        Self { table: Arc::new(RwLock::new(table)) }
    }

    /// Returns the limits of a tenant.
    pub fn for_tenant(&self, tenant: &TenantId) -> Arc<TenantLimits> {
        let table = self.table.read();
        Arc::clone(table.exceptions.get(tenant).unwrap_or(&table.all))
    }

    /// Returns the limits of tenants without an override.
    pub fn default_limits(&self) -> Arc<TenantLimits> {
        Arc::clone(&self.table.read().all)
    }

    /// Returns the limits of all tenants with an override.
    pub fn exceptions(&self) -> BTreeMap<TenantId, Arc<TenantLimits>> {
        self.table.read().exceptions.clone()
    }

    /// Replaces all overrides by those of a runtime file: `overrides: {team-a: {reject_older_than: 2h}}`.
    /// Limits that an override does not set are those of the default. Files of Grafana Pyroscope are accepted
    /// too. Settings with another name here are renamed. Settings without a counterpart are ignored, see
    /// [`LimitOverrides::take_ignored_settings`].
    ///
    /// An invalid file changes nothing, and all its errors are returned at once. `check` returns the invalid
    /// settings of an override and the reason for each.
    pub fn replace_exceptions(
        &self,
        path: &Path,
        yaml: &str,
        check: impl Fn(&TenantLimits) -> Vec<(&'static str, String)>,
    ) -> Result<(), ConfigError> {
        let sources = ConfigSources::default().with_yaml(path, yaml)?;
        let (file, mut errors) = sources.clone().load_partial::<RuntimeFile>();
        let mut exceptions = BTreeMap::new();
        let mut left_out = BTreeSet::new();
        for (name, table) in file.map(|file| file.value.overrides).unwrap_or_default() {
            let key = format!("overrides.{name}");
            let refused = |reason: String| {
                let place = SettingLocation {
                    origin: SettingSource::File(path.to_owned()),
                    line: sources.line_of(&key),
                };
                ConfigError::Value { path: key.clone(), reason, hint: String::new(), place }
            };
            let tenant = match name.parse::<TenantId>() {
                Ok(tenant) => tenant,
                Err(error) => {
                    errors.push(refused(error.to_string()));
                    continue;
                }
            };
            let above = match table {
                Value::Object(above) => above,
                Value::Null => Map::new(),
                _ => {
                    errors.push(refused("expected a table of limits".to_owned()));
                    continue;
                }
            };
            let lines = sources.lines_below(&format!("{key}."));
            let (loaded, mut wrong) = self.read_exception(path, above, lines, &mut left_out);
            if let Some(loaded) = loaded {
                let bad = check(&loaded.value);
                wrong.extend(bad.into_iter().map(|(setting, reason)| loaded.setting_error(setting, reason)));
                // An unchanged override keeps its `Arc`, so callers need not recompute derived values.
                let before = self.for_tenant(&tenant);
                let limits = if *before == loaded.value { before } else { Arc::new(loaded.value) };
                exceptions.insert(tenant, limits);
            }
            errors.extend(wrong.into_iter().map(|error| with_tenant_path(&name, error)));
        }
        if let Some(error) = ConfigError::from_errors(errors) {
            return Err(error);
        }
        let mut table = self.table.write();
        table.exceptions = exceptions;
        let fresh: Vec<String> = left_out.difference(&table.left_out).cloned().collect();
        table.left_out.extend(fresh.iter().cloned());
        table.unsaid.extend(fresh);
        Ok(())
    }

    /// Parses an override on top of the default limits. Returns the errors in it.
    fn read_exception(
        &self,
        path: &Path,
        mut above: Map<String, Value>,
        lines: BTreeMap<String, u32>,
        left_out: &mut BTreeSet<String>,
    ) -> (Option<LoadedConfig<TenantLimits>>, Vec<ConfigError>) {
        let below = serde_json::to_value(&*self.default_limits()).expect("limits serialise to JSON");
        let below = below.as_object().cloned().expect("limits are a table");
        let mut wrong = Vec::new();
        for (setting, reason) in pyroscope::translate_exception(&mut above, &below, left_out) {
            let line = lines.get(setting).copied();
            let place = SettingLocation { origin: SettingSource::File(path.to_owned()), line };
            let hint = String::new();
            wrong.push(ConfigError::Value { path: setting.to_owned(), reason, hint, place });
        }
        let (loaded, errors) =
            ConfigSources::from_tables(path, below, above, lines).load_partial::<TenantLimits>();
        wrong.extend(errors);
        (loaded, wrong)
    }

    /// Returns the settings that were ignored in runtime files since the last call because they have no
    /// counterpart. Each is returned once, however many tenants set it and however often the file is read.
    pub fn take_ignored_settings(&self) -> BTreeSet<String> {
        let mut table = self.table.write();
        std::mem::take(&mut table.unsaid)
    }
}

fn with_tenant_path(tenant: &str, error: ConfigError) -> ConfigError {
    match error {
        ConfigError::Value { path, reason, hint, place } => {
            ConfigError::Value { path: format!("overrides.{tenant}.{path}"), reason, hint, place }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "runtime.yaml";

    fn replace(overrides: &LimitOverrides, yaml: &str) -> Result<(), ConfigError> {
        overrides.replace_exceptions(Path::new(FILE), yaml, |_| Vec::new())
    }

    #[test]
    fn an_exception_says_only_what_differs() {
        let all = TenantLimits { max_label_names_per_series: 40, ..TenantLimits::default() };
        let overrides = LimitOverrides::new(all.clone());
        let seen_by_a_role = overrides.clone();
        let yaml = "overrides:\n  team-a:\n    reject_older_than: 2h\n    max_profile_size_bytes: 8MiB\n";
        replace(&overrides, yaml).unwrap();
        let team_a = TenantLimits {
            reject_older_than: Duration::from_secs(7200),
            max_profile_size_bytes: ByteSize::mib(8),
            ..all.clone()
        };
        assert_eq!(*seen_by_a_role.for_tenant(&"team-a".parse().unwrap()), team_a);
        assert_eq!(*seen_by_a_role.for_tenant(&TenantId::anonymous()), all);
        replace(&overrides, "").unwrap();
        assert_eq!(*seen_by_a_role.for_tenant(&"team-a".parse().unwrap()), all);
    }

    #[test]
    fn a_file_that_cannot_be_taken_changes_nothing() {
        let overrides = LimitOverrides::new(TenantLimits::default());
        replace(&overrides, "overrides: {a: {reject_newer_than: 1m}}").unwrap();
        let before = overrides.for_tenant(&"a".parse().unwrap());
        let error = replace(&overrides, "overrides: {a: {reject_newer_then: 5m}}").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("overrides.a.reject_newer_then: unknown field"), "{text}");
        assert!(text.contains("did you mean `reject_newer_than`?") && text.contains(FILE), "{text}");
        assert!(replace(&overrides, "overrides: {\"a/b\": {}}").is_err());
        assert_eq!(overrides.for_tenant(&"a".parse().unwrap()), before);
    }

    #[test]
    fn what_does_not_change_stays_the_same_and_what_cannot_be_names_the_setting() {
        let overrides = LimitOverrides::new(TenantLimits::default());
        let tenant: TenantId = "a".parse().unwrap();
        let yaml = "overrides: {a: {ingestion_relabeling_rules: [{action: labeldrop, regex: pod}]}}";
        replace(&overrides, yaml).unwrap();
        let before = overrides.for_tenant(&tenant);
        assert_eq!(before.ingestion_relabeling_rules[0]["regex"], "pod");
        replace(&overrides, yaml).unwrap();
        assert!(Arc::ptr_eq(&before, &overrides.for_tenant(&tenant)));
        let check = |_: &TenantLimits| vec![("ingestion_relabeling_rules", "rule 1 is wrong".to_owned())];
        let error = overrides.replace_exceptions(Path::new(FILE), yaml, check).unwrap_err().to_string();
        let expected =
            "overrides.a.ingestion_relabeling_rules: rule 1 is wrong (from file runtime.yaml, line 1)";
        assert_eq!(error, expected);
    }

    #[test]
    fn all_that_is_wrong_in_a_file_is_said_with_its_lines() {
        let overrides = LimitOverrides::new(TenantLimits::default());
        let yaml = "overrides:\n  a:\n    reject_newer_then: 5m\n    max_sessions_per_series: many\n  b/c: {}\n  d.e:\n    \
                    ingestion_rate_mb: fast\nring: {}\n";
        let error = replace(&overrides, yaml).unwrap_err();
        let said: Vec<String> = error.into_errors().iter().map(ToString::to_string).collect();
        for (begin, end) in [
            ("overrides.a.reject_newer_then: unknown field", "(from file runtime.yaml, line 3)"),
            ("overrides.a.max_sessions_per_series: invalid type", "(from file runtime.yaml, line 4)"),
            ("overrides.b/c: ", "(from file runtime.yaml, line 5)"),
            ("overrides.d.e.ingestion_rate_mb: \"fast\" is not a number", "(from file runtime.yaml, line 7)"),
            ("ring: unknown field", "(from file runtime.yaml, line 8)"),
        ] {
            let is_said = said.iter().any(|line| line.starts_with(begin) && line.ends_with(end));
            assert!(is_said, "{begin} {end}: {said:#?}");
        }
        assert_eq!(said.len(), 5, "{said:#?}");
    }

    #[test]
    fn file_of_pyroscope_loads_with_each_meaningless_setting_returned_once() {
        let all = TenantLimits { max_query_length: Some(Duration::from_secs(60)), ..TenantLimits::default() };
        let overrides = LimitOverrides::new(all.clone());
        let yaml = r#"
overrides:
  a:
    ingestion_rate_mb: 4.5
    ingestion_burst_size_mb: 2
    ingestion_body_limit_mb: 8
    max_global_series_per_tenant: 0
    compactor_blocks_retention_period: 744h
    store_gateway_tenant_shard_size: 3
    distributor_usage_groups: {app: '{service_name="shop"}'}
    max_profile_size_bytes: 0
    max_profile_stacktrace_samples: 0
    max_local_series_per_tenant: 0
    max_query_length: 0
    max_query_lookback: 0s
    reject_older_than: 0
  b:
    ingestion_rate_mb: 0
    ingestion_body_limit_mb: 0
    compactor_blocks_retention_period: 0
    max_sessions_per_series: 0
  c:
"#;
        replace(&overrides, yaml).unwrap();
        let a = TenantLimits {
            ingestion_rate: Some(ByteSize::kib(4608)),
            ingestion_burst_size: Some(ByteSize::mib(2)),
            ingestion_body_limit: ByteSize::mib(8),
            max_profile_size_bytes: ByteSize::mib(8),
            max_profile_stacktrace_samples: u32::MAX,
            max_query_length: None,
            reject_older_than: Duration::ZERO,
            retention_period: Some(Duration::from_secs(744 * 3600)),
            ..all.clone()
        };
        assert_eq!(*overrides.for_tenant(&"a".parse().unwrap()), a);
        let b = TenantLimits { retention_period: Some(Duration::ZERO), ..all.clone() };
        assert_eq!(*overrides.for_tenant(&"b".parse().unwrap()), b, "zero keeps profiles for ever");
        assert_eq!(*overrides.for_tenant(&"c".parse().unwrap()), all);
        let left_out =
            ["distributor_usage_groups", "max_global_series_per_tenant", "store_gateway_tenant_shard_size"];
        assert!(overrides.take_ignored_settings().iter().eq(left_out), "each once");
        replace(&overrides, yaml).unwrap();
        assert!(overrides.take_ignored_settings().is_empty());
        let error =
            replace(&overrides, "overrides: {a: {ingestion_rate: 1MiB, ingestion_rate_mb: 1}}").unwrap_err();
        assert!(error.to_string().contains("ingestion_rate is set as well"), "{error}");
        let twice = "overrides: {a: {retention_period: 1h, compactor_blocks_retention_period: 2h}}";
        let error = replace(&overrides, twice).unwrap_err();
        assert!(error.to_string().contains("retention_period is set as well"), "{error}");
    }

    #[test]
    fn limits_are_written_as_they_are_read() {
        let text = serde_json::to_string(&TenantLimits::default()).unwrap();
        assert!(text.contains("\"reject_older_than\":\"1h\"") && text.contains("\"4MiB\""), "{text}");
        assert_eq!(serde_json::from_str::<TenantLimits>(&text).unwrap(), TenantLimits::default());
    }
}
