//! Rules that say which metrics are made of profiles. They are kept; nothing evaluates them yet.

use athanor_chassis::Status;
use athanor_profile::hash;
use athanor_query::Selector;
use serde::{Deserialize, Serialize};

use crate::check::{self, invalid};

mod wire;

/// What names of their notes begin with.
const PREFIX: &str = "rule/";
/// What names of metrics begin with.
const METRIC: &str = "profiles_recorded_";
/// Most rules of a tenant.
const MAX_RULES: usize = 25;
/// The longest id.
const MAX_ID: usize = 64;
const PROFILE_TYPE: &str = "__profile_type__";

/// A rule as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Rule {
    metric_name: String,
    profile_type: String,
    matchers: Vec<String>,
    group_by: Vec<String>,
    external_labels: Vec<(String, String)>,
    generation: i64,
    /// The function whose total is measured; of everything if none.
    function: Option<String>,
}

impl Rule {
    /// Checks what a rule says, and finds its type among its matchers.
    fn checked(mut self) -> Result<Rule, Status> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if !self.metric_name.starts_with(METRIC) || !self.metric_name.chars().all(is_name) {
            let name = &self.metric_name;
            return Err(invalid(format!(
                "metric name is {name:?}; begin with {METRIC} and use letters, digits, _ and : only"
            )));
        }
        check::labels(&self.group_by)?;
        let mut all: Selector = check::selectors(&self.matchers)?;
        let of_type = all.take_equal(PROFILE_TYPE);
        let (Some(profile_type), None) = (of_type, all.take_equal(PROFILE_TYPE)) else {
            return Err(invalid(format!(
                "matchers must have one {PROFILE_TYPE}=\"…\"; add it, or leave one out"
            )));
        };
        self.profile_type = check::profile_type(&profile_type)?.to_string();
        Ok(self)
    }
}

fn key(id: &str) -> Result<String, Status> {
    let is_id = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match id.len() {
        1..=MAX_ID if id.chars().all(is_id) => Ok(format!("{PREFIX}{id}")),
        _ => Err(invalid(format!("id of a rule is {id:?}; write 1 to {MAX_ID} letters, digits, _ and -"))),
    }
}

/// The ids that a new rule may get, in their order. They follow from what it says, so that a repeated request makes no
/// second rule. One of them is free, or is this rule's already, however the others were changed meanwhile.
fn new_ids(rule: &Rule) -> impl Iterator<Item = String> {
    let text = serde_json::to_vec(rule).expect("lists and texts serialise to JSON");
    let first = hash::bytes(&text) as u64;
    (0..=MAX_RULES as u64).map(move |place| format!("{:016x}", first.wrapping_add(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_a_metric_and_one_type() {
        let rule = |metric: &str, matchers: &[&str]| {
            let matchers = matchers.iter().map(|text| (*text).to_owned()).collect();
            Rule { metric_name: metric.to_owned(), matchers, ..Rule::default() }.checked()
        };
        let of_type = r#"{__profile_type__="a:b:c:d:e"}"#;
        assert_eq!(rule("profiles_recorded_x", &[of_type, "{a=\"b\"}"]).unwrap().profile_type, "a:b:c:d:e");
        assert!(rule("x", &[of_type]).is_err());
        assert!(rule("profiles_recorded_x y", &[of_type]).is_err());
        assert!(rule("profiles_recorded_x", &[]).is_err());
        assert!(rule("profiles_recorded_x", &[of_type, of_type]).is_err());
        assert!(rule("profiles_recorded_x", &[of_type, "{"]).is_err());
        assert!(rule("profiles_recorded_x", &[r#"{__profile_type__="a"}"#]).is_err());
        assert!(key("a-b_C1").is_ok() && key("").is_err() && key("a/b").is_err());
    }
}
