//! Relabeling rules, as in Prometheus, that change, drop or keep the labels of a series. Each rule is applied
//! to the result of the previous one.
//!
//! - [`parse_rules`] reads rules from a tenant's configuration, or returns the number of the invalid rule and
//!   the reason.
//! - [`apply`] returns the labels after the rules, or `None` if a rule drops the series.
//! - [`default_rules`] produce the labels that readers of Go's profiles expect.
//!
//! A label with an empty value is absent. Rules may grow labels, each from the result of the previous rule,
//! so the size of the result is limited after every rule.

mod builder;
mod config;
mod template;

use std::num::NonZeroU64;
use std::sync::LazyLock;

use md5::{Digest, Md5};
use serde_json::json;

use crate::Labels;
use crate::labeling::pattern::CapturePattern;
use builder::LabelsBuilder;
use template::RelabelTemplate;

pub use config::{MAX_RULES_PER_TENANT, RelabelRuleError, parse_rules};

/// Maximum number of labels of a series while rules are applied.
pub const MAX_LABELS_DURING_RELABEL: usize = 1024;
/// Maximum bytes of label names and values while rules are applied.
pub const MAX_LABEL_BYTES_DURING_RELABEL: usize = 4 << 20;

/// Relabeling rule: an action with its source labels.
#[derive(Clone, Debug)]
pub struct RelabelRule {
    /// Labels with the values to join.
    sources: Vec<String>,
    separator: String,
    action: RelabelAction,
}

/// Action of a rule. Names are label names.
#[derive(Clone, Debug)]
enum RelabelAction {
    /// If the expression matches the joined values, sets the label named by the first template to the second
    /// template's result.
    Replace(CapturePattern, RelabelTemplate, RelabelTemplate),
    /// Drops series that do not match.
    Keep(CapturePattern),
    /// Drops series that match.
    Drop(CapturePattern),
    /// Drops series unless the joined values equal a label's value.
    KeepEqual(String),
    /// Drops series if the joined values equal a label's value.
    DropEqual(String),
    /// Sets a label to a hash of the joined values, modulo a divisor.
    HashMod(String, NonZeroU64),
    /// Sets a label to the joined values in lower case.
    Lowercase(String),
    /// Sets a label to the joined values in upper case.
    Uppercase(String),
    /// Copies labels with matching names to new names.
    LabelMap(CapturePattern, RelabelTemplate),
    /// Removes labels with matching names.
    LabelDrop(CapturePattern),
    /// Removes labels with names that do not match.
    LabelKeep(CapturePattern),
}

/// Error for labels that exceed a limit while rules are applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{labels} labels of {bytes} bytes after {rules} rules, the limits are {MAX_LABELS_DURING_RELABEL} and {MAX_LABEL_BYTES_DURING_RELABEL}; send fewer labels, or change the rules to produce fewer or shorter ones"
)]
pub struct RelabelLimitError {
    /// Number of rules that were applied.
    pub rules: usize,
    /// Number of labels after these rules.
    pub labels: usize,
    /// Bytes of label names and values after these rules.
    pub bytes: usize,
}

/// Applies the rules and returns the labels, or `None` if a rule drops the series.
pub fn apply<'r>(
    rules: impl IntoIterator<Item = &'r RelabelRule>,
    labels: &Labels,
) -> Result<Option<Labels>, RelabelLimitError> {
    let mut builder = LabelsBuilder::new(labels);
    builder.check(0)?;
    for (before, rule) in rules.into_iter().enumerate() {
        if !rule.apply(&mut builder) {
            return Ok(None);
        }
        builder.check(before + 1)?;
    }
    Ok(Some(builder.into_labels()))
}

/// Returns the default rules. A client that computes deltas itself prefixes the metric with `godeltaprof_`.
/// Readers expect the name without that prefix.
pub fn default_rules() -> &'static [RelabelRule] {
    static DEFAULT_RULES: LazyLock<Vec<RelabelRule>> = LazyLock::new(|| {
        let of_differences = |target: &str, replacement: &str| {
            json!({
                "source_labels": ["__name__"],
                "regex": "godeltaprof_(.+)",
                "target_label": target,
                "replacement": replacement,
            })
        };
        let rules = [
            of_differences("__name_replaced__", "$0"),
            of_differences("__delta__", "false"),
            // This rule is last, because the others match on the original name.
            of_differences("__name__", "$1"),
        ];
        parse_rules(&rules).expect("they are sound")
    });
    &DEFAULT_RULES
}

impl RelabelRule {
    /// Applies the rule. Returns whether the series stays.
    fn apply(&self, labels: &mut LabelsBuilder) -> bool {
        let sources: Vec<&str> = self.sources.iter().map(|name| labels.get(name)).collect();
        let joined = sources.join(&self.separator);
        match &self.action {
            RelabelAction::Replace(pattern, target, replacement) => {
                if let Some(groups) = pattern.regex.captures(&joined) {
                    let target = target.expand(&groups);
                    if !target.is_empty() {
                        labels.set(&target, &replacement.expand(&groups));
                    }
                }
            }
            RelabelAction::Keep(pattern) => return pattern.regex.is_match(&joined),
            RelabelAction::Drop(pattern) => return !pattern.regex.is_match(&joined),
            RelabelAction::KeepEqual(label) => return labels.get(label) == joined,
            RelabelAction::DropEqual(label) => return labels.get(label) != joined,
            RelabelAction::HashMod(target, modulus) => {
                labels.set(target, &(hash(&joined) % modulus.get()).to_string());
            }
            RelabelAction::Lowercase(target) => labels.set(target, &lowercase(&joined)),
            RelabelAction::Uppercase(target) => labels.set(target, &uppercase(&joined)),
            RelabelAction::LabelMap(pattern, name) => {
                for (known, value) in labels.current_labels() {
                    if let Some(groups) = pattern.regex.captures(&known) {
                        labels.set(&name.expand(&groups), &value);
                    }
                }
            }
            RelabelAction::LabelDrop(pattern) => labels.retain(|name| !pattern.regex.is_match(name)),
            RelabelAction::LabelKeep(pattern) => labels.retain(|name| pattern.regex.is_match(name)),
        }
        true
    }
}

/// Returns the second half of an MD5, as Prometheus does, so that rules distribute series the same way in
/// both.
fn hash(text: &str) -> u64 {
    let sum: [u8; 16] = Md5::digest(text).into();
    u64::from_be_bytes(*sum.last_chunk().expect("an MD5 has sixteen bytes"))
}

/// Converts letter by letter. No letter becomes several.
fn lowercase(text: &str) -> String {
    let lower = |letter: char| match letter {
        'İ' => 'i',
        _ => only(letter, letter.to_lowercase()),
    };
    text.chars().map(lower).collect()
}

/// Converts letter by letter. No letter becomes several. Greek letters with iota subscript become capitals
/// with iota adscript.
fn uppercase(text: &str) -> String {
    let beyond = |letter: char, distance| char::from_u32(u32::from(letter) + distance).unwrap_or(letter);
    let upper = |letter: char| match letter {
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => beyond(letter, 8),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => beyond(letter, 9),
        _ => only(letter, letter.to_uppercase()),
    };
    text.chars().map(upper).collect()
}

fn only(letter: char, mut cases: impl ExactSizeIterator<Item = char>) -> char {
    if cases.len() == 1 { cases.next().unwrap_or(letter) } else { letter }
}

#[cfg(test)]
mod tests;
