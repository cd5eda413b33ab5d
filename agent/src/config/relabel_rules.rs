//! Relabeling rules of a job, with their text for explanations.

use athanor_profile::labeling::relabel::{RelabelRule, RelabelRuleError, parse_rules};
use serde_json::{Map, Value};

use super::error::shorten;
use super::reader::{ConfigReader, ConfigTable};
use super::yaml::{YamlNode, YamlValue};

/// Maximum rules of one job.
const MAX_RULES_PER_JOB: usize = 500;

/// Relabeling rules. Equal if their texts are equal.
#[derive(Clone, Debug, Default)]
pub struct RelabelRules {
    rules: Vec<RelabelRule>,
    texts: Vec<String>,
}

// === impl RelabelRules ===

impl RelabelRules {
    /// Returns the rules in order.
    pub fn rules(&self) -> &[RelabelRule] {
        &self.rules
    }

    /// Returns the rules as JSON texts, in the same order.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Parses rules from JSON values.
    ///
    /// # Errors
    ///
    /// Number of the invalid rule and the reason.
    pub fn from_json(values: &[Value]) -> Result<Self, RelabelRuleError> {
        let texts = values.iter().map(Value::to_string).collect();
        Ok(RelabelRules { rules: parse_rules(values)?, texts })
    }
}

impl PartialEq for RelabelRules {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

/// Reads `relabel_configs` of a job.
pub(super) fn read_rules(reader: &mut ConfigReader, job: &ConfigTable<'_>) -> RelabelRules {
    let mut rules = RelabelRules::default();
    let Some(node) = job.get("relabel_configs") else { return rules };
    let items = reader.list("relabel_configs", node);
    if items.len() > MAX_RULES_PER_JOB {
        let message =
            format!("{} rules in relabel_configs, the limit is {MAX_RULES_PER_JOB}; join some", items.len());
        reader.refuse(node.position, message);
        return rules;
    }
    for item in items {
        if matches!(item.value, YamlValue::Null) {
            reader.refuse(item.position, "an item of relabel_configs is empty; remove it");
            continue;
        }
        let Some(table) = reader.table("relabel_configs", item) else { continue };
        let before = reader.error_count();
        let value = rule_value(reader, &table);
        match parse_rules(std::slice::from_ref(&value)) {
            Ok(parsed) => {
                rules.rules.extend(parsed);
                rules.texts.push(value.to_string());
            }
            Err(error) if reader.error_count() == before => refuse_rule(reader, &table, error),
            Err(_) => {}
        }
        table.finish(reader);
    }
    rules
}

fn refuse_rule(reader: &mut ConfigReader, table: &ConfigTable<'_>, error: RelabelRuleError) {
    match error {
        RelabelRuleError::Field { field, value, why, .. } => {
            let value = shorten(&value);
            reader.refuse(table.position_of(field), format!("{field} is {value:?}: {why}"));
        }
        RelabelRuleError::Form { why, .. } => reader.refuse(table.position, why),
        error @ RelabelRuleError::TooMany { .. } => reader.refuse(table.position, error.to_string()),
    }
}

/// Returns a rule as a JSON value. Numbers and truth values in texts are texts.
fn rule_value(reader: &mut ConfigReader, table: &ConfigTable<'_>) -> Value {
    let mut rule = Map::new();
    if table.get("source_labels").is_some() {
        let labels = table.texts(reader, "source_labels").into_iter().map(Value::String).collect();
        rule.insert("source_labels".to_owned(), Value::Array(labels));
    }
    for key in ["separator", "target_label", "replacement", "action"] {
        if let Some(text) = table.text(reader, key) {
            rule.insert(key.to_owned(), Value::String(text));
        }
    }
    match table.get_nullable("regex") {
        Some(YamlNode { value: YamlValue::Null, .. }) => drop(rule.insert("regex".to_owned(), Value::Null)),
        Some(node) => {
            let text = reader.text("regex", node).unwrap_or_default();
            rule.insert("regex".to_owned(), Value::String(text));
        }
        None => {}
    }
    if let Some(node) = table.get("modulus") {
        let modulus = reader.number("modulus", node, u64::MAX).unwrap_or_default();
        rule.insert("modulus".to_owned(), Value::from(modulus));
    }
    Value::Object(rule)
}
