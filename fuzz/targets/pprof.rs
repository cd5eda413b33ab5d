//! Any bytes as pprof: refused or read; what is read can be written, and reads the same again.
#![no_main]

use athanor_profile::Dictionary;
use athanor_profile::formats::pprof::{DecodeLimits, DecodedProfile, PprofDecoder, decode, encode};
use libfuzzer_sys::fuzz_target;

fn content(raw: &[u8], limits: &DecodeLimits) -> u128 {
    let (mut dictionary, mut decoded) = (Dictionary::default(), DecodedProfile::default());
    PprofDecoder::default().decode(raw, limits, &mut dictionary, &mut decoded).expect("was just written");
    decoded.content.finish(&decoded.header)
}

fuzz_target!(|bytes: &[u8]| {
    let bounds = DecodeLimits {
        bytes: 1 << 20,
        samples: 10_000,
        labels: 100,
        depth: 10_000,
        ..DecodeLimits::default()
    };
    let limits = DecodeLimits { entries: 10_000, ..bounds };
    let Ok((profile, _)) = decode(bytes, &limits) else { return };
    // Each text is written once, so that no table outgrows what was read; only bytes may.
    let limits = DecodeLimits { bytes: usize::MAX, labels: usize::MAX, ..limits };
    let raw = encode(&profile);
    let (again, dropped) = decode(&raw, &limits).expect("what was written reads");
    assert_eq!(dropped, Default::default());
    assert_eq!(again.header, profile.header);
    assert_eq!(content(&encode(&again), &limits), content(&raw, &limits));
    assert_eq!(
        (again.samples.values, again.samples.moments),
        (profile.samples.values, profile.samples.moments)
    );
});
