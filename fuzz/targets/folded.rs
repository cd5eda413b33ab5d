//! Any bytes as folded stacks: refused or read; what is read reads the same after it was written.
#![no_main]

use std::collections::BTreeMap;

use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::folded::{parse, write};
use athanor_profile::formats::pprof::DecodeLimits;
use athanor_profile::{Profile, ValueType};
use libfuzzer_sys::fuzz_target;

fn text(profile: &Profile) -> String {
    write(&Tree::from_profile(profile, 0))
}

/// Totals of the stacks that are not zero: names that differ only in line breaks are written alike.
fn sums(text: &str) -> BTreeMap<&str, i64> {
    let mut sums = BTreeMap::<&str, i64>::new();
    for (stack, value) in text.lines().filter_map(|line| line.rsplit_once(' ')) {
        let sum = sums.entry(stack).or_default();
        *sum = sum.wrapping_add(value.parse().expect("values are numbers"));
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

fuzz_target!(|bytes: &[u8]| {
    let limits = DecodeLimits { bytes: 1 << 20, samples: 10_000, depth: 1_000, ..DecodeLimits::default() };
    let value_type = || ValueType::new("cpu", "nanoseconds");
    let Ok(profile) = parse(bytes, value_type(), &limits) else { return };
    let written = text(&profile);
    let unlimited = DecodeLimits { bytes: usize::MAX, ..limits };
    let again = parse(written.as_bytes(), value_type(), &unlimited).expect("what was written reads");
    assert_eq!(sums(&text(&again)), sums(&written));
});
