//! Any bytes as an export of OpenTelemetry in JSON: refused, or a message that is one, and not more of it than may be.
#![no_main]

use athanor_profile::formats::otlp::{OtlpError, OtlpLimits, from_json, read_converted_json};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limit = 1 << 16;
    let Ok(message) = from_json(bytes, limit) else { return };
    assert!(message.len() <= limit + 32);
    let bounds = OtlpLimits { profile: 1 << 16, total: 1 << 18, profiles: 100 };
    if let Err(error) = read_converted_json(&message, &bounds) {
        assert!(!matches!(error, OtlpError::CutOff { .. } | OtlpError::Malformed { .. }), "{error}");
    }
});
