//! Parser and validator of relabeling rules from a configuration.

use std::num::NonZeroU64;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::template::RelabelTemplate;
use super::{RelabelAction, RelabelRule};
use crate::labeling::pattern::{CapturePattern, PatternError, compile_with_groups};

/// Maximum number of rules of one kind per tenant.
pub const MAX_RULES_PER_TENANT: usize = 500;
/// Defaults of Prometheus for absent fields.
const DEFAULT_SEPARATOR: &str = ";";
const DEFAULT_REGEX: &str = "(.*)";
const DEFAULT_REPLACEMENT: &str = "$1";
const ACTION_NAMES: &str = "replace, keep, drop, keepequal, dropequal, hashmod, lowercase, uppercase, labelmap, labeldrop or labelkeep";

/// Reason for refusing rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelabelRuleError {
    /// More rules than the limit.
    #[error("there are {count} rules, the limit is {MAX_RULES_PER_TENANT}; join some")]
    TooMany {
        /// Number of rules given.
        count: usize,
    },
    /// Rule with an unknown field, or with a value of the wrong type.
    #[error("rule {rule}: {why}")]
    Form {
        /// Number of the rule, from 1.
        rule: usize,
        /// Message of the deserializer.
        why: String,
    },
    /// Field with an invalid value.
    #[error("rule {rule}: {field} is {value:?}: {why}")]
    Field {
        /// Number of the rule, from 1.
        rule: usize,
        /// Name of the field.
        field: &'static str,
        /// Value of the field; empty if it is absent.
        value: String,
        /// Explanation of the error, and advice.
        why: String,
    },
}

/// Fields of a rule as written. Absent fields get their defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a rule, such as {action: labeldrop, regex: pod}")]
struct RelabelConfig {
    source_labels: Option<Vec<String>>,
    separator: Option<String>,
    #[serde(deserialize_with = "regex_or_nothing")]
    regex: Option<String>,
    modulus: Option<u64>,
    target_label: Option<String>,
    replacement: Option<String>,
    action: Option<String>,
}

/// Reads `regex:` without a value as the empty expression, which matches empty text.
fn regex_or_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Option::deserialize(deserializer).map(|regex| Some(regex.unwrap_or_default()))
}

