//! Any bytes as an export of OpenTelemetry: refused, or pprof that is never more than may be.
#![no_main]

use athanor_profile::formats::otlp::{OtlpLimits, OtlpProfileContent, read};
use athanor_profile::formats::pprof::{DecodeError, decode};
use libfuzzer_sys::fuzz_target;

#[path = "../small.rs"]
mod small;

fuzz_target!(|bytes: &[u8]| {
    let bounds = OtlpLimits { profile: 1 << 16, total: 1 << 18, profiles: 100 };
    let Ok(export) = read(bytes, &bounds) else { return };
    let mut total = 0;
    for made in export.profiles.iter().flatten().flatten() {
        let OtlpProfileContent::Pprof(pprof) = &made.content else { continue };
        total += pprof.len();
        match decode(pprof, &small::limits()) {
            Ok((_, dropped)) => assert_eq!(dropped, Default::default()),
            Err(error) => {
                assert!(
                    matches!(error, DecodeError::NotUtf8 { .. } | DecodeError::OverLimit { .. }),
                    "{error}"
                );
            }
        }
    }
    // What stands around samples and names is not counted to the byte.
    assert!(total <= bounds.total + 1000 * bounds.profiles);
});
