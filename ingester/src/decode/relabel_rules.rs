//! Configuration of a tenant's series: limits on labels, and relabeling rules that change, drop or keep.
//! Rules are parsed once for each configuration, not for each profile.

use std::collections::HashMap;
use std::sync::Arc;

use athanor_chassis::{DefaultRulesPosition, ErrorCode, Status, TenantLimits};
use athanor_profile::labeling::normalize::{LabelLimits, SeriesLabelsError, normalize_relabeled};
use athanor_profile::labeling::relabel::{self, MAX_LABELS_DURING_RELABEL, RelabelRule, RelabelRuleError};
use athanor_profile::{Labels, ProfileType, ValueType};
use serde_json::Value;

const SERIES_RULES_SETTING: &str = "limits.ingestion_relabeling_rules";
const TYPE_RULES_SETTING: &str = "limits.sample_type_relabeling_rules";
const METRIC_NAME_LABEL: &str = "__name__";
/// Label that marks deltas of a client: rules see it, and it is not stored.
const DELTA_LABEL: &str = "__delta__";

/// Cache of the tenants' rules.
#[derive(Default)]
pub(crate) struct RelabelRuleCache {
    /// Rules by the address of their limits. The address stays unique as long as the cache holds the limits.
    read: HashMap<usize, Arc<TenantRelabelRules>>,
}

/// Rules of one configuration.
#[derive(Debug)]
pub(crate) struct TenantRelabelRules {
    pub(crate) limits: Arc<TenantLimits>,
    of_types: Vec<RelabelRule>,
    of_series: Vec<RelabelRule>,
    /// True if the tenant has series rules of its own.
    own: bool,
}

/// Error in the rules of a setting.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RelabelRulesError {
    /// Name of the setting.
    pub setting: &'static str,
    /// Description of the error in it.
    pub error: String,
}

impl RelabelRuleCache {
    /// Returns the rules of a tenant that has these limits.
    pub(crate) fn rules_for(
        &mut self,
        limits: &Arc<TenantLimits>,
    ) -> Result<Arc<TenantRelabelRules>, Status> {
        let address = Arc::as_ptr(limits).addr();
        if let Some(rules) = self.read.get(&address) {
            return Ok(Arc::clone(rules));
        }
        // Limits that only the cache holds were replaced by another configuration.
        self.read.retain(|_, rules| Arc::strong_count(&rules.limits) > 1);
        let rules = TenantRelabelRules::read(limits).map_err(|error| {
            // Rules are checked when a configuration is read.
            Status::new(ErrorCode::Internal, format!("{} cannot be applied: {error}", error.setting))
        })?;
        Ok(Arc::clone(self.read.entry(address).or_insert(Arc::new(rules))))
    }
}

impl TenantRelabelRules {
    /// Parses the rules of a configuration, or returns the first error.
    pub(crate) fn read(limits: &Arc<TenantLimits>) -> Result<Self, RelabelRulesError> {
        let mut of_series = read_rules(SERIES_RULES_SETTING, &limits.ingestion_relabeling_rules)?;
        let of_types = read_rules(TYPE_RULES_SETTING, &limits.sample_type_relabeling_rules)?;
        let own = !of_series.is_empty();
        let ours = relabel::default_rules().iter().cloned();
        match limits.ingestion_relabeling_default_rules_position {
            DefaultRulesPosition::First => drop(of_series.splice(..0, ours)),
            DefaultRulesPosition::Last => of_series.extend(ours),
            DefaultRulesPosition::Disabled => {}
        }
        Ok(TenantRelabelRules { limits: Arc::clone(limits), of_types, of_series, own })
    }

    /// Returns the limits on labels before the rules. A tenant with rules of its own may send more than is
    /// stored.
    pub(crate) fn limits_before_rules(&self) -> LabelLimits {
        let limits = self.after();
        if self.own { limits.widened_for_rules() } else { limits }
    }

    fn after(&self) -> LabelLimits {
        LabelLimits {
            name_length: self.limits.max_label_name_length as usize,
            value_length: self.limits.max_label_value_length as usize,
            names: self.limits.max_label_names_per_series as usize,
            sessions: self.limits.max_sessions_per_series,
            sanitise: !self.limits.disable_label_sanitization,
        }
    }

    /// Returns whether a sample type is stored.
    pub(crate) fn keeps_type(&self, labels: &Labels, value_type: &ValueType) -> Result<bool, Status> {
        if self.of_types.is_empty() {
            return Ok(true);
        }
        let mut seen = labels.clone();
        seen.set("__type__", &value_type.kind);
        seen.set("__unit__", &value_type.unit);
        let made = relabel::apply(&self.of_types, &seen);
        made.map(|made| made.is_some()).map_err(|error| refused(TYPE_RULES_SETTING, &error, "invalid_labels"))
    }

