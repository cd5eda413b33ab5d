//! Any bytes as the labels of a flight recording, whose events have contexts and spans: refused, or the profile is sound.
#![no_main]

use athanor_profile::formats::jfr::{JfrLimits, LabelsSnapshot, RecordingInfo, read};
use athanor_profile::formats::pprof;
use athanor_profile::generate::{FlightChunk, FlightEvent};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(labels) = LabelsSnapshot::parse(bytes) else { return };
    let events = (0..8).map(|context| FlightEvent {
        name: "jdk.ExecutionSample",
        stack: vec![("App".into(), "main".into(), 1)],
        numbers: vec![("contextId", context), ("spanId", context & 1), ("spanName", context)],
        ..FlightEvent::default()
    });
    let raw = FlightChunk { compressed: true, ticks: 1, events: events.collect() }.chunk();
    let recording =
        read(&raw, &RecordingInfo::default(), &labels, &JfrLimits::default()).expect("it is sound");
    for made in recording.profiles {
        pprof::decode(&made.pprof.expect("it is small"), &pprof::DecodeLimits::default())
            .expect("it is sound");
    }
});
