//! Formats of tools that say themselves what they measure: they are named as pprof is, by their types.

pub(super) use athanor_profile::format::Format;
use athanor_profile::pprof::encode;
use bytes::Bytes;

use super::super::metric::TypeConfig;
use super::super::request::Request;
use super::{Bounds, ConvertError, Converted, named, pprof, speedscope};

/// How what is compressed begins.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// A body of which nobody says what it is: stacks with counts, unless it begins as nothing else does than another format.
pub(super) fn told(request: &Request, body: &Bytes, bounds: &Bounds) -> Result<Converted, ConvertError> {
    if body.starts_with(GZIP) || body.starts_with(ZSTD) {
        let format = "format=pprof, or format=jfr for a flight recording; text is not decompressed";
        return Err(ConvertError::Other { what: "gzip or zstd", format });
    }
    match Format::of(body) {
        Ok(Format::Jfr) => Err(ConvertError::Other { what: "a flight recording", format: "format=jfr" }),
        Ok(Format::Speedscope) => speedscope::speedscope(request, body, bounds),
        Ok(format @ (Format::Flamebearer | Format::PerfScript)) => document(request, body, format, bounds),
        _ => named::text(request, body, true, bounds),
    }
}

pub(super) fn document(
    request: &Request,
    body: &Bytes,
    format: Format,
    bounds: &Bounds,
) -> Result<Converted, ConvertError> {
    let mut profile = format.read(body, &bounds.document(body.len()))?;
    if profile.header.time_nanos == 0 {
        (profile.header.time_nanos, profile.header.duration_nanos) = (request.from, request.duration);
    }
    let made = Bytes::from(encode(&profile));
    bounds.made(made.len())?;
    pprof::pprof(request, &made, &TypeConfig::default(), bounds)
}

/// Which setting the bound on a part of a document follows, and what to do about it.
pub(super) fn way_out(what: &str) -> &'static str {
    match what {
        "samples" | "samples of different stacks" => {
            " (limits.max_profile_stacktrace_samples, or one for eight bytes of the body): profile for a shorter time"
        }
        "different frames" => {
            " (one for 96 bytes of limits.max_profile_size_bytes): profile for a shorter time"
        }
        "frames in a stack" | "events" | "types" => ", which no setting changes",
        _ => " (of limits.max_profile_size_bytes and of the body): profile for a shorter time",
    }
}