    /// Returns the labels by which a series is stored; none if it is dropped. `sent` are the labels of the
    /// upload.
    pub(crate) fn apply(
        &self,
        labels: &Labels,
        sent: &Labels,
        value_type: &ValueType,
        period_type: &ValueType,
    ) -> Result<Option<Labels>, Status> {
        let mut seen = labels.clone();
        if self.own {
            let name = labels.get(METRIC_NAME_LABEL).unwrap_or_default().to_owned();
            let of = ProfileType { name, value: value_type.clone(), period: period_type.clone() };
            seen.set("__type__", &of.value.kind);
            seen.set("__unit__", &of.value.unit);
            seen.set("__period_type__", &of.period.kind);
            seen.set("__period_unit__", &of.period.unit);
            seen.set("__profile_type__", &of.to_string());
            seen.set(DELTA_LABEL, sent.get(DELTA_LABEL).unwrap_or_default());
        }
        let made = relabel::apply(&self.of_series, &seen).map_err(|error| match self.own {
            true => refused(SERIES_RULES_SETTING, &error, "invalid_labels"),
            false => Status::new(ErrorCode::Invalid, error.to_string()).with_reason("invalid_labels"),
        })?;
        let Some(mut made) = made else { return Ok(None) };
        if !self.own {
            // The labels were checked on arrival, and the default rules make no unsound ones.
            made.set(DELTA_LABEL, "");
            return Ok(Some(made));
        }
        let wrong = |error: SeriesLabelsError| refused(SERIES_RULES_SETTING, &error, error.reason());
        let stored = normalize_relabeled(made, &self.after()).map_err(wrong)?;
        match stored.get(METRIC_NAME_LABEL).filter(|metric| metric.contains(':')) {
            Some(metric) => {
                let why = format!("label {METRIC_NAME_LABEL} is {metric:?}, which must not have a colon");
                Err(refused(SERIES_RULES_SETTING, &why, "invalid_labels"))
            }
            None => Ok(Some(stored)),
        }
    }
}

fn refused(setting: &str, why: &dyn std::fmt::Display, reason: &'static str) -> Status {
    Status::new(ErrorCode::Invalid, format!("after the rules of {setting}: {why}")).with_reason(reason)
}

/// Returns the errors of limits: rules that cannot be parsed, or a bound beyond the labels that rules handle.
pub fn find_relabel_errors(limits: &TenantLimits) -> Vec<RelabelRulesError> {
    let mut bad = Vec::new();
    let names = limits.max_label_names_per_series;
    if names as usize > MAX_LABELS_DURING_RELABEL {
        let error =
            format!("{names} labels, the maximum is {MAX_LABELS_DURING_RELABEL} (limit of relabeling rules)");
        bad.push(RelabelRulesError { setting: "limits.max_label_names_per_series", error });
    }
    let lists = [
        (SERIES_RULES_SETTING, &limits.ingestion_relabeling_rules),
        (TYPE_RULES_SETTING, &limits.sample_type_relabeling_rules),
    ];
    bad.extend(lists.into_iter().filter_map(|(setting, written)| read_rules(setting, written).err()));
    bad
}

