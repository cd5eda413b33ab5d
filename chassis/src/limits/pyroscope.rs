//! Overrides in the format of Grafana Pyroscope.
//!
//! Names and units of some limits differ, `0` disables a limit, and some settings have no counterpart here.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::units::{ByteSize, parse_duration};

/// Limits that Pyroscope gives in MiB and Athanor as sizes.
const RENAMED_MEBIBYTE_LIMITS: [(&str, &str); 3] = [
    ("ingestion_rate_mb", "ingestion_rate"),
    ("ingestion_burst_size_mb", "ingestion_burst_size"),
    ("ingestion_body_limit_mb", BODY_LIMIT_NAME),
];
const BODY_LIMIT_NAME: &str = "ingestion_body_limit";
const PROFILE_SIZE_NAME: &str = "max_profile_size_bytes";

/// Numeric limits, which `0` sets to the maximum.
const COUNT_LIMITS: [&str; 6] = [
    "max_profile_stacktrace_samples",
    "max_profile_stacktrace_sample_labels",
    "max_profile_stacktrace_depth",
    "max_profile_symbol_value_length",
    "max_flamegraph_nodes_default",
    "max_flamegraph_nodes_max",
];
/// Optional limits, which `0` disables.
const OPTIONAL_LIMITS: [&str; 6] = [
    "ingestion_rate",
    "ingestion_burst_size",
    "max_local_series_per_tenant",
    "max_query_length",
    "max_query_lookback",
    "max_query_bytes",
];
/// Durations that `0` disables in both systems.
const DURATION_LIMITS: [&str; 3] = ["reject_older_than", "reject_newer_than", "retention_period"];
/// Name of the retention period in earlier versions.
const EARLIER_RETENTION_NAME: &str = "compactor_blocks_retention_period";
const RETENTION_NAME: &str = "retention_period";

/// Settings without a counterpart.
const UNSUPPORTED_SETTINGS: [&str; 12] = [
    "async_ingest",
    "enforce_labels_order",
    "ingestion_artificial_delay",
    "ingestion_limit",
    "ingestion_tenant_shard_size",
    "max_flamegraph_nodes_on_select_merge_profile",
    "max_global_series_per_tenant",
    "max_query_parallelism",
    "recording_rules",
    "split_queries_by_interval",
    "symbolizer",
    "write_path",
];
/// Prefixes of further settings without a counterpart.
const UNSUPPORTED_SETTING_PREFIXES: [&str; 8] = [
    "adaptive_placement_",
    "compactor_",
    "distributor_",
    "enable_query_",
    "query_",
    "s3_sse_",
    "store_gateway_",
    "write_path_",
];

/// Rewrites an override to the names and units of [`TenantLimits`](super::TenantLimits), and adds settings
/// without a counterpart to `left_out`. `below` has the default limits. Errors are pairs of setting and
/// reason.
pub(super) fn translate_exception(
    exception: &mut Map<String, Value>,
    below: &Map<String, Value>,
    left_out: &mut BTreeSet<String>,
) -> Vec<(&'static str, String)> {
    exception.retain(|name, _| {
        let has_meaning = is_supported_setting(name);
        if !has_meaning {
            left_out.insert(name.clone());
        }
        has_meaning
    });
    let errors = rename_settings(exception);
    for (name, value) in exception.iter_mut().filter(|(_, value)| is_zero(value)) {
        match name.as_str() {
            name if COUNT_LIMITS.contains(&name) => *value = u32::MAX.into(),
            name if OPTIONAL_LIMITS.contains(&name) => *value = Value::Null,
            name if DURATION_LIMITS.contains(&name) => *value = "0s".into(),
            _ => {}
        }
    }
    // Limits that bound the memory of the server stay in force.
    if exception.get(BODY_LIMIT_NAME).is_some_and(is_zero) {
        exception.remove(BODY_LIMIT_NAME);
    }
    if exception.get(PROFILE_SIZE_NAME).is_some_and(is_zero) {
        let body_limit =
            exception.get(BODY_LIMIT_NAME).or(below.get(BODY_LIMIT_NAME)).cloned().unwrap_or_default();
        exception.insert(PROFILE_SIZE_NAME.to_owned(), body_limit);
    }
    errors
}

fn is_supported_setting(name: &str) -> bool {
    let is_unsupported = UNSUPPORTED_SETTINGS.contains(&name)
        || UNSUPPORTED_SETTING_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    name == EARLIER_RETENTION_NAME || !is_unsupported
}

fn rename_settings(exception: &mut Map<String, Value>) -> Vec<(&'static str, String)> {
    let mut errors = Vec::new();
    if let Some(value) = exception.remove(EARLIER_RETENTION_NAME)
        && exception.insert(RETENTION_NAME.to_owned(), value).is_some()
    {
        let reason = format!("{RETENTION_NAME} is set as well; remove one of both settings");
        errors.push((EARLIER_RETENTION_NAME, reason));
    }
    for (name, renamed) in RENAMED_MEBIBYTE_LIMITS {
        let Some(value) = exception.remove(name) else { continue };
        if exception.contains_key(renamed) {
            errors.push((name, format!("{renamed} is set as well; remove one of both settings")));
            continue;
        }
        match value.as_f64().and_then(bytes_of_mebibytes) {
            Some(size) => drop(exception.insert(renamed.to_owned(), size.get().into())),
            None => errors.push((name, format!("{value} is not a number of MiB; write for example 4"))),
        }
    }
    errors
}

fn bytes_of_mebibytes(mebibytes: f64) -> Option<ByteSize> {
    // Bound below which each number of bytes is exact.
    const MAX_MEBIBYTES: f64 = (1_u64 << 33) as f64;
    let fits = (0.0..=MAX_MEBIBYTES).contains(&mebibytes);
    fits.then(|| ByteSize::bytes((mebibytes * f64::from(1_u32 << 20)).ceil() as u64))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => {
            parse_duration(text).is_ok_and(|span| span.is_zero())
                || text.parse::<ByteSize>().is_ok_and(|size| size.get() == 0)
        }
        _ => false,
    }
}
