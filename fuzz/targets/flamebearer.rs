//! Any bytes as a flame graph of older clients: refused or read; what is read is shown as a graph that reads the same.
#![no_main]

use athanor_profile::call_tree::flamegraph::Flamegraph;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::flamebearer::parse;
use athanor_profile::formats::pprof::DecodeLimits;
use libfuzzer_sys::fuzz_target;
use serde_json::json;

#[path = "../small.rs"]
mod small;

fuzz_target!(|bytes: &[u8]| {
    let Ok(profile) = parse(bytes, &small::limits()) else { return };
    let tree = Tree::from_profile(&profile, 0);
    let Flamegraph { names, levels, total, max_self } = Flamegraph::from_tree(&tree);
    let bars = json!({ "names": names, "levels": levels, "numTicks": total, "maxSelf": max_self });
    let document = json!({ "version": 1, "flamebearer": bars }).to_string();
    let again = parse(document.as_bytes(), &DecodeLimits::default()).expect("what is shown reads");
    assert_eq!(Tree::from_profile(&again, 0), tree);
});
