//! Any bytes as a flight recording: refused or read; what is read is pprof, and one profile of all.
#![no_main]

use athanor_profile::formats::jfr::{JfrLimits, LabelsSnapshot, RecordingInfo, read, read_merged};
use athanor_profile::formats::pprof;
use libfuzzer_sys::fuzz_target;

#[path = "../small.rs"]
mod small;

const LIMITS: JfrLimits = JfrLimits {
    bytes: 1 << 20,
    constants: 10_000,
    frames: 1 << 18,
    names: 1 << 20,
    samples: 10_000,
    profile: 1 << 20,
};

fuzz_target!(|bytes: &[u8]| {
    let about = RecordingInfo { sample_rate: 100, ..RecordingInfo::default() };
    let Ok(recording) = read(bytes, &about, &LabelsSnapshot::default(), &LIMITS) else { return };
    for made in &recording.profiles {
        // One that is over a limit is refused alone, and one without stacks is nothing.
        let Some(raw) = made.pprof.as_ref().ok().filter(|raw| !raw.is_empty()) else { continue };
        assert!(raw.len() <= LIMITS.profile);
        let (profile, dropped) = pprof::decode(raw, &pprof::DecodeLimits::default()).expect("it is sound");
        assert_eq!(dropped, Default::default());
        assert_eq!(profile.header.types.len(), made.kind.types.len());
    }
    let _ = read_merged(bytes, &small::limits());
});
