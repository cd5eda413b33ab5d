//! Arbitrary bytes as a list of targets: rejected with a reason, or groups that stay equal when they are written
//! and parsed again, in both formats.
//!
//! The first byte selects the format.
#![no_main]

use athanor_agent::discovery::ADDRESS_LABEL;
use athanor_agent::discovery::target_list::{ListedGroup, TargetListFormat, parse_target_list};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

const META_LABEL: &str = "__meta_url";

/// Writes groups as a list. Of equal names the last one is written, which is the one that counts.
fn write_list(groups: &[ListedGroup]) -> String {
    let write_group = |group: &ListedGroup| {
        let labels = group.labels.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
        json!({ "targets": group.targets, "labels": labels.collect::<Map<_, _>>() })
    };
    Value::Array(groups.iter().map(write_group).collect()).to_string()
}

/// Groups with the labels of each target.
fn expand(groups: Vec<ListedGroup>) -> Vec<athanor_agent::discovery::TargetGroup> {
    let expand_group = |group: ListedGroup| group.into_group("source".to_owned(), (META_LABEL, "url"), true);
    groups.into_iter().map(expand_group).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, text)) = bytes.split_first() else { return };
    let format = if first % 2 == 0 { TargetListFormat::Json } else { TargetListFormat::Yaml };
    let groups = match parse_target_list(text, format) {
        Ok(groups) => groups,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let written = write_list(&groups);
    let parsed = parse_target_list(written.as_bytes(), TargetListFormat::Json).expect("it was just written");
    let expanded = expand(groups);
    for labels in expanded.iter().flat_map(|group| &group.targets) {
        assert_eq!(labels.get(META_LABEL), Some("url"));
        assert!(labels.get(ADDRESS_LABEL).is_none_or(|address| !address.is_empty()));
    }
    assert_eq!(expand(parsed), expanded);
});
