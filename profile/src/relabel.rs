//! Rules that change, drop or keep the labels of a series, as Prometheus has them: one after the other, each on what
//! the one before has left.
//!
//! * [`parse_rules`] takes rules as a tenant's configuration has them, or says which one is wrong and why.
//! * [`apply`] gives the labels that come of rules; none where a rule drops the series.
//! * [`default_rules`] are what readers of Go's profiles expect.
//!
//! A label without a value is one that is not there. Rules may make labels grow, each from what the last one made: so
//! there is a bound on what they have made at any time.

mod builder;
mod config;
mod template;

use std::num::NonZeroU64;
use std::sync::LazyLock;

use md5::{Digest, Md5};
use serde_json::json;

use crate::Labels;
use crate::pattern::CapturePattern;
use builder::LabelsBuilder;
use template::RelabelTemplate;

pub use config::{MAX_RULES_PER_TENANT, RelabelRuleError, parse_rules};

/// The most labels that a series has while rules are applied.
pub const MAX_LABELS_DURING_RELABEL: usize = 1024;
/// The most bytes of their names and values.
pub const MAX_LABEL_BYTES_DURING_RELABEL: usize = 4 << 20;

/// One rule.
#[derive(Clone, Debug)]
pub struct RelabelRule {
    /// Of which labels the values are joined.
    sources: Vec<String>,
    separator: String,
    action: RelabelAction,
}

/// What a rule does. Names are those of labels.
#[derive(Clone, Debug)]
enum RelabelAction {
    /// Where the expression matches the joined values, a label is set to what the second template makes of them.
    Replace(CapturePattern, RelabelTemplate, RelabelTemplate),
    /// Only what matches stays.
    Keep(CapturePattern),
    /// What matches goes.
    Drop(CapturePattern),
    /// Only what equals a label's value stays.
    KeepEqual(String),
    /// What equals a label's value goes.
    DropEqual(String),
    /// A label is set to what a hash of the joined values leaves when it is divided.
    HashMod(String, NonZeroU64),
    /// A label is set to the joined values, in small letters.
    Lowercase(String),
    /// A label is set to the joined values, in capitals.
    Uppercase(String),
    /// Labels whose names match are there by another name as well.
    LabelMap(CapturePattern, RelabelTemplate),
    /// Labels whose names match go.
    LabelDrop(CapturePattern),
    /// Only labels whose names match stay.
    LabelKeep(CapturePattern),
}

/// Why rules were not applied to the end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{labels} labels of {bytes} bytes after {rules} rules, the limits are {MAX_LABELS_DURING_RELABEL} and {MAX_LABEL_BYTES_DURING_RELABEL}; send fewer, or have the rules make fewer and shorter ones"
)]
pub struct RelabelLimitError {
    /// How many rules were applied.
    pub rules: usize,
    /// How many there are.
    pub labels: usize,
    /// What they take.
    pub bytes: usize,
}

/// The labels that come of the rules; none where one of them drops the series.
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

/// A client that subtracts by itself puts `godeltaprof_` before the name of what it sends; readers know it without.
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
            // Last, since the others know by the name whom they mean.
            of_differences("__name__", "$1"),
        ];
        parse_rules(&rules).expect("they are sound")
    });
    &DEFAULT_RULES
}

impl RelabelRule {
    /// Whether the series stays.
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

/// The second half of an MD5, as Prometheus takes it: rules for both deal series out alike.
fn hash(text: &str) -> u64 {
    let sum: [u8; 16] = Md5::digest(text).into();
    u64::from_be_bytes(*sum.last_chunk().expect("an MD5 has sixteen bytes"))
}

/// Letter by letter: none becomes several.
fn lowercase(text: &str) -> String {
    let lower = |letter: char| match letter {
        'İ' => 'i',
        _ => only(letter, letter.to_lowercase()),
    };
    text.chars().map(lower).collect()
}

/// Letter by letter: none becomes several, and Greek ones with an iota below have capitals with one beside.
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
