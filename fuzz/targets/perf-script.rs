//! Any bytes as what `perf script` prints: refused or read; what is read can be written as pprof, and is the same there.
#![no_main]

use athanor_profile::call_tree::tree::Tree;
use athanor_profile::formats::pprof::{DecodeLimits, decode, encode};
use athanor_profile::{Profile, formats::format, formats::perf_script};
use libfuzzer_sys::fuzz_target;

fn trees(profile: &Profile) -> Vec<Tree> {
    (0..profile.header.types.len()).map(|column| Tree::from_profile(profile, column)).collect()
}

fuzz_target!(|bytes: &[u8]| {
    // Whatever it is, it is told apart.
    let _ = format::InputFormat::detect(bytes);
    let limits =
        DecodeLimits { bytes: 1 << 20, samples: 10_000, depth: 1_000, types: 100, ..DecodeLimits::default() };
    let Ok(profile) = perf_script::parse(bytes, &limits) else { return };
    let (again, _) = decode(&encode(&profile), &DecodeLimits::default()).expect("what was written reads");
    assert_eq!(again.header.types, profile.header.types);
    assert_eq!(trees(&again), trees(&profile));
});
