//! Any text as rules for labels, and lines of labels behind them: refused, or labels of bounded size, the same each time.
#![no_main]

use athanor_profile::Labels;
use athanor_profile::data_model::labels::parse_label;
use athanor_profile::labeling::relabel::{MAX_LABELS_DURING_RELABEL, apply, parse_rules};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let (rules, labels) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(rules) = serde_json::from_str::<Vec<Value>>(rules) else { return };
    let Ok(rules) = parse_rules(&rules) else { return };
    let labels = Labels::new(labels.lines().filter_map(|line| parse_label(line).ok()));
    let made = apply(&rules, &labels);
    if let Ok(Some(made)) = &made {
        assert!(made.len() <= MAX_LABELS_DURING_RELABEL);
        assert!(made.iter().all(|(_, value)| !value.is_empty()));
    }
    assert_eq!(apply(&rules, &labels), made);
});
