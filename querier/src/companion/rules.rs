//! Recording rules that derive metrics from profiles. They are stored, but not evaluated yet.

use athanor_chassis::Status;
use athanor_profile::encoding::hash;
use athanor_query::Selector;
use serde::{Deserialize, Serialize};

use crate::validate::{self, invalid_argument};

mod wire;

/// Prefix of rule keys in the catalog.
const RULE_KEY_PREFIX: &str = "rule/";
/// Prefix of metric names.
const METRIC_NAME_PREFIX: &str = "profiles_recorded_";
/// Maximum number of rules of a tenant.
const MAX_RULES_PER_TENANT: usize = 25;
/// Maximum length of a rule id.
const MAX_RULE_ID_CHARS: usize = 64;
const PROFILE_TYPE_LABEL: &str = "__profile_type__";

/// Recording rule in its stored form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct StoredRecordingRule {
    metric_name: String,
    profile_type: String,
    matchers: Vec<String>,
    group_by: Vec<String>,
    external_labels: Vec<(String, String)>,
    generation: i64,
    /// Function whose total is measured. None measures all samples.
    function: Option<String>,
}

impl StoredRecordingRule {
    /// Validates a rule, and extracts its profile type from its matchers.
    fn validate(mut self) -> Result<StoredRecordingRule, Status> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if !self.metric_name.starts_with(METRIC_NAME_PREFIX) || !self.metric_name.chars().all(is_name) {
            let name = &self.metric_name;
            return Err(invalid_argument(format!(
                "metric name is {name:?}; begin with {METRIC_NAME_PREFIX} and use letters, digits, _ and : only"
            )));
        }
        validate::check_labels(&self.group_by)?;
        let mut all: Selector = validate::parse_selectors(&self.matchers)?;
        let of_type = all.take_equal(PROFILE_TYPE_LABEL);
        let (Some(profile_type), None) = (of_type, all.take_equal(PROFILE_TYPE_LABEL)) else {
            return Err(invalid_argument(format!(
                "matchers need exactly one {PROFILE_TYPE_LABEL}=\"…\"; add or remove one"
            )));
        };
        self.profile_type = validate::parse_profile_type(&profile_type)?.to_string();
        Ok(self)
    }
}

fn rule_key(id: &str) -> Result<String, Status> {
    let is_id = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match id.len() {
        1..=MAX_RULE_ID_CHARS if id.chars().all(is_id) => Ok(format!("{RULE_KEY_PREFIX}{id}")),
        _ => Err(invalid_argument(format!(
            "id of a rule is {id:?}; write 1 to {MAX_RULE_ID_CHARS} letters, digits, _ and -"
        ))),
    }
}

/// Returns the ids that a new rule may get, in order. They are derived from its contents, so that a retried
/// request creates no second rule. One of them is free or belongs to this rule, even if other rules changed
/// meanwhile.
fn candidate_ids(rule: &StoredRecordingRule) -> impl Iterator<Item = String> {
    let text = serde_json::to_vec(rule).expect("lists and texts serialise to JSON");
    let first = hash::hash_bytes(&text) as u64;
    (0..=MAX_RULES_PER_TENANT as u64).map(move |place| format!("{:016x}", first.wrapping_add(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_a_metric_and_one_type() {
        let rule = |metric: &str, matchers: &[&str]| {
            let matchers = matchers.iter().map(|text| (*text).to_owned()).collect();
            StoredRecordingRule { metric_name: metric.to_owned(), matchers, ..StoredRecordingRule::default() }
                .validate()
        };
        let of_type = r#"{__profile_type__="a:b:c:d:e"}"#;
        assert_eq!(rule("profiles_recorded_x", &[of_type, "{a=\"b\"}"]).unwrap().profile_type, "a:b:c:d:e");
        assert!(rule("x", &[of_type]).is_err());
        assert!(rule("profiles_recorded_x y", &[of_type]).is_err());
        assert!(rule("profiles_recorded_x", &[]).is_err());
        assert!(rule("profiles_recorded_x", &[of_type, of_type]).is_err());
        assert!(rule("profiles_recorded_x", &[of_type, "{"]).is_err());
        assert!(rule("profiles_recorded_x", &[r#"{__profile_type__="a"}"#]).is_err());
        assert!(rule_key("a-b_C1").is_ok() && rule_key("").is_err() && rule_key("a/b").is_err());
    }
}
