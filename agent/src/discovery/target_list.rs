//! Lists of target groups in JSON or YAML, as files and HTTP servers contain them.
//!
//! Accepted and rejected lists are those of Prometheus. In addition, a list is bounded after expansion, since
//! each target has all labels of its group.

use std::fmt;

use athanor_chassis::ByteSize;
use athanor_profile::Labels;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{ADDRESS_LABEL, TargetGroup};

/// Maximum bytes of a list.
pub const MAX_LIST_BYTES: u64 = 16 << 20;
/// Maximum targets of a list.
const MAX_LIST_TARGETS: usize = 100_000;
/// Maximum labels of a group.
const MAX_GROUP_LABELS: usize = 1_000;
/// Maximum bytes of the labels of all targets.
const MAX_EXPANDED_BYTES: usize = 128 << 20;
/// Memory of a label, besides its text.
const LABEL_OVERHEAD_BYTES: usize = 64;
/// Maximum characters of a parser error.
const MAX_ERROR_CHARS: usize = 300;

/// Format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetListFormat {
    /// JSON array.
    Json,
    /// YAML sequence.
    Yaml,
}

/// Targets that share labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedGroup {
    /// Addresses.
    pub targets: Vec<String>,
    /// Labels of all targets.
    pub labels: Vec<(String, String)>,
}

/// Reason why a list is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetListError {
    /// The list has too many bytes.
    #[error("target list is over the limit of {}; split it", ByteSize::bytes(MAX_LIST_BYTES))]
    TooLarge,
    /// The text is not a list of target groups.
    #[error("target list is not valid: {reason}")]
    Syntax {
        /// Message of the parser.
        reason: String,
    },
    /// An item of the list is null.
    #[error("item {index} of the target list is null; remove it")]
    NullGroup {
        /// Index of the item.
        index: usize,
    },
    /// A label has no name.
    #[error("item {index} of the target list has a label without a name")]
    EmptyLabelName {
        /// Index of the item.
        index: usize,
    },
    /// The list has too many targets.
    #[error("target list has {targets} targets, the limit is {MAX_LIST_TARGETS}; split it")]
    TooManyTargets {
        /// Number of targets.
        targets: usize,
    },
    /// A group has too many labels.
    #[error("item {index} of the target list has {labels} labels, the limit is {MAX_GROUP_LABELS}")]
    TooManyLabels {
        /// Index of the item.
        index: usize,
        /// Number of labels.
        labels: usize,
    },
    /// The labels of all targets need too much memory.
    #[error(
        "target list needs over {} for the labels of its targets; use fewer labels or split it",
        ByteSize::bytes(MAX_EXPANDED_BYTES as u64)
    )]
    TooMuchMemory,
}

/// Parses a list of target groups.
///
/// # Errors
///
/// The list is not valid or exceeds a limit. Unknown keys are not valid.
pub fn parse_target_list(
    bytes: &[u8],
    format: TargetListFormat,
) -> Result<Vec<ListedGroup>, TargetListError> {
    if bytes.len() as u64 > MAX_LIST_BYTES {
        return Err(TargetListError::TooLarge);
    }
    let parsed: Option<Vec<Option<ParsedGroup>>> = match format {
        TargetListFormat::Json => serde_json::from_slice(bytes).map_err(|error| syntax(&error))?,
        TargetListFormat::Yaml if is_empty_yaml(bytes) => None,
        TargetListFormat::Yaml => serde_saphyr::from_slice(bytes).map_err(|error| syntax(&error))?,
    };
    let mut groups = Vec::new();
    for (index, group) in parsed.unwrap_or_default().into_iter().enumerate() {
        let group = group.ok_or(TargetListError::NullGroup { index })?.into_group();
        check_labels(index, &group)?;
        groups.push(group);
    }
    check_expansion(&groups)?;
    Ok(groups)
}

impl ListedGroup {
    /// Returns the group with its source, and with a meta label on each target.
    pub fn into_group(self, source: String, meta: (&str, &str), is_address_untrusted: bool) -> TargetGroup {
        let (meta_name, meta_value) = meta;
        let mut common = Labels::new(self.labels);
        common.set(meta_name, meta_value);
        let with_address = |address: String| {
            let mut labels = common.clone();
            labels.set(ADDRESS_LABEL, &address);
            labels
        };
        let targets = self.targets.into_iter().map(with_address).collect();
        TargetGroup { source, targets, is_address_untrusted }
    }
}

