//! Flight recordings. Each gives one profile per kind of event in it. In a form, one part holds the recording
//! and another the labels that its events refer to by number.

use athanor_chassis::TenantLimits;
use athanor_profile::encoding::multipart::MultipartForm;
use athanor_profile::formats::jfr::{
    self, CONSTANTS_LIMIT_NAME, FRAMES_LIMIT_NAME, JfrError, JfrLimits, JfrProfile as Profile,
    LINES_LIMIT_NAME, LabelsSnapshot, NAMES_LIMIT_NAME, READ_BYTES_LIMIT_NAME, RecordingInfo,
};
use athanor_profile::formats::pprof::{DecodeError, inflate, inflate_bytes};
use bytes::Bytes;

use super::super::request::IngestRequest;
use super::{
    ClientDialect, ConvertError, ConvertLimits, ConvertedBody, ConvertedProfile, conversion_refusal, labels,
};

/// Maximum bytes of labels after inflation. Agents send some kilobytes.
const MAX_LABELS_BYTES: usize = 16 << 20;
/// Approximate bytes of one sample in a profile. In memory it takes a few hundred while samples are counted.
const SAMPLE_OVERHEAD_BYTES: usize = 96;
/// Number of profile kinds with names of their own.
const MAX_NAMED_KINDS: usize = 9;
/// Returns the limits for a recording. Inflated, it may be as large as any request. The data kept beside it
/// is limited to a part of that.
pub(crate) fn bounds(limits: &TenantLimits) -> JfrLimits {
    let profile = limits.max_profile_size_bytes.as_usize();
    JfrLimits {
        names: profile.saturating_mul(MAX_NAMED_KINDS),
        samples: (limits.max_profile_stacktrace_samples as usize).min(profile / SAMPLE_OVERHEAD_BYTES),
        profile,
        ..JfrLimits::for_bytes(limits.ingestion_body_limit.as_usize())
    }
}

/// Returns the setting that a limit follows, and advice.
pub(crate) fn way_out(error: &JfrError) -> &'static str {
    match error {
        JfrError::Profile { what: "bytes", .. } => {
            " (limits.max_profile_size_bytes): record for a shorter time"
        }
        JfrError::Profile { .. } => {
            " (limits.max_profile_stacktrace_samples, and no more than one for 96 bytes of limits.max_profile_size_bytes): record for a shorter time"
        }
        JfrError::OverLimit { what: NAMES_LIMIT_NAME, .. } => {
            " (nine times limits.max_profile_size_bytes): record for a shorter time"
        }
        JfrError::OverLimit { what: "bytes", .. } => {
            ", as many as a request may have (limits.ingestion_body_limit): record for a shorter time"
        }
        JfrError::OverLimit {
            what: CONSTANTS_LIMIT_NAME | LINES_LIMIT_NAME | FRAMES_LIMIT_NAME | READ_BYTES_LIMIT_NAME,
            ..
        } => ", which follows limits.ingestion_body_limit: record for a shorter time",
        JfrError::OverLimit { .. } => ", which no setting changes: record for a shorter time",
        JfrError::LabelsOverLimit { .. } => ", which no setting changes: set fewer and shorter labels",
        JfrError::Overflow { .. } => ": record for a shorter time",
        _ => "",
    }
}

/// Returns whether the value over its limit is of a profile. Such refusals have the statuses of a push.
pub(super) fn is_limit_of_profiles(error: &JfrError) -> bool {
    matches!(error, JfrError::Profile { .. } | JfrError::OverLimit { what: NAMES_LIMIT_NAME, .. })
}

pub(super) fn convert_jfr(
    request: &IngestRequest,
    content_type: Option<&str>,
    body: Bytes,
    bounds: &ConvertLimits,
) -> Result<ConvertedBody, ConvertError> {
    let form = content_type.map(|content_type| MultipartForm::parse(content_type, &body)).transpose()?;
    let sent = match &form {
        None => body,
        Some(form) => {
            drop(body);
            form.get("jfr").ok_or(ConvertError::NoRecording)?.clone()
        }
    };
    let door = ClientDialect::Pprof;
    let time_nanos = request.from;
    if sent.is_empty() {
        let labels = labels(request, "process_cpu", &request.name.app, true);
        return Ok(ConvertedBody {
            door,
            time_nanos,
            made: vec![ConvertedProfile::single_profile(labels, None)],
        });
    }
    let names = form.as_ref().and_then(|form| form.get("labels"));
    let names =
        names.map_or(Ok(Vec::new()), |names| inflate(names, MAX_LABELS_BYTES)).map_err(
            |error| match error {
                DecodeError::OverLimit { what, seen, limit } => {
                    JfrError::LabelsOverLimit { what, seen, limit }.into()
                }
                error => ConvertError::JfrLabels(error),
            },
        )?;
    drop(form);
    let raw = inflate_bytes(sent, bounds.jfr.bytes).map_err(|error| match error {
        DecodeError::OverLimit { what, seen, limit } => JfrError::OverLimit { what, seen, limit }.into(),
        error => ConvertError::JfrBody(error),
    })?;
    let IngestRequest { from: start, duration, sample_rate, .. } = *request;
    let about = RecordingInfo { start, duration, sample_rate };
    let recording = jfr::read(&raw, &about, &LabelsSnapshot::parse(&names)?, &bounds.jfr)?;
    let made = recording.profiles.into_iter().map(|Profile { kind, pprof, without_stack }| {
        let mut labels = labels(request, kind.metric, &request.name.app, true);
        if !recording.event.is_empty() && !request.name.labels.contains_key("jfr_event") {
            labels.push(("jfr_event".to_owned(), recording.event.clone()));
        }
        let pprof = pprof.map_err(|error| conversion_refusal(error.into()));
        let pprof = pprof.map(|pprof| (!pprof.is_empty()).then(|| pprof.into()));
        ConvertedProfile { name: kind.name().to_owned(), labels, client_id: None, pprof, without_stack }
    });
    Ok(ConvertedBody { door, time_nanos, made: made.collect() })
}
