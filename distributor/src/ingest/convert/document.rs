//! Formats of tools that state their own types. The types give the metric, as for pprof.

pub(super) use athanor_profile::formats::format::InputFormat;
use athanor_profile::formats::pprof::encode;
use athanor_profile::labeling::metric_name::SampleTypeConfig;
use bytes::Bytes;

use super::super::request::IngestRequest;
use super::{ConvertError, ConvertLimits, ConvertedBody, pprof, speedscope, stack_formats};

/// Magic bytes of compressed data: gzip, and zstd below.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Converts a body without a stated format. It is read as stacks with counts, unless its beginning identifies
/// another format.
pub(super) fn convert_unlabeled(
    request: &IngestRequest,
    body: &Bytes,
    bounds: &ConvertLimits,
) -> Result<ConvertedBody, ConvertError> {
    if body.starts_with(GZIP_MAGIC) || body.starts_with(ZSTD_MAGIC) {
        let format = "format=pprof, or format=jfr for a flight recording; text is not decompressed";
        return Err(ConvertError::Other { what: "gzip or zstd", format });
    }
    match InputFormat::detect(body) {
        Ok(InputFormat::Jfr) => Err(ConvertError::Other { what: "a flight recording", format: "format=jfr" }),
        Ok(InputFormat::Speedscope) => speedscope::convert_speedscope(request, body, bounds),
        Ok(format @ (InputFormat::Flamebearer | InputFormat::PerfScript)) => {
            convert_document(request, body, format, bounds)
        }
        _ => stack_formats::convert_text(request, body, true, bounds),
    }
}

pub(super) fn convert_document(
    request: &IngestRequest,
    body: &Bytes,
    format: InputFormat,
    bounds: &ConvertLimits,
) -> Result<ConvertedBody, ConvertError> {
    let mut profile = format.read(body, &bounds.document_limits(body.len()))?;
    if profile.header.time_nanos == 0 {
        (profile.header.time_nanos, profile.header.duration_nanos) = (request.from, request.duration);
    }
    let made = Bytes::from(encode(&profile));
    bounds.check_profile_size(made.len())?;
    pprof::convert_pprof(request, &made, &SampleTypeConfig::default(), bounds)
}

/// Returns the setting that a limit of a document follows, and advice.
pub(super) fn limit_advice(what: &str) -> &'static str {
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
