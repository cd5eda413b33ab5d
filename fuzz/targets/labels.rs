//! Any text as `name=value`: refused, or a name and a value that say the same when written again.
#![no_main]

use athanor_profile::Labels;
use athanor_profile::data_model::labels::{is_label_name, parse_label};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok((name, value)) = parse_label(text) else { return };
    assert!(is_label_name(&name));
    assert_eq!(parse_label(&format!("{name}={value}")), Ok((name.clone(), value.clone())));
    let labels = Labels::new([(name.clone(), value.clone())]);
    assert_eq!(labels.get(&name), (!value.is_empty()).then_some(value.as_str()));
});
