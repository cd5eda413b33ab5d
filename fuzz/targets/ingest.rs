//! Any bytes as a body of each format of `/ingest`: refused, or pprof that a shard can read, within the limits.
#![no_main]

use athanor_chassis::{ByteSize, TenantLimits};
use athanor_distributor::convert_profiles;
use athanor_profile::formats::pprof;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

/// The first byte of the input says which.
const FORMATS: [&str; 11] = [
    "groups",
    "lines",
    "trie",
    "tree",
    "pprof",
    "form",
    "speedscope",
    "flamebearer",
    "perf_script",
    "jfr",
    "jfr form",
];
const SPIES: [&str; 4] = ["unknown", "pyspy", "rbspy", "dotnetspy"];

fuzz_target!(|bytes: &[u8]| {
    let Some((&which, body)) = bytes.split_first() else { return };
    let format = FORMATS[usize::from(which) % FORMATS.len()];
    let spy = SPIES[usize::from(which) / FORMATS.len() % SPIES.len()];
    let content_type = format.ends_with("form").then_some("multipart/form-data; boundary=b");
    let format = format.trim_end_matches(" form");
    let limits = TenantLimits {
        max_profile_size_bytes: ByteSize::bytes(1 << 16),
        max_profile_stacktrace_samples: 1_000,
        max_profile_stacktrace_depth: 100,
        ..TenantLimits::default()
    };
    let query = format!("name=app&format={format}&spyName={spy}");
    let body = Bytes::copy_from_slice(body);
    let Ok(made) = convert_profiles(&query, content_type, &body, &limits) else { return };
    let total: usize = made.iter().map(Bytes::len).sum();
    // What is stored as it came is as large as it came. What is written here has a header, and tables of what it names.
    assert!(total <= 20 * (1 << 16) + 2 * body.len() + 1_000, "{total} bytes of {}", body.len());
    for profile in made {
        let read = pprof::decode(&profile, &pprof::DecodeLimits::default());
        let sent_so = matches!(format, "pprof" | "form");
        assert!(sent_so || read.is_ok(), "{format}: {read:?}");
    }
});