/// Invalid field: its name, its value, and the reason.
type InvalidRuleField = (&'static str, String, String);

/// Parses rules as written in the configuration.
pub fn parse_rules(written: &[Value]) -> Result<Vec<RelabelRule>, RelabelRuleError> {
    if written.len() > MAX_RULES_PER_TENANT {
        return Err(RelabelRuleError::TooMany { count: written.len() });
    }
    let read = |(rule, value): (usize, &Value)| {
        let written = RelabelConfig::deserialize(value)
            .map_err(|error| RelabelRuleError::Form { rule, why: error.to_string() })?;
        written.rule().map_err(|(field, value, why)| RelabelRuleError::Field { rule, field, value, why })
    };
    (1..).zip(written).map(read).collect()
}

impl RelabelConfig {
    fn rule(self) -> Result<RelabelRule, InvalidRuleField> {
        let name = self.action.as_deref().unwrap_or("replace").to_lowercase();
        if self.source_labels.iter().flatten().any(String::is_empty) {
            return Err(wrong("source_labels", "", "label names must not be empty; set the names"));
        }
        // An invalid expression is an error, even if the action does not use it.
        let regex = self.regex()?;
        let action = match name.as_str() {
            "replace" => {
                let target = self.target(&name)?;
                let target = RelabelTemplate::new(target, &regex.names);
                let replacement = RelabelTemplate::new(self.replacement(), &regex.names);
                RelabelAction::Replace(regex, target, replacement)
            }
            "keep" => RelabelAction::Keep(regex),
            "drop" => RelabelAction::Drop(regex),
            "keepequal" => RelabelAction::KeepEqual(self.only_sources_and_target(&name)?),
            "dropequal" => RelabelAction::DropEqual(self.only_sources_and_target(&name)?),
            "hashmod" => RelabelAction::HashMod(self.target(&name)?.to_owned(), self.divisor()?),
            "lowercase" => RelabelAction::Lowercase(self.target_without_replacement(&name)?),
            "uppercase" => RelabelAction::Uppercase(self.target_without_replacement(&name)?),
            "labelmap" => {
                if self.replacement().is_empty() {
                    return Err(wrong("replacement", "", "labelmap needs the new name, such as $1"));
                }
                let new = RelabelTemplate::new(self.replacement(), &regex.names);
                RelabelAction::LabelMap(regex, new)
            }
            "labeldrop" | "labelkeep" => {
                self.only_regex(&name)?;
                if name == "labeldrop" {
                    RelabelAction::LabelDrop(regex)
                } else {
                    RelabelAction::LabelKeep(regex)
                }
            }
            other => return Err(wrong("action", other, &format!("unknown action; use {ACTION_NAMES}"))),
        };
        let sources = self.source_labels.unwrap_or_default();
        Ok(RelabelRule {
            sources,
            separator: self.separator.unwrap_or_else(|| DEFAULT_SEPARATOR.into()),
            action,
        })
    }

    fn regex(&self) -> Result<CapturePattern, InvalidRuleField> {
        let regex = self.regex.as_deref().unwrap_or(DEFAULT_REGEX);
        let describe = |error: PatternError| wrong("regex", regex, &format!("{}; use RE2 syntax", error.why));
        compile_with_groups(regex).map_err(describe)
    }

    fn replacement(&self) -> &str {
        self.replacement.as_deref().unwrap_or(DEFAULT_REPLACEMENT)
    }

    fn target(&self, action: &str) -> Result<&str, InvalidRuleField> {
        let target = self.target_label.as_deref().filter(|target| !target.is_empty());
        let why = || format!("{action} needs a target label; set target_label");
        target.ok_or_else(|| wrong("target_label", "", &why()))
    }

    fn divisor(&self) -> Result<NonZeroU64, InvalidRuleField> {
        let modulus = self.modulus.unwrap_or(0);
        let why = "hashmod needs a modulus; set 1 or more";
        NonZeroU64::new(modulus).ok_or_else(|| wrong("modulus", "0", why))
    }

    fn target_without_replacement(&self, action: &str) -> Result<String, InvalidRuleField> {
        let target = self.target(action)?;
        self.must_not_say(
            "replacement",
            self.replacement() != DEFAULT_REPLACEMENT,
            self.replacement(),
            action,
        )?;
        Ok(target.to_owned())
    }

    fn only_sources_and_target(&self, action: &str) -> Result<String, InvalidRuleField> {
        let target = self.target_without_replacement(action)?;
        self.must_not_say("regex", self.regex.is_some(), self.regex.as_deref().unwrap_or_default(), action)?;
        self.must_not_divide_or_join(action)?;
        Ok(target)
    }

    fn only_regex(&self, action: &str) -> Result<(), InvalidRuleField> {
        let sources = self.source_labels.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
        let target = self.target_label.as_deref().unwrap_or_default();
        self.must_not_say("source_labels", self.source_labels.is_some(), &sources, action)?;
        self.must_not_say("target_label", !target.is_empty(), target, action)?;
        self.must_not_say(
            "replacement",
            self.replacement() != DEFAULT_REPLACEMENT,
            self.replacement(),
            action,
        )?;
        self.must_not_divide_or_join(action)
    }

    fn must_not_divide_or_join(&self, action: &str) -> Result<(), InvalidRuleField> {
        let modulus = self.modulus.unwrap_or(0);
        let separator = self.separator.as_deref().unwrap_or(DEFAULT_SEPARATOR);
        self.must_not_say("modulus", modulus != 0, &modulus.to_string(), action)?;
        self.must_not_say("separator", separator != DEFAULT_SEPARATOR, separator, action)
    }

    /// Returns an error for a field that would have no effect.
    fn must_not_say(
        &self,
        field: &'static str,
        says: bool,
        value: &str,
        action: &str,
    ) -> Result<(), InvalidRuleField> {
        let why = || format!("{action} does not use the field; remove the field");
        if says { Err(wrong(field, value, &why())) } else { Ok(()) }
    }
}

fn wrong(field: &'static str, value: &str, why: &str) -> InvalidRuleField {
    (field, value.to_owned(), why.to_owned())
}
