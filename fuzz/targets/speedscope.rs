//! Any bytes as a document of speedscope: refused or read; what is read reads the same after it was written.
#![no_main]

use athanor_profile::Profile;
use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::pprof::DecodeLimits;
use athanor_profile::formats::speedscope::{parse, write};
use libfuzzer_sys::fuzz_target;

#[path = "../small.rs"]
mod small;

fn trees(profile: &Profile) -> Vec<Tree> {
    (0..profile.header.types.len()).map(|column| Tree::from_profile(profile, column)).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(profile) = parse(bytes, &small::limits()) else { return };
    let written = write(&profile, "again");
    let again = parse(written.as_bytes(), &DecodeLimits::default()).expect("what was written reads");
    assert_eq!(again.header.types, profile.header.types);
    assert_eq!(trees(&again), trees(&profile));
});
