//! Any bytes as folded stacks: refused or read; what is read reads the same after it was written.
#![no_main]

use athanor_profile::folded::{parse, write};
use athanor_profile::pprof::Limits;
use athanor_profile::tree::Tree;
use athanor_profile::{Profile, ValueType};
use libfuzzer_sys::fuzz_target;

fn text(profile: &Profile) -> String {
    write(&Tree::new(profile, 0))
}

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { bytes: 1 << 20, samples: 10_000, depth: 1_000, ..Limits::default() };
    let value_type = || ValueType::new("cpu", "nanoseconds");
    let Ok(profile) = parse(bytes, value_type(), &limits) else { return };
    let written = text(&profile);
    let unlimited = Limits { bytes: usize::MAX, ..limits };
    // Sums wrap, and a sum that wrapped to below zero is no count.
    let Ok(again) = parse(written.as_bytes(), value_type(), &unlimited) else {
        assert!(profile.samples.values.iter().any(|&value| !(0..1 << 40).contains(&value)));
        return;
    };
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&text(&again)), sorted(&written));
});
