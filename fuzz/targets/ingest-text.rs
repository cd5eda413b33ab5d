//! Any bytes as text of SDKs, with counts and without: refused, or the stacks of a plain reader.
#![no_main]

use std::collections::BTreeMap;

use athanor_chassis::TenantLimits;
use athanor_distributor::convert_profiles;
use athanor_profile::formats::pprof;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

/// Totals by stack, the plain way; none where a count is no number.
fn plain(text: &str, counted: bool) -> Option<BTreeMap<Vec<String>, i64>> {
    let mut totals = BTreeMap::new();
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let sample = if counted { line.rsplit_once(' ') } else { (!line.is_empty()).then_some((line, "1")) };
        let Some((stack, count)) = sample else { continue };
        let count: i64 = count.parse().ok()?;
        if count > 0 {
            *totals.entry(stack.split(';').map(str::to_owned).collect()).or_default() += count;
        }
    }
    Some(totals)
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let limits = TenantLimits { max_profile_stacktrace_depth: u32::MAX, ..TenantLimits::default() };
    for (format, counted) in [("groups", true), ("lines", false)] {
        let query = format!("name=app&sampleRate=0&format={format}");
        let Ok(made) = convert_profiles(&query, None, &Bytes::copy_from_slice(bytes), &limits) else {
            continue;
        };
        let mut totals = BTreeMap::new();
        for profile in made {
            let (profile, _) =
                pprof::decode(&profile, &pprof::DecodeLimits::default()).expect("what was written reads");
            for (stack, _, values) in profile.samples.rows(1) {
                *totals.entry(profile.dictionary.frame_names(stack)).or_insert(0) += values[0];
            }
        }
        // What begins as a document of another tool is read as one.
        if Some(totals) != plain(text, counted) {
            assert!(counted && !text.trim_start().is_empty() && (text.contains('{') || text.contains(':')));
        }
    }
});
