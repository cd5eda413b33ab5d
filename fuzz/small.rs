//! Limits under which a fuzzer makes much of little.

use athanor_profile::formats::pprof::DecodeLimits;

/// Of a document of some kilobytes.
pub fn limits() -> DecodeLimits {
    DecodeLimits {
        bytes: 1 << 20,
        samples: 10_000,
        depth: 1_000,
        frames: 1 << 20,
        entries: 10_000,
        types: 100,
        ..DecodeLimits::default()
    }
}