fn check_labels(index: usize, group: &ListedGroup) -> Result<(), TargetListError> {
    let labels = group.labels.len();
    if labels > MAX_GROUP_LABELS {
        return Err(TargetListError::TooManyLabels { index, labels });
    }
    if group.labels.iter().any(|(name, _)| name.is_empty()) {
        return Err(TargetListError::EmptyLabelName { index });
    }
    Ok(())
}

fn check_expansion(groups: &[ListedGroup]) -> Result<(), TargetListError> {
    let targets = groups.iter().map(|group| group.targets.len()).sum();
    if targets > MAX_LIST_TARGETS {
        return Err(TargetListError::TooManyTargets { targets });
    }
    let mut expanded: usize = 0;
    for group in groups {
        let label = |(name, value): &(String, String)| name.len() + value.len() + LABEL_OVERHEAD_BYTES;
        let labels: usize = group.labels.iter().map(label).sum();
        let addresses: usize = group.targets.iter().map(String::len).sum();
        let per_target = labels + 2 * LABEL_OVERHEAD_BYTES;
        expanded = expanded.saturating_add(per_target.saturating_mul(group.targets.len()) + addresses);
    }
    if expanded > MAX_EXPANDED_BYTES { Err(TargetListError::TooMuchMemory) } else { Ok(()) }
}

/// Returns whether a YAML text has no content besides comments and white space.
fn is_empty_yaml(bytes: &[u8]) -> bool {
    bytes.split(|byte| *byte == b'\n').all(|line| {
        let line = line.trim_ascii();
        line.is_empty() || line.starts_with(b"#") || line == b"---"
    })
}

fn syntax(error: &dyn fmt::Display) -> TargetListError {
    TargetListError::Syntax { reason: error.to_string().chars().take(MAX_ERROR_CHARS).collect() }
}

/// Group as it is written. Nulls are empty values, and the case of keys does not matter.
#[derive(Default)]
struct ParsedGroup {
    targets: Option<Vec<Option<String>>>,
    labels: Option<LabelPairs>,
}

/// Labels in the order in which they are written. The last of several equal names wins.
#[derive(Default)]
struct LabelPairs(Vec<(String, String)>);

impl ParsedGroup {
    fn into_group(self) -> ListedGroup {
        let targets = self.targets.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect();
        ListedGroup { targets, labels: self.labels.unwrap_or_default().0 }
    }
}

impl<'de> Deserialize<'de> for ParsedGroup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GroupVisitor;

        impl<'de> Visitor<'de> for GroupVisitor {
            type Value = ParsedGroup;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a target group with targets and labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParsedGroup, A::Error> {
                let mut group = ParsedGroup::default();
                while let Some(key) = map.next_key::<String>()? {
                    if key.eq_ignore_ascii_case("targets") {
                        group.targets = map.next_value()?;
                    } else if key.eq_ignore_ascii_case("labels") {
                        group.labels = map.next_value()?;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                        let key: String = key.chars().take(64).collect();
                        let message = format!("key {key:?} is unknown, use targets and labels");
                        return Err(serde::de::Error::custom(message));
                    }
                }
                Ok(group)
            }
        }

        deserializer.deserialize_map(GroupVisitor)
    }
}