fn read_rules(setting: &'static str, written: &[Value]) -> Result<Vec<RelabelRule>, RelabelRulesError> {
    relabel::parse_rules(written)
        .map_err(|error: RelabelRuleError| RelabelRulesError { setting, error: error.to_string() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(rules: &serde_json::Value) -> TenantLimits {
        TenantLimits {
            ingestion_relabeling_rules: rules.as_array().cloned().unwrap_or_default(),
            ..TenantLimits::default()
        }
    }

    /// The labels that are stored.
    fn stored(limits: TenantLimits, labels: &[(&str, &str)]) -> Result<Option<String>, String> {
        let rules = TenantRelabelRules::read(&Arc::new(limits)).expect("they are sound");
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let labels = Labels::new(labels.iter().map(pair));
        let sent = Labels::new([(DELTA_LABEL.to_owned(), "true".to_owned())]);
        let (cpu, period) = (ValueType::new("cpu", "nanoseconds"), ValueType::new("cpu", "ns"));
        let made = rules.apply(&labels, &sent, &cpu, &period).map_err(|status| status.message)?;
        Ok(made.map(|labels| labels.to_string()))
    }

    const MEMORY: [(&str, &str); 2] = [("__name__", "godeltaprof_memory"), ("service_name", "s")];

    #[test]
    fn the_servers_own_rules_stand_where_they_are_put() {
        let rules = json!([
            {"source_labels": ["__name__", "__delta__"], "separator": "/", "target_label": "seen"},
        ]);
        for (position, seen, name) in [
            (DefaultRulesPosition::First, "memory/false", "memory"),
            (DefaultRulesPosition::Last, "godeltaprof_memory/true", "memory"),
            (DefaultRulesPosition::Disabled, "godeltaprof_memory/true", "godeltaprof_memory"),
        ] {
            let limits =
                TenantLimits { ingestion_relabeling_default_rules_position: position, ..with(&rules) };
            let labels = stored(limits, &MEMORY).unwrap().unwrap();
            assert!(labels.contains(&format!("seen={seen:?}")), "{labels}");
            assert!(labels.starts_with(&format!("{{__name__={name:?}")), "{labels}");
            assert_eq!(
                labels.contains("__name_replaced__"),
                position != DefaultRulesPosition::Disabled,
                "{labels}"
            );
        }
    }

    #[test]
    fn rules_see_the_type_of_a_series_and_it_is_not_stored() {
        let rules = json!([
            {"source_labels": ["__type__", "__unit__", "__period_type__", "__period_unit__"], "target_label": "a"},
            {"source_labels": ["__profile_type__"], "target_label": "b"},
        ]);
        assert_eq!(
            stored(with(&rules), &[("__name__", "process_cpu"), ("service_name", "s")]).unwrap().unwrap(),
            "{__name__=\"process_cpu\", a=\"cpu;nanoseconds;cpu;ns\", b=\"process_cpu:cpu:nanoseconds:cpu:ns\", service_name=\"s\"}"
        );
        let dropped = json!([{"source_labels": ["__type__"], "regex": "cpu", "action": "drop"}]);
        assert_eq!(stored(with(&dropped), &MEMORY), Ok(None));
    }

    #[test]
    fn what_rules_spoil_is_refused_by_the_setting() {
        for (rule, expected) in [
            (json!({"action": "labeldrop", "regex": "service_name"}), "label service_name is empty"),
            (json!({"target_label": "__name__", "replacement": "a:b"}), "label __name__ is \"a:b\""),
            (
                json!({"target_label": "x", "replacement": "y".repeat(2049)}),
                "value of label \"x\" has 2049 bytes",
            ),
            (
                json!({"action": "labelmap", "regex": "service_(name)", "replacement": "$2"}),
                "a label with the value",
            ),
        ] {
            let error = stored(with(&json!([rule])), &MEMORY).unwrap_err();
            let expected = format!("after the rules of limits.ingestion_relabeling_rules: {expected}");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn a_limit_on_labels_holds_for_what_rules_leave() {
        let many: Vec<String> = (0..40).map(|n| format!("l{n}")).collect();
        let labels: Vec<(&str, &str)> =
            MEMORY.into_iter().chain(many.iter().map(|name| (name.as_str(), "x"))).collect();
        let few = with(&json!([{"action": "labeldrop", "regex": "l[0-9]+"}]));
        let before = TenantRelabelRules::read(&Arc::new(few.clone())).unwrap().limits_before_rules();
        assert!(before.names >= 42 && before.name_length > 1024 && before.value_length > 2048);
        assert!(stored(few, &labels).unwrap().is_some());
        assert!(stored(with(&json!([{"target_label": "x"}])), &labels).unwrap_err().contains("42 labels"));
    }

    #[test]
    fn rules_are_read_once_for_a_configuration_and_forgotten_with_it() {
        let mut book = RelabelRuleCache::default();
        let limits = Arc::new(with(&json!([{"action": "labeldrop", "regex": "pod"}])));
        let read = book.rules_for(&limits).unwrap();
        assert!(Arc::ptr_eq(&read, &book.rules_for(&limits).unwrap()));
        drop((read, limits));
        for number in 0..100 {
            let limits = TenantLimits { max_sessions_per_series: number, ..TenantLimits::default() };
            assert_eq!(book.rules_for(&Arc::new(limits)).unwrap().limits.max_sessions_per_series, number);
        }
        assert_eq!(book.read.len(), 1);
    }

    #[test]
    fn types_are_dropped_by_rules_of_their_own() {
        let rule = json!({"source_labels": ["__type__", "__unit__", "service_name"], "regex": "alloc_.*;bytes;s", "action": "drop"});
        let limits = TenantLimits { sample_type_relabeling_rules: vec![rule], ..TenantLimits::default() };
        let rules = TenantRelabelRules::read(&Arc::new(limits)).unwrap();
        let labels = Labels::new([("service_name".to_owned(), "s".to_owned())]);
        let kept = ["alloc_space", "inuse_space"]
            .map(|kind| rules.keeps_type(&labels, &ValueType::new(kind, "bytes")).unwrap());
        assert_eq!(kept, [false, true]);
    }

    #[test]
    fn rules_that_are_wrong_are_told_with_their_setting() {
        let limits = TenantLimits {
            sample_type_relabeling_rules: vec![json!({"action": "no"})],
            ..TenantLimits::default()
        };
        let refused = find_relabel_errors(&limits);
        assert_eq!(refused[0].setting, "limits.sample_type_relabeling_rules");
        assert!(refused[0].error.starts_with("rule 1: action is \"no\""), "{}", refused[0]);
        let most = TenantLimits { max_label_names_per_series: 1024, ..TenantLimits::default() };
        assert!(find_relabel_errors(&most).is_empty());
        let all_wrong = TenantLimits {
            max_label_names_per_series: 1025,
            ingestion_relabeling_rules: vec![json!({"regex": "("})],
            ..limits
        };
        let refused = find_relabel_errors(&all_wrong);
        let settings: Vec<&str> = refused.iter().map(|bad| bad.setting).collect();
        let expected = [
            "limits.max_label_names_per_series",
            "limits.ingestion_relabeling_rules",
            "limits.sample_type_relabeling_rules",
        ];
        assert_eq!(settings, expected);
        assert!(refused[0].error.starts_with("1025 labels, the maximum is 1024"), "{}", refused[0]);
    }
}