impl<'de> Deserialize<'de> for LabelPairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor;

        impl<'de> Visitor<'de> for LabelsVisitor {
            type Value = LabelPairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels with text values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LabelPairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Option<String>>()? {
                    pairs.push((name, value.unwrap_or_default()));
                }
                Ok(LabelPairs(pairs))
            }
        }

        deserializer.deserialize_map(LabelsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::TargetListFormat::{Json, Yaml};
    use super::*;

    fn group(targets: &[&str], labels: &[(&str, &str)]) -> ListedGroup {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ListedGroup { targets: targets.iter().map(|target| (*target).to_owned()).collect(), labels }
    }

    #[test]
    fn lists_have_the_same_meaning_in_both_formats() {
        let json = r#"[{"targets": ["a:1", "b"], "labels": {"env": "x", "UTF-8 näme": "y"}}, {"targets": null}, {}]"#;
        let yaml = "- targets: [a:1, b]\n  labels:\n    env: x\n    UTF-8 näme: y\n- targets: null\n- {}\n";
        let expected = [
            group(&["a:1", "b"], &[("env", "x"), ("UTF-8 näme", "y")]),
            ListedGroup::default(),
            ListedGroup::default(),
        ];
        assert_eq!(parse_target_list(json.as_bytes(), Json).unwrap(), expected);
        assert_eq!(parse_target_list(yaml.as_bytes(), Yaml).unwrap(), expected);
    }

    #[test]
    fn yaml_scalars_keep_their_text() {
        let yaml =
            "- targets: [8080, true]\n  labels: {port: 08.10, flag: yes, none: ~, 1: '2', text: \"~\"}\n";
        let labels = [("port", "08.10"), ("flag", "yes"), ("none", ""), ("1", "2"), ("text", "~")];
        assert_eq!(parse_target_list(yaml.as_bytes(), Yaml).unwrap(), [group(&["8080", "true"], &labels)]);
    }

    #[test]
    fn empty_lists_have_no_groups() {
        for json in ["[]", "null", " [ ] \n"] {
            assert_eq!(parse_target_list(json.as_bytes(), Json).unwrap(), [], "{json}");
        }
        for yaml in ["", "\n\n", "# nothing\n", "---\n", "[]", "null", "~"] {
            assert_eq!(parse_target_list(yaml.as_bytes(), Yaml).unwrap(), [], "{yaml}");
        }
    }

    #[test]
    fn json_keys_match_without_case_and_the_last_of_equal_ones_wins() {
        let json =
            r#"[{"TARGETS": ["a"], "targets": ["b", null], "Labels": {"x": "1", "x": "2", "y": null}}]"#;
        let groups = parse_target_list(json.as_bytes(), Json).unwrap();
        let labels = &groups[0].clone().into_group("s".to_owned(), ("__meta_url", "u"), true).targets[0];
        assert_eq!(groups[0].targets, ["b", ""]);
        assert_eq!(labels.to_string(), r#"{__address__="b", __meta_url="u", x="2"}"#);
    }

    #[test]
    fn invalid_lists_are_rejected_with_a_reason() {
        let cases = [
            ("", Json, "EOF"),
            ("{}", Json, "expected a sequence"),
            ("[null]", Json, "item 0 of the target list is null"),
            ("[{}, null]", Json, "item 1"),
            (r#"[{"target": []}]"#, Json, "key \"target\" is unknown, use targets and labels"),
            (r#"[{"targets": [1]}]"#, Json, "invalid type: integer"),
            (r#"[{"labels": {"a": 1}}]"#, Json, "invalid type: integer"),
            (r#"[{"labels": {"": "x"}}]"#, Json, "label without a name"),
            ("[] []", Json, "trailing characters"),
            ("- null", Yaml, "item 0 of the target list is null"),
            ("- {source: x}", Yaml, "key \"source\" is unknown"),
            ("- labels: {a: 1, a: 2}", Yaml, "duplicate"),
            ("a: [", Yaml, ""),
        ];
        for (text, format, expected) in cases {
            let error = parse_target_list(text.as_bytes(), format).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn lists_over_a_limit_are_rejected() {
        let parse = |text: &str| parse_target_list(text.as_bytes(), Json);
        let spaces = " ".repeat(MAX_LIST_BYTES as usize + 1);
        assert_eq!(parse(&spaces), Err(TargetListError::TooLarge));
        let targets = MAX_LIST_TARGETS + 1;
        let list = format!(r#"[{{"targets": [{}""]}}]"#, r#""","#.repeat(targets - 1));
        assert_eq!(parse(&list), Err(TargetListError::TooManyTargets { targets }));
        let pairs: Vec<String> = (0..=MAX_GROUP_LABELS).map(|n| format!(r#""a{n}": "x""#)).collect();
        let list = format!(r#"[{{"labels": {{{}}}}}]"#, pairs.join(","));
        assert_eq!(parse(&list), Err(TargetListError::TooManyLabels { index: 0, labels: pairs.len() }));
        let value = "x".repeat(1 << 20);
        let list = format!(r#"[{{"labels": {{"a": "{value}"}}, "targets": [{}""]}}]"#, r#""","#.repeat(127));
        assert_eq!(parse(&list), Err(TargetListError::TooMuchMemory));
        let aliases = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned()
            + &(0..9).fold(String::new(), |text, n| {
                let name = char::from(b'b' + n);
                let before = char::from(b'a' + n);
                text + &format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 9].join(","))
            });
        assert!(parse_target_list(aliases.as_bytes(), Yaml).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in "[-\\[\\]{}:,\"a-z&*~ \n]{0,200}") {
            let _ = parse_target_list(text.as_bytes(), Json);
            let _ = parse_target_list(text.as_bytes(), Yaml);
        }
    }
}
